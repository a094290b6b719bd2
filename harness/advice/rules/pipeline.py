"""Rules on the pipeline of grid steps: bubbles, waits for transfers, fill and drain, steps too short or too few."""

from collections.abc import Sequence
from dataclasses import replace

from harness.advice.observed import Observed, grown_vmem
from harness.advice.rules.block_edits import (
    SHORT_STEP_SECONDS,
    doubling_edits,
    fetch_ahead,
    larger_key_block,
    raise_words,
    walked_input,
)
from harness.advice.rules.rule import CAUSES, GRIDS, PIPELINING, REGIMES, ROOFLINE, TIMELINE, RuleCase, rule
from harness.judge.simulate.several_chips import OTHER_CHIP
from harness.judge.verdict.roofline import LARGE_GAP
from harness.records import Edit
from harness.units import count, percent, seconds

# Published: under 5 % is excellent, over 10 % a red flag.
_EXCELLENT_BUBBLES, _RED_FLAG_BUBBLES = 0.05, 0.10
# If a unit is busy for this share of the time, the kernel waits for that unit.
_NEARLY_FULL = 0.8
_MANY_STEPS = 256
# The first and last two to three steps are fill and drain: with fewer steps than this nothing else is left.
_FEW_STEPS = 6
_NOTABLE_SHARE = 0.05
_WAITS_NAMED = 3


@rule(
    "bubbles",
    "constants",
    CAUSES,
    "pipeline bubbles come second among the causes of a gap: under 5% is excellent, over 10% a red flag",
)
def bubbles(seen: Observed) -> RuleCase | None:
    """Many cycles in which nothing is issued, more of them because of waits for units than for transfers."""
    breakdown = seen.run.breakdown if seen.run else None
    if breakdown is None or breakdown.bubble_fraction < _EXCELLENT_BUBBLES:
        return None
    share = breakdown.bubble_fraction
    stalls, waits, ends = seen.parts("unit stall"), seen.parts("operand wait"), seen.parts("fill and drain")
    if not stalls or sum(stalls.values()) < max(sum(waits.values()), sum(ends.values())):
        # Operand waits, fill and drain, and the launch have rules of their own.
        return None
    flag = "over the red flag of 10%" if share >= _RED_FLAG_BUBBLES else "between excellent (5%) and a red flag (10%)"
    larger = larger_key_block(seen)
    turns = _turns(seen) if not seen.is_attention else 0.0
    edits = (larger,) if larger is not None else () if turns else _room_to_double(seen)
    suggestion = (
        "begin the next piece's first matmul before this piece's softmax: two pieces of the block, unrolled in the body"
        if seen.is_attention
        else "let the body work on two independent pieces of its block, unrolled, so that one issues while the other "
        "waits"
    )
    if edits and larger is None:
        names = " or ".join(dict.fromkeys(edit.window for edit in edits))
        suggestion = (
            f"double a block of {names}, one constant at a time: fewer, longer steps have more work to fill the waits"
        )
    if turns:
        suggestion = (
            f"in a step, the loops of the body issue {turns:.1f}x as many bundles as the program has: let an iteration "
            "handle more of the block, or unroll the loop, so that there is more to issue during the wait for a "
            "result; a larger block only adds iterations"
        )
    if larger:
        suggestion = f"{raise_words(larger)}: a step then has more independent work to fill the waits"
    unit, _, reason = max(stalls, key=lambda name: stalls[name]).partition(" ")
    # If a unit is busy nearly all the time, its busy time bounds the gain.
    busy = seen.used(unit) if reason == "busy" and seen.used(unit) >= _NEARLY_FULL else None
    works = "" if busy is None else f"; the {unit} works in {percent(busy)} of the cycles"
    return RuleCase(
        observation=f"nothing is issued in {percent(share)} of the cycles, {flag}; "
        f"{_largest_waits(seen, share)}{works} {seen.simulated}",
        suggestion=suggestion,
        # The gain of another body is unknown: it has another schedule and other registers. Splitting the block into two
        # pieces saved 0.3 of the bubbles in the median, and once more than all of them (benchmarks/RULES.md).
        gain=None if busy is None else 1 - busy,
        cost=share if busy is None else 1 - busy,
        edits=edits,
        weight=1.0 if edits else 0.3,
        knob="key block" if seen.is_attention else "block",
        kind="constants" if edits else "body",
    )


