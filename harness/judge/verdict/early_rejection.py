"""The rejection of a candidate for its simulated time alone, before all of its checks were run."""

from dataclasses import replace

from harness.hardware import Chip
from harness.judge.verdict import comparable, compare_simulated, roofline
from harness.judge.verdict.changes import changes
from harness.records import Evidence, Policy, Verdict


def is_slower(candidate: Evidence, champion: Evidence, policy: Policy, chip: Chip) -> bool:
    """True if the candidate cannot win, whatever its checks show, so that the remaining checks need not run.

    This is the case if the candidate's simulated time is above the champion's time, by however little, or if a member
    of a suite takes more time than allowed. False if a time is unknown or not simulated, or if the champion's
    evidence cannot support a verdict. Raises ValueError if the two are not comparable.
    """
    if candidate.latency is None or candidate.latency.source != "simulated":
        return False
    if comparable.doubts(champion, "the champion") or roofline.latency_seconds(candidate) is None:
        return False
    comparable.require_comparable(candidate, champion, chip)
    verdict = compare_simulated.verdict(candidate, champion, policy, chip, ())
    ratio = verdict.time_ratio
    return (ratio is not None and ratio > 1) or bool(compare_simulated.losers(candidate, verdict, chip))


def rejection(candidate: Evidence, champion: Evidence, policy: Policy, chip: Chip) -> Verdict:
    """The rejection of a candidate for its time alone; the reason states how many of the checks were run."""
    verdict = compare_simulated.verdict(candidate, champion, policy, chip, changes(candidate, champion))
    run = len(candidate.all_checks)
    slower = "slower" if verdict.time_ratio is None or verdict.time_ratio > 1 else "too slow at a member"
    reason = (
        f"{slower}, so only {run} of {run + len(candidate.unchecked)} checks were run: the kernel's results at "
        "the contest's own shape were not checked"
    )
    return replace(verdict, outcome="reject", reasons=(*verdict.reasons, reason))
