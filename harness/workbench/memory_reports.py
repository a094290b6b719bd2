"""Tables of device memory without a capture: from an out-of-memory message, or from a snapshot that JAX wrote."""

from pathlib import Path

from harness import reading_limits
from harness.dumps import memory_report
from harness.dumps.memory_report import Held, OutOfMemory, ProgramAllocation, Refused
from harness.errors import RatchetError
from harness.records import Cell, Table
from harness.units import decimal, percent
from harness.workbench.profiles import memory_rules, modules
from harness.workbench.tables import columns, table

# Padding is reported if it makes an allocation this many times as large.
_PADDED = 1.25
# With at least this many queries and keys, attention scores fill the memory.
_LONG = 1024
# Frames of JAX itself do not show which code of the user made a buffer.
_OF_JAX = ("/jax/", "/jaxlib/")

_SIZES = "shape!;bytes=size;needed_bytes=without padding"
_LARGEST = columns(f"{_SIZES};category=what for;remedy=what makes it smaller!;source;operation=from")
_IN_KERNEL = columns(f"{_SIZES};remedy=what makes it smaller!;source;operation=from;buffer=what it is!")
_REFUSED_REMEDY = {
    True: "see what the program needs: .lower(...).compile().memory_analysis(); then use a smaller batch, "
    "jax.checkpoint, or donate_argnums for arguments that are not needed afterwards",
    False: "see what else is in device memory: call jax.profiler.save_device_memory_profile just before, and pass the "
    "file to `xprof memory`",
}
# Memory spaces that only kernels use: no tensor of the model is in them.
_OF_KERNELS = ("vmem", "smem", "sflag", "cmem")
_LIMIT = (
    "The limit is the kernel's own or the default: raise it with vmem_limit_bytes in pltpu.CompilerParams, or for all "
    "kernels with --xla_tpu_scoped_vmem_limit_kib in LIBTPU_INIT_ARGS, up to the chip's VMEM."
)


def read(path: Path) -> tuple[Table, ...] | None:
    """The tables of an out-of-memory message or memory snapshot.

    None for a folder, a module's own file, an empty file and any other binary file. Raises RatchetError `bad-profile`
    for any other text.
    """
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
    if full is not None:
        return (_out_of_memory(full, path.name),)
    asked = memory_report.refused(text)
    if asked is not None:
        return (_refused(asked, path.name),)
    if text and all(character.isprintable() or character.isspace() for character in text):
        raise RatchetError(
            "bad-profile",
            f"{path}: expected a capture, a memory snapshot, or an error message that states the requested memory, "
            f"got {len(text):,} characters of other text",
        )
    return None


def remedy(allocation: ProgramAllocation) -> str:
    """A way to make the allocation smaller, in words; "" if no rule applies."""
    sizes = memory_rules.dimensions(allocation.shape)
    tag = allocation.tag.lower()
    if "window allocation" in tag:
        return "use smaller blocks in the BlockSpec"
    if "scratch" in tag:
        return "use smaller or fewer scratch_shapes"
    if "prefetch" in tag or allocation.kind == "smem":
        return "use shorter tables: prefetch less (num_scalar_prefetch), or keep a table in HBM and copy parts of it"
    if allocation.kind == "scoped":
        return "use smaller blocks: blocks, scratch and the values between operations share this memory"
    if (
        len(sizes) > 1
        and min(sizes[-2:]) >= _LONG
        and memory_rules.category_of_name(allocation.op_name) == memory_rules.ATTENTION
    ):
        return "use a fused kernel: it stores no attention scores"
    if len(sizes) > 2 and sizes[-1] == sizes[-2] >= _LONG:
        return "if these are attention scores, use a fused kernel: it stores none"
    if allocation.bytes > _PADDED * allocation.needed_bytes:
        return "avoid padding to tiles: let the last two dimensions be multiples of 8 and 128"
    if sizes and sizes[-1] >= memory_rules.VOCABULARY_ELEMENTS:
        return "compute the loss in chunks of tokens: one dimension is as large as a vocabulary"
    if "jvp(" in allocation.op_name and "transpose(" not in allocation.op_name:
        return "use jax.checkpoint or a smaller batch: this array is kept for the backward pass"
    return ""


def _out_of_memory(full: OutOfMemory, name: str) -> Table:
    over = full.used_bytes - full.capacity_bytes
    space = full.space.upper()
    is_kernel = full.space in _OF_KERNELS
    there_are = "that its limit allows" if full.is_limit else "of the device"
    notes = [
        f"The {'kernel' if is_kernel else 'program'} needs {decimal(full.used_bytes, 'B', 2)} of {space}, "
        f"{decimal(over, 'B', 2)} more than the {decimal(full.capacity_bytes, 'B', 2)} {there_are}."
    ]
    if full.is_limit and full.space == "vmem":
        notes.append(_LIMIT)
    notes += [f"{part}: {decimal(size, 'B', 2)}" for part, size in full.parts if size]
    named = sum(allocation.bytes for allocation in full.largest)
    if full.largest and named < full.used_bytes:
        notes.append(
            f"The allocations below are {percent(named / full.used_bytes)} of this size; the compiler lists no others."
        )
    shown, why = _IN_KERNEL if is_kernel else _LARGEST, " ".join((*notes, "The message lists no allocation."))
    title = f"what did not fit into {space}, according to {name}"
    rows = [_row(allocation, is_kernel=is_kernel) for allocation in full.largest]
    return table("out_of_memory", title, "static", shown, rows, notes, why)


def _row(allocation: ProgramAllocation, *, is_kernel: bool) -> tuple[Cell, ...]:
    sizes = allocation.shape.partition("{")[0], allocation.bytes, allocation.needed_bytes
    origin = remedy(allocation), allocation.source, allocation.op_name.partition("[")[0]
    if is_kernel:
        return (*sizes, *origin, allocation.tag.partition(" The u8 ")[0])
    return (*sizes, memory_rules.category_of_name(allocation.op_name), *origin)


def _refused(asked: Refused, name: str) -> Table:
    size = decimal(asked.bytes, "B", 2)
    free = "" if asked.free_bytes is None else f", and {decimal(asked.free_bytes, 'B', 2)} were free"
    what = "a program" if asked.is_program else "an array"
    row = (asked.bytes, asked.free_bytes, what, _REFUSED_REMEDY[asked.is_program])
    title = f"what did not fit into the device's memory, according to {name}"
    columns = "bytes=size;free_bytes=free;what;remedy=what to do!"
    return table("refused", title, "static", columns, [row], [f"A{what[1:]} of {size} could not be allocated{free}."])


def _snapshot(listed: tuple[Held, ...], name: str) -> Table:
    total = decimal(sum(buffer.bytes for buffer in listed), "B", 2)
    notes = [f"{total} in all. A snapshot shows no peak, only the buffers that were alive at that moment."]
    rows = [(each.bytes, each.count, each.kind, each.device, _place(each)) for each in listed if each.bytes]
    title, columns = f"device memory when {name} was taken", "bytes=size;count;kind;device;place=allocated in!"
    return table("held", title, "measured", columns, rows, notes, "no buffer was alive")


def _place(buffer: Held) -> str:
    """The innermost call outside JAX, or the innermost of all if all are in JAX; "" if the snapshot has no calls."""
    callers = (call for call in buffer.calls if not any(part in call for part in _OF_JAX))
    return next(iter((*callers, *buffer.calls)), "")
