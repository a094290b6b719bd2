"""How near the simulator comes to published device times: compile, simulate, compare, and write docs/FIDELITY.md.

    .venv/bin/pip install -e '.[bench]' && .venv/bin/python benchmarks/fidelity.py [--jobs 2] [--write]

66 attention kernels, about 10 s each to compile and 2 s to simulate; what is done is kept in
benchmarks/.cache, so that it can be stopped and goes on. `--dumps DIR` takes dumps made
elsewhere (one folder NN per row) and needs no tokamax. `--sensitivity` moves constants by 20 %.
"""

import argparse
import csv
import dataclasses
import hashlib
import json
import subprocess
import sys
from collections.abc import Callable, Iterable
from concurrent.futures import ProcessPoolExecutor
from importlib.metadata import version
from pathlib import Path

import numpy as np
import numpy.typing as npt
from fidelity_compile import environment
from scipy import stats

from harness.dumps.boundary import boundary
from harness.dumps.llo import read_module
from harness.hardware import chip as chip_named
from harness.records import Simulation
from harness.simulate.machine import Machine, machine_of
from harness.simulate.module import run_module
from harness.simulate.profiled import PUBLISHED, Measurement

HERE = Path(__file__).parent
CACHE = HERE / ".cache"
DATA = HERE / "data" / "measured_attention.tsv"
CHIPS = {"tpu_v5": "v5p", "tpu_v6_lite": "v6e", "tpu7x": "v7x"}
# Five samples repeat to 0.2 % typically; no row counts for more than that makes it.
SPREAD_FLOOR = 0.005
# The longest schedules take this long on one slow core.
_DEADLINE_SECONDS = 600.0

Vector = npt.NDArray[np.float64]


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    """One row simulated: seconds, those of them that a profile shows, and what one pass over its boundary takes."""

    seconds: float | None
    result_copy_seconds: float
    argument_copy_seconds: float
    boundary_pass_seconds: float
    steps: int | None
    unknown: tuple[str, ...]


def _scaled(name: str, factor: float) -> Callable[[Machine], Machine]:
    def change(machine: Machine) -> Machine:
        value = getattr(machine, name) * factor
        return dataclasses.replace(
            machine, **{name: round(value) if isinstance(getattr(machine, name), int) else value}
        )

    return change


# What is moved to see whether it matters, and how.
VARIANTS: dict[str, Callable[[Machine], Machine]] = {
    f"{name} x{factor}": _scaled(name, factor)
    for name, factors in (
        ("transfer_cycles", (0.8, 1.2)),
        ("dma_latency_cycles", (0.8, 1.2)),
        ("hbm_bytes_per_cycle", (0.8,)),
        ("clock_hz", (0.8,)),
        ("push_cycles", (1.2,)),
        ("xlu_latency_cycles", (1.2,)),
    )
    for factor in factors
}


def rows() -> list[dict[str, str]]:
    """The published measurements, in the order of the file."""
    lines = [line for line in DATA.read_text(encoding="utf-8").splitlines() if not line.startswith("#")]
    return list(csv.DictReader(lines, delimiter="\t"))


def dump_of(number: int, row: dict[str, str], dumps: Path | None) -> Path:
    """The folder with the dump of a row; compiles it first where it is not there."""
    directory = (dumps or CACHE / "dumps") / f"{number:02d}"
    if not any(directory.glob("*TLP*final_bundles.txt")):
        if dumps is not None:
            raise SystemExit(f"row {number} has no dump: expected *final_bundles.txt in {directory}")
        directory.mkdir(parents=True, exist_ok=True)
        words = [f"{key}={value}" for key, value in row.items()]
        command = [sys.executable, str(HERE / "fidelity_compile.py"), CHIPS[row["chip_dir"]], *words]
        subprocess.run(command, env=environment(directory), check=True)
    return directory


