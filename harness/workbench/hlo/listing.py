"""A whole module: its hottest operations, its copies, its collectives, its padding, and what was not understood."""

from collections import Counter
from dataclasses import dataclass, replace

from harness.chips.row import Figures
from harness.hlo.module import Computation, Instruction
from harness.hlo.shapes import Array, arrays
from harness.records import Table
from harness.units import percent, quantity, seconds
from harness.workbench.hlo.collectives import Traffic, collectives
from harness.workbench.hlo.copies import copies
from harness.workbench.hlo.explain import is_collective, operand_dtype
from harness.workbench.hlo.global_shapes import true_shapes
from harness.workbench.hlo.graph import FREE, RENAMES, Graph
from harness.workbench.hlo.matrix_fill import of_instruction
from harness.workbench.hlo.prediction import Time, operation_time
from harness.workbench.hlo.resharding import constraint_table, spared
from harness.workbench.hlo.tables import copy_tables, memory_table, rests_on, true_shape_table
from harness.workbench.hlo.waste import module_waste
from harness.workbench.hlo.work import InstructionWork, matmuls, work
from harness.workbench.tables import Field, Fields, table, table_of

# Padding below a tenth is not worth a line.
_NOTABLE_OVERHEAD = 1.1
# With less of a matrix unit filled, its product takes notably longer.
_FULL = 0.995
# Nor is that of a value of less than this: one tile of 8 x 128 words.
_NOTABLE_BYTES = 4096


def module_tables(graph: Graph, target: Figures, top: int) -> tuple[Table, ...]:
    """Everything there is to say about a module, most expensive first; `top` rows of each table."""
    sent = collectives(graph, target)
    found = [_operations(graph, target, top), *module_waste(graph, target, top), *_copies(graph, top)]
    if sent or graph.module.devices > 1:
        found += [_sent(sent, target), true_shape_table(true_shapes(graph)[:top], graph.module.mesh)]
    if sent and (large := spared(graph, target)):
        found.append(constraint_table(large, "static"))
    return (*found, _padding(graph, top), not_understood(graph))


def not_understood(graph: Graph) -> Table:
    """What the parser passed over, and attributes whose meaning is not looked at."""
    rows = [("text", 1, sentence) for sentence in graph.module.not_understood]
    unknown: Counter[str] = Counter()
    passed: Counter[str] = Counter()
    for computation, instruction, _ in graph.executed():
        unknown.update(work(graph, computation, instruction).unknown)
    for computation in graph.module.computations:
        for instruction in computation.instructions:
            passed.update(instruction.other_attributes)
    rows += [("FLOPs", count, name) for name, count in unknown.most_common()]
    rows += [("attribute", count, name) for name, count in passed.most_common()]
    loops = [name for (_, name), trips in graph.trips.items() if trips is None]
    rows += [("trip count", 1, name) for name in loops]
    named = "kind=what;count=how often;what=which"
    title, why = "not understood, or passed over", "everything in the text was understood"
    return table("not_understood", title, "static", named, rows, (), why)


@dataclass(frozen=True, slots=True, kw_only=True)
class _ListedOperation:
    """An operation of the module: what it is, how often it runs, the work and the time of one run."""

    name: str
    what: str
    runs: int | None
    work: InstructionWork
    time: Time
    mxu_fill: float | None

    @property
    def seconds(self) -> float | None:
        """The time of all runs; one where nobody knows how many."""
        return None if self.time.seconds is None else self.time.seconds * (1 if self.runs is None else self.runs)


_OPERATIONS: Fields[_ListedOperation] = (
    Field("name", "operation", lambda one: one.name),
    Field("what", "what", lambda one: one.what),
    Field("flops", "FLOPs", lambda one: one.work.flops, "FLOP"),
    Field("hbm_bytes", "HBM", lambda one: one.work.hbm_bytes, "B"),
    Field("bound", "bound by", lambda one: one.time.bound),
    Field("mxu_fill", "MXU filled", lambda one: one.mxu_fill, "fraction"),
    Field("runs", "runs", lambda one: one.runs, "count"),
    Field("seconds", "time", lambda one: one.seconds, "s"),
)


