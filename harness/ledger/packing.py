"""Moves the attempts' files of experiments/ into attempts.jsonl; a kill at any moment loses nothing."""

import contextlib
import json
import os
from collections.abc import Iterable, Iterator

from harness import files, reading_limits
from harness.errors import RatchetError
from harness.ledger import experiments, git, packed
from harness.ledger import notes as notes_of
from harness.ledger.codec import RecordError, compact, decode_attempt, decode_attempt_row, value_text
from harness.ledger.packed import Packed
from harness.ledger.paths import PACKED_NAME, Place
from harness.ledger.shortening import Budget, Pool, parsed, shorten, unshared
from harness.records.stored import Packing
from harness.units import quantity

_ATTRIBUTES = f"{PACKED_NAME} merge=union\n"


def pack(place: Place) -> Packing:
    """Moves every attempt's file and note of experiments/ into attempts.jsonl.

    Changes only files in the working tree:

    - The contest's .gitattributes gets a line, unless git already knows how to merge attempts.jsonl.
    - The new attempts.jsonl is written first, whole or not at all. Lines are only appended, so a line that cannot be
      read stays.
    - Then the files whose attempts it contains are removed. If the process is killed in between, the next call removes
      them. A file without a readable attempt stays.

    Raises RatchetError if attempts.jsonl is from a newer version, or cannot be read or written.
    """
    path = place.packed_path
    if path.is_symlink():
        raise RatchetError(
            "not-a-file", f"expected {path} to be a file, got a symbolic link: replace the link by a copy of the file"
        )
    before = packed.read(packed.bytes_here(path) or b"", place.packed)
    if newer := next((error for error in before.complaints if error.kind == "newer-record"), None):
        raise newer
    left = list(map(str, before.complaints))
    documents = dict(_documents(place, left))
    texts = {name: value_text(document) for name, document in documents.items()}
    stored = set(_texts_in(before, left))
    new = {text: documents[name] for name, text in texts.items() if text not in stored}
    notes, may_go = _notes(place, left)
    new_notes = [line for line in notes if line not in before.notes]
    data = before.data
    if new or new_notes:
        data = _appended(before, new.values(), new_notes)
        stored = set(_texts_in(packed.read(data, place.packed), []))
        if changed := new.keys() - stored:
            raise AssertionError(f"records that would change if packed: {len(changed)}; nothing was written")
        _say_how_to_merge(place)
        files.write_atomically(path, data)
    sources = [place.experiments_directory / name for name, text in texts.items() if text in stored]
    moved = len(sources)
    if may_go:
        sources.append(place.experiments_directory / notes_of.FILE_NAME)
    bytes_before = len(before.data) + sum(source.stat().st_size for source in sources)
    for source in sources:
        files.remove(source)
    _remove_folder(place)
    return Packing(
        moved=moved,
        notes=len(new_notes),
        attempts=len(stored),
        bytes_before=bytes_before,
        bytes_after=len(data),
        left=tuple(left),
    )


def _documents(place: Place, left: list[str]) -> Iterator[tuple[str, bytes]]:
    """The attempts' files that can be packed, by name, lowest number first; `left` gets a sentence on the others."""
    for name in reversed(experiments.names_in(place.experiments_directory)):
        path, where = place.experiments_directory / name, f"{place.experiments}/{name}"
        try:
            if path.is_symlink():
                raise RecordError("not-a-file", f"{where} is a symbolic link")
            data = experiments.bytes_of(path)
            if data is None:
                raise RecordError("corrupt-record", f"{where} cannot be read")
            numbers = {decode_attempt_row(data, where).number, decode_attempt(data, where).number}
            if numbers != {experiments.number_of(name)}:
                raise RecordError("foreign-record", f"{where}: the name and the record disagree about the number")
            document = json.loads(data)
            if document.keys() != {"schema", "row", "attempt"}:
                raise RecordError("foreign-record", f"{where} has other fields than schema, row and attempt")
            compact(shorten(document))
        except RecordError as error:
            left.append(f"left where it is: {error}")
        except ValueError as error:
            left.append(f"left where it is: {where}: {error}")
        else:
            yield name, data


