"""Tables made of things: each column stands beside the function that gives its cell."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Generic, TypeAlias, TypeVar

from harness.records import Cell, Column, Table
from harness.records.table import Origin, Unit

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Field(Generic[T]):
    """A column, see there, and what its cell is for one thing."""

    name: str
    title: str
    cell: Callable[[T], Cell]
    unit: Unit = ""
    is_whole: bool = False

    @property
    def column(self) -> Column:
        """The column without its cells."""
        return Column(name=self.name, title=self.title, unit=self.unit, is_whole=self.is_whole)


Fields: TypeAlias = tuple[Field[T], ...]


def table_of(
    name: str,
    title: str,
    origin: Origin,
    fields: Fields[T],
    things: Iterable[T],
    notes: Iterable[str] = (),
    why_empty: str = "",
) -> Table:
    """A table of one row for each of `things`; `notes` and `why_empty` as in `table`."""
    rows = [tuple(field.cell(one) for field in fields) for one in things]
    return table(name, title, origin, tuple(field.column for field in fields), rows, notes, why_empty)


def table(
    name: str,
    title: str,
    origin: Origin,
    columns: Sequence[Column],
    rows: Iterable[Sequence[Cell]],
    notes: Iterable[str] = (),
    why_empty: str = "",
) -> Table:
    """A table of these rows. `notes` are kept only where there are rows, `why_empty` only where there are none."""
    kept = tuple(map(tuple, rows))
    return Table(
        name=name,
        title=title,
        origin=origin,
        columns=tuple(columns),
        rows=kept,
        notes=tuple(notes) if kept else (),
        why_empty="" if kept else why_empty,
    )
