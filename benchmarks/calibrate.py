"""Fits all constants of a chip to published device times at once, and says what holds each of them.

    uv pip install -e '.[bench,tune]' && python benchmarks/calibrate.py --chip v6e --write

in an environment with Python 3.12 or newer. Programs are compiled once, into the cache of `fidelity.py`, and executed
with as many sets of constants as `--trials` says: milliseconds to seconds each. Only rows for fitting are read. A set
is as good as it is likely: errors follow Student's distribution, every operation counts alike, and the constants of
today are the prior. What a fit is worth is what it predicts: each operation is left out in turn, and its error under
the constants that the others give is printed beside today's. Nothing in harness/chips is changed: whoever believes the
page does that.

`--each N` takes the N cheapest rows of each operation, `--seconds S` leaves out those that take longer than that to
execute. With `--write` the results are kept in data/calibration.json and CALIBRATION.md is written from all of them;
`--pages` only writes the page.
"""

import argparse
import dataclasses
import json
import multiprocessing
import time
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import fidelity
import fidelity_compile
import fidelity_rows
import numpy as np
import optuna
from fidelity_statistics import kind_of
from scipy import stats
from tabulate import tabulate

from harness import chips
from harness.chips.row import Calibrated
from harness.dumps.llo import read_module
from harness.hardware import chip as chip_named
from harness.judge.simulate.machine import machine_of
from harness.judge.simulate.module import Prepared, mean_seconds, prepare

HERE = Path(__file__).parent
RESULTS = HERE / "data" / "calibration.json"
PAGE = HERE / "CALIBRATION.md"
# Each constant: the least and the most that it may be, and how far from today's value it is expected, as a logarithm.
SPACE: dict[str, tuple[float, float, float]] = {
    "hbm_read_share": (0.7, 1.0, 0.1),
    "hbm_write_share": (0.5, 1.0, 0.2),
    "dma_latency_seconds": (250e-9, 1100e-9, 0.4),
    "dma_write_latency_seconds": (100e-9, 900e-9, 0.6),
    "transfer_seconds": (1e-9, 2e-8, 0.7),
    "wait_seconds": (2e-9, 6e-8, 0.7),
    "transfer_bytes_per_cycle": (400, 4096, 0.5),
    "matmul_slowdown": (1.0, 1.08, 0.02),
}
# Errors of a good simulator: their scale as a logarithm, and the degrees of freedom of their tails.
_SCALE, _FREEDOM = 0.03, 4
# A constant may be moved until the rows are so much less likely: twice that is 95 % of a chi-squared distribution.
_LESS_LIKELY = 1.92
_MOVES = (0.5, 0.6, 0.7, 0.8, 0.9, 0.95, 0.98, 0.99, 1.01, 1.02, 1.05, 1.1, 1.25, 1.4, 1.7, 2.0)
_RUN_SECONDS = 600.0

Constants = Mapping[str, float]


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """A row that may be fitted, its program as the simulator runs it, and the time that was published."""

    row: str
    kind: str
    chip: str
    prepared: Prepared
    measured_seconds: float


# Read by the processes that are forked when all cases are prepared.
_CASES: list[Case] = []


def cases(chip: str, each: int, most_seconds: float, cache: Path) -> list[Case]:
    """The rows for fitting of a chip with a latency, the cheapest of each operation, compiled where that is left."""
    rows = [row for row in fidelity.chosen(each) if row.chip == chip and row.purpose == "fit"]
    fidelity.compiled(rows, cache)
    found = []
    for row in rows:
        directory = cache / "own" / row.name
        if not directory.exists() or (directory / fidelity_compile.FAILED).exists():
            continue
        prepared = prepare(read_module(directory), chip_named(chip), fetched_before=True)
        began = time.process_time()
        seconds = mean_seconds(prepared, machine_of(chip_named(chip)), _RUN_SECONDS)
        if seconds is not None and time.process_time() - began <= most_seconds:
            measured = fidelity_rows.measured(row).seconds
            found.append(
                Case(row=row.name, kind=kind_of(row.operation), chip=chip, prepared=prepared, measured_seconds=measured)
            )
    return found


def today(chip: str) -> dict[str, float]:
    """The constants of a chip as they are."""
    row = chips.row(chip)
    return dataclasses.asdict(row.calibrated or Calibrated())


def error(case: Case, constants: Constants) -> float:
    """Simulated over measured under these constants, as a logarithm; infinite without a time."""
    values: dict[str, Any] = dict(constants)
    values["transfer_bytes_per_cycle"] = round(values["transfer_bytes_per_cycle"])
    # A sum of powers of two, so that the units come back to the same states.
    values["matmul_slowdown"] = round(values["matmul_slowdown"] * 64) / 64
    machine = machine_of(chip_named(case.chip), Calibrated(**values))
    seconds = mean_seconds(case.prepared, machine, _RUN_SECONDS)
    return float(np.log(seconds / case.measured_seconds)) if seconds is not None else float("inf")


