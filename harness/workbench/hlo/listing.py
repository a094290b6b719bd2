"""A whole module as tables: hottest operations, copies, collectives, padding, and parts that were not understood."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace

from harness.chips.row import Figures
from harness.hlo.shapes import Array, arrays
from harness.records import Table
from harness.units import percent, quantity, seconds
from harness.workbench.hlo.collectives import Traffic, collectives, is_timed
from harness.workbench.hlo.copies import copies
from harness.workbench.hlo.global_shapes import true_shapes
from harness.workbench.hlo.graph import RENAMES, Graph
from harness.workbench.hlo.matrix_fill import fill_of_instruction
from harness.workbench.hlo.prediction import Time, operation_time
from harness.workbench.hlo.resharding import constraint_table, large_collectives
from harness.workbench.hlo.tables import copy_tables, memory_table, rests_on, true_shape_table
from harness.workbench.hlo.waste import module_waste
from harness.workbench.hlo.work import InstructionWork, matmul_dtype, matmuls, work
from harness.workbench.tables import columns, table

# Values with less than a tenth of padding are not listed.
_NOTABLE_OVERHEAD = 1.1
# A product that fills a smaller share of a matrix unit takes notably longer.
_FULL = 0.995
# Padding of values up to this size (one tile of 8 x 128 words) is not listed either.
_NOTABLE_BYTES = 4096


def module_tables(graph: Graph, target: Figures, top: int) -> tuple[Table, ...]:
    """All tables of a module, the most expensive rows first; tables that may be long have at most `top` rows."""
    sent = collectives(graph, target)
    shown = [_operations(graph, target, top), *module_waste(graph, target, top), *_copies(graph, top)]
    if sent or graph.module.devices > 1:
        shown += [_collectives(sent, target), true_shape_table(true_shapes(graph)[:top], graph.module.mesh)]
    if sent and (large := large_collectives(graph, target)):
        shown.append(constraint_table(large, "static"))
    return (*shown, _padding(graph, top), not_understood(graph))


def not_understood(graph: Graph) -> Table:
    """A table of skipped text, attributes without interpretation, and operations with unknown FLOPs or trip counts."""
    rows = [("text", 1, sentence) for sentence in graph.module.not_understood]
    unknown: Counter[str] = Counter()
    passed: Counter[str] = Counter()
    for instruction, _ in graph.executions():
        unknown.update(work(graph, instruction).unknown)
    for computation in graph.module.computations:
        for instruction in computation.instructions:
            passed.update(instruction.other_attributes)
    rows += [("FLOPs", count, name) for name, count in unknown.most_common()]
    rows += [("attribute", count, name) for name, count in passed.most_common()]
    loops = [name for (_, name), trips in graph.trips.items() if trips is None]
    rows += [("trip count", 1, name) for name in loops]
    named = "kind=what;count=how often;what=which"
    title, why = "not understood, or ignored", "everything in the text was understood"
    return table("not_understood", title, "static", named, rows, (), why)


@dataclass(frozen=True, slots=True, kw_only=True)
class _ListedOperation:
    """An operation of the module: its kind, number of runs, and the work and time of one run."""

    name: str
    what: str
    runs: int | None
    work: InstructionWork
    time: Time
    mxu_fill: float | None

    @property
    def seconds(self) -> float | None:
        """The time of all runs; of one run if the number of runs is unknown."""
        return None if self.time.seconds is None else self.time.seconds * (1 if self.runs is None else self.runs)


_OPERATIONS = columns(
    "name=operation;what;flops=FLOPs;hbm_bytes=HBM;bound=bound by;mxu_fill=MXU filled:fraction;runs:count;seconds=time"
)


def _operations(graph: Graph, target: Figures, top: int) -> Table:
    listed = []
    for instruction, runs in graph.executions():
        if not is_timed(instruction):
            continue
        amount = work(graph, instruction)
        took = operation_time(amount, matmul_dtype(graph, instruction), target)
        is_matmul = bool(matmuls(graph, instruction))
        what = "matmul" if is_matmul else instruction.fusion_kind or instruction.target or instruction.opcode
        fill = fill_of_instruction(graph, instruction, target.mxu_size)
        listed.append(
            _ListedOperation(name=instruction.name, what=what, runs=runs, work=amount, time=took, mxu_fill=fill)
        )
    listed.sort(key=lambda operation: -1.0 if operation.seconds is None else operation.seconds, reverse=True)
    total = sum(operation.seconds or 0.0 for operation in listed)
    notes = [rests_on(target, *(operation.time for operation in listed))]
    if listed:
        shown = sum(operation.seconds or 0.0 for operation in listed[:top])
        together = f"{quantity(len(listed), 'operation')} together: {seconds(total)}"
        part = percent(shown / total if total else 1)
        notes.append(f"Times are of all runs. {together}; {part} of it is shown. Collectives come below.")
        notes += _host_sums(listed)
    if unknown := Counter(operation.what for operation in listed if operation.seconds is None):
        kinds = ", ".join(f"{what} {count}" for what, count in unknown.most_common())
        notes.append(
            f"Without a predicted time: {quantity(unknown.total(), 'operation')} ({kinds}). These are listed last, but "
            "any of them may take the most time."
        )
    if any(operation.work.unknown for operation in listed[:top]):
        notes.append(
            "`bytes at least`: FLOPs are unknown, so the time counts only the bytes in HBM; `unknown`: bytes are "
            "unknown, too. For the inside of a kernel, see ratchet.sh lines."
        )
    if any(operation.mxu_fill is not None and operation.mxu_fill < _FULL for operation in listed[:top]):
        notes.append(
            f"MXU filled: the share of a {target.mxu_size} x {target.mxu_size} unit that a product's weights occupy; "
            "with a half-filled unit, the FLOPs take at least twice as long."
        )
    if any(operation.runs is None for operation in listed):
        notes.append("`-` runs: the operation is in a loop or branch whose number of runs is unknown; it counts once.")
    title = f"hottest operations of {graph.module.name}, predicted on {target.name}"
    why = "the module computes nothing: it has only arguments, constants and renamed values"
    rows = [
        (of.name, of.what, of.work.flops, of.work.hbm_bytes, of.time.bound, of.mxu_fill, of.runs, of.seconds)
        for of in listed[:top]
    ]
    return table("operations", title, "predicted", _OPERATIONS, rows, notes, why)


def _host_sums(listed: Sequence[_ListedOperation]) -> list[str]:
    """A list of one sentence: the times of copies from and to the host, and of all else; [] without such copies."""
    over_link = [operation for operation in listed if operation.time.bound == "host link"]
    if not over_link:
        return []
    back, there = (
        sum(operation.seconds or 0.0 for operation in over_link if operation.work.to_host == to_host)
        for to_host in (True, False)
    )
    total = sum(operation.seconds or 0.0 for operation in listed)
    chip = total - there - back
    limit = ""
    if max(there, back) > chip:
        limit = f" The link is the limit: starting copies earlier saves at most {seconds(total - max(there, back))}."
    return [
        f"Of these, {seconds(there)} are from the host, {seconds(back)} to the host, and {seconds(chip)} on the chip. "
        f"All three may overlap: the total is {seconds(max(there, back, chip))} with full overlap, {seconds(total)} "
        f"without any.{limit}"
    ]


def _copies(graph: Graph, top: int) -> tuple[Table, ...]:
    every = copies(graph)
    shown = [copy for copy in every if copy.kind != "scalar"][:top]
    first, *others = copy_tables(shown)
    scalars = sum(copy.kind == "scalar" for copy in every)
    left = len(every) - scalars - len(shown)
    notes = list(first.notes)
    if scalars:
        notes.append(f"Left out: {quantity(scalars, 'copy', 'copies')} of scalars and other small values.")
    if left > 0:
        notes.append(f"Not shown: {quantity(left, 'copy', 'copies')}, either prefetches or cheaper than those shown.")
    return replace(first, notes=tuple(notes)), *others


_TRAFFIC = columns(
    "name=operation;kind;result;devices_per_group=group:count;stride:count;axes;array_bytes=V;runs:count;seconds=time;"
    "replica_groups=groups"
)


def _collectives(sent: tuple[Traffic, ...], target: Figures) -> Table:
    note = (
        "V: bytes of a group's whole array. time: predicted for one run on a ring of bandwidth W: all-gather and "
        "reduce-scatter V/W, all-reduce and collective-permute 2 V/W, all-to-all V/(4 W). On an axis that is "
        "no ring, the time is up to twice as long (`predict collective --axis N`). Only a profile shows how much of "
        "this time other work hides."
    )
    title, why = (
        f"collectives, predicted on {target.name}",
        "XLA put no collective into the module; transfers inside kernels are not listed here",
    )
    rows = []
    for of in sent:
        what = of.name, of.kind, of.result, of.size, of.stride, ", ".join(of.axes) or None
        rows.append((*what, of.array_bytes, of.runs, of.seconds, of.groups))
    return table("collectives", title, "predicted", _TRAFFIC, rows, (note,), why)


def _padding(graph: Graph, top: int) -> Table:
    worst: dict[tuple[str, str], tuple[str, str, Array]] = {}
    for instruction, _ in graph.executions():
        if instruction.opcode in RENAMES and instruction.opcode != "tuple":
            continue
        for array in arrays(instruction.shape) if instruction.opcode not in ("tuple", "while") else ():
            if (array.overhead or 1) >= _NOTABLE_OVERHEAD and (array.padded_bytes or 0) > _NOTABLE_BYTES:
                worst.setdefault(
                    (graph.home(instruction).name, f"{instruction.name} {array.plain}"), ("", instruction.name, array)
                )
    ranked = sorted(worst.values(), key=lambda value: (value[2].logical_bytes or 0) - (value[2].padded_bytes or 0))
    why = f"no value larger than a tile has {percent(_NOTABLE_OVERHEAD - 1, 0)} of padding or more"
    return memory_table("padding", "values with padding, most bytes lost first", ranked[:top], why)
