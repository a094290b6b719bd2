"""Rules on memory: operands read again and again, bandwidth that is not used, VMEM that is too full or not used."""

import math
from collections import Counter
from dataclasses import replace

from harness.advice.observed import Observed, fits, times_read
from harness.advice.rules.block_edits import doubling_edits, fetch_ahead, limit_words
from harness.advice.rules.rule import BUDGET, LEVERS, PIPELINING, SCALING_BOOK, UTILISATION, RuleCase, rule
from harness.advice.score_block import score_block_bytes
from harness.records import Edit, Window
from harness.units import decimal, kibibytes, percent

# If this share of the bandwidth is used, re-reads matter even if arithmetic binds.
_NOTABLE_BANDWIDTH = 0.50
# The published target of a memory-bound program, and the bandwidth that a stream of transfers reaches.
_TARGET_HBM = 0.7
_SATURATED_HBM = 0.90
# Traffic within a tenth of the least possible counts as the least.
_LEAST_TRAFFIC = 1.10
# At this many times the least possible traffic, re-reads are most of it.
_FAR_OVER = 4
_NEARLY_FULL_VMEM = 0.80
# The weight of the advice on idle bandwidth. The two attempts that followed this advice saved 26 and 40 % of the time
# (benchmarks/RULES.md).
_IDLE_WEIGHT = 0.5
# Waits for one operand are reported if they take at least this share of the time.
_NOTABLE_WAIT = 0.05
# If less than this share of a raised limit is used, the limit takes VMEM from the program around the kernel in vain.
_UNUSED_VMEM = 0.50
# The compiler needs some of a core's VMEM itself.
_MOST_OF_VMEM = 0.75


@rule("re-reads", "constants", LEVERS, "raise the query block first: keys and values are read once per query block")
def rereads(seen: Observed) -> RuleCase | None:
    """Keys and values are read once per query block, far more often than needed: larger query blocks read them less.

    This is worth a try even if memory does not bind: with fewer query blocks there are fewer steps, and keys are pushed
    into the matrix unit as weights fewer times. BQ 128 -> 2048 saved half of the time on v5e, in a kernel that was
    latency-bound at 25 % of the bandwidth.
    """
    report = seen.report
    again = _read_again(seen)
    if not (again and seen.is_attention and report.intensity and report.hbm_bytes):
        return None
    if not (_memory_binds(seen) or _far_over_the_minimum(seen)):
        return None
    query = seen.inputs[0]
    rows, factor = query.block_shape[-2], 2
    # The target is twice the ridge, because at the ridge itself memory takes as long as the arithmetic.
    while report.intensity * factor < 2 * report.ridge:
        factor *= 2
    while factor >= 2 and not (rows * factor <= query.array.shape[-2] and fits(seen, rows, factor)):
        factor //= 2
    if factor < 2:
        return None
    return RuleCase(
        observation=_rereads_observed(seen, again),
        suggestion=f"raise the query block (rows of {query.name}'s block, now {rows}) to {rows * factor}: {factor}x "
        "fewer re-reads",
        cost=_saving(seen, again, factor) or 0.0,
        edits=(Edit(window=query.name, axis=-2, size=rows, new=rows * factor),),
    )


@rule(
    "VMEM limit", "compiler", BUDGET, "the default VMEM limit is far below the chip's VMEM: vmem_limit_bytes raises it"
)
def limit_in_the_way(seen: Observed) -> RuleCase | None:
    """A larger query block would pay, and only the kernel's VMEM limit keeps it from fitting."""
    report = seen.report
    again = _read_again(seen)
    if not (again and seen.is_attention and _memory_binds(seen) and report.hbm_bytes):
        return None
    query = seen.inputs[0]
    rows = query.block_shape[-2]
    limit = round(_MOST_OF_VMEM * seen.chip.vmem_bytes)
    if rows * 2 > query.array.shape[-2] or fits(seen, rows, 2) or not fits(seen, rows, 2, limit):
        return None
    return RuleCase(
        observation=f"{_rereads_observed(seen, again)}; a query block of {rows * 2} rows does not fit into the "
        f"{kibibytes(report.vmem_limit_bytes)} of VMEM allowed",
        suggestion=f"raise vmem_limit_bytes in pltpu.CompilerParams to {limit} ({kibibytes(limit)} of the chip's "
        f"{kibibytes(seen.chip.vmem_bytes)}), then double the query block in the next attempt",
        # A raised limit by itself saves nothing.
        gain=None,
        cost=_saving(seen, again, 2) or 0.0,
        knob="VMEM limit",
    )


