"""Fits all constants of a chip to published device times at once, and says which rows constrain each of them.

    uv pip install -e '.[bench]' && python benchmarks/calibrate.py --chip v6e --write

in an environment with Python 3.12 or newer. Programs are compiled once, into the cache of `fidelity.py`, and executed
with about a hundred sets of constants: milliseconds to seconds each. Only rows for fitting are read. The best set is
the likeliest one: errors follow Student's distribution, every operation has the same weight, and the prior is centred
on today's constants. First the slopes of the errors are measured at today's constants, with each constant moved up and
down. Then the likeliest set by these slopes is found. Both steps are repeated once from there. A fit is judged by its
predictions: each operation is left out in turn, and its error under constants that are fitted to the others is printed
next to today's. The values of the switches of the simulator's structure are compared by their errors. harness/chips is
not changed: this is done by hand, after a look at the page.

`--intervals` keeps the fit and only finds how far each constant can be moved, in a third of the time. `--free NAMES`
lets the fit move only these constants (separated by commas): the errors of left-out operations show which of them are
worth moving. `--each N` uses the N cheapest rows of each operation. `--bundles N` leaves out rows that execute more
than N bundles, because they take long; every machine chooses the same rows unless a run takes ten minutes. `--write`
keeps the results in data/calibration.json and writes CALIBRATION.md from all of them; `--pages` only writes the page.
"""

import argparse
import dataclasses
import json
import multiprocessing
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from itertools import groupby
from pathlib import Path
from typing import Any

import fidelity
import fidelity_compile
import fidelity_rows
import numpy as np
import numpy.typing as npt
from fidelity_statistics import kind_of
from markdown_pages import markdown_table
from scipy import optimize, stats

from harness import chips
from harness.chips.row import Calibrated
from harness.dumps.llo import read_module
from harness.hardware import chip as chip_named
from harness.judge.simulate.machine import machine_of
from harness.judge.simulate.module import Prepared, mean_seconds, prepare, run_prepared

HERE = Path(__file__).parent
RESULTS = HERE / "data" / "calibration.json"
PAGE = HERE / "CALIBRATION.md"
# By constant: its least and its greatest value, and its expected distance from today's value, as a logarithm.
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
# A constant may be moved until the log-likelihood of the rows has fallen by this much: twice this value is the 95 %
# quantile of a chi-squared distribution.
_LESS_LIKELY = 1.92
# If rows constrain a constant, the end of its interval lies between a value that they allow and one that they do not.
# This range is halved this many times.
_HALVINGS = 4
# To measure a slope, a constant is moved by this much, as a logarithm. A share of the bandwidth has less room, and
# matmul_slowdown moves by 1/64.
_STEP, _STEP_OF_SHARES, _STEP_OF_SLOWDOWN = 0.2, 0.07, 0.0157
# The distance up to which slopes are used, and the number of times that they are measured.
_REACH, _TURNS = 0.35, 2
# Switches of the simulator's structure, with both values: the value that a chip does not have is compared with its own.
SWITCHES: dict[str, tuple[int, int]] = {"matmul_queue": (0, 1)}
_RUN_SECONDS = 600.0
# The files with the schedules of a compiled program, and the most bytes that they may have.
_SCHEDULES, _MOST_BYTES = "*-03-final_bundles.txt", 15_000_000

Constants = Mapping[str, float]
Vector = npt.NDArray[np.float64]
# The change of each row's error with the logarithm of each constant, upwards and downwards.
Slopes = dict[str, tuple[Vector, Vector]]


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """A row that may be fitted, its program as the simulator runs it, and the time that was published."""

    row: str
    kind: str
    chip: str
    prepared: Prepared
    measured_seconds: float


# Read by the processes, which are forked when all cases are prepared.
_CASES: list[Case] = []


