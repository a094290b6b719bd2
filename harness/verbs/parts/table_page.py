"""The page of a table that `table` filled, made from the rows in the table's folder."""

from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

from harness.errors import RatchetError
from harness.judge.verdict import compare_simulated
from harness.loop.search_space import words
from harness.loop.tuning_table import formats
from harness.loop.tuning_table.row import Row, rows_in
from harness.records import Sweep
from harness.render.page.search import Searched, values_tried
from harness.render.page.tuned import TunedRow, tuned_page
from harness.units import quantity, seconds
from harness.verbs.parts.table import checks, overview


def page_of(folder: Path) -> tuple[bytes, str]:
    """The page of the table in `folder`, and its content in words. Raises RatchetError `no-rows`."""
    kept = rows_in(folder)
    # As in the table itself, the newest row of each shape, in the order in which the shapes first appeared.
    digests = {row.kernel: row.kernel_digest for row in kept}
    newest = {(row.kernel, row.chip, row.parameters): row for row in kept if row.kernel_digest == digests[row.kernel]}
    has_many = len({row.kernel for row in newest.values()}) > 1
    # Shapes of two kernels may have the same name.
    rows = tuple(replace(row, shape=f"{row.kernel}, {row.shape}") if has_many else row for row in newest.values())
    if not rows:
        message = f"expected a folder that `table` filled, with rows.jsonl, got {folder}"
        raise RatchetError("no-rows", f"{message}: ./ratchet.sh table --kernel ... --shapes ... --out DIR fills one")
    made = datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC")
    page = tuned_page(overview(rows), tuple(map(_row, rows)), formats.provenance(rows), made)
    others = len({(row.kernel, row.chip, row.parameters) for row in kept} - newest.keys())
    left_out = f" (left out: {others} of an earlier kernel or judge)" if others else ""
    return page, f"{quantity(len(rows), 'row')}{left_out}"


def _row(row: Row) -> TunedRow:
    return TunedRow(
        shape=row.shape,
        chip=row.chip,
        ratio=row.fallback_ratio,
        is_certain=row.is_certain,
        is_entry=row.is_entry,
        facts=_facts(row),
        searched=_searched(row),
    )


def _facts(row: Row) -> tuple[tuple[str, str], ...]:
    """Facts for which the overview has no column."""
    fallback = seconds(row.fallback_seconds) if row.fallback_seconds is not None else row.fallback_failure
    fallback = fallback or formats.in_words(row.fallback_range_seconds)
    facts = [
        ("problem", f"{row.operation}: " + ", ".join(f"{name} {value}" for name, value in row.parameters)),
        ("best", f"{words(row.settings)}: {checks(row)}" if row.settings is not None else row.failure),
        ("range", formats.in_words(row.range_seconds) if row.range_seconds is not None else ""),
        ("unchecked", row.unchecked),
        ("fallback", f"{words(row.fallback)}: {fallback}"),
        ("kernel", row.kernel),
        ("compiler", row.compiler),
        ("finished", row.finished),
    ]
    return tuple((name, text) for name, text in facts if text)


def _searched(row: Row) -> Searched | None:
    if not row.trials:
        return None
    return Searched(
        sweep=Sweep(
            parameters=values_tried(row.trials),
            source="simulated",
            chip=row.chip,
            screened=row.trials,
            refused=row.refused,
            looked_at=row.looked_at,
        ),
        best=row.settings,
        came=f": {checks(row)}",
        possible=row.possible,
        possible_words="that are possible",
        deviations=compare_simulated.deviations(row.looked_at),
        level=None if row.fallback_seconds is None else ("the fallback", row.fallback_seconds),
        also=(row.fallback, "the fallback"),
    )
