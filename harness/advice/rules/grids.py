"""Rules on the grid: useless work, an uneven split among cores, an order that reads more than needed."""

import itertools
import math
import operator

from harness.advice.observed import Observed, blocks, times_read
from harness.advice.rules.registers import computed_scores
from harness.advice.rules.rule import CORES, GAP, GRIDS, LEVERS, ROOFLINE, SCHEDULE, RuleCase, rule
from harness.records import PallasCall
from harness.units import count, decimal, percent

# Even a good kernel adds padding and vector work to the useful FLOPs, but less than a quarter of them.
_WASTE = 1.25
_UNEVEN = 0.05
_NOTABLE_SHARE = 0.05
# If less than this share of the grid's work was executed, steps are skipped.
_SKIPPED = 0.9
_ARITHMETIC = ("MXU", "VALU", "EUP", "XLU")
# Another order of the grid is advised if it saves at least a tenth of the traffic.
_LESS_TRAFFIC = 0.9


@rule("masked blocks", "mask", LEVERS, "skip masked blocks")
def masked_blocks(seen: Observed) -> RuleCase | None:
    """A causal kernel computes masked blocks, or masked parts of blocks on the diagonal."""
    work = seen.evidence.problem.work
    executed = seen.run.mxu_flops if seen.run else None
    if not seen.is_causal:
        return None
    conditional = is_unsure = False
    if executed is not None and work.matmul_flops:
        # A matrix unit that is half filled, in one product or both, executes more FLOPs than the useful ones even if
        # no masked block is computed.
        most, executed = executed / work.matmul_flops, round(executed * _fill(seen))
        factor, source = executed / work.matmul_flops, SCHEDULE
        observation = (
            f"the matrix unit executed {decimal(executed, 'FLOP')} (simulated), {factor:.2f}x the useful "
            f"{decimal(work.matmul_flops, 'FLOP')}"
        )
        # The trace counts the body once for each step of the grid. If less was executed, the body is under a condition.
        covered = _coverage(seen)
        # A half-filled unit executes more FLOPs than its scores need.
        most = min(most, computed_scores(seen) or most)
        conditional = covered is not None and most < _SKIPPED * covered
        is_unsure = covered is not None and not conditional and factor < _SKIPPED * covered
    elif (covered := _coverage(seen)) is not None and _had_time(seen, covered):
        factor, source = covered, ROOFLINE
        observation = _covers(seen, factor)
    else:
        return None
    if factor < _WASTE:
        return None
    # If one block holds all keys, no block is masked as a whole.
    is_one_block = seen.is_attention and seen.inputs[1].block_shape[-2] == seen.inputs[1].array.shape[-2]
    if conditional or is_one_block:
        return _across_the_diagonal(seen, observation, factor, conditional)
    return RuleCase(
        observation=f"{observation}: masked blocks are computed" if source == SCHEDULE else observation,
        suggestion="skip blocks that are masked as a whole: put the body under pl.when(block is needed), if it is not "
        "yet",
        # If the units may be half filled, the masked part of the executed work is unknown.
        gain=None if is_unsure else 1 - 1 / factor,
        cost=1 - 1 / factor,
        gain_source=source,
        knob="mask",
    )


def _across_the_diagonal(seen: Observed, observation: str, factor: float, conditional: bool) -> RuleCase:
    """The case of a kernel that skips wholly masked blocks, or has none: its needless work is on the diagonal."""
    block, share = "the key block", 0.5
    if seen.is_attention:
        rows, columns = (window.block_shape[-2] for window in seen.inputs[:2])
        block = f"the key/value block (rows of {seen.inputs[1].name}'s block, now {columns})"
        # Along the diagonal, about (rows + columns) / 2 pairs in each row are computed in vain.
        share = columns / 2 / (rows + columns)
    return RuleCase(
        observation=f"{observation}, although some grid steps are skipped: the excess is in blocks that cross the "
        "diagonal"
        if conditional
        else f"{observation}: one key block holds all keys, so the diagonal crosses every step",
        suggestion=f"use smaller key blocks at the diagonal: walk {block} in pieces where the diagonal crosses it, and "
        "skip the pieces that are masked as a whole",
        gain=(1 - 1 / factor) * share,
        # More and shorter steps cost too.
        weight=0.5,
        knob="mask",
    )


