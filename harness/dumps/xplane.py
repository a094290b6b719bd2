"""The contents of an .xplane.pb file, a profiler's XSpace: planes, lines, events and statistics, unchanged.

Only the needed part of the public xplane.proto is read. This part includes the statistics of metadata: they hold an
operation's costs (flops, bytes, category, source), which the operation's events lack.
"""

from array import array
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import starmap
from typing import Any, TypeAlias

from google.protobuf import message  # type: ignore[import-untyped]

from harness.dumps.schema import message_class
from harness.errors import RatchetError

Value: TypeAlias = str | int | float | bytes

# Field numbers of planes in a space, lines in a plane and events in a line. `_split` finds these fields, and each field
# is parsed separately, because a parsed event takes ten times the memory of its bytes.
_PLANES, _LINES, _EVENTS = 1, 3, 4
# Strings are read as bytes, because profilers write names that are not UTF-8. An `...Entry` is an entry of a map.
_SCHEMA = {
    "XSpace": (("errors", 2, "bytes*"), ("warnings", 3, "bytes*"), ("hostnames", 4, "bytes*")),
    "XPlane": (
        ("name", 2, "bytes"),
        ("event_metadata", 4, "EventEntry*"),
        ("stat_metadata", 5, "StatEntry*"),
        ("stats", 6, "XStat*"),
    ),
    "EventEntry": (("key", 1, "int64"), ("value", 2, "XEventMetadata")),
    "StatEntry": (("key", 1, "int64"), ("value", 2, "XStatMetadata")),
    "XLine": (("name", 2, "bytes"), ("timestamp_ns", 3, "int64"), ("display_name", 11, "bytes")),
    "XEvent": (
        ("metadata_id", 1, "int64"),
        ("offset_ps", 2, "int64"),
        ("duration_ps", 3, "int64"),
        ("stats", 4, "XStat*"),
        ("num_occurrences", 5, "int64!"),
    ),
    "XStat": (
        ("metadata_id", 1, "int64"),
        ("double_value", 2, "double!"),
        ("uint64_value", 3, "uint64!"),
        ("int64_value", 4, "int64!"),
        ("str_value", 5, "bytes!"),
        ("bytes_value", 6, "bytes!"),
        ("ref_value", 7, "uint64!"),
    ),
    "XEventMetadata": (("name", 2, "bytes"), ("display_name", 4, "bytes"), ("stats", 5, "XStat*")),
    "XStatMetadata": (("name", 2, "bytes"),),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Described:
    """The metadata of all events of one kind: a name, a shorter name, statistics (flops, category, source)."""

    name: str
    display_name: str = ""
    stats: Mapping[str, Value]


@dataclass(frozen=True, slots=True, kw_only=True)
class Event:
    """One event. `start_ps` counts from an origin that all lines of a file share.

    If `occurrences` is not None, the event is an aggregate of this number of events, without a start time.
    """

    of: Described
    start_ps: int
    duration_ps: int
    stats: Mapping[str, Value]
    occurrences: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Line:
    """One row of a plane: a thread, a stream, a queue. `unnamed_events` counts events whose metadata the file lacks.

    `start_ps` is the start of the first event with a start time; None if no event has one.
    """

    name: str
    events: Sequence[Event]
    start_ps: int | None
    unnamed_events: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Plane:
    """One device or the host. `described` has all its event metadata, including metadata that no event refers to."""

    name: str
    stats: Mapping[str, Value]
    lines: tuple[Line, ...]
    described: tuple[Described, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Space:
    """The contents of one file."""

    planes: tuple[Plane, ...]
    hostnames: tuple[str, ...]
    errors: tuple[str, ...]
    warnings: tuple[str, ...]

    @property
    def is_whole(self) -> bool:
        """True if the file ends with a host's name, as files of profilers do.

        Any other file was made by another program, or is cut off exactly at the end of a plane. A reader cannot
        distinguish these cases.
        """
        return bool(self.hostnames)

    @property
    def start_ps(self) -> int | None:
        """The start of the first event with a start time; None if no event has one."""
        starts = (line.start_ps for plane in self.planes for line in plane.lines)
        return min((start for start in starts if start is not None), default=None)


def read(data: bytes, name: str) -> Space:
    """The XSpace in `data`; messages call it `name`.

    Raises RatchetError `bad-profile` if `data` is empty, cut off or no XSpace.
    """
    if not data:
        raise RatchetError("bad-profile", f"{name} is empty: expected a profile (an XSpace); capture it again")
    try:
        places, rest = _split(data, 0, len(data), _PLANES)
        space = _parsed("XSpace", rest)
        planes = tuple(_plane(data, *place) for place in _pairs(places))
    except (message.DecodeError, IndexError) as error:
        raise RatchetError(
            "bad-profile",
            f"{name} is not a complete profile: its {len(data):,} bytes end or break off in the middle of a field "
            "(truncated while copying or writing, or not an .xplane.pb file); capture or copy it again",
        ) from error
    if not planes or not all(plane.name for plane in planes):
        raise RatchetError(
            "bad-profile",
            f"{name} is not a profile: expected an XSpace with named planes, got {len(data):,} bytes without any; "
            "capture it again",
        )
    return Space(
        planes=planes, hostnames=_texts(space.hostnames), errors=_texts(space.errors), warnings=_texts(space.warnings)
    )


def _plane(data: bytes, start: int, end: int) -> Plane:
    places, rest = _split(data, start, end, _LINES)
    plane = _parsed("XPlane", rest)
    names = {entry.key: _text(entry.value.name) for entry in plane.stat_metadata}
    described = {
        entry.key: Described(
            name=_text(entry.value.name),
            display_name=_text(entry.value.display_name),
            stats=_stats(entry.value.stats, names),
        )
        for entry in plane.event_metadata
    }
    return Plane(
        name=_text(plane.name),
        stats=_stats(plane.stats, names),
        lines=tuple(_line(data, *place, described, names) for place in _pairs(places)),
        described=tuple(described.values()),
    )


def _line(data: bytes, start: int, end: int, described: Mapping[int, Described], names: Mapping[int, str]) -> Line:
    places, rest = _split(data, start, end, _EVENTS)
    line = _parsed("XLine", rest)
    named, first = array("I"), None
    for begin, stop in _pairs(places):
        event = _parsed("XEvent", data[begin:stop])
        if event.metadata_id in described:
            named.append(begin)
            named.append(stop)
            if not event.HasField("num_occurrences") and (first is None or event.offset_ps < first):
                first = event.offset_ps
    origin = line.timestamp_ns * 1000
    return Line(
        name=_text(line.name) or _text(line.display_name),
        events=_Events(data, named, origin, described, names),
        start_ps=None if first is None else origin + first,
        unnamed_events=(len(places) - len(named)) // 2,
    )


@dataclass(slots=True, eq=False, repr=False)
class _Events(Sequence[Event]):
    """The events of one line, each parsed on access: parsed together they would take 15 times their bytes."""

    data: bytes
    places: "array[int]"
    origin_ps: int
    described: Mapping[int, Described]
    names: Mapping[int, str]

    def __len__(self) -> int:
        return len(self.places) // 2

    def __getitem__(self, at: Any) -> Any:
        if isinstance(at, slice):
            return tuple(self[place] for place in range(len(self))[at])
        first = 2 * range(len(self))[at]
        return self._event(*self.places[first : first + 2])

    def __iter__(self) -> Iterator[Event]:
        return starmap(self._event, _pairs(self.places))

    def _event(self, start: int, end: int) -> Event:
        event = _parsed("XEvent", self.data[start:end])
        return Event(
            of=self.described[event.metadata_id],
            start_ps=self.origin_ps + event.offset_ps,
            duration_ps=event.duration_ps,
            stats=_stats(event.stats, self.names),
            occurrences=event.num_occurrences if event.HasField("num_occurrences") else None,
        )


def _split(data: bytes, at: int, end: int, number: int) -> "tuple[array[int], bytes]":
    """Start and end of each field with this `number`, in one flat array; and the bytes of all other fields.

    The message is between the offsets `at` and `end`. Raises DecodeError or IndexError if the message breaks off.
    Raises OverflowError beyond 4 GiB (protobuf's limit is 2 GiB).
    """
    places, others = array("I"), bytearray()
    while at < end:
        start = at
        key, at = _varint(data, at)
        if key < _LEAST_KEY:
            # A file whose blocks were never written has zeros; reading them one by one would be useless.
            raise message.DecodeError("no field has the number 0")
        kind = key & 7
        if kind == _BYTES:
            length, at = _varint(data, at)
            at += length
            if at > end:
                break
            if key >> 3 == number:
                places.append(at - length)
                places.append(at)
                continue
        elif kind == _VARINT:
            _, at = _varint(data, at)
        else:
            at += _FIXED.get(kind, 0)
        others += data[start:at]
    if at > end:
        raise message.DecodeError("a field is longer than the message that holds it")
    return places, bytes(others)


# Kinds of fields (protobuf.dev, "Encoding"). The kinds for the start and the end of a group have no content.
_VARINT, _BYTES, _FIXED = 0, 2, {1: 8, 5: 4}
# The key of field 1.
_LEAST_KEY = 1 << 3
_VARINT_BITS = 70


def _varint(data: bytes, at: int) -> tuple[int, int]:
    """The number at offset `at`, and the offset after it."""
    value = data[at]
    if value < 128:
        return value, at + 1
    value = 0
    for shift in range(0, _VARINT_BITS, 7):
        byte = data[at]
        at += 1
        value |= (byte & 127) << shift
        if byte < 128:
            return value, at
    raise message.DecodeError("a number of more than ten bytes")


def _pairs(places: Iterable[int]) -> Iterator[tuple[int, int]]:
    each = iter(places)
    return zip(each, each, strict=True)


_NOTHING: Mapping[str, Value] = {}


def _stats(stats: Sequence[Any], names: Mapping[int, str]) -> Mapping[str, Value]:
    """The last statistic of each name, by name; statistics without a name or a value are left out."""
    return dict(_named(stats, names)) if stats else _NOTHING


def _named(stats: Sequence[Any], names: Mapping[int, str]) -> Iterator[tuple[str, Value]]:
    for stat in stats:
        kind = stat.WhichOneof("value")
        if kind is None or stat.metadata_id not in names:
            continue
        value: Value = getattr(stat, kind)
        if kind == "str_value":
            assert isinstance(value, bytes)
            value = _text(value)
        elif kind == "ref_value":
            assert isinstance(value, int)
            value = names.get(value, "")
        yield names[stat.metadata_id], value


def _text(value: bytes) -> str:
    return value.decode("utf-8", "replace")


def _texts(values: Sequence[bytes]) -> tuple[str, ...]:
    return tuple(map(_text, values))


def _parsed(kind: str, data: bytes) -> Any:
    return _message_class(kind).FromString(data)


@cache
def _message_class(kind: str) -> Any:
    return message_class(f"xplane_subset_{kind}", _SCHEMA, kind)
