"""Tables for the explanations of both a module and an instruction: memory, time, copies, global shapes."""

from collections.abc import Sequence
from typing import TypeAlias

from harness.chips.row import Figures
from harness.hlo.shapes import Array
from harness.hlo.sharding import Mesh
from harness.records import Column, Table
from harness.units import decimal, quantity
from harness.workbench.hlo.copies import Copy
from harness.workbench.hlo.global_shapes import TrueShape
from harness.workbench.hlo.interconnect import host_rates
from harness.workbench.hlo.mesh import specification
from harness.workbench.hlo.prediction import Time
from harness.workbench.tables import Field, Fields, columns, table, table_of

# A table of more than _MANY values leaves out values below _SMALL_BYTES: flags and counters of asynchronous operations.
_MANY, _SMALL_BYTES = 8, 64
# An array with more rows or columns is not drawn.
_DRAWN = 16

# An array with its role and its name.
_Value: TypeAlias = tuple[str, str, Array]
_VALUES: Fields[_Value] = (
    Field("value", "value", lambda value: f"{value[0]} {value[1]}".strip()),
    Field("shape", "shape", lambda value: value[2].plain),
    Field("order", "order", lambda value: value[2].layout.order if value[2].layout else "not given"),
    Field("tiles", "tiles", lambda value: _tiles(value[2])),
    Field("padded_to", "padded to", lambda value: _padded_sizes(value[2])),
    Field("bytes", "in memory", lambda value: value[2].padded_bytes, "B"),
    Field("overhead", "overhead", lambda value: value[2].overhead, "ratio"),
    Field("memory", "in", lambda value: value[2].layout.memory if value[2].layout else "not given"),
)


def memory_table(name: str, title: str, values: Sequence[_Value], why_empty: str = "") -> Table:
    """A table with a row for each array: role and name, shape, order, tiles, padded sizes, bytes, overhead, memory."""
    large = [value for value in values if (value[2].padded_bytes or _SMALL_BYTES) >= _SMALL_BYTES]
    left_out = len(values) - len(large) if len(values) > _MANY else 0
    shown = large if left_out else values
    notes = []
    if any(array.layout and array.layout.tiles for _, _, array in values):
        notes.append(
            "order: {1,0} means that dimension 1 varies fastest. tiles: the last dimensions in memory are rounded up "
            "to the tile's size; (2,1) after (8,128) puts pairs of 16-bit values into one 32-bit word. overhead: bytes "
            "in memory / bytes of the elements."
        )
    if left_out:
        notes.append(f"Left out: {quantity(left_out, 'value')} of less than {_SMALL_BYTES} bytes, such as flags.")
    if any(array.layout is None for _, _, array in values):
        notes.append("Without a layout no padding is visible, because the compiler adds tiles later.")
    if any(any(array.dynamic) for _, _, array in values):
        notes.append("<= marks a dimension known only at run time; bytes are for its upper bound.")
    why = why_empty or "neither the result nor an operand has a shape"
    return table_of(name, title, "static", _VALUES, shown, notes, why)


def placement_table(array: Array) -> Table | None:
    """A table of the place of each element in memory, for a small array of two dimensions; None for other arrays."""
    sizes = array.dimensions
    if len(sizes) != 2 or not array.layout or not all(size and size <= _DRAWN for size in sizes):
        return None
    rows, columns = (range(size or 0) for size in sizes)
    placed = [[array.place((row, column)) for column in columns] for row in rows]
    if any(place is None for row in placed for place in row):
        return None
    shown = (Column(name="row", title=""), *(Column(name=f"column_{column}", title=str(column)) for column in columns))
    note = "Rows and columns of the array; each cell is the element's place in memory, counted in elements."
    cells = [(str(row), *(str(place) for place in line)) for row, line in zip(rows, placed, strict=True)]
    return table("placement", "place of each element", "static", shown, cells, (note,))


