"""Tables of device memory without a capture: an out-of-memory message, and a snapshot of JAX's."""

from pathlib import Path

from harness import reading_limits
from harness.dumps import memory_report
from harness.dumps.memory_report import Held, OutOfMemory, ProgramAllocation
from harness.records import Table
from harness.units import decimal, percent
from harness.workbench.profiles import memory_rules, modules
from harness.workbench.tables import Field, Fields, table_of

# From so much on padding is named: a tile of 8 x 128 elements holds at least this share of others.
_PADDED = 1.25
# As many queries and keys as make scores that fill memory.
_LONG = 1024
# Frames of JAX itself say nothing about whose the buffer is.
_OF_JAX = ("/jax/", "/jaxlib/")

_LARGEST: Fields[ProgramAllocation] = (
    Field("shape", "shape", lambda allocation: allocation.shape.partition("{")[0], is_whole=True),
    Field("bytes", "size", lambda allocation: allocation.bytes, "B"),
    Field("needed_bytes", "without padding", lambda allocation: allocation.needed_bytes, "B"),
    Field("category", "what for", lambda allocation: memory_rules.category_of_name(allocation.op_name)),
    Field("remedy", "what makes it smaller", lambda allocation: remedy(allocation), is_whole=True),
    Field("source", "source", lambda allocation: allocation.source),
    Field("operation", "from", lambda allocation: allocation.op_name.partition("[")[0]),
)
_HELD: Fields[Held] = (
    Field("bytes", "size", lambda buffer: buffer.bytes, "B"),
    Field("count", "count", lambda buffer: buffer.count, "count"),
    Field("kind", "kind", lambda buffer: buffer.kind),
    Field("device", "device", lambda buffer: buffer.device),
    Field("place", "asked for in", lambda buffer: _place(buffer), is_whole=True),
)


def read(path: Path) -> tuple[Table, ...] | None:
    """The tables of a file that is a message or a snapshot, None if it is neither; raises RatchetError."""
    if not path.is_file() or modules.is_module(path):
        return None
    data = reading_limits.read(path)
    if memory_report.is_snapshot(data):
        return (_snapshot(memory_report.snapshot(data, str(path)), path.name),)
    try:
        text = data.decode()
    except UnicodeDecodeError:
        return None
    full = memory_report.out_of_memory(text)
    return _tables(full, path.name) if full is not None else None


def remedy(allocation: ProgramAllocation) -> str:
    """Words on a way to make such an allocation smaller; "" if no rule applies."""
    sizes = memory_rules.dimensions(allocation.shape)
    if "window allocation" in allocation.op_name:
        return "smaller blocks in the BlockSpec"
    if (
        len(sizes) > 1
        and min(sizes[-2:]) >= _LONG
        and memory_rules.category_of_name(allocation.op_name) == memory_rules.ATTENTION
    ):
        return "scores of attention: a fused kernel keeps none"
    if allocation.bytes > _PADDED * allocation.needed_bytes:
        return "padded to tiles: let the last two dimensions be multiples of 8 and 128"
    if sizes and sizes[-1] >= memory_rules.VOCABULARY_ELEMENTS:
        return "as large as a vocabulary: compute the loss in chunks of tokens"
    if "jvp(" in allocation.op_name and "transpose(" not in allocation.op_name:
        return "kept for the backward pass: jax.checkpoint, or a smaller batch"
    return ""


def _tables(full: OutOfMemory, name: str) -> tuple[Table, ...]:
    over = full.used_bytes - full.capacity_bytes
    space = full.space.upper()
    notes = [
        f"The program needs {decimal(full.used_bytes, 'B', 2)} of {space}, {decimal(over, 'B', 2)} more than the "
        f"{decimal(full.capacity_bytes, 'B', 2)} that there are."
    ]
    notes += [f"{part}: {decimal(size, 'B', 2)}" for part, size in full.parts if size]
    named = sum(allocation.bytes for allocation in full.largest)
    if full.largest:
        notes.append(
            f"The allocations below are {percent(named / full.used_bytes)} of it; the compiler names no others."
        )
    return (
        table_of(
            "out_of_memory",
            f"why {name} did not fit into {space}",
            "static",
            _LARGEST,
            full.largest,
            notes,
            "the message names no allocation",
        ),
    )


def _snapshot(listed: tuple[Held, ...], name: str) -> Table:
    total = sum(buffer.bytes for buffer in listed)
    return table_of(
        "held",
        f"what devices held when {name} was taken",
        "measured",
        _HELD,
        [buffer for buffer in listed if buffer.bytes],
        [f"{decimal(total, 'B', 2)} in all. A snapshot has no peak: it shows what was alive at that moment."],
        "nothing was alive",
    )


def _place(buffer: Held) -> str:
    """The innermost call that is not JAX's own."""
    return next(
        (call for call in buffer.calls if not any(part in call for part in _OF_JAX)), next(iter(buffer.calls), "")
    )
