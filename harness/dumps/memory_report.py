"""Reads reports on device memory that need no capture: the compiler's out-of-memory message, and JAX's snapshot.

The message comes from XLA:TPU or from the runtime ("Attempting to allocate ..."). XLA:TPU's message is about a program
("Ran out of memory in memory space hbm") or a kernel ("Scoped allocation with size ...", "Allocation (size=...) would
exceed memory"). The snapshot is the file of `jax.profiler.save_device_memory_profile`, a profile in pprof's form.
"""

import gzip
import io
import re
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from google.protobuf import message  # type: ignore[import-untyped]

from harness import reading_limits
from harness.dumps.schema import message_class
from harness.errors import RatchetError

_GZIP = b"\x1f\x8b"
# Every snapshot of JAX has these strings in its table of strings; a capture has no such table. Unpacked files larger
# than `_UNPACKED_BYTES` count as captures.
_STRINGS = {"space", "allocations", "bytes"}
_UNPACKED_BYTES = 64 << 20
_UNIT = r"[KMGT]?(?:i?B)?"
_SIZE = rf"[\d.]+{_UNIT}"
_FULL = re.compile(
    rf"Ran out of memory in memory space (?P<space>\w+)\. Used (?P<used>{_SIZE}) of (?P<most>{_SIZE}) \w+"
)
# libtpu's message about a kernel's buffers and the values between its operations.
_SCOPED = re.compile(
    r"Ran out of memory in memory space (?P<space>\w+)(?: while allocating on stack for (?P<name>%?\S+)"
    r"(?: = (?P<shape>\S+))?.*?)?\.?\s+Scoped allocation with size (?P<used>[\d.]+[KMGT]?) and limit "
    r"(?P<most>[\d.]+[KMGT]?) exceeded",
    re.DOTALL,
)
_SINGLE = re.compile(
    r"Allocation \(size=(?P<used>\d+)\) would exceed memory \(size=(?P<most>\d+)\)"
    r"(?: :: #\w+ \[shape = '(?P<shape>[^']*)', space=(?P<space>\w+)(?:[^\]]*?tag = '(?P<tag>[^']*)')?)?"
)
# Messages of the runtimes about an array or a program, and of XLA's allocator for GPUs. Some name the free bytes.
_ASKED = (
    re.compile(r"Attempting to (?P<what>allocate|reserve) (?P<size>[\d.]+[KMGT]?)\b"),
    re.compile(rf"[Oo]ut of memory (?:while )?(?P<what>trying to allocate|allocating) (?P<size>[\d.]+ ?{_UNIT})\b"),
)
_FREE = re.compile(r"There (?:are|is) (?P<free>[\d.]+[KMGT]?B?) free")
_ENTRY = re.compile(r"^\s*\d+\.\s+Size:\s+(\S+)\s*$", re.MULTILINE)
_LINE = re.compile(r"^\s*(Operator|Shape|Unpadded size|XLA label|Allocation type|Tag):\s+(.*)$", re.MULTILINE)
_PART = re.compile(r"^ {4}(\S[\w ]*?) {2,}([\d.]+[KMGTB]+)\b", re.MULTILINE)
_OP_NAME = re.compile(r'op_name="([^"]*)"')
_SOURCE = re.compile(r'source_file="([^"]*)"(?: source_line=(\d+))?')
_UNITS = {"": 1, "B": 1, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30, "T": 1 << 40}
_PPROF = {
    "Profile": (
        ("sample_type", 1, "ValueType*"),
        ("sample", 2, "Sample*"),
        ("location", 4, "Location*"),
        ("function", 5, "Function*"),
        ("string_table", 6, "string*"),
    ),
    "ValueType": (("type", 1, "int64"), ("unit", 2, "int64")),
    "Sample": (("location_id", 1, "uint64*"), ("value", 2, "int64*"), ("label", 3, "Label*")),
    "Label": (("key", 1, "int64"), ("str", 2, "int64")),
    "Location": (("id", 1, "uint64"), ("line", 4, "Line*")),
    "Line": (("function_id", 1, "uint64"), ("line", 2, "int64")),
    "Function": (("id", 1, "uint64"), ("name", 2, "int64"), ("filename", 4, "int64")),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class ProgramAllocation:
    """One of the largest allocations that the compiler names; `needed_bytes` is its size without padding by tiles."""

    bytes: int
    needed_bytes: int
    shape: str
    kind: str
    op_name: str
    source: str = ""
    label: str = ""
    tag: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class OutOfMemory:
    """A program that does not fit into `space` (hbm, vmem); `parts` has the bytes of each kind of allocation.

    If `is_limit`, the capacity is a limit that the kernel or a flag sets; the memory itself may be larger.
    """

    space: str
    used_bytes: int
    capacity_bytes: int
    parts: tuple[tuple[str, int], ...] = ()
    largest: tuple[ProgramAllocation, ...] = ()
    is_limit: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Refused:
    """An array or program that did not fit on a device at run time; `free_bytes` is None if the message lacks it."""

    bytes: int
    free_bytes: int | None
    is_program: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Held:
    """Buffers or programs on a device from one place in the code; `calls` is its call stack, innermost first."""

    bytes: int
    count: int
    kind: str
    device: str
    calls: tuple[str, ...]


def out_of_memory(text: str) -> OutOfMemory | None:
    """The compiler's message in `text`; None if `text` has no such message."""
    full = _FULL.search(text)
    if full is None:
        return _scoped(text)
    body = text[full.end() :].replace("\\n", "\n").replace('\\"', '"')
    # If JAX quotes the compiler's reply after the message, the text has every allocation twice.
    body = body.partition("[type.googleapis.com")[0]
    return OutOfMemory(
        space=full["space"].lower(),
        used_bytes=_bytes(full["used"]),
        capacity_bytes=_bytes(full["most"]),
        parts=tuple((name, _bytes(size)) for name, size in _PART.findall(body.partition("Largest program")[0])),
        largest=tuple(_allocations(body)),
    )


def _scoped(text: str) -> OutOfMemory | None:
    """The message about a kernel in `text`: one allocation, and the memory for it. None without such a message."""
    match = _SCOPED.search(text) or _SINGLE.search(text)
    if match is None:
        return None
    words = match.groupdict()
    size = _bytes(words["used"])
    allocation = ProgramAllocation(
        bytes=size,
        needed_bytes=size,
        shape=words["shape"] or "",
        kind="scoped",
        op_name=(words.get("name") or "").lstrip("%"),
        tag=words.get("tag") or "",
    )
    return OutOfMemory(
        space=(words["space"] or "vmem").lower(),
        used_bytes=size,
        capacity_bytes=_bytes(words["most"]),
        largest=(allocation,) if allocation.shape or allocation.op_name else (),
        is_limit=match.re is _SCOPED,
    )


def refused(text: str) -> Refused | None:
    """The runtime's message in `text`; None if `text` has no such message."""
    match = next(filter(None, (form.search(text) for form in _ASKED)), None)
    if match is None:
        return None
    free = _FREE.search(text, match.end())
    return Refused(
        bytes=_bytes(match["size"]),
        free_bytes=_bytes(free["free"]) if free else None,
        is_program=match["what"] == "reserve",
    )


def _allocations(body: str) -> Iterator[ProgramAllocation]:
    _, *parts = _ENTRY.split(body)
    for size_text, entry in zip(parts[::2], parts[1::2], strict=True):
        fields = dict(_LINE.findall(entry))
        operator = fields.get("Operator", "")
        op_name, source = _OP_NAME.search(operator), _SOURCE.search(operator)
        size = _bytes(size_text)
        yield ProgramAllocation(
            bytes=size,
            needed_bytes=_bytes(fields["Unpadded size"]) if "Unpadded size" in fields else size,
            shape=fields.get("Shape", ""),
            kind=fields.get("Allocation type", ""),
            op_name=op_name[1] if op_name else fields.get("Tag", ""),
            source=f"{source[1]}:{source[2]}" if source and source[2] else source[1] if source else "",
            label=fields.get("XLA label", ""),
            tag=fields.get("Tag", ""),
        )


def _bytes(text: str) -> int:
    number = text.rstrip("BKMGTi ")
    unit = text[len(number) :].strip()[:1]
    return round(float(number) * _UNITS[unit])


def is_snapshot(data: bytes) -> bool:
    """True if `data` is compressed, as JAX's snapshots are, or looks like an unpacked snapshot."""
    return data[:2] == _GZIP or (data[:1] == b"\x0a" and len(data) <= _UNPACKED_BYTES and _strings(data) >= _STRINGS)


def _strings(data: bytes) -> set[str]:
    """The strings in the table of `data`, a profile in pprof's form; empty if `data` is something else."""
    try:
        return set(message_class("pprof", _PPROF, "Profile").FromString(data).string_table)
    except (message.DecodeError, ValueError):
        return set()


def snapshot(data: bytes, name: str) -> tuple[Held, ...]:
    """The buffers and programs in a snapshot, largest first; `name` is its file. Raises RatchetError `bad-profile`."""
    try:
        unpacked = data
        if data[:2] == _GZIP:
            with gzip.open(io.BytesIO(data)) as stream:
                unpacked = stream.read(reading_limits.UNPACKED.value + 1)
        reading_limits.UNPACKED.check(len(unpacked), name)
        profile = message_class("pprof", _PPROF, "Profile").FromString(unpacked)
        buffers = tuple(_buffers(profile))
    except (OSError, EOFError, zlib.error, message.DecodeError, IndexError, KeyError, ValueError) as error:
        raise RatchetError(
            "bad-profile",
            f"{name}: expected a memory snapshot written by jax.profiler.save_device_memory_profile, got {len(data):,} "
            "bytes that are something else or incomplete; take the snapshot again",
        ) from error
    return tuple(sorted(buffers, key=lambda buffer: -buffer.bytes))


def _buffers(profile: Any) -> Iterator[Held]:
    text = profile.string_table
    kinds = [text[entry.type] for entry in profile.sample_type]
    # If another program wrote the profile, and the profile has no sizes, `index` raises ValueError.
    size, count = kinds.index("space"), 0
    functions = {entry.id: entry for entry in profile.function}
    locations = {entry.id: entry for entry in profile.location}
    for sample in profile.sample:
        labels = {text[label.key]: text[label.str] for label in sample.label}
        lines = [line for place in sample.location_id for line in locations[place].line]
        yield Held(
            bytes=sample.value[size],
            count=sample.value[count],
            kind=labels.get("kind", ""),
            device=labels.get("device", ""),
            calls=tuple(
                f"{text[functions[line.function_id].filename]}:{line.line} {text[functions[line.function_id].name]}"
                for line in lines
            ),
        )
