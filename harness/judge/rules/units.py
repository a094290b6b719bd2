"""Rules on functional units: vector work that binds, matmuls that do not overlap with it, matrix units half filled."""

from harness.judge.cycles import named_lines
from harness.judge.observed import Observed
from harness.judge.roofline import LARGE_GAP
from harness.judge.rules.blocks import larger_key_block
from harness.judge.rules.rule import (
    CAUSES,
    LEVERS,
    OP_PROFILE,
    SCALING_BOOK,
    SCHEDULE,
    UTILISATION,
    Finding,
    Rule,
)
from harness.units import percent

# Best published plain matmul on v5e: 8192 cubed in 6.05 ms is 92 % of peak (JAX's Pallas documentation).
SATURATED_MXU = 0.92
# Above this share of issue slots a unit is what the schedule waits for, dependencies included.
_BINDING_SLOTS = 0.60
# Of all cycles: what issues bundles this often does not wait for memory.
_DENSE_ISSUE = 0.80
# A fifth of the time lost to busy units is more than any schedule of a mature kernel shows.
_MANY_STALLS = 0.20
# Published: exp over 10 % of the time means that the vector unit binds.
_MUCH_EXP = 0.10
_SHORT_STEP_SECONDS = 1e-6
# Rows that one matmul operation takes in for bfloat16; float32 ones take in half as many.
_ROWS_PER_OPERATION = 16
_MORE_OPERATIONS = 1.6
# Published targets: MXU over 80 %, HBM over 70 % of peak.
_HIGH_MXU, _HIGH_HBM = 0.80, 0.70


def exp_bound(seen: Observed) -> Finding | None:
    """The lines with exponentials take over a tenth of the time, and the matrix unit is not what they run beside."""
    run = seen.run
    if run is None or not run.cycles or not run.anatomy or seen.used("MXU") >= _BINDING_SLOTS:
        return None
    lines = [line for line in named_lines(run.anatomy) if dict(line.operations).get("EUP")]
    share = sum(line.cycles for line in lines) / run.cycles
    if share <= _MUCH_EXP:
        return None
    dearest = max(lines, key=lambda line: line.cycles)
    return Finding(
        observation=f"the lines with exponentials take {percent(share)} of the cycles, most of it "
        f"{dearest.file}:{dearest.line}, while the MXU is busy {percent(seen.used('MXU'))} "
        f"[simulated {seen.report.chip}]",
        suggestion="use exp2 with log2(e) folded into the softmax scale: one operation fewer per score"
        if seen.is_attention
        else "use exp2 and fold log2(e) into a factor that is multiplied in anyway",
        # One vector operation of those that such a line does for each exponential.
        gain=share / max(2.0, sum(dict(dearest.operations).values()) / dict(dearest.operations)["EUP"]),
        gain_source=SCHEDULE,
        knob="exp2",
    )


def vector_bound(seen: Observed) -> Finding | None:
    """The vector or the transcendental unit is what the schedule is full of, not the MXU."""
    valu, eup = seen.slots("VALU"), seen.slots("EUP")
    if max(valu, eup) < _BINDING_SLOTS or (seen.report.util or 0) > SATURATED_MXU:
        return None
    per_value = _vector_operations_per_score(seen)
    gain = min(1.0, 1 / per_value) if per_value else None
    if eup >= valu:
        observation = f"the transcendental unit (EUP) uses {percent(eup)} of its issue slots: exp binds"
        suggestion, knob = "use exp2 with log2(e) folded into the softmax scale: one operation fewer per score", "exp2"
        if not seen.is_attention:
            suggestion = "use one transcendental function fewer per value: exp2, rsqrt and tanh are one operation each"
    else:
        each = f", {per_value:.1f} operations per score" if per_value else ""
        observation = f"the vector unit (VALU) uses {percent(valu)} of its issue slots{each}: "
        observation += "work between the matmuls binds" if seen.is_attention else "vector arithmetic binds"
        suggestion = (
            "multiply the scale into q once per block instead of into every score, and use exp2 with log2(e) in it"
        )
        knob = "scores"
        if not seen.is_attention:
            suggestion, knob = "do what is the same for a whole row or column once per row or column", "vector work"
    return Finding(
        observation=f"{observation} [simulated {seen.report.chip}]",
        suggestion=suggestion,
        gain=gain,
        gain_source=SCHEDULE,
        knob=knob,
    )


