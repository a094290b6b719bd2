"""Draws of an earlier evaluation, repeated: which of them have a program of the same shape now."""

from collections.abc import Iterable
from itertools import islice

from harness.problems import Problem
from harness.problems.space import RECIPE
from harness.records import Draw
from harness.records.evidence import Mode


def repeatable(
    draws: Iterable[Draw], problem: Problem, mode: Mode, *, reduced: int | None, beside: bool = False
) -> tuple[Draw, ...]:
    """Those of `draws`, each once, that were checked in this mode at this shape and whose family there still is.

    `reduced` is the position of the shape in `problem.reduced()`, None is the full one; `beside` asks for the
    second shape beside that one.
    """
    here = shape(problem, reduced, beside=beside)
    families = {*problem.families(full=True), *problem.families(full=False)}
    return tuple(
        draw
        for draw in dict.fromkeys(draws)
        if (draw.mode, draw.shape) == (mode, here)
        and (draw.is_probe or draw.family in families or draw.family.startswith(RECIPE))
    )


def shape(problem: Problem, reduced: int | None, *, beside: bool = False) -> tuple[int, ...] | None:
    """The shape of the first output there, as a Draw has it; None where there is no such shape."""
    meant: Problem | None = problem
    if reduced is not None:
        meant = next(islice(problem.reduced(), reduced, None), None)
        if beside and meant is not None:
            meant = problem.beside(meant)
    return None if meant is None else meant.statement().outputs[0].shape
