"""What is drawn for one evaluation, and what is repeated of the draws of an earlier one."""

import secrets
from collections.abc import Iterable
from itertools import islice

from harness.judge.evaluate.messages import Fill, TracedShape
from harness.operators import Problem
from harness.operators.space import RECIPE
from harness.records import Draw
from harness.records.evidence import Mode

# Times anything, and added to anything, it is wrong by far more than a tolerance; its square is still a float32.
_LEAST_FILL = 1 << 12


def seed() -> int:
    """A seed that nobody can foresee: drawn after the candidate is traced."""
    return secrets.randbits(31)


def unforeseen_fill(shape: TracedShape) -> Fill:
    """What memory that nothing wrote holds in the CPU reference program of this shape: NaN, at a smaller one marked.

    NaN shows in nearly every kernel that reads it, a marked one also in those that compare it with something. Those
    that replace a NaN show a number, which the interpreter has.
    """
    return None if shape == "full" else "marked"


def unforeseen_number(*, is_negative: bool = False) -> float:
    """A large number: as a running maximum it hides all that follows; the negative one does as a running minimum."""
    size = float(_LEAST_FILL + secrets.randbelow(_LEAST_FILL))
    return -size if is_negative else size


def repeatable(
    draws: Iterable[Draw], problem: Problem, mode: Mode, *, reduced: int | None, is_second: bool = False
) -> tuple[Draw, ...]:
    """Those of `draws`, each once, that were checked in this mode at this shape and whose family there still is.

    `reduced` is the position of the shape in `problem.reduced()`, None is the full one; `is_second` asks for the
    second shape near that one.
    """
    here = shape(problem, reduced, is_second=is_second)
    families = {*problem.families(full=True), *problem.families(full=False)}
    return tuple(
        draw
        for draw in dict.fromkeys(draws)
        if (draw.mode, draw.shape) == (mode, here)
        and (draw.is_probe or draw.family in families or draw.family.startswith(RECIPE))
    )


def mode_of(reduced: int | None) -> Mode:
    """How records name a run of the CPU reference program there, None: at the contest's own shape.

    A kernel for which there is no smaller shape is checked there twice, as at a smaller one too: both are `full`.
    """
    return "full" if reduced is None else "reduced"


def shape(problem: Problem, reduced: int | None, *, is_second: bool = False) -> tuple[int, ...] | None:
    """The shape of the first output there, as a Draw has it; None where there is no such shape."""
    meant: Problem | None = problem
    if reduced is not None:
        meant = next(islice(problem.reduced(), reduced, None), None)
        if is_second and meant is not None:
            meant = problem.second_shape(meant)
    return None if meant is None else meant.statement().outputs[0].shape
