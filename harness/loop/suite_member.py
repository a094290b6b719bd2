"""The member of a suite that `--member` names, for commands that look into one program."""

from dataclasses import replace

from harness.contest import require_member
from harness.errors import UsageError
from harness.records import Attempt, Evidence


def evidence_of(evidence: Evidence, member: str | None) -> Evidence:
    """The evidence about the member called `member`; for a single problem, `evidence` itself.

    Raises UsageError `which-member` if `member` is missing or unknown for a suite, if this member was not evaluated, or
    if `member` is given for a single problem.
    """
    require_member([stated.name for stated in evidence.problem.members or ()], member)
    if member is None:
        return evidence
    evidence_by_name = {stated.name: about for stated, about in evidence.named_members}
    if member not in evidence_by_name:
        why = evidence.failure.message if evidence.failure else "it was not reached"
        raise UsageError("which-member", f"{member} was not evaluated: {why}")
    return evidence_by_name[member]


def of_member(attempt: Attempt, member: str) -> Attempt:
    """The attempt with only that member's evidence and time ratio. Raises as `evidence_of`."""
    evidence = evidence_of(attempt.evidence, member)
    ratio = next((times.time_ratio for times in attempt.verdict.members if times.name == member), None)
    verdict = replace(attempt.verdict, time_ratio=ratio, time_ratio_low=None, time_ratio_high=None, members=())
    return replace(attempt, evidence=evidence, verdict=verdict, champion=None)