def _texts_in(file: Packed, left: list[str]) -> Iterator[str]:
    """The readable documents of a file, in the form of `value_text`; `left` gets the errors of the other documents."""
    for record in file.records:
        try:
            yield value_text(record.document())
        except RecordError as error:
            left.append(str(error))


def _notes(place: Place, left: list[str]) -> tuple[list[str], bool]:
    """The lines of experiments/notes.jsonl, each once, and True if all are notes, so that the file can be removed."""
    path = place.experiments_directory / notes_of.FILE_NAME
    data = packed.bytes_here(path)
    if data is None or path.is_symlink():
        return [], False
    notes: dict[str, None] = {}
    strange = 0
    for line in packed.lines_of(data):
        if packed.is_note(line):
            notes[line.decode()] = None
        else:
            strange += 1
    if strange:
        left.append(f"left where it is: {place.experiments}/{notes_of.FILE_NAME}: lines that are not notes: {strange}")
    return list(notes), not strange


def _appended(before: Packed, documents: Iterable[bytes], notes: Iterable[str]) -> bytes:
    """The bytes of a file with further attempts and notes; its present lines stay as they are."""
    pool = Pool()
    for name, value in before.shared.items():
        pool.taken_names.add(name)
        with contextlib.suppress(RecordError):
            budget = Budget(name)
            pool.names[compact(unshared(parsed(value, budget), before.shared, budget))] = name
    for record in before.records:
        with contextlib.suppress(RecordError):
            for short in record.short():
                pool.count(short)
    shortened = []
    for document in map(json.loads, documents):
        row, attempt = shorten(document["row"]), shorten(document["attempt"])
        pool.count(row)
        pool.count(attempt)
        shortened.append((document["row"]["number"], row, document["schema"], attempt))
    lines = [] if before.data else [f'{{"packed":{packed.VERSION}}}']
    for number, row, schema, attempt in shortened:
        new: dict[str, str] = {}
        short_row, short_attempt = compact(pool.share(row, new)), compact(pool.share(attempt, new))
        if new:
            lines.append(f'{{"shared":{{{",".join(f"{json.dumps(name)}:{value}" for name, value in new.items())}}}}}')
        lines.append(f'{{"number":{number},"row":{short_row},"schema":{schema},"attempt":{short_attempt}}}')
    lines += notes
    end = b"" if before.data.endswith(b"\n") or not before.data else b"\n"
    return before.data + end + "".join(f"{line}\n" for line in lines).encode()


def _say_how_to_merge(place: Place) -> None:
    """Tells git to keep the lines of both sides when it merges attempts.jsonl, unless it has a rule for that file."""
    if git.attribute(place.repository, place.packed, "merge") != "unspecified":
        return
    path = place.packed_path.with_name(".gitattributes")
    before = reading_limits.read(path) if path.exists() else b""
    end = b"" if before.endswith(b"\n") or not before else b"\n"
    files.write_atomically(path, before + end + _ATTRIBUTES.encode())


def _remove_folder(place: Place) -> None:
    """Removes experiments/ if it is empty, or if it has only the .gitattributes of notes that were removed."""
    folder = place.experiments_directory
    attributes = folder / notes_of.ATTRIBUTES_NAME
    with contextlib.suppress(OSError):
        if os.listdir(folder) == [attributes.name] and attributes.read_bytes() == notes_of.ATTRIBUTES.encode():
            attributes.unlink()
        folder.rmdir()


def summary(packing: Packing) -> str:
    """The report of `pack` in one sentence."""
    attempts, size = quantity(packing.attempts, "attempt"), f"{packing.bytes_after:,} bytes"
    if not packing.moved and not packing.notes:
        return f"nothing to pack: {PACKED_NAME} holds {attempts}, {size}"
    notes = f" and {quantity(packing.notes, 'note')}" if packing.notes else ""
    return (
        f"{quantity(packing.moved, 'attempt')}{notes} moved into {PACKED_NAME}, which holds {attempts}: now {size}, "
        f"before packing {packing.bytes_before:,}"
    )
