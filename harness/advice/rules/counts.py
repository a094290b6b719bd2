"""Rules on unexpected counts of matmuls, exponentials, reductions, copies, padded tiles and grid steps."""

import math
import re
from collections.abc import Sequence

from harness.advice.buffers import LANES, item_bits, tile_rows
from harness.advice.edits import NOTABLE_GAIN
from harness.advice.observed import Observed, blocks
from harness.advice.rules.registers import score_registers
from harness.advice.rules.rule import COUNTS, OP_PROFILE, ROOFLINE, SCHEDULE, TPU_DETAILS, RuleCase, rule
from harness.judge.verdict.crosscheck import ELEMENTS_OF_AN_EXPONENTIAL
from harness.records import OpTime, Window
from harness.records.cycle_breakdown import TRANSPOSED_PUSH
from harness.units import count, decimal, kibibytes, percent, seconds

_NOTABLE_SHARE = 0.05
# Operations outside the kernel are reported if they take at least this share of the time. Most of it can be saved.
_NOTABLE_OUTSIDE = 0.01
# Computed exponentials per needed exponential: 2 if each is computed again. Rescaling a running sum takes a quarter
# more, if each of 128 lanes has a sum and a block has 512 columns. The trace may count that twice (in two branches).
_NOTABLE_EXPONENTIALS = 1.75
# Matmuls per expected matmul.
_NOTABLE_MATMULS = 1.25
# Padding is reported if it makes a buffer at least a quarter larger.
_NOTABLE_PADDING = 1.25
# If less than this share of the VMEM limit is in use, padding does no harm.
_MOSTLY_FREE = 0.50
# Padding below this share of the limit does no harm either, however full VMEM is.
_NOTABLE_ROOM = 0.01
# Names of HLO operations that only change an array's layout.
_LAYOUTS = ("reshape", "transpose", "bitcast", "pad", "slice")
# The remedy for copies that a kernel's use of its outputs causes.
OUTPUT_READ = (
    "keep running values in a scratch buffer and never read an output ref before its last write: otherwise XLA copies "
    "the whole buffer"
)
# The remedy for operations around a kernel if nothing else is known about them.
DO_WITHOUT = "move these operations into the kernel, or avoid them"
# Parts of the names of operations that copy or transpose.
_MOVES = ("copy", "transpose", "fusion")


def _expected(seen: Observed, name: str) -> int:
    """The largest count of `name` that is expected in one body; 0 if no expectation is stated."""
    return _limits(seen, name)[1]


def _limits(seen: Observed, name: str) -> tuple[int, int]:
    """The expected range of a counter: (2, 4) for `2 to 4`, (0, 0) if none is stated."""
    line = seen.counter(name)
    words = [int(word) for word in line.expected.split() if word.isdigit()] if line else []
    return (words[0], words[-1]) if words else (0, 0)


def _count(seen: Observed, name: str) -> int:
    line = seen.counter(name)
    return line.count if line else 0


