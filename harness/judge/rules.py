"""One rule per cause of lost time: what shows it, and the one change of kernel.py that cures it."""

from collections.abc import Callable

from harness.hardware import chip
from harness.judge.observed import Finding, Observed, fits, grown_vmem, times_read
from harness.judge.roofline import LARGE_GAP
from harness.records import Hint
from harness.units import count, decimal, kibibytes, percent, seconds

# Best published plain matmul on v5e: 8192 cubed in 6.05 ms is 92 % of peak (JAX's Pallas documentation).
_SATURATED_MXU = 0.92
# Fetching a block takes about a microsecond before its first byte comes (DMA latency): a grid step
# shorter than that cannot hide the next one's fetch.
_SHORT_STEP_SECONDS = 1e-6
_MANY_STEPS = 256
# One spill or fill in twenty cycles: about what a load or store slot has free beside real work.
_SPILLS_PER_CYCLE = 0.05
# A cliff, not a drift: four times the spills of the champion, and more than a handful.
_CLIFF_FACTOR, _CLIFF_SPILLS = 4, 1000
# Above this share of issue slots a unit is what the schedule waits for, dependencies included.
_BINDING_SLOTS = 0.60
# Of all cycles: what issues bundles this often does not wait for memory.
_DENSE_ISSUE = 0.80
# A fifth of the time lost to busy units is more than any schedule of a mature kernel shows.
_MANY_STALLS = 0.20
# What the best published attention kernels keep at most: beyond it the tile of scores spills.
_LARGE_KEY_BLOCK = 2048
_NOTABLE_SHARE = 0.05
_NEARLY_FULL_VMEM = 0.80
# Padding and vector work may honestly be counted on top of the useful FLOPs, but not a quarter more.
_WASTE = 1.25
_PLATEAU_ATTEMPTS = 5


def saturated(seen: Observed) -> Finding | None:
    """Useful matmul work alone fills the MXU: block sizes have nothing left to give."""
    util = seen.report.mxu_util
    if util is None or util < _SATURATED_MXU:
        return None
    observation = f"useful matmul work alone takes {percent(util)} of the MXU's peak: compute-bound and nearly done"
    suggestion = (
        f"stop tuning blocks, at most {percent(1 - util)} is left; only less work or a narrower dtype goes further"
    )
    return Finding(saves=1.0, hint=Hint(observation=observation, suggestion=suggestion))


def rereads(seen: Observed) -> Finding | None:
    """Memory binds and keys and values are read once per query block: a larger query block reads them less often."""
    report = seen.report
    is_bound = report.regime == "memory-bound" or (report.bandwidth_util or 0) >= 0.5
    if not (is_bound and seen.is_attention and report.hbm_bytes and report.memory_only_seconds and report.intensity):
        return None
    query, *others = seen.inputs
    again = [window for window in others if (times_read(window) or 0) >= 2]
    if not again:
        return None
    rows, factor = query.block_shape[-2], 2
    # Twice the ridge: at the ridge itself memory still takes as long as the arithmetic.
    while report.intensity * factor < 2 * report.ridge:
        factor *= 2
    while factor >= 2 and not (rows * factor <= query.array.shape[-2] and fits(seen, rows, factor)):
        factor //= 2
    if factor < 2:
        return None
    extra = sum(window.hbm_bytes or 0 for window in again)
    left = report.memory_only_seconds * (1 - extra * (1 - 1 / factor) / report.hbm_bytes)
    saves = (report.memory_only_seconds - max(left, report.compute_only_seconds)) / seen.seconds
    names = " and ".join(window.name for window in again)
    observation = (
        f"at {percent(report.bandwidth_util or 0)} of the bandwidth, {names} are read {times_read(again[0]):.0f}x, "
        f"{decimal(extra, 'B', 2)} of {decimal(report.hbm_bytes, 'B', 2)} HBM traffic ({report.traffic_source}): "
        f"{report.intensity:.0f} FLOPs/byte against a ridge of {report.ridge:.0f}"
    )
    suggestion = (
        f"raise the query block (rows of {query.name}'s block, now {rows}) to {rows * factor}: {factor}x fewer re-reads"
    )
    return Finding(saves=max(saves, 0.0), hint=Hint(observation=observation, suggestion=suggestion))


