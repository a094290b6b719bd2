"""Rules on when to stop: at the roofline, near it, or after several attempts that brought nothing.

These are hints of `diagnose` and of the report. The advice of `next` to stop, and the number of lost attempts after
which `next` gives it, are in loop/stop_advice.py.
"""

from harness.advice.observed import Observed
from harness.advice.rules.matrix import SATURATED_MXU
from harness.advice.rules.rule import GAP, PRACTICE, SCALING_BOOK, XPROF, RuleCase, rule
from harness.advice.simulated_rates import LIMIT, differ
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
    if util is None or seen.matmul_share < SATURATED_MXU:
        return None
    left = min(1 - seen.matmul_share, seen.room)
    of_limit = f" ({percent(seen.matmul_share)} of {LIMIT})" if differ(util, seen.matmul_share) else ""
    return RuleCase(
        observation=f"useful matmul work alone takes {percent(util)} of the MXU's peak{of_limit}: compute-bound and "
        f"nearly done {seen.label}",
        suggestion=f"stop tuning blocks, at most {percent(left)} is left; only less work or a narrower dtype goes "
        "further",
        gain=left,
        gain_source=seen.room_source,
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
    if report.hbm_bytes is None or seen.transfer_share < _SATURATED_HBM:
        return None
    if report.hbm_bytes > _LEAST_TRAFFIC * report.minimum_hbm_bytes:
        return None
    return RuleCase(
        observation=f"{decimal(report.hbm_bytes, 'B', 2)} of traffic, hardly more than the inputs and outputs, at "
        f"{seen.bandwidth_words}: memory-bound and nearly done {seen.label}",
        suggestion="stop tuning blocks; only fewer bytes save time (a narrower dtype, or fusion with the operation "
        "before or after)",
        gain=1 - seen.transfer_share,
        gain_source=seen.room_source,
        knob="ceiling",
        comes_first=True,
    )


@rule("small gap", None, GAP, "a gap under 10% of the actual time is small")
def small_gap(seen: Observed) -> RuleCase | None:
    """Less than a tenth of the time is above the time of the work and the traffic at full speed.

    Full speed is the roofline, or what the simulator lets pass if the latency is simulated.
    """
    report = seen.report
    if report.gap_fraction is None or report.gap_fraction < 0:
        return None
    memory, compute = seen.memory_seconds, seen.compute_seconds
    floor = max(compute, memory, seen.link_seconds)
    gap = max(0.0, 1 - floor / seen.seconds)
    if gap >= SMALL_GAP:
        return None
    is_memory_bound = memory > compute
    if (
        is_memory_bound
        and report.hbm_bytes is not None
        and report.hbm_bytes > _LEAST_TRAFFIC * report.minimum_hbm_bytes
    ):
        # This gap is measured from the kernel's own traffic, which other block sizes may lower.
        return None
    suggestion = "stop tuning blocks: a larger gain needs less work or less traffic, not a better schedule"
    # This gap is measured from the kernel's own traffic, but the bound on the gain from the least possible traffic.
    if percent(seen.room) != percent(gap):
        suggestion += f"; with the least possible traffic, {seen.room_words}"
    is_at = f"the roofline is at {seconds(floor)}"
    if differ(report.gap_fraction, gap):
        is_at = f"{LIMIT} takes {seconds(floor)}, and the published gap is {percent(report.gap_fraction)}"
    return RuleCase(
        observation=f"the gap is {percent(gap)} of {seconds(seen.seconds)}, which is small (under 10%): {is_at} "
        f"{seen.label}",
        suggestion=suggestion,
        gain=seen.room,
        gain_source=seen.room_source,
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
        observation=f"the last {fruitless} attempts brought nothing, though {seen.room_words}",
        suggestion="change the kind of idea: `results` lists the earlier attempts, and the report shows where the time "
        "goes",
        comes_first=True,
    )


# The rules that advise to stop tuning blocks. Advice to change a block does not appear together with theirs.
STOP_TUNING = frozenset(each.name for each in (saturated, memory_floor, small_gap))
