"""Attempts, reports and rows as the screens show them, from hand-made evidence."""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

from breakdown_examples import CYCLES, breakdown
from evidence_examples import KEY, V5E, attempt, evidence, resimulated, simulation, table_row
from rich.cells import cell_len

from harness.advice.report import advise, report
from harness.judge.key import key_digest
from harness.judge.verdict.decision import decide
from harness.ledger.table import Filter, ScaledTable, chosen, lines, table_of
from harness.loop.gain import calibration, gain
from harness.records import Attempt, Evidence, Key, Note, Policy, Report, Row, Status
from harness.render.report_text import View, report_blocks
from harness.render.results import TableView
from harness.render.sections import screen

CHAMPION = evidence(2.16e-3)
# The fields that a row of a failed attempt lacks.
NO_FIGURES: dict[str, Any] = dict.fromkeys(
    ("score", "seconds", "util", "regime", "gap_fraction", "copies", "spills", "time_ratio")
)
WIDE = "ブロックを大きくすると速くなる、はずです。もっと大きくしてみる"


def is_tidy(text: str, width: int) -> bool:
    """True if no line is wider (except for published lines) and none ends in blanks."""
    every = text.splitlines()
    too_wide = [line for line in every if cell_len(line) > width and not line.startswith(("RESULT:", "REGIME:"))]
    return not too_wide and all(line == line.rstrip() for line in every) and not text.endswith("\n")


def judged(candidate: Evidence, against: Evidence | None = CHAMPION, **changes: Any) -> tuple[Attempt, Report]:
    again = resimulated(candidate, against) if against is not None else ()
    verdict = decide(candidate, against, None, Policy(), V5E, resimulated=again)
    return attempt(candidate, verdict, **changes), report(candidate, V5E)


def printed(candidate: Evidence, *, full: bool = False, colour: bool = False, width: int = 100, **changes: Any) -> str:
    attempt, computed = judged(candidate, **changes)
    view = View(full=full, whole="again --full")
    blocks = report_blocks(attempt, computed, advise(candidate, computed), report(CHAMPION, V5E), view)
    return screen(blocks, width, colour=colour)


def status(**changes: Any) -> Status:
    """A contest with five attempts, the second of which is the champion."""
    champion = line(2, "BQ 128 -> 2048")
    made = Status(
        contest="root",
        branch="main",
        champion=champion,
        won_by=champion,
        next_number=6,
        key=KEY,
        key_digest=key_digest(KEY),
        kernel_state="the champion's",
    )
    return replace(made, **changes)


def better(**changes: Any) -> Evidence:
    run = simulation(1.2e-3, executed_spills=120_000, executed_fills=130_000)
    return replace(evidence(1.2e-3, bq=2048, simulation=run), **changes)


def taken_apart(**changes: Any) -> Evidence:
    """`better`, with the cycle breakdown of its run."""
    run = replace(simulation(CYCLES / 1.5e9, executed_spills=768, executed_fills=512), cycles=CYCLES)
    return better(simulation=replace(run, breakdown=breakdown()), **changes)


def line(number: int, hypothesis: str, **changes: Any) -> Row:
    plain = table_row(
        number,
        hypothesis=hypothesis,
        kernel_sha256=f"kernel {number}",
        score=1509.9,
        seconds=2.16e-3,
        time_ratio=0.508,
        util=0.326,
        regime="memory-bound",
        gap_fraction=0.388,
        copies=0,
        spills=123_456,
        commit="abcdef1234567890",
        key=KEY,
    )
    return replace(plain, **changes)


def table() -> Iterator[Row]:
    yield line(1, "baseline", kind="baseline", time_ratio=None)
    yield line(2, "BQ 128 -> 2048", expected_time_ratio=0.7)
    yield line(3, WIDE, outcome="reject")
    yield line(4, "too\nlarge \x1b[31m", outcome="failed", failure_kind="vmem-exceeded", **NO_FIGURES)
    newer = replace(KEY, jax="0.12.0", libtpu="0.0.50", judge="other")
    yield line(5, "long " * 40, outcome="inconclusive", key=newer, key_digest=key_digest(newer))


def scaled_table(rows: Sequence[Row], champion: int | None, notes: Sequence[Note] = ()) -> ScaledTable:
    """The table of hand-made rows and notes; the champion's record is that of CHAMPION."""
    holder = None if champion is None else judged(CHAMPION, None, number=champion, kind="baseline", champion=None)[0]
    return table_of(rows, notes, holder)


def shown(
    rows: Sequence[Row], champion: int | None, notes: Sequence[Note] = (), wanted: Filter | None = None, **changes: Any
) -> TableView:
    """The same as the verb `results` shows it."""
    table = scaled_table(rows, champion, notes)
    chosen_lines = chosen(table, lines(table, unfolded=changes.get("has_all", False)), wanted or Filter())
    is_partial = table.scale is not None and table.scale.timed < table.scale.accepted
    made = TableView(
        rows=table.rows,
        lines=chosen_lines,
        champion=champion,
        gain=gain(table),
        calibration=calibration(rows),
        has_then=is_partial,
    )
    return replace(made, **changes)


def timed(row: Row, key: Key, seconds: float | None, **changes: Any) -> Note:
    """A note on the time of a row's kernel under a later key."""
    made = Note(
        kind="timed",
        attempt=row.number,
        kernel_sha256=row.kernel_sha256,
        after=row.number,
        when="2026-08-01T00:00:00Z",
        key=key,
        key_digest=key_digest(key),
        seconds=seconds,
        score=1000.0,
        util=0.5,
        regime="compute-bound",
        gap_fraction=0.5,
    )
    return replace(made, **changes)


def story() -> tuple[list[Row], list[Note]]:
    """Rows and notes of a short life: a champion checked under new keys, one attempt in vain between, times noted."""
    keys = [replace(KEY, judge=f"judge {number}") for number in range(5)]
    rows = [
        line(1, "baseline", kind="baseline", time_ratio=None, seconds=5.3e-3),
        line(2, "BQ 128 -> 2048, so that K and V are read less often", seconds=2.7e-3),
        line(3, "small blocks", outcome="reject", seconds=3e-3, time_ratio=1.111),
        line(4, "all in VMEM", outcome="failed", failure_kind="vmem-exceeded", **NO_FIGURES),
    ]
    for number, key in enumerate(keys[1:], 5):
        again = line(number, f"judge the champion again {number}", kind="rebaseline", time_ratio=1.0, seconds=2.7e-3)
        again = replace(again, kernel_sha256="kernel 2", key=key, key_digest=key_digest(key))
        rows.append(again)
    rows[5] = replace(rows[5], outcome="failed", failure_kind="timeout", **NO_FIGURES)
    rows[7] = replace(rows[7], seconds=2.8e-3)
    newest = rows[-1].key
    assert newest is not None
    notes = [
        timed(rows[0], newest, 5.6e-3, after=8),
        timed(rows[2], newest, None, after=8, failure_kind="compile-error", reason="no such primitive"),
        timed(rows[1], newest, None, kind="checked", after=8, checks_digest="c", checks=22, checks_passed=22),
    ]
    return rows, notes