@rule(
    "operand re-reads", "constants", UTILISATION, "low use of MXU, high use of HBM: memory-bound, raise the intensity"
)
def other_rereads(seen: Observed) -> RuleCase | None:
    """An operand of a kernel other than attention is read again and again while memory binds."""
    report = seen.report
    if seen.evidence.problem.operation == "attention" or not _memory_binds(seen) or not report.hbm_bytes:
        return None
    if report.hbm_bytes < _LEAST_TRAFFIC * report.minimum_hbm_bytes:
        return None
    again = _read_again(seen, first=0)
    if not again:
        return _reads_by_tables(seen, report.hbm_bytes)
    most = max(again, key=lambda window: window.hbm_bytes or 0)
    return RuleCase(
        observation=f"{_rereads_observed(seen, again)}; the traffic is "
        f"{report.hbm_bytes / report.minimum_hbm_bytes:.1f}x the least possible",
        suggestion=f"double the block along the axis of the grid that {most.name} does not depend on: {most.name} "
        "is then read half as often",
        cost=_saving(seen, [most], 2) or 0.0,
        knob="block",
        edits=_doubled_beside(seen, most),
    )


def _reads_by_tables(seen: Observed, hbm_bytes: int) -> RuleCase | None:
    """The case of inputs whose index maps read tables, as in a grouped matmul; None if there is no such input.

    The number of reads of each input is unknown, so all traffic above the least possible counts as repeated reads. The
    edits double each axis of a block, or make it as long as the array's, if the block then fits.
    """
    if not any(window.memory_space == "smem" for call in seen.calls for window in call.windows):
        # The number of reads is also unknown if the kernel is called in a loop or a branch.
        return None
    names = [
        window.name
        for window in seen.inputs
        if window.fetches is None and window.memory_space == "vmem" and window.block_shape != window.array.shape
    ]
    doubled = [edit for edit in doubling_edits(seen) if edit.window in names]
    lengths = {window.name: window.array.shape for window in seen.inputs}
    whole = [replace(edit, new=lengths[edit.window][edit.axis]) for edit in doubled]
    report = seen.report
    # Output blocks and scratch may grow with an input's block.
    most = _NEARLY_FULL_VMEM * report.vmem_limit_bytes / (report.vmem_bytes or math.inf)
    edits = [edit for edit in dict.fromkeys((*whole, *doubled)) if edit.new <= most * edit.size]
    if not edits:
        return None
    extra = hbm_bytes - report.minimum_hbm_bytes
    saving = seen.memory_seconds * extra / hbm_bytes
    are = "are" if len(names) > 1 else "is"
    return RuleCase(
        observation=f"at {percent(report.bandwidth_util or 0)} of the bandwidth, {decimal(extra, 'B', 2)} of the "
        f"{decimal(hbm_bytes, 'B', 2)} of HBM traffic ({report.traffic_source}) are above the least possible; "
        f"how often {' and '.join(names)} {are} read is unknown (the index maps read tables)",
        suggestion=f"make the blocks of {' and '.join(dict.fromkeys(edit.window for edit in edits))} larger: along an "
        "axis that is summed, as long as the array, so that the next steps reuse the block; along any other axis, "
        "twice as long",
        cost=saving / seen.seconds,
        knob="block",
        edits=tuple(edits),
    )


# C[m, n] = A[m, k] B[k, n]: with a larger block along k, neither operand is read less often.
_PRODUCTS, _KEPT_AXES = ("matmul",), (-2, -1)


def _doubled_beside(seen: Observed, window: Window) -> tuple[Edit, ...]:
    """Edits that double blocks of other inputs along axes that `window` lacks.

    In a product of matrices such an axis is the one that is not summed. In other problems it is any axis whose length
    no axis of `window` has; if no block has such an axis, all edits that double a block are returned.
    """
    edits = doubling_edits(seen)
    if seen.evidence.problem.operation in _PRODUCTS and len(seen.inputs) == len(_KEPT_AXES):
        kept = {(each.name, axis) for each, axis in zip(seen.inputs, _KEPT_AXES, strict=True)}
        return tuple(edit for edit in edits if edit.window != window.name and (edit.window, edit.axis) in kept)
    lengths = {
        (each.name, axis - len(each.array.shape)): n for each in seen.inputs for axis, n in enumerate(each.array.shape)
    }
    lacking = [
        edit
        for edit in edits
        if edit.window != window.name and lengths[edit.window, edit.axis] not in window.array.shape
    ]
    return tuple(lacking) or edits