def cases(chip: str, each: int, most_bundles: int, cache: Path, jobs: int, *, dry: bool = False) -> list[Case]:
    """The cheapest rows for fitting of each operation on a chip, if they have a latency and few enough bundles.

    Rows that the cache lacks are compiled; with `dry` they are left out, and so are rows with long schedules.
    """
    # `purpose` is no longer "fit" if a row has a stricter twin.
    every = [row for row in fidelity.chosen(10**6) if row.chip == chip and row.purpose == "fit"]
    if dry:
        # Long schedules take long to execute, so the rows with the smallest ones are chosen.
        sizes = {row: sum(path.stat().st_size for path in (cache / "own" / row.name).glob(_SCHEDULES)) for row in every}
        every = [row for row in every if 0 < sizes[row] <= _MOST_BYTES]
        every.sort(key=lambda row: (row.operation, sizes[row]))
    rows = [row for _, group in groupby(every, key=lambda row: row.operation) for row in list(group)[:each]]
    fidelity.compiled(rows, cache)
    folders = {row: cache / "own" / row.name for row in rows}
    compiled = [row for row, it in folders.items() if it.exists() and not (it / fidelity_compile.FAILED).exists()]
    with multiprocessing.get_context("fork").Pool(jobs) as pool:
        counts = pool.starmap(_bundles, [(folders[row], chip) for row in compiled], 1)
    return [
        Case(
            row=row.name,
            kind=kind_of(row.operation),
            chip=chip,
            prepared=_prepared(folders[row], chip),
            measured_seconds=fidelity_rows.measured(row).seconds,
        )
        for row, count in zip(compiled, counts, strict=True)
        if count is not None and count <= most_bundles
    ]


def _prepared(directory: Path, chip: str) -> Prepared:
    return prepare(read_module(directory), chip_named(chip), fetched_before=True)


def _bundles(directory: Path, chip: str) -> int | None:
    """The number of bundles that the program dumped in `directory` executes; None if it has no latency."""
    simulation = run_prepared(_prepared(directory, chip), deadline_seconds=_RUN_SECONDS, with_lines=False)
    return simulation.bundle_cycles if simulation.mean_seconds is not None else None


def today(chip: str) -> dict[str, float]:
    """Today's constants of a chip, by name."""
    row = chips.row(chip)
    return dataclasses.asdict(row.calibrated or Calibrated())


def possible(name: str, value: float) -> float:
    """The value of the constant nearest to `value` that the simulator accepts."""
    if name == "transfer_bytes_per_cycle":
        return round(value)
    # Multiples of 1/64 are sums of powers of two, so the units return to the same states.
    return round(value * 64) / 64 if name == "matmul_slowdown" else value


def prior_interval(name: str, value: float) -> tuple[float, float]:
    """The 95 % interval of the prior for a constant of this value, used if no row narrows it."""
    least, most, width = SPACE[name]
    reach = float(np.exp(width * np.sqrt(2 * _LESS_LIKELY)))
    return possible(name, max(value / reach, least)), possible(name, min(value * reach, most))


def error(case: Case, constants: Constants) -> float:
    """The logarithm of simulated over measured time under these constants; infinite without a simulated time."""
    values: dict[str, Any] = {name: possible(name, value) for name, value in constants.items()}
    machine = machine_of(chip_named(case.chip), Calibrated(**values))
    seconds = mean_seconds(case.prepared, machine, _RUN_SECONDS)
    return float(np.log(seconds / case.measured_seconds)) if seconds is not None else float("inf")


def _error(task: tuple[int, dict[str, float]]) -> float:
    return error(_CASES[task[0]], task[1])


