"""The evidence about the champion that is valid for an attempt, and failures that outrank a candidate's result."""

from collections.abc import Iterable
from dataclasses import replace

from harness.records import Attempt, Evidence, Failure, Key, Row


def known_evidence(
    champion: Attempt, commit: str, key: Key, since: Iterable[tuple[Row, Attempt]], *, is_checked: bool = False
) -> Evidence | None:
    """The champion's evidence under `key`, or None if it must be evaluated (always for measured times).

    The evidence comes from the champion's record, or from the first attempt in `since` that evaluated the champion
    under `key`. `commit` is the champion's commit on the branch. If a revoke made the program champion, the revoke's
    record counts as the champion's record. If `is_checked`, the champion is known to pass under the checks key of
    `key`, so only the timing keys must be equal.
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
    """The evidence with `tampering`, if given, as its failure: tampering outranks any other failure."""
    return replace(evidence, failure=tampering) if tampering else evidence
