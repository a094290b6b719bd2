"""Wall clock, CPU seconds and results of the project's test runs: the figures of benchmarks/TESTS.md.

Run with the project's Python: .venv/bin/python benchmarks/time_of_tests.py quick|default|collect [--runs 3]
The tests that took more than --over CPU seconds (default 0.25) follow the table, the longest first.
"""

import argparse
import os
import re
import resource
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

import cpu_of_tests

PROJECT = Path(__file__).parents[1]
RUNS = {"quick": ("--quick",), "default": (), "collect": ("--collect-only", "-q")}
HEAD = "| run | wall s | CPU s | passed | failed | exit | load before | load after |\n|---|--:|--:|--:|--:|--:|--:|--:|"


@dataclass(frozen=True, slots=True, kw_only=True)
class Timed:
    """One run of the tests. `cpu_seconds` covers all its processes that were waited for."""

    name: str
    wall_seconds: float
    cpu_seconds: float
    passed: int
    failed: int
    exit_code: int
    load_before: float
    load_after: float
    costs: tuple[tuple[float, str], ...]

    @property
    def row(self) -> str:
        """A row of the table."""
        return (
            f"| {self.name} | {self.wall_seconds:.0f} | {self.cpu_seconds:.0f} | {self.passed} | {self.failed} "
            f"| {self.exit_code} | {self.load_before:.1f} | {self.load_after:.1f} |"
        )


def cpu_seconds() -> float:
    """User and system seconds of all processes below this one that have ended."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def counted(output: str, word: str) -> int:
    """The number before `word` in pytest's last line, or 0 if the line lacks the word."""
    last = output.rstrip().rpartition("\n")[2]
    match = re.search(rf"(\d+) {word}", last)
    return int(match[1]) if match else 0


def timed(name: str) -> Timed:
    """Runs the tests once, in this checkout."""
    load, cpu, began = os.getloadavg()[0], cpu_seconds(), time.monotonic()
    with tempfile.TemporaryDirectory() as folder:
        done = subprocess.run(
            [PROJECT / "ratchet.sh", "test", *RUNS[name], "-p", "cpu_of_tests"],
            env={**os.environ, "PYTHONPATH": str(PROJECT / "benchmarks"), cpu_of_tests.FOLDER: folder},
            stdout=subprocess.PIPE,
            text=True,
        )
        costs = tuple(cpu_of_tests.costs(Path(folder)))
    if done.returncode:
        print(done.stdout, file=sys.stderr)
    return Timed(
        name=name,
        wall_seconds=time.monotonic() - began,
        cpu_seconds=cpu_seconds() - cpu,
        passed=counted(done.stdout, "passed"),
        failed=counted(done.stdout, "failed") + counted(done.stdout, "errors?"),
        exit_code=done.returncode,
        load_before=load,
        load_after=os.getloadavg()[0],
        costs=costs,
    )


def main() -> int:
    """Prints a table with one row for each run. Exit code 1 if a run failed."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("name", choices=RUNS, help="the tests to run")
    parser.add_argument("--runs", type=int, default=1, help="how often to run them (default 1)")
    parser.add_argument("--over", type=float, default=0.25, help="list tests of more CPU seconds (default 0.25)")
    options = parser.parse_args()
    print(HEAD, flush=True)
    failed = False
    for _ in range(options.runs):
        timed_run = timed(options.name)
        failed |= timed_run.exit_code != 0
        print(timed_run.row, flush=True)
    # The costs are those of the last run. The first test that imports a library, or makes what others share, bears the
    # cost.
    for seconds, test_id in timed_run.costs:
        if seconds > options.over:
            print(f"{seconds:7.2f} {test_id}")
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