@rule(
    "several calls",
    "body",
    f"{UTILISATION}; {SCALING_BOOK}",
    "low use of MXU, high use of HBM: memory-bound, raise the intensity",
    ceiling="memory",
)
def several_calls(seen: Observed) -> RuleCase | None:
    """Several Pallas calls, each of which reads and writes its arrays in HBM, while memory binds."""
    report, calls = seen.report, len(seen.calls)
    if calls < 2 or not _memory_binds(seen) or not report.hbm_bytes or not report.memory_only_seconds:
        return None
    if report.hbm_bytes < _LEAST_TRAFFIC * report.minimum_hbm_bytes:
        return None
    extra = report.hbm_bytes - report.minimum_hbm_bytes
    return RuleCase(
        observation=f"{calls} Pallas calls move {decimal(report.hbm_bytes, 'B', 2)} ({report.traffic_source}), "
        f"{decimal(extra, 'B', 2)} more than the inputs and outputs, at {percent(report.bandwidth_util or 0)} of the "
        f"bandwidth {seen.label}",
        suggestion="merge the calls: let the kernel that produces a block also do the next call's work on it, so that "
        "the intermediate result stays in VMEM",
        # Where memory binds, the share of the time is the share of the bytes.
        gain=extra / report.hbm_bytes,
        gain_source=report.traffic_source,
        knob="calls",
        kind="body",
    )


@rule(
    "idle bandwidth",
    "grid",
    f"published protocol, targets; {PIPELINING}",
    "a memory-bound program should use over 70% of the bandwidth",
)
def idle_bandwidth(seen: Observed) -> RuleCase | None:
    """A memory-bound kernel that does not use the whole bandwidth, although its traffic is hardly above the least."""
    report = seen.report
    if report.regime != "memory-bound" or report.bandwidth_util is None or not report.hbm_bytes:
        return None
    if report.hbm_bytes > _LEAST_TRAFFIC * report.minimum_hbm_bytes or seen.transfer_share >= _SATURATED_HBM:
        return None
    target = " (target: over 70%)" if report.bandwidth_util < _TARGET_HBM else ""
    observation = (
        f"memory-bound at {seen.bandwidth_words}{target}, with hardly more than the least "
        f"possible traffic ({decimal(report.hbm_bytes, 'B', 2)}) {seen.label}"
    )
    if seen.steps == 1:
        return _waiting_for_copies(seen, observation)
    double = [window.name for window in seen.inputs if window.buffers == 2 and (window.fetches or 0) > 2]
    # The only known bound is all time beyond that of the transfers at full bandwidth; the change alone may not save all
    # of it.
    if double and seen.steps:
        case = fetch_ahead(seen, " and ".join(double), observation)
    else:
        # Of several calls, the call that fills its limit most must have room.
        doubled = 2 * (report.vmem_bytes or 0)
        is_possible = report.vmem_limit_bytes < doubled < seen.chip.vmem_bytes
        limit = f"; {limit_words(seen, 'the block', doubled)}" if is_possible else ""
        case = RuleCase(
            observation=observation,
            suggestion=f"double the block, so that each transfer is longer and there are fewer of them{limit}",
            knob="block",
            kind="constants",
            edits=doubling_edits(seen),
        )
    return replace(case, cost=1 - seen.transfer_share, weight=_IDLE_WEIGHT)


def _waiting_for_copies(seen: Observed, observation: str) -> RuleCase | None:
    """The case of a kernel of one step that waits for its own copies; None if no such wait is notable."""
    waits = {seen.operand(name): share for name, share in seen.parts("operand wait").items()}
    by_hand = {window.name for window in seen.inputs if window.fetches is None}
    most = max((name for name in waits if name in by_hand), key=lambda name: waits[name], default=None)
    if most is None or waits[most] < _NOTABLE_WAIT:
        return None
    return RuleCase(
        observation=f"{observation}; {percent(waits[most])} of the cycles wait for `{most}`",
        suggestion=f"start the copies of {most} further ahead: one more slot in its scratch buffer, or smaller pieces, "
        "so that the first piece arrives sooner and transfers never pause",
        gain=1 - seen.transfer_share,
        gain_source=seen.room_source,
        knob="buffers",
        kind="body",
    )