def _turns(seen: Observed) -> float:
    """The bundles that a step issues / the program's bundles, if above 1: then the body has a loop. Otherwise 0."""
    if seen.run is None or not seen.steps or not seen.run.static_bundles:
        return 0.0
    turns = seen.run.bundle_cycles / seen.steps / seen.run.static_bundles
    return turns if turns > 1 else 0.0


def _room_to_double(seen: Observed) -> tuple[Edit, ...]:
    """Edits that double a block of a kernel other than attention; none unless all blocks fit when doubled."""
    if seen.is_attention or grown_vmem(seen, lambda window: 2.0) > seen.report.vmem_limit_bytes:
        return ()
    return doubling_edits(seen)


def _largest_waits(seen: Observed, share: float) -> str:
    """Words on the cause of most cycles without an issue, or on the largest causes."""
    waits = {
        **seen.parts("unit stall"),
        **{f"transfers of `{seen.operand(name)}`": part for name, part in seen.parts("operand wait").items()},
        "fill and drain": sum(seen.parts("fill and drain").values()),
    }
    largest = [wait for wait in sorted(waits.items(), key=lambda wait: -wait[1]) if wait[1]][:_WAITS_NAMED]
    if largest[0][1] > share / 2:
        return f"main cause: {largest[0][0]} ({percent(largest[0][1])})"
    return f"main causes: {', '.join(f'{name} ({percent(part)})' for name, part in largest)}"


@rule(
    "DMA waits",
    "grid",
    f"{TIMELINE}; {PIPELINING}",
    "transfers that do not overlap with arithmetic mean that there is no buffer to fetch into",
    ceiling="memory",
)
def dma_waits(seen: Observed) -> RuleCase | None:
    """The core waits for transfers that arithmetic could hide."""
    if seen.run is None or seen.call is None:
        return None
    # Waits for other chips have rules of their own.
    waits = {name: share for name, share in seen.parts("operand wait").items() if OTHER_CHIP not in name}
    waits = {seen.operand(name): share for name, share in waits.items()}
    share = sum(waits.values()) if waits else seen.share(seen.run.dma_wait_cycles - seen.run.link_wait_cycles)
    # The record does not say which waits belong to operations around the kernel. Such waits may take as long as these
    # operations.
    share -= sum(op.seconds for op in seen.outside_ops or ()) / seen.seconds
    is_compute_heavy = (seen.report.memory_only_seconds or 0) < seen.report.compute_only_seconds
    if share < _NOTABLE_SHARE or not is_compute_heavy:
        return None
    by_operand = (
        f"{', '.join(f'`{name}` {percent(part)}' for name, part in list(waits.items())[:3])}; " if waits else ""
    )
    cycles = count(round(share * seen.seconds * seen.run.clock_hz))
    observation = (
        f"the core waits for DMA {percent(share)} of the time ({by_operand}{cycles} cycles) "
        f"{seen.simulated}, though the arithmetic takes longer than the transfers"
    )
    single = [window.name for window in seen.inputs if window.buffers == 1 and (window.fetches or 0) > 1]
    if single:
        suggestion = f"give {' and '.join(single)} two buffers (now one): nothing can be fetched into a buffer in use"
        return RuleCase(observation=observation, suggestion=suggestion, gain=share, knob="buffers")
    changing = [window.name for window in seen.inputs if (window.fetches or 0) > 1]
    changing = [name for name in changing if name in waits] or changing
    # An operand of very few bytes is waited for only because its transfer queues behind others.
    large = [name for name in changing if _share_of_bytes(seen, name) >= _NOTABLE_SHARE]
    if large and large != changing:
        small = [name for name in changing if name not in large]
        observation += f"; the transfers of {' and '.join(small)} (under {percent(_NOTABLE_SHARE, 0)} of the bytes per "
        observation += "array) wait behind other transfers"
        changing = large
    names = " and ".join(changing) or ("the inputs" if seen.steps == 1 else "the inputs that change every step")
    case = fetch_ahead(seen, names, observation)
    return replace(case, gain=None if case.edits else share, cost=share)


