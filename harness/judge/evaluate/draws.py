"""The random draws of an evaluation, and earlier draws that an evaluation repeats."""

import secrets
from collections.abc import Iterable
from itertools import islice

from harness.judge.evaluate.messages import Fill, TracedShape
from harness.operators import Problem
from harness.operators.space import RECIPE
from harness.records import Draw
from harness.records.evidence import Mode

# A fill of at least this size makes every product or sum wrong by far more than any tolerance. The square of the fill
# still fits into float32.
_LEAST_FILL = 1 << 12


def seed() -> int:
    """A seed that the candidate cannot foresee, because it is drawn after the candidate was traced."""
    return secrets.randbits(31)


def unforeseen_fill(shape: TracedShape, *, is_interpreted: bool = True) -> Fill:
    """The content of unwritten memory in the CPU reference program: NaN at the full shape, marked NaN at others.

    NaN exposes nearly every kernel that reads it. A marked NaN also exposes kernels that compare it with a value. Some
    interpreted runs fill memory with a number, which exposes kernels that replace NaN. If the full shape is not
    interpreted, only the CPU reference program runs the late steps, so its memory alternates between all of these
    values.
    """
    if shape != "full":
        return "marked"
    return None if is_interpreted else "mixed"


def unforeseen_number(*, is_negative: bool = False) -> float:
    """A large random number, which hides all later values of a running maximum.

    With `is_negative`, it is negative and hides all later values of a running minimum.
    """
    size = float(_LEAST_FILL + secrets.randbelow(_LEAST_FILL))
    return -size if is_negative else size


def repeatable(
    draws: Iterable[Draw], problem: Problem, mode: Mode, *, reduced: int | None, is_second: bool = False
) -> tuple[Draw, ...]:
    """The distinct members of `draws` that have this mode and shape, and whose family still exists.

    `reduced` is the position of the shape in `problem.reduced()`, or None for the full shape. `is_second` selects the
    second shape near this reduced shape.
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
    """The recorded mode of a run of the CPU reference program at this reduced shape (None: the contest's shape).

    A kernel without a smaller shape is checked twice at the contest's shape. Both runs have the mode `full`.
    """
    return "full" if reduced is None else "reduced"


def shape(problem: Problem, reduced: int | None, *, is_second: bool = False) -> tuple[int, ...] | None:
    """The shape of the first output, as a Draw records it; None if the arguments (see `repeatable`) select no shape."""
    here = at_shape(problem, reduced, is_second=is_second)
    return None if here is None else here.statement().outputs[0].shape


def at_shape(problem: Problem, reduced: int | None, *, is_second: bool) -> Problem | None:
    """The problem at the shape that the arguments select (see `repeatable`); None if there is no such shape."""
    if reduced is None:
        return problem
    small = next(islice(problem.reduced(), reduced, None), None)
    return problem.second_shape(small) if is_second and small is not None else small
