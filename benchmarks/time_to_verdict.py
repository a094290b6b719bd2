"""Prints where the time of a verdict goes: wall clock and CPU, by process and stage, next to libtpu alone.

    .venv/bin/python benchmarks/time_to_verdict.py [--repeat 5] [--rejected] [template:BQ/BKV | FOLDER ...]

A kernel is the naive attention template with blocks of BQ by BKV, or the champion of a contest folder (`.` is the root
contest). Medians of seconds measured on this machine; nothing is recorded. Processes and stages overlap, so the total
is less than the sum. `libtpu alone` is the CPU time that libtpu takes for the same program in the same run, without
dumps, in a process that has done nothing else but import JAX.
"""

import argparse
import os
import pickle
import resource
import shutil
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from tabulate import tabulate

from harness import contest as contests
from harness.candidate import Candidate, rewrite
from harness.loop import scaffold
from harness.loop.bench import Bench
from harness.records import Evidence
from harness.sandbox import environment

ROOT = Path(__file__).parents[1]
KERNELS = ("template:512/512", "template:1024/512", "template:2048/1024", ".")
# The interval between looks at a process. The CPU time between the last look and the end of the process is not seen.
_LOOK_SECONDS = 0.05
# The name of an interpreter that has not started a module yet.
_UNNAMED = ("python", "python3")
_LIBTPU_ALONE = """
import pickle, sys, time
from pathlib import Path
import jax
from jax.sharding import SingleDeviceSharding
from harness.hardware import chip
from harness.judge.evaluate.compile.topology import described_device
from harness.sandbox import arrays
artifact, problem, chip_name = sys.argv[1:]
sharding = SingleDeviceSharding(described_device(chip(chip_name)))
inputs = pickle.loads(Path(problem).read_bytes()).inputs
shapes = [jax.ShapeDtypeStruct(a.shape, arrays.dtype(a.dtype), sharding=sharding) for a in inputs]
exported = jax.export.deserialize(bytearray(Path(artifact).read_bytes()))
began = time.process_time()
jax.jit(exported.call).lower(*shapes).compile()
print(time.process_time() - began)
"""


@dataclass(slots=True)
class Run:
    """One verdict: seconds of wall clock and of CPU in all, CPU by process, and the evidence."""

    wall: float
    cpu: float
    evidence: Evidence
    by_process: dict[str, float] = field(default_factory=dict)


