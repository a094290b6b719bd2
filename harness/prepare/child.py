"""The tasks of the child process that runs a contest's prepare.py and returns its contents as plain records."""

import pickle
import sys
from collections.abc import Iterator
from functools import cache
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np

from harness.operators import Member, Problem, Space, Suite, complaints, prepare_module
from harness.operators.conformance import MISTAKES
from harness.operators.controls import weaknesses
from harness.operators.space import DRAWN
from harness.operators.timing import Timed
from harness.prepare.data import members_of
from harness.prepare.messages import (
    MOST_TIMING_BYTES,
    Answered,
    Asked,
    AskedRecipe,
    Complaints,
    StatedContest,
    StatedRecipe,
    StatedShape,
)
from harness.tracebacks import place_in_prepare

# A judgement uses the first shape at which a kernel traces; problems of harness.operators have fewer shapes than this.
_MOST_SHAPES = 64


def prepare(asked: Asked) -> StatedContest:
    """The contents of the file, or the reason why it states no contest."""
    try:
        problem, chip = _load(asked)
        answers = tuple(map(_answer, members_of(problem)))
        size = sum(len(table) for each in answers for tables in each.timing.values() for table in tables.values())
        if size > MOST_TIMING_BYTES:
            raise ValueError(
                f"expected timing inputs (the tables of all kinds of timed calls) of at most {MOST_TIMING_BYTES:,} "
                f"bytes, got {size:,}; state fewer kinds or smaller tables"
            )
        return StatedContest(
            chip=chip, problems=answers, may_lose=problem.may_lose if isinstance(problem, Suite) else None
        )
    except (*MISTAKES, ValueError) as error:
        return StatedContest(error=f"{place_in_prepare(error)}{error}")


def complain(asked: Asked) -> Complaints:
    """The rules that the problems of the file break, and the wrong answers that pass their checks."""
    members = members_of(_load(asked)[0])
    broken = tuple(dict.fromkeys(rule for member in members for rule in complaints(member.problem)))
    # The wrong answers of a problem that breaks the rules cannot be computed.
    weak = () if broken else tuple(dict.fromkeys(name for member in members for name in weaknesses(member.problem)))
    return Complaints(broken=broken, weak=weak)


def recipe(asked: AskedRecipe) -> StatedRecipe:
    """A recipe drawn from a family, mutated from another recipe, or drawn at random, as `asked.start` says."""
    members = members_of(_loaded(asked.asked))
    space: Any = next(member.problem for member in members if member.name == asked.name)
    random = np.random.default_rng(asked.seed)
    if asked.start.startswith(DRAWN):
        text = space.recipe(asked.start, asked.seed)
    elif asked.start:
        text = space.mutate_recipe(asked.start, random)
    else:
        text = space.draw_recipe(random)
    return StatedRecipe(text=text, words=space.recipe_in_words(text))


@cache
def _loaded(asked: Asked) -> Any:
    return _load(asked)[0]


def _load(asked: Asked) -> tuple[Any, str]:
    """The problem and the chip that the file states. Raises ValueError with a message for its author."""
    source, before = Path(asked.source).read_bytes(), tuple(sys.modules)
    try:
        module = prepare_module.run(source, asked.path)
        problem, chip = module.problem(), module.CHIP
    except MISTAKES as error:
        raise ValueError(
            f"expected it to define CHIP and problem(); loading it failed: {place_in_prepare(error)}"
            f"{type(error).__name__}: {error}"
        ) from error
    foreign = prepare_module.foreign_imports(before)
    if foreign:
        raise ValueError(
            f"it imports {', '.join(foreign.values())}, which the judge's hash does not cover and no record would "
            "hold; put the code that is needed into prepare.py"
        )
    if not isinstance(chip, str):
        raise ValueError(f"expected CHIP to be a name such as 'v5e', got {chip!r}")
    for stated in (member.problem for member in members_of(problem)):
        missing = prepare_module.missing_methods(stated)
        if missing:
            raise ValueError(
                f"expected problem() to return a Problem (docs/OPERATORS.md), got a {type(stated).__name__} without "
                f"{', '.join(missing)}"
            )
        prepare_module.require_home(module, stated)
    if isinstance(problem, Suite):
        problem.statement()
    return problem, chip


def _answer(member: Member) -> Answered:
    """The problem's answers. Those that fail are left empty: `complain` reports them before anything is judged."""
    problem = member.problem
    return Answered(
        name=member.name,
        weight=member.weight,
        function=member.function,
        statement=problem.statement(),
        full=tuple(_answer_or(lambda: problem.families(True), ())),
        small=tuple(_answer_or(lambda: problem.families(False), ())),
        reduced=_answer_or(lambda: tuple(_shapes(problem)), ()),
        probes=_answer_or(lambda: tuple(probe.name for probe in problem.probes(True, 0)), ()),
        timing=_answer_or(lambda: _timing(problem), {}),
        pickled=pickle.dumps(problem),
        has_space=isinstance(problem, Space),
        is_own=prepare_module.is_prepare(type(problem).__module__),
    )


def _answer_or(answer: Any, otherwise: Any) -> Any:
    try:
        return answer()
    except MISTAKES:
        return otherwise


def _shapes(problem: Problem) -> Iterator[StatedShape]:
    for small in islice(problem.reduced(), _MOST_SHAPES):
        second = problem.second_shape(small)
        yield StatedShape(statement=small.statement(), second=None if second is None else second.statement())


def _timing(problem: Problem) -> dict[str, dict[str, bytes]]:
    if not isinstance(problem, Timed):
        return {}
    dtypes = {array.name: array.dtype for array in problem.statement().inputs}
    return {
        name: {table: values.astype(dtypes[table]).tobytes() for table, values in contents.items()}
        for name, contents in problem.timing_inputs().items()
    }


TASKS = {"prepare": (Asked, prepare), "complain": (Asked, complain), "recipe": (AskedRecipe, recipe)}
