"""The controls of every template: wrong or empty answers, which the operator's tolerance must not let pass.

Run as a program, it prints the PlantedVerdict of the controls that its command line names.
"""

import sys

import msgspec

from harness.loop import scaffold
from harness.operators import Member
from harness.operators.controls import every_answer, weaknesses
from harness.prepare import data
from harness.records.selftest import Planted, PlantedVerdict, Refusal

_CAUGHT = Refusal(stage="correctness", kind="wrong-result")
_PREFIX = "controls_of_"


def control_names() -> tuple[str, ...]:
    """The names of `controls()`, without the lists of wrong answers, which take seconds to make."""
    return tuple(map(_name, scaffold.templates()))


def controls() -> tuple[Planted, ...]:
    """One planted candidate for each template: all of its answers are wrong, and none may pass."""
    return tuple(
        Planted(
            name=_name(template),
            what=f"Wrong answers of {template}: {', '.join(dict.fromkeys(_names(template)))}.",
            row="27",
            expected=(_CAUGHT,),
        )
        for template in scaffold.templates()
    )


def _name(template: str) -> str:
    return _PREFIX + template.replace("-", "_")


def _members(template: str) -> tuple[Member, ...]:
    stated = data.read(scaffold.text(template, "prepare.py"))
    assert stated is not None, "templates are data"
    return data.members_of(stated[0])


def _names(template: str) -> list[str]:
    """The names of the wrong answers at the reduced shape that `weaknesses` uses.

    At the template's own shape, computing a long recurrence takes seconds.
    """
    smallest = (next(iter(member.problem.reduced()), member.problem) for member in _members(template))
    return [name for problem in smallest for name in every_answer(problem)]


def judgement(name: str) -> PlantedVerdict:
    """The judgement on the controls of this name."""
    template = name.removeprefix(_PREFIX).replace("_", "-")
    passed = [f"{member.name} {name}".strip() for member in _members(template) for name in weaknesses(member.problem)]
    if passed:
        return PlantedVerdict(outcome="accept", refusal=None, message=f"these pass: {', '.join(passed)}")
    return PlantedVerdict(
        outcome="failed", refusal=_CAUGHT, message=f"{len(_names(template))} wrong answers, none passes"
    )


if __name__ == "__main__":
    sys.stdout.buffer.write(msgspec.json.encode(judgement(sys.argv[1])))