@rule("hidden blocks fetched", "mask", GRIDS, "a block is not fetched again where its index stays the same")
def hidden_fetches(seen: Observed) -> RuleCase | None:
    """All blocks of keys are fetched for each block of queries, even those that the causal mask hides."""
    waited = seen.share(seen.run.dma_wait_cycles) if seen.run else 0.0
    if not seen.is_causal or not seen.is_attention or waited < _NOTABLE_SHARE:
        return None
    queries, keys, values = seen.inputs[:3]
    rows, columns = queries.block_shape[-2], keys.block_shape[-2]
    of_queries, of_keys = queries.array.shape[-2] // rows, keys.array.shape[-2] // columns
    every = blocks(queries) * of_keys
    parameters = dict(seen.evidence.problem.parameters)
    is_square = queries.array.shape[-2] == keys.array.shape[-2] and not parameters.get("window")
    if not is_square or of_keys < 2 or keys.fetches is None or keys.fetches < _SKIPPED * every:
        return None
    # Each block of queries needs the keys up to the position of its last query.
    seen_by = [min(of_keys, -(-(block + 1) * rows // columns)) for block in range(of_queries)]
    needed = blocks(queries) // of_queries * sum(seen_by)
    return RuleCase(
        observation=f"{count(keys.fetches)} blocks of {keys.name} are fetched, and the mask hides all but "
        f"{count(needed)}; {percent(waited)} of the cycles wait for transfers {seen.simulated}",
        suggestion=f"stop the index maps of {keys.name} and {values.name} at the last block that the queries need "
        "(jnp.minimum(j, last)): a block is not fetched again while its index stays the same",
        gain=waited,
    )


@rule(
    "repeated work",
    "body",
    GAP,
    "work that is not useful takes time on the resource that binds the kernel",
    keeps_traffic=True,
)
def repeated_work(seen: Observed) -> RuleCase | None:
    """A kernel without a causal mask does useless work on the resource that limits its time."""
    factor = _coverage(seen)
    # If a problem without products states no work, its work is by default one operation per element.
    problem = seen.evidence.problem
    read = sum(math.prod(array.shape) for array in problem.inputs)
    is_counted = problem.work.matmul_flops > 0 or problem.work.vector_flops > read
    if seen.is_causal or factor is None or factor < _WASTE or not (is_counted and _had_time(seen, factor)):
        return None
    gain = _time_of_work(seen, factor)
    if gain < _NOTABLE_SHARE:
        return None
    has_tables = any(window.array.is_table for call in seen.calls for window in call.windows)
    suggestion = "look for needless work: a block that several steps compute, or padding that is computed"
    if has_tables:
        # Steps past the end of a sequence or a group count in the trace, whether they are skipped or not.
        suggestion = f"skip steps that the tables make needless (pl.when), if they are not skipped yet; {suggestion}"
    return RuleCase(
        observation=_covers(seen, factor),
        suggestion=suggestion,
        gain=None if has_tables else gain,
        cost=gain,
        gain_source=SCHEDULE if seen.report.units else ROOFLINE,
    )


def _coverage(seen: Observed) -> float | None:
    """The traced work of all grid steps over the useful work; None if unknown."""
    trace, work = seen.evidence.trace, seen.evidence.problem.work
    return trace.pallas_flops / work.flops if trace is not None and work.flops else None


def _had_time(seen: Observed, factor: float) -> bool:
    """True if the chip had time for `factor` times the useful work; if it had not, some steps are skipped already."""
    return factor * seen.report.compute_only_seconds <= seen.seconds


def _covers(seen: Observed, factor: float) -> str:
    useful = seen.evidence.problem.work.flops
    return f"the grid covers {decimal(factor * useful, 'FLOP')}, {factor:.2f}x the useful {decimal(useful, 'FLOP')}"


def _time_of_work(seen: Observed, factor: float) -> float:
    """The largest share of the time that is saved by doing the arithmetic once instead of `factor` times.

    Arithmetic takes the share of the time in which the most used unit works (without a run: the traced work at the
    peak). Transfers overlap with arithmetic: if they take longer, less arithmetic saves nothing.
    """
    used = max((unit.used_fraction for unit in seen.report.units if unit.name in _ARITHMETIC), default=None)
    if used is None:
        used = min(1.0, factor * seen.report.compute_only_seconds / seen.seconds)
    least = used / factor
    if seen.report.regime == "memory-bound":
        least = max(least, seen.transfer_share)
    return max(0.0, used - least)


def _fill(seen: Observed) -> float:
    """The part of the matrix unit that a head fills in attention, forward or backward; 1 for other problems."""
    size, wide = seen.chip.mxu_size, dict(seen.evidence.problem.parameters).get("head_dim")
    if seen.is_attention:
        wide = seen.inputs[0].array.shape[-1]
    return min(1.0, wide / size) if isinstance(wide, int) and wide and size else 1.0


@rule("idle core", "grid", f"{LEVERS}; {CORES}", "dimension_semantics tells the compiler which axes cores may share")
def one_core(seen: Observed) -> RuleCase | None:
    """No axis of the grid is parallel on a chip whose cores share parallel axes."""
    call, cores = seen.call, seen.chip.cores
    if call is None or cores < 2 or seen.chip.platform != "tpu" or "parallel" in call.dimension_semantics:
        return None
    return RuleCase(
        observation=f"a {seen.report.chip} has {cores} cores, which share the parallel axes of the grid, but "
        "dimension_semantics marks no axis as parallel",
        suggestion=f"name the axes whose steps do not depend on each other: {_semantics(call)}",
        gain=1 - 1 / cores,
        gain_source=ROOFLINE,
        knob="semantics",
    )


@rule("uneven cores", "grid", CORES, "parallel axes are split among the cores")
def uneven_cores(seen: Observed) -> RuleCase | None:
    """No parallel axis of the grid is divisible by the number of cores, so a core idles at the end."""
    call, cores = seen.call, seen.chip.cores
    if call is None or cores < 2 or seen.chip.platform != "tpu":
        return None
    axes = [b for b, semantics in zip(call.grid, call.dimension_semantics, strict=False) if semantics == "parallel"]
    if not axes or any(bound % cores == 0 for bound in axes):
        return None
    # Whichever axis is split, the core with the larger part ends last.
    idle_share = min(1 - bound / (cores * -(-bound // cores)) for bound in axes)
    if idle_share < _UNEVEN:
        return None
    return RuleCase(
        observation=f"none of the parallel axes of the grid ({' x '.join(map(str, axes))}) is divisible by the {cores} "
        f"cores of a {seen.report.chip}: one core idles {percent(idle_share)} of the time",
        suggestion=f"choose a block that gives a parallel axis a multiple of {cores} steps",
        gain=idle_share,
        gain_source=ROOFLINE,
        knob="semantics",
        kind="constants",
    )


@rule(
    "grid order",
    "grid",
    f"{LEVERS}; {GRIDS}",
    "the last axis of the grid changes fastest, and a block is fetched only when its index changes",
)
def grid_order(seen: Observed) -> RuleCase | None:
    """A grid of two independent axes that would read less in the other order."""
    call, report = seen.call, seen.report
    if call is None or len(call.grid) != 2 or min(call.grid) < 2 or not report.hbm_bytes:
        return None
    outputs = [window for window in call.windows if window.role == "output"]
    # An output block that is visited in several steps in a row accumulates: the axis of these steps has to stay the
    # inner one.
    if any(len(w.block_shape) != len(w.array.shape) for w in call.windows) or any(
        not all(w.block_shape) or blocks(w) != call.steps for w in outputs
    ):
        return None
    now = swapped = 0.0
    outer, inner = call.grid
    for window in seen.inputs:
        if window.hbm_bytes is None or window.fetches is None:
            return None
        now += window.hbm_bytes
        once = window.hbm_bytes / max(1.0, times_read(window) or 1.0)
        moves = blocks(window)
        if moves == outer and window.fetches == outer:
            swapped += once * inner
        elif moves == inner and window.fetches == outer * inner:
            swapped += once
        else:
            swapped += window.hbm_bytes
    if swapped > _LESS_TRAFFIC * now:
        return None
    saved = seen.memory_seconds * (now - swapped) / report.hbm_bytes
    floor = max(seen.compute_seconds, seen.memory_seconds - saved)
    return RuleCase(
        observation=f"the grid of {outer} x {inner} independent steps reads {decimal(now, 'B', 2)} (block index maps); "
        f"in the other order it would read {decimal(swapped, 'B', 2)}",
        suggestion=f"swap the axes of the grid, to {inner} x {outer}, and the arguments of the index maps with them",
        gain=max(0.0, (seen.memory_seconds - floor) / seen.seconds),
        gain_source=ROOFLINE,
    )


def _semantics(call: PallasCall) -> str:
    """The dimension_semantics to write, with an entry for each axis of the grid: JAX refuses any other number."""
    axes = len(call.grid)
    chosen = _axes_of_outputs(call)
    if not chosen:
        return (
            f"dimension_semantics with one entry for each axis of the grid ({count(axes)}), 'parallel' for these axes "
            "and 'arbitrary' for the others"
        )
    entries = ", ".join(["'parallel'"] * chosen + ["'arbitrary'"] * (axes - chosen))
    return (
        f"dimension_semantics=({entries}{',' * (axes == 1)}), where the parallel axes choose the output's block "
        "(scratch must carry nothing along them)"
    )


def _axes_of_outputs(call: PallasCall) -> int | None:
    """The number of outer axes of the grid that choose the block of every output; None if the number is not known.

    All visits of an output block follow each other, so the axes that choose it are the outer ones, with as many steps
    as there are blocks.
    """
    steps = list(itertools.accumulate(call.grid, operator.mul, initial=1))
    chosen = []
    for window in call.windows:
        if window.role == "output":
            if window.fetches != blocks(window) or window.fetches not in steps:
                return None
            chosen.append(steps.index(window.fetches))
    return min(chosen, default=None)
