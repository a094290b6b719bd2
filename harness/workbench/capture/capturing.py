"""A kernel captured on its own: traced in a confined child as the judge does, its exported program run in another."""

import pickle
import secrets
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from harness import candidate_text
from harness.errors import RatchetError
from harness.hardware import Chip
from harness.judge.evaluate.draws import seed
from harness.judge.evaluate.request import Progress
from harness.judge.sandbox import environment, handover
from harness.judge.sandbox.child import Children
from harness.judge.sandbox.jobs import Child
from harness.judge.sandbox.messages import (
    Done,
    ExportRequest,
    ShapesReply,
    ShapesRequest,
    TracedShape,
    TraceMode,
    TraceReply,
    TraceRequest,
)
from harness.judge.sandbox.reach import reach
from harness.problems import Problem
from harness.records import KERNEL, Failure, Policy, Source, Stage
from harness.workbench.capture.messages import CaptureReply, CaptureRequest, Subject
from harness.workbench.profiles import pruning
from harness.workbench.profiles.places import RUNS

_Reply = TypeVar("_Reply")
# Compiling and warming up, beside the calls themselves.
_START_SECONDS = 300.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Kernel:
    """What is to be captured: a function of a kernel.py for a problem and a chip, and where it is to run."""

    contest: Path
    text: bytes
    problem: Problem
    chip: Chip
    source: Source
    policy: Policy
    function: str = KERNEL

    @property
    def device(self) -> str:
        """What JAX runs it on: `tpu`, `cuda` or `cpu`."""
        return self.chip.platform if self.source == "measured" else "cpu"

    @property
    def profiles(self) -> Path:
        """The log directory of the contest's captures."""
        return self.contest / "profile_data"


@dataclass(frozen=True, slots=True, kw_only=True)
class Exported:
    """The exported program on disk, the children that may run it, and the problem as it runs, in words."""

    kernel: Kernel
    children: Children
    scratch: Path
    subject: Subject
    title: str
    progress: Progress

    def start(self, name: str, module: str, *, is_confined: bool = True) -> Child:
        """A child for the device, in a folder of its own; confined as the judge confines the one that times."""
        directory = self.scratch / name
        directory.mkdir()
        confinement = reach(
            "timer", problem=self.scratch, work=self.scratch, profiles=self.kernel.profiles,
            on_device=self.kernel.source == "measured" or not is_confined,
        )  # fmt: skip
        given = environment.measuring(self.kernel.device)
        return self.children.start(name, module, directory, given, confinement=confinement)

    def ask(self, child: Child, task: str, arguments: object, reply_type: type[_Reply], limit: float) -> _Reply:
        """The answer to one task. Raises RatchetError with the kind and message of its failure."""
        return _answer(self.children, self.progress, child, task, "profile", task, arguments, reply_type, limit)


@contextmanager
def exported(kernel: Kernel, warmup_calls: int, progress: Progress) -> Iterator[Exported]:
    """The kernel's program, ready to run; on a CPU the reference program, at the reduced shape where it traces at one.

    Whatever happens, no process and no file outlives the context. Raises RatchetError with the
    kind of the failure where kernel.py does not trace.
    """
    limited = Children(kernel.policy.child_memory_bytes, are_confined=kernel.policy.is_confined)
    with tempfile.TemporaryDirectory(prefix="ratchet-") as folder, limited as children:
        scratch = Path(folder)
        pickled, own = scratch / "problem.pickle", scratch / "candidate"
        pickled.write_bytes(pickle.dumps(kernel.problem))
        own.mkdir()
        for name, data in candidate_text.files_of(kernel.text).items():
            (own / name).write_bytes(data)
        confinement = reach("candidate", problem=pickled, work=scratch, profiles=kernel.profiles, on_device=False)
        child = children.start(
            "candidate", "harness.judge.evaluate.candidate", own, environment.on_cpu(), confinement=confinement
        )
        pruning.made(kernel.profiles)

        def ask(label: str, task: str, arguments: object, reply_type: type[_Reply], limit: float) -> _Reply:
            return _answer(children, progress, child, label, "contract", task, arguments, reply_type, limit)

        written = own / "candidate.program"
        request = TraceRequest(
            problem=str(pickled), chip=kernel.chip, artifact=str(written), function=kernel.function
        )  # fmt: skip
        ask("trace", "trace", request, TraceReply, kernel.policy.trace_seconds)
        problem, reduced = kernel.problem, None
        if kernel.device == "cpu":
            smaller = ask("trace", "trace_smaller", ShapesRequest(), ShapesReply, kernel.policy.trace_seconds)
            reduced = smaller.reduced
            shape: TracedShape = "full" if reduced is None else "reduced"
            export = ExportRequest(artifact=str(written), shape=shape)
            ask("export", "export_cpu", export, Done, kernel.policy.correctness_seconds)
            problem = kernel.problem if reduced is None else tuple(kernel.problem.reduced())[reduced]
        program = scratch / "program"
        failure = handover.taken(written, program, "contract")
        if failure is not None:
            raise RatchetError(failure.kind, failure.message)
        subject = Subject(
            artifact=str(program), problem=str(pickled), reduced=reduced, seed=seed(), warmup_calls=warmup_calls
        )
        yield Exported(
            kernel=kernel, children=children, scratch=scratch, subject=subject, title=problem.statement().title,
            progress=progress,
        )  # fmt: skip


def capture(
    kernel: Kernel, *, label: str, mode: TraceMode, calls: int, warmup_calls: int, progress: Progress
) -> tuple[CaptureReply, str, Path]:
    """One capture of so many calls: what the child says, the problem as it ran in words, and the HLO's file.

    Writes `profile_data/plugins/profile/<label>-<8 digits>/` of the contest and the HLO text beside
    `plugins`: kernel.hlo.txt, of the CPU reference program kernel.cpu.hlo.txt. Raises RatchetError with the
    kind of whatever failed; nothing is left in profile_data then.
    """
    text = kernel.profiles / ("kernel.cpu.hlo.txt" if kernel.device == "cpu" else "kernel.hlo.txt")
    session = f"{label}-{secrets.token_hex(4)}"
    with pruning.in_use(kernel.profiles), exported(kernel, warmup_calls, progress) as program:
        request = CaptureRequest(
            subject=program.subject, calls=calls, mode=mode, profile_directory=str(kernel.profiles), session=session,
            hlo_text=str(text),
        )  # fmt: skip
        child = program.start("captured", "harness.workbench.capture.captured")
        try:
            reply = program.ask(child, "capture", request, CaptureReply, _START_SECONDS + kernel.policy.measure_seconds)
        except BaseException:
            shutil.rmtree(kernel.profiles / RUNS / session, ignore_errors=True)
            raise
    return reply, program.title, text


def _answer(
    children: Children, progress: Progress, child: Child, label: str, stage: Stage, task: str, arguments: object,
    reply_type: type[_Reply], limit: float,
) -> _Reply:  # fmt: skip
    progress(label, "start", 0.0)
    asked = children.ask(child, label, stage, task, arguments, reply_type, limit)
    reply: Any = None
    job = None
    # Another child's job may end first.
    while job is not asked:
        job, reply = children.wait()
        if isinstance(reply, Failure):
            progress(label, reply.kind, job.seconds)
            raise RatchetError(reply.kind, f"{job.label}: {reply.message}{_last_words(reply)}")
    progress(label, "done", asked.seconds)
    return reply  # type: ignore[no-any-return]


def _last_words(failure: Failure) -> str:
    return f"\n{failure.detail}" if failure.kind in ("crash", "killed") and failure.detail else ""
