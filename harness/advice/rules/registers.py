"""Rules on vector registers: spills, jumps of spills between attempts, passes over the scores that cause spills."""

from harness.advice.observed import Observed
from harness.advice.rules.rule import CAUSES, COUNTS, LEVERS, RuleCase, rule
from harness.advice.score_block import SCORE_BLOCK
from harness.records import Edit, Row
from harness.units import count, decimal, percent, seconds

# Spills and fills per cycle (one in twenty cycles). About as many fit into the load and store slots next to other work.
_SPILLS_PER_CYCLE = 0.05
# A spill cliff: four times the spills, and 1000 more.
_CLIFF_FACTOR, _CLIFF_SPILLS = 4, 1000
# A vector register holds 8 x 128 values of 32 bits, and an operation of the vector unit works on one.
_REGISTER_VALUES = 1024
# The number of results of the matrix unit per exponential operation is 1 if exponentials are float32, and 2 if they are
# bfloat16. Above this number, they count as bfloat16.
_PACKED = 1.5
_NOTABLE_SHARE = 0.05
# A core that waits for transfers a third of the time has slots to spare for spills.
_MUCH_WAITING = 0.33
# Waiting for this share of the time hides spills that take hardly a bundle of their own.
_SOME_WAITING = 0.1
# If at most this share of the bundles holds only spills, most of the other bundles would be there without spills too.
_FEW_BUNDLES = 0.01


@rule(
    "spill cliff",
    "constants",
    COUNTS,
    "a jump of spills or latency when a block grows is a spill cliff: go back to the last good size",
)
def spill_cliff(seen: Observed) -> RuleCase | None:
    """The kernel spills far more than an earlier, faster attempt under the timing key of the latest attempt."""
    if seen.run is None:
        return None
    now = seen.run.executed_spills
    good = [
        row
        for row in seen.previous
        if row.key_digest == seen.previous[-1].key_digest
        if row.outcome != "failed" and row.seconds is not None and row.seconds < seen.seconds
        if row.spills is not None and now >= _CLIFF_FACTOR * row.spills + _CLIFF_SPILLS
    ]
    if not good:
        return None
    last = min(good, key=lambda row: row.seconds or 0.0)
    assert last.seconds is not None
    return RuleCase(
        observation=f"spill cliff: {count(last.spills or 0)} spills executed in attempt {last.number}, {count(now)} "
        f"now, and {seconds(last.seconds)} became {seconds(seen.seconds)} {seen.label}",
        suggestion=f"go back to the block sizes of attempt {last.number} and change something else",
        gain=1 - last.seconds / seen.seconds,
        gain_source=f"attempt {last.number}",
    )


@rule("scale outside", "body", LEVERS, "scale q before the matmul instead of every score after it", keeps_traffic=True)
def pass_over_scores(seen: Observed) -> RuleCase | None:
    """A line that does one vector operation on every score and nothing else: mostly the softmax scale."""
    scores = score_registers(seen)
    if not scores:
        return None
    for line in seen.lines:
        units = dict(line.operations)
        once = abs(units.get("VALU", 0) / scores - 1) < 0.1
        share = seen.share(line.cycles)
        if once and not units.keys() & {"MXU", "EUP", "XLU"} and share >= _NOTABLE_SHARE:
            # If the operation takes results of the matrix unit, these are popped, stored and loaded even without the
            # operation.
            spared = units["VALU"] / sum(line.units.values()) if units.get("VPOP") else 1.0
            return RuleCase(
                observation=f"{line.file}:{line.line} does one vector operation on every score and nothing else, and "
                f"takes {percent(share)} of the cycles {seen.simulated}",
                suggestion="if it is the softmax scale, multiply it into q before the first matmul instead: a block of "
                "q has fewer values than its scores",
                gain=share * spared,
                knob="scores",
            )
    return None


def score_registers(seen: Observed) -> float | None:
    """The number of float32 scores that one core computes, in registers; None if unknown or not attention.

    This is the smaller of two estimates: by matmul FLOPs, which include padding to the matrix unit's size, and by
    exponentials, which include those that rescale sums. It is at least the number that the problem needs: exponentials
    in bfloat16, two in a word, would halve the second estimate.
    """
    if not seen.is_attention or seen.run is None or not seen.run.mxu_flops:
        return None
    # Two matmuls of 2 FLOPs for each score and element of a head.
    multiplied = seen.run.mxu_flops / (4 * seen.inputs[0].array.shape[-1]) / seen.chip.cores / _REGISTER_VALUES
    exponentials = sum(line.exponentials for line in seen.lines)
    needed = seen.evidence.problem.work.exponentials / seen.chip.cores / _REGISTER_VALUES
    return max(needed, min(multiplied, exponentials)) if exponentials else multiplied


