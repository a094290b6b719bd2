"""Wall clock, CPU seconds and results of the project's test runs, repeated: the figures of benchmarks/TESTS.md.

Run with the project's Python: .venv/bin/python benchmarks/time_of_tests.py quick|default|collect [--runs 3]
"""

import argparse
import os
import re
import resource
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path

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
    """Number before `word` in pytest's last line, 0 where the word is not in it."""
    last = output.rstrip().rpartition("\n")[2]
    found = re.search(rf"(\d+) {word}", last)
    return int(found[1]) if found else 0


def timed(name: str) -> Timed:
    """Runs the tests once, in this checkout."""
    load, cpu, began = os.getloadavg()[0], cpu_seconds(), time.monotonic()
    done = subprocess.run([PROJECT / "ratchet.sh", "test", *RUNS[name]], stdout=subprocess.PIPE, text=True)
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
    )


def main() -> int:
    """Prints a table with one row for each run. Exit code 1 if a run failed."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("name", choices=RUNS, help="the tests to run")
    parser.add_argument("--runs", type=int, default=1, help="how often each is run (default 1)")
    given = parser.parse_args()
    print(HEAD, flush=True)
    failed = False
    for _ in range(given.runs):
        found = timed(given.name)
        failed |= found.exit_code != 0
        print(found.row, flush=True)
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
