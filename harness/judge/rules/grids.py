"""Rules on the grid: work that is not useful, cores that share it badly, an order that reads more than needed."""

from harness.judge.observed import Observed, blocks, times_read
from harness.judge.rules.rule import CORES, GRIDS, LEVERS, ROOFLINE, SCHEDULE, Finding, Rule
from harness.units import count, decimal, percent

# Padding and vector work may honestly be counted on top of the useful FLOPs, but not a quarter more.
_WASTE = 1.25
_UNEVEN = 0.05
# Another order is worth a word if it saves a tenth of the traffic.
_LESS_TRAFFIC = 0.9


def wasted_work(seen: Observed) -> Finding | None:
    """More work than is useful is done, as by a causal kernel that visits masked blocks."""
    trace, work = seen.evidence.trace, seen.evidence.problem.work
    executed = seen.run.mxu_flops if seen.run else None
    if executed is not None and seen.is_causal and work.matmul_flops:
        # Half-filled matrix units execute more too, however useful the work.
        executed = round(executed * _filled(seen))
        factor, source = executed / work.matmul_flops, SCHEDULE
        observation = (
            f"the matrix unit executed {decimal(executed, 'FLOP')} (simulated), {factor:.2f}x the useful "
            f"{decimal(work.matmul_flops, 'FLOP')}: masked blocks are computed"
        )
    elif trace is not None and work.flops and seen.report.util and seen.report.flops_per_second:
        if trace.pallas_flops > seen.seconds * seen.report.flops_per_second / seen.report.util:
            # More than the chip could have done in that time: masked blocks are skipped already.
            return None
        factor, source = trace.pallas_flops / work.flops, ROOFLINE
        observation = (
            f"the grid covers {decimal(trace.pallas_flops, 'FLOP')}, {factor:.2f}x the useful "
            f"{decimal(work.flops, 'FLOP')}"
        )
    else:
        return None
    if factor < _WASTE:
        return None
    suggestion = "skip blocks that are masked as a whole: put the body under pl.when(block is needed), if it is not yet"
    if not seen.is_causal:
        suggestion = "look for work that is done twice: a block that several steps compute, or padding that is computed"
    return Finding(
        observation=observation,
        suggestion=suggestion,
        gain=1 - 1 / factor,
        gain_source=source,
        knob="mask",
        kind="mask" if seen.is_causal else "body",
    )


def _filled(seen: Observed) -> float:
    size = seen.chip.mxu_size
    return min(1.0, seen.inputs[0].array.shape[-1] / size) if seen.is_attention and size else 1.0


def one_core(seen: Observed) -> Finding | None:
    """No axis of the grid is parallel on a chip whose cores share parallel axes."""
    call, cores = seen.call, seen.chip.cores
    if call is None or cores < 2 or seen.chip.platform != "tpu" or "parallel" in call.dimension_semantics:
        return None
    return Finding(
        observation=f"a {seen.report.chip} has {cores} cores, which share the axes of the grid that are parallel, and "
        f"dimension_semantics names none of {len(call.grid)}",
        suggestion="name the axes whose steps do not depend on each other: dimension_semantics=('parallel', "
        "'arbitrary') for an outer axis of independent blocks",
        gain=1 - 1 / cores,
        knob="semantics",
    )


def uneven_cores(seen: Observed) -> Finding | None:
    """The parallel steps do not divide by the cores: one of them waits at the end."""
    call, cores = seen.call, seen.chip.cores
    if call is None or cores < 2 or seen.chip.platform != "tpu":
        return None
    axes = [b for b, semantics in zip(call.grid, call.dimension_semantics, strict=False) if semantics == "parallel"]
    if not axes or any(bound % cores == 0 for bound in axes):
        return None
    # Whichever axis is split, the core with the larger half ends last.
    lost = min(1 - bound / (cores * -(-bound // cores)) for bound in axes)
    if lost < _UNEVEN:
        return None
    return Finding(
        observation=f"none of the parallel axes of the grid ({' x '.join(map(str, axes))}) divides by the {cores} "
        f"cores of a {seen.report.chip}: one core idles {percent(lost)} of the time",
        suggestion=f"choose a block that gives a parallel axis a multiple of {cores} steps",
        gain=lost,
        knob="semantics",
        kind="constants",
    )


def grid_order(seen: Observed) -> Finding | None:
    """The other order of a grid of two independent axes would read less."""
    call, report = seen.call, seen.report
    if call is None or len(call.grid) != 2 or min(call.grid) < 2 or not report.hbm_bytes:
        return None
    outputs = [window for window in call.windows if window.role == "output"]
    # An output that is visited in several steps in a row accumulates: its inner axis has to stay the inner one.
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
    saved = (now - swapped) / seen.chip.hbm_bytes_per_second
    floor = max(report.compute_only_seconds, (report.memory_only_seconds or 0) - saved)
    return Finding(
        observation=f"the grid of {outer} x {inner} independent steps reads {decimal(now, 'B', 2)} (block index maps); "
        f"in the other order it would read {decimal(swapped, 'B', 2)}",
        suggestion=f"swap the axes of the grid, to {inner} x {outer}, and the arguments of the index maps with them",
        gain=max(0.0, ((report.memory_only_seconds or 0) - floor) / seen.seconds),
        knob="grid order",
    )


def no_semantics(seen: Observed) -> Finding | None:
    """A grid of several axes that says nothing about them, where the compiler has one core: only a word."""
    call = seen.call
    if call is None or seen.chip.platform != "tpu" or seen.chip.cores > 1 or call.dimension_semantics:
        return None
    if len(call.grid) < 2:
        return None
    return Finding(
        observation=f"dimension_semantics is not given for a grid of {' x '.join(map(count, call.grid))}: harmless on "
        f"the one core of a {seen.report.chip}, but a chip of two cores would leave one idle",
        suggestion="say dimension_semantics=('parallel', 'arbitrary') where the outer steps are independent",
        gain=None,
        knob="semantics",
    )


RULES = (
    Rule(
        name="masked blocks",
        says="skip masked blocks",
        source=LEVERS,
        kind="mask",
        look=wasted_work,
    ),
    Rule(
        name="idle core",
        says="dimension_semantics tells the compiler which axes cores may share",
        source=f"{LEVERS}; {CORES}",
        kind="grid",
        look=one_core,
    ),
    Rule(
        name="uneven cores",
        says="parallel axes are split among the cores",
        source=CORES,
        kind="grid",
        look=uneven_cores,
    ),
    Rule(
        name="grid order",
        says="the last axis of the grid changes fastest, and a block is fetched only when its index changes",
        source=f"{LEVERS}; {GRIDS}",
        kind="grid",
        look=grid_order,
    ),
    Rule(
        name="no semantics",
        says="dimension_semantics tells the compiler which axes are independent",
        source=LEVERS,
        kind="grid",
        look=no_semantics,
    ),
)
