"""Rules on when to stop: at the roofline, near it, or after several attempts that brought nothing.

These are hints of `diagnose` and of the report. The advice of `next` to stop, and the number of lost attempts after
which `next` gives it, are in loop/stop_advice.py.
"""

from harness.advice.observed import Observed
from harness.advice.rules.matrix import SATURATED_MXU
from harness.advice.rules.rule import GAP, PRACTICE, ROOFLINE, SCALING_BOOK, XPROF, RuleCase, rule
from harness.judge.verdict.roofline import SMALL_GAP
from harness.units import decimal, percent, seconds

_SAME_IDEA_ATTEMPTS = 5
# The most bandwidth that a stream of transfers reaches: the published matmul and copy benchmarks stay below it.
_SATURATED_HBM = 0.90
_LEAST_TRAFFIC = 1.10


@rule("saturated", None, f"{GAP}; {SCALING_BOOK}", "within 10% of the roofline is fine")
def saturated(seen: Observed) -> RuleCase | None:
    """Useful matmul work alone fills the MXU: other block sizes cannot save much."""
    util = seen.report.mxu_util
    if util is None or util < SATURATED_MXU:
        return None
    left = min(1 - util, seen.room)
    return RuleCase(
        observation=f"useful matmul work alone takes {percent(util)} of the MXU's peak: compute-bound and nearly done "
        f"{seen.label}",
        suggestion=f"stop tuning blocks, at most {percent(left)} is left; only less work or a narrower dtype goes "
        "further",
        gain=left,
        gain_source=ROOFLINE,
        knob="ceiling",
        comes_first=True,
    )


@rule(
    "memory floor",
    None,
    f"{GAP}; {XPROF}",
    "least traffic at nearly full bandwidth is the roofline of a memory-bound operation",
)
def memory_floor(seen: Observed) -> RuleCase | None:
    """Hardly more than the least possible traffic, at nearly full bandwidth."""
    report = seen.report
    if report.hbm_bytes is None or (report.bandwidth_util or 0) < _SATURATED_HBM:
        return None
    if report.hbm_bytes > _LEAST_TRAFFIC * report.minimum_hbm_bytes:
        return None
    return RuleCase(
        observation=f"{decimal(report.hbm_bytes, 'B', 2)} of traffic, hardly more than the inputs and outputs, at "
        f"{percent(report.bandwidth_util or 0)} of the bandwidth: memory-bound and nearly done {seen.label}",
        suggestion="stop tuning blocks; only fewer bytes save time (a narrower dtype, or fusion with the operation "
        "before or after)",
        gain=1 - (report.bandwidth_util or 0),
        gain_source=ROOFLINE,
        knob="ceiling",
        comes_first=True,
    )


@rule("small gap", None, GAP, "a gap under 10% of the actual time is small")
def small_gap(seen: Observed) -> RuleCase | None:
    """Less than a tenth of the time is above the roofline, the time of the work and the traffic at full speed."""
    report = seen.report
    gap = report.gap_fraction
    if gap is None or not 0 <= gap < SMALL_GAP:
        return None
    memory = report.memory_only_seconds or 0
    is_memory_bound = memory > report.compute_only_seconds
    if (
        is_memory_bound
        and report.hbm_bytes is not None
        and report.hbm_bytes > _LEAST_TRAFFIC * report.minimum_hbm_bytes
    ):
        # This gap is measured from the kernel's own traffic, which other block sizes may lower.
        return None
    floor = max(report.compute_only_seconds, memory, seen.link_seconds)
    suggestion = "stop tuning blocks: a larger gain needs less work or less traffic, not a better schedule"
    # This gap is measured from the kernel's own traffic, but the bound on the gain from the least possible traffic.
    if percent(seen.room) != percent(gap):
        suggestion += f"; with the least possible traffic, {percent(seen.room)} of the time is above the roofline"
    return RuleCase(
        observation=f"the gap is {percent(gap)} of {seconds(seen.seconds)}, which is small (under 10%): the roofline "
        f"is at {seconds(floor)} {seen.label}",
        suggestion=suggestion,
        gain=seen.room,
        gain_source=ROOFLINE,
        knob="ceiling",
        comes_first=True,
    )


@rule("plateau", None, PRACTICE, "several attempts without a gain: the kind of idea is used up")
def plateau(seen: Observed) -> RuleCase | None:
    """Several attempts in a row without a gain."""
    fruitless = 0
    for row in reversed(seen.previous):
        if row.kind == "rebaseline":
            # An attempt that only checks the champion again does not count.
            continue
        if row.outcome == "accept":
            break
        fruitless += 1
    if fruitless < _SAME_IDEA_ATTEMPTS:
        return None
    return RuleCase(
        observation=f"the last {fruitless} attempts brought nothing, with {percent(seen.room)} of the time left above "
        "the roofline",
        suggestion="change the kind of idea: `results` lists the earlier attempts, and the report shows where the time "
        "goes",
        comes_first=True,
    )


# The rules that advise to stop tuning blocks. Advice to change a block does not appear together with theirs.
STOP_TUNING = frozenset(each.name for each in (saturated, memory_floor, small_gap))