class Fit:
    """The errors of some cases under any constants, and the constants that make them most likely.

    Constants that are not in `free` keep today's values.
    """

    def __init__(self, fitting_cases: Sequence[Case], jobs: int, free: Sequence[str] = tuple(SPACE)) -> None:
        self.cases = fitting_cases
        self.free = free
        self.prior = today(fitting_cases[0].chip)
        self._errors_of: dict[tuple[float, ...], list[float]] = {}
        _CASES[:] = fitting_cases
        self._pool = multiprocessing.get_context("fork").Pool(jobs) if jobs > 1 else None

    def errors(self, constants: Constants) -> list[float]:
        """The error of each case under these constants; each set of constants is simulated once."""
        key = tuple(constants[name] for name in (*SPACE, *SWITCHES))
        if key not in self._errors_of:
            tasks = [(place, dict(constants)) for place in range(len(self.cases))]
            self._errors_of[key] = self._pool.map(_error, tasks, 1) if self._pool else list(map(_error, tasks))
        return self._errors_of[key]

    def unlikely(self, errors: Iterable[float], without: str = "") -> float:
        """The negative log-likelihood of these errors, over all operations but `without`: less is better."""
        by_kind: dict[str, list[float]] = {}
        for case, off in zip(self.cases, errors, strict=True):
            if case.kind != without:
                by_kind.setdefault(case.kind, []).append(-float(stats.t.logpdf(off / _SCALE, _FREEDOM)))
        rows = sum(map(len, by_kind.values()))
        # Every operation has the same weight, however many rows it has; the weights add up to the number of rows.
        return rows * float(np.mean([np.mean(values) for values in by_kind.values()]))

    def far(self, constants: Constants) -> float:
        """The negative log-likelihood of the constants by the prior, which is centred on today's."""
        moved = [np.log(constants[name] / self.prior[name]) / width for name, (_, _, width) in SPACE.items()]
        return 0.5 * float(np.square(moved).sum())

    def slopes(self, at: Constants) -> Slopes:
        """The slopes of the errors with each constant, measured at these constants."""
        before = np.array(self.errors(at))
        slopes: Slopes = {}
        for name in self.free:
            least, most, _ = SPACE[name]
            step = _STEP_OF_SHARES if name.endswith("_share") else _STEP
            step = _STEP_OF_SLOWDOWN if name == "matmul_slowdown" else step
            ways = []
            for sign in (1, -1):
                value = min(max(at[name] * float(np.exp(sign * step)), least), most)
                far = float(np.log(value / at[name]))
                moved = np.array(self.errors({**at, name: value})) - before
                ways.append(moved / far if far else np.zeros_like(before))
            slopes[name] = ways[0], ways[1]
        return slopes

    def nearest(self, at: Constants, slopes: Slopes, without: str = "") -> dict[str, float]:
        """The likeliest constants for all operations but `without`, if the errors have these slopes around `at`."""
        before = np.array(self.errors(at))
        ways = list(slopes.values())

        def constants(moves: Vector) -> dict[str, float]:
            moved = {name: at[name] * float(np.exp(move)) for name, move in zip(self.free, moves, strict=True)}
            return {**at, **moved}

        def loss(moves: Vector) -> float:
            off = before + sum((up if move > 0 else down) * move for move, (up, down) in zip(moves, ways, strict=True))
            return self.unlikely(off, without) + self.far(constants(moves))

        spaces = ((at[name], *SPACE[name][:2]) for name in self.free)
        bounds = [(max(np.log(least / now), -_REACH), min(np.log(most / now), _REACH)) for now, least, most in spaces]
        minimum = optimize.minimize(
            loss, np.zeros(len(bounds)), method="Powell", bounds=bounds, options={"maxiter": 20}
        )
        return constants(minimum.x)

    def best(self, start: Constants) -> tuple[dict[str, float], dict[str, dict[str, float]]]:
        """The likeliest constants, found from `start`, and for each operation those fitted to all others."""
        fitted = dict(start)
        left_out: dict[str, dict[str, float]] = {}
        for _ in range(_TURNS):
            at, slopes = fitted, self.slopes(fitted)
            fitted = self.nearest(at, slopes)
            kinds = dict.fromkeys(case.kind for case in self.cases)
            # If there is only one operation, no other operation can predict it.
            left_out = {kind: self.nearest(at, slopes, kind) for kind in kinds if len(kinds) > 1}
        return fitted, left_out

    def interval(self, name: str) -> tuple[float, float, str]:
        """The ends up to which a constant can be moved alone, and the operation that most opposes moving it further.

        The operation is "" if no rows oppose what the prior allows.
        """
        ends, against = [], ("", 0.0)
        for outside in prior_interval(name, self.prior[name]):
            inside = self.prior[name]
            if self.is_likely({name: outside}):
                ends.append(outside)
                continue
            for _ in range(_HALVINGS):
                middle = possible(name, float(np.sqrt(inside * outside)))
                if self.is_likely({name: middle}):
                    inside = middle
                else:
                    outside = middle
            ends.append(inside)
            for kind, before, after in self._by_kind(self.prior, {**self.prior, name: outside}):
                against = max(against, (kind, after - before), key=lambda loss_of_kind: loss_of_kind[1])
        return min(ends), max(ends), against[0]

    def is_likely(self, moved: Constants) -> bool:
        """True if all rows together allow these values in place of today's."""
        before, after = (self.unlikely(self.errors(values)) for values in (self.prior, {**self.prior, **moved}))
        return after - before <= _LESS_LIKELY

    def _by_kind(self, first: Constants, second: Constants) -> Iterable[tuple[str, float, float]]:
        for kind in dict.fromkeys(case.kind for case in self.cases):
            yield kind, self.typical(first, kind), self.typical(second, kind)

    def typical(self, constants: Constants, kind: str) -> float:
        """The median size of an operation's errors."""
        off = [abs(e) for case, e in zip(self.cases, self.errors(constants), strict=True) if case.kind == kind]
        return float(np.median(off))


