"""Rules on the matrix unit: near its peak, half filled by narrow heads, fed with wide or transposed operands."""

from harness.advice.observed import Observed
from harness.advice.rules.registers import computed_scores
from harness.advice.rules.rule import LEVERS, SCALING_BOOK, UTILISATION, RuleCase, rule
from harness.judge.simulate.machine import machine_of
from harness.records.cycle_breakdown import TRANSPOSED_PUSH
from harness.units import count, decimal, percent

# Best published plain matmul on v5e: 8192 cubed in 6.05 ms is 92 % of peak (JAX's Pallas documentation).
SATURATED_MXU = 0.92
# One matmul operation takes in a register of bfloat16, 16 rows of 128 values, or half as many rows of float32.
_ROWS_PER_OPERATION, _VALUES_OF_A_ROW = 16, 128
# Twice as many operations mean float32 operands only if the trace says so too: pushing the weights again for each
# narrow tile of rows also doubles the number. Several passes (HIGH, HIGHEST) take three times as many or more.
_MORE_OPERATIONS, _SEVERAL_PASSES = 1.6, 2.8
# Published targets: MXU over 80 %, HBM over 70 % of peak.
_HIGH_MXU, _HIGH_HBM = 0.80, 0.70


@rule("near the ceiling", None, UTILISATION, "both utilisations high: near the ceiling")
def both_high(seen: Observed) -> RuleCase | None:
    """Both the matrix unit and HBM have reached the published targets."""
    util, bandwidth = seen.report.mxu_util, seen.report.bandwidth_util
    if util is None or bandwidth is None or util < _HIGH_MXU or bandwidth < _HIGH_HBM:
        return None
    return RuleCase(
        observation=f"MXU {percent(util)} and HBM {percent(bandwidth)} are both high: near the ceiling {seen.label}",
        suggestion=f"expect to save at most {percent(seen.room)} of the time, by less traffic and less arithmetic",
        gain=seen.room,
        gain_source=seen.room_source,
        weight=0.25,
        knob="ceiling",
    )


@rule(
    "wide operands",
    "dtype",
    f"{LEVERS}; {SCALING_BOOK}",
    "bfloat16 operands with float32 accumulation",
    ceiling="MXU",
    keeps_traffic=True,
)
def wide_operands(seen: Observed) -> RuleCase | None:
    """More matmul operations than bfloat16 operands need: the operands are float32, or there are several passes."""
    run, size = seen.run, seen.chip.mxu_size
    if run is None or not seen.is_attention or size is None:
        return None
    if any(array.dtype != "bfloat16" for array in seen.evidence.problem.inputs):
        return None
    wide_line = _wide_line(seen, size)
    if wide_line is None:
        return None
    line, factor, extra = wide_line
    return RuleCase(
        observation=f"{line} issues {factor:.1f}x the matmul operations of bfloat16 operands "
        f"{seen.simulated}: float32 values go into the MXU, in one pass or in several",
        suggestion=f"pass bfloat16 operands to the dot in {line}, with preferred_element_type=jnp.float32",
        gain=extra,
    )


def _wide_line(seen: Observed, size: int) -> tuple[str, float, float] | None:
    """The line with too many matmul operations; their number / the expected number; the excess as a share of the slots.

    None if no line has too many, or if operations cannot be assigned to a matmul.
    """
    run = seen.run
    if run is None or not run.mxu_flops:
        return None
    lines = [(line, dict(line.operations).get("MXU", 0)) for line in seen.lines]
    there = sorted(((line, number) for line, number in lines if number), key=lambda item: item[1], reverse=True)
    if len(there) != 2:
        # Several matmuls on one line, or one on several lines: the operations cannot be assigned to a matmul.
        return None
    each = 2 * _ROWS_PER_OPERATION * _VALUES_OF_A_ROW * size
    # Besides the rows that pass through, the weights of a tile are pushed once for every block of rows.
    rows = min(window.block_shape[-2] for window in seen.inputs[:2])
    expected = run.mxu_flops / seen.chip.cores / 2 / each * (1 + size / rows)
    line, number = there[0]
    place = f"{line.file}:{line.line}"
    traced = seen.evidence.trace.one_pass_lines if seen.evidence.trace else ()
    if number < (_MORE_OPERATIONS if f"{line.file} line {line.line}" in traced else _SEVERAL_PASSES) * expected:
        return None
    total = sum(count for _, count in there)
    return place, number / expected, seen.slots("MXU") * (number - expected) / total


@rule(
    "transposed pushes",
    "body",
    SCALING_BOOK,
    "weights go into the matrix unit as they lie in memory; an operand that is contracted along its last axis is "
    "transposed first",
    keeps_traffic=True,
)
def transposed_pushes(seen: Observed) -> RuleCase | None:
    """A product contracts its second operand along the last axis, so that every push of it is transposed.

    Only an array that comes block by block can be transposed outside, so a kernel that copies all its operands by hand
    (pages, say) or computes them is not reported.
    """
    if seen.is_attention:
        return None
    pushed = [(line, dict(line.operations).get(TRANSPOSED_PUSH, 0)) for line in seen.lines]
    line, number = max(pushed, key=lambda item: item[1], default=(None, 0))
    names = list(dict.fromkeys(window.name for window in seen.matrix_blocks))
    if line is None or not number or not names:
        return None
    machine = machine_of(seen.chip)
    # The weight port of each unit takes one push after the other.
    longer = number * (machine.push_transposed_cycles - machine.push_cycles) / machine.mxus
    return RuleCase(
        observation=f"{line.file}:{line.line} contracts its second operand along the last axis: {count(number)} pushes "
        f"of it into the matrix unit are transposed {seen.label}",
        suggestion=f"if that operand is a block of {' or '.join(names)}, transpose the array once outside the kernel "
        f"({names[-1]}.T), and contract its first axis in {line.file}:{line.line}",
        gain=min(1.0, seen.share(longer)),
    )


@rule(
    "half-filled MXU",
    "body",
    SCALING_BOOK,
    "a matmul fills the matrix unit only if its sizes are multiples of the unit's",
    ceiling="MXU",
    keeps_traffic=True,
)
def half_filled(seen: Observed) -> RuleCase | None:
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
    # Masked scores that are computed count as work here, not as unused width.
    least = seen.evidence.problem.work.matmul_flops * ((seen.is_causal and computed_scores(seen)) or 1.0)
    # If neither matmul fills the unit, 1 / filled times the least FLOPs are executed; if the second one fills it
    # already, the excess is half of that.
    if executed and least and executed / least < 1 + 0.75 * (1 / filled - 1):
        return None
    # The useful FLOPs are stated here instead of `least`, which is derived from exponentials. Two forms of one kernel
    # may differ in `least`, because a masked score may have no exponential.
    useful = seen.evidence.problem.work.matmul_flops
    done = ""
    if executed and useful:
        done = (
            f"; counted at the unit's full width, the matmuls executed {decimal(executed, 'FLOP')}, "
            f"{executed / useful:.1f}x the useful {decimal(useful, 'FLOP')}"
        )
    return RuleCase(
        observation=f"head_dim {wide} fills {percent(filled, 0)} of a {size} x {size} matrix unit of the "
        f"{seen.report.chip}{done}, so util cannot exceed about {percent(filled, 0)} in this form {seen.label}",
        suggestion="compute the output transposed (V^T P^T): then the weights of the second matmul, P^T, fill the "
        "unit; the first matmul stays as it is",
        # One of the two matmuls would take `filled` times its present time.
        gain=busy / 2 * (1 - filled) if seen.run else None,
        # Two of three attempts lost (benchmarks/RULES.md).
        weight=0.5,
    )
