"""Prints where the time of one judgement goes, stage by stage, for several block sizes of the naive kernel.

    .venv/bin/python benchmarks/time_to_verdict.py [--repeat 3] [--chip v5e] [BQ/BKV ...]

Seconds of wall clock on this machine, nothing recorded. Stages overlap: correctness, compilation
and simulation run side by side, so the total is less than the sum.
"""

import argparse
import statistics
import tempfile
import time
from pathlib import Path

from tabulate import tabulate

from harness import contest as contests
from harness.loop import attempt, scaffold
from harness.loop.settings import rewrite
from harness.records import Evidence, Policy

BLOCKS = ("128/256", "512/512", "1024/512", "2048/1024")


def judge(contest: contests.Contest, blocks: str, run: int) -> tuple[float, Evidence]:
    """Total seconds of one judgement of the naive kernel with `BQ/BKV` blocks, and its evidence."""
    kernel = contest.kernel_path.read_bytes()
    for name, value in zip(("BQ", "BKV"), blocks.split("/"), strict=True):
        kernel = rewrite(kernel, name, value, "kernel.py")
    begun = time.perf_counter()
    evidence = attempt.evaluate(
        contest,
        kernel,
        attempt.Options(),
        Policy(),
        lambda stage, state, seconds: None,
        work=f"{blocks}-{run}".replace("/", "-"),
    )
    return time.perf_counter() - begun, evidence


def main() -> None:
    """Judges each block size `--repeat` times and prints medians."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("blocks", nargs="*", default=BLOCKS, metavar="BQ/BKV")
    parser.add_argument("--repeat", type=int, default=3)
    parser.add_argument("--chip", default="v5e")
    given = parser.parse_args()
    table = []
    with tempfile.TemporaryDirectory() as folder:
        directory = Path(folder) / "contest"
        scaffold.scaffold(directory, "attention", ())
        contest = contests.load(directory, given.chip)
        for blocks in given.blocks:
            runs = [judge(contest, blocks, run) for run in range(given.repeat)]
            failures = {evidence.failure.kind for _, evidence in runs if evidence.failure}
            stages: dict[str, list[float]] = {}
            for _, evidence in runs:
                for stage in evidence.stages:
                    stages.setdefault(stage.stage, []).append(stage.seconds)
            total = statistics.median(seconds for seconds, _ in runs)
            table.append(
                [
                    blocks,
                    *[f"{statistics.median(values):.2f}" for values in stages.values()],
                    f"{total:.2f}",
                    ", ".join(failures),
                ]
            )
            headers = ["BQ/BKV", *stages, "total", "failure"]
    print(f"median seconds of {given.repeat} judgements per row, wall clock, this machine, chip {given.chip}")
    print(tabulate(table, headers=headers, disable_numparse=True, colalign=("left",)))


if __name__ == "__main__":
    main()
