"""The tables of XProf's tools (Google's DataTable JSON) as rows by column and as properties."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import msgspec

from harness.errors import RatchetError
from harness.workbench.profiles import conversion
from harness.workbench.profiles.remote import Source

Value: TypeAlias = str | float | int | bool | None
# XProf's units in SI: its times are us, its rates GFLOP/s, its bandwidths GiB/s (facts of xprof 2.24).
MICROSECOND, GIGAFLOPS, GIBIBYTES = 1e-6, 1e9, float(1 << 30)


@dataclass(frozen=True, slots=True, kw_only=True)
class DataTable:
    """One table: `rows` by the columns' ids, in XProf's units, and `properties`, which are words."""

    columns: tuple[str, ...]
    rows: tuple[Mapping[str, Value], ...]
    properties: Mapping[str, str]

    def fraction(self, name: str) -> float | None:
        """A property that is a percentage (`54.7%`), None where it is not there."""
        word = self.properties.get(name, "").removesuffix("%")
        return float(word) / 100 if word else None


def ask(paths: Sequence[Source], tool: str) -> tuple[DataTable, ...]:
    """The tables that XProf's `tool` answers with. Raises RatchetError `no-answer`, also for what is no table."""
    answer = msgspec.json.decode(conversion.tool(paths, tool))
    found = answer if isinstance(answer, list) else [answer]
    if not all(isinstance(one, dict) and (not one or "cols" in one) for one in found):
        raise RatchetError("no-answer", f"xprof's {tool} answered with something else than tables for {paths[0]}")
    return tuple(_table(one) for one in found)


def number(row: Mapping[str, Value], column: str, scale: float = 1.0) -> float | None:
    """A cell times `scale`; None where it is not there, or no number."""
    value = row.get(column)
    return value * scale if isinstance(value, (int, float)) and not isinstance(value, bool) else None


def _table(said: Mapping[str, Any]) -> DataTable:
    columns = tuple(column["id"] for column in said.get("cols", ()))
    return DataTable(
        columns=columns,
        # Cells that say nothing come as null or are left out at the end.
        rows=tuple(
            {name: (cell or {}).get("v") for name, cell in zip(columns, row["c"], strict=False)}
            for row in said.get("rows", ())
        ),
        properties=said.get("p", {}),
    )
