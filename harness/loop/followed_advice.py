"""Advice on code: names the earlier attempts that followed it, with their times, as untried_advice.py does for blocks.

No record says which rule an attempt followed. An attempt counts if its change is of the kind that the rule advises, and
if its hypothesis names the rule or the rule's finding is gone or halved in its program.
"""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace

from harness.advice import diagnose
from harness.advice import report as reporting
from harness.advice.kernel_changes import kinds_of_change
from harness.candidate import Candidate
from harness.errors import RatchetError
from harness.hardware import chip
from harness.ledger import history
from harness.ledger.paths import Place
from harness.records import Attempt, Evidence, Hint, Row
from harness.records.report_words import less_time

# A finding that costs at most this share of the time that it cost before counts as mended.
_HALVED = 0.5


def with_followers(
    hints: Sequence[Hint],
    evidence: Evidence,
    candidate: Candidate,
    place: Place,
    rows: Sequence[Row],
    others: Mapping[int, Candidate],
) -> tuple[Hint, ...]:
    """The hints on `candidate`; those without edits name the attempts among `rows` that followed them.

    `evidence` is the evidence about `candidate`. Only attempts count that were judged against `candidate` as champion,
    for its problem and chip, and that have a time. `others` are the attempts' candidates.
    """
    if not any(_is_code(hint) for hint in hints):
        return tuple(hints)
    words: dict[str, str] = {}
    before = _costs(evidence)
    for row, attempt, kinds in _challengers(evidence, candidate, place, rows, others):
        after = _costs(attempt.evidence)
        for hint in (hint for hint in hints if _is_code(hint) and hint.kind in kinds):
            how = _followed(hint.rule, attempt, kinds, before, after)
            if how and row.time_ratio is not None:
                words[hint.rule] = f"{words.get(hint.rule, '')}; {how}: {less_time(row.time_ratio)}"
    return tuple(
        replace(hint, suggestion=hint.suggestion + words[hint.rule]) if _is_code(hint) and hint.rule in words else hint
        for hint in hints
    )


def _is_code(hint: Hint) -> bool:
    return bool(hint.because and hint.kind) and not hint.edits


def _challengers(
    evidence: Evidence, candidate: Candidate, place: Place, rows: Sequence[Row], others: Mapping[int, Candidate]
) -> Iterator[tuple[Row, Attempt, tuple[str, ...]]]:
    """The attempts judged against `candidate`, oldest first, each with its row and the kinds of its changes."""
    for row in rows:
        other = others.get(row.number)
        if row.kind != "experiment" or row.time_ratio is None or other is None:
            continue
        # Unreadable records were named when the rows were read.
        with suppress(RatchetError):
            attempt = history.attempt(place, row.number)
            champion = others.get(attempt.champion.attempt) if attempt.champion else None
            is_same = (attempt.evidence.problem, attempt.evidence.chip) == (evidence.problem, evidence.chip)
            if is_same and champion is not None and champion.sha256 == candidate.sha256:
                yield row, attempt, kinds_of_change(candidate.source, other.source)


def _followed(
    rule: str,
    attempt: Attempt,
    kinds: Sequence[str],
    before: Mapping[str, float | None] | None,
    after: Mapping[str, float | None] | None,
) -> str:
    """The beginning of a sentence on the attempt if it followed the rule, else ""."""
    if rule.casefold() in attempt.hypothesis.casefold():
        return f"attempt {attempt.number} names this in its hypothesis"
    if before is None or after is None or rule not in before:
        return ""
    where = f"in attempt {attempt.number} ({'+'.join(kinds)}) this is"
    if rule not in after:
        return f"{where} gone"
    was, now = before[rule], after[rule]
    return f"{where} halved or less" if was and now is not None and now <= _HALVED * was else ""


def _costs(evidence: Evidence) -> dict[str, float | None] | None:
    """The seconds that each rule's finding costs, or the bound on its gain; None if neither is known.

    None as a whole for a suite, whose members have findings of their own, and without a possible time.
    """
    report = reporting.report(evidence, chip(evidence.chip))
    if evidence.members or evidence.failure is not None or report.seconds is None or report.impossible:
        return None
    seen = diagnose.observe(evidence, report, report.seconds)
    shares = {rule.name: case.gain or case.cost or None for rule, case in diagnose.findings(seen)}
    return {name: share and share * report.seconds for name, share in shares.items()}
