"""A search as `next` sees it: rows, their kernels and a contest, made by hand."""

from dataclasses import replace
from typing import Any

from evidence_examples import V5E, evidence, table_row

from harness.advice.report import advise, report
from harness.candidate import Candidate
from harness.loop.search_state import SearchInputs
from harness.records import Outcome, Row

KERNEL = (
    b'KERNEL_NAME = "naive"\nBQ = 128\nBKV = 256\nLIMIT = None\n\n\ndef kernel_fn(q, k, v):\n    return q @ k @ v\n'
)
STATEMENT = evidence().problem


def row(number: int, outcome: Outcome = "reject", seconds: float | None = 2.16e-3, **changes: Any) -> Row:
    ratio = 1.1 if outcome == "reject" else None
    return replace(table_row(number, outcome=outcome, seconds=seconds, time_ratio=ratio), **changes)


def kernel(**values: int) -> bytes:
    text = KERNEL.decode()
    for name, value in values.items():
        old = {"BQ": "BQ = 128", "BKV": "BKV = 256"}[name]
        text = text.replace(old, f"{name} = {value}")
    return text.encode()


def seen(rows: list[Row], kernels: dict[int, bytes], champion: int | None = 1, **changes: Any) -> SearchInputs:
    made = SearchInputs(
        contest="root",
        problem=STATEMENT,
        chip=V5E,
        rows=rows,
        candidates={number: Candidate(text=text) for number, text in kernels.items()},
        candidate=Candidate(text=KERNEL),
        champion=next((row for row in rows if row.number == champion), None),
        is_present_key=True,
        report=report(evidence(), V5E),
        advice=advise(evidence(), report(evidence(), V5E)),
    )
    return replace(made, **changes)
