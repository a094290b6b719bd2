"""One attempt at a time per repository: a lock that the operating system frees when its holder dies.

`flock` works between processes of one machine. On a network file system, it works between machines only if the server
passes locks on (NFSv4 usually does, NFSv3 and some cluster file systems do not). Without this, two machines that work
in one shared checkout at the same time are not protected from each other.
"""

import contextlib
import fcntl
import json
import os
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

from harness.errors import RatchetError
from harness.files import refusals_in_words


@contextlib.contextmanager
def hold(path: Path, purpose: str, *, otherwise: str = "") -> Iterator[None]:
    """Holds the lock at `path` for the body of the `with`; the file names the holder and the purpose.

    Raises RatchetError `busy` at once, naming the holder and the way out `otherwise`, if another process has the lock,
    and `read-only` or `no-space` if the file cannot be made. The unlocked file stays, because if it were removed, two
    processes could lock two different files of the same name.
    """
    with refusals_in_words(f"taking the lock {path}"):
        path.parent.mkdir(parents=True, exist_ok=True)
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise RatchetError(
                "busy",
                f"expected the lock {path} to be free, but another ratchet holds it: {_holder(descriptor)}; wait for "
                f"that process, then run again{otherwise}",
            ) from error
        with refusals_in_words(f"writing the lock {path}"):
            since = datetime.now(UTC).isoformat(timespec="seconds")
            text = json.dumps({"pid": os.getpid(), "purpose": purpose, "since": since})
            os.ftruncate(descriptor, 0)
            os.pwrite(descriptor, text.encode(), 0)
        try:
            yield
        finally:
            with contextlib.suppress(OSError):
                os.ftruncate(descriptor, 0)
    finally:
        os.close(descriptor)


def holder(path: Path) -> str | None:
    """The holder of the lock at `path`, in words, or None. Takes the lock, shared, for a moment."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError:
        return None
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
        return None
    except BlockingIOError:
        return _holder(descriptor)
    finally:
        os.close(descriptor)


def _holder(descriptor: int) -> str:
    try:
        holder = json.loads(os.pread(descriptor, 4096, 0))
        return f"process {holder['pid']} ({holder['purpose']}), since {holder['since']}"
    except (OSError, ValueError, KeyError, TypeError):
        # The holder has not written its name yet, or is just releasing the lock.
        return "a process that has not recorded its name yet"