class Sampler:
    """CPU seconds of every process below this one, by name, between entry and exit."""

    def __init__(self) -> None:
        self._seen: dict[tuple[int, str], tuple[str, float]] = {}
        self._before: dict[tuple[int, str], float] = {}
        self._done = threading.Event()
        self._thread = threading.Thread(target=self._watch)
        self.own_seconds = 0.0

    def __enter__(self) -> "Sampler":
        self._look()
        self._before = {key: seconds for key, (_, seconds) in self._seen.items()}
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._look()
        self._done.set()
        self._thread.join()

    @property
    def seconds(self) -> dict[str, float]:
        """CPU seconds since it was entered, by the process's name."""
        totals: dict[str, float] = {}
        for key, (name, seconds) in self._seen.items():
            totals[name] = totals.get(name, 0.0) + seconds - self._before.get(key, 0.0)
        return {name: seconds for name, seconds in totals.items() if seconds > 0.005}

    def _watch(self) -> None:
        while not self._done.wait(_LOOK_SECONDS):
            self._look()
        # The CPU time of looking is not the judge's.
        self.own_seconds = time.thread_time()

    def _look(self) -> None:
        todo = _children(os.getpid())
        while todo:
            pid = todo.pop()
            todo += _children(pid)
            with suppress(OSError):
                # proc(5): after the name come state, ppid, ... utime (14th), stime (15th) ... starttime (22nd).
                fields = Path(f"/proc/{pid}/stat").read_bytes().rpartition(b")")[2].split()
                key = pid, fields[19].decode()
                seen_process = self._seen.get(key)
                name = seen_process[0] if seen_process and seen_process[0] not in _UNNAMED else _name(pid)
                self._seen[key] = name, (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def _children(pid: int) -> list[int]:
    pids: list[int] = []
    # A process may end while it is looked at.
    with suppress(OSError):
        for path in Path(f"/proc/{pid}/task").glob("*/children"):
            with suppress(OSError):
                pids += map(int, path.read_text(encoding="ascii").split())
    return pids


def _name(pid: int) -> str:
    """The name of a process of the judge: the last word of the module that it serves, or its own name."""
    words = Path(f"/proc/{pid}/cmdline").read_bytes().decode(errors="replace").split("\0")
    if "harness.sandbox.worker" in words:
        return words[words.index("harness.sandbox.worker") + 1].rpartition(".")[2]
    return Path(f"/proc/{pid}/comm").read_text(encoding="utf-8").strip()


def judge(contest: contests.Contest, kernel: bytes, work: str, *, rejected: bool) -> Run:
    """One judgement of `kernel`, files in `profile_data/<work>`; `rejected`: treated as slower than the champion."""
    before = resource.getrusage(resource.RUSAGE_SELF)
    began = time.perf_counter()
    with Sampler() as sampler:
        bench = Bench(contest=contest, reuses=False)
        is_slower = (lambda candidate_evidence: candidate_evidence.latency is not None) if rejected else None
        evidence = bench.judge(Candidate(text=kernel), work, is_slower=is_slower)
    wall = time.perf_counter() - began
    after = resource.getrusage(resource.RUSAGE_SELF)
    judge_seconds = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime - sampler.own_seconds
    processes = {**sampler.seconds, "judge": judge_seconds}
    return Run(wall=wall, cpu=sum(processes.values()), evidence=evidence, by_process=processes)


def libtpu_alone(contest: contests.Contest, work: str) -> float | None:
    """CPU seconds of libtpu for the program that `judge` left in `profile_data/<work>`, without dumps."""
    artifact = contest.directory / "profile_data" / work / "candidate.tpu"
    if contest.chip.topology is None or not artifact.exists():
        return None
    variables = {
        name: value for name, value in environment.compiling(contest.chip).items() if name != "LIBTPU_INIT_ARGS"
    }
    with tempfile.TemporaryDirectory() as folder:
        statement = Path(folder) / "statement.pickle"
        statement.write_bytes(pickle.dumps(contest.problem.statement()))
        arguments = [sys.executable, "-P", "-c", _LIBTPU_ALONE, str(artifact), str(statement), contest.chip.name]
        done = subprocess.run(arguments, env=variables, cwd=folder, capture_output=True, text=True, check=False)
    return float(done.stdout) if done.returncode == 0 else None


def contest_of(name: str, folder: Path, chip: str | None) -> tuple[contests.Contest, bytes]:
    """A copy of the contest in `folder`, and the kernel that `name` means."""
    kind, _, blocks = name.partition(":")
    if kind == "template":
        scaffold.scaffold(folder, "attention", ())
        contest = contests.load(folder, chip or "v5e")
        kernel = contest.kernel_path.read_bytes()
        for constant, value in zip(("BQ", "BKV"), blocks.split("/"), strict=True):
            kernel = rewrite(kernel, constant, value, "kernel.py")
        return contest, kernel
    folder.mkdir()
    for file in ("prepare.py", "kernel.py"):
        shutil.copy(ROOT / name / file, folder / file)
    contest = contests.load(folder, chip)
    return contest, contest.kernel_path.read_bytes()


def rows(name: str, runs: Sequence[Run], alone: Sequence[float]) -> tuple[list[str], list[list[str]]]:
    """The row of one kernel in the first table, and its rows in the second."""
    wall, cpu = (statistics.median(values) for values in ([run.wall for run in runs], [run.cpu for run in runs]))
    kinds = {run.evidence.failure.kind for run in runs if run.evidence.failure}
    first = [name, f"{wall:.2f}", f"{cpu:.1f}"]
    if alone:
        median = statistics.median(alone)
        first += [f"{median:.1f}", f"{wall / median:.2f}", f"{cpu / median:.2f}"]
    else:
        first += ["unknown"] * 3
    second = []
    for process in dict.fromkeys(process for run in runs for process in run.by_process):
        seconds = statistics.median(run.by_process.get(process, 0.0) for run in runs)
        second.append([name, "process", process, f"{seconds:.2f}", "", ""])
    stages: dict[str, list[tuple[float, float]]] = {}
    for run in runs:
        for stage in run.evidence.stages:
            stages.setdefault(stage.stage, []).append((stage.start_seconds, stage.seconds))
    for stage_name, times in stages.items():
        start, length = (statistics.median(column) for column in zip(*times, strict=True))
        second.append([name, "stage", stage_name, "", f"{start:.2f}", f"{length:.2f}"])
    return [*first, ", ".join(sorted(kinds))], second


def main() -> None:
    """Judges each kernel `--repeat` times and prints medians."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("kernels", nargs="*", default=KERNELS, metavar="KERNEL")
    parser.add_argument("--repeat", type=int, default=5)
    parser.add_argument("--rejected", action="store_true", help="as a candidate that is slower than the champion")
    parser.add_argument("--chip", help="instead of the contest's own")
    options = parser.parse_args()
    verdicts, parts = [], []
    with tempfile.TemporaryDirectory() as folder:
        for place, name in enumerate(options.kernels):
            contest, kernel = contest_of(name, Path(folder) / str(place), options.chip)
            runs, alone = [], []
            for number in range(options.repeat):
                runs.append(judge(contest, kernel, f"run-{number}", rejected=options.rejected))
                libtpu_seconds = libtpu_alone(contest, f"run-{number}")
                alone += [] if libtpu_seconds is None else [libtpu_seconds]
            row, more = rows(f"{name} on {contest.chip.name}", runs, alone)
            verdicts.append(row)
            parts += more
    cores = environment.cores()
    kind = "rejected for time" if options.rejected else "full verdict"
    print(f"{kind}: medians of {options.repeat}, seconds measured on this machine, {cores} cores")
    headers = ["kernel", "wall", "CPU", "libtpu alone, CPU", "wall / libtpu", "CPU / libtpu", "failure"]
    print(tabulate(verdicts, headers=headers, disable_numparse=True, colalign=("left",)))
    print()
    headers = ["kernel", "", "name", "CPU", "begins at", "wall"]
    print(tabulate(parts, headers=headers, disable_numparse=True, colalign=("left",)))


if __name__ == "__main__":
    main()
