"""What `whatif` says: which resource of the chip a kernel would profit from."""

from argparse import Namespace
from dataclasses import fields

from tabulate import tabulate

from harness.advice import dump_directory
from harness.advice.whatif import SWEEP, answers
from harness.cli.documents import WhatifDocument
from harness.cli.lines import dumped
from harness.cli.verb import Outcome
from harness.errors import RatchetError, UsageError
from harness.records import Simulation
from harness.records.report_words import simulated
from harness.records.whatif import Answer, Scale
from harness.units import change, seconds


def whatif(given: Namespace) -> Outcome:
    names = (field.name for field in fields(Scale))
    factors = {name: _factor(name, word) for name in names if (word := getattr(given, name)) is not None}
    asked = _asked(factors) or SWEEP
    meant, dump, contents = dumped(given, runs=len(asked) + 1)
    deadline = dump_directory.deadline_seconds(meant.dumps)
    real, found = answers(dump, meant.chip, asked, deadline_seconds=deadline, operands=contents)
    if real.seconds is None:
        raise RatchetError("no-simulation", f"{meant.name} has no latency: {dump_directory.explained(real.unknown[0])}")
    number, dash, member = meant.name.partition("-")
    name = f"attempt {int(number)}{dash and f' at {member}'}" if number.isdecimal() else meant.name
    return Outcome(
        document=WhatifDocument(source="simulated", chip=real.chip, seconds=real.seconds, answers=found),
        text=lambda: _text(name, real, found),
    )


def _asked(factors: dict[str, float]) -> tuple[Scale, ...]:
    """Each factor by itself, and if there are several, all of them together."""
    alone = tuple(Scale(**{name: factor}) for name, factor in factors.items())
    return (*alone, Scale(**factors)) if len(alone) > 1 else alone


def _factor(name: str, word: str) -> float:
    """`x2` or `2` as a number. Raises UsageError `bad-factor`."""
    try:
        return float(word.strip().removeprefix("x"))
    except ValueError as error:
        said = f"--{name.replace('_', '-')}: expected a factor such as x2, got {word!r}"
        raise UsageError("bad-factor", said) from error


def _text(name: str, real: Simulation, found: tuple[Answer, ...]) -> str:
    assert real.seconds is not None
    rows = [
        [answer.scale.words or "nothing changed", seconds(answer.seconds), change(answer.time_ratio)]
        for answer in found
    ]
    # All together are better than any, which says nothing about which one counts; a clock no kernel can change.
    alone = [answer for answer in found if len(answer.scale.resources) == 1 and answer.scale.clock == 1]
    best = min(alone, key=lambda answer: answer.time_ratio, default=None)
    last = "nothing here but the clock, which no kernel can change, would make it notably faster"
    if not any(answer.profits for answer in found):
        last = "nothing here would make it notably faster"
    if best is not None and best.profits:
        last = f"it would profit most from {best.scale.words}"
    return "\n".join(
        (
            f"{name}: {seconds(real.seconds)} as it is [{simulated(real.chip)}]",
            tabulate(rows, headers=["what if", "time", "change"], disable_numparse=True),
            f"{last}; the schedule stays the one made for the real chip, so a gain is a lower bound",
        )
    )
