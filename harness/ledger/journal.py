"""The journal: one file that describes an unfinished attempt, so that the next command can finish or undo it."""

import os
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Literal

import msgspec

from harness import files, reading_limits
from harness.errors import RatchetError
from harness.ledger.paths import Place


def path(place: Place) -> Path:
    """The journal of this contest in this working tree."""
    return place.state_directory / "journal.json"


@dataclass(frozen=True, slots=True, kw_only=True)
class Recording:
    """A decided attempt on its way into the ledger; every git object that it names is already stored.

    - `log_before` is the log's last commit before the attempt (None: no log).
    - `restore_blob` is the champion's kernel.py that replaces the candidate (None: kernel.py stays).
    - `guarded` are the paths that no ordinary commit may have changed since `judged_against`.
    """

    number: int
    accept: bool
    branch: str
    judged_against: str
    guarded: tuple[str, ...]
    log_before: str | None
    log_commit: str
    file_name: str
    kernel_mode: str
    candidate_blob: str
    candidate_sha256: str
    restore_blob: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Journal:
    """An attempt that has begun, with all that the next command needs to finish or undo it.

    `branch` is the branch when the attempt began (empty: detached HEAD). `original` is the user's candidate at that
    time. `written_sha256` are the hashes of the candidates that the ratchet wrote over it.
    """

    purpose: str
    branch: str
    original: bytes | None = None
    written_sha256: tuple[str, ...] = ()
    recording: Recording | None = None
    pid: int = field(default_factory=os.getpid)
    begun: str = field(default_factory=lambda: datetime.now(UTC).isoformat(timespec="seconds"))
    schema: Literal[1] = 1


def read(place: Place) -> Journal | None:
    """The journal, or None if nothing is unfinished. Raises RatchetError `bad-journal`; the file stays."""
    file = path(place)
    try:
        with files.refusals_in_words(f"reading {file}"):
            data = reading_limits.read(file) if file.exists() else None
        return None if data is None else msgspec.json.decode(data, type=Journal)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise RatchetError(
            "bad-journal",
            f"{file} describes an unfinished attempt but cannot be read ({error}); it may be from a newer version. "
            "Update the ratchet, or move the file away: then nothing is finished or undone, and kernel.py stays as it "
            "is (the file's field `original` is kernel.py before the attempt, in base64)",
        ) from error


def write(place: Place, journal: Journal) -> None:
    """Writes `journal`, durably. Raises RatchetError `no-space` or `read-only`; the old file stays."""
    files.write_atomically(path(place), msgspec.json.encode(journal))


def clear(place: Place) -> None:
    """Removes the journal: nothing is unfinished any more."""
    files.remove(path(place))