def _share_of_bytes(seen: Observed, name: str) -> float:
    """An operand's share of the inputs' traffic, by the block index maps; 1 if unknown."""
    moved = {window.name: window.hbm_bytes for window in seen.inputs}
    total = sum(size or 0 for size in moved.values())
    return (moved.get(name) or total) / total if total else 1.0


@rule("short steps", "constants", TIMELINE, "many very short blocks: the blocks are too small")
def short_steps(seen: Observed) -> RuleCase | None:
    """Many grid steps, each too short to hide the fetch for the next step and the step's overhead."""
    gap, step = seen.report.gap_fraction, seen.step_seconds
    if gap is None or gap < LARGE_GAP or seen.steps < _MANY_STEPS or step is None or step > SHORT_STEP_SECONDS:
        return None
    suggestion, knob = "make the blocks larger, so that fewer and longer steps do the same work", "block"
    edits = doubling_edits(seen)
    if seen.is_attention:
        larger = larger_key_block(seen)
        if larger is None:
            return None
        suggestion, knob, edits = f"{raise_words(larger)}: fewer and longer steps", "key block", (larger,)
    observation = (
        f"{count(seen.steps)} grid steps of {seconds(step, 2)} each, and {percent(gap)} of the time is neither compute "
        f"nor bandwidth {seen.label}"
    )
    pages = _pages(seen)
    if pages and not edits:
        return RuleCase(
            observation=f"{observation}; a step gets one block of {' and one of '.join(pages)}, from places that a "
            "table gives",
            suggestion="take several of these blocks in a step: pass each array once for each block, with a separate "
            "index map, or leave the arrays in pl.ANY and copy the next step's blocks with pltpu.make_async_copy "
            "while this one computes",
            # Attempt 2 of examples/paged-decode-v6e did this and took 66 % less time; the whole gap is a loose bound.
            cost=gap,
            weight=0.5,
            knob=knob,
            kind="grid",
        )
    return RuleCase(observation=observation, suggestion=suggestion, gain=None, knob=knob, edits=edits)


def _pages(seen: Observed) -> tuple[str, ...]:
    """The inputs of which each step gets one block, of size 1 along an axis, from a place that a table gives."""
    windows = seen.call.windows if seen.call else ()
    if not any(window.array.is_table for window in windows):
        return ()
    return tuple(
        window.name
        for window in seen.inputs
        # Blocks in VMEM whose fetches cannot be counted without the table.
        if window.memory_space == "vmem"
        and window.fetches is None
        and any(block == 1 < size for block, size in zip(window.block_shape, window.array.shape, strict=False))
    )


@rule(
    "fill and drain",
    "constants",
    f"{TIMELINE}; {PIPELINING}",
    "long gaps at start and end are fill and drain: the grid is small",
    ceiling="memory",
)
def fill_and_drain(seen: Observed) -> RuleCase | None:
    """A grid with so few steps that its first fetch and its last write take a good part of the time."""
    ends = sum(seen.parts("fill and drain").values())
    if ends < _NOTABLE_SHARE or seen.steps >= _MANY_STEPS:
        return None
    if seen.steps == 1:
        # The rule "one giant block" covers this case.
        return None
    both_ways, edits = _both_ways(seen)
    if not both_ways:
        return None
    grid = f": the grid has only {seen.steps} steps of {seconds(seen.seconds / seen.steps)}" if seen.steps else ""
    return RuleCase(
        observation=f"filling and draining the pipeline takes {percent(ends)} of the cycles {seen.simulated}{grid}",
        suggestion=both_ways,
        # `cost` is the saving of half a block at the ends; the cost of the additional steps is unknown.
        gain=None,
        cost=ends / 2,
        weight=0.5,
        knob="fewer steps",
        edits=edits,
        kind="constants" if edits else "grid",
    )


