"""An analysis of a capture as data: a query, its columns, its notes and what an empty answer means; and what runs "
"it."""

import re
import string
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

from harness import units
from harness.records import Capture, Cell, Column, Table
from harness.records.table import Origin, Unit
from harness.workbench.profiles import op_times
from harness.workbench.profiles.database import Database, opened
from harness.workbench.tables import table

# What a column holds, by the end of its name.
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
_FIELD = re.compile(r"(\w+)(?:=([^:!]*))?(?::([^!]*))?(!?)")
# Figures that an analysis works out beside its rows, by name.
Facts: TypeAlias = dict[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Analysis:
    """One table that a capture is asked for.

    `columns` are those of the query: `name`, `name=title`, `name=title:unit`, `!` behind one that is printed whole,
    parted
    by `;`. The unit is that of the
    name's ending where none is given. `facts` is a query of one row. `title`, `notes` and
    `empty` may hold its figures, as in `{took:s}` (seconds), `{part:%}`, `{size:B}`, `{number:n}`; a note of which a
    figure is NULL
    is left out. Of a query with a column more the last one holds notes too. `empty` is said where something ran and
    there is no row. `is_optional`: without rows there is no table.
    """

    name: str
    title: str
    columns: str
    query: str
    facts: str = ""
    notes: tuple[str, ...] = ()
    empty: str = ""
    origin: Origin | None = None
    is_optional: bool = False
    more: Callable[[Database, Mapping[str, Any]], Facts] | None = None

    @property
    def named_columns(self) -> tuple[Column, ...]:
        """The columns as a table has them."""
        return tuple(map(_column, self.columns.split(";")))


def run(
    database: Database,
    analysis: Analysis,
    parameters: Mapping[str, Any],
    why: str = "",
    *,
    is_about_devices: bool = True,
) -> Table | None:
    """The table; `why` says what is missing from a capture in which the query has nothing to go by."""
    capture = database.capture
    if is_about_devices and not why and not op_times.devices(capture):
        why = op_times.why_nothing_ran(capture)
    rows = [] if why else database.rows(analysis.query, **parameters)
    facts: Facts = dict(parameters)
    if not why and analysis.facts:
        facts |= database.facts(analysis.facts, **parameters)
    if not why and analysis.more:
        facts |= analysis.more(database, parameters)
    if analysis.is_optional and not rows:
        return None
    columns = analysis.named_columns
    of_rows = [row[-1] for row in rows if len(row) > len(columns) and row[-1]]
    return table(
        analysis.name,
        filled(analysis.title, facts) or analysis.title.partition("{")[0].rstrip(": "),
        analysis.origin or op_times.origin(capture),
        columns,
        [row[: len(columns)] for row in rows],
        [*dict.fromkeys(of_rows), *(note for text in analysis.notes for note in _notes(text, facts))],
        why or filled(analysis.empty, facts) or "there is nothing of the kind in the capture",
    )


def tables(capture: Capture, analyses: Sequence[Analysis], **parameters: Cell) -> tuple[Table, ...]:
    """The tables of several analyses of one capture."""
    database = opened(capture)
    return tuple(table_ for one in analyses if (table_ := run(database, one, parameters)) is not None)


def _notes(text: str, facts: Mapping[str, Any]) -> Iterator[str]:
    """One note; of a figure that is a list, and alone in it, each of its sentences."""
    figure = facts.get(text[1:-1])
    if isinstance(figure, list):
        yield from figure
    elif note := filled(text, facts):
        yield note


def filled(text: str, facts: Mapping[str, Any]) -> str:
    """The text with its figures; empty where one of them is not known."""
    names = [name for _, name, _, _ in string.Formatter().parse(text) if name]
    if any(facts.get(name) is None for name in names):
        return ""
    return _Figures().vformat(text, (), facts)


class _Figures(string.Formatter):
    def format_field(self, value: Any, format_spec: str) -> str:
        kind, digits = format_spec[:1], format_spec[1:]
        if kind == "s":
            return units.seconds(value)
        if kind == "%":
            return units.percent(value, int(digits or 1))
        if kind == "n":
            return units.count(value)
        return units.decimal(value, format_spec) if format_spec else str(value)


def unit_of(name: str) -> Unit:
    """What a column holds, by its name's ending."""
    return next((known for ending, known in _UNITS if name.endswith(ending)), "")


def _column(text: str) -> Column:
    match = _FIELD.fullmatch(text.strip())
    assert match is not None, text
    name, title, unit, whole = match.groups()
    kind: Any = unit_of(name) if unit is None else unit
    return Column(name=name, title=name if title is None else title, unit=kind, is_whole=bool(whole))
