"""Attempts and rows to JSON and back, strictly, with a schema number in every document.

To add a field, give `Attempt` in records/verdict.py the field with a default (for the table: `Row` in
records/report.py). Then raise SCHEMA in records/stored.py, and add a line to the history below.

Schema history
1   An attempt is `{"schema", "row", "attempt"}`; `row` is one line and comes before the attempt, so that a table
    needs only the head of a file. The attempt is indented in older files and one line in newer files. A row alone is
    one line, `{"schema", ...its fields}`. JSON has no word for a float that is not finite, so such a float is written
    as `{"float": "nan"}`, `{"float": "inf"}` or `{"float": "-inf"}`.
2   An attempt may be of kind `revoke` and have a `revocation`; a row may have `revokes` and `holder`, a simulation
    `offences`, a verdict `resimulated`. These fields have defaults, so documents of schema 1 can still be read.
3   Plainer names: `breakdown` was `anatomy`, `paired` was `duel`, `paired_seconds` was `duel_seconds`, the mode
    `reduced` was `twin`. Older documents are read under the new names; their bytes stay as they were recorded.
4   Evidence may say that a candidate was not fully checked (`unchecked`). A reader of older schemas would ignore this.
5   A sweep may name the champion and its time.
6   A simulation may have `runs`, whose mean is its latency; an array may have `low` and `high`.
7   A trace names the packages that the candidate imports and their files (`imported`, `sources`). The text of a
    candidate may have helper modules after its kernel.py.
8   Work names the dtype of its matmuls' operands (`matmul_dtype`).
9   Suites: a statement may have `members` and `may_lose`; evidence, a verdict and its resimulations may have `members`.
10  A sweep and an attempt have the number of programs from which the best was chosen (`looked_at`).
11  A key has `timing` and `checks` in place of `judge`, and the digest of a row stands for the timing key alone.
12  A row has the number of programs that it is the best of (`looked_at`). A row and a simulation have the digest of
    the schedule (`schedule`). A failure says whether it is an error of the program.
13  Evidence may have a `certificate`, and a row the beginning of its digest.
14  A simulation's `offences` may be races (`transfer-raced`).
15  A check may be of an exact output (`exact`). A trace names inputs that a call writes over (`written_over`), lines
    with sums in bfloat16 (`narrow_sums`) and lines with transposes outside of kernels (`transposes`).
16  A trace names lines that round the maximum of a row to bfloat16 (`narrow_maxima`).
17  A simulation may be of several `chips`, with the traffic of their `links`.
18  A problem may run on several chips: a statement has their `mesh`, an array says how it is `split`, work has
    `link_bytes`.
19  A simulation without a latency may have `range_seconds`.
20  A statement may name inputs that outputs are written over (`overwrites`).
"""

import dataclasses
import json
import math
import re
from contextlib import suppress
from operator import attrgetter
from typing import Any, TypeVar

import msgspec

from harness import reading_limits
from harness.errors import RatchetError
from harness.records import Attempt, Row
from harness.records.stored import SCHEMA

# Field names before schema 3, with the present names. No later field may have one of the old names.
_RENAMED = {"anatomy": "breakdown", "duel": "paired", "duel_seconds": "paired_seconds"}
_RENAMED_MODES = {"twin": "reduced"}
_PLAIN_NAMES = 3
_SURROGATE = re.compile("[\ud800-\udfff]")
# Fields that differ from clone to clone.
_PLACE = ("commit", "is_on_branch")
_without_place = attrgetter(*(field.name for field in dataclasses.fields(Row) if field.name not in _PLACE))
_Record = TypeVar("_Record")
_Plain = TypeVar("_Plain", bound="WithSchema")


class RecordError(RatchetError):
    """An unusable document: `corrupt-record`, `foreign-record` or `newer-record`; readers name it and go on."""


def encode_attempt(attempt: Attempt, row: Row | None = None) -> bytes:
    """One attempt as UTF-8 JSON, with fields in the order of the records, in the layout of `laid_out`.

    `row` is the attempt's row in the table. It is stored with the attempt, so that a table can be made from the heads
    of files, without the judge.
    """
    row_text = "null" if row is None else _text(_row_built(row))
    return laid_out(SCHEMA, row_text, compact(_built(attempt)))