def simulated(number: int, dumps: Path | None, variants: tuple[str, ...]) -> dict[str, Result]:
    """The row under each variant ("" is the machine as it is), from the cache where the simulator has not changed."""
    row = rows()[number]
    path = CACHE / "results" / f"{number:02d}-{_fingerprint(dumps)}.json"
    known = json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}
    wanted = [name for name in variants if name not in known]
    if wanted:
        chip = chip_named(CHIPS[row["chip_dir"]])
        dump = read_module(dump_of(number, row, dumps))
        module = boundary(dump.hlo)
        assert module is not None, f"row {number}: its HLO module has no entry"
        for name in wanted:
            machine = VARIANTS[name](machine_of(chip)) if name else machine_of(chip)
            simulation = run_module(dump, chip, machine=machine, deadline_seconds=_DEADLINE_SECONDS)
            known[name] = {
                "seconds": simulation.seconds,
                "result_copy_seconds": _seconds_of(simulation, module.result_copies),
                "argument_copy_seconds": _seconds_of(simulation, module.argument_copies),
                "boundary_pass_seconds": module.total_bytes / chip.hbm_bytes_per_second,
                "steps": simulation.executed_steps,
                "unknown": simulation.unknown,
            }
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(known, indent=1), encoding="utf-8")
    return {name: Result(**known[name]) for name in variants}


def _seconds_of(simulation: Simulation, names: tuple[str, ...]) -> float:
    return sum(op.seconds for op in simulation.ops if op.name in names)


def _fingerprint(dumps: Path | None) -> str:
    """A hash of the simulator's source and of where the dumps are: results of another one are not taken."""
    digest = hashlib.sha256(str(dumps).encode())
    for folder in ("simulate", "dumps"):
        for path in sorted((HERE.parent / "harness" / folder).glob("*.py")):
            digest.update(path.read_bytes())
    digest.update((HERE.parent / "harness" / "hardware.py").read_bytes())
    return digest.hexdigest()[:12]


def _simulate_job(job: tuple[int, Path | None, tuple[str, ...]]) -> dict[str, Result]:
    return simulated(*job)


def simulate_all(
    numbers: Iterable[int], dumps: Path | None, variants: tuple[str, ...], jobs: int
) -> list[dict[str, Result]]:
    """All rows, `jobs` at a time, with progress on stderr."""
    chosen = list(numbers)
    results = []
    with ProcessPoolExecutor(jobs) as pool:
        for number, result in zip(chosen, pool.map(_simulate_job, [(n, dumps, variants) for n in chosen]), strict=True):
            results.append(result)
            print(f"\rrow {number} ({len(results)} of {len(chosen)})", end="", file=sys.stderr, flush=True)
    print(file=sys.stderr)
    return results


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Table:
    """Published and predicted seconds of all rows; `held_out` with the measurement's constants fitted to all others."""

    chips: tuple[str, ...]
    measured: Vector
    predicted: Vector
    held_out: Vector
    weights: Vector
    fitted: Measurement

    def errors(self, held_out: bool = False) -> Vector:
        """Predicted over measured, less one."""
        return (self.held_out if held_out else self.predicted) / self.measured - 1


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Columns:
    """What the constants of the measurement multiply, per row, in seconds; weights have mean 1."""

    measured: Vector
    weights: Vector
    base: Vector
    copies: Vector
    one_pass: Vector

    def predicted(self, how: Measurement) -> Vector:
        """Seconds per row as a profile would show them."""
        return (
            self.base + how.fixed_seconds + how.argument_copy_share * self.copies + how.boundary_passes * self.one_pass
        )

    def only(self, rows: npt.NDArray[np.bool_]) -> "Columns":
        """Some of the rows."""
        return Columns(**{field.name: getattr(self, field.name)[rows] for field in dataclasses.fields(self)})


def fitted(columns: Columns) -> Measurement:
    """The constants of the measurement with which the weighted sum of relative errors is least; two on a grid."""
    best: tuple[float, Measurement] | None = None
    for share in np.linspace(0, 1, 11):
        for fixed in np.linspace(0, 100e-6, 21):
            rest = columns.measured - columns.base - fixed - share * columns.copies
            ratio = rest / columns.one_pass
            order = np.argsort(ratio)
            mass = np.cumsum((columns.weights * columns.one_pass / columns.measured)[order])
            passes = float(ratio[order][np.searchsorted(mass, mass[-1] / 2)])
            how = Measurement(boundary_passes=passes, fixed_seconds=float(fixed), argument_copy_share=float(share))
            loss = float(np.average(np.abs(columns.predicted(how) / columns.measured - 1), weights=columns.weights))
            if best is None or loss < best[0]:
                best = loss, how
    assert best is not None
    return best[1]


