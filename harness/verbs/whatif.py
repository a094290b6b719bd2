"""The verb `whatif`: the time if one of the chip's resources were faster."""

from argparse import Namespace
from collections.abc import Iterator
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Literal

from harness.advice.run_parts import RunPart, operations, sentences, timing_inputs
from harness.errors import RatchetError, UsageError
from harness.records import Simulation
from harness.records.report_words import simulated
from harness.records.whatif import Answer, Factors
from harness.shell.parser import Parser
from harness.shell.verb import Document, Outcome, Verb
from harness.units import change, seconds
from harness.verbs.parts.arguments import add_subject

if TYPE_CHECKING:
    from harness.render.layout import Files
    from harness.render.sections import Block


@dataclass(frozen=True, slots=True, kw_only=True)
class WhatifDocument:
    """A run's time on the real chip, and on chips with scaled resources.

    With several timing inputs, `seconds` is the mean over them. `timing_inputs` and `operations` are each empty if they
    would have only one entry.
    """

    source: Literal["simulated"]
    chip: str
    seconds: float
    timing_inputs: tuple[RunPart, ...]
    operations: tuple[RunPart, ...]
    answers: tuple[Answer, ...]


# If a faster clock helps this many times as much as the best resource, no single resource binds.
_FAR_MORE = 4
_RESOURCES = tuple(field.name for field in fields(Factors))


class Whatif(Verb):
    place = "profile", 30
    line = "the time if one of the chip's resources were faster"
    example = "whatif --mxu x2"
    description = (
        "Runs the same schedule in the simulator on a chip with scaled resources; without factors, each resource is "
        "scaled in turn."
    )
    examples = "ratchet.sh whatif; ratchet.sh whatif 3 --mxu x2 --bandwidth x2; ratchet.sh whatif dumps --chip v6e"
    is_watched = True
    document = Document(3, WhatifDocument)
    effect = "reads"

    def configure(self, parser: Parser) -> None:
        add_subject(parser)
        for name in (resource.replace("_", "-") for resource in _RESOURCES):
            parser.option(f"--{name} x2", f"scale the chip's {name} by this factor")
        parser.json("the figures as JSON")
        parser.quiet()

    def run(self, arguments: Namespace) -> Outcome:
        from harness.advice import dump_directory
        from harness.advice.whatif import SWEEP, answers
        from harness.verbs.parts.context import progress_of, with_package_files
        from harness.verbs.parts.schedules import dumped

        words = {name: word for name in _RESOURCES if (word := getattr(arguments, name)) is not None}
        factors = {name: _factor(name, word) for name, word in words.items()}
        # Each factor alone, then, if there are several, all of them together.
        together = (Factors(**factors),) if len(factors) > 1 else ()
        asked = (*(Factors(**{name: factor}) for name, factor in factors.items()), *together) or SWEEP
        subject, dump, contents = dumped(arguments, runs=len(asked) + 1)
        deadline = dump_directory.deadline_seconds(subject.dumps)
        with progress_of(arguments) as progress, progress.during("simulation"):
            real, scaled = answers(dump, subject.chip, asked, deadline_seconds=deadline, operands=contents)
        whole = real.mean_seconds
        if whole is None:
            reason = next(iter((*real.unknown, *(why for run in real.runs for why in run.unknown))), "unknown")
            raise RatchetError(
                "no-simulation", f"{subject.name} has no latency: {dump_directory.explain_no_end(reason)}"
            )
        number, dash, member = subject.name.partition("-")
        name = f"attempt {int(number)}{dash and f' at {member}'}" if number.isdecimal() else subject.name
        files = with_package_files(subject.kernel.candidate, subject.kernel.evidence) if subject.kernel else {}
        return Outcome(
            document=WhatifDocument(
                source="simulated",
                chip=real.chip,
                seconds=whole,
                timing_inputs=timing_inputs(real),
                operations=operations(real),
                answers=scaled,
            ),
            text=lambda: _blocks(name, real, whole, scaled, files),
        )


def _factor(name: str, word: str) -> float:
    """The number in `x2` or `2`. Raises UsageError `bad-factor`."""
    try:
        return float(word.strip().removeprefix("x"))
    except ValueError as error:
        message = f"--{name.replace('_', '-')}: expected a factor such as x2, got {word!r}"
        raise UsageError("bad-factor", message) from error


def _blocks(name: str, real: Simulation, whole: float, scaled: tuple[Answer, ...], files: "Files") -> Iterator["Block"]:
    from tabulate import tabulate

    from harness.advice.kernel_ops import shown_names, with_shown_names
    from harness.render.sections import Line, Words

    parts = [part for part, _ in scaled[0].parts] if scaled else []
    names = shown_names(parts, files)
    headers = ["what if", "time", "change", *(names.get(part, part) for part in parts)]
    rows = [
        [
            answer.scale.words or "nothing changed",
            seconds(answer.seconds),
            change(answer.time_ratio),
            *(change(dict(answer.parts)[part]) for part in parts),
        ]
        for answer in scaled
    ]
    # Only single resources are compared, without the clock, which no kernel can change.
    alone = [answer for answer in scaled if len(answer.scale.resources) == 1 and answer.scale.clock == 1]
    best = min(alone, key=lambda answer: answer.time_ratio, default=None)
    last = "of these, only the clock, which no kernel can change, would make the program notably faster"
    if not any(answer.profits for answer in scaled if len(answer.scale.resources) == 1):
        last = "no resource alone would make the program notably faster, only several of these together"
    if not any(answer.profits for answer in scaled):
        last = "none of these resources would make the program notably faster"
    if best is not None and best.profits:
        last = f"the program would profit most from {best.scale.words}"
        clock = min((answer.time_ratio for answer in scaled if answer.scale.clock > 1), default=1.0)
        if _FAR_MORE * (1 - best.time_ratio) < 1 - clock:
            last = (
                f"of the resources, {best.scale.words} would help most, but no single one binds the program: a faster "
                "clock, which no kernel can have, would help far more, and so would fewer instructions"
            )
    last += (
        "; each row runs the schedule made for the real chip, so an edit that cuts the load of one resource alone "
        "by a row's factor gains at most what the row says"
    )
    yield Words(f"{name}: {seconds(whole)} as it is [{simulated(real.chip)}]")
    yield from (Words(sentence, lead="  ") for sentence in sentences(with_shown_names(real, files)))
    table = tabulate(rows, headers=headers, disable_numparse=True)
    yield from (Line(line, is_whole=True) for line in table.splitlines())
    yield Words(last)
