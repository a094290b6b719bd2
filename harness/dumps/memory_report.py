"""Reports on device memory without a capture: the compiler's out-of-memory message, and JAX's snapshot.

The message is that of XLA:TPU ("Ran out of memory in memory space hbm"); the snapshot is the file of
`jax.profiler.save_device_memory_profile`, a compressed profile in pprof's form.
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
_FULL = re.compile(
    r"Ran out of memory in memory space (?P<space>\w+)\. Used (?P<used>[\d.]+[KMGT]?) of (?P<most>[\d.]+[KMGT]?) \w+"
)
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
    source: str
    label: str


@dataclass(frozen=True, slots=True, kw_only=True)
class OutOfMemory:
    """A program that does not fit into `space` (hbm, vmem); `parts` are its kinds of allocations, in bytes."""

    space: str
    used_bytes: int
    capacity_bytes: int
    parts: tuple[tuple[str, int], ...]
    largest: tuple[ProgramAllocation, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Held:
    """Buffers (or programs) of one place that a device holds: the calls of Python that asked for them, innermost
    first.
    """

    bytes: int
    count: int
    kind: str
    device: str
    calls: tuple[str, ...]


def out_of_memory(text: str) -> OutOfMemory | None:
    """The compiler's message in `text`, None if there is none."""
    full = _FULL.search(text)
    if full is None:
        return None
    body = text[full.end() :].replace("\\n", "\n").replace('\\"', '"')
    # The message says everything twice where JAX quotes the compiler's reply behind it.
    body = body.partition("[type.googleapis.com")[0]
    return OutOfMemory(
        space=full["space"],
        used_bytes=_bytes(full["used"]),
        capacity_bytes=_bytes(full["most"]),
        parts=tuple((name, _bytes(size)) for name, size in _PART.findall(body.partition("Largest program")[0])),
        largest=tuple(_allocations(body)),
    )


def _allocations(body: str) -> Iterator[ProgramAllocation]:
    starts = list(_ENTRY.finditer(body))
    for start, end in zip(starts, [*(following.start() for following in starts[1:]), len(body)], strict=True):
        fields = dict(_LINE.findall(body[start.end() : end]))
        operator = fields.get("Operator", "")
        op_name, source = _OP_NAME.search(operator), _SOURCE.search(operator)
        size = _bytes(start[1])
        yield ProgramAllocation(
            bytes=size,
            needed_bytes=_bytes(fields["Unpadded size"]) if "Unpadded size" in fields else size,
            shape=fields.get("Shape", ""),
            kind=fields.get("Allocation type", ""),
            op_name=op_name[1] if op_name else fields.get("Tag", ""),
            source=f"{source[1]}:{source[2]}" if source and source[2] else source[1] if source else "",
            label=fields.get("XLA label", ""),
        )


def _bytes(text: str) -> int:
    number = text.rstrip("BKMGT")
    unit = text[len(number) :][:1]
    return round(float(number) * _UNITS[unit])


def is_snapshot(data: bytes) -> bool:
    """True if `data` begins as JAX's snapshots do."""
    return data[:2] == _GZIP


def snapshot(data: bytes, name: str) -> tuple[Held, ...]:
    """The contents of devices when the snapshot `name` was taken, largest first; raises RatchetError `bad-profile`."""
    try:
        with gzip.open(io.BytesIO(data)) as stream:
            unpacked = stream.read(reading_limits.UNPACKED.value + 1)
        reading_limits.UNPACKED.check(len(unpacked), name)
        profile = message_class("pprof", _PPROF, "Profile").FromString(unpacked)
        buffers = tuple(_buffers(profile))
    except (OSError, EOFError, zlib.error, message.DecodeError, IndexError, KeyError) as error:
        raise RatchetError(
            "bad-profile",
            f"{name}: expected a snapshot of memory that jax.profiler.save_device_memory_profile wrote, got "
            f"{len(data):,} bytes of something else, or of a part. Take it again",
        ) from error
    return tuple(sorted(buffers, key=lambda buffer: -buffer.bytes))


def _buffers(profile: Any) -> Iterator[Held]:
    text = profile.string_table
    kinds = [text[entry.type] for entry in profile.sample_type]
    size, count = kinds.index("space") if "space" in kinds else len(kinds) - 1, 0
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
