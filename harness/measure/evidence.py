"""Gathers everything there is to find out about one candidate: cheap before dear, side by side, until something fails."""

import pickle
import secrets
import shutil
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any, get_args

import msgspec

from harness.errors import RatchetError
from harness.hardware import Chip
from harness.measure import environment as environments
from harness.measure import latency
from harness.measure.child import Child, Children, Job
from harness.measure.device import source
from harness.measure.environment import environment
from harness.measure.messages import (
    CheckReply,
    CheckRequest,
    CompileReply,
    CompileRequest,
    Done,
    ExportRequest,
    InterpretRequest,
    MeasureReply,
    MeasureRequest,
    SimulateRequest,
    TraceReply,
    TraceRequest,
)
from harness.problems import Problem
from harness.records import (
    Check,
    Claims,
    Environment,
    Evidence,
    Failure,
    HloCounts,
    Latency,
    MosaicCounts,
    Policy,
    Samples,
    Simulation,
    Source,
    Stage,
    StageTime,
    Trace,
)

__all__ = ["environment", "gather", "source"]

Progress = Callable[[str, str, float], None]
Simulate = Callable[..., Simulation]

_ORDER: tuple[Stage, ...] = get_args(Stage)
# Seeds are unforeseeable, and small enough for every generator.
_SEED_BITS = 63


def gather(
    contest: Path,
    kernel: bytes,
    problem: Problem,
    chip: Chip,
    policy: Policy,
    *,
    work_directory: Path,
    simulate: Simulate,
    on: str | None = None,
    deep: bool = False,
    after_trace: Callable[[Trace], None] = lambda trace: None,
    progress: Progress = lambda stage, state, seconds: None,
) -> Evidence:
    """The evidence about `kernel`, the bytes of a kernel.py; `failure` in it says what ended the gathering early.

    Writes programs, dumps and Mosaic text to `work_directory` (what is there from an earlier
    run is replaced), the HLO text there and to `profile_data/kernel.hlo.txt` of the contest,
    and on a device a profile to `profile_data`. `simulate(dump_directory, chip,
    deadline_seconds=...)` has to be a function at the top of a module. `after_trace` may
    raise: then nothing more happens. Whatever is raised, Ctrl-C too, no process is left behind.

    Raises RatchetError `no-libtpu`, `no-device`, `no-space`; UsageError `unknown-device`.
    """
    where = source(chip, on)
    if environment().libtpu is None:
        raise RatchetError(
            "no-libtpu",
            "expected libtpu, the TPU compiler, found none; install it with pip install 'jax[tpu]' "
            "(x86-64 Linux only; ./ratchet.sh does it there)",
        )
    for name in ("dumps", "mosaic", "scratch"):
        shutil.rmtree(work_directory / name, ignore_errors=True)
    for name in ("dumps", "mosaic", "scratch/candidate", "scratch/check", "scratch/compiler"):
        (work_directory / name).mkdir(parents=True, exist_ok=True)
    scratch = work_directory / "scratch"
    (scratch / "candidate" / "kernel.py").write_bytes(kernel)
    (scratch / "problem.pickle").write_bytes(pickle.dumps(problem))
    with Children(policy.child_memory_bytes, progress) as children:
        gathering = _Gathering(contest, problem, chip, policy, work_directory, simulate, where, deep, children)
        found = gathering.run(after_trace)
    shutil.rmtree(scratch, ignore_errors=True)
    if found.failure is not None and found.failure.kind == "no-space":
        raise RatchetError("no-space", f"{found.failure.message}; make room and run again")
    return found


class _Gathering:
    """What is under way for one candidate, and what has been found so far."""

    def __init__(
        self,
        contest: Path,
        problem: Problem,
        chip: Chip,
        policy: Policy,
        work: Path,
        simulate: Simulate,
        where: Source,
        deep: bool,
        children: Children,
    ) -> None:
        self._contest = contest
        self._problem = problem
        self._chip = chip
        self._policy = policy
        self._work = work
        self._simulate = simulate
        self._source: Source = where
        self._deep = deep
        self._children = children
        self._began = time.monotonic()
        self._stages: list[StageTime] = []
        self._checks: list[Check] = []
        self._warnings = list(environments.warnings_about())
        self._failures: list[Failure] = []
        self._pending = 0
        self._traced: TraceReply | None = None
        self._compiled: CompileReply | None = None
        self._simulation: Simulation | None = None
        self._samples: Samples | None = None
        self._pickle = str(work / "scratch" / "problem.pickle")
