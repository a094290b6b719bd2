"""Tables of findings as aligned text for people."""

import math
import textwrap
from collections.abc import Sequence
from itertools import zip_longest

from harness import units
from harness.records import Cell, Table
from harness.records.table import Unit
from harness.render.grid import grid, shrunk, widths_of

# A column of words keeps so many characters.
_LEAST = 10
_CUT = "…"


def text(tables: Sequence[Table], width: int) -> str:
    """The tables one under the other, each with its title, origin and notes; long words are cut to fit `width`.

    Tables that follow each other and are empty for the same reason share the sentence that gives it. Where a word was
    cut, a last line says so.
    """
    found: list[str] = []
    for table, after in zip_longest(tables, tables[1:]):
        shares = (
            after is not None and table.why_empty and (table.why_empty, table.notes) == (after.why_empty, after.notes)
        )
        found.append(f"{_head(table)}\n" if shares else f"{_one(table, width)}\n\n")
    cut = (
        f"\n\n({_CUT} was cut to fit {width} columns: --json prints it whole)"
        if any(_CUT in one for one in found)
        else ""
    )
    return "".join(found).rstrip("\n") + cut


def _one(table: Table, width: int) -> str:
    head = _head(table)
    notes = [_wrapped(note, width) for note in table.notes]
    if not table.rows:
        return "\n".join([head, _wrapped(f"empty: {table.why_empty}", width), *notes])
    cells = [[cell(value, column.unit) for value, column in zip(row, table.columns, strict=True)] for row in table.rows]
    titles = [column.title for column in table.columns]
    widths = widths_of(titles, cells, 0)
    # Words give way, figures are never cut.
    least = {
        place: widths[place] if column.is_whole else max(len(column.title), min(widths[place], _LEAST))
        for place, column in enumerate(table.columns)
        if column.unit == ""
    }
    sides = "".join("l" if column.unit == "" else "r" for column in table.columns)
    return "\n".join([head, *grid(titles, cells, sides, shrunk(widths, least, width)), *notes])


def _head(table: Table) -> str:
    return f"{table.title} [{table.origin}]"


def _wrapped(note: str, width: int) -> str:
    """A sentence below a table, set in and broken to `width`; an address stays whole."""
    return textwrap.fill(
        note, width, initial_indent="  ", subsequent_indent="    ", break_long_words=False, break_on_hyphens=False
    )


def cell(value: Cell, unit: Unit) -> str:
    """One value with its unit; `-` for what is not known."""
    if value is None:
        return "-"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, str):
        return value
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    match unit:
        case "s":
            return units.seconds(value)
        case "B" | "FLOP" | "FLOP/s" | "B/s":
            return units.decimal(value, unit)
        case "FLOP/B":
            return f"{value:,.1f} FLOP/B"
        case "fraction":
            return units.percent(value)
        case "ratio":
            return f"{value:.2f}x"
        case "count":
            return units.count(value)
    return str(value)
