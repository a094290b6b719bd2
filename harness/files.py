"""Atomic writes of files, the operating system's errors as RatchetErrors, and symbolic links out of a repository."""

import contextlib
import errno
import os
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

from harness.errors import RatchetError

# A temporary file lies in its target's folder, because a rename is atomic only within one file system.
TEMPORARY_SUFFIX = ".ratchet-new"
_NO_SPACE = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG}
_READ_ONLY = {errno.EROFS, errno.EACCES, errno.EPERM}


def write_atomically(path: Path, data: bytes, mode: int | None = None) -> None:
    """Writes `data` to `path`, as `written_atomically` does."""
    with written_atomically(path, mode) as stream:
        stream.write(data)


@contextlib.contextmanager
def written_atomically(path: Path, mode: int | None = None) -> Iterator[BinaryIO]:
    """A stream for the new contents of `path`: a reader sees either the old bytes or the new ones.

    The contents go through a synced temporary file and a rename.

    Keeps the permissions that `path` has; a new file gets `mode` or the process's default.
    Raises RatchetError `no-space`, `read-only` or `io`; `path` is then unchanged.
    """
    temporary = temporary_of(path)
    with refusals_in_words(f"writing {path}"):
        make_directory(path.parent)
        try:
            with open(temporary, "wb") as stream:
                yield stream
                stream.flush()
                if path.exists():
                    os.fchmod(stream.fileno(), path.stat().st_mode & 0o7777)
                elif mode is not None:
                    os.fchmod(stream.fileno(), mode)
                os.fsync(stream.fileno())
            os.replace(temporary, path)
        finally:
            with contextlib.suppress(OSError):
                temporary.unlink(missing_ok=True)
        sync_directory(path.parent)


def remove(path: Path) -> None:
    """Removes `path` durably, if it exists. Raises RatchetError `read-only` or `io`."""
    with refusals_in_words(f"removing {path}"):
        path.unlink(missing_ok=True)
        sync_directory(path.parent)


def temporary_of(path: Path) -> Path:
    """The temporary file of `write_atomically(path, ...)`; a killed process may leave it behind."""
    return path.with_name(f".{path.name}{TEMPORARY_SUFFIX}")


def make_directory(directory: Path) -> None:
    """Makes `directory` and its missing parents, durably. Raises OSError."""
    missing = [folder for folder in (directory, *directory.parents) if not folder.exists()]
    if missing:
        directory.mkdir(parents=True, exist_ok=True)
    for folder in missing:
        sync_directory(folder.parent)


def sync_directory(directory: Path) -> None:
    """Makes the names in `directory` durable: otherwise a power cut may undo a rename."""
    descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


@contextlib.contextmanager
def refusals_in_words(doing: str) -> Iterator[None]:
    """Turns an OSError of its body into a RatchetError of kind `no-space`, `read-only` or `io`."""
    try:
        yield
    except OSError as error:
        reason = error.strerror or str(error)
        if error.errno in _NO_SPACE:
            raise RatchetError(
                "no-space", f"no space left while {doing} ({reason}); free some space and run again"
            ) from error
        if error.errno in _READ_ONLY:
            raise RatchetError(
                "read-only", f"{doing} is not allowed here ({reason}); make the repository writable for you"
            ) from error
        raise RatchetError("io", f"{doing} failed: {reason}") from error


def cache_directory() -> Path | None:
    """The ratchet's folder in the user's cache folder, which may not exist yet; None if no absolute path is known.

    The user's cache folder is XDG_CACHE_HOME, or .cache in HOME.
    """
    folder = os.environ.get("XDG_CACHE_HOME") or os.path.join(os.environ.get("HOME", ""), ".cache")
    return Path(folder) / "kernel-ratchet" if os.path.isabs(folder) else None


# Verbs record the Python files, and write to the folders and attempts.jsonl.
LINKS_OF_A_CONTEST = ("*.py", "experiments", "attempts.jsonl", "profile_data")


def refuse_links(directory: Path) -> None:
    """Raises RatchetError `outside` if a file of the contest that verbs read or write lies outside its repository."""
    folder = directory.resolve()
    root = next((above for above in (folder, *folder.parents) if (above / ".git").exists()), folder)
    for path in (path for pattern in LINKS_OF_A_CONTEST for path in folder.glob(pattern)):
        # For a circular link this is the link itself, which no verb can open.
        target = Path(os.path.realpath(path))
        if path.is_symlink() and not target.is_relative_to(root):
            raise RatchetError(
                "outside",
                f"{path} is a symbolic link to {target}, which lies outside the repository {root}: if you trust the "
                "source of the link, put the file itself there",
            )
