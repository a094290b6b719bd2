"""Analyses of a capture as data (query, columns, notes, text for an empty table), and the code that runs them."""

import string
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

from harness import units
from harness.records import Capture, Table
from harness.records.table import Origin
from harness.workbench.profiles import op_times
from harness.workbench.profiles.database import Database, database_of
from harness.workbench.tables import columns, table

# Named figures of an analysis, in addition to its rows.
Facts: TypeAlias = dict[str, Any]
_NOTHING = "the capture has nothing of this kind"


@dataclass(frozen=True, slots=True, kw_only=True)
class Analysis:
    """One table of a capture.

    `columns` are the columns of the query, in the syntax of `harness.workbench.tables.columns`. The query may return
    one more column, which contains notes. `facts` is a query with one row; it may read the table's rows as `answer`.

    `title`, `columns`, `notes` and `empty` may contain figures of `facts`: `{took:s}` (seconds), `{part:%}`,
    `{size:B}`, `{number:n}`, `{ratio:c}` (a change), `{levels:bars}`. A note is left out if one of its figures is NULL,
    or if it contains `{seen:?}` and `seen` is not true. If something ran but the table has no row, the table shows the
    first text of `empty` that contains no unknown figure.

    `rows` is a noun for the rows. An analysis with `rows` shows only the first `$top` rows. It has the figures `known`
    (the number of all rows), `more` (the number of rows left out) and `cut` (a sentence on both); if no row is left
    out, `known` and `more` are NULL. Every analysis has the figure `origin` (measured or simulated). The function
    `more` adds further figures.

    If `is_optional` is True, an analysis without rows makes no table.
    """

    name: str
    title: str
    columns: str
    query: str
    facts: str = ""
    notes: tuple[str, ...] = ()
    empty: str | tuple[str, ...] = ""
    origin: Origin | None = None
    rows: str = ""
    is_optional: bool = False
    more: Callable[[Database, Mapping[str, Any]], Facts] | None = None


def tables(
    of: Capture | Database,
    analyses: Sequence[Analysis],
    why: str = "",
    *,
    is_about_devices: bool = True,
    **parameters: Any,
) -> tuple[Table, ...]:
    """Tables of several analyses. `why` states which data the capture lacks; then all tables are empty and show it."""
    database = of if isinstance(of, Database) else database_of(of)
    capture = database.capture
    if is_about_devices and not why and not op_times.devices(capture):
        why = op_times.why_nothing_ran(capture)
    return tuple(table_ for each in analyses if (table_ := _table(database, each, parameters, why)) is not None)


def _table(database: Database, analysis: Analysis, parameters: Mapping[str, Any], why: str) -> Table | None:
    rows = [] if why else _rows(database, analysis, parameters)
    origin = op_times.origin(database.capture)
    facts: Facts = {**parameters, "origin": origin.partition(" ")[0]}
    if analysis.rows:
        facts |= _cut(rows, analysis.rows, parameters["top"])
    if not why and analysis.facts:
        facts |= database.facts(analysis.facts, **parameters)
    if not why and analysis.more:
        facts |= analysis.more(database, parameters)
    if analysis.is_optional and not rows:
        return None
    empty = (analysis.empty,) if isinstance(analysis.empty, str) else analysis.empty
    named = columns(_fill_in(analysis.columns, facts))
    of_rows = [row[-1] for row in rows if len(row) > len(named) and row[-1]]
    return table(
        analysis.name,
        _fill_in(analysis.title, facts) or analysis.title.partition("{")[0].rstrip(": "),
        analysis.origin or origin,
        named,
        [row[: len(named)] for row in rows],
        [*dict.fromkeys(of_rows), *(note for text in analysis.notes for note in _notes(text, facts))],
        why or next(filter(None, (_fill_in(text, facts) for text in (*empty, _NOTHING)))),
    )


def _rows(database: Database, analysis: Analysis, parameters: Mapping[str, Any]) -> list[tuple[Any, ...]]:
    if "answer" not in analysis.facts:
        return database.rows(analysis.query, **parameters)
    names = ", ".join(f'"{column.name}"' for column in columns(analysis.columns))
    database.rows(f"create or replace temp table answer({names}) as {analysis.query}", **parameters)
    return database.rows("from answer")


def _cut(rows: list[tuple[Any, ...]], noun: str, top: int | None) -> Facts:
    """The figures on rows left out (None or "" if no row is left out). Cuts `rows` down to the first `top`."""
    count = len(rows)
    if top is None or count <= top:
        return {"known": None, "more": None, "cut": ""}
    del rows[top:]
    return {"known": count, "more": count - top, "cut": f" {top} of {count} {noun} are shown."}


def _notes(text: str, facts: Mapping[str, Any]) -> Iterator[str]:
    """The notes from `text`: the text with its figures, or the sentences of a figure that is the whole text."""
    figure = facts.get(text[1:-1])
    if isinstance(figure, list):
        yield from figure
    elif note := _fill_in(text, facts):
        yield note


def _fill_in(text: str, facts: Mapping[str, Any]) -> str:
    """The text with its figures filled in; "" if a figure is NULL or a condition is false."""
    figures = [(name, spec) for _, name, spec, _ in string.Formatter().parse(text) if name]
    if any(not facts.get(name) if spec == "?" else facts.get(name) is None for name, spec in figures):
        return ""
    return _Figures().vformat(text, (), facts)


def sparkline(levels: Sequence[float], full: float) -> str:
    """`levels` as a line of bars; the highest bar stands for `full`."""
    if full <= 0:
        return ""
    last = len(_BARS) - 1
    return "".join(_BARS[min(last, round(level / full * last))] for level in levels)


_BARS = "▁▂▃▄▅▆▇█"
_FORMATS: dict[str, Callable[[Any], str]] = {
    "": str,
    "?": lambda _: "",
    "s": units.seconds,
    "n": units.count,
    "c": units.change,
    "bars": lambda levels: sparkline(levels, max(levels)),
}


class _Figures(string.Formatter):
    def format_field(self, value: Any, format_spec: str) -> str:
        if format_spec.startswith("%"):
            return units.percent(value, int(format_spec[1:] or 1))
        if format_spec in _FORMATS:
            return _FORMATS[format_spec](value)
        return units.decimal(value, format_spec)
