"""Compares simulated with published device times: compiles and simulates rows, and writes benchmarks/FIDELITY.md.

    uv pip install -e '.[bench]' && python benchmarks/fidelity.py --write

in an environment with Python 3.12 or newer. Results are kept in benchmarks/.cache (or `--cache DIR`), so that a stopped
run can be continued: all rows take many hours on an idle core. `--each 5` compiles the five cheapest rows of each
operation, chip and purpose, `--only WORD` the rows with this word in their name; if none is a validation row, no page
is written. `--add` keeps the pages' rows that the cache lacks, if the chip's other rows have the same times as before.
`--dry` compiles nothing and uses what the cache has. `--predict` writes down the simulated times of validation rows
before their published times are read: commit them, then `--write`. `--check` compiles and simulates twenty rows anew,
and compares them with the page.
"""

import argparse
import ast
import dataclasses
import functools
import hashlib
import json
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from importlib.metadata import version
from itertools import groupby, zip_longest
from pathlib import Path

import fidelity_compile
import fidelity_page
import fidelity_rows
import fidelity_statistics as statistics
from fidelity_rows import Row, use_of
from fidelity_statistics import Others, Point

from harness import chips
from harness.dumps.llo import read_module
from harness.hardware import chip as chip_named
from harness.judge.simulate.module import run_module

HERE = Path(__file__).parent
CACHE = HERE / ".cache"
# The longest schedules take this long on one slow core.
_DEADLINE_SECONDS = 600.0
# The number of rows that `--check` takes.
_CHECKED = 20
# A row simulated anew by the same simulator and compiler has the same time, except for the page's rounding.
_SAME = 1e-5
# A validation row that differs from its prediction by more than this validated an earlier simulator.
_AS_PREDICTED = 1e-3


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """A simulated row: its seconds, or None with the reason first in `unknown`; and where the time goes.

    `calls` counts the HLO operations that run; `waits_...` are shares of the time.
    """

    seconds: float | None
    calls: int
    waits_for_transfers: float
    waits_for_units: float
    unknown: tuple[str, ...]


@functools.cache
def fingerprint() -> str:
    """A hash of the simulator's source without comments and docstrings, and of its constants.

    Cached results of another simulator are not used.
    """
    digest = hashlib.sha256()
    for folder in ("judge/simulate", "dumps"):
        for path in sorted((HERE.parent / "harness" / folder).glob("*.py")):
            # The simulator's statements on its own errors change none of its times.
            if path.name not in ("uncertainty.py", "machine_variants.py"):
                digest.update(_code(path))
    digest.update(_code(HERE.parent / "harness" / "hardware.py"))
    for row in map(chips.row, chips.names()):
        digest.update(repr((row.chip, row.units, row.calibrated)).encode())
    return digest.hexdigest()[:12]


def _code(path: Path) -> bytes:
    tree = ast.parse(path.read_text(encoding="utf-8"))
    for node in ast.walk(tree):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef) and ast.get_docstring(node) is not None:
            node.body = node.body[1:]
    return ast.dump(tree).encode()


def compiled(rows: list[Row], cache: Path, library: Path | None = None, until: float = float("inf")) -> None:
    """Compiles the rows that the cache lacks. A row that crashes the compiler counts as failed; a new compiler process
    goes on with the next row.

    After `until`, seconds since 1970, no row is begun.
    """
    into = cache / ("own" if library is None else hashlib.sha256(str(library).encode()).hexdigest()[:8])
    into.mkdir(parents=True, exist_ok=True)
    left = [row for row in rows if not (into / row.name).exists()]
    while left and time.time() < until:
        with tempfile.TemporaryDirectory(dir=cache) as scratch:
            command = [sys.executable, str(HERE / "fidelity_compile.py"), str(into), str(until)]
            ended = subprocess.run(
                command,
                env=fidelity_compile.environment(Path(scratch), library, fidelity_compile.ON_TENSORCORE),
                input=json.dumps([dataclasses.asdict(row) for row in left]),
                stdout=sys.stderr,
                text=True,
                check=False,
            ).returncode
        left = [row for row in left if not (into / row.name).exists()]
        if left and ended:
            (into / left[0].name).mkdir()
            text = f"the compiler ended with {ended}"
            (into / left[0].name / fidelity_compile.FAILED).write_text(text, encoding="utf-8")
            left = left[1:]


def simulated(row: Row, cache: Path) -> Outcome | None:
    """The outcome of the row, from the cache if the simulator has not changed; None if the row was not compiled."""
    directory = cache / "own" / row.name
    if not directory.exists():
        return None
    path = cache / "results" / fingerprint() / f"{row.name}.json"
    if not path.exists():
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(dataclasses.asdict(_simulate(row, directory))), encoding="utf-8")
    fields = json.loads(path.read_text(encoding="utf-8"))
    return Outcome(**fields | {"unknown": tuple(fields["unknown"])})


