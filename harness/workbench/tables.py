"""Tables, and their columns parsed from a text."""

import re
from collections.abc import Iterable, Sequence
from typing import Any

from harness.records import Cell, Column, Table
from harness.records.table import Origin, Unit

# The unit of a column, by the end of its name.
_UNITS: tuple[tuple[str, Unit], ...] = (
    ("flops_per_second", "FLOP/s"),
    ("bytes_per_second", "B/s"),
    ("flops_per_byte", "FLOP/B"),
    ("seconds", "s"),
    ("bytes", "B"),
    ("flops", "FLOP"),
    ("fraction", "fraction"),
    ("share", "fraction"),
    ("ratio", "ratio"),
    ("count", "count"),
)
_COLUMN = re.compile(r"(\w+)(?:=([^:!]*))?(?::([^!]*))?(!?)")


def columns(text: str) -> tuple[Column, ...]:
    """The columns in a text such as `name;name=title;name=title:unit;name:unit`.

    If no unit is stated, the name's ending gives the unit. A column that ends in `!` is printed in full.
    """
    return tuple(map(_column, text.split(";")))


def unit_of(name: str) -> Unit:
    """The unit of a column, by its name's ending."""
    return next((unit for ending, unit in _UNITS if name.endswith(ending)), "")


def _column(text: str) -> Column:
    match = _COLUMN.fullmatch(text.strip())
    assert match is not None, text
    name, title, unit, whole = match.groups()
    kind: Any = unit_of(name) if unit is None else unit
    return Column(name=name, title=name if title is None else title, unit=kind, is_whole=bool(whole))


def table(
    name: str,
    title: str,
    origin: Origin,
    of: Sequence[Column] | str,
    rows: Iterable[Sequence[Cell]],
    notes: Iterable[str] = (),
    why_empty: str = "",
) -> Table:
    """A table of `rows`; `of` is its columns, or a text that `columns` parses.

    The table keeps `notes` only if it has rows, and `why_empty` only if it has none.
    """
    kept = tuple(map(tuple, rows))
    return Table(
        name=name,
        title=title,
        origin=origin,
        columns=columns(of) if isinstance(of, str) else tuple(of),
        rows=kept,
        notes=tuple(notes) if kept else (),
        why_empty="" if kept else why_empty,
    )
