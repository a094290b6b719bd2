"""Candidates with something planted in them, made from the contest's own kernel, and a process that traces them."""

import json
import pickle
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

from harness.candidate import Candidate
from harness.hardware import Chip, chip
from harness.judge import simulate
from harness.judge.evaluate.messages import ShapesReply, ShapesRequest, TraceReply, TraceRequest
from harness.judge.evaluate.request import Request
from harness.loop import scaffold
from harness.operators import Attention, Problem, RMSNorm, Suite
from harness.records import Failure, Policy
from harness.sandbox import environment
from harness.sandbox.child import Children
from harness.sandbox.jobs import Child

ROOT = Path(__file__).parents[2]
NAIVE = scaffold.text("attention", "kernel.py").decode()
SMALL = Attention(sequence=512, head_dim=128)
MEDIUM = Attention(sequence=1024, head_dim=128)
# Tests that do not need attention use a norm, which is judged in half the time: at 64, 96 and its own 512 rows.
ROWS = RMSNorm(rows=512, columns=256, residual=False)
V5E = chip("v5e")
POLICY = Policy()
MEMORY = 16 << 30


def naive(*edits: tuple[str, str]) -> str:
    """The contest's kernel with each text replaced; the kernel must contain each text."""
    return _edited(NAIVE, edits)


def norm(*edits: tuple[str, str]) -> str:
    """The kernel of a norm with each text replaced; the kernel must contain each text."""
    return _edited(scaffold.text("rmsnorm", "kernel.py").decode(), edits)


def _edited(source: str, edits: tuple[tuple[str, str], ...]) -> str:
    for old, new in edits:
        assert old in source, f"kernel.py no longer holds {old!r}"
        source = source.replace(old, new)
    return source


# Its scores are scaled by another number at MEDIUM, until it is traced for a smaller shape.
CHANGING = naive(
    ("import jax\n", "import jax\nimport numpy as np\n"),
    (
        "def attend(",
        "HELD = np.array(0.0, np.float32)\n\n\ndef held(sequence, d):\n"
        "    HELD[...] = (2 if sequence == 1024 else 1) / math.sqrt(d)\n    return HELD\n\n\ndef attend(",
    ),
    ("scale=1 / math.sqrt(d)", "scale=held(sequence, d)"),
)


def with_wrapper(body: str) -> str:
    """The contest's kernel, with `kernel_fn` replaced by one that may call the old one as `honest`."""
    return naive(("def kernel_fn(", "def honest(")) + "\n\ndef kernel_fn(q, k, v):\n" + body


def request(contest: Path, kernel: str, problem: Problem | Suite, *, work: str = "0001", **changes: Any) -> Request:
    """A request to evaluate a kernel for v5e under the default limits, in the folder `work` of the contest."""
    whole = Request(
        directory=contest,
        candidate=Candidate(text=kernel.encode()),
        problem=problem,
        chip=V5E,
        policy=POLICY,
        work=contest / "profile_data" / work,
        simulate=simulate.run,
    )
    return replace(whole, **changes)


class Tracer:
    """One process that traces candidate after candidate: importing JAX once for many tests."""

    def __init__(self, children: Children, child: Child, directory: Path) -> None:
        self._children = children
        self._child = child
        self._directory = directory

    def full_trace(self, source: str | bytes, problem: Problem = SMALL, chip: Chip = V5E) -> TraceReply | Failure:
        """The trace at the problem's own shape, or its failure."""
        (self._directory / "kernel.py").write_bytes(source if isinstance(source, bytes) else source.encode())
        pickled = self._directory / "problem.pickle"
        pickled.write_bytes(pickle.dumps(problem))
        request = TraceRequest(problem=str(pickled), chip=chip, artifact=str(self._directory / "candidate.tpu"))
        self._children.ask(self._child, "trace", "contract", "trace", request, TraceReply, 60)
        _, reply = self._children.wait()
        assert isinstance(reply, TraceReply | Failure), reply
        return reply

    def trace(self, source: str | bytes, problem: Problem = SMALL, chip: Chip = V5E) -> TraceReply | Failure:
        """The trace, or the failure of this trace or of one for a smaller shape."""
        reply = self.full_trace(source, problem, chip)
        if isinstance(reply, Failure):
            return reply
        shapes = self.shapes()
        return shapes if isinstance(shapes, Failure) else reply

    def shapes(self) -> ShapesReply | Failure:
        """The smaller shapes of the kernel that was traced last."""
        self._children.ask(self._child, "trace", "contract", "trace_smaller", ShapesRequest(), ShapesReply, 60)
        _, reply = self._children.wait()
        assert isinstance(reply, ShapesReply | Failure), reply
        return reply

    def traced(self, source: str, problem: Problem = SMALL) -> TraceReply:
        """The trace at the problem's own shape, which must not fail."""
        reply = self.full_trace(source, problem)
        assert isinstance(reply, TraceReply), reply
        return reply

    def failure(self, source: str | bytes, problem: Problem = SMALL, chip: Chip = V5E) -> Failure:
        reply = self.trace(source, problem, chip)
        assert isinstance(reply, Failure), reply
        # A failure is stored, so JSON must be able to hold its text.
        json.dumps([reply.message, reply.detail])
        return reply


@contextmanager
def tracer(directory: Path) -> Iterator[Tracer]:
    with Children(MEMORY) as children:
        child = children.start("candidate", "harness.judge.evaluate.candidate", directory, environment.on_cpu())
        yield Tracer(children, child, directory)