def intervals(fit: Fit, fitted: Mapping[str, Any]) -> dict[str, Any]:
    """The interval in which each constant can be moved, widened to contain its `fitted` value, and the switches that
    the rows leave open.
    """
    constants = {}
    for name in SPACE:
        low, high, opposing_kind = fit.interval(name)
        best = possible(name, fitted[name]["fitted"])
        constants[name] = {"low": min(low, best), "high": max(high, best), "held_by": opposing_kind}
    switches = {switch: all(fit.is_likely({switch: value}) for value in SWITCHES[switch]) for switch in SWITCHES}
    return {"rows": len(fit.cases), "constants": constants, "switches": switches}


def calibrate(fit: Fit) -> dict[str, Any]:
    """A chip's fitted constants, and each operation's error with these, with today's, and left out of the fit."""
    fitting_cases = fit.cases
    fitted, left_out = fit.best(fit.prior)
    sets = {"today": fit.prior, "fitted": fitted}
    for switch, values in SWITCHES.items():
        for value in values:
            if value != fit.prior[switch]:
                sets[f"{switch} {value}"] = {**fit.prior, switch: value}
    kinds = Counter(case.kind for case in fitting_cases)
    operations = {
        kind: {
            "rows": rows,
            **{name: fit.typical(values, kind) for name, values in sets.items()},
            **({"left out": fit.typical(left_out[kind], kind)} if kind in left_out else {}),
        }
        for kind, rows in sorted(kinds.items())
    }
    sizes = {
        name: [float(q) for q in np.quantile(np.abs(fit.errors(values)), (0.5, 0.9))] for name, values in sets.items()
    }
    constants = {name: {"today": fit.prior[name], "fitted": fitted[name]} for name in SPACE}
    return {"rows": len(fitting_cases), "constants": constants, "operations": operations, "errors": sizes}


_INTRO = """# Constants fitted all at once

`python benchmarks/calibrate.py --chip CHIP --write` takes the published rows that are for fitting, simulates their
compiled programs with a hundred sets of constants, and finds the set that makes their errors most likely
(`calibrate.py` has the formulas). The simulator uses the values of the column `today`. This page says how certain they
are, and whether other values would be better. [CALIBRATION_HISTORY.md](CALIBRATION_HISTORY.md) lists what else was
tried.

"Can be moved" is the 95 % interval of a constant if only this constant is changed: the values with which the likelihood
of the rows is at least 1/6.8 of that with today's value, within the interval of plausible values that was assumed
before the fit (the prior). The fitted value is always included. "Held by" is the operation whose error grows most just
beyond the interval, or "the prior" if no rows limit the interval. The judge accepts a simulated gain only if it exists
at both ends, and with both values of each switch that the rows leave open
(`harness/judge/simulate/machine_variants.py`)."""
_ERRORS = """## Errors

A fit is judged by its predictions: "left out" is the error of an operation with constants that are fitted to all other
operations. If this error is larger than today's, the fitted constants would not improve the simulator. "Switched" is
the error with today's constants and the other value of a switch, a choice between two structures of the simulator."""


def page(results: Mapping[str, Any]) -> str:
    """The page as Markdown, from the results of each chip."""
    chip_names = sorted(results)
    constants = [_moved(chip, name, results[chip]) for name in (*SPACE, *SWITCHES) for chip in chip_names]
    operations = [line for chip in chip_names for line in _operations(chip, results[chip])]
    wholes = [_whole(chip, results[chip]) for chip in chip_names]
    heads = (
        ("constant", "chip", "today", "fitted", "can be moved", "held by"),
        ("median error of", "chip", "rows", *_SETS, "switched"),
        (
            "chip",
            "rows",
            "for intervals",
            *(f"{which}: {size}" for which in _SETS[:2] for size in ("median", "90 %")),
            "nearer",
            "rows chosen with",
        ),
    )
    tables = [markdown_table(*table) for table in zip((constants, operations, wholes), heads, strict=True)]
    nearer = '"Nearer" counts the operations whose error is smaller than today\'s when they are left out of the fit.'
    return "\n\n".join([_INTRO, "## Constants", tables[0], _ERRORS, tables[1], nearer, tables[2]]) + "\n"


