"""A table of findings: columns with units, rows and notes. Every analysis of a profile returns one."""

from dataclasses import dataclass
from typing import Literal, TypeAlias

Cell: TypeAlias = str | int | float | bool | None
Unit: TypeAlias = Literal["", "s", "B", "FLOP", "FLOP/s", "B/s", "FLOP/B", "fraction", "count", "ratio"]
Origin: TypeAlias = Literal["measured", "measured cpu", "simulated", "predicted", "static", "mixed"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Column:
    """One column: `name` is its key in JSON, with the unit last (`self_seconds`); `title` is the heading for people.

    `unit` is the unit of the values, in SI base units; printing scales them and adds a prefix. `is_whole`: the words in
    this column are never cut, however narrow the page, because people type them or act on them.
    """

    name: str
    title: str
    unit: Unit = ""
    is_whole: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Table:
    """Findings of one kind. Cells are in the units of their columns; None: not known.

    `origin` names the source of the numbers (`mixed`: a column or its title names the source). `notes` are whole
    sentences on the meaning of the numbers and on omissions. `why_empty` is a sentence if there are no rows, else "".
    Raises ValueError if a row does not fit the columns, or if the table has both rows and `why_empty`, or neither.
    """

    name: str
    title: str
    origin: Origin
    columns: tuple[Column, ...]
    rows: tuple[tuple[Cell, ...], ...]
    notes: tuple[str, ...] = ()
    why_empty: str = ""

    def __post_init__(self) -> None:
        for row in self.rows:
            if len(row) != len(self.columns):
                raise ValueError(f"table {self.name}: expected {len(self.columns)} cells, got {len(row)}: {row!r}")
        if bool(self.rows) == bool(self.why_empty):
            raise ValueError(
                f"table {self.name}: expected rows or a why_empty, not both, got {len(self.rows)} rows and "
                f"why_empty={self.why_empty!r}"
            )

    def column(self, name: str) -> tuple[Cell, ...]:
        """The cells of the column called `name`. Raises KeyError if there is no such column."""
        for place, column in enumerate(self.columns):
            if column.name == name:
                return tuple(row[place] for row in self.rows)
        raise KeyError(name)