def spill_cliff(seen: Observed) -> Finding | None:
    """Spills jumped against the last accepted attempt, and it got slower."""
    champion = next((row for row in reversed(seen.previous) if row.outcome == "accept"), None)
    if champion is None or champion.seconds is None or champion.spills is None or seen.run is None:
        return None
    spills = seen.run.executed_spills
    if spills < _CLIFF_FACTOR * champion.spills + _CLIFF_SPILLS or seen.seconds <= champion.seconds:
        return None
    observation = (
        f"spill cliff: {count(champion.spills)} spills executed in attempt {champion.number}, {count(spills)} now, "
        f"and {seconds(champion.seconds)} became {seconds(seen.seconds)} [{seen.report.source} {seen.report.chip}]"
    )
    suggestion = f"go back to the block sizes of attempt {champion.number} and change something else"
    return Finding(saves=1 - champion.seconds / seen.seconds, hint=Hint(observation=observation, suggestion=suggestion))


def spills(seen: Observed) -> Finding | None:
    """Vector registers do not suffice for what one step holds at once."""
    if seen.run is None:
        return None
    moves = seen.run.executed_spills + seen.run.executed_fills
    rate = seen.share(moves)
    if rate < _SPILLS_PER_CYCLE:
        return None
    observation = (
        f"{count(seen.run.executed_spills)} register spills and {count(seen.run.executed_fills)} fills executed, "
        f"{rate:.2f} per cycle (simulated schedule)"
    )
    suggestion = "make the tile that the body holds at once smaller, or walk it in pieces with an inner loop"
    if seen.is_attention:
        rows = seen.inputs[1].block_shape[-2]
        suggestion = (
            f"halve the key/value block (rows of {seen.inputs[1].name}'s block, now {rows}) to {rows // 2}, "
            "or walk it in pieces with an inner loop"
        )
    # A spill and its fill share slots with real loads and stores, so at most part of their number is time.
    return Finding(saves=min(0.3, rate / 4), hint=Hint(observation=observation, suggestion=suggestion))


def short_steps(seen: Observed) -> Finding | None:
    """Many grid steps, each too short to hide the next one's fetch and its own overhead."""
    gap = seen.report.gap_fraction
    if seen.call is None or gap is None or gap < LARGE_GAP or seen.call.steps < _MANY_STEPS:
        return None
    step = seen.step_seconds
    if step is None or step > _SHORT_STEP_SECONDS:
        return None
    observation = (
        f"{count(seen.call.steps)} grid steps of {seconds(step, 2)} each, and {percent(gap)} of the time is neither "
        f"compute nor bandwidth [{seen.report.source} {seen.report.chip}]"
    )
    suggestion = "make the blocks larger, so that fewer and longer steps do the same work"
    if seen.is_attention:
        larger = _larger_key_block(seen)
        if larger is None:
            return None
        suggestion = f"{larger}: fewer and longer steps"
    return Finding(saves=gap / 2, hint=Hint(observation=observation, suggestion=suggestion))


def unit_stalls(seen: Observed) -> Finding | None:
    """The schedule waits for a busy unit that is not the MXU: mostly row maxima and row sums across lanes."""
    if seen.run is None or not seen.is_attention:
        return None
    share = seen.share(seen.run.unit_stall_cycles)
    mxu = next((unit.busy_fraction for unit in seen.report.units if unit.name == "MXU"), None)
    if share < _MANY_STALLS or mxu is None or mxu >= _BINDING_SLOTS:
        return None
    larger = _larger_key_block(seen)
    if larger is None:
        return None
    observation = (
        f"the schedule waits for busy units {percent(share)} of the time (simulated) while the MXU is busy only "
        f"{percent(mxu)} of it"
    )
    suggestion = f"{larger}: each rescaling of the accumulator then serves more scores"
    return Finding(saves=share / 2, hint=Hint(observation=observation, suggestion=suggestion))