def _simulate(row: Row, directory: Path) -> Outcome:
    failed = directory / fidelity_compile.FAILED
    if failed.exists():
        last = failed.read_text(encoding="utf-8").strip().splitlines()
        reason = next((line for line in reversed(last) if "Error" in line or "compiler" in line), last[-1])
        return Outcome(
            seconds=None, calls=0, waits_for_transfers=0, waits_for_units=0, unknown=(f"does not compile: {reason}",)
        )
    simulation = run_module(
        read_module(directory),
        chip_named(row.chip),
        deadline_seconds=_DEADLINE_SECONDS,
        with_lines=False,
        # A published time does not include what the runtime fetches before it starts the program: docs/SIMULATOR.md.
        fetched_before=True,
    )
    cycles = simulation.cycles or 1.0
    return Outcome(
        seconds=simulation.seconds,
        calls=sum(op.calls for op in simulation.ops),
        waits_for_transfers=simulation.dma_wait_cycles / cycles,
        waits_for_units=simulation.unit_stall_cycles / cycles,
        unknown=simulation.unknown[:3],
    )


def chosen(each: int) -> list[Row]:
    """The rows for fitting and for validation, the cheapest to compile first; at most `each` per operation and chip."""
    kinds = sorted(
        (row for row in fidelity_rows.rows() if use_of(row) != "untouched" and not row.is_compiled_otherwise),
        key=lambda row: (row.operation, row.chip, use_of(row), row.cost, row.name),
    )
    groups = groupby(kinds, key=lambda row: (row.operation, row.chip, use_of(row)))
    return [row for _, group in groups for row in list(group)[:each]]


def predict(rows: Iterable[Row], cache: Path) -> int:
    """Writes down predictions for validation rows that have none yet, and returns their number."""
    predictions = fidelity_rows.predicted()
    lines = fidelity_rows.PREDICTIONS.read_text(encoding="utf-8").splitlines() if predictions else []
    lines = lines or [*_HEAD, "row\tseconds\tmodel"]
    added = 0
    for row in rows:
        outcome = simulated(row, cache) if use_of(row) == "validation" and row.name not in predictions else None
        if outcome is not None and outcome.seconds is not None:
            lines.append(f"{row.name}\t{outcome.seconds:.6e}\t{fidelity_rows.MODELS[row.chip]}")
            added += 1
    fidelity_rows.PREDICTIONS.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return added


_HEAD = (
    "# Simulated seconds of validation rows, written down and committed before their published times were read.",
    "# Never changed: what the simulator says today stands in fidelity_rows.tsv.",
)


def points(rows: Iterable[Row], cache: Path) -> tuple[list[Point], list[tuple[Row, str]]]:
    """The rows with a latency (validation rows only if predicted), and the rows without one, with the reason."""
    row_points, without = [], []
    for row in rows:
        outcome = simulated(row, cache)
        if outcome is None:
            continue
        if outcome.seconds is None:
            without.append((row, outcome.unknown[0]))
            continue
        if use_of(row) == "validation" and row.name not in fidelity_rows.predicted():
            continue
        measured = fidelity_rows.measured(row)
        prediction, model = fidelity_rows.predicted().get(row.name, (None, 0))
        row_points.append(
            Point(
                row=row.name,
                chip=row.chip,
                operation=row.operation,
                purpose=_purpose(row, outcome.seconds, prediction, model),
                problem=fidelity_rows.shapes(row),
                measured_seconds=measured.seconds,
                spread=measured.spread,
                simulated_seconds=outcome.seconds,
                predicted_seconds=prediction,
                calls=outcome.calls,
                waits_for_transfers=outcome.waits_for_transfers,
                waits_for_units=outcome.waits_for_units,
            )
        )
    return row_points, without


def _purpose(row: Row, seconds: float, prediction: float | None, model: int) -> str:
    """The use of the row: `earlier` for a validation row that was predicted by a simulator older than today's."""
    if use_of(row) != "validation" or prediction is None:
        return use_of(row)
    is_todays = model == fidelity_rows.MODELS[row.chip] and abs(seconds / prediction - 1) <= _AS_PREDICTED
    return "validation" if is_todays else "earlier"


def with_kept(row_points: list[Point]) -> list[Point]:
    """These rows and the pages' other rows, the latter only for chips whose rows in both have the same times as before.

    For other chips the simulator has changed: their rows are left out until they are compiled anew. Raises SystemExit
    if none of a chip's rows was simulated anew, because then nothing shows whether the simulator has changed for the
    chip.
    """
    anew = {point.row: point for point in row_points}
    kept = {point.row: point for point in statistics.points()}
    more = [point for name, point in kept.items() if name not in anew]
    for chip in dict.fromkeys(point.chip for point in more):
        again = [point for name, point in anew.items() if point.chip == chip and name in kept]
        if not again:
            raise SystemExit(f"expected some rows of {chip} in the cache, got none: nothing shows if its times changed")
        if not all(_is_same(point, kept[point.row]) for point in again):
            left = sum(point.chip == chip for point in more)
            print(f"the times of {chip} have changed: {left} rows that the cache lacks are left out", file=sys.stderr)
            more = [point for point in more if point.chip != chip]
    return [*row_points, *more]


def _is_same(anew: Point, shown: Point) -> bool:
    return abs(anew.simulated_seconds / shown.simulated_seconds - 1) <= _SAME


