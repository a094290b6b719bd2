"""Which evidence about the champion counts for an attempt, and what outranks all that was found about a candidate."""

from collections.abc import Iterable
from dataclasses import replace

from harness.records import Attempt, Evidence, Failure, Key, Row


def known_evidence(
    champion: Attempt, commit: str, key: Key, since: Iterable[tuple[Row, Attempt]], *, is_checked: bool = False
) -> Evidence | None:
    """The champion's evidence under `key`, or None where it has to be evaluated (measured times: always).

    It is its own, or that of the first of the attempts `since` under the same key that evaluated it; `commit` is that
    of the champion on the branch. A revoke that gave it the title holds it as its own. With `is_checked` the champion
    is known to pass under the checks key of `key`, so that only the timing keys have to be equal.
    """

    def counts(other: Key) -> bool:
        return other.timed == key.timed if is_checked else other.counts_for(key)

    if key.source != "simulated":
        return None
    if counts(champion.key):
        return champion.evidence
    for row, attempt in since:
        if not counts(attempt.key):
            continue
        if attempt.revocation:
            if attempt.revocation.holder == champion.number and row.is_on_branch is not False:
                return attempt.evidence
        elif attempt.champion and attempt.champion.commit == commit and attempt.champion_evidence:
            return attempt.champion_evidence
    return None


def disturbed(evidence: Evidence, tampering: Failure | None) -> Evidence:
    """The evidence of a candidate during whose evaluation something was changed: that is its failure, before any."""
    return replace(evidence, failure=tampering) if tampering else evidence