@rule(
    "copies one by one",
    "body",
    PIPELINING,
    "start the copy of the next block before you wait for the copy of this one",
    keeps_traffic=True,
)
def copies_one_by_one(seen: Observed) -> RuleCase | None:
    """A latency-bound kernel of one step that waits for each of its copies before it starts the next."""
    if seen.report.regime != "latency-bound" or seen.steps != 1:
        return None
    windows = seen.call.windows if seen.call else ()
    most, share = next(iter(seen.parts("operand wait").items()), ("", 0.0))
    if share < _NOTABLE_WAIT or all(window.fetches is not None for window in windows):
        return None
    name = seen.operand(most)
    return RuleCase(
        observation=f"{percent(share)} of the cycles wait for copies of `{name}`, with "
        f"{percent(seen.report.bandwidth_util or 0)} of the bandwidth in use {seen.label}",
        suggestion=f"start the next copies of {name} before you wait for the first: a copy that is waited for at once "
        "takes its whole latency",
        gain=share,
        knob="buffers",
    )


@rule("wide statistics", "scratch", LEVERS, "use compact or differently shaped scratch")
def wide_statistics(seen: Observed) -> RuleCase | None:
    """Row statistics with a copy for every lane, in a kernel whose stores fill the schedule."""
    if not seen.is_attention or not seen.call or seen.slots("VSTORE") < _NOTABLE_BANDWIDTH:
        return None
    rows = seen.inputs[0].block_shape[-2]
    wide = [s for s in seen.call.scratch if s.shape[-2:-1] == (rows,) and s.shape[-1] > 1 and s.dtype == "float32"]
    if len(wide) < 3:
        return None
    # The registers that are stored into one of the buffers, as a share of all stored registers.
    stores = next((u.executed_slots for u in seen.run.units if u.name == "VSTORE"), 0) if seen.run else 0
    registers = 2 * wide[0].vmem_bytes / 4096 * seen.steps
    share = registers / stores * seen.slots("VSTORE") if stores else 0.0
    return RuleCase(
        observation=f"stores use {percent(seen.slots('VSTORE'))} of their slots {seen.simulated}, and "
        f"maximum and sum of {rows} rows are kept {wide[0].shape[-1]} times each in scratch buffers of "
        f"{' x '.join(map(str, wide[0].shape))}",
        suggestion=f"keep one of the two as {rows} x 1: a column is broadcast where it is used",
        gain=share,
        # A column saves stores and costs broadcasts.
        weight=0.5,
        knob="scratch",
    )


def _memory_binds(seen: Observed) -> bool:
    return seen.report.regime == "memory-bound" or (seen.report.bandwidth_util or 0) >= _NOTABLE_BANDWIDTH


def _far_over_the_minimum(seen: Observed) -> bool:
    """True if most traffic is re-reads, and memory takes over half the time of the work (below twice the ridge)."""
    report = seen.report
    is_far = (report.hbm_bytes or 0) >= _FAR_OVER * report.minimum_hbm_bytes
    return is_far and report.intensity is not None and report.intensity < 2 * report.ridge


def _read_again(seen: Observed, first: int = 1) -> list[Window]:
    """The inputs from number `first` on that are read twice or more."""
    regular = (w for w in seen.inputs[first:] if len(w.block_shape) == len(w.array.shape) and all(w.block_shape))
    return [window for window in regular if (times_read(window) or 0) >= 2]


def _rereads_observed(seen: Observed, again: list[Window]) -> str:
    report = seen.report
    extra = sum(window.hbm_bytes or 0 for window in again)
    # Operands that are read equally often are named together.
    names: dict[str, list[str]] = {}
    for window in again:
        names.setdefault(f"{times_read(window):.0f}x", []).append(window.name)
    words = ", ".join(
        f"{' and '.join(group)} {'are' if len(group) > 1 else 'is'} read {times}" for times, group in names.items()
    )
    return (
        f"at {percent(report.bandwidth_util or 0)} of the bandwidth, {words}: "
        f"{decimal(extra, 'B', 2)} of the {decimal(report.hbm_bytes or 0, 'B', 2)} of HBM traffic "
        f"({report.traffic_source}); "
        f"{report.intensity or 0:.0f} FLOPs/byte against a ridge of {report.ridge:.0f}"
    )


