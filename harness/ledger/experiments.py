"""The ledger as files: experiments/NNNN-slug.json, one for every attempt, in the working tree and in commits."""

import os
import re
import unicodedata
from collections.abc import Iterable
from pathlib import Path

from harness import reading_limits
from harness.errors import RatchetError
from harness.ledger.codec import RecordError, decode_attempt_row, decode_head_row, is_complete
from harness.records import Row

SLUG_LENGTH = 40
# A row is about 1 KB; if the hypothesis makes it longer, the whole file is read.
_HEAD_BYTES = 8192
_NAME = re.compile(r"([0-9]{4,18})-[a-z0-9-]+\.json")


def slug(hypothesis: str) -> str:
    """The hypothesis as a part of a file name: ASCII, lower case, hyphens, at most 40 characters; never empty."""
    plain = unicodedata.normalize("NFKD", hypothesis).encode("ascii", "ignore").decode().lower()
    words = re.sub(r"[^a-z0-9]+", "-", plain).strip("-")
    return words[:SLUG_LENGTH].strip("-") or "attempt"


def file_name(number: int, hypothesis: str) -> str:
    """The name of an attempt's file, such as `0012-raise-bq-to-2048.json`."""
    return f"{number:04d}-{slug(hypothesis)}.json"


def number_of(name: str) -> int | None:
    """The number of the attempt in a file called `name`; None if it is not the name of an attempt's file."""
    match = _NAME.fullmatch(name)
    return int(match[1]) if match else None


def names_in(directory: Path) -> list[str]:
    """The names of attempts' files in `directory`, newest first; none if there is no such folder."""
    try:
        return newest_first(name for name in os.listdir(directory) if number_of(name) is not None)
    except (FileNotFoundError, NotADirectoryError):
        return []


def row_in(path: Path, where: str) -> Row:
    """The row of an attempt's file. Only the head of the file is read if it has the whole row.

    Raises RecordError if it cannot be read or ends too early.
    """
    try:
        reading_limits.check_file(path, reading_limits.RECORD)
        with open(path, "rb") as stream:
            head = stream.read(_HEAD_BYTES)
            stream.seek(0, os.SEEK_END)
            stream.seek(max(0, stream.tell() - 16))
            tail = stream.read()
            row = decode_head_row(head, where)
            if row is None or not is_complete(tail):
                stream.seek(0)
                row = decode_attempt_row(stream.read(), where)
            return row
    except OSError as error:
        raise RecordError("corrupt-record", f"{where} cannot be read: {error.strerror}") from error
    except RatchetError as error:
        raise RecordError(error.kind, str(error)) from error


def bytes_of(path: Path) -> bytes | None:
    """The bytes of an attempt's file, None if they cannot be read. Raises RecordError `too-large`."""
    try:
        return reading_limits.read(path, reading_limits.RECORD)
    except OSError:
        return None
    except RatchetError as error:
        raise RecordError(error.kind, str(error)) from error


def newest_first(names: Iterable[str]) -> list[str]:
    """`names` by number, highest first."""
    return sorted(names, key=lambda name: (number_of(name) or 0, name), reverse=True)