def laid_out(schema: int, row: str, attempt: str) -> bytes:
    """A document made of JSON texts: schema, row and attempt on a line each.

    The attempt, which is the longest, comes last, so that the row can be read without it. The end of the document shows
    whether a file is complete.
    """
    return f'{{\n  "schema": {schema},\n  "row": {row},\n  "attempt": {attempt}\n}}\n'.encode()


def is_complete(tail: bytes) -> bool:
    """True if these last bytes end a complete document, in the layout of `laid_out` or in the older, indented one."""
    return tail.rstrip().replace(b"\r", b"").endswith(b"}\n}")


def compact(built: Any) -> str:
    """The JSON text of a value, without whitespace. Raises ValueError for a number that is not finite.

    Lone surrogates (Python's form of messages that are not UTF-8) are escaped, so that UTF-8 can encode the text.
    """
    return _text(built, separators=(",", ":"))


def value_text(data: bytes) -> str:
    """A text that is the same for two documents if their JSON values are equal. Raises RecordError."""
    try:
        return json.dumps(json.loads(data.decode("utf-8", "surrogatepass")), sort_keys=True)
    except (ValueError, RecursionError) as error:
        raise RecordError("corrupt-record", f"expected a record as JSON: {error}") from error


def decode_attempt(data: bytes, where: str) -> Attempt:
    """The attempt in `data`. Raises RecordError with `where` and the fault of the document."""
    reading_limits.note(len(data))
    attempt = _convert(_document(data, where)["attempt"], Attempt, where)
    looked_at = max(attempt.looked_at, attempt.sweep.looked_at if attempt.sweep else 1)
    if looked_at > reading_limits.MOST_LOOKED_AT:
        raise RecordError(
            "corrupt-record",
            f"{where}: expected looked_at to be at most {reading_limits.MOST_LOOKED_AT:,} programs, got {looked_at:,}",
        )
    return attempt


def decode_attempt_row(data: bytes, where: str) -> Row:
    """The row stored with the attempt in `data`. Raises RecordError, of kind `corrupt-record` if no row is stored."""
    return _convert(_document(data, where)["row"], Row, where)


def schema_of(data: bytes) -> int:
    """The schema of a document that can be decoded."""
    with suppress(msgspec.DecodeError):
        return msgspec.json.decode(data, type=WithSchema).schema
    return int(_parsed(data, "a record")["schema"])


def decode_head_row(head: bytes, where: str) -> Row | None:
    """The row from the first bytes of an attempt's file, or None if the file does not have `encode_attempt`'s layout.

    If None, the whole file has to be decoded. Raises RecordError for a newer schema.
    """
    lines = head.split(b"\n", 3)
    if len(lines) < 4 or not lines[1].strip().startswith(b'"schema":'):
        return None
    line = lines[2].strip()
    if not line.startswith(b'"row": {') or not line.endswith(b"},"):
        return None
    data = b"{" + lines[1] + line.removesuffix(b",") + b"}"
    quickly = _as_it_is(data, _WithRow)
    if quickly is not None:
        return quickly.row
    return _convert(_parsed(data, where)["row"], Row, where)


def encode_row(row: Row) -> str:
    """One row as one line of JSON, without a newline and without its place in git (`commit`, `is_on_branch`)."""
    return _text({"schema": SCHEMA, **_row_built(row)})


