"""The work of `diff`: compares two kernels, each from an attempt, from a file, or kernel.py as it stands."""

import re
from argparse import Namespace
from pathlib import Path

from harness.advice.comparison import ComparedSide, compare
from harness.candidate import Candidate
from harness.errors import RatchetError, UsageError
from harness.judge.key import key_difference
from harness.ledger import Ledger, history, table
from harness.ledger.diff import unified
from harness.loop.bench import Bench
from harness.records import Key
from harness.render.comparison import comparison_blocks
from harness.shell.arguments import BASELINE, command
from harness.shell.verb import Outcome
from harness.units import change, seconds
from harness.verbs.parts.context import contest_of, present_evidence, progress_of, recovered_ledger


def run(arguments: Namespace) -> Outcome:
    sides = [_side(arguments, what, place) for place, what in enumerate((arguments.before, arguments.after))]
    (before, old), (after, new) = sides
    differing = "" if old.timed == new.timed else f"{key_difference(old, new)}{_on_one_scale(arguments)}"
    comparison = compare(before, after, unified(before.candidate.text, after.candidate.text), differing)
    return Outcome(document=comparison, text=lambda: comparison_blocks(comparison, full=arguments.full))


def _on_one_scale(arguments: Namespace) -> str:
    """A clause with the times of two attempts on the champion's scale; "" unless both times are known."""
    ledger = recovered_ledger(arguments)
    scaled = table.scaled(ledger)
    by_number = {str(row.row.number): row.row.seconds for row in scaled.rows}
    champion = str(scaled.number)
    first, second = (by_number.get(what or champion) for what in (arguments.before, arguments.after or ""))
    if first is None or second is None:
        return ""
    return (
        f"; on one scale (`results`) they take {seconds(first)} and {seconds(second)}, {change(second / first)}; the "
        "figures below are as recorded, not on one scale"
    )


def _side(arguments: Namespace, what: str | None, place: int) -> tuple[ComparedSide, Key]:
    """One side of the comparison, and the key of its evidence. Raises RatchetError and UsageError `usage`."""
    if what is None and place == 1:
        contest = contest_of(arguments)
        evidence = present_evidence(contest, arguments)
        name, candidate = "kernel.py as it stands", contest.candidate()
    elif what is None or re.fullmatch(r"\d+", what):
        return _attempt(recovered_ledger(arguments), what, arguments.directory)
    else:
        if arguments.only_reads:
            raise RatchetError("not-judged", f"{what} is not judged yet, and this tool only reads: name an attempt")
        if not Path(what).is_file():
            raise UsageError("usage", f"expected an attempt's number or the file of a kernel, got {what!r}")
        contest = contest_of(arguments)
        name, candidate = str(Path(what)), Candidate.of_file(Path(what))
        with progress_of(arguments) as progress:
            bench = Bench(contest=contest, progress=progress)
            with bench.locked("diff"):
                evidence = bench.judge(candidate, f"diff-{place}")
    key = contest.key("simulated" if evidence.latency is None else evidence.latency.source)
    return ComparedSide(name=name, candidate=candidate, evidence=evidence), key


def _attempt(ledger: Ledger, what: str | None, directory: Path | None) -> tuple[ComparedSide, Key]:
    if what is None:
        attempt = ledger.champion()
        if attempt is None:
            raise RatchetError("no-champion", f"there is no champion: {command(BASELINE, directory)} makes one")
    else:
        attempt = history.attempt(ledger.place, int(what))
    title = f"attempt {attempt.number} ({attempt.verdict.outcome}: {attempt.hypothesis})"
    return ComparedSide(
        name=title, candidate=history.candidate(ledger.place, attempt.number), evidence=attempt.evidence
    ), attempt.key
