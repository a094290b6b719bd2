"""Tables for the explanations of both a module and an instruction: memory, time, copies, global shapes."""

from collections.abc import Sequence
from typing import TypeAlias

from harness.chips.row import Figures
from harness.hlo.shapes import Array
from harness.hlo.sharding import Mesh
from harness.records import Cell, Column, Table
from harness.units import decimal, quantity
from harness.workbench.hlo.copies import Copy
from harness.workbench.hlo.global_shapes import TrueShape
from harness.workbench.hlo.interconnect import host_rates
from harness.workbench.hlo.mesh import specification
from harness.workbench.hlo.prediction import Time
from harness.workbench.tables import columns, table

# A table of more than _MANY values leaves out values below _SMALL_BYTES: flags and counters of asynchronous operations.
_MANY, _SMALL_BYTES = 8, 64
# An array with more rows or columns is not drawn.
_DRAWN = 16

# An array with its role and its name.
_Value: TypeAlias = tuple[str, str, Array]
_VALUES = columns("value;shape;order;tiles;padded_to=padded to;bytes=in memory;overhead:ratio;memory=in")


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
    rows = [(f"{role} {called}".strip(), array.plain, *_in_memory(array)) for role, called, array in shown]
    return table(name, title, "static", _VALUES, rows, notes, why)


def _in_memory(array: Array) -> tuple[Cell, ...]:
    order, memory = (array.layout.order, array.layout.memory) if array.layout else ("not given", "not given")
    return order, _tiles(array), _padded_sizes(array), array.padded_bytes, array.overhead, memory


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


_COPIES = columns(
    "name=copy;kind;shape=value;producer=from;consumers=to;bytes_per_step=a step:B;runs=steps:count;"
    "bytes_per_run=a run:B"
)


def copy_tables(listed: Sequence[Copy]) -> tuple[Table, ...]:
    """Two tables: copies with producer, consumer and cost; causes and remedies."""
    why = "the module has no copy and no transpose"
    notes = ("Bytes are read plus written, padding included.",)
    rows = []
    for of in listed:
        consumers = ", ".join(of.consumers) or "nobody"
        rows.append((of.name, of.kind, of.shape, of.producer, consumers, of.bytes_moved, of.runs, of.bytes_per_run))
    copies = table("copies", "copies", "static", _COPIES, rows, notes, why)
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


_TRUE_SHAPES = columns("name=value;local=here;whole;parts=split into;sharding;because")


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
    rows = [
        (of.name, of.local, of.whole, "x".join(map(str, of.parts)), specification(of.axes) or None, of.because)
        for of in shapes
    ]
    return table("true_shapes", title, "static", _TRUE_SHAPES, rows, notes, why)
