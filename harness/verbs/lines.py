"""The verb `lines`: kernel.py with the simulated cycles of each line."""

from argparse import Namespace
from dataclasses import dataclass
from typing import Literal

from harness.errors import RatchetError, UsageError
from harness.records import CycleBreakdown
from harness.shell.arguments import colour, command, directory
from harness.shell.parser import Parser
from harness.shell.verb import Document, Outcome, Verb


@dataclass(frozen=True, slots=True, kw_only=True)
class LinesDocument:
    """The cycles of a simulated run, line by line of kernel.py; `clock_hz` turns cycles into seconds."""

    source: Literal["simulated"]
    chip: str
    clock_hz: float
    cycles: float
    breakdown: CycleBreakdown


class Lines(Verb):
    place = "profile", 10
    line = "kernel.py with the simulated cycles of each line"
    example = "lines 3"
    description = "Prints kernel.py with the simulated cycles of each line."
    examples = "ratchet.sh lines; ratchet.sh lines 3"
    is_watched = True
    document = Document(2, LinesDocument)
    effect = "reads"

    def configure(self, parser: Parser) -> None:
        parser.attempt("the attempt (default: kernel.py as it stands)")
        parser.chip("judge kernel.py as it stands for this chip")
        parser.member()
        parser.json("the figures as JSON")
        parser.quiet()

    def run(self, given: Namespace) -> Outcome:
        from harness.advice.source_names import name_lines
        from harness.ledger import history
        from harness.loop.suite_member import evidence_of
        from harness.render.layout import terminal_width
        from harness.render.lines import listing
        from harness.verbs.parts.given import contest_of, known_candidate, opened, with_packages
        from harness.verbs.parts.judged import judged
        from harness.verbs.parts.schedules import why_none

        if given.number is not None and given.chip is not None:
            raise UsageError("usage", "an attempt has its own chip: leave --chip out, or the number")
        if given.number is None:
            contest = contest_of(given, given.chip)
            contest.member(given.member)
            title, candidate = "kernel.py as it stands", contest.candidate()
            evidence, again = judged(contest, given, checked=False, with_lines=True), ""
        else:
            ledger = opened(directory(given.directory))
            title, candidate = f"kernel.py of attempt {given.number}", known_candidate(ledger, given.number)
            evidence = history.attempt(ledger.place, given.number).evidence
            back, lines = (command(words, given.directory) for words in (f"checkout {given.number}", "lines"))
            again = f". Records stay as they were made; to see its lines: {back}, then {lines}"
        evidence = evidence_of(evidence, given.member)
        if given.member:
            title += f" at {given.member}"
        run = name_lines(evidence, evidence.simulation)
        if run is None or run.seconds is None:
            raise RatchetError("no-simulation", f"{title} has no simulated run to take apart: {why_none(evidence)}")
        if run.breakdown is None:
            raise RatchetError("no-breakdown", f"{title} was judged before cycles were counted line by line{again}")
        if evidence.failure is not None:
            title += f" (failed: {evidence.failure.kind})"
        elif given.number is None and not evidence.all_checks:
            title += " (timed only: whether it is right was not looked at)"
        breakdown, files = run.breakdown, with_packages(candidate, evidence)
        document = LinesDocument(
            source="simulated", chip=run.chip, clock_hz=run.clock_hz, cycles=breakdown.cycles, breakdown=breakdown
        )
        width = terminal_width()
        return Outcome(document=document, text=lambda: listing(run, breakdown, files, title, width, colour=colour()))
