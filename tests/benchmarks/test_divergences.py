"""Kernels that are two programs, and unusual honest ones: a drawn handful of each, judged as kernels are."""

import random
from pathlib import Path

import divergences
import pytest
from divergences import Case

from harness.records import Certificate, Failure

pytestmark = pytest.mark.long

# A new handful for each version of the judge would test more, but a test that fails now and then is worth less.
DRAW = random.Random(44)
TWO_PROGRAMS, ONE_PROGRAM = [*divergences.divergences()], [*divergences.honest()]


def test_there_are_enough_of_each() -> None:
    assert len({case.name for case in TWO_PROGRAMS}) == len(TWO_PROGRAMS) >= 200
    assert len({case.name for case in ONE_PROGRAM}) == len(ONE_PROGRAM) >= 100
    sources = {case.files["kernel.py"] for case in (*TWO_PROGRAMS, *ONE_PROGRAM)}
    assert len(sources) == len(TWO_PROGRAMS) + len(ONE_PROGRAM)


@pytest.mark.parametrize("case", DRAW.sample(TWO_PROGRAMS, 6), ids=lambda case: case.name)
def test_two_programs_are_refused(case: Case, tmp_path: Path) -> None:
    outcome = divergences.examine(case, tmp_path)
    assert isinstance(outcome, Failure)
    assert outcome.kind not in divergences.NOT_REFUSED, outcome


@pytest.mark.parametrize("case", DRAW.sample(ONE_PROGRAM, 4), ids=lambda case: case.name)
def test_one_program_is_certified(case: Case, tmp_path: Path) -> None:
    assert isinstance(divergences.examine(case, tmp_path), Certificate)
