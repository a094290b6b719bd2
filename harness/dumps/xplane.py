"""The contents of an .xplane.pb file, a profiler's XSpace: planes, lines, events and statistics, as they are there.

The file is read with the part of the public xplane.proto that is needed, metadata's own statistics
included: what an operation costs (flops, bytes, category, source) stands there, not with its events.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any, TypeAlias

from google.protobuf import message  # type: ignore[import-untyped]

from harness.dumps.schema import message_class
from harness.errors import RatchetError

Value: TypeAlias = str | int | float | bytes

# Strings are read as bytes: profilers put names there that are no UTF-8. Entries are those of maps. Planes and lines
# are read as bytes too, and parsed one by one: what is parsed takes several times as much and is given back each time.
_SCHEMA = {
    "XSpace": (
        ("planes", 1, "bytes*"),
        ("errors", 2, "bytes*"),
        ("warnings", 3, "bytes*"),
        ("hostnames", 4, "bytes*"),
    ),
    "XPlane": (
        ("name", 2, "bytes"),
        ("lines", 3, "bytes*"),
        ("event_metadata", 4, "EventEntry*"),
        ("stat_metadata", 5, "StatEntry*"),
        ("stats", 6, "XStat*"),
    ),
    "EventEntry": (("key", 1, "int64"), ("value", 2, "XEventMetadata")),
    "StatEntry": (("key", 1, "int64"), ("value", 2, "XStatMetadata")),
    "XLine": (
        ("name", 2, "bytes"),
        ("timestamp_ns", 3, "int64"),
        ("events", 4, "XEvent*"),
        ("display_name", 11, "bytes"),
    ),
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
    "XEventMetadata": (
        ("name", 2, "bytes"),
        ("display_name", 4, "bytes"),
        ("stats", 5, "XStat*"),
    ),
    "XStatMetadata": (("name", 2, "bytes"),),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Described:
    """What is the same for all events of one kind: a name, a shorter one, statistics (flops, category, source)."""

    name: str
    display_name: str = ""
    stats: Mapping[str, Value]


@dataclass(frozen=True, slots=True, kw_only=True)
class Event:
    """One event. `start_ps` counts from the line's origin of time, which all lines of a file share.

    `occurrences` is not None for an event that stands for so many and has no place in time.
    """

    of: Described
    start_ps: int
    duration_ps: int
    stats: Mapping[str, Value]
    occurrences: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Line:
    """One row of a plane: a thread, a stream, a queue. `unnamed_events` are those whose metadata the file lacks."""

    name: str
    events: tuple[Event, ...]
    unnamed_events: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Plane:
    """One device or the host; `described` is all of its event metadata, also what no event refers to."""

    name: str
    stats: Mapping[str, Value]
    lines: tuple[Line, ...]
    described: tuple[Described, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Space:
    """One file. `is_whole` says that it ends as profilers end it, with a host's name.

    Without that it was made by something else, or is cut off just where a plane ends, which no reader can tell.
    """

    planes: tuple[Plane, ...]
    hostnames: tuple[str, ...]
    errors: tuple[str, ...]
    warnings: tuple[str, ...]

    @property
    def is_whole(self) -> bool:
        """Whether the file's last field is there."""
        return bool(self.hostnames)


def read(data: bytes, name: str) -> Space:
    """The XSpace in `data`; `name` is what messages call it.

    Raises RatchetError `bad-profile` where it is empty, cut off or something else.
    """
    if not data:
        raise RatchetError("bad-profile", f"{name} is empty; expected a profile (an XSpace). Capture it again")
    try:
        space = _parsed("XSpace", data)
        planes = tuple(_plane(_parsed("XPlane", plane)) for plane in space.planes)
    except message.DecodeError as error:
        raise RatchetError(
            "bad-profile",
            f"{name} is no whole profile: its {len(data):,} bytes end or break off in the middle of a field "
            "(truncated while copying or writing, or not an .xplane.pb file). Capture or copy it again",
        ) from error
    if not planes or not all(plane.name for plane in planes):
        raise RatchetError(
            "bad-profile",
            f"{name} is no profile: expected an XSpace with named planes, its {len(data):,} bytes hold none. "
            "Capture it again",
        )
    return Space(
        planes=planes,
        hostnames=_texts(space.hostnames),
        errors=_texts(space.errors),
        warnings=_texts(space.warnings),
    )


def _plane(plane: Any) -> Plane:
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
        lines=tuple(_line(_parsed("XLine", line), described, names) for line in plane.lines),
        described=tuple(described.values()),
    )


def _line(line: Any, described: Mapping[int, Described], names: Mapping[int, str]) -> Line:
    origin = line.timestamp_ns * 1000
    events = [
        Event(
            of=described[event.metadata_id],
            start_ps=origin + event.offset_ps,
            duration_ps=event.duration_ps,
            stats=_stats(event.stats, names),
            occurrences=event.num_occurrences if event.HasField("num_occurrences") else None,
        )
        for event in line.events
        if event.metadata_id in described
    ]
    return Line(
        name=_text(line.name) or _text(line.display_name),
        events=tuple(events),
        unnamed_events=len(line.events) - len(events),
    )


_NOTHING: Mapping[str, Value] = {}


def _stats(stats: Sequence[Any], names: Mapping[int, str]) -> Mapping[str, Value]:
    """By name; of several called so the last. A statistic without a name or a value is left out."""
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
    return tuple(_text(value) for value in values)


def _parsed(kind: str, data: bytes) -> Any:
    found = _message_class(kind)()
    found.ParseFromString(data)
    return found


@cache
def _message_class(kind: str) -> Any:
    return message_class(f"xplane_subset_{kind}", _SCHEMA, kind)
