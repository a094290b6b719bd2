"""A whole module: its hottest operations, its copies, its collectives, its padding, and what was not understood."""

from collections import Counter
from dataclasses import replace

from harness.records import Cell, Column, Table
from harness.units import percent, seconds
from harness.workbench.hlo.chips import Target
from harness.workbench.hlo.collectives import Traffic, collectives
from harness.workbench.hlo.copies import copies
from harness.workbench.hlo.global_shapes import true_shapes
from harness.workbench.hlo.graph import FREE, RENAMES, Graph
from harness.workbench.hlo.module import Computation, Instruction
from harness.workbench.hlo.prediction import Time, operation_time
from harness.workbench.hlo.reading import is_collective, operand_dtype
from harness.workbench.hlo.shapes import Array, arrays
from harness.workbench.hlo.tables import TIME_COLUMNS, copy_tables, memory_table, rests_on, time_row, true_shape_table
from harness.workbench.hlo.work import Work, matmuls, work

# Padding below a tenth is not worth a line.
_NOTABLE_OVERHEAD = 1.1
# Nor is that of a value of less than this: one tile of 8 x 128 words.
_NOTABLE_BYTES = 4096


def module_tables(graph: Graph, target: Target, top: int) -> tuple[Table, ...]:
    """Everything there is to say about a module, most expensive first; `top` rows of each table."""
    sent = collectives(graph, target)
    found = [_operations(graph, target, top), *_copies(graph, top)]
    if sent or graph.module.devices > 1:
        found += [_sent(sent, target), true_shape_table(true_shapes(graph)[:top])]
    return (*found, _padding(graph, top), not_understood(graph))


def not_understood(graph: Graph) -> Table:
    """What the parser passed over, and attributes whose meaning is not looked at."""
    rows: list[tuple[Cell, ...]] = [("text", 1, sentence) for sentence in graph.module.not_understood]
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
    return Table(
        name="not_understood",
        title="not understood, or passed over",
        origin="static",
        columns=(
            Column(name="kind", title="what"),
            Column(name="count", title="how often", unit="count"),
            Column(name="what", title="which"),
        ),
        rows=tuple(rows),
        why_empty="" if rows else "everything in the text was understood",
    )


def _operations(graph: Graph, target: Target, top: int) -> Table:
    entries: list[tuple[float | None, Computation, Instruction, int | None, Work, Time]] = []
    for computation, instruction, runs in graph.executed():
        if instruction.opcode in FREE or instruction.opcode.endswith("-done") or is_collective(instruction):
            continue
        done = work(graph, computation, instruction)
        took = operation_time(done, _dtype(graph, computation, instruction), target)
        cost = None if took.seconds is None else took.seconds * (1 if runs is None else runs)
        entries.append((cost, computation, instruction, runs, done, took))
    # What is not known may cost the most: it comes first.
    entries.sort(key=lambda entry: (entry[0] is not None, -(entry[0] or 0.0)))
    rows = [
        (*time_row(instruction.name, _what(graph, computation, instruction), done, took), runs, cost)
        for cost, computation, instruction, runs, done, took in entries[:top]
    ]
    total = sum(entry[0] or 0.0 for entry in entries)
    notes = [rests_on(target)]
    if entries:
        shown = sum(entry[0] or 0.0 for entry in entries[:top])
        all_of = f"The time is that of all runs; of all operations ({len(entries)}) together {seconds(total)}"
        notes.append(f"{all_of}, shown: {percent(shown / total if total else 1)} of it. Collectives come below.")
    if any(done.unknown for _, _, _, _, done, _ in entries[:top]):
        notes.append(
            "`bytes at least`: FLOPs unknown, the time is that of the bytes in HBM; `unknown`: nor are there any. "
            "What a kernel does inside only its schedule says: ratchet.sh lines."
        )
    if any(runs is None for _, _, _, runs, _, _ in entries):
        notes.append("runs -: in a loop or branch of which nobody knows how often it runs; it counts once.")
    return Table(
        name="operations",
        title=f"hottest operations of {graph.module.name}, predicted on {target.name}",
        origin="predicted",
        columns=(
            *TIME_COLUMNS,
            Column(name="runs", title="runs", unit="count"),
            Column(name="seconds", title="time", unit="s"),
        ),
        rows=tuple(rows),
        notes=tuple(notes),
        why_empty="" if rows else "the module computes nothing: only arguments, constants and renamed values",
    )


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
        notes.append(f"{scalars} {'copies' if scalars > 1 else 'copy'} of scalars and the like left out.")
    if left > 0:
        notes.append(f"{left} more, each of less than those shown.")
    return replace(first, notes=tuple(notes)), *others


def _sent(found: tuple[Traffic, ...], target: Target) -> Table:
    rows: list[tuple[Cell, ...]] = [
        (
            one.name,
            one.kind,
            one.result,
            one.size,
            one.stride,
            one.array_bytes,
            one.runs,
            one.seconds,
            one.groups,
        )
        for one in found
    ]
    return Table(
        name="collectives",
        title=f"collectives, predicted on {target.name}",
        origin="predicted",
        columns=(
            Column(name="name", title="operation"),
            Column(name="kind", title="kind"),
            Column(name="result", title="result"),
            Column(name="devices_per_group", title="group", unit="count"),
            Column(name="stride", title="stride", unit="count"),
            Column(name="array_bytes", title="V", unit="B"),
            Column(name="runs", title="runs", unit="count"),
            Column(name="seconds", title="time", unit="s"),
            Column(name="replica_groups", title="groups"),
        ),
        rows=tuple(rows),
        notes=(
            "V is the whole array of a group. time: one run by the rule V/W on one ring, all-reduce twice that; "
            "whether it is hidden behind other work only a profile says.",
        ),
        why_empty="" if rows else "the module is split over devices and sends nothing",
    )


def _padding(graph: Graph, top: int) -> Table:
    worst: dict[tuple[str, str], tuple[str, str, Array]] = {}
    for computation, instruction, _ in graph.executed():
        if instruction.opcode in RENAMES and instruction.opcode != "tuple":
            continue
        for array in arrays(instruction.shape) if instruction.opcode not in ("tuple", "while") else ():
            if (array.overhead or 1) >= _NOTABLE_OVERHEAD and (array.padded_bytes or 0) > _NOTABLE_BYTES:
                worst.setdefault((computation.name, f"{instruction.name} {array.plain}"), ("", instruction.name, array))
    ranked = sorted(worst.values(), key=lambda value: (value[2].logical_bytes or 0) - (value[2].padded_bytes or 0))
    table = memory_table("padding", "values with padding, most bytes lost first", ranked[:top])
    return (
        table
        if ranked
        else Table(
            name=table.name,
            title=table.title,
            origin="static",
            columns=table.columns,
            rows=(),
            why_empty=f"no value larger than a tile has {percent(_NOTABLE_OVERHEAD - 1, 0)} of padding or more",
        )
    )