def _saving(seen: Observed, again: list[Window], factor: int) -> float | None:
    """The share of the time that is saved by reading `again` `factor` times less often; None if unknown."""
    report = seen.report
    if not report.memory_only_seconds or not report.hbm_bytes:
        return None
    extra = sum(window.hbm_bytes or 0 for window in again)
    left = seen.memory_seconds * (1 - extra * (1 - 1 / factor) / report.hbm_bytes)
    return max(0.0, (seen.memory_seconds - max(left, seen.compute_seconds)) / seen.seconds)


@rule("shared scratch", "scratch", LEVERS, "share buffers")
def shared_scratch(seen: Observed) -> RuleCase | None:
    """VMEM is nearly full, and several scratch buffers of one shape probably hold one value per row each."""
    used, limit = seen.report.vmem_bytes, seen.report.vmem_limit_bytes
    if used is None or used < _NEARLY_FULL_VMEM * limit or not seen.call or not seen.is_attention:
        return None
    shapes = Counter((s.shape, s.dtype, s.vmem_bytes) for s in seen.call.scratch if len(s.shape) >= 2)
    # Maximum and sum of a row are one value each: two of three equal buffers may hold these, and the third the
    # accumulator.
    alike = [(shape, size) for (shape, _, size), number in shapes.items() if number >= 2 and shape[-1] > 1]
    if not alike:
        return None
    shape, size = max(alike, key=lambda item: item[1])
    return RuleCase(
        observation=f"{kibibytes(used)} of {kibibytes(limit)} VMEM are taken ({percent(used / limit)}), "
        f"{kibibytes(size)} by each of several scratch buffers of {' x '.join(map(str, shape))}",
        suggestion="keep the running maximum and sum in two columns of one scratch buffer instead of a buffer each",
        knob="scratch",
    )


@rule(
    "VMEM nearly full",
    "compiler",
    BUDGET,
    "the blocks of inputs and outputs (two of each, for double buffering) and scratch have to fit into the VMEM limit",
)
def vmem_nearly_full(seen: Observed) -> RuleCase | None:
    """VMEM is so full that larger blocks may not compile."""
    used, limit = seen.report.vmem_bytes, seen.report.vmem_limit_bytes
    if used is None or used < _NEARLY_FULL_VMEM * limit:
        return None
    whole = seen.chip.vmem_bytes
    suggestion = "make the largest scratch smaller before any block grows"
    if limit < whole:
        suggestion = (
            f"raise vmem_limit_bytes in pltpu.CompilerParams (the chip has {kibibytes(whole)}) before any block grows"
        )
    return RuleCase(
        observation=f"windows and scratch take {kibibytes(used)} of {kibibytes(limit)} VMEM ({percent(used / limit)})",
        suggestion=suggestion,
        knob="VMEM limit",
        kind="compiler" if limit < whole else "scratch",
    )


@rule("unused VMEM", "compiler", BUDGET, "a raised vmem_limit_bytes takes VMEM from the program around the kernel")
def unused_limit(seen: Observed) -> RuleCase | None:
    """A raised VMEM limit that the kernel does not use."""
    call, used = seen.call, seen.report.vmem_bytes
    asked = call.vmem_limit_bytes if call else None
    if asked is None or used is None or asked <= seen.chip.scoped_vmem_bytes:
        return None
    # The scores of a step take VMEM too, although no window and no scratch buffer shows them.
    needed = used + score_block_bytes(seen.evidence)
    # The compiler also keeps values between operations in VMEM; how many is not known.
    if needed >= _UNUSED_VMEM * asked or needed >= _NEARLY_FULL_VMEM * seen.chip.scoped_vmem_bytes:
        return None
    return RuleCase(
        observation=f"vmem_limit_bytes allows {kibibytes(asked)}, and about {kibibytes(needed)} are used: the default "
        f"of {kibibytes(seen.chip.scoped_vmem_bytes)} is enough",
        suggestion="leave vmem_limit_bytes out, or use the room for larger blocks",
        knob="VMEM limit",
    )
