"""The tables that the explanation of a module and of one instruction share: memory, time, copies, true shapes."""

from collections.abc import Sequence

from harness.records import Cell, Column, Table
from harness.units import decimal
from harness.workbench.hlo.chips import Target
from harness.workbench.hlo.copies import Copy
from harness.workbench.hlo.global_shapes import TrueShape
from harness.workbench.hlo.prediction import Time
from harness.workbench.hlo.shapes import Array
from harness.workbench.hlo.work import Work

# A table of more values than this leaves out the smallest: the flags and counters of asynchronous operations.
_MANY, _SMALL_BYTES = 8, 64


def memory_table(name: str, title: str, values: Sequence[tuple[str, str, Array]]) -> Table:
    """One row per array: role, its name, order, tiles, padded dimensions, bytes with and without padding, memory."""
    large = [value for value in values if (value[2].padded_bytes or _SMALL_BYTES) >= _SMALL_BYTES]
    left_out = len(values) - len(large) if len(values) > _MANY else 0
    rows: list[tuple[Cell, ...]] = []
    for role, called, array in large if left_out else values:
        layout = array.layout
        padded = array.physical_dimensions
        tiles = (
            "".join(str(tile).replace(" ", "").replace(",)", ")").replace("-1", "*") for tile in layout.tiles)
            if layout
            else ""
        )
        rows.append(
            (
                f"{role} {called}".strip(),
                array.plain,
                layout.order if layout else "not given",
                tiles,
                f"[{','.join(map(str, padded))}]" if padded is not None and tiles else "",
                array.padded_bytes,
                array.overhead,
                layout.memory if layout else "not given",
            )
        )
    notes = []
    if any(array.layout and array.layout.tiles for _, _, array in values):
        notes.append(
            "order: {1,0} says that dimension 1 varies fastest. tiles: each rounds the last dimensions in memory up to "
            "it; (2,1) behind (8,128) keeps pairs of 16-bit values in one 32-bit word. overhead: bytes in memory over "
            "the bytes of the elements."
        )
    if left_out:
        notes.append(f"{left_out} values of less than {_SMALL_BYTES} bytes, such as flags, are left out.")
    if any(array.layout is None for _, _, array in values):
        notes.append("Without a layout there is no padding to be seen: the compiler adds tiles later.")
    if any(any(array.dynamic) for _, _, array in values):
        notes.append("<= marks a dimension known only when it runs: bytes are those of the bound.")
    return Table(
        name=name,
        title=title,
        origin="static",
        columns=(
            Column(name="value", title="value"),
            Column(name="shape", title="shape"),
            Column(name="order", title="order"),
            Column(name="tiles", title="tiles"),
            Column(name="padded_to", title="padded to"),
            Column(name="bytes", title="in memory", unit="B"),
            Column(name="overhead", title="overhead", unit="ratio"),
            Column(name="memory", title="in"),
        ),
        rows=tuple(rows),
        notes=tuple(notes),
        why_empty="" if rows else "no shape is given, neither of its result nor of an operand",
    )


TIME_COLUMNS = (
    Column(name="name", title="operation"),
    Column(name="what", title="what"),
    Column(name="flops", title="FLOPs", unit="FLOP"),
    Column(name="hbm_bytes", title="HBM", unit="B"),
    Column(name="bound", title="bound by"),
)


FLOOR_COLUMNS = (
    Column(name="seconds", title="time", unit="s"),
    Column(name="bound", title="bound by"),
    Column(name="compute_seconds", title="by FLOPs", unit="s"),
    Column(name="memory_seconds", title="by bytes", unit="s"),
    Column(name="flops", title="FLOPs", unit="FLOP"),
)


def time_row(name: str, what: str, done: Work, took: Time) -> tuple[Cell, ...]:
    """One operation: the figures of one execution."""
    return name, what, done.flops, done.hbm_bytes, took.bound


