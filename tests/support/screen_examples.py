"""Attempts, reports and rows as the screens show them, from hand-made evidence."""

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from breakdown_examples import CYCLES, breakdown
from evidence_examples import KEY, V5E, attempt, evidence, resimulated, simulation

from harness.advice.report import report
from harness.judge.key import key_digest
from harness.judge.verdict.decision import decide
from harness.records import Attempt, Evidence, Policy, Report, Row
from harness.render.report_text import report_text

CHAMPION = evidence(2.16e-3)
WIDE = "ブロックを大きくすると速くなる、はずです。もっと大きくしてみる"


def judged(candidate: Evidence, against: Evidence | None = CHAMPION, **changes: Any) -> tuple[Attempt, Report]:
    again = resimulated(candidate, against) if against is not None else ()
    verdict = decide(candidate, against, None, Policy(), V5E, resimulated=again)
    return attempt(candidate, verdict, **changes), report(candidate, V5E)


def printed(candidate: Evidence, *, full: bool = False, colour: bool = False, width: int = 100, **changes: Any) -> str:
    return report_text(
        *judged(candidate, **changes),
        report(CHAMPION, V5E),
        full=full,
        colour=colour,
        width=width,
        whole="again --full",
    )


def better(**changes: Any) -> Evidence:
    run = simulation(1.2e-3, executed_spills=120_000, executed_fills=130_000)
    return replace(evidence(1.2e-3, bq=2048, simulation=run), **changes)


def taken_apart(**changes: Any) -> Evidence:
    """`better`, with the cycle breakdown of its run."""
    run = replace(simulation(CYCLES / 1.5e9, executed_spills=768, executed_fills=512), cycles=CYCLES)
    return better(simulation=replace(run, breakdown=breakdown()), **changes)


def line(number: int, hypothesis: str, **changes: Any) -> Row:
    row = Row(
        number=number, kind="experiment", outcome="accept", failure_kind="", hypothesis=hypothesis, source="simulated",
        chip="v5e", key_digest=key_digest(KEY), kernel_sha256="", fingerprint="", score=1509.9, seconds=2.16e-3,
        time_ratio=0.508, util=0.326, regime="memory-bound", gap_fraction=0.388, copies=0, spills=123_456,
        commit="abcdef1234567890", key=KEY,
    )  # fmt: skip
    return replace(row, **changes)


def table() -> Iterator[Row]:
    yield line(1, "baseline", kind="baseline", time_ratio=None)
    yield line(2, "BQ 128 -> 2048", expected_time_ratio=0.7)
    yield line(3, WIDE, outcome="reject")
    yield line(
        4, "too\nlarge \x1b[31m", outcome="failed", failure_kind="vmem-exceeded", score=None, seconds=None, util=None,
        regime=None, gap_fraction=None, copies=None, spills=None, time_ratio=None,
    )  # fmt: skip
    newer = replace(KEY, jax="0.12.0", libtpu="0.0.50", judge="other")
    yield line(5, "long " * 40, outcome="inconclusive", key=newer, key_digest=key_digest(newer))