def compare(published: list[dict[str, str]], results: list[Result]) -> Table:
    """All rows against the published times; each also predicted with the constants fitted to all others."""
    spread = np.array([float(row["spread_pct"]) / 100 for row in published])
    weights = 1 / np.hypot(spread, SPREAD_FLOOR)
    columns = Columns(
        measured=np.array([float(row["median_ms"]) * 1e-3 for row in published]),
        weights=weights / weights.mean(),
        base=np.array([(r.seconds or 0.0) - r.result_copy_seconds - r.argument_copy_seconds for r in results]),
        copies=np.array([result.argument_copy_seconds for result in results]),
        one_pass=np.array([result.boundary_pass_seconds for result in results]),
    )
    held_out = np.empty_like(columns.measured)
    for i in range(len(held_out)):
        others = np.arange(len(held_out)) != i
        held_out[i] = columns.predicted(fitted(columns.only(others)))[i]
    return Table(
        chips=tuple(CHIPS[row["chip_dir"]] for row in published),
        measured=columns.measured,
        predicted=columns.predicted(PUBLISHED),
        held_out=held_out,
        weights=columns.weights,
        fitted=fitted(columns),
    )


def quantile(values: Vector, weights: Vector, fraction: float) -> float:
    """The weighted quantile of `values`."""
    order = np.argsort(values)
    mass = np.cumsum(weights[order]) - weights[order] / 2
    return float(np.interp(fraction * weights.sum(), mass, values[order]))


def summary(table: Table, held_out: bool = False) -> list[list[str]]:
    """Per chip and over all: rows, median and 90th percentile of absolute error, bias, rank correlation."""
    lines = []
    errors = table.errors(held_out)
    for name in (*dict.fromkeys(table.chips), "all"):
        here = np.array([name in (chip, "all") for chip in table.chips])
        rank = stats.spearmanr(table.predicted[here], table.measured[here]).statistic
        error, weight = errors[here], table.weights[here]
        lines.append(
            [
                name,
                str(int(here.sum())),
                f"{100 * quantile(np.abs(error), weight, 0.5):.1f} %",
                f"{100 * quantile(np.abs(error), weight, 0.9):.1f} %",
                f"{100 * quantile(error, weight, 0.5):+.1f} %",
                f"{rank:.4f}" if name != "all" else "",
            ]
        )
    return lines


def pair_error(table: Table, published: list[dict[str, str]]) -> float:
    """How far the ratio of two rows is off that differ only in lengths, heads and blocks: one standard deviation.

    From the median, which does not see the few rows that are far off for reasons of their own:
    1.48 medians of absolute values are a standard deviation of normal ones.
    """
    alike = ("chip_dir", "Dqk", "causal", "layouts", "exp_sched")
    kind = [tuple(row[name] for name in alike) for row in published]
    logs = np.log1p(table.errors())
    found = [abs(logs[i] - logs[j]) for i in range(len(kind)) for j in range(i) if kind[i] == kind[j]]
    return 1.4826 * float(np.median(found))


def main() -> int:
    """Runs it all and prints the table; with --write also docs/FIDELITY.md and its plot."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--dumps", type=Path, help="dumps made elsewhere, one folder NN per row")
    parser.add_argument("--compiler", default="", help="what made the dumps, for the page")
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--sensitivity", action="store_true", help="move constants by 20 %%, 9 times the work")
    parser.add_argument("--write", action="store_true", help="write docs/FIDELITY.md and docs/fidelity.png")
    options = parser.parse_args()
    published = rows()
    variants = ("", *VARIANTS) if options.sensitivity else ("",)
    every = simulate_all(range(len(published)), options.dumps, variants, options.jobs)
    results = [result[""] for result in every]
    import fidelity_page

    missing = [f"row {i}: {result.unknown[0]}" for i, result in enumerate(results) if result.seconds is None]
    if missing:
        print("\n".join(["no latency:", *missing]))
        return 1
    tables = {name: compare(published, [result[name] for result in every]) for name in variants}
    text = fidelity_page.page(published, results, tables, pair_error(tables[""], published), _compiler(options))
    print(text)
    if options.write:
        fidelity_page.write(HERE.parent / "docs", text, tables[""])
    return 0


def _compiler(options: argparse.Namespace) -> str:
    if options.compiler or options.dumps:
        return str(options.compiler or "of unknown version")
    return f"libtpu {version('libtpu')}, tokamax {version('tokamax')}"


if __name__ == "__main__":
    sys.exit(main())