def _error(task: tuple[int, dict[str, float]]) -> float:
    return error(_CASES[task[0]], task[1])


class Fit:
    """The errors of some cases under any constants, and the constants that make them most likely."""

    def __init__(self, found: Sequence[Case], jobs: int) -> None:
        self.cases = found
        self.prior = today(found[0].chip)
        self._known: dict[tuple[float, ...], list[float]] = {}
        _CASES[:] = found
        self._pool = multiprocessing.get_context("fork").Pool(jobs) if jobs > 1 else None

    def errors(self, constants: Constants) -> list[float]:
        """Of every case; each set of constants is simulated once."""
        key = tuple(constants[name] for name in SPACE)
        if key not in self._known:
            tasks = [(place, dict(constants)) for place in range(len(self.cases))]
            self._known[key] = self._pool.map(_error, tasks, 1) if self._pool else list(map(_error, tasks))
        return self._known[key]

    def unlikely(self, constants: Constants, without: str = "") -> float:
        """How unlikely the errors of all operations but one are: less is better."""
        by_kind: dict[str, list[float]] = {}
        for case, off in zip(self.cases, self.errors(constants), strict=True):
            if case.kind != without:
                by_kind.setdefault(case.kind, []).append(-float(stats.t.logpdf(off / _SCALE, _FREEDOM)))
        rows = sum(map(len, by_kind.values()))
        # Every operation counts alike, however many rows it has; together they count as many as there are.
        return rows * float(np.mean([np.mean(values) for values in by_kind.values()]))

    def loss(self, constants: Constants, without: str = "") -> float:
        """The same, and how far the constants are from today's, which are the prior."""
        moved = [np.log(constants[name] / self.prior[name]) / width for name, (_, _, width) in SPACE.items()]
        return self.unlikely(constants, without) + 0.5 * float(np.square(moved).sum())

    def best(self, trials: int, seed: int, without: str = "", start: Constants | None = None) -> dict[str, float]:
        """The best of so many sets of constants that Optuna asks for, the first of which is today's."""
        optuna.logging.set_verbosity(optuna.logging.WARNING)
        sampler = optuna.samplers.TPESampler(seed=seed, multivariate=True, n_startup_trials=20)
        study = optuna.create_study(sampler=sampler)
        study.enqueue_trial(dict(self.prior))
        if start is not None:
            study.enqueue_trial(dict(start))

        def objective(trial: optuna.Trial) -> float:
            constants = {name: trial.suggest_float(name, low, high, log=True) for name, (low, high, _) in SPACE.items()}
            return self.loss(constants, without)

        study.optimize(objective, n_trials=trials)
        return dict(study.best_params)

    def interval(self, name: str, constants: Constants) -> tuple[float, float, str]:
        """How far a constant can be moved alone, and the operation that gets worse the most beyond that."""
        least, low_most, _ = SPACE[name]
        lowest = self.unlikely(constants)
        inside, held = [constants[name]], ""
        worst = 0.0
        for factor in _MOVES:
            value = min(max(constants[name] * factor, least), low_most)
            moved = {**constants, name: value}
            if self.unlikely(moved) - lowest <= _LESS_LIKELY:
                inside.append(value)
                continue
            for kind, before, after in self._by_kind(constants, moved):
                if after - before > worst:
                    worst, held = after - before, kind
        return min(inside), max(inside), held

    def _by_kind(self, first: Constants, second: Constants) -> Iterable[tuple[str, float, float]]:
        for kind in dict.fromkeys(case.kind for case in self.cases):
            yield kind, self.typical(first, kind), self.typical(second, kind)

    def typical(self, constants: Constants, kind: str) -> float:
        """The median size of an operation's errors."""
        off = [abs(e) for case, e in zip(self.cases, self.errors(constants), strict=True) if case.kind == kind]
        return float(np.median(off))