def _operations(graph: Graph, target: Figures, top: int) -> Table:
    found = []
    for computation, instruction, runs in graph.executed():
        if instruction.opcode in FREE or instruction.opcode.endswith("-done") or is_collective(instruction):
            continue
        done = work(graph, computation, instruction)
        took = operation_time(done, _dtype(graph, computation, instruction), target)
        what = _what(graph, computation, instruction)
        fill = of_instruction(graph, computation, instruction, target.mxu_size)
        found.append(_ListedOperation(name=instruction.name, what=what, runs=runs, work=done, time=took, mxu_fill=fill))
    # What is not known may cost the most: it comes first.
    found.sort(key=lambda one: (one.seconds is not None, -(one.seconds or 0.0)))
    total = sum(one.seconds or 0.0 for one in found)
    notes = [rests_on(target, *(one.time for one in found))]
    if found:
        shown = sum(one.seconds or 0.0 for one in found[:top])
        all_of = f"The time is that of all runs; of all operations ({len(found)}) together {seconds(total)}"
        notes.append(f"{all_of}, shown: {percent(shown / total if total else 1)} of it. Collectives come below.")
    if any(one.work.unknown for one in found[:top]):
        notes.append(
            "`bytes at least`: FLOPs unknown, the time is that of the bytes in HBM; `unknown`: nor are there any. "
            "What a kernel does inside only its schedule says: ratchet.sh lines."
        )
    if any(one.mxu_fill is not None and one.mxu_fill < _FULL for one in found[:top]):
        notes.append(
            f"MXU filled: the share of a {target.mxu_size} x {target.mxu_size} unit that the weights of a product "
            "occupy; its FLOPs take as much longer at least."
        )
    if any(one.runs is None for one in found):
        notes.append("runs -: in a loop or branch of which nobody knows how often it runs; it counts once.")
    title = f"hottest operations of {graph.module.name}, predicted on {target.name}"
    why = "the module computes nothing: only arguments, constants and renamed values"
    return table_of("operations", title, "predicted", _OPERATIONS, found[:top], notes, why)


def _dtype(graph: Graph, computation: Computation, instruction: Instruction) -> str:
    within = matmuls(graph, computation, instruction)
    return operand_dtype(graph, *within[0]) if within else "bf16"


def _what(graph: Graph, computation: Computation, instruction: Instruction) -> str:
    if matmuls(graph, computation, instruction):
        return "matmul"
    return instruction.fusion_kind or instruction.target or instruction.opcode


def _copies(graph: Graph, top: int) -> tuple[Table, ...]:
    found = copies(graph)
    shown = [copy for copy in found if copy.kind != "scalar"][:top]
    first, *others = copy_tables(shown)
    scalars = sum(copy.kind == "scalar" for copy in found)
    left = len(found) - scalars - len(shown)
    notes = list(first.notes)
    if scalars:
        notes.append(f"{quantity(scalars, 'copy', 'copies')} of scalars and the like left out.")
    if left > 0:
        notes.append(f"{left} more, each of less than those shown.")
    return replace(first, notes=tuple(notes)), *others


_TRAFFIC: Fields[Traffic] = (
    Field("name", "operation", lambda one: one.name),
    Field("kind", "kind", lambda one: one.kind),
    Field("result", "result", lambda one: one.result),
    Field("devices_per_group", "group", lambda one: one.size, "count"),
    Field("stride", "stride", lambda one: one.stride, "count"),
    Field("axes", "axes", lambda one: ", ".join(one.axes) or None),
    Field("array_bytes", "V", lambda one: one.array_bytes, "B"),
    Field("runs", "runs", lambda one: one.runs, "count"),
    Field("seconds", "time", lambda one: one.seconds, "s"),
    Field("replica_groups", "groups", lambda one: one.groups),
)


def _sent(found: tuple[Traffic, ...], target: Figures) -> Table:
    note = (
        "V is the whole array of a group. time: one run by the rule V/W on one ring, all-reduce twice that; "
        "whether it is hidden behind other work only a profile says."
    )
    title, why = f"collectives, predicted on {target.name}", "the module is split over devices and sends nothing"
    return table_of("collectives", title, "predicted", _TRAFFIC, found, (note,), why)


def _padding(graph: Graph, top: int) -> Table:
    worst: dict[tuple[str, str], tuple[str, str, Array]] = {}
    for computation, instruction, _ in graph.executed():
        if instruction.opcode in RENAMES and instruction.opcode != "tuple":
            continue
        for array in arrays(instruction.shape) if instruction.opcode not in ("tuple", "while") else ():
            if (array.overhead or 1) >= _NOTABLE_OVERHEAD and (array.padded_bytes or 0) > _NOTABLE_BYTES:
                worst.setdefault((computation.name, f"{instruction.name} {array.plain}"), ("", instruction.name, array))
    ranked = sorted(worst.values(), key=lambda value: (value[2].logical_bytes or 0) - (value[2].padded_bytes or 0))
    why = f"no value larger than a tile has {percent(_NOTABLE_OVERHEAD - 1, 0)} of padding or more"
    return memory_table("padding", "values with padding, most bytes lost first", ranked[:top], why)