def _turn(row_points: list[Point], by_name: dict[str, Row]) -> Callable[[Point], tuple[int, int]]:
    """A sort key that puts the cheapest row of each operation first, then the second cheapest."""
    by_operation = statistics.grouped(row_points, lambda point: point.operation).values()
    places = {
        point.row: place
        for here in by_operation
        for place, point in enumerate(sorted(here, key=lambda point: by_name[point.row].cost))
    }
    return lambda point: (places[point.row], by_name[point.row].cost)


def check() -> int:
    """Compiles and simulates twenty rows of the page anew; returns 1 if the time of any row has changed."""
    by_name = {row.name: row for row in chosen(10**6)}
    shown = statistics.points()
    by_chip = statistics.grouped((point for point in shown if point.row in by_name), lambda point: point.chip).values()
    # Each chip's operations, the cheapest row of each first, and the chips in turn.
    turns = zip_longest(*(sorted(here, key=_turn(here, by_name)) for here in by_chip))
    cheap = [point for turn in turns for point in turn if point is not None][:_CHECKED]
    with tempfile.TemporaryDirectory() as scratch:
        compiled([by_name[point.row] for point in cheap], Path(scratch))
        differing = 0
        for point in cheap:
            outcome = simulated(by_name[point.row], Path(scratch))
            seconds = outcome.seconds if outcome else None
            change = (
                "unknown (no latency)" if seconds is None else f"{100 * (seconds / point.simulated_seconds - 1):+.2f} %"
            )
            differing += seconds is None or abs(seconds / point.simulated_seconds - 1) > _SAME
            measured = f"{1e3 * point.measured_seconds:.3f} ms"
            print(f"{point.row:70} measured {measured}, error {point.error:+.1%}, change {change}")
    print(f"{len(cheap)} rows, {differing} of them with another time than on the page")
    return int(differing > 0)


def main() -> int:
    """Prints FIDELITY.md from new results, unless an option says otherwise. Returns 1 if --check finds a new time."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cache", type=Path, default=CACHE, help="where dumps and results are kept")
    parser.add_argument("--each", type=int, default=10**6, help="most rows of each operation, chip and purpose")
    parser.add_argument("--only", default="", help="only rows with this text in their name")
    parser.add_argument("--add", action="store_true", help="keep the rows of the pages that the cache lacks")
    parser.add_argument("--dry", action="store_true", help="compile nothing: use only what the cache has")
    parser.add_argument("--jobs", type=int, default=1, help="number of compilers at a time")
    parser.add_argument("--predict", action="store_true", help="write down predictions of validation rows")
    parser.add_argument("--check", action="store_true", help="simulate twenty rows anew, and compare with the page")
    parser.add_argument("--pages", action="store_true", help="write both pages and the plot from the kept figures")
    parser.add_argument("--write", action="store_true", help="write the pages, their figures and the plot")
    options = parser.parse_args()
    if options.check:
        return check()
    if options.pages:
        pages()
        return 0
    rows = [row for row in chosen(options.each) if options.only in row.name]
    if not options.dry:
        with ThreadPoolExecutor(options.jobs) as pool:
            parts = [rows[start :: options.jobs] for start in range(options.jobs)]
            list(pool.map(lambda part: compiled(part, options.cache), parts))
    for row in rows:
        outcome = simulated(row, options.cache)
        if outcome is not None:
            time = "no latency" if outcome.seconds is None else f"{1e3 * outcome.seconds:.3f} ms"
            print(row.name, time, file=sys.stderr)
    if options.predict:
        print(f"{predict(rows, options.cache)} predictions added to {fidelity_rows.PREDICTIONS.name}: commit it")
        return 0
    row_points, without = points(rows, options.cache)
    if not any(point.purpose == "validation" for point in row_points):
        return 0
    usable = Counter[str](row.purpose for row in fidelity_rows.rows())
    reasons = Counter((row.operation, row.chip, reason[:110].replace("|", "/")) for row, reason in without)
    if options.add:
        row_points = with_kept(row_points)
        for operation, chip, reason, count in statistics.others().without:
            reasons[operation, chip, reason] = max(reasons[operation, chip, reason], count)
    others = Others(
        compiler=f"libtpu {version('libtpu')}, tokamax {version('tokamax')}, jax {version('jax')}",
        rows=dict(usable),
        without=[(*key, count) for key, count in sorted(reasons.items())],
    )
    print(fidelity_page.page(row_points, others.compiler))
    if options.write:
        statistics.write(row_points)
        statistics.write_others(others)
        pages()
    return 0


def pages() -> None:
    """Writes both pages and the plot from the kept figures, and prints README.md's sentences on the errors."""
    row_points, others = statistics.points(), statistics.others()
    texts = {
        "FIDELITY.md": fidelity_page.page(row_points, others.compiler),
        "FIDELITY_ROWS.md": fidelity_page.rows_page(row_points, others),
    }
    fidelity_page.write(HERE, texts, row_points)
    print(f"README.md: {fidelity_page.readme(row_points)}")


if __name__ == "__main__":
    sys.exit(main())
