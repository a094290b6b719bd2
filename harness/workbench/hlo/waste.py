"""Work that does nothing useful: values that are only moved, laid out anew or cast, and padding moved with others."""

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from harness.chips.row import Figures
from harness.hlo.module import Computation, Instruction
from harness.records import Table
from harness.records.table import Origin
from harness.units import percent, quantity
from harness.workbench.hlo.copies import copies
from harness.workbench.hlo.explain import is_collective, operand_dtype
from harness.workbench.hlo.graph import FREE, RENAMES, Graph
from harness.workbench.hlo.prediction import operation_time
from harness.workbench.hlo.work import matmuls, padding_bytes, work
from harness.workbench.tables import Field, Fields, table_of

PADDING, OTHER = "padding", "other moves"
# In captures alone: how long a copy that runs beside other work is waited for, only they say.
HOST_WAIT, COPY_WAIT = "wait for host memory", "wait for a copy"
NO_SOURCE = "(no source given)"
# Of a fusion that holds several, the first speaks. A gather picks values, which may be what the program is for.
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


@dataclass(frozen=True, slots=True, kw_only=True)
class Waste:
    """What one operation moves for nothing in one run of the program, or in all of a capture; None is not known."""

    kind: str
    name: str
    source: str
    hbm_bytes: int | None
    seconds: float | None


def kind_of(graph: Graph, instruction: Instruction) -> str | None:
    """One of KINDS if an instruction, or all that its fusion holds, only moves, rearranges or casts; else None."""
    body = graph.inside(instruction) if instruction.opcode == "fusion" else None
    if body is None:
        return _KINDS.get(instruction.opcode)
    inner = {one.opcode for one in body.instructions} - {*RENAMES, "parameter", "constant", "iota"}
    if not inner or not inner <= _KINDS.keys():
        return None
    kinds = {_KINDS[opcode] for opcode in inner}
    return next(kind for kind in KINDS if kind in kinds)


def of_instruction(
    graph: Graph, computation: Computation, instruction: Instruction, beside: frozenset[str]
) -> tuple[str, int | None] | None:
    """What kind of waste one execution is and the bytes in HBM that it costs; None where there is none.

    `beside` are the copies between memories that run beside other work: they are how a value gets to its user.
    """
    if instruction.opcode in FREE or instruction.opcode.endswith(("-done", "-update")) or instruction.name in beside:
        return None
    kind = kind_of(graph, instruction)
    if kind is not None:
        return kind, work(graph, computation, instruction).hbm_bytes
    padding = padding_bytes(graph, computation, instruction)
    return (PADDING, padding) if padding else None


def prefetches(graph: Graph) -> frozenset[str]:
    """The names of the copies from one memory to another, which the compiler overlaps."""
    return frozenset(copy.name for copy in copies(graph) if copy.kind in ("prefetch", "host"))


def module_waste(graph: Graph, target: Figures, top: int) -> tuple[Table, ...]:
    """The total of a module, and the lines that cause it; times are those of the bytes at full bandwidth."""
    beside, found, whole = prefetches(graph), [], 0.0
    for computation, instruction, runs in graph.executed():
        times = 1 if runs is None else runs
        is_free = instruction.opcode in FREE or instruction.opcode.endswith("-done") or is_collective(instruction)
        if not is_free:
            held = matmuls(graph, computation, instruction)
            dtype = operand_dtype(graph, *held[0]) if held else "bf16"
            took = operation_time(work(graph, computation, instruction), dtype, target).seconds
            whole += (took or 0.0) * times
        wasted = of_instruction(graph, computation, instruction, beside)
        if wasted is not None:
            kind, each = wasted
            size = None if each is None else each * times
            seconds = None if size is None else size / target.hbm_bytes_per_second
            found.append(
                Waste(kind=kind, name=instruction.name, source=instruction.source, hbm_bytes=size, seconds=seconds)
            )
    notes = [f"Times are those of the bytes at the full bandwidth of {target.name}; shares, of all operations'."]
    if beside:
        notes.append(
            f"Left out: {quantity(len(beside), 'copy', 'copies')} between memories, which run beside other work."
        )
    return waste_tables(found, whole, "predicted", notes, top)


def waste_tables(
    found: Sequence[Waste], whole_seconds: float, origin: Origin, notes: Sequence[str], top: int | None, why: str = ""
) -> tuple[Table, ...]:
    """One total by kind, then the lines that cause it, those first that take longest."""
    kinds: dict[str, list[Waste]] = {kind: [one for one in found if one.kind == kind] for kind in KINDS}
    rows = [(kind, some) for kind, some in kinds.items() if some]
    rows.sort(key=lambda row: -_seconds(row[1]))
    if rows:
        rows.append(("together", list(found)))
    total: Fields[tuple[str, list[Waste]]] = (
        Field("kind", "kind", lambda row: row[0]),
        Field("operations", "operations", lambda row: len({(one.name, one.source) for one in row[1]}), "count"),
        Field("hbm_bytes", "moved", lambda row: _bytes(row[1]), "B"),
        Field("seconds", "time", lambda row: _seconds(row[1]), "s"),
        Field("share", "of all", lambda row: _seconds(row[1]) / whole_seconds if whole_seconds else None, "fraction"),
    )
    why = why or "nothing is only moved, laid out anew or cast, and nothing is padded"
    unknown = sum(one.hbm_bytes is None for one in found)
    more = (f"{unknown} of unknown size are not in the sums.",) if unknown else ()
    lines: dict[str, list[Waste]] = defaultdict(list)
    for one in found:
        lines[one.source or NO_SOURCE].append(one)
    ranked = sorted(lines.items(), key=lambda item: (-_seconds(item[1]), item[0]))
    shown = ranked[:top]
    by_line: Fields[tuple[str, list[Waste]]] = (
        Field("source", "source line", lambda row: row[0]),
        Field("kinds", "kinds", lambda row: ", ".join(dict.fromkeys(one.kind for one in row[1]))),
        Field("hbm_bytes", "moved", lambda row: _bytes(row[1]), "B"),
        Field("seconds", "time", lambda row: _seconds(row[1]), "s"),
        Field("most", "most in", lambda row: max(row[1], key=lambda one: one.seconds or 0.0).name),
    )
    left = (f"{len(shown)} of {len(ranked)} lines are shown.",) if len(shown) < len(ranked) else ()
    heading = "work that does nothing useful"
    if rows and whole_seconds:
        heading += f": {percent(_seconds(found) / whole_seconds)} of the time"
    return (
        table_of("waste", heading, origin, total, rows, (*notes, *more), why),
        table_of("waste_lines", "the lines that cause it", origin, by_line, shown, left, why),
    )


def _seconds(some: Iterable[Waste]) -> float:
    return sum(one.seconds or 0.0 for one in some)


def _bytes(some: Iterable[Waste]) -> int:
    return sum(one.hbm_bytes or 0 for one in some)
