"""Rules about the vector units: the most used unit, stalls for busy units, work that does not overlap with matmuls."""

from harness.advice.observed import Observed
from harness.advice.rules.block_edits import SHORT_STEP_SECONDS, doubling_edits, larger_key_block, raise_words
from harness.advice.rules.matrix import SATURATED_MXU
from harness.advice.rules.registers import pass_over_scores, score_registers
from harness.advice.rules.rule import CAUSES, LEVERS, OP_PROFILE, UTILISATION, RuleCase, rule
from harness.judge.verdict.roofline import LARGE_GAP
from harness.records import LineTime
from harness.units import percent

# A unit that uses more than this share of its issue slots is the one that the schedule waits for.
_BINDING_SLOTS = 0.60
# From this share of the bandwidth on, the schedule waits for HBM.
_SATURATED_HBM = 0.90
# If bundles are issued in this share of the cycles, the schedule does not wait for memory.
_DENSE_ISSUE = 0.80
# If this share of the time is lost to busy units, it is reported. Schedules of mature kernels lose less.
_MANY_STALLS = 0.20
# Published: exp over 10 % of the time means that the vector unit binds.
_MUCH_EXP = 0.10
# Vector operations for each reciprocal of a line; above it, several registers of values share the reciprocal.
_SHARED_RECIPROCAL = 24


@rule(
    "cross-lane reductions",
    "body",
    LEVERS,
    "reduce along the second-to-last axis: transposed scores need no cross-lane reduction",
    keeps_traffic=True,
)
def cross_lane(seen: Observed) -> RuleCase | None:
    """The schedule waits for reductions across lanes; reductions across sublanes would avoid these waits."""
    if not seen.is_attention:
        return None
    waits = {name: share for name, share in seen.parts("unit stall").items() if name.startswith("XLU")}
    share = sum(waits.values())
    if share < _MUCH_EXP:
        return None
    return RuleCase(
        observation=f"the schedule waits {percent(share)} of the cycles for the cross-lane unit (XLU), which row "
        f"maxima and row sums go through {seen.simulated}",
        suggestion="compute the scores transposed (K Q^T), so that maximum and sum run along the second-to-last "
        "axis: plain vector operations",
        gain=share,
        # Transposed scores change both products; three of four attempts lost (benchmarks/RULES.md).
        weight=0.5,
    )


@rule(
    "unit stalls",
    "constants",
    LEVERS,
    "raise key/value blocks with care: larger ones rescale the accumulator less often",
)
def unit_stalls(seen: Observed) -> RuleCase | None:
    """The schedule waits for busy units, mostly for row maxima and sums across lanes, while the MXU has time left."""
    if seen.run is None:
        return None
    share = seen.share(seen.run.unit_stall_cycles)
    mxu = next((unit.busy_fraction for unit in seen.report.units if unit.name == "MXU"), None)
    larger = larger_key_block(seen)
    if share < _MANY_STALLS or mxu is None or mxu >= _BINDING_SLOTS or larger is None:
        return None
    return RuleCase(
        observation=f"the schedule waits for busy units {percent(share)} of the time (simulated) while the MXU is busy "
        f"only {percent(mxu)} of it",
        suggestion=f"{raise_words(larger)}: each rescaling of the accumulator then serves more scores",
        cost=min(share, 1 - mxu),
        knob="key block",
        edits=(larger,),
    )


@rule(
    "no overlap",
    "body",
    CAUSES,
    "if the matrix unit idles between compute blocks, other work has to overlap with the matmuls",
    ceiling="MXU",
)
def not_overlapped(seen: Observed) -> RuleCase | None:
    """Issue is dense but the MXU idles: vector work and matmuls take turns instead of overlapping."""
    gap, util = seen.report.gap_fraction, seen.report.mxu_util
    issued = seen.share(seen.run.bundle_cycles) if seen.run else 0.0
    if not seen.is_attention or gap is None or util is None or gap < LARGE_GAP or issued < _DENSE_ISSUE:
        return None
    if (seen.step_seconds or 0) <= SHORT_STEP_SECONDS:
        return None
    larger = larger_key_block(seen)
    suggestion = (
        "walk the block of keys in two or more pieces inside the body (unrolled), so that the softmax of one piece "
        "can overlap with the matmul of the next"
    )
    if larger:
        suggestion = (
            f"{raise_words(larger)}: one rescaling of the accumulator, with which no matmul overlaps, then "
            "serves more scores"
        )
    return RuleCase(
        observation=f"the schedule issues bundles {percent(issued)} of the time, but useful matmul work takes "
        f"{percent(util)} of the MXU's peak: matmul and softmax take turns",
        suggestion=suggestion,
        # The overlaps of another schedule are unknown; the simulated what-if with twice the MXU gives a bound.
        gain=None,
        knob="key block",
        kind="constants" if larger else "body",
        edits=(larger,) if larger else (),
    )