def _both_ways(seen: Observed) -> tuple[str, tuple[Edit, ...]]:
    """Advice to try half and twice the size of a block, with both edits; or advice to split an input that is one block.

    "" if no input is a block that could be cut, because the call copies by hand.
    """
    walked = walked_input(seen)
    if walked is not None:
        window, axis = walked
        now, place = window.block_shape[axis], axis - len(window.block_shape)
        words = (
            "try both directions, because smaller blocks leave less to fill and drain, but more steps cost time: "
            f"{now // 2} and {now * 2} along axis {axis} of {window.name}'s block, now {_sizes(window.block_shape)}"
        )
        return words, tuple(Edit(window=window.name, axis=place, size=now, new=new) for new in (now // 2, now * 2))
    largest = max(seen.matrix_blocks, key=lambda window: window.vmem_bytes, default=None)
    if largest is None:
        return "", ()
    name, shape = largest.name, _sizes(largest.block_shape)
    if seen.call is None:
        words = f"halve the blocks of the call that waits, first {name}'s (now {shape}): "
        return f"{words}half a block arrives in half the time", ()
    words = "the grid cuts no input into blocks that could be halved: add a grid axis that splits the rows of "
    return f"{words}{name}'s block (now {shape}), so that less has to arrive before the first product", ()


def _sizes(shape: Sequence[int]) -> str:
    return " x ".join(map(str, shape))


@rule(
    "one giant block",
    "grid",
    f"{TIMELINE}; {GRIDS}",
    "one very long block is good only if there are enough steps to overlap it with transfers",
    ceiling="memory",
)
def one_step(seen: Observed) -> RuleCase | None:
    """One giant block: none of the traffic can be hidden behind arithmetic."""
    memory = seen.report.memory_only_seconds
    if seen.steps != 1 or memory is None or seen.report.compute_only_seconds <= 0 or seen.call is None:
        return None
    if any(window.fetches is None for window in seen.call.windows):
        # The kernel copies by hand, and these copies may well overlap with arithmetic.
        return None
    share = memory / seen.seconds
    if share < _NOTABLE_SHARE:
        return None
    return RuleCase(
        observation=f"the grid has one step, so its {seconds(memory)} of transfers at full bandwidth "
        f"({percent(share)} of the time) come before and after all arithmetic {seen.label}",
        suggestion=f"split the work into {_FEW_STEPS + 2} or more steps along an axis whose blocks are independent",
        # With n steps the first fetch and the last write of a block stay exposed.
        gain=share * (1 - 1 / (_FEW_STEPS + 2)),
        gain_source=ROOFLINE,
        knob="fewer steps",
    )


@rule(
    "small call",
    None,
    REGIMES,
    "both utilisations under 30% mean latency-bound: fixed costs take the time, not the kernel's work",
)
def small_call(seen: Observed) -> RuleCase | None:
    """Neither the MXU nor HBM is used much, because fixed costs take a large part of a short call."""
    launch = sum(seen.parts("launch").values())
    if seen.report.regime != "latency-bound" or launch < 2 * _NOTABLE_SHARE or not seen.run:
        return None
    calls = len(seen.calls)
    suggestion = "merge the Pallas calls into one: start-up and end of each call take time"
    if calls <= 1:
        suggestion = "keep the kernel and give each call more work (batch, heads): launch then takes a smaller share"
    return RuleCase(
        observation=f"latency-bound: {percent(launch)} of {seconds(seen.seconds)} is launch (Pallas calls: {calls}, "
        f"ops: {len(seen.run.ops)}) {seen.simulated}",
        suggestion=suggestion,
        gain=launch * (1 - 1 / calls) if calls > 1 else launch,
        knob="calls",
        kind="body" if calls > 1 else None,
    )
