"""Notes in the ledger: lines of experiments/notes.jsonl or attempts.jsonl, and commits of the log that carry them.

Readers take the union of these places, so it is enough that a note is in one of them. Lines are only added, never
changed. Git merges the files of two clones by taking the lines of both, as experiments/.gitattributes states.
"""

import dataclasses
import math
from collections.abc import Iterator, Sequence
from contextlib import suppress
from typing import Any

import msgspec

from harness import files, reading_limits
from harness.errors import RatchetError
from harness.ledger import git, packed
from harness.ledger.codec import RecordError, WithSchema, newer
from harness.ledger.git import write
from harness.ledger.paths import Place
from harness.records import Key, Note
from harness.records.stored import SCHEMA

FILE_NAME = "notes.jsonl"
ATTRIBUTES_NAME = ".gitattributes"
FILES = (FILE_NAME, ATTRIBUTES_NAME)
# `eol=lf` is needed, because with Windows line endings a line would differ from the same line in another clone.
ATTRIBUTES = f"{FILE_NAME} merge=union text eol=lf\n"
# A log commit of notes has this trailer and no row.
TRAILER = "Ratchet-Notes"
# The most tries to move the log. A try fails only if another process moves the log at that very moment.
_RACES = 5


class _NoteLine(msgspec.Struct, frozen=True, kw_only=True):
    """One line: the schema of the record's fields, and the note."""

    schema: int
    note: Note


def read(place: Place) -> tuple[tuple[Note, ...], tuple[str, ...]]:
    """All notes, in the order in which they were taken, and sentences about skipped lines.

    They are read from the log, from attempts.jsonl, and from experiments/notes.jsonl in the working tree and at HEAD.
    """
    by_line: dict[str, Note] = {}
    skipped: list[str] = []
    for where, lines in _places(place):
        for number, line in enumerate(lines, 1):
            if line in by_line or not line:
                continue
            try:
                by_line[line] = decode(line, f"{where} line {number}")
            except RecordError as error:
                skipped.append(f"skipped: {error}")
    ordered = sorted(by_line.values(), key=lambda note: (note.after, note.when, note.attempt))
    return tuple(ordered), tuple(dict.fromkeys(skipped))


def decode(line: str, where: str) -> Note:
    """The note in a line. Raises RecordError that names `where` and what is wrong."""
    try:
        note = msgspec.json.decode(line.encode(), type=_NoteLine).note
    except (msgspec.MsgspecError, UnicodeError, RecursionError) as error:
        with suppress(msgspec.DecodeError, RecursionError):
            schema = msgspec.json.decode(line.encode("utf-8", "surrogateescape"), type=WithSchema).schema
            if schema > SCHEMA:
                raise newer(schema, where) from error
        raise RecordError("corrupt-record", f"{where} is not a note of the ratchet: {error}") from error
    times = (note.seconds, *(seconds for _, seconds in note.members))
    if any(seconds is not None and not 0 < seconds < math.inf for seconds in times):
        raise RecordError("corrupt-record", f"{where}: expected times above 0 s, got {times}")
    return note


def encode(note: Note) -> str:
    """A note as one line of JSON, without a newline. Fields without content (None, empty, 0 checks) are left out."""
    fields = {name: value for name, value in msgspec.to_builtins(note).items() if not _is_default(name, value)}
    return msgspec.json.encode({"schema": SCHEMA, "note": fields}).decode()


def _is_default(name: str, value: Any) -> bool:
    field = Note.__dataclass_fields__[name]
    return field.default is not dataclasses.MISSING and value in (field.default, [])


def keep(place: Place, notes: Sequence[Note]) -> None:
    """Adds notes to experiments/notes.jsonl; the log gets them with `log_pending`.

    The file is written whole or not at all.
    """
    path = place.experiments_directory / FILE_NAME
    here = _file_lines(place)
    packed_already = set(packed.notes_lines(place))
    more = [line for line in (*_lines_at_head(place), *map(encode, notes)) if line not in packed_already]
    lines = dict.fromkeys([*here, *more])
    if list(lines) == here:
        return
    attributes = path.with_name(ATTRIBUTES_NAME)
    if not attributes.exists():
        files.write_atomically(attributes, ATTRIBUTES.encode())
    files.write_atomically(path, "".join(f"{line}\n" for line in lines).encode("utf-8", "surrogateescape"))


