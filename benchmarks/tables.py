"""Compares our tuning with published winners: simulates candidates, picks the best, and writes benchmarks/TABLES.md.

    uv pip install -e '.[bench]' && python benchmarks/tables.py --predict     # then commit the predictions
    python benchmarks/tables.py --write

in an environment with Python 3.12 or newer. Results are kept in benchmarks/.cache (or `--cache DIR`), which fidelity.py
shares: a run that was stopped, or that stopped itself after `--limit` seconds, can be continued. `--predict` writes
down the simulated times of each candidate of the problems that are done. `--write` compiles nothing: it reads the
predictions and the published times.
"""

import argparse
import dataclasses
import json
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ProcessPoolExecutor
from importlib.metadata import version
from pathlib import Path

import fidelity
import fidelity_compile
import fidelity_rows
import tables_candidates
import tables_page
import tables_statistics
from fidelity_rows import Row
from tables_candidates import Candidate, Space
from tables_statistics import Predicted, Published


def spaces(rows: list[Row], cache: Path) -> list[Space]:
    """The configurations that tokamax would try for each row's problem, from the cache if it was asked before."""
    path = cache / f"spaces-{version('tokamax')}.json"
    space_by_row = json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}
    missing = [row for row in rows if row.name not in space_by_row]
    if missing:
        with tempfile.TemporaryDirectory() as scratch:
            output = subprocess.run(
                [sys.executable, str(Path(tables_candidates.__file__))],
                env=fidelity_compile.environment(Path(scratch)),
                input=json.dumps([dataclasses.asdict(row) for row in missing]),
                stdout=subprocess.PIPE,
                text=True,
                check=True,
            ).stdout
        space_by_row |= {
            row.name: space for row, space in zip(missing, json.loads(output.splitlines()[-1]), strict=True)
        }
        path.write_text(json.dumps(space_by_row), encoding="utf-8")
    return [
        Space(configs=tuple(space_by_row[row.name]["configs"]), default=space_by_row[row.name]["default"])
        for row in rows
    ]


def plan(cache: Path) -> list[list[Candidate]]:
    """The candidates of each problem, in the order in which the problems are done."""
    cache.mkdir(parents=True, exist_ok=True)
    rows = tables_candidates.keys()
    return [tables_candidates.candidates(row, space) for row, space in zip(rows, spaces(rows, cache), strict=True)]


def predict(planned: list[list[Candidate]], rivals: list[list[Row]], cache: Path) -> int:
    """Writes down predictions of the finished problems that have none yet, and returns the number of these problems."""
    predicted_problems = tables_statistics.problems() if tables_statistics.PREDICTIONS.exists() else []
    groups = planned + [[Candidate(row=row, role="rival") for row in group] for group in rivals]
    added = []
    for group in groups:
        if any(
            problem.rows[0].row == group[0].row.name and problem.is_rivalry == (group[0].role == "rival")
            for problem in predicted_problems
        ):
            continue
        outcomes = [fidelity.simulated(candidate.row, cache) for candidate in group]
        if any(outcome is None for outcome in outcomes):
            continue
        fidelity.predict([candidate.row for candidate in group if candidate.role in ("published", "rival")], cache)
        added.append(
            [_predicted(candidate, outcome) for candidate, outcome in zip(group, outcomes, strict=True) if outcome]
        )
    tables_statistics.write([*(problem.rows for problem in predicted_problems), *added])
    return len(added)


def _predicted(candidate: Candidate, outcome: fidelity.Outcome) -> Predicted:
    return Predicted(
        chip=candidate.row.chip,
        operation=candidate.row.operation,
        role=candidate.role,
        row=candidate.row.name,
        seconds=outcome.seconds,
        waits_for_transfers=outcome.waits_for_transfers,
        waits_for_units=outcome.waits_for_units,
        config=candidate.row.config,
        reason="" if outcome.seconds is not None else _short(outcome.unknown[0]),
    )


def _short(reason: str) -> str:
    """A failure's reason in short, without paths, values and the compiler's details."""
    for word, meaning in _REASONS:
        if word in reason:
            return meaning
    return "the simulator has no latency for it"


_REASONS = (
    ("CompileTimeScopedVmemOom", "the compiler runs out of VMEM"),
    ("RESOURCE_EXHAUSTED", "the compiler runs out of memory"),
    ("does not compile", "the kernel does not compile with these tiles"),
    ("can never be satisfied", "the simulator takes a wait for a deadlock"),
)


def _work(job: tuple[list[Row], Path, float]) -> None:
    """Compiles and simulates some rows, and begins none after the job's last second."""
    rows, cache, until = job
    fidelity.compiled(rows, cache, until=until)
    for row in rows:
        if time.time() < until:
            outcome = fidelity.simulated(row, cache)
            seconds = outcome.seconds if outcome else None
            print(row.name, "no latency" if seconds is None else f"{1e3 * seconds:.3f} ms", file=sys.stderr)


def main() -> int:
    """Makes the predictions, or with --write the page."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cache", type=Path, default=fidelity.CACHE, help="where dumps and results are kept")
    parser.add_argument("--jobs", type=int, default=1, help="problems at a time")
    parser.add_argument("--limit", type=float, default=float("inf"), help="start nothing after this many seconds")
    parser.add_argument("--predict", action="store_true", help="write down predictions")
    parser.add_argument("--write", action="store_true", help="write benchmarks/TABLES.md")
    options = parser.parse_args()
    if options.write:
        text = tables_page.page(
            tables_statistics.problems(),
            _published(),
            f"libtpu {version('libtpu')}, tokamax {version('tokamax')}, jax {version('jax')}",
        )
        print(text)
        (fidelity.HERE / "TABLES.md").write_text(text, encoding="utf-8")
        return 0
    until = time.time() + options.limit
    planned = plan(options.cache)
    rivals = tables_candidates.rivals(fidelity_rows.rows())
    groups = [*([candidate.row for candidate in group] for group in planned), *rivals]
    with ProcessPoolExecutor(options.jobs) as pool:
        list(pool.map(_work, [(rows, options.cache, until) for rows in groups]))
    if options.predict:
        added = predict(planned, rivals, options.cache)
        print(f"{added} problems added to {tables_statistics.PREDICTIONS.name}: commit it")
    return 0


def _published() -> dict[str, Published]:
    """Published times of the rows that have been predicted, by the rows' names."""
    operations = (*tables_candidates.TUNED, tables_candidates.V2)
    named = {row.name: row for operation in operations for row in fidelity_rows.rows(operation=operation)}
    wanted = [
        prediction.row
        for problem in tables_statistics.problems()
        for prediction in problem.rows
        if prediction.is_published
    ]
    readable = [named[name] for name in wanted if fidelity_rows.may_be_read(named[name])]
    return {
        row.name: Published(
            seconds=fidelity_rows.measured(row).seconds,
            spread=fidelity_rows.measured(row).spread,
            problem=fidelity_rows.shapes(row),
        )
        for row in readable
    }


if __name__ == "__main__":
    sys.exit(main())
