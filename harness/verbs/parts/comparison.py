"""What `diff` does: two kernels held against each other, of attempts, of files, or kernel.py as it stands."""

import re
from argparse import Namespace
from pathlib import Path

from harness.advice.comparison import ComparedSide, compare
from harness.candidate import Candidate
from harness.errors import RatchetError, UsageError
from harness.judge.key import key_difference
from harness.ledger import Ledger, history
from harness.ledger.diff import unified
from harness.loop.bench import Bench
from harness.records import Key
from harness.render.comparison import comparison_text
from harness.render.layout import terminal_width
from harness.shell.arguments import BASELINE, colour, command
from harness.shell.verb import Outcome
from harness.verbs.parts.given import contest_of, progress_of, settled
from harness.verbs.parts.judged import judged


def diff(given: Namespace) -> Outcome:
    sides = [_side(given, what, place) for place, what in enumerate((given.before, given.after))]
    (before, old), (after, new) = sides
    differing = "" if old.timed == new.timed else key_difference(old, new)
    found = compare(before, after, unified(before.candidate.text, after.candidate.text), differing)
    return Outcome(
        document=found, text=lambda: comparison_text(found, terminal_width(), full=given.full, colour=colour())
    )


def _side(given: Namespace, what: str | None, place: int) -> tuple[ComparedSide, Key]:
    """One of the two, with the key of its evidence. Raises RatchetError and UsageError `usage`."""
    if what is None and place == 1:
        contest = contest_of(given)
        evidence = judged(contest, given)
        side = ComparedSide(name="kernel.py as it stands", candidate=contest.candidate(), evidence=evidence)
        return side, contest.key("simulated" if evidence.latency is None else evidence.latency.source)
    if what is None or re.fullmatch(r"\d+", what):
        return _attempt(settled(given), what, given.directory)
    if given.only_reads:
        raise RatchetError("not-judged", f"{what} would have to be judged first, and this only reads: name an attempt")
    path = Path(what)
    if not path.is_file():
        raise UsageError("usage", f"expected an attempt's number or the file of a kernel, got {what!r}")
    contest = contest_of(given)
    candidate = Candidate.of_file(path)
    with progress_of(given) as progress:
        bench = Bench(contest=contest, progress=progress)
        with bench.held("diff"):
            evidence = bench.judge(candidate, f"diff-{place}")
    side = ComparedSide(name=str(path), candidate=candidate, evidence=evidence)
    return side, contest.key("simulated" if evidence.latency is None else evidence.latency.source)


def _attempt(ledger: Ledger, what: str | None, given: Path | None) -> tuple[ComparedSide, Key]:
    if what is None:
        attempt = ledger.champion()
        if attempt is None:
            raise RatchetError("no-champion", f"there is no champion yet: {command(BASELINE, given)} makes the first")
    else:
        attempt = history.attempt(ledger.place, int(what))
    title = f"attempt {attempt.number} ({attempt.verdict.outcome}: {attempt.hypothesis})"
    return ComparedSide(
        name=title, candidate=history.candidate(ledger.place, attempt.number), evidence=attempt.evidence
    ), attempt.key
