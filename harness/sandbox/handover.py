"""Copies a file of a child to a place where the child cannot replace it after the check."""

import os
import stat
from pathlib import Path

from harness.records import Failure, Stage

# Programs have a few MB, including their constants.
_LIMIT_BYTES = 1 << 30


def take_over(written: Path, kept: Path, stage: Stage) -> Failure | None:
    """Copies `written` from a child's folder to `kept`, out of the child's reach.

    Returns None, or a Failure if `written` cannot be opened, is not a regular file, or is too large. A link could lead
    to a file that the child must not read, and reading a pipe would wait forever.
    """
    try:
        descriptor = os.open(written, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError as error:
        return _forged(stage, f"expected a readable program in {written.name}, got the error: {error.strerror}")
    with open(descriptor, "rb") as stream:
        status = os.fstat(stream.fileno())
        if not stat.S_ISREG(status.st_mode) or status.st_size > _LIMIT_BYTES:
            return _forged(stage, f"expected {written.name} to be a regular file of at most {_LIMIT_BYTES >> 30} GiB")
        kept.write_bytes(stream.read())
    return None


def _forged(stage: Stage, message: str) -> Failure:
    return Failure(stage=stage, kind="forged-result", message=message)
