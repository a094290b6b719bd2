"""Tables of findings as text for people."""

from collections.abc import Iterator, Sequence
from itertools import zip_longest

from harness.records import Table
from harness.records.table import Column as Finding
from harness.render.sections import GAP, Block, Column, Grid, Line, Words, screen

# The least width of a column of words.
_LEAST = 10
_CUT = "…"


def text(tables: Sequence[Table], width: int) -> str:
    """The tables one under the other, each with its title, origin and notes; long words are cut to fit `width`.

    Successive tables that are empty for the same reason share one sentence with the reason. If a word was cut, a last
    line says so.
    """
    printed = screen(_blocks(tables), width)
    return (
        f"{printed}\n\n({_CUT}: cut to fit {width} columns; --json has the whole text)" if _CUT in printed else printed
    )


def _blocks(tables: Sequence[Table]) -> Iterator[Block]:
    for table, after in zip_longest(tables, tables[1:]):
        yield Line(f"{table.title} [{table.origin}]", is_whole=True)
        if after and table.why_empty and (table.why_empty, table.notes) == (after.why_empty, after.notes):
            continue
        if table.rows:
            yield Grid(tuple(map(_column, table.columns)), table.rows, title_room=0, is_cut=False)
        else:
            yield _note(f"empty: {table.why_empty}")
        yield from map(_note, table.notes)
        yield GAP


def _column(column: Finding) -> Column:
    """The column for printing: words may be cut, figures never."""
    gives_way = column.unit == "" and not column.is_whole
    return Column(column.title, column.unit, least=max(len(column.title), _LEAST) if gives_way else None)


def _note(text: str) -> Words:
    return Words(text, lead="  ", rest="    ", chops=False)