def unit_stalls(seen: Observed) -> Finding | None:
    """The schedule waits for a busy unit that is not the MXU: mostly row maxima and row sums across lanes."""
    if seen.run is None:
        return None
    share = seen.share(seen.run.unit_stall_cycles)
    mxu = next((unit.busy_fraction for unit in seen.report.units if unit.name == "MXU"), None)
    larger = larger_key_block(seen)
    if share < _MANY_STALLS or mxu is None or mxu >= _BINDING_SLOTS or larger is None:
        return None
    return Finding(
        observation=f"the schedule waits for busy units {percent(share)} of the time (simulated) while the MXU is busy "
        f"only {percent(mxu)} of it",
        suggestion=f"{larger}: each rescaling of the accumulator then serves more scores",
        gain=min(share, 1 - mxu),
        gain_source=SCHEDULE,
        knob="key block",
    )


def cross_lane(seen: Observed) -> Finding | None:
    """The schedule waits for reductions across lanes, which reductions across sublanes do not need."""
    if not seen.is_attention:
        return None
    waits = {name: share for name, share in seen.parts("unit stall").items() if name.startswith("XLU")}
    share = sum(waits.values())
    if share < _MUCH_EXP:
        return None
    return Finding(
        observation=f"the schedule waits {percent(share)} of the cycles for the cross-lane unit (XLU), which row "
        f"maxima and row sums go through [simulated {seen.report.chip}]",
        suggestion="compute the scores transposed (K Q^T), so that maximum and sum run along the second-to-last "
        "axis: plain vector operations",
        gain=share,
        gain_source=SCHEDULE,
        knob="transposed scores",
    )


def not_overlapped(seen: Observed) -> Finding | None:
    """Issue is dense but the MXU idles: vector work and matmuls take turns instead of overlapping."""
    gap, util = seen.report.gap_fraction, seen.report.mxu_util
    issued = seen.share(seen.run.bundle_cycles) if seen.run else 0.0
    if not seen.is_attention or gap is None or util is None or gap < LARGE_GAP or issued < _DENSE_ISSUE:
        return None
    if (seen.step_seconds or 0) <= _SHORT_STEP_SECONDS:
        return None
    larger = larger_key_block(seen)
    suggestion = (
        "walk the block of keys in two or more pieces inside the body (unrolled), so that the softmax of one piece "
        "can run beside the matmul of the next"
    )
    if larger:
        suggestion = f"{larger}: one rescaling of the accumulator, which has no matmul beside it, serves more scores"
    # If all were overlapped, the fullest unit would still need its time.
    fullest = max((unit.used_fraction for unit in seen.report.units), default=0.0)
    return Finding(
        observation=f"the schedule issues bundles {percent(issued)} of the time, but useful matmul work takes "
        f"{percent(util)} of the MXU's peak: matmul and softmax take turns",
        suggestion=suggestion,
        gain=1 - fullest,
        gain_source=SCHEDULE,
        weight=0.5,
        knob="key block",
        kind="constants" if larger else "body",
    )


def half_filled(seen: Observed) -> Finding | None:
    """Heads narrower than the matrix unit leave a part of it empty in both matmuls."""
    size = seen.chip.mxu_size
    if not seen.is_attention or size is None:
        return None
    wide = seen.inputs[0].array.shape[-1]
    if not 0 < wide < size:
        return None
    busy = seen.used("MXU")
    filled = wide / size
    executed = seen.run.mxu_flops if seen.run else None
    useful = seen.evidence.problem.work.matmul_flops
    done = f"; {executed / useful:.1f}x the useful matmul FLOPs were executed" if executed and useful else ""
    return Finding(
        observation=f"head_dim {wide} fills {percent(filled, 0)} of a {size} x {size} matrix unit of the "
        f"{seen.report.chip}{done}, so that util cannot pass about {percent(filled, 0)} in this form {seen.label}",
        suggestion="compute the output transposed (V^T P^T), so that the weights, which are square, fill the unit in "
        "the second matmul; the first one stays as it is",
        # One of the two matmuls would take as much less time as more of the unit is filled.
        gain=busy / 2 * (1 - filled) if seen.run else None,
        gain_source=SCHEDULE,
        knob="transposed output",
    )


def wide_operands(seen: Observed) -> Finding | None:
    """More matmul operations than bfloat16 operands need: float32 ones, or several passes."""
    run, size = seen.run, seen.chip.mxu_size
    if run is None or not seen.is_attention or size is None:
        return None
    if any(array.dtype != "bfloat16" for array in seen.evidence.problem.inputs):
        return None
    found = _wide_line(seen, size)
    if found is None:
        return None
    line, factor, extra = found
    return Finding(
        observation=f"{line} issues {factor:.1f}x the matmul operations of bfloat16 operands "
        f"[simulated {seen.report.chip}]: float32 values go into the MXU",
        suggestion=f"pass bfloat16 operands to the dot in {line}, with preferred_element_type=jnp.float32",
        gain=extra,
        gain_source=SCHEDULE,
        knob="dtype",
    )