def around(seen: Observed) -> Finding | None:
    """Copies and other ops that XLA put around the kernel."""
    hlo = seen.evidence.hlo
    moves = hlo.copy + hlo.transpose if hlo else 0
    names = tuple(call.name for call in seen.evidence.trace.pallas_calls) if seen.evidence.trace else ()
    ops = seen.run.ops if seen.run else ()
    others = [op for op in ops if not op.name.startswith(names)]
    if len(others) == len(ops):
        # No op bears the name of a Pallas call, so it is not known which of them are the kernel.
        others = []
    time = sum(op.seconds for op in others)
    share = time / seen.seconds
    if not moves and share < _NOTABLE_SHARE:
        return None
    spent = f", {seconds(time)} of {seconds(seen.seconds)} ({percent(share)}) in {len(others)} ops" if others else ""
    observation = f"{moves} copies and transposes around the kernel{spent}"
    suggestion = (
        "keep running values in a scratch buffer and never read an output ref before its last write; "
        "take arrays as they come instead of transposing or reshaping them outside"
    )
    return Finding(saves=min(share, 1.0), hint=Hint(observation=observation, suggestion=suggestion))


def dma_waits(seen: Observed) -> Finding | None:
    """The core waits for transfers that arithmetic could hide."""
    if seen.run is None or seen.call is None:
        return None
    share = seen.share(seen.run.dma_wait_cycles)
    is_compute_heavy = (seen.report.memory_only_seconds or 0) < seen.report.compute_only_seconds
    if share < _NOTABLE_SHARE or not is_compute_heavy:
        return None
    observation = (
        f"the core waits for DMA {percent(share)} of the time ({count(seen.run.dma_wait_cycles)} cycles, simulated), "
        "though the arithmetic takes longer than the transfers"
    )
    single = [window.name for window in seen.inputs if window.buffers == 1 and (window.fetches or 0) > 1]
    if single:
        suggestion = f"give {' and '.join(single)} two buffers (now one): nothing can be fetched while it is in use"
    elif grown_vmem(seen, lambda window: 1.5 if window.buffers > 1 else 1.0) <= seen.report.vmem_limit_bytes:
        suggestion = (
            "give the inputs that change every step a third buffer: pipeline_mode=pl.Buffered(3) in their BlockSpec"
        )
    else:
        return None
    return Finding(saves=share, hint=Hint(observation=observation, suggestion=suggestion))


def vector_bound(seen: Observed) -> Finding | None:
    """The vector or the transcendental unit is what the schedule is full of, not the MXU."""
    valu, eup = seen.slots("VALU"), seen.slots("EUP")
    if not seen.is_attention or max(valu, eup) < _BINDING_SLOTS or (seen.report.util or 0) > _SATURATED_MXU:
        return None
    if eup >= valu:
        observation = f"the transcendental unit (EUP) uses {percent(eup)} of its issue slots: exp binds"
        suggestion = "use exp2 with log2(e) folded into the softmax scale: one operation fewer per score"
    else:
        observation = f"the vector unit (VALU) uses {percent(valu)} of its issue slots: work between the matmuls binds"
        suggestion = (
            "multiply the scale into q once per block instead of into every score, and use exp2 with log2(e) in it"
        )
    return Finding(saves=0.1, hint=Hint(observation=observation, suggestion=suggestion))