@rule(
    "vector unit", "body", CAUSES, "a vector unit that binds comes fourth among the causes of a gap", keeps_traffic=True
)
def vector_bound(seen: Observed) -> RuleCase | None:
    """The vector unit or the transcendental unit is the fullest unit, and fills the schedule."""
    valu, eup = seen.slots("VALU"), seen.slots("EUP")
    if max(valu, eup) < max((unit.used_fraction for unit in seen.report.units), default=0.0):
        return None
    if max(valu, eup) < _BINDING_SLOTS or max(seen.report.util or 0, seen.matmul_share) > SATURATED_MXU:
        return None
    # Vector operations per register of scores; None if their number is unknown or the kernel is not attention.
    unit = next((unit for unit in seen.run.units if unit.name == "VALU"), None) if seen.run else None
    scores = score_registers(seen)
    per_value = unit.executed_slots / seen.chip.cores / scores if unit and scores else None
    fewer = 1
    if eup >= valu:
        observation = f"the transcendental unit (EUP) uses {percent(eup)} of its issue slots: exp binds"
        suggestion = (
            f"use exp2 with log2(e) folded into the softmax scale: one operation fewer per score{seen.unless_exp2}"
        )
        knob = "exp2"
        if not seen.is_attention or not seen.has_exp_left:
            suggestion = "use one transcendental function fewer per value: exp2, rsqrt and tanh are one operation each"
            per_value = None
    else:
        each = f", {per_value:.1f} operations per score" if per_value else ""
        observation = f"the vector unit (VALU) uses {percent(valu)} of its issue slots{each}: "
        observation += "work between the matmuls binds" if seen.is_attention else "vector arithmetic binds"
        suggestion = "multiply the scale into q once per block instead of into every score"
        knob, busiest = "scores", _busiest_line(seen)
        if busiest and pass_over_scores.look(seen) is None:
            suggestion = (
                f"spend fewer vector operations on each score: {busiest}; if the softmax scale is among them, multiply "
                "it into q once per block"
            )
        if seen.has_exp_left:
            suggestion, fewer = f"{suggestion}, and use exp2 with log2(e) folded into the scale{seen.unless_exp2}", 2
        if not seen.is_attention:
            suggestion, knob = "compute only once each value that a whole row or column shares", "vector work"
    # Removed operations free only their own slots if the rest of the schedule stays as it is.
    gain = valu * min(1.0, fewer / per_value) if per_value else None
    return RuleCase(observation=f"{observation} {seen.simulated}", suggestion=suggestion, gain=gain, knob=knob)


@rule(
    "exp over 10%", "body", OP_PROFILE, "exp over 10% of the time means that the vector unit binds", keeps_traffic=True
)
def exp_bound(seen: Observed) -> RuleCase | None:
    """The lines with exponentials take over a tenth of the time, while matrix unit and HBM have time to spare."""
    if seen.used("MXU") >= _BINDING_SLOTS or not seen.has_exp_left:
        return None
    if seen.transfer_share >= _SATURATED_HBM:
        return None
    # If a line has many reciprocals for each exponential, the exponential is not its main work.
    lines = [line for line in seen.lines if 2 * line.exponentials > line.units.get("EUP", 0)]
    cycles = sum(line.cycles for line in lines)
    share = seen.share(cycles)
    # A kernel that waits longer for transfers is not bound by its exponentials.
    if share <= max(_MUCH_EXP, sum(seen.parts("operand wait").values())):
        return None
    hottest = max(lines, key=lambda line: line.cycles)
    return RuleCase(
        observation=f"the lines with exponentials take {percent(share)} of the cycles, "
        f"{_at(hottest, cycles)}, while the MXU is busy in {percent(seen.used('MXU'))} of the cycles "
        f"{seen.simulated}",
        suggestion=(
            "use exp2 with log2(e) folded into the softmax scale: one operation fewer per score"
            if seen.is_attention
            else "use exp2 and fold log2(e) into a factor that is multiplied in anyway"
        )
        + seen.unless_exp2,
        # The change saves one of the vector operations that the hottest line does for each exponential.
        gain=share / max(2.0, sum(hottest.units.values()) / hottest.exponentials),
        # Two of five attempts lost (benchmarks/RULES.md).
        weight=0.5,
        knob="exp2",
    )


