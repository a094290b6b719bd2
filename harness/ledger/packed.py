"""attempts.jsonl: the attempts of a contest in one file, one line of JSON each, with equal values stored once.

{"packed": 1}                                             first: the version of this form
{"shared": {NAME: VALUE, ...}}                            values that several records have, in short form
{"number": N, "row": ROW, "schema": S, "attempt": ATTEMPT}
                                                          an attempt: the document that experiments/NNNN-slug.json
                                                          held, its row and attempt in short form
{"note": ...}                                             a note about attempts, which `harness.ledger.notes` reads

`harness.ledger.shortening` describes the short form and the names. Lines are only ever appended, so git shows an
attempt as one more line. A merge of two clones that packed separately keeps the lines of both (`merge=union`, see
docs/LOOP.md). The order of the lines does not matter, and a line may occur twice. A line that cannot be read is named
and skipped; it stays in the file.
"""

import hashlib
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec

from harness import reading_limits
from harness.errors import RatchetError
from harness.ledger import git
from harness.ledger.codec import RecordError, compact, decode_row, laid_out
from harness.ledger.paths import Place
from harness.ledger.shortening import Budget, name_of, parsed, restored, unshared
from harness.records import Row

VERSION = 1
_MOST_COMPLAINTS = 20
# The attempt's number at the beginning of a line. It is read even if the rest of the line is damaged, because no other
# attempt may get this number.
_NUMBER = re.compile(rb'\{"number":([0-9]{1,18}),')


class _Line(msgspec.Struct):
    packed: int | None = None
    shared: dict[str, msgspec.Raw] | None = None
    note: msgspec.Raw = msgspec.Raw(b"")
    number: int | None = None
    row: msgspec.Raw = msgspec.Raw(b"null")
    schema: int = 0
    attempt: msgspec.Raw = msgspec.Raw(b"null")


@dataclass(frozen=True, slots=True, kw_only=True)
class Record:
    """One attempt's line: its number, and the short forms of row and attempt; `where` names file and line."""

    where: str
    number: int
    schema: int
    short_row: bytes
    short_attempt: bytes
    shared: Mapping[str, bytes]

    def row(self) -> Row:
        """The row, without reading the attempt. Raises RecordError."""
        built = self._value(self.short_row)
        if not isinstance(built, dict):
            raise RecordError("corrupt-record", f"{self.where} has no row")
        row = decode_row(compact({"schema": self.schema, **built}), self.where)
        if row.number != self.number:
            numbers = f"{self.number}, but its row is of attempt {row.number}"
            raise RecordError("foreign-record", f"{self.where} is of attempt {numbers}")
        return row

    def document(self) -> bytes:
        """The document that was packed, in the layout of today's files. Raises RecordError."""
        row, attempt = (compact(self._value(short)) for short in (self.short_row, self.short_attempt))
        return laid_out(self.schema, row, attempt)

    def short(self) -> tuple[Any, Any]:
        """Row and attempt in short form without names. Raises RecordError."""
        budget = Budget(self.where)
        row, attempt = (parsed(short, budget) for short in (self.short_row, self.short_attempt))
        return unshared(row, self.shared, budget), unshared(attempt, self.shared, budget)

    def _value(self, short: bytes) -> Any:
        budget = Budget(self.where)
        return restored(unshared(parsed(short, budget), self.shared, budget), budget)


@dataclass(frozen=True, slots=True, kw_only=True)
class Packed:
    """The lines of one attempts.jsonl.

    `complaints` name the lines that cannot be read; `damaged` holds the numbers of attempts in such lines.
    """

    data: bytes
    records: tuple[Record, ...]
    shared: Mapping[str, bytes]
    notes: tuple[str, ...]
    damaged: frozenset[int]
    complaints: tuple[RecordError, ...]


def lines_of(data: bytes) -> Iterator[bytes]:
    """The lines of a file of JSON lines, one after the other, without their line ends (Unix or Windows)."""
    start = 0
    while start < len(data):
        end = data.find(b"\n", start)
        end = len(data) if end < 0 else end
        yield data[start:end].rstrip(b"\r")
        start = end + 1


