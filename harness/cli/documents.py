"""What each verb prints with `--json`: one record and a version for each, and the JSON schemas of them."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Literal

import msgspec

from harness.ledger.codec import SCHEMA, built_document, encode_document
from harness.ledger.packing import Packing
from harness.records import (
    Attempt,
    Audit,
    Cell,
    CheckedChampion,
    CycleBreakdown,
    Evidence,
    Gain,
    Note,
    Offence,
    Rejudged,
    Replay,
    Report,
    Row,
    Scale,
    ScaledRow,
    Status,
    Table,
    Verdict,
)
from harness.records.ablation import Ablation
from harness.records.attack import Attack
from harness.records.bisection import Bisection
from harness.records.comparison import Comparison
from harness.records.gate import Gate
from harness.records.search_state import SearchState
from harness.records.selftest import Tried
from harness.records.sweep import Swept
from harness.records.table import Origin, Unit
from harness.records.validation import Validation
from harness.records.whatif import Answer


@dataclass(frozen=True, slots=True, kw_only=True)
class AttemptDocument:
    """An attempt as the ledger stores it; `row` is its line of the table, None where it is not asked for."""

    attempt: Attempt
    row: Row | None


@dataclass(frozen=True, slots=True, kw_only=True)
class JudgeDocument:
    """kernel.py judged as it stands: evidence, what it means, and the verdict; nothing of it is recorded."""

    evidence: Evidence
    report: Report
    verdict: Verdict


@dataclass(frozen=True, slots=True, kw_only=True)
class RevokeDocument:
    """The champion judged again. `passes` and `undecided`: nothing is recorded; else `attempt` is the record's number.

    `holder` has the title now, None where no accepted attempt passes. `time_ratio` is the champion's, now / then.
    """

    outcome: Literal["passes", "undecided", "revoked", "no champion"]
    champion: int
    holder: int | None
    attempt: int | None
    reasons: tuple[str, ...]
    tried: tuple[Rejudged, ...]
    time_ratio: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class ResultsDocument:
    """The attempts, newest last, each with its time on the `scale` and as it was recorded.

    `champion` is the number of the present one, `gain` the way to it, `notes` are later findings about recorded
    kernels, `skipped` says what is unreadable. `gain` and `notes` are of the whole ledger, however few rows are asked
    for.
    """

    scale: Scale | None
    rows: tuple[ScaledRow, ...]
    champion: int | None
    gain: Gain | None
    notes: tuple[Note, ...]
    skipped: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class RescaleDocument:
    """The kernels that were timed again under the timing key `key_digest`; `skipped` says which were not, and why."""

    key_digest: str
    notes: tuple[Note, ...]
    skipped: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class ChampionsDocument:
    """The champion of each contest, checked again."""

    champions: tuple[CheckedChampion, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class DoneDocument:
    """What a verb did that moves kernel.py, in sentences."""

    done: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class LinesDocument:
    """The cycles of a simulated run, line by line of kernel.py; `clock_hz` turns cycles into seconds."""

    source: Literal["simulated"]
    chip: str
    clock_hz: float
    cycles: float
    breakdown: CycleBreakdown


@dataclass(frozen=True, slots=True, kw_only=True)
class WhatifDocument:
    """A run's time on the real chip, and on chips with scaled resources."""

    source: Literal["simulated"]
    chip: str
    seconds: float
    answers: tuple[Answer, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class OpFigures:
    """One HLO op of a simulated module."""

    name: str
    cycles: float
    seconds: float


@dataclass(frozen=True, slots=True, kw_only=True)
class CycleFigures:
    """Where a simulated module's cycles go."""

    bundles: int
    dma_wait: float
    unit_stall: float
    launch: float
    total: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class SimulateDocument:
    """A directory of compiler dumps, simulated; without a latency `unknown` says why."""

    chip: str
    total_seconds: float | None
    plus_minus_seconds: float | None
    relative_uncertainty: float
    ops: tuple[OpFigures, ...]
    cycles: CycleFigures
    hbm_read_bytes: int
    hbm_written_bytes: int
    dma_transfers: int
    unknown: tuple[str, ...]
    offences: tuple[Offence, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class SelftestDocument:
    """Every planted candidate, and what the judge made of it."""

    tried: tuple[Tried, ...]


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


@dataclass(frozen=True, slots=True, kw_only=True)
class XprofDocument:
    """The tables that a look into a capture found, or the text that it wrote."""

    command: str
    tables: tuple[TableFigures, ...] | None = None
    text: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Mistake:
    """`kind` is stable for programs, `message` is for people."""

    kind: str
    message: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ErrorDocument:
    """What is printed instead of a verb's document where the verb could not do it; exit code 2, 4, 5 or 130."""

    error: Mistake


@dataclass(frozen=True, slots=True)
class Document:
    """What one verb prints: the version of its form, which every document carries as `schema`, and its record.

    The version goes up with every change of the form: tests/fixtures/schemas holds the forms as they were.
    """

    version: int
    record: type


# The version of the documents that hold tables; nothing of them is stored in the ledger.
_TABLES = 1
DOCUMENTS = {
    # Attempts are printed as they are stored, so they share the number of the stored form.
    "experiment": Document(SCHEMA, AttemptDocument),
    "show": Document(SCHEMA, AttemptDocument),
    "judge": Document(10, JudgeDocument),
    "results": Document(7, ResultsDocument),
    "revoke": Document(2, RevokeDocument),
    "status": Document(5, Status),
    "next": Document(4, SearchState),
    "checkout": Document(1, DoneDocument),
    "rescale": Document(1, RescaleDocument),
    "champions": Document(1, ChampionsDocument),
    "undo": Document(1, DoneDocument),
    "sweep": Document(5, Swept),
    "tune": Document(5, Swept),
    "audit": Document(_TABLES, TablesDocument),
    "diagnose": Document(_TABLES, TablesDocument),
    "doctor": Document(_TABLES, TablesDocument),
    "profile": Document(_TABLES, TablesDocument),
    "xprof": Document(_TABLES, XprofDocument),
    "hlo": Document(_TABLES, TablesDocument),
    "predict": Document(_TABLES, TablesDocument),
    "table": Document(_TABLES, TablesDocument),
    "lines": Document(2, LinesDocument),
    "diff": Document(1, Comparison),
    "whatif": Document(1, WhatifDocument),
    "simulate": Document(3, SimulateDocument),
    "attack": Document(3, Attack),
    "ablate": Document(1, Ablation),
    "bisect": Document(1, Bisection),
    "validate": Document(1, Validation),
    "ci": Document(1, Gate),
    "fsck": Document(1, Audit),
    "pack": Document(1, Packing),
    "replay": Document(3, Replay),
    "selftest": Document(1, SelftestDocument),
    "error": Document(1, ErrorDocument),
}
_NOT_FINITE = {
    "type": "object",
    "description": "a number that is not finite, for which JSON has no word",
    "properties": {"float": {"enum": ["nan", "inf", "-inf"]}},
    "required": ["float"],
    "additionalProperties": False,
}


def json_text(verb: str, record: object) -> str:
    """The document that `verb` prints: `record` with its schema number first."""
    return encode_document(_version(verb, record), record)


def json_object(verb: str, record: object) -> dict[str, Any]:
    """The same document for a program in this process, as its JSON would be read."""
    return built_document(_version(verb, record), record)


def _version(verb: str, record: object) -> int:
    document = DOCUMENTS[verb]
    assert isinstance(record, document.record), f"{verb} prints {document.record.__name__}, got {type(record).__name__}"
    return document.version


def figures(tables: Iterable[Table]) -> tuple[TableFigures, ...]:
    """The tables as documents have them."""
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


def schema(verb: str) -> dict[str, Any]:
    """The JSON schema (2020-12) of what `verb` prints with `--json`."""
    document = DOCUMENTS[verb]
    (reference,), parts = msgspec.json.schema_components([document.record], ref_template="#/$defs/{name}")
    parts = {name: _with_odd_numbers(part) for name, part in parts.items()}
    form = parts.pop(reference["$ref"].rpartition("/")[2])
    parts["NotFinite"] = _NOT_FINITE
    properties = {"schema": {"const": document.version}, **form["properties"]}
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        **form,
        "title": document.record.__name__,
        "properties": properties,
        "required": ["schema", *form["required"]],
        "$defs": parts,
    }


def _with_odd_numbers(form: Any) -> Any:
    """`form` as JSON has it, where each number may also be one that is not finite, as the codec writes it."""
    if isinstance(form, list | tuple):
        return [_with_odd_numbers(item) for item in form]
    if not isinstance(form, dict):
        return form
    if form.get("type") == "number":
        return {"anyOf": [form, {"$ref": "#/$defs/NotFinite"}]}
    if "enum" in form:
        # Their order is not the same in every process.
        return {**form, "enum": sorted(form["enum"])}
    return {name: _with_odd_numbers(item) for name, item in form.items()}
