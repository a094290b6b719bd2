"""The member of a suite that somebody means: what looks into one program takes its evidence."""

from dataclasses import replace

from harness.errors import UsageError
from harness.records import Attempt, Evidence


def evidence_of(evidence: Evidence, member: str | None) -> Evidence:
    """The evidence about the member of that name; of a single problem `evidence` itself.

    Raises UsageError `which-member` where a suite needs a name, nothing stated has this one, or it was not evaluated.
    """
    names = [one.name for one in evidence.problem.members or ()]
    if not names:
        if member is not None:
            raise UsageError("which-member", f"expected no --member, got {member!r}: the contest is one problem")
        return evidence
    if member not in names:
        got = repr(member) if member else "none"
        raise UsageError("which-member", f"expected --member, one of {', '.join(names)} of this suite, got {got}")
    found = next((found for one, found in evidence.named_members if one.name == member), None)
    if found is None:
        why = evidence.failure.message if evidence.failure else "it was not reached"
        raise UsageError("which-member", f"{member} was not evaluated: {why}")
    return found


def of_member(attempt: Attempt, member: str) -> Attempt:
    """The attempt with the evidence of that member alone, and its time against the champion's. Raises as above."""
    evidence = evidence_of(attempt.evidence, member)
    ratio = next((one.time_ratio for one in attempt.verdict.members if one.name == member), None)
    verdict = replace(attempt.verdict, time_ratio=ratio, time_ratio_low=None, time_ratio_high=None, members=())
    return replace(attempt, evidence=evidence, verdict=verdict, champion=None)