def not_overlapped(seen: Observed) -> Finding | None:
    """Issue is dense but the MXU idles: vector work and matmuls take turns instead of overlapping."""
    gap, util = seen.report.gap_fraction, seen.report.mxu_util
    issued = seen.share(seen.run.bundle_cycles) if seen.run else 0.0
    if not seen.is_attention or gap is None or util is None or gap < LARGE_GAP or issued < _DENSE_ISSUE:
        return None
    if (seen.step_seconds or 0) <= _SHORT_STEP_SECONDS:
        return None
    observation = (
        f"the schedule issues bundles {percent(issued)} of the time, but useful matmul work takes {percent(util)} of "
        "the MXU's peak: matmul and softmax take turns"
    )
    suggestion = (
        "walk the key/value block in two or more pieces inside the body (unrolled), so that the softmax of one piece "
        "can run beside the matmul of the next"
    )
    return Finding(saves=gap / 3, hint=Hint(observation=observation, suggestion=suggestion))


def wasted_work(seen: Observed) -> Finding | None:
    """The grid covers more FLOPs than are useful, as a causal kernel that visits masked blocks does."""
    trace, useful = seen.evidence.trace, seen.evidence.problem.work.flops
    rate, util = seen.report.flops_per_second, seen.report.util
    if trace is None or rate is None or util is None or trace.pallas_flops < _WASTE * useful:
        return None
    if trace.pallas_flops > seen.seconds * rate / util:
        # More than the chip could have done in that time: masked blocks are skipped already.
        return None
    observation = (
        f"the grid covers {decimal(trace.pallas_flops, 'FLOP')}, {trace.pallas_flops / useful:.2f}x the useful "
        f"{decimal(useful, 'FLOP')}"
    )
    suggestion = "skip blocks that are masked as a whole: put the body under pl.when(block is needed), if it is not yet"
    return Finding(saves=1 - useful / trace.pallas_flops, hint=Hint(observation=observation, suggestion=suggestion))


def vmem_nearly_full(seen: Observed) -> Finding | None:
    """Larger blocks will soon not compile."""
    used, limit = seen.report.vmem_bytes, seen.report.vmem_limit_bytes
    if used is None or used < _NEARLY_FULL_VMEM * limit:
        return None
    whole = chip(seen.report.chip).vmem_bytes
    observation = f"windows and scratch take {kibibytes(used)} of {kibibytes(limit)} VMEM ({percent(used / limit)})"
    suggestion = "make the largest scratch smaller before any block grows"
    if limit < whole:
        suggestion = (
            f"raise vmem_limit_bytes in pltpu.CompilerParams (the chip has {kibibytes(whole)}) before any block grows"
        )
    return Finding(saves=0.01, hint=Hint(observation=observation, suggestion=suggestion))


def plateau(seen: Observed) -> Finding | None:
    """Several attempts in a row brought nothing."""
    lost = 0
    for row in reversed(seen.previous):
        if row.outcome == "accept":
            break
        lost += 1
    if lost < _PLATEAU_ATTEMPTS:
        return None
    observation = f"the last {lost} attempts brought nothing"
    suggestion = "change the kind of idea: `results` lists what was tried, the gap above says where the time is"
    return Finding(saves=0.02, hint=Hint(observation=observation, suggestion=suggestion))


def _larger_key_block(seen: Observed) -> str | None:
    """The advice to make the key/value block four times or twice as large, or None where it cannot or need not be."""
    key = seen.inputs[1]
    rows, factor = key.block_shape[-2], 4
    while factor >= 2 and not (rows * factor <= key.array.shape[-2] and fits(seen, rows, factor)):
        factor //= 2
    if factor < 2 or rows >= _LARGE_KEY_BLOCK:
        return None
    return f"raise the key/value block (rows of {key.name}'s block, now {rows}) to {rows * factor}"


RULES: tuple[Callable[[Observed], Finding | None], ...] = (
    saturated,
    rereads,
    spill_cliff,
    spills,
    short_steps,
    unit_stalls,
    around,
    dma_waits,
    vector_bound,
    not_overlapped,
    wasted_work,
    vmem_nearly_full,
    plateau,
)
