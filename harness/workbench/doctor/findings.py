"""A finding of a checklist or audit, and the table of all findings, worst first."""

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import get_args

from harness.records import Column, Table
from harness.records.doctor import Severity
from harness.records.table import Origin
from harness.workbench.tables import columns

_ORDER = {severity: rank for rank, severity in enumerate(get_args(Severity))}
# The number of columns in a printed table; the other columns are printed below it as sentences.
_SHORT = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class DoctorFinding:
    """A fault, its place, the observation, the remedy, and the source of the rule."""

    severity: Severity
    rule: str
    subject: str
    place: str
    observation: str
    remedy: str
    source: str


_COLUMNS = columns("severity!;rule!;subject=what!;place=where;observation;remedy=what to do;source")


def table(
    listed: Iterable[DoctorFinding], *, title: str, origin: Origin, notes: tuple[str, ...], why_empty: str
) -> tuple[Table, tuple[DoctorFinding, ...]]:
    """The findings as a table, worst first, and the findings themselves in that order."""
    ranked = tuple(sorted(dict.fromkeys(listed), key=lambda finding: _ORDER[finding.severity]))
    full = Table(
        name="findings",
        title=title,
        origin=origin,
        columns=_COLUMNS,
        rows=tuple((f.severity, f.rule, f.subject, f.place, f.observation, f.remedy, f.source) for f in ranked),
        # Notes say what could not be checked, so they are kept even without findings.
        notes=notes,
        why_empty="" if ranked else why_empty,
    )
    return full, ranked


def for_people(full: Table) -> Table:
    """The table for people: observations, remedies and sources are sentences below it, too long for columns."""
    if not full.rows:
        return full
    sentences = tuple(f"{n}. {row[4]}. {row[5]}. [{row[6]}]" for n, row in enumerate(full.rows, 1))
    return replace(
        full,
        columns=(Column(name="number", title="", unit="count"), *full.columns[:_SHORT]),
        rows=tuple((n, *row[:_SHORT]) for n, row in enumerate(full.rows, 1)),
        notes=(*sentences, *full.notes),
    )
