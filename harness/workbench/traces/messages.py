"""The protobuf messages for writing a profile: XSpace of xplane.proto and the messages inside it."""

from collections.abc import Mapping
from functools import cache
from typing import Any

from harness.dumps.schema import Schema, message_class

# Text fields are bytes here: names may be invalid UTF-8, and are written unchanged.
_SCHEMA: Schema = {
    "XSpace": (("planes", 1, "XPlane*"), ("hostnames", 4, "bytes*")),
    "XPlane": (
        ("id", 1, "int64"),
        ("name", 2, "bytes"),
        ("lines", 3, "XLine*"),
        ("event_metadata", 4, "EventEntry*"),
        ("stat_metadata", 5, "StatEntry*"),
        ("stats", 6, "XStat*"),
    ),
    "EventEntry": (("key", 1, "int64"), ("value", 2, "XEventMetadata")),
    "StatEntry": (("key", 1, "int64"), ("value", 2, "XStatMetadata")),
    "XLine": (("id", 1, "int64"), ("name", 2, "bytes"), ("events", 4, "XEvent*")),
    "XEvent": (
        ("metadata_id", 1, "int64"),
        ("offset_ps", 2, "int64"),
        ("duration_ps", 3, "int64"),
        ("stats", 4, "XStat*"),
    ),
    "XEventMetadata": (("id", 1, "int64"), ("name", 2, "bytes"), ("display_name", 4, "bytes"), ("stats", 5, "XStat*")),
    "XStatMetadata": (("id", 1, "int64"), ("name", 2, "bytes")),
    "XStat": (
        ("metadata_id", 1, "int64"),
        ("double_value", 2, "double!"),
        ("uint64_value", 3, "uint64!"),
        ("str_value", 5, "bytes!"),
        ("bytes_value", 6, "bytes!"),
    ),
}


def new_space(host: str) -> Any:
    """An XSpace of `host`, without planes."""
    return _space_class()(hostnames=[text(host)])


@cache
def _space_class() -> Any:
    return message_class("written_xspace", _SCHEMA, "XSpace")


class Names:
    """The names of a plane's statistics, each stored once. Call `into` after the last `add`."""

    def __init__(self) -> None:
        self._numbers: dict[str, int] = {}

    def add(self, stats: Any, values: Mapping[str, int | float | str | bytes]) -> None:
        """Adds the `values`, by name, to `stats`, a repeated field of XStat."""
        kinds = {int: "uint64_value", float: "double_value", str: "str_value", bytes: "bytes_value"}
        for name, value in values.items():
            number = self._numbers.setdefault(name, len(self._numbers) + 1)
            written = text(value) if isinstance(value, str) else value
            stats.add(metadata_id=number, **{kinds[type(value)]: written})

    def into(self, plane: Any) -> None:
        """Writes the names into the plane."""
        for name, number in self._numbers.items():
            plane.stat_metadata.add(key=number, value={"id": number, "name": text(name)})


def text(value: str) -> bytes:
    """A string as UTF-8 bytes; a lone surrogate, which UTF-8 cannot encode, becomes `?`."""
    return value.encode("utf-8", "replace")