def log_pending(place: Place) -> None:
    """Puts the notes of experiments/notes.jsonl and attempts.jsonl that the log lacks into the log, in one commit.

    Nothing is committed if the log has all of them, or if the clone has no log (its next attempt begins one). Raises
    RatchetError `ref-moved`.
    """
    for _ in range(_RACES):
        tip = git.commit_of(place.repository, place.log_ref)
        logged = {line for _, lines in _logged(place) for line in lines}
        lines = (*packed.notes_lines(place), *_file_lines(place))
        pending = [line for line in dict.fromkeys(lines) if line not in logged and _is_ours(line)]
        if tip is None or not pending:
            return
        blob = write.write_blob(place.repository, "".join(f"{line}\n" for line in pending).encode())
        index = place.state_directory / "index.notes"
        tree = write.write_tree(place.repository, None, {FILE_NAME: git.TreeEntry(blob=blob)}, index)
        commit = write.write_commit(place.repository, tree, (tip,), _message(pending))
        if write.moves_ref(place.repository, place.log_ref, commit, tip, "ratchet: notes"):
            return
    raise RatchetError(
        "ref-moved",
        f"the notes could not be committed to {place.log_ref}: another process moved it during each of {_RACES} tries. "
        f"New notes stay in {place.experiments}/{FILE_NAME} until a later command logs them",
    )


def outcome_of_checks(notes: Sequence[Note], attempt: int, kernel_sha256: str, key: Key) -> bool | None:
    """True if the kernel of an attempt passed each time it was checked under these keys; None if never checked."""
    about = [
        note
        for note in notes
        if note.kind == "checked"
        and (note.attempt, note.kernel_sha256) == (attempt, kernel_sha256)
        and note.key.counts_for(key)
    ]
    return all(note.passes for note in about) if about else None


def last_number(place: Place) -> int:
    """The number of the last attempt before the newest notes of the log; 0 if there are no notes.

    In a partly fetched log the notes may be the only trace of that attempt.
    """
    tip = git.commit_of(place.repository, place.log_ref)
    commits = git.log(place.repository, (tip,), limit=1, first_parent=True, containing=f"{TRAILER}: ") if tip else ()
    highest = 0
    for commit in commits:
        if is_notes(commit.message):
            for line in _split(git.file_at(place.repository, commit.id, FILE_NAME) or b""):
                with suppress(RecordError):
                    highest = max(highest, decode(line, "").after)
    return highest


def is_notes(message: str) -> bool:
    """True for the message of a log commit that holds notes and no attempt."""
    return message.rstrip().rpartition("\n")[2].startswith(f"{TRAILER}: ")


def _message(lines: Sequence[str]) -> str:
    notes = [decode(line, "a new note") for line in lines]
    checked = sum(note.kind == "checked" for note in notes)
    counts = {"timed": len(notes) - checked, "checked": checked}
    words = [f"{word} again: {count}" for word, count in counts.items() if count]
    return f"notes: attempts {', '.join(words)}\n\n{TRAILER}: {len(lines)}\n"


def _is_ours(line: str) -> bool:
    try:
        decode(line, "")
    except RecordError:
        return False
    return True


def _places(place: Place) -> Iterator[tuple[str, list[str]]]:
    yield from _logged(place)
    yield place.packed, packed.notes_lines(place)
    yield f"{place.experiments}/{FILE_NAME} at HEAD", _lines_at_head(place)
    yield f"{place.experiments}/{FILE_NAME}", _file_lines(place)


def _logged(place: Place) -> Iterator[tuple[str, list[str]]]:
    """The lines of each log commit of notes, oldest first."""
    tip = git.commit_of(place.repository, place.log_ref)
    if tip is None:
        return
    try:
        commits = git.log(place.repository, (tip,), first_parent=True, containing=f"{TRAILER}: ")[::-1]
        commits = tuple(commit for commit in commits if is_notes(commit.message))
        blobs = git.read_blobs(place.repository, [f"{commit.id}:{FILE_NAME}" for commit in commits])
    except (RatchetError, ValueError):
        # The log is damaged. `history.rows` reports this, and the files are read nevertheless.
        return
    for commit, data in zip(commits, blobs, strict=True):
        yield f"{FILE_NAME} in log commit {commit.id[:12]}", _split(data or b"")


def _lines_at_head(place: Place) -> list[str]:
    return _split(git.file_at(place.repository, "HEAD", f"{place.experiments}/{FILE_NAME}") or b"")


def _file_lines(place: Place) -> list[str]:
    try:
        return _split(reading_limits.read(place.experiments_directory / FILE_NAME, reading_limits.LEDGER))
    except OSError:
        return []


def _split(data: bytes) -> list[str]:
    reading_limits.note(len(data))
    lines = data.decode("utf-8", "surrogateescape").split("\n")
    return [line.rstrip("\r") for line in lines if line.strip()]
