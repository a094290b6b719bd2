"""Sends one request at a time to the children, reports its progress, and raises its failure."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeVar

from harness.errors import RatchetError
from harness.records import Failure, Stage
from harness.sandbox.child import Children
from harness.sandbox.jobs import Child, Job

# A function that is called with a request's label, its state, and the seconds that it took.
Progress = Callable[[str, str, float], None]
Reply = TypeVar("Reply")


@dataclass(frozen=True, slots=True, kw_only=True)
class Dialogue:
    """Sends requests to `children`. Failures belong to `stage`; `progress` is called when a request begins or ends."""

    children: Children
    stage: Stage
    progress: Progress

    def ask(
        self, child: Child, task: str, arguments: object, reply_type: type[Reply], limit: float, *, label: str = ""
    ) -> Reply:
        """The child's answer to a task.

        Raises RatchetError with the kind and message of a failure, even if the job that fails is another child's.
        """
        label = label or task
        self.progress(label, "start", 0.0)
        asked_job = self.children.ask(child, label, self.stage, task, arguments, reply_type, limit)
        job: Job | None = None
        reply: Reply | Failure | None = None
        # Jobs of other children may end before this one.
        while job is not asked_job:
            job, reply = self.children.wait()
            if isinstance(reply, Failure):
                self.progress(job.label, reply.kind, job.seconds)
                raise RatchetError(reply.kind, f"{job.label}: {reply.message}{_last_words(reply)}")
        assert isinstance(reply, reply_type)
        self.progress(label, "done", asked_job.seconds)
        return reply


def _last_words(failure: Failure) -> str:
    return f"\n{failure.detail}" if failure.kind in ("crash", "killed") and failure.detail else ""
