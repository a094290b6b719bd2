"""Champion and candidate simulated again under every doubt of the simulator, in one process."""

import tempfile
from collections.abc import Callable
from pathlib import Path

from harness.hardware import Chip
from harness.judge.sandbox import environment
from harness.judge.sandbox.child import Children
from harness.judge.sandbox.confinement import Confinement
from harness.judge.sandbox.messages import ResimulateReply, ResimulateRequest
from harness.records import Failure, Policy, Resimulation

Resimulate = Callable[..., tuple[Resimulation, ...]]
# The runs keep their own deadline; this is for starting the process, reading the dumps, and the answer.
_GRACE_SECONDS = 60.0


def run(
    champion: Path, candidate: Path, chip: Chip, policy: Policy, resimulate: Resimulate
) -> tuple[Resimulation, ...] | Failure:
    """What `resimulate` (a function at the top of a module) finds for the two directories of dumps, else a Failure."""
    with (
        tempfile.TemporaryDirectory() as scratch,
        Children(policy.child_memory_bytes, are_confined=policy.is_confined) as children,
    ):
        child = children.start(
            "simulator", "harness.judge.evaluate.timing.simulation", Path(scratch), environment.on_cpu(),
            confinement=Confinement(readable=(str(champion), str(candidate))),
        )  # fmt: skip
        request = ResimulateRequest(
            module=resimulate.__module__, function=resimulate.__qualname__, champion=str(champion),
            candidate=str(candidate), chip=chip, deadline_seconds=policy.resimulate_seconds,
        )  # fmt: skip
        limit = policy.resimulate_seconds + _GRACE_SECONDS
        children.ask(child, "simulate again", "latency", "resimulate", request, ResimulateReply, limit)
        _, reply = children.wait()
    return reply if isinstance(reply, Failure) else reply.runs
