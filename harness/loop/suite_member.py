"""The member of a suite that `--member` names, for commands that look into one program."""

from dataclasses import replace

from harness.errors import UsageError
from harness.records import Attempt, Evidence


def evidence_of(evidence: Evidence, member: str | None) -> Evidence:
    """The evidence about the member called `member`; for a single problem, `evidence` itself.

    Raises UsageError `which-member` if a suite is given no name or an unknown one, if that member was not evaluated, or
    if a single problem is given a name.
    """
    names = [suite_member.name for suite_member in evidence.problem.members or ()]
    if not names:
        if member is not None:
            raise UsageError("which-member", f"expected no --member, got {member!r}: the contest is one problem")
        return evidence
    if member not in names:
        got = repr(member) if member else "none"
        raise UsageError("which-member", f"expected --member, one of {', '.join(names)} of this suite, got {got}")
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
