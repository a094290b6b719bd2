"""Useless work: values that are only moved, rearranged or cast, and padding that is moved together with values."""

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from harness.chips.row import Figures
from harness.hlo.module import Instruction
from harness.records import Table
from harness.records.table import Origin
from harness.units import percent, quantity
from harness.workbench.hlo.collectives import is_timed
from harness.workbench.hlo.copies import copies
from harness.workbench.hlo.graph import FREE, RENAMES, Graph
from harness.workbench.hlo.prediction import operation_time
from harness.workbench.hlo.work import matmul_dtype, padding_bytes, work
from harness.workbench.tables import columns, table

PADDING, OTHER = "padding", "other moves"
# Kinds that only captures have, because only a capture shows how long a program waits for an overlapped copy.
HOST_WAIT, COPY_WAIT = "wait for host memory", "wait for a copy"
NO_SOURCE = "(no source given)"
# Kinds of waste by opcode. A fusion with several of these opcodes counts as the first kind among them. A gather is not
# listed, because selecting values may be the program's purpose.
_KINDS = {
    "dynamic-update-slice": "dynamic-update-slice",
    "transpose": "transpose",
    "copy": "copy",
    "copy-start": "copy",
    "convert": "cast",
    **dict.fromkeys(
        ("slice", "dynamic-slice", "concatenate", "pad", "reshape", "reverse", "broadcast", "bitcast-convert"), OTHER
    ),
}
KINDS = (*dict.fromkeys(_KINDS.values()), PADDING, HOST_WAIT, COPY_WAIT)
_TOTAL = columns("kind;operations:count;hbm_bytes=moved;seconds=time;share=of all")
_LINES = columns("source=source line;kinds;hbm_bytes=moved;seconds=time;most=most in")


@dataclass(frozen=True, slots=True, kw_only=True)
class Waste:
    """The useless bytes that one operation moves in a program's run or a capture, and their time; None if unknown."""

    kind: str
    name: str
    source: str
    hbm_bytes: int | None
    seconds: float | None


def kind_of(graph: Graph, instruction: Instruction) -> str | None:
    """One of KINDS if an instruction (or its whole fusion) only moves, rearranges or casts values; else None."""
    body = graph.inside(instruction) if instruction.opcode == "fusion" else None
    if body is None:
        return _KINDS.get(instruction.opcode)
    inner = {inner_one.opcode for inner_one in body.instructions} - {*RENAMES, "parameter", "constant", "iota"}
    if not inner or not inner <= _KINDS.keys():
        return None
    kinds = {_KINDS[opcode] for opcode in inner}
    return next(kind for kind in KINDS if kind in kinds)


def waste_of(graph: Graph, instruction: Instruction, beside: frozenset[str]) -> tuple[str, int | None] | None:
    """The kind of waste in one execution, and the wasted bytes in HBM; None if nothing is wasted.

    `beside` are the copies between memories that overlap with other work; these copies are useful.
    """
    if instruction.opcode in FREE or instruction.opcode.endswith(("-done", "-update")) or instruction.name in beside:
        return None
    kind = kind_of(graph, instruction)
    if kind is not None:
        return kind, work(graph, instruction).hbm_bytes
    padding = padding_bytes(graph, instruction)
    return (PADDING, padding) if padding else None


def prefetches(graph: Graph) -> frozenset[str]:
    """The names of the copies between memories, which the compiler overlaps with other work."""
    return frozenset(copy.name for copy in copies(graph) if copy.kind in ("prefetch", "host"))


def module_waste(graph: Graph, target: Figures, top: int) -> tuple[Table, ...]:
    """Tables of a module's waste, in total and by source line; times are those of the bytes at full bandwidth."""
    beside, listed, whole = prefetches(graph), [], 0.0
    for instruction, runs in graph.executions():
        times = 1 if runs is None else runs
        if is_timed(instruction):
            dtype = matmul_dtype(graph, instruction)
            took = operation_time(work(graph, instruction), dtype, target).seconds
            whole += (took or 0.0) * times
        wasted = waste_of(graph, instruction, beside)
        if wasted is not None:
            kind, each = wasted
            size = None if each is None else each * times
            seconds = None if size is None else size / target.hbm_bytes_per_second
            listed.append(
                Waste(kind=kind, name=instruction.name, source=instruction.source, hbm_bytes=size, seconds=seconds)
            )
    notes = [f"Times are bytes / full bandwidth of {target.name}; shares are of all operations' time."]
    if beside:
        notes.append(
            f"Left out: {quantity(len(beside), 'copy', 'copies')} between memories, which overlap with other work."
        )
    return waste_tables(listed, whole, "predicted", notes, top)


def waste_tables(
    listed: Sequence[Waste], whole_seconds: float, origin: Origin, notes: Sequence[str], top: int | None, why: str = ""
) -> tuple[Table, ...]:
    """Two tables: totals by kind, and the source lines that cause them, the slowest first."""
    kinds = ((kind, [item for item in listed if item.kind == kind]) for kind in KINDS)
    rows = sorted(((kind, some) for kind, some in kinds if some), key=lambda row: -_seconds(row[1]))
    if rows:
        rows.append(("together", list(listed)))
    total = []
    for kind, some in rows:
        count = len({(item.name, item.source) for item in some})
        share = _seconds(some) / whole_seconds if whole_seconds else None
        total.append((kind, count, _bytes(some), _seconds(some), share))
    why = why or "no operation only moves, rearranges or casts a value, and no value is padded"
    unknown = sum(item.hbm_bytes is None for item in listed)
    more = (f"Not in the sums: {quantity(unknown, 'operation')} of unknown size.",) if unknown else ()
    lines: dict[str, list[Waste]] = defaultdict(list)
    for item in listed:
        lines[item.source or NO_SOURCE].append(item)
    ranked = sorted(lines.items(), key=lambda item: (-_seconds(item[1]), item[0]))
    shown = ranked[:top]
    by_line = []
    for source, some in shown:
        kinds_of_line = ", ".join(dict.fromkeys(item.kind for item in some))
        most = max(some, key=lambda item: item.seconds or 0.0)
        by_line.append((source, kinds_of_line, _bytes(some), _seconds(some), most.name))
    left = (f"{len(shown)} of {len(ranked)} lines are shown.",) if len(shown) < len(ranked) else ()
    heading = "work that does nothing useful"
    if rows and whole_seconds:
        heading += f": {percent(_seconds(listed) / whole_seconds)} of the time"
    return (
        table("waste", heading, origin, _TOTAL, total, (*notes, *more), why),
        table("waste_lines", "source lines with useless work", origin, _LINES, by_line, left, why),
    )


def _seconds(listed: Iterable[Waste]) -> float:
    return sum(item.seconds or 0.0 for item in listed)


def _bytes(listed: Iterable[Waste]) -> int:
    return sum(item.hbm_bytes or 0 for item in listed)