def _tiles(array: Array) -> str:
    tiles = array.layout.tiles if array.layout else ()
    return "".join(str(tile).replace(" ", "").replace(",)", ")").replace("-1", "*") for tile in tiles)


def _padded_sizes(array: Array) -> str:
    padded = array.physical_dimensions
    return f"[{','.join(map(str, padded))}]" if padded is not None and _tiles(array) else ""


def rests_on(target: Figures, *times: Time) -> str:
    """A sentence with the chip's figures behind a prediction, and the host link's rate if one of `times` needs it."""
    over = f"; the host's link carries {host_rates(target)}"
    return (
        f"{target.name}: {decimal(target.peak_bf16_flops_per_second, 'FLOP/s')} in bfloat16 and "
        f"{decimal(target.hbm_bytes_per_second, 'B/s')} of HBM a {target.device} ({target.source})"
        f"{over if any(time.host_seconds for time in times) else ''}."
    )


_COPIES: Fields[Copy] = (
    Field("name", "copy", lambda copy: copy.name),
    Field("kind", "kind", lambda copy: copy.kind),
    Field("shape", "value", lambda copy: copy.shape),
    Field("producer", "from", lambda copy: copy.producer),
    Field("consumers", "to", lambda copy: ", ".join(copy.consumers) or "nobody"),
    Field("bytes_per_step", "a step", lambda copy: copy.bytes_moved, "B"),
    Field("runs", "steps", lambda copy: copy.runs, "count"),
    Field("bytes_per_run", "a run", lambda copy: copy.bytes_per_run, "B"),
)


def copy_tables(listed: Sequence[Copy]) -> tuple[Table, ...]:
    """Two tables: copies with producer, consumer and cost; causes and remedies."""
    why = "the module has no copy and no transpose"
    notes = ("Bytes are read plus written, padding included.",)
    copies = table_of("copies", "copies", "static", _COPIES, listed, notes, why)
    return (copies, _causes(listed)) if listed else (copies,)


_CAUSES = columns("names=copy;fact=what;reading=says")


def _causes(listed: Sequence[Copy]) -> Table:
    """A table of causes and remedies. Copies with the same cause share rows; each fact has a row, as it may be long."""
    reasons: dict[tuple[str, str, str], list[Copy]] = {}
    for copy in listed:
        reasons.setdefault((copy.cause, copy.remedy, copy.layouts), []).append(copy)
    rows = []
    for (cause, remedy, layouts), copies in reasons.items():
        names = ", ".join(copy.name for copy in copies)
        facts = ("cause", cause or "not known: no rule fits"), ("remedy", remedy), ("layout", layouts)
        rows += [(names, fact, words) for fact, words in facts if words]
        rows += [(copy.name, "source", copy.source) for copy in copies if copy.source]
    return table("copy_causes", "why the copies are there, and how to remove them", "static", _CAUSES, rows)


_TRUE_SHAPES: Fields[TrueShape] = (
    Field("name", "value", lambda shape: shape.name),
    Field("local", "here", lambda shape: shape.local),
    Field("whole", "whole", lambda shape: shape.whole),
    Field("parts", "split into", lambda shape: "x".join(map(str, shape.parts))),
    Field("sharding", "sharding", lambda shape: specification(shape.axes) or None),
    Field("because", "because", lambda shape: shape.because),
)


def true_shape_table(shapes: Sequence[TrueShape], mesh: Mesh | None) -> Table:
    """A table of split values, with their global shapes and their split along the mesh axes."""
    title, why = "true shapes of values that are split over devices", "nothing shows that a value is split over devices"
    notes = ["A dimension counts as whole unless a sharding or a collective shows a split."]
    if mesh is not None and not mesh.is_named:
        names = ",".join(f"NAME={size}" for _, size in mesh.axes)
        notes.append(
            f"The module names no axes. The mesh {mesh}, with the last axis varying fastest, is guessed from "
            f"shardings and groups. To name the axes, use --mesh {names}."
        )
    return table_of("true_shapes", title, "static", _TRUE_SHAPES, shapes, notes, why)