def _bodies(seen: Observed, *names: str) -> int:
    """The number of unrolled bodies, from the counts of `names`: a loop unrolled n times shows its body n times.

    It is the largest of the numbers that the counts give, because a body may lack one of the operations, for example if
    a product computes its row sums.
    """
    ratios = [_count(seen, name) // least for name in names if (least := _limits(seen, name)[0])]
    return max([1, *ratios])


def _of_bodies(seen: Observed, name: str, *others: str) -> int:
    """The largest expected count of `name` in all unrolled bodies; `others` show the number of bodies. 0 if unknown.

    A body works on every head of its blocks, and each head may need a separate operation (for example a product, even
    if one softmax serves all heads). The count is unknown if the kernel copies an input by hand, or if a table
    determines which blocks it reads: in both cases no block shows how many heads or pages there are.
    """
    inputs = [window for call in seen.calls for window in call.windows if window.role == "input"]
    arrays = [window for window in inputs if not window.array.is_table]
    if any(window.fetches is None for window in arrays):
        return 0
    heads = max((math.prod(window.block_shape[:-2]) for window in arrays), default=1)
    return _expected(seen, name) * _bodies(seen, *others) * heads


@rule(
    "copies", "body", COUNTS, "no operations are expected around the kernel: each reads and writes its arrays once more"
)
def around(seen: Observed) -> RuleCase | None:
    """Copies and other operations that XLA put around the kernel."""
    hlo = seen.evidence.hlo
    moves = hlo.copy + hlo.transpose if hlo else 0
    others = seen.outside_ops or []
    if seen.report.communication is not None:
        others = _without_results(seen, others)
    if seen.outside_ops is not None and not any(word in op.name for op in others for word in _MOVES):
        # No operation that takes time in the schedule is a copy or a transpose. So the counted copies only bring
        # operands into another memory, such as VMEM.
        moves = 0
    if _is_kept_outside_the_grid(seen):
        # XLA copies the input that the caller keeps into the output. This copy is needed, because the grid leaves out
        # some blocks of the output.
        moves -= hlo.copy if hlo and moves else 0
        others = [op for op in others if "copy" not in op.name]
    time = sum(op.seconds for op in others)
    share = time / seen.seconds
    if _saves_transposed_pushes(seen):
        moves = 0
    if not moves and share < _NOTABLE_OUTSIDE:
        return None
    observations = []
    if moves:
        observations.append(
            f"{moves} {'copy or transpose' if moves == 1 else 'copies and transposes'} around the kernel"
        )
    if others:
        # The bytes that these ops could move in their time at full bandwidth: no counter has the bytes of each op.
        moved = time * seen.chip.hbm_bytes_per_second
        each = f", {decimal(moved / seen.steps, 'B')} a grid step" if seen.steps else ""
        verb = (
            "operation outside the kernel, {}, takes" if len(others) == 1 else "operations outside the kernel, {}, take"
        )
        observations.append(
            f"{len(others)} {verb.format(_named(others))} {seconds(time)} of {seconds(seen.seconds)} "
            f"({percent(share)}), time enough to move {decimal(moved, 'B')} a run{each}"
        )
    return RuleCase(
        observation=f"{'; '.join(observations)} {seen.label}",
        suggestion=_how_to_avoid(seen, others, moves),
        gain=min(share, 1.0) if others else None,
    )


def _is_kept_outside_the_grid(seen: Observed) -> bool:
    """True if a call overwrites an input that the caller keeps, and may leave parts of it unchanged.

    It may do so unless the grid visits every block of each output. If an output is copied by hand, or a table gives the
    places of its blocks, the written parts are unknown.
    """
    outputs = [window for call in seen.calls for window in call.windows if window.role == "output"]
    is_whole = all(window.fetches is not None and window.fetches >= blocks(window) for window in outputs)
    return bool(seen.evidence.trace and seen.evidence.trace.written_over) and not is_whole


def _without_results(seen: Observed, others: Sequence[OpTime]) -> list[OpTime]:
    """`others` without one copy per result: XLA makes these for every kernel that communicates with other chips."""
    copies = [op for op in others if "copy" in op.name][: len(seen.evidence.problem.results)]
    return [op for op in others if op not in copies]


def _saves_transposed_pushes(seen: Observed) -> bool:
    """True if an operand of a product is transposed outside, which saves a transpose per block of rows inside."""
    trace, lines = seen.evidence.trace, seen.run.breakdown.lines if seen.run and seen.run.breakdown else ()
    done = [dict(line.operations) for line in lines]
    return bool(
        trace is not None
        and trace.transposes
        and not seen.is_attention
        and any(line.get("MXU") for line in done)
        and not any(line.get(TRANSPOSED_PUSH) for line in done)
    )


def _named(ops: Sequence[OpTime]) -> str:
    """The names of the three most expensive operations, and the number of the others."""
    hottest = sorted(ops, key=lambda op: op.seconds, reverse=True)
    names = ", ".join(f"`{op.name}`" for op in hottest[:3])
    return f"{names} and {len(ops) - 3} more" if len(ops) > 3 else names


def _how_to_avoid(seen: Observed, others: Sequence[OpTime], moves: int) -> str:
    """Advice on avoiding `moves` copies and transposes, and the operations `others`, outside the kernel."""
    hlo, names = seen.evidence.hlo, " ".join(op.name for op in others)
    copies = hlo.copy if hlo is not None and not _is_kept_outside_the_grid(seen) else 0
    advice = []
    whole = _outputs_in_vmem(seen)
    kept = seen.evidence.trace.written_over if seen.evidence.trace else ()
    if kept and copies:
        advice.append(
            f"leave input_output_aliases out: the caller keeps {', '.join(kept[:3])}, so XLA copies everything that "
            "the call would write over"
        )
    elif "copy" in names and whole:
        return (
            f"leave {' and '.join(whole)} in HBM (a BlockSpec with memory_space=pl.ANY) and copy each part there when "
            "it is done: at present the call ends with the whole output in VMEM, and XLA copies it to HBM"
        )
    elif "copy" in names or (moves and copies):
        advice.append(OUTPUT_READ)
    if _saves_transposed_pushes(seen):
        return "; ".join(advice) or "move these operations, except the transpose, into the kernel, or avoid them"
    if "gather" in names:
        advice.append(
            "take rows or elements by index inside the kernel: for a gather XLA may copy the whole array "
            "into another layout"
        )
    rearranging = sum(op.seconds for op in others if _only_rearranges(op))
    if 2 * rearranging > sum(op.seconds for op in others) or (moves and hlo is not None and hlo.transpose) or advice:
        advice.append("pass the array unchanged, instead of transposing or reshaping it outside")
    return "; ".join(advice) or DO_WITHOUT


def _only_rearranges(op: OpTime) -> bool:
    """True if each part of the name of `op` moves elements, as in `slice_bitcast_fusion`; `pad_add_fusion` adds too."""
    parts = [part for part in re.split(r"[-_.]", op.name) if not part.isdigit()]
    return set(parts) <= {*_LAYOUTS, "copy", "dynamic", "fusion"} and not {*parts} <= {"fusion"}


def _outputs_in_vmem(seen: Observed) -> list[str]:
    """The outputs that the call keeps in VMEM as a whole, without a grid that would write them block by block."""
    if seen.call is None or seen.call.grid:
        return []
    return [w.name for w in seen.call.windows if w.role == "output" and w.memory_space == "vmem" and w.buffers == 1]


@rule(
    "split matmuls",
    "body",
    COUNTS,
    "more matmuls than expected mean blocks that do not align with the matrix unit",
    keeps_traffic=True,
)
def split_matmuls(seen: Observed) -> RuleCase | None:
    """More matmuls than the unrolled body explains."""
    each, there = _expected(seen, "matmul"), _count(seen, "matmul")
    wide = seen.chip.mxu_size
    if not each or wide is None:
        return None
    misaligned = [(window, sizes) for window in seen.inputs if (sizes := _aligned(window, wide))]
    # Without exponentials, the expected count is unknown, because nothing shows how often the body is unrolled.
    expected = _of_bodies(seen, "matmul", "exp", "reduction") if _expected(seen, "exp") else there // each * each
    # The body of the first tile has nothing to rescale, and shows fewer exponentials than the other bodies.
    is_more = 0 < _NOTABLE_MATMULS * expected <= there
    if not is_more and not (misaligned and there > each):
        return None
    suggestion = "write each product as one dot over whole blocks"
    cause = f"instead of {expected} (Mosaic): they are split"
    if misaligned:
        window, sizes = misaligned[0]
        shape, aligned = (" x ".join(map(str, size)) for size in (window.block_shape[-2:], sizes))
        suggestion = f"align {window.name}'s block, now {shape}, with the matrix unit's {wide}: {aligned}"
        if not is_more:
            cause = f"instead of {each} (Mosaic), and {window.name}'s block is no multiple of the matrix unit"
    return RuleCase(
        observation=f"{there} matmuls in the kernel {cause}",
        suggestion=suggestion,
        # The gain is unknown, because no count shows how long fewer, larger products would take.
        gain=None,
        kind="constants" if misaligned else "body",
    )


def _aligned(window: Window, wide: int) -> list[int]:
    """The last two sizes of a smaller block, in multiples of `wide`; [] if its sizes are aligned or cannot be.

    A size that is smaller than `wide`, or as large as the array's, stays as it is.
    """
    sizes = list(zip(window.block_shape[:-3:-1], window.array.shape[:-3:-1], strict=False))[::-1]
    aligned = [size if size < wide or size == whole else size // wide * wide for size, whole in sizes]
    changed = [(new, whole) for new, (old, whole) in zip(aligned, sizes, strict=True) if new != old]
    return aligned if changed and all(whole % new == 0 for new, whole in changed) else []


@rule(
    "recomputed exp",
    "body",
    COUNTS,
    "more exponentials than expected mean that some are computed again",
    keeps_traffic=True,
)
def recomputed_exponentials(seen: Observed) -> RuleCase | None:
    """More exponentials than the unrolled body explains, and more than there are scores, if their number is known."""
    expected, there = _of_bodies(seen, "exp", "matmul", "reduction"), _count(seen, "exp")
    if not 0 < expected < there or _is_once(seen):
        return None
    return RuleCase(
        observation=f"{there} exponentials in the kernel instead of {expected} (Mosaic): some are recomputed",
        suggestion="keep exp(scores - maximum) as one value, used for both the row sum and the second matmul"
        if seen.evidence.problem.operation == "attention"
        else "keep each exponential as one value, and use that wherever it is needed",
        gain=_unexpected_share(seen, "EUP", expected, there),
        gain_source=SCHEDULE if seen.run else ROOFLINE,
    )


def _is_once(seen: Observed) -> bool:
    """True if hardly more exponentials are computed than needed: elements are counted, not operations on strips."""
    needed, trace = seen.evidence.problem.work.exponentials, seen.evidence.trace
    # Upper bounds: the trace counts the most expensive branch of each step; the unit's slots also count other functions
    # and half-filled registers.
    counts = [trace.exponentials if trace else 0]
    units = seen.run.units if seen.run else ()
    counts += [unit.executed_slots * ELEMENTS_OF_AN_EXPONENTIAL for unit in units if unit.name == "EUP"]
    return any(0 < made < _NOTABLE_EXPONENTIALS * needed for made in counts) or _is_one_pass(seen)


def _is_one_pass(seen: Observed) -> bool:
    """True if nearly all exponentials are on one line, and all together hardly outnumber the scores."""
    scores = score_registers(seen)
    made = [line.exponentials for line in seen.lines]
    if not scores or not sum(made):
        return False
    return _NOTABLE_EXPONENTIALS * max(made) >= sum(made) and sum(made) < _NOTABLE_EXPONENTIALS * scores


@rule(
    "staged reductions", "body", COUNTS, "more reductions than expected mean that they are staged", keeps_traffic=True
)
def staged_reductions(seen: Observed) -> RuleCase | None:
    """More reductions than the unrolled body explains."""
    expected, there = _of_bodies(seen, "reduction", "matmul", "exp"), _count(seen, "reduction")
    if not 0 < expected < there:
        return None
    return RuleCase(
        observation=f"{there} reductions in the kernel, at most {expected} expected (Mosaic): done in pieces",
        suggestion="reduce the whole block of scores once along one axis, for the maximum and for the sum"
        if seen.evidence.problem.operation == "attention"
        else "reduce the whole block once along one axis, instead of piece by piece",
        gain=_unexpected_share(seen, "XLU", expected, there),
        gain_source=SCHEDULE if seen.run else ROOFLINE,
    )


def _unexpected_share(seen: Observed, unit: str, expected: int, there: int) -> float:
    """The largest share of the time that the operations of `unit` beyond the `expected` ones may cost."""
    return min(seen.room, seen.used(unit) * (1 - expected / there)) if seen.run else seen.room


@rule("misaligned blocks", "constants", f"{OP_PROFILE}; {TPU_DETAILS}", "layout operations mean misaligned blocks")
def padded_blocks(seen: Observed) -> RuleCase | None:
    """A block that becomes much larger by padding to tiles, if VMEM is short or moving the padding costs time."""
    worst, padding, cost = None, _NOTABLE_PADDING, None
    for window in seen.call.windows if seen.call and seen.chip.platform == "tpu" else ():
        value_bytes = math.prod(window.block_shape) * item_bits(window.array.dtype) / 8 * max(1, window.buffers)
        # A column of statistics is small whatever its padding.
        if not value_bytes or len(window.block_shape) < 2 or window.block_shape[-1] <= 1 or not _sizes_off(window):
            continue
        moved = _cost_of_padding(seen, window, value_bytes)
        is_small = _has_room(seen) or window.vmem_bytes - value_bytes < _NOTABLE_ROOM * seen.report.vmem_limit_bytes
        if window.vmem_bytes / value_bytes >= padding and not ((moved or 0.0) < _NOTABLE_SHARE and is_small):
            worst, padding, cost = window, window.vmem_bytes / value_bytes, moved
    if worst is None:
        return None
    source = SCHEDULE if seen.run and seen.run.breakdown else ROOFLINE
    # If moving the padding costs next to nothing, it only takes up VMEM. The gain from freeing this VMEM is unknown.
    gain = cost if cost is not None and cost >= NOTABLE_GAIN else None
    shape = " x ".join(map(str, worst.block_shape))
    rows, columns = worst.block_shape[-2:]
    sublanes = _sublanes(worst)
    suggestion = f"make {' and '.join(_sizes_off(worst))}"
    if rows == 1 and math.prod(worst.block_shape) == columns:
        suggestion = f"pass {worst.name} as an array of one dimension, with a block of ({columns},): now one row "
        suggestion += f"fills only 1 of a tile's {sublanes} rows"
    return RuleCase(
        observation=f"{worst.name}'s block {worst.array.dtype}[{shape}] takes {kibibytes(worst.vmem_bytes)} of VMEM, "
        f"{padding:.1f}x its values: the rest is padding to whole tiles of {sublanes} x {LANES}",
        suggestion=suggestion,
        gain=gain,
        gain_source=source,
    )


def _sublanes(window: Window) -> int:
    return tile_rows(window.block_shape[-2], window.array.dtype)


def _sizes_off(window: Window) -> list[str]:
    """For each of the block's last two sizes that is not a multiple of the tile's size: words with both sizes.

    A size that equals the array's cannot change, except in a single row, which can become an array of one dimension.
    """
    rows, columns = window.block_shape[-2:]
    whole = window.array.shape[-2:] if math.prod(window.block_shape) != columns else ()
    sizes = (("last", columns, LANES, whole[1:]), ("second-to-last", rows, _sublanes(window), whole[:1]))
    return [
        f"the {name} size, {size}, a multiple of {tile}"
        for name, size, tile, array in sizes
        if size % tile and array != (size,)
    ]


def _cost_of_padding(seen: Observed, window: Window, value_bytes: float) -> float | None:
    """The largest share of the time that moving the padding can take; None if the kernel copies `window` by hand."""
    if window.fetches is None:
        return None
    padding = (window.vmem_bytes - value_bytes) / max(1, window.buffers) * window.fetches
    cost = padding / seen.chip.hbm_bytes_per_second / seen.seconds
    if window.role != "input" or seen.run is None or seen.run.breakdown is None:
        return min(cost, 1.0, seen.room)
    # The share of the time that is spent waiting for the transfers of `window`.
    parts = (*seen.parts("operand wait").items(), *seen.parts("fill and drain").items())
    return min(cost, sum(share for name, share in parts if seen.operand(name) == window.name), seen.room)


def _has_room(seen: Observed) -> bool:
    used = seen.report.vmem_bytes
    return used is not None and used < _MOSTLY_FREE * seen.report.vmem_limit_bytes


@rule("steps executed", "grid", COUNTS, "as many steps must be executed as the grid has")
def step_mismatch(seen: Observed) -> RuleCase | None:
    """More or fewer steps ran than the grid has."""
    ran = seen.run.executed_steps if seen.run else None
    # The compiler may peel one step of each core's loop.
    if ran is None or not seen.steps or abs(ran - seen.steps) <= seen.chip.cores:
        return None
    more = ran > seen.steps
    return RuleCase(
        observation=f"{count(ran)} grid steps executed where the grid has {count(seen.steps)} (simulated schedule)",
        suggestion="look for a pipeline inside the body that walks blocks again, and give each block one step"
        if more
        else "make the grid's bounds constants: a grid whose bound is known only at run time is pipelined less well",
        gain=1 - seen.steps / ran if more else None,
    )
