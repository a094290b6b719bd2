"""The search for the input with the largest error: draws recipes, changes the worst, checks the kernel on each input.

kernel.py is traced and exported for the CPU in a confined child, as in a judgement; the search runs the exported
programs.
"""

import math
import shutil
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Literal

import numpy as np

from harness.errors import RatchetError
from harness.judge.evaluate import evaluation
from harness.judge.evaluate.messages import (
    CheckReply,
    CheckRequest,
    ExportRequest,
    ShapesReply,
    ShapesRequest,
    TracedShape,
    TraceReply,
    TraceRequest,
)
from harness.judge.evaluate.reach import reach
from harness.judge.evaluate.request import Plan
from harness.judge.evaluate.tasks import MODULES
from harness.operators import Space
from harness.operators.space import DRAWN
from harness.prepare import confined
from harness.records import Failure
from harness.records.attack import WorstInput
from harness.sandbox import environment as environments
from harness.sandbox import handover
from harness.sandbox.child import Children
from harness.sandbox.jobs import Child
from harness.sandbox.messages import Done

# Each kind of input is drawn this often before the inputs with the largest errors are changed.
_ROUNDS = 2
# After these rounds, every `_NEW`-th input is drawn anew, so that the search does not get stuck.
_NEW = 3
# The number of inputs with the largest errors from which one is chosen to be changed.
_KEPT = 6
# Every `_FULL`-th try repeats the worst input of a smaller shape at the full shape.
_FULL = 12

Tell = Callable[[int, WorstInput], None]


class AttackedKernel:
    """The exported programs of one kernel.py, ready to be checked on any input."""

    def __init__(self, plan: Plan, children: Children) -> None:
        self._plan = plan
        self.children = children
        evaluation.prepare(plan)
        candidate = self._start("candidate")
        platform = plan.chip.platform
        request = TraceRequest(
            problem=str(plan.pickled_problem),
            chip=plan.chip,
            artifact=str(plan.written(platform)),
            function=plan.member.function,
            stubs=plan.request.stubs,
        )
        self._ask(candidate, "trace", request, TraceReply, plan.policy.trace_seconds)
        traced = self._ask(candidate, "trace_smaller", ShapesRequest(), ShapesReply, plan.policy.trace_seconds)
        assert isinstance(traced, ShapesReply)
        self._reduced = traced.reduced
        self._artifacts: dict[TracedShape, str] = {}
        shapes: dict[TracedShape, bool] = {
            "reduced": traced.reduced is not None,
            "second": traced.has_second,
            "full": True,
        }
        for shape in (shape for shape, is_traced in shapes.items() if is_traced):
            export = ExportRequest(artifact=str(plan.written(f"{shape}.cpu")), shape=shape)
            self._ask(candidate, "export_cpu", export, Done, plan.policy.correctness_seconds)
            kept = plan.scratch / f"{shape}.cpu"
            failure = handover.take_over(plan.written(f"{shape}.cpu"), kept, "correctness")
            if failure is not None:
                raise RatchetError(failure.kind, failure.message)
            self._artifacts[shape] = str(kept)
        self._checker = self._start("checker")

    @property
    def shapes(self) -> tuple[TracedShape, ...]:
        """The shapes that the kernel was traced for, the cheapest first."""
        return tuple(self._artifacts)

    def attack(self, shape: TracedShape, family: str, seed: int, words: str) -> WorstInput:
        """The kernel's error on this input. Raises RatchetError if the program cannot be run."""
        request = CheckRequest(
            problem=str(self._plan.pickled_problem),
            reduced=None if shape == "full" else self._reduced,
            is_second=shape == "second",
            family=family,
            seed=seed,
            artifact=self._artifacts[shape],
            over=self._plan.chip if self._plan.chip.mesh else None,
        )
        reply = self._ask(self._checker, "check", request, CheckReply, self._plan.policy.correctness_seconds)
        assert isinstance(reply, CheckReply)
        error, tolerance = reply.check.error, reply.check.tolerance
        honest_error = reply.check.honest_error if reply.check.criterion == "worst element" else None
        return WorstInput(
            shape=shape,
            title=f"{self._plan.problem.statement().operation} {list(reply.check.shape)}",
            family=family,
            seed=seed,
            ratio=_times_the_tolerance(error, tolerance),
            words=words,
            said=reply.failure.message if reply.failure else "",
            output=reply.check.shape,
            honest_ratio=_times_the_tolerance(honest_error, tolerance),
        )

    def _start(self, name: Literal["candidate", "checker"]) -> Child:
        plan = self._plan
        return self.children.start(
            name,
            MODULES[name],
            plan.directory_of(name),
            environments.checking(0, plan.chip.devices) if name == "checker" else environments.interpreting(),
            confinement=reach(
                name, problem=plan.pickled_problem, work=plan.work, profiles=plan.request.profile_data, on_device=False
            ),
        )

    def _ask(self, child: Child, task: str, request: object, reply_type: type, limit: float) -> Any:
        """The child's reply. Raises RatchetError with the failure's kind if the reply is a failure."""
        self.children.ask(child, task, "correctness", task, request, reply_type, limit)
        _, reply = self.children.wait()
        if isinstance(reply, Failure):
            raise RatchetError(reply.kind, f"the kernel cannot be traced or run: {reply.message}")
        return reply


