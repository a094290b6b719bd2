"""Captures of a kernel alone: a child process runs its program under a profiler, confined unless it needs a device."""

import secrets
import shutil
from dataclasses import dataclass
from pathlib import Path

from harness.candidate import Candidate
from harness.hardware import Chip
from harness.operators import Problem
from harness.records import KERNEL, Policy, Source
from harness.sandbox import environment
from harness.sandbox.confinement import Confinement
from harness.sandbox.dialogue import Dialogue
from harness.sandbox.jobs import Child
from harness.sandbox.profiles import TraceMode
from harness.workbench.capture.messages import CaptureReply, CaptureRequest, CaptureSubject
from harness.workbench.profiles.places import RUNS

# Time for compiling and warming up, in addition to the time of the calls.
_START_SECONDS = 300.0


@dataclass(frozen=True, slots=True, kw_only=True)
class CapturedKernel:
    """A kernel to capture: a function of a kernel.py for a problem and a chip, and the device to run on."""

    contest: Path
    candidate: Candidate
    problem: Problem
    chip: Chip
    source: Source
    policy: Policy
    function: str = KERNEL
    stubs: tuple[str, ...] = ()

    @property
    def device(self) -> str:
        """The platform on which JAX runs the kernel: `tpu`, `cuda` or `cpu`."""
        return self.chip.platform if self.source == "measured" else "cpu"

    @property
    def profiles(self) -> Path:
        """The log directory of the contest's captures."""
        return self.contest / "profile_data"


@dataclass(frozen=True, slots=True, kw_only=True)
class Exported:
    """The exported program on disk, the dialogue with its processes, and a title with the problem and its size."""

    kernel: CapturedKernel
    dialogue: Dialogue
    scratch: Path
    subject: CaptureSubject
    title: str

    def start(self, name: str, module: str, *, is_confined: bool = True) -> Child:
        """A child process for the device, in a new folder `name`; on a CPU it is confined if `is_confined` is True."""
        directory = self.scratch / name
        directory.mkdir()
        # A confined process can use neither a device (its driver needs too many files to list) nor a server's sockets.
        is_out_of_reach = is_confined and self.kernel.source != "measured"
        confinement = Confinement(readable=(str(self.scratch),), writable=(str(self.kernel.profiles),))
        variables = environment.measuring(self.kernel.device)
        return self.dialogue.children.start(
            name, module, directory, variables, confinement=confinement if is_out_of_reach else None
        )


def capture(program: Exported, *, label: str, mode: TraceMode, calls: int) -> tuple[CaptureReply, Path]:
    """The child's reply after capturing `calls` calls, and the file with the HLO.

    Writes `profile_data/plugins/profile/<label>-<8 hex digits>/` of the contest, and the HLO text next to `plugins`:
    kernel.cpu.hlo.txt on a CPU, kernel.hlo.txt on a device. If the child fails, removes the capture and raises
    RatchetError with the kind of the failure.
    """
    kernel = program.kernel
    text = kernel.profiles / ("kernel.cpu.hlo.txt" if kernel.device == "cpu" else "kernel.hlo.txt")
    session = f"{label}-{secrets.token_hex(4)}"
    request = CaptureRequest(
        subject=program.subject,
        calls=calls,
        mode=mode,
        profile_directory=str(kernel.profiles),
        session=session,
        hlo_text=str(text),
    )
    child = program.start("captured", "harness.workbench.capture.captured")
    try:
        limit = _START_SECONDS + kernel.policy.measure_seconds
        reply = program.dialogue.ask(child, "capture", request, CaptureReply, limit)
    except BaseException:
        shutil.rmtree(kernel.profiles / RUNS / session, ignore_errors=True)
        raise
    return reply, text
