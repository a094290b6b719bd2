"""The analyses of a capture as functions, for tests that ask one after the other."""

import json
from collections.abc import Iterable, Sequence
from typing import Any

import pytest

from harness.records import Capture, Cell, Table
from harness.shell.main import main
from harness.workbench.profiles import ceilings, hotspots, timeline
from harness.workbench.profiles.analysis import tables
from harness.workbench.profiles.ceilings import mfu
from harness.workbench.profiles.communication import overlap
from harness.workbench.profiles.comparison import compare, report
from harness.workbench.profiles.overview import overview
from harness.workbench.profiles.timeline import gaps_and_inside, steps_table
from harness.workbench.profiles.waste import waste

__all__ = ("compare", "gaps_and_inside", "mfu", "overlap", "overview", "report", "steps_table", "waste")


def rows(table: Table) -> list[dict[str, Any]]:
    """The rows by the names of the columns."""
    return [dict(zip((column.name for column in table.columns), row, strict=True)) for row in table.rows]


def by(table: Table, key: str, value: str) -> dict[Cell, Any]:
    """The cells of one column by those of another."""
    return dict(zip(table.column(key), table.column(value), strict=True))


def rows_by(table: Table, key: str = "") -> dict[Cell, dict[str, Any]]:
    """The rows by their cells in the column `key`; by their first cells if it is ""."""
    return dict(zip(table.column(key or table.columns[0].name), rows(table), strict=True))


def named(tables: Iterable[Table]) -> dict[str, Table]:
    """The tables by name."""
    return {table.name: table for table in tables}


def printed(capsys: pytest.CaptureFixture[str], *words: str) -> list[dict[str, Any]]:
    """The tables that a command prints as JSON."""
    capsys.readouterr()
    assert main([*words, "--json"]) == 0, capsys.readouterr().err
    tables: list[dict[str, Any]] = json.loads(capsys.readouterr().out)["tables"]
    return tables


def printed_by_name(capsys: pytest.CaptureFixture[str], *words: str) -> dict[str, dict[str, Any]]:
    """The tables that a command prints as JSON, by name."""
    return {table["name"]: table for table in printed(capsys, *words)}


def ops(capture: Capture, top: int | None = None) -> tuple[Table, ...]:
    """The tables of `xprof ops`."""
    return tables(capture, (hotspots.OPS,), top=top, useful_flops=None)


def framework_ops(capture: Capture, categories: Sequence[str] = (), top: int | None = None) -> tuple[Table, ...]:
    """The tables of `xprof framework-ops`."""
    return hotspots.framework_ops(capture, ",".join(categories), top)


def lines(capture: Capture, top: int | None = None) -> tuple[Table, ...]:
    """The tables of `xprof lines`."""
    return tables(capture, (hotspots.LINES,), top=top)


def scopes(capture: Capture, depth: int = 4, at_least: float = 0.0) -> tuple[Table, ...]:
    """The tables of `xprof scopes`."""
    return tables(capture, (hotspots.SCOPES,), depth=depth, at_least=at_least)


def breakdown(capture: Capture) -> tuple[Table, ...]:
    """The tables of `xprof breakdown`."""
    return tables(capture, hotspots.BREAKDOWN)


def roofline(capture: Capture, top: int | None = None) -> tuple[Table, ...]:
    """The tables of `xprof roofline`."""
    return tables(capture, (ceilings.ROOFLINE,), top=top)


def utilization(capture: Capture) -> tuple[Table, ...]:
    """The tables of `xprof utilization`."""
    return tables(capture, (ceilings.UTILIZATION,))


def gaps(capture: Capture, top: int | None = None) -> tuple[Table, ...]:
    """The tables of `xprof gaps` on the time between operations."""
    return tables(capture, timeline.GAPS, top=top)