def search(plan: Plan, *, seconds: float, seed: int, first: bool, tell: Tell) -> tuple[int, WorstInput | None]:
    """The number of inputs tried within `seconds`, and the input with the largest error (None if none was tried).

    `tell` is called with the number and the result of each input that has a larger error than all inputs before it.
    Equal seeds give the same sequence of inputs. The search ends when the time is over or, with `first`, at the first
    input on which the kernel is wrong. Raises RatchetError `no-space` if the problem has no space of inputs, and a
    RatchetError of the failure's kind if the kernel cannot be traced or run.
    """
    began = time.monotonic()
    inputs: list[WorstInput] = []
    with _target(plan) as target, confined.space(plan.problem, target.children) as space:
        for shape, family, drawn in _tries(space, target.shapes, inputs, np.random.default_rng(seed)):
            if time.monotonic() - began > seconds:
                break
            result = target.attack(shape, family, drawn, space.recipe_in_words(family))
            if all(_badness(result) > _badness(other) for other in inputs):
                tell(len(inputs) + 1, result)
            inputs.append(result)
            if first and result.is_wrong:
                break
    return len(inputs), max(inputs, key=_badness, default=None)


def repeat(plan: Plan, worst: WorstInput) -> WorstInput:
    """The kernel's error on the input of `worst`, checked again. Raises RatchetError `another-shape`."""
    with _target(plan) as target:
        if worst.shape not in target.shapes:
            raise RatchetError(
                "another-shape",
                f"expected a kernel that traces at the input's shape ({worst.shape}), got one that does not; search "
                "again without --repeat",
            )
        return target.attack(worst.shape, worst.family, worst.seed, worst.words)


@contextmanager
def _target(plan: Plan) -> Iterator[AttackedKernel]:
    """A context with the AttackedKernel; it leaves no process and no file behind."""
    try:
        with Children(plan.policy.child_memory_bytes, are_confined=plan.policy.is_confined) as children:
            yield AttackedKernel(plan, children)
    finally:
        shutil.rmtree(plan.scratch, ignore_errors=True)


def _tries(
    space: Space, shapes: tuple[TracedShape, ...], inputs: list[WorstInput], random: np.random.Generator
) -> Iterator[tuple[TracedShape, str, int]]:
    """Shape, family and seed of each try; `inputs` holds the results so far."""
    turn = 0
    kinds = [family for family in space.families(full=False) if family.startswith(DRAWN)]
    while True:
        turn += 1
        best = sorted(inputs, key=_badness, reverse=True)[:_KEPT]
        drawn = int(random.integers(1 << 31))
        shape: TracedShape = shapes[0] if len(shapes) < 3 or random.random() < 0.7 else "second"
        if turn % _FULL == 0 and shapes[0] != "full":
            missing = [input_ for input_ in best if input_.shape != "full"]
            if missing:
                yield "full", missing[0].family, missing[0].seed
                continue
        if turn <= _ROUNDS * len(kinds):
            # Each kind of input has its turn before recipes are drawn at random.
            yield shape, space.recipe(kinds[turn % len(kinds)], drawn), drawn
        elif turn % _NEW == 0 or not best:
            yield shape, space.draw_recipe(random), drawn
        else:
            parent = best[int(random.integers(len(best)))]
            # With the parent's seed, the parts of the arrays that do not depend on the change stay the same.
            yield shape, space.mutate_recipe(parent.family, random), parent.seed if random.random() < 0.5 else drawn


def _badness(worst: WorstInput) -> float:
    return math.inf if worst.ratio is None else worst.ratio


def _times_the_tolerance(error: float | None, tolerance: float | None) -> float | None:
    """The error divided by the tolerance; None if an output is not finite, or if it must be exact and is wrong."""
    if error is None or tolerance is None:
        return None
    if tolerance:
        return error / tolerance
    return None if error else 0.0