def time_table(what: str, done: Work, took: Time, target: Target, notes: Sequence[str]) -> Table:
    """The predicted time of one operation on `target`, with both floors."""
    return Table(
        name="time",
        title=f"predicted on {target.name}: max(FLOPs/peak, bytes/bandwidth)",
        origin="predicted",
        columns=(
            *FLOOR_COLUMNS,
            Column(name="hbm_bytes", title="HBM", unit="B"),
            Column(name="other_bytes", title="other memories", unit="B"),
            Column(name="what", title="what"),
        ),
        rows=(
            (
                took.seconds,
                took.bound,
                took.compute_seconds,
                took.memory_seconds,
                done.flops,
                done.hbm_bytes,
                done.other_bytes,
                what,
            ),
        ),
        notes=(rests_on(target), *notes),
    )


def rests_on(target: Target) -> str:
    """The sentence that says what a prediction rests on."""
    return (
        f"{target.name}: {decimal(target.peak_flops_per_second, 'FLOP/s')} in bfloat16 and "
        f"{decimal(target.hbm_bytes_per_second, 'B/s')} of HBM a {target.device} ({target.source})."
    )


def copy_tables(found: Sequence[Copy]) -> tuple[Table, ...]:
    """Copies with their producer, consumer and cost; then why they are there and what takes them away."""
    table = Table(
        name="copies",
        title="copies",
        origin="static",
        columns=(
            Column(name="name", title="copy"),
            Column(name="kind", title="kind"),
            Column(name="shape", title="value"),
            Column(name="producer", title="from"),
            Column(name="consumers", title="to"),
            Column(name="bytes_per_step", title="a step", unit="B"),
            Column(name="runs", title="steps", unit="count"),
            Column(name="bytes_per_run", title="a run", unit="B"),
        ),
        rows=tuple(
            (
                copy.name,
                copy.kind,
                copy.shape,
                copy.producer,
                ", ".join(copy.consumers) or "nobody",
                copy.bytes_moved,
                copy.runs,
                copy.bytes_per_run,
            )
            for copy in found
        ),
        notes=("Bytes are read plus written, padding included.",) if found else (),
        why_empty="" if found else "no copy, no transpose: nothing is moved only to lie elsewhere",
    )
    return (table, _causes(found)) if found else (table,)


def _causes(found: Sequence[Copy]) -> Table:
    """Copies with the same cause together; each fact is a row, so that a sentence has room."""
    reasons: dict[tuple[str, str, str], list[Copy]] = {}
    for copy in found:
        reasons.setdefault((copy.cause, copy.remedy, copy.layouts), []).append(copy)
    rows: list[tuple[Cell, ...]] = []
    for (cause, remedy, layouts), copies in reasons.items():
        names = ", ".join(copy.name for copy in copies)
        rows.append((names, "cause", cause or "not known: no rule fits"))
        if remedy:
            rows.append((names, "remedy", remedy))
        if layouts:
            rows.append((names, "layout", layouts))
        rows += [(copy.name, "source", copy.source) for copy in copies if copy.source]
    return Table(
        name="copy_causes",
        title="why they are there, and what takes them away",
        origin="static",
        columns=(
            Column(name="names", title="copy"),
            Column(name="fact", title="what"),
            Column(name="reading", title="says"),
        ),
        rows=tuple(rows),
    )


def true_shape_table(found: Sequence[TrueShape]) -> Table:
    """Values of which each device has a part, with the whole."""
    return Table(
        name="true_shapes",
        title="true shapes of what one device has a part of",
        origin="static",
        columns=(
            Column(name="name", title="value"),
            Column(name="local", title="here"),
            Column(name="whole", title="whole"),
            Column(name="parts", title="split into"),
            Column(name="because", title="because"),
        ),
        rows=tuple((one.name, one.local, one.whole, "x".join(map(str, one.parts)), one.because) for one in found),
        notes=("A dimension of which nothing says that it is split counts as whole.",),
        why_empty="" if found else "nothing says that a value is split over devices",
    )