def calibrate(found: list[Case], trials: int, seed: int, jobs: int) -> dict[str, Any]:
    """What a chip's rows make of its constants: the fit, how firm each is, and what each operation says of others."""
    fit = Fit(found, jobs)
    fitted = fit.best(trials, seed)
    constants = {}
    for name in SPACE:
        low, high, held = fit.interval(name, fitted)
        constants[name] = {"today": fit.prior[name], "fitted": fitted[name], "low": low, "high": high, "held_by": held}
    operations = {}
    kinds = Counter(case.kind for case in found)
    for kind, rows in sorted(kinds.items()):
        sets = {"today": fit.prior, "fitted": fitted}
        # An operation that is the only one is predicted by nothing.
        if len(kinds) > 1:
            sets["left out"] = fit.best(max(40, trials // 3), seed, kind, fitted)
        operations[kind] = {"rows": rows, **{name: fit.typical(values, kind) for name, values in sets.items()}}
    sizes = {
        name: [float(q) for q in np.quantile(np.abs(fit.errors(values)), (0.5, 0.9))]
        for name, values in (("today", fit.prior), ("fitted", fitted))
    }
    return {"trials": trials, "rows": len(found), "constants": constants, "operations": operations, "errors": sizes}


_INTRO = """# Constants fitted all at once

`python benchmarks/calibrate.py --chip CHIP --write` executes the compiled programs of published rows for fitting with
hundreds of sets of constants, and looks for the set that makes their errors most likely (`calibrate.py` has the
formulas). The simulator uses today's constants; this page says how firm they are, and whether others would be better.

A fit is worth what it predicts: "left out" is the error of an operation under the constants that the other operations
give. Where it is larger than today's, the fit has only learnt its own rows."""


def page(results: Mapping[str, Any]) -> str:
    """The page as Markdown, from the results of each chip."""
    return "\n\n".join([_INTRO, *(_of_chip(name, found) for name, found in sorted(results.items()))]) + "\n"


def _of_chip(name: str, found: Mapping[str, Any]) -> str:
    errors = found["errors"]
    shown = [
        [f"`{constant}`", *(_value(constant, one[field]) for field in ("today", "fitted")),
         f"{_value(constant, one['low'])} to {_value(constant, one['high'])}", one["held_by"] or "no rows"]
        for constant, one in ((name, found["constants"][name]) for name in SPACE)
    ]  # fmt: skip
    operations = [
        [kind, str(one["rows"]), *(f"{100 * one[field]:.1f} %" if field in one else "-" for field in _SETS)]
        for kind, one in found["operations"].items()
    ]
    typical = ", ".join(
        f"{which} {100 * median:.1f} % in the median and {100 * most:.1f} % at the 90th percentile"
        for which, (median, most) in ((which, errors[which]) for which in _SETS[:2])
    )
    left = [one for one in found["operations"].values() if "left out" in one]
    nearer = sum(one["left out"] < one["today"] for one in left)
    worth = f" Left out, {nearer} of {len(left)} operations are nearer than under today's constants." if left else ""
    heads = ("constant", "today", "fitted", "can be moved alone", "held by"), ("median error of", "rows", *_SETS)
    return f"""## {name}

{found["rows"]} rows, {found["trials"]} sets of constants. Errors: {typical}.{worth}

{tabulate(shown, heads[0], tablefmt="github", disable_numparse=True)}

{tabulate(operations, heads[1], tablefmt="github", disable_numparse=True)}"""


_SETS = ("today", "fitted", "left out")


def _value(name: str, value: float) -> str:
    return f"{1e9 * value:.3g} ns" if name.endswith("_seconds") else f"{value:.4g}"


def main() -> None:
    """Fits one chip, prints its part of the page; with --write keeps it and writes the page."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--chip", choices=[name for name in chips.names() if chips.row(name).calibrated is not None])
    parser.add_argument("--cache", type=Path, default=fidelity.CACHE, help="where compiled programs are kept")
    parser.add_argument("--each", type=int, default=6, help="so many rows of each operation")
    parser.add_argument("--seconds", type=float, default=0.3, help="leave out what takes longer to execute once")
    parser.add_argument("--trials", type=int, default=300, help="sets of constants to try")
    parser.add_argument("--seed", type=int, default=0, help="of the search")
    parser.add_argument("--jobs", type=int, default=2, help="processes that simulate")
    parser.add_argument("--write", action="store_true", help="keep the results and write the page")
    parser.add_argument("--pages", action="store_true", help="write the page from what is kept")
    options = parser.parse_args()
    results: dict[str, Any] = json.loads(RESULTS.read_text(encoding="utf-8")) if RESULTS.exists() else {}
    if not options.pages:
        found = cases(options.chip, options.each, options.seconds, options.cache)
        results[options.chip] = calibrate(found, options.trials, options.seed, options.jobs)
        print(_of_chip(options.chip, results[options.chip]))
    if options.write:
        RESULTS.write_text(json.dumps(results, indent=1, sort_keys=True) + "\n", encoding="utf-8")
    if options.write or options.pages:
        PAGE.write_text(page(results), encoding="utf-8")


if __name__ == "__main__":
    main()