def _moved(chip: str, name: str, chip_results: Mapping[str, Any]) -> list[str]:
    """A line on a constant or switch: its value today, the fitted one, its interval, and what constrains it."""
    if name in SWITCHES:
        is_open = chip_results["intervals"]["switches"][name]
        can_be = " or ".join(map(str, SWITCHES[name])) if is_open else "no"
        return [f"`{name}`", chip, str(today(chip)[name]), "", can_be, "the prior" if is_open else "all rows"]
    values, end = chip_results["constants"][name], chip_results["intervals"]["constants"][name]
    fitted = (_value(name, values[field]) for field in ("today", "fitted"))
    low, high = (_value(name, end[field]) for field in ("low", "high"))
    return [f"`{name}`", chip, *fitted, f"{low} to {high}", end["held_by"] or "the prior"]


def _operations(chip: str, chip_results: Mapping[str, Any]) -> list[list[str]]:
    """The median errors of each operation: today, fitted, left out, and with each switch the other way."""
    switches = [name for name in chip_results["errors"] if name not in _SETS]
    lines = []
    for kind, errors in chip_results["operations"].items():
        switched = ", ".join(f"{name}: {_percent(errors[name])}" for name in switches)
        lines.append([kind, chip, str(errors["rows"]), *(_percent(errors.get(which)) for which in _SETS), switched])
    return lines


def _whole(chip: str, chip_results: Mapping[str, Any]) -> list[str]:
    """A line on all rows of a chip: their errors, and how many operations come nearer when they are left out."""
    left = [errors for errors in chip_results["operations"].values() if "left out" in errors]
    nearer = sum(errors["left out"] < errors["today"] for errors in left)
    sizes = (_percent(size) for which in _SETS[:2] for size in chip_results["errors"][which])
    rows = (str(chip_results["rows"]), str(chip_results["intervals"]["rows"]))
    chosen = chip_results.get("chosen", "CPU times of one run; no command repeats this")
    return [chip, *rows, *sizes, f"{nearer} of {len(left)}" if left else "-", chosen]


def _percent(value: float | None) -> str:
    return "-" if value is None else f"{100 * value:.1f} %"


_SETS = ("today", "fitted", "left out")


def _value(name: str, value: float) -> str:
    return f"{1e9 * value:.3g} ns" if name.endswith("_seconds") else f"{value:.4g}"


def main() -> None:
    """Fits one chip and prints a page on it alone; --write keeps the fit and writes the whole page."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--chip", choices=[name for name in chips.names() if chips.row(name).calibrated is not None])
    parser.add_argument("--cache", type=Path, default=fidelity.CACHE, help="where compiled programs are kept")
    parser.add_argument("--dry", action="store_true", help="compile nothing: use only what the cache has")
    parser.add_argument("--each", type=int, default=6, help="at most this many rows of each operation")
    parser.add_argument("--bundles", type=int, default=3_000_000, help="leave out rows that execute more bundles")
    parser.add_argument("--free", default=",".join(SPACE), help="the constants that the fit may move")
    parser.add_argument("--jobs", type=int, default=2, help="processes that simulate")
    parser.add_argument("--write", action="store_true", help="keep the results and write the page")
    parser.add_argument("--intervals", action="store_true", help="no fit: only how far constants can be moved")
    parser.add_argument("--pages", action="store_true", help="write the page from the kept results")
    options = parser.parse_args()
    results: dict[str, Any] = json.loads(RESULTS.read_text(encoding="utf-8")) if RESULTS.exists() else {}
    if not options.pages:
        fitting_cases = cases(options.chip, options.each, options.bundles, options.cache, options.jobs, dry=options.dry)
        if not fitting_cases:
            parser.error(
                f"expected rows of {options.chip} of at most {options.bundles} bundles, got none: raise --bundles"
            )
        free = [name for name in SPACE if name in options.free.split(",")]
        fit = Fit(fitting_cases, options.jobs, free)
        fitted = results[options.chip] if options.intervals else calibrate(fit)
        chosen = f"{'--dry ' * options.dry}--each {options.each} --bundles {options.bundles}"
        results[options.chip] = {**fitted, "intervals": intervals(fit, fitted["constants"]), "chosen": chosen}
        print(page({options.chip: results[options.chip]}))
    if options.write:
        RESULTS.write_text(json.dumps(results, indent=1, sort_keys=True) + "\n", encoding="utf-8")
    if options.write or options.pages:
        PAGE.write_text(page(results), encoding="utf-8")


if __name__ == "__main__":
    main()