def _wide_line(seen: Observed, size: int) -> tuple[str, float, float] | None:
    """The line with too many operations for one of two equal matmuls, how many times, and their share of the slots."""
    run = seen.run
    if run is None or run.anatomy is None or not run.mxu_flops:
        return None
    lines = [(line, dict(line.operations).get("MXU", 0)) for line in named_lines(run.anatomy)]
    there = sorted(((line, number) for line, number in lines if number), key=lambda item: item[1], reverse=True)
    if len(there) != 2:
        # Several matmuls on one line, or one on several: whose operations they are is not known.
        return None
    each = 2 * _ROWS_PER_OPERATION * size * size
    # Beside the rows that go through, the weights of a tile are pushed once for every block of them.
    rows = min(window.block_shape[-2] for window in seen.inputs[:2])
    expected = run.mxu_flops / seen.chip.cores / 2 / each * (1 + size / rows)
    line, number = there[0]
    if number < _MORE_OPERATIONS * expected:
        return None
    total = sum(count for _, count in there)
    return f"{line.file}:{line.line}", number / expected, seen.slots("MXU") * (number - expected) / total


def both_low(seen: Observed) -> Finding | None:
    """Neither the matrix unit nor HBM is used much by a kernel other than attention: bubbles or overhead."""
    util, bandwidth = seen.report.mxu_util, seen.report.bandwidth_util
    if seen.is_attention or seen.report.regime != "latency-bound" or util is None or bandwidth is None:
        return None
    if seen.steps <= 1 or (seen.step_seconds or 0) > 10 * _SHORT_STEP_SECONDS:
        return None
    return Finding(
        observation=f"MXU {percent(util)} and HBM {percent(bandwidth)} are both low: bubbles or overhead, in "
        f"{seen.steps:,} grid steps {seen.label}",
        suggestion="double the block along the axis with most steps: fewer, longer steps",
        gain=seen.report.gap_fraction,
        weight=0.5,
        knob="block",
    )


def both_high(seen: Observed) -> Finding | None:
    """Both the matrix unit and HBM are near their targets."""
    util, bandwidth = seen.report.mxu_util, seen.report.bandwidth_util
    if util is None or bandwidth is None or util < _HIGH_MXU or bandwidth < _HIGH_HBM:
        return None
    return Finding(
        observation=f"MXU {percent(util)} and HBM {percent(bandwidth)} are both high: near the ceiling {seen.label}",
        suggestion="stop here, or lower the traffic and the arithmetic together: only less work goes further",
        gain=seen.room,
        knob="ceiling",
        comes_first=True,
    )


def _vector_operations_per_score(seen: Observed) -> float | None:
    """Vector operations for each register of scores, or None where that is not known or not attention."""
    unit = next((unit for unit in seen.run.units if unit.name == "VALU"), None) if seen.run else None
    if unit is None or seen.run is None or not seen.run.mxu_flops or not seen.is_attention:
        return None
    scores = seen.run.mxu_flops / (4 * seen.inputs[0].array.shape[-1])
    return unit.executed_slots * 1024 / scores if scores else None


RULES = (
    Rule(
        name="near the ceiling",
        says="both utilisations high: near the ceiling",
        source=UTILISATION,
        kind=None,
        look=both_high,
    ),
    Rule(
        name="cross-lane reductions",
        says="reduce along the second-to-last axis: transposed scores need no cross-lane reduction",
        source=LEVERS,
        kind="body",
        look=cross_lane,
    ),
    Rule(
        name="unit stalls",
        says="the key/value block, with care: larger ones rescale the accumulator less often",
        source=LEVERS,
        kind="constants",
        look=unit_stalls,
    ),
    Rule(
        name="no overlap",
        says="gaps of the matrix unit between compute blocks: other work has to run beside it",
        source=CAUSES,
        kind="body",
        look=not_overlapped,
        ceiling="MXU",
    ),
    Rule(
        name="vector unit",
        says="a vector unit that binds comes fourth among the causes of a gap",
        source=CAUSES,
        kind="body",
        look=vector_bound,
    ),
    Rule(
        name="exp over 10%",
        says="exp over 10% of the time means that the vector unit binds",
        source=OP_PROFILE,
        kind="body",
        look=exp_bound,
    ),
    Rule(
        name="wide operands",
        says="bfloat16 operands with float32 accumulation",
        source=f"{LEVERS}; {SCALING_BOOK}",
        kind="dtype",
        look=wide_operands,
        ceiling="MXU",
    ),
    Rule(
        name="half-filled MXU",
        says="a matmul fills the matrix unit only if its sizes are multiples of the unit's",
        source=SCALING_BOOK,
        kind="body",
        look=half_filled,
        ceiling="MXU",
    ),
    Rule(
        name="both low",
        says="both utilisations low: bubbles or overhead",
        source=UTILISATION,
        kind="constants",
        look=both_low,
    ),
)