def read(data: bytes, where: str, shared: Mapping[str, bytes] | None = None) -> Packed:
    """The lines in `data`, a file called `where`; `shared` replaces shared values that are missing or damaged there."""
    values: dict[str, bytes] = {}
    records: list[Record] = []
    notes: list[str] = []
    damaged: set[int] = set()
    complaints: list[RecordError] = []
    ambiguous: set[str] = set()
    together = {**(shared or {})}
    for at, line in enumerate(lines_of(data), start=1):
        here = f"{where}, line {at}"
        try:
            kind = _line(line, here)
            if at == 1 and kind.packed is None:
                raise RecordError("corrupt-record", f'{here}: expected {{"packed":{VERSION}}} in the first line')
        except RecordError as error:
            complaints.append(error)
            if match := _NUMBER.match(line):
                damaged.add(int(match[1]))
            if error.kind == "newer-record":
                break
            continue
        if kind.shared is not None:
            for name, value in kind.shared.items():
                if name_of(bytes(value)) != name:
                    what = "is damaged: its name is not its hash"
                elif values.setdefault(name, bytes(value)) != bytes(value):
                    what = "differs from the value of that name in a line above"
                    ambiguous.add(name)
                else:
                    continue
                complaints.append(RecordError("corrupt-record", f"{here}: the shared value {name} {what}"))
        elif bytes(kind.note):
            notes.append(line.decode())
        elif kind.number is not None:
            records.append(
                Record(
                    where=here,
                    number=kind.number,
                    schema=kind.schema,
                    short_row=bytes(kind.row),
                    short_attempt=bytes(kind.attempt),
                    shared=together,
                )
            )
    for name in ambiguous:
        del values[name]
    together.update(values)
    if len(complaints) > _MOST_COMPLAINTS:
        more = len(complaints) - _MOST_COMPLAINTS
        complaints[_MOST_COMPLAINTS:] = [RecordError("corrupt-record", f"{where}: further damaged lines: {more}")]
    return Packed(
        data=data,
        records=tuple(records),
        shared=values,
        notes=tuple(notes),
        damaged=frozenset(damaged),
        complaints=tuple(complaints),
    )


def is_note(line: bytes) -> bool:
    """True if a line is a note about attempts."""
    try:
        return bool(bytes(_line(line, "a line").note))
    except RecordError:
        return False


def _line(line: bytes, where: str) -> _Line:
    try:
        reading_limits.RECORD.check(len(line), where)
        # The decoder below does not check the text of fields that it skips.
        line.decode()
        kind = msgspec.json.decode(line, type=_Line)
    except RatchetError as error:
        raise RecordError(error.kind, str(error)) from error
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        cut = " and may be cut off" if not line.endswith(b"}") else ""
        raise RecordError("corrupt-record", f"{where}: expected JSON; the line cannot be read{cut}: {error}") from error
    if kind.packed is not None and kind.packed > VERSION:
        raise RecordError(
            "newer-record",
            f"{where} says that the file is from a newer version (form {kind.packed}, this one reads up to "
            f"{VERSION}): update the ratchet",
        )
    if (kind.packed, kind.shared, kind.number) == (None, None, None) and not bytes(kind.note):
        raise RecordError("foreign-record", f"{where}: expected an attempt, shared values or a note, got none of these")
    return kind


# --- where it lies -----------------------------------------------------------------------------


def files(place: Place) -> tuple[Packed, ...]:
    """The file in the working tree, then the file at HEAD if it differs, as far as they exist. Raises RecordError."""
    here = bytes_here(place.packed_path)
    committed = at_head(place, unless=here)
    spare = {} if committed is None else committed.shared
    present = () if here is None else (read(here, place.packed, spare),)
    return present if committed is None else (*present, committed)


def bytes_here(path: Path) -> bytes | None:
    """The bytes of the file at `path`, or None if there is no file. Raises RecordError."""
    try:
        return reading_limits.read(path, reading_limits.LEDGER)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise RecordError("corrupt-record", f"{path} cannot be read: {error.strerror}") from error
    except RatchetError as error:
        raise RecordError(error.kind, str(error)) from error


def at_head(place: Place, unless: bytes | None = None) -> Packed | None:
    """The file at HEAD; None if HEAD has no such file, or one with the bytes `unless`."""
    blob = git.blob_ids(place.repository, (f"HEAD:{place.packed}",))[0]
    if blob is None or blob == _blob_id(unless, len(blob)):
        return None
    data = git.read_blobs(place.repository, (blob,))[0]
    return None if data is None else read(data, f"{place.packed} at HEAD")


def _blob_id(data: bytes | None, digits: int) -> str | None:
    if data is None:
        return None
    digest = hashlib.sha1 if digits == 40 else hashlib.sha256
    return digest(b"blob %d\0" % len(data) + data).hexdigest()


def notes_lines(place: Place) -> list[str]:
    """The lines of attempts.jsonl that are notes, each once: of the working tree's file or, without one, of HEAD's.

    Empty if the file cannot be read; the readers of attempts report that.
    """
    try:
        present = files(place)
    except RecordError:
        return []
    return list(dict.fromkeys(present[0].notes)) if present else []
