"""A kernel's program exported for a capture: kernel.py is traced in a confined child, as in a judgement."""

import pickle
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

from harness.errors import RatchetError
from harness.judge.evaluate.draws import seed
from harness.judge.evaluate.messages import ExportRequest, ShapesReply, ShapesRequest, TraceReply, TraceRequest
from harness.judge.evaluate.reach import reach
from harness.judge.evaluate.tasks import MODULES
from harness.loop import kept_captures
from harness.sandbox import environment, handover
from harness.sandbox.child import Children
from harness.sandbox.dialogue import Dialogue, Progress
from harness.sandbox.messages import Done
from harness.workbench.capture.capturing import CapturedKernel, Exported
from harness.workbench.capture.messages import CaptureSubject


@contextmanager
def exported(kernel: CapturedKernel, warmup_calls: int, progress: Progress) -> Iterator[Exported]:
    """The kernel's program, ready to run; for a CPU, the CPU reference program, at the reduced shape if that traces.

    No process and no file outlives the context. Raises RatchetError with the kind of the failure if kernel.py does not
    trace.
    """
    limited = Children(kernel.policy.child_memory_bytes, are_confined=kernel.policy.is_confined)
    with tempfile.TemporaryDirectory(prefix="ratchet-") as folder, limited as children:
        scratch = Path(folder)
        pickled, folder_of_child = scratch / "problem.pickle", scratch / "candidate"
        pickled.write_bytes(pickle.dumps(kernel.problem))
        folder_of_child.mkdir()
        for name, data in kernel.candidate.files.items():
            (folder_of_child / name).write_bytes(data)
        confinement = reach("candidate", problem=pickled, work=scratch, profiles=kernel.profiles, on_device=False)
        child = children.start(
            "candidate", MODULES["candidate"], folder_of_child, environment.on_cpu(), confinement=confinement
        )
        kept_captures.make_folder(kernel.profiles)
        dialogue = Dialogue(children=children, stage="contract", progress=progress)
        written = folder_of_child / "candidate.program"
        request = TraceRequest(
            problem=str(pickled), chip=kernel.chip, artifact=str(written), function=kernel.function, stubs=kernel.stubs
        )
        seconds = kernel.policy.trace_seconds
        dialogue.ask(child, "trace", request, TraceReply, seconds)
        problem, reduced = kernel.problem, None
        if kernel.device == "cpu":
            smaller = dialogue.ask(child, "trace_smaller", ShapesRequest(), ShapesReply, seconds, label="trace")
            reduced = smaller.reduced
            export = ExportRequest(artifact=str(written), shape="full" if reduced is None else "reduced")
            dialogue.ask(child, "export_cpu", export, Done, kernel.policy.correctness_seconds, label="export")
            problem = kernel.problem if reduced is None else tuple(kernel.problem.reduced())[reduced]
        program = scratch / "program"
        failure = handover.take_over(written, program, "contract")
        if failure is not None:
            raise RatchetError(failure.kind, failure.message)
        subject = CaptureSubject(
            artifact=str(program), problem=str(pickled), reduced=reduced, seed=seed(), warmup_calls=warmup_calls
        )
        yield Exported(
            kernel=kernel,
            dialogue=replace(dialogue, stage="profile"),
            scratch=scratch,
            subject=subject,
            title=problem.statement().title,
        )