@rule(
    "divisions",
    "body",
    LEVERS,
    "a division is a reciprocal and its refinement: one reciprocal serves all values that share a divisor",
    keeps_traffic=True,
)
def divisions(seen: Observed) -> RuleCase | None:
    """The lines that divide take over a tenth of the time."""
    lines = [line for line in seen.lines if _is_division(line)]
    cycles = sum(line.cycles for line in lines)
    share = seen.share(cycles)
    if share <= _MUCH_EXP:
        return None
    hottest = max(lines, key=lambda line: line.cycles)
    return RuleCase(
        observation=f"the lines that divide take {percent(share)} of the cycles, {_at(hottest, cycles)} "
        f"{seen.simulated}",
        suggestion=(
            "divide once at the end, after the last key block: until then keep numerator and sum apart; "
            if seen.is_attention
            else "divide once at the end: multiply by the reciprocal of the divisor that a row or column shares; "
        )
        + "if that is done already and the tolerance allows it, try pl.reciprocal(..., approx=True)",
        gain=share,
        # One division has to stay, and the line may do other work.
        weight=0.5,
    )


def _at(hottest: LineTime, cycles: float) -> str:
    """Words that name the hottest line, and say if it takes most of `cycles` or only the largest part of them."""
    part = "most of it" if hottest.cycles > cycles / 2 else "the largest part"
    return f"{part} at {hottest.file}:{hottest.line}"


def _is_division(line: LineTime) -> bool:
    """True if most transcendental operations of the line are reciprocals, and they are its main work.

    In all records of `examples/`, a division with its broadcast takes at most 1.5 XLU operations for each reciprocal,
    and a mean takes two or more. If each register of values has its own reciprocal, there are at most 14 vector
    operations for each reciprocal. If 16 registers share a reciprocal, there are 37; then the compiler has already made
    one reciprocal of the divisions.
    """
    reciprocals = sum(number for name, number in line.operations if name in ("EUP rcp", "EUP recip"))
    units = line.units
    is_shared = units.get("VALU", 0) > _SHARED_RECIPROCAL * reciprocals
    return 2 * reciprocals > max(units.get("EUP", 0), units.get("XLU", 0)) and not is_shared


@rule("both low", "constants", UTILISATION, "both utilisations low: bubbles or overhead")
def both_low(seen: Observed) -> RuleCase | None:
    """Neither the matrix unit nor HBM is used much by a kernel other than attention: bubbles or overhead."""
    util, bandwidth = seen.report.mxu_util, seen.report.bandwidth_util
    if seen.is_attention or seen.report.regime != "latency-bound" or util is None or bandwidth is None:
        return None
    if seen.steps <= 1 or (seen.step_seconds or 0) > 10 * SHORT_STEP_SECONDS:
        return None
    return RuleCase(
        observation=f"MXU {percent(util)} and HBM {percent(bandwidth)} are both low: bubbles or overhead, in "
        f"{seen.steps:,} grid steps {seen.label}",
        suggestion="double the block along the axis with the most steps: fewer, longer steps",
        knob="block",
        edits=doubling_edits(seen),
    )


def _busiest_line(seen: Observed) -> str:
    """Names the line with the most vector operations and their number per attention score; "" if either is unknown."""
    scores = score_registers(seen)
    line = max(seen.lines, key=lambda each: each.units.get("VALU", 0), default=None)
    if not scores or line is None:
        return ""
    return f"{line.file}:{line.line} has {line.units.get('VALU', 0) / scores:.1f} of them"
