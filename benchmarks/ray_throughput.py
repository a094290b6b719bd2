"""Prints the time of a search's trial in two processes of this machine, and in two workers of a Ray cluster.

    .venv/bin/python benchmarks/ray_throughput.py [--settings 24] [--repeat 3]

The cluster has three nodes, all on this machine's loopback: a head node and two nodes with a CPU each. Processes and
cluster take turns to screen the same settings of the naive attention template, which are compiled and simulated anew.
The seconds are measured on this machine; `between answers` leaves out the start of processes and actors.
"""

import argparse
import os
import shutil
import statistics
import tempfile
import time
from pathlib import Path

from tabulate import tabulate

from harness import contest as contests
from harness.contest import Contest
from harness.loop import ray_cluster, scaffold, screening
from harness.loop.bench import Bench
from harness.loop.screening import Places

_AT_A_TIME = 2
# Makes Ray listen on the loopback alone on every system, although the name mentions two others.
_ENVIRONMENT = {"RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0", "RAY_USAGE_STATS_ENABLED": "0", "RAY_AUTH_MODE": "disabled"}


def main() -> None:
    """Runs the processes and the cluster by turns and prints the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--settings", type=int, default=24, help="settings screened in each run (default 24, at most 49)"
    )
    parser.add_argument("--repeat", type=int, default=3, help="runs of each (default 3)")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="ratchet-") as scratch:
        os.environ.update(_ENVIRONMENT, XDG_CACHE_HOME=f"{scratch}/cache")
        from ray.cluster_utils import Cluster

        folder = Path(scratch) / "contest"
        scaffold.scaffold(folder, "attention", (("SEQUENCE", "4096"),))
        contest = contests.load(folder)
        cluster = Cluster(
            initialize_head=True,
            head_node_args={"num_cpus": 0, "node_ip_address": "127.0.0.1", "include_dashboard": False},
        )
        for _ in range(_AT_A_TIME):
            cluster.add_node(num_cpus=1, node_ip_address="127.0.0.1")
        seconds_by_method: dict[str, list[tuple[float, float]]] = {"processes": [], "Ray": []}
        try:
            for _ in range(options.repeat):
                seconds_by_method["processes"].append(_seconds(contest, options.settings, screening.local(_AT_A_TIME)))
                with ray_cluster.connected(str(cluster.address), _AT_A_TIME, print) as places:
                    seconds_by_method["Ray"].append(_seconds(contest, options.settings, places))
        finally:
            cluster.shutdown()
    local, by_ray = (
        [statistics.median(figures) for figures in zip(*runs, strict=True)] for runs in seconds_by_method.values()
    )
    rows = [
        [name, f"{here:.2f} s", f"{there:.2f} s", f"{there / here:.3f}"]
        for name, here, there in zip(("from the start", "between answers"), local, by_ray, strict=True)
    ]
    print(
        f"Wall clock for each of {options.settings} settings, {_AT_A_TIME} at a time, median of "
        f"{options.repeat}, measured"
    )
    print(tabulate(rows, headers=["", "processes", "Ray", "ratio"], disable_numparse=True))


def _seconds(contest: Contest, count: int, places: Places) -> tuple[float, float]:
    """The seconds for each setting, from the start and between the first answer and the last."""
    shutil.rmtree(os.environ["XDG_CACHE_HOME"], ignore_errors=True)
    sizes = [str(64 << place) for place in range(7)]
    text = contest.candidate()
    left = [text.set((("BQ", size), ("BKV", other))) for size in sizes for other in sizes][:count]
    answers: list[float] = []
    began = time.monotonic()
    screening.screen(
        Bench(contest=contest, on="simulated"),
        lambda: left.pop() if left else None,
        lambda kernel, evidence: answers.append(time.monotonic()),
        places,
    )
    return (answers[-1] - began) / count, (answers[-1] - answers[0]) / (count - 1)


if __name__ == "__main__":
    main()