def decode_row(line: str, where: str) -> Row:
    """The row in `line`. Raises RecordError with `where` and the fault."""
    data = line.encode("utf-8", "surrogatepass")
    if _as_it_is(data, WithSchema) is not None:
        with suppress(msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            return msgspec.json.decode(data, type=Row)
    fields = {name: value for name, value in _parsed(data, where).items() if name != "schema"}
    return _convert(fields, Row, where)


def identity(row: Row) -> bytes:
    """A value by which rows are compared, without their place in git: equal if `encode_row` writes equal lines."""
    try:
        return msgspec.msgpack.encode(_without_place(row))
    except UnicodeEncodeError:
        # msgspec cannot encode a message that is not UTF-8.
        return encode_row(row).encode()


def encode_document(schema: int, record: object) -> str:
    """Any record as indented JSON, with its schema number first; the text ends without a newline.

    It is for readers in other programs: names that are not UTF-8 are written as in `valid_json`.
    """
    return valid_json(built_document(schema, record))


def valid_json(built: Any) -> str:
    r"""Indented JSON for any reader: the byte FF of a name that is not UTF-8 becomes `\xff`."""
    text = json.dumps(built, ensure_ascii=False, indent=1, allow_nan=False)
    # Python decodes such bytes to lone surrogates, which JSON cannot express.
    return _SURROGATE.sub(_escaped, text)


def _escaped(match: re.Match[str]) -> str:
    code = ord(match[0])
    return rf"\\x{code - 0xDC00:02x}" if 0xDC80 <= code <= 0xDCFF else rf"\\u{code:04x}"


def built_document(schema: int, record: object) -> dict[str, Any]:
    """The document in the builtin types that `json.loads` gives for its text."""
    return {"schema": schema, **_built(record)}


class WithSchema(msgspec.Struct):
    """Any document; only its schema is decoded."""

    schema: int


class _WithRow(WithSchema):
    row: Row


def _as_it_is(data: bytes, kind: type[_Plain]) -> _Plain | None:
    """A document decoded quickly, if it uses the present field names and schemas; else None."""
    try:
        document = msgspec.json.decode(data, type=kind)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None
    return document if _PLAIN_NAMES <= document.schema <= SCHEMA else None


def _document(data: bytes, where: str) -> dict[str, Any]:
    document = _parsed(data, where)
    if "attempt" not in document:
        raise RecordError("foreign-record", f"{where} is not an attempt: expected the field `attempt`")
    return {"row": None, **document}


def _parsed(data: bytes, where: str) -> dict[str, Any]:
    try:
        document = json.loads(data.decode("utf-8", "surrogatepass"), object_hook=_read)
    except UnicodeDecodeError as error:
        raise RecordError("corrupt-record", f"{where} is not UTF-8 text (byte {error.start})") from error
    except (ValueError, RecursionError) as error:
        cut = " and may be cut off" if not data.rstrip().endswith(b"}") else ""
        raise RecordError("corrupt-record", f"{where} is not readable JSON{cut}: {error}") from error
    if not isinstance(document, dict):
        raise RecordError("foreign-record", f"{where} is not a record of the ratchet: expected an object")
    schema = document.get("schema")
    if not isinstance(schema, int) or isinstance(schema, bool) or schema < 1:
        raise RecordError("foreign-record", f"{where} is not a record of the ratchet: it has no schema number")
    if schema > SCHEMA:
        raise newer(schema, where)
    return document


def newer(schema: int, where: str) -> RecordError:
    """The error for a document of a schema that is not known yet."""
    return RecordError(
        "newer-record",
        f"{where} is from a newer version (schema {schema}, this one reads up to {SCHEMA}): update the ratchet",
    )


def _convert(built: Any, kind: type[_Record], where: str) -> _Record:
    try:
        return msgspec.convert(built, kind, strict=True)
    except msgspec.ValidationError as error:
        raise RecordError("corrupt-record", f"{where} does not fit schema {SCHEMA}: {error}") from error


def _built(record: Any) -> Any:
    return _float_written(msgspec.to_builtins(record))


def _row_built(row: Row) -> Any:
    """The row without its place: a commit cannot name itself, and clones differ."""
    built = _built(dataclasses.replace(row, commit=""))
    del built["is_on_branch"]
    return built


def _float_written(value: Any) -> Any:
    if isinstance(value, float) and not math.isfinite(value):
        return {"float": str(value)}
    if isinstance(value, dict):
        return {name: _float_written(item) for name, item in value.items()}
    if isinstance(value, list | tuple):
        return [_float_written(item) for item in value]
    return value


def _read(value: dict[str, Any]) -> Any:
    """The value of a JSON object: a float that is not finite, or the object with the present names of its fields."""
    if value.keys() == {"float"} and isinstance(value["float"], str):
        return float(value["float"])
    for old, new in _RENAMED.items():
        if old in value:
            value[new] = value.pop(old)
    if isinstance(mode := value.get("mode"), str):
        value["mode"] = _RENAMED_MODES.get(mode, mode)
    return value


def _text(built: Any, separators: tuple[str, str] = (", ", ": ")) -> str:
    text = json.dumps(built, ensure_ascii=False, separators=separators, allow_nan=False)
    try:
        text.encode()
    except UnicodeEncodeError:
        # Python has lone surrogates for messages that are not UTF-8, which only escapes can carry.
        return json.dumps(built, separators=separators, allow_nan=False)
    return text
