"""Tables as the outcome of a verb: printed for people, and as the document that verbs with tables share."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from harness.records import Cell, Table
from harness.records.table import Origin, Unit
from harness.render import tables as rendering
from harness.render.layout import terminal_width
from harness.shell.verb import Document, Outcome


@dataclass(frozen=True, slots=True, kw_only=True)
class TableFigures:
    """One table of findings: rows as objects by column name, in the SI base units that `units` names."""

    name: str
    title: str
    origin: Origin
    units: dict[str, Unit]
    rows: tuple[dict[str, Cell], ...]
    notes: tuple[str, ...]
    why_empty: str


@dataclass(frozen=True, slots=True, kw_only=True)
class TablesDocument:
    """The tables that an analysis found."""

    command: str
    tables: tuple[TableFigures, ...]


# Nothing of these documents is stored in the ledger.
TABLES = Document(1, TablesDocument)


def outcome_of(command: str, tables: Sequence[Table], shown: Sequence[Table] = (), exit_code: int = 0) -> Outcome:
    """The tables as the outcome of `command`; `shown`, if given, is printed instead of `tables`, except as JSON."""
    return Outcome(
        document=TablesDocument(command=command, tables=figures(tables)),
        text=lambda: rendering.text(shown or tables, terminal_width()),
        exit_code=exit_code,
    )


def figures(tables: Iterable[Table]) -> tuple[TableFigures, ...]:
    """The tables in the form of documents."""
    return tuple(
        TableFigures(
            name=table.name,
            title=table.title,
            origin=table.origin,
            units={column.name: column.unit for column in table.columns if column.unit},
            rows=tuple(dict(zip((column.name for column in table.columns), row, strict=True)) for row in table.rows),
            notes=table.notes,
            why_empty=table.why_empty,
        )
        for table in tables
    )