def computed_scores(seen: Observed) -> float | None:
    """The ratio of computed to needed scores, counted by exponentials; None if unknown or not attention.

    A register of bfloat16 exponentials holds those of two registers of scores. Such registers are recognised by the
    float32 results of the matrix unit: a line pops far more results than there are exponentials.
    """
    needed = seen.evidence.problem.work.exponentials / seen.chip.cores / _REGISTER_VALUES
    made = sum(line.exponentials for line in seen.lines)
    popped = max((line.units.get("VPOP", 0) - line.units.get("EUP", 0) for line in seen.lines), default=0)
    if seen.chip.has_bfloat16_units and popped > _PACKED * made:
        made *= 2
    return made / needed if seen.is_attention and 0 < needed <= made else None


@rule("spills", "constants", CAUSES, "register spills come first among the causes of a gap", keeps_traffic=True)
def spills(seen: Observed) -> RuleCase | None:
    """The values of one step do not fit into the vector registers."""
    run = seen.run
    if run is None:
        return None
    moves = run.executed_spills + run.executed_fills
    rate = seen.share(moves)
    if rate < _SPILLS_PER_CYCLE or seen.share(run.dma_wait_cycles) > _MUCH_WAITING:
        return None
    shares = seen.report.cycle_shares
    few = shares is not None and shares.spill_fraction < _FEW_BUNDLES
    if few and not seen.is_attention and seen.share(run.dma_wait_cycles) > _SOME_WAITING:
        return None
    # Spills that share their bundles with other work take no cycle of their own.
    share = percent(shares.spill_fraction) if shares else ""
    of_their_own = f"they take at least {share} of the cycles" if shares and shares.spill_fraction >= 0.0005 else ""
    cost = f"; {of_their_own or 'nearly all share bundles with other work'}" if shares else ""
    observation = (
        f"{count(run.executed_spills)} register spills and {count(run.executed_fills)} fills executed, "
        f"{rate:.2f} per cycle{cost} {seen.simulated}"
    )
    block = seen.counter(SCORE_BLOCK)
    if block is not None and block.remark:
        observation += f"; {block.remark}"
    suggestion, knob, kind, gain = _remedy(seen)
    edits: tuple[Edit, ...] = ()
    if kind == "constants" and (rows := seen.inputs[1].block_shape[-2]) > 1:
        edits = (Edit(window=seen.inputs[1].name, axis=-2, size=rows, new=rows // 2),)
    return RuleCase(
        observation=observation,
        suggestion=suggestion,
        gain=gain,
        edits=edits,
        weight=0.25 if few else 0.5,
        knob=knob,
        kind="constants" if kind == "constants" else "body",
    )


def _remedy(seen: Observed) -> tuple[str, str, str, float | None]:
    """The remedy for spills, its knob, its kind of change, and the share of the cycles that the line to change takes.

    The share is None if the remedy names no line. Fewer spills may save more; how much is unknown, because another body
    has another schedule.
    """
    alone = pass_over_scores.look(seen)
    if alone is not None:
        return f"save one pass over the scores: {alone.observation}; {alone.suggestion}", "scores", "body", alone.gain
    lines = [line for line in seen.lines if line.spilled_bytes and not dict(line.operations).get("MXU")]
    if seen.is_attention and lines:
        line = max(lines, key=lambda line: line.spilled_bytes)
        moved = f" ({decimal(line.spilled_bytes / seen.steps, 'B')} a step)" if seen.steps else ""
        words = (
            f"save one pass over the scores: of the lines without a matmul, {line.file}:{line.line} spills "
            f"most{moved}; do its work on a smaller operand, or fold it into the line that uses its result"
        )
        return words, "scores", "body", seen.share(line.cycles)
    slower = _slower_with_fewer(seen)
    if seen.is_attention and slower:
        words = (
            f"keep the block sizes (attempt {slower.number} spilled less and took longer) and hold fewer values at "
            "once: multiply the softmax scale into q before the first matmul instead of into every score"
        )
        return words, "scores", "body", None
    if seen.is_attention:
        rows = seen.inputs[1].block_shape[-2]
        words = (
            f"halve the key/value block (rows of {seen.inputs[1].name}'s block, now {rows}) to {rows // 2}, "
            "or walk it in pieces with an inner loop"
        )
        return words, "key block", "constants", None
    words = "let the body hold a smaller tile at once, or walk the tile in pieces with an inner loop"
    return words, "tile", "body", None


def _slower_with_fewer(seen: Observed) -> Row | None:
    """The last earlier attempt that spilled less but took longer, or None. It shows that fewer spills do not help."""
    now = seen.run.executed_spills if seen.run else 0
    rows = (row for row in reversed(seen.previous) if row.spills is not None and row.seconds is not None)
    return next((row for row in rows if (row.spills or 0) < now and (row.seconds or 0.0) > seen.seconds), None)
