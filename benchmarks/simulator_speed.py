"""Prints the CPU seconds of reading and running a compiled schedule, for long and short champions.

    .venv/bin/python benchmarks/simulator_speed.py [--repeat 3] [--dumps FOLDER] [CONTEST ...]

Compiles each contest's kernel.py as a judgement does (the root champion takes half a minute), unless FOLDER has its
schedule from an earlier run; nothing is recorded. The cost depends on the number of static bundles, and hardly on the
number of executed cycles.
"""

import argparse
import statistics
import tempfile
import time
from pathlib import Path

from tabulate import tabulate

from harness import contest as contests
from harness.dumps.llo import read_module
from harness.judge.simulate.module import run_module
from harness.loop import scaffold
from harness.loop.bench import Bench

ROOT = Path(__file__).parent.parent
CONTESTS = (ROOT, ROOT / "examples" / "matmul", ROOT / "examples" / "attention-gqa-v6e")


def compiled(directory: Path, target: Path) -> Path:
    """The dumps of a contest's kernel, below a copy of the contest at `target`."""
    dumps = target / "profile_data" / "speed" / "dumps"
    if not dumps.is_dir():
        target.mkdir(parents=True, exist_ok=True)
        for name in ("prepare.py", "kernel.py"):
            (target / name).write_bytes((directory / name).read_bytes())
        contest = contests.load(target)
        evidence = Bench(contest=contest, checked=False).judge(contest.candidate(), "speed")
        if evidence.failure is not None:
            raise SystemExit(f"{directory}: {evidence.failure.message}")
    return dumps


def main() -> None:
    """Prints one row for each contest."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("contests", nargs="*", type=Path, metavar="CONTEST")
    parser.add_argument("--repeat", type=int, default=3)
    parser.add_argument("--dumps", type=Path, help="keep the schedules in this folder, and reuse those that it has")
    options = parser.parse_args()
    table = []
    with tempfile.TemporaryDirectory() as scratch:
        naive = Path(scratch) / "new" / "attention"
        scaffold.scaffold(naive, "attention", ())
        for directory in options.contests or (*CONTESTS, naive):
            name = directory.resolve().name if directory != ROOT else "root"
            dumps = compiled(directory, (options.dumps or Path(scratch)).resolve() / name)
            chip = contests.load(directory).chip
            reads, runs = [], []
            for _ in range(options.repeat):
                begun = time.process_time()
                dump = read_module(dumps)
                read = time.process_time()
                run = run_module(dump, chip)
                reads.append(read - begun)
                runs.append(time.process_time() - read)
            read_seconds, run_seconds = statistics.median(reads), statistics.median(runs)
            per_bundle = (read_seconds + run_seconds) / run.static_bundles
            cycles = "unknown" if run.cycles is None else f"{run.cycles:,.0f}"
            row = name, chip.name, f"{run.static_bundles:,}", cycles
            table.append([*row, *(f"{s:.2f}" for s in (read_seconds, run_seconds, per_bundle * 10_000))])
    headers = ["kernel", "chip", "static bundles", "cycles", "read", "run", "both per 10,000 bundles"]
    print(f"median CPU seconds of {options.repeat}, measured on this machine; cycles are simulated")
    print(tabulate(table, headers=headers, disable_numparse=True, colalign=("left", "left", *["right"] * 5)))


if __name__ == "__main__":
    main()
