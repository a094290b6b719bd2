"""The limits on files that others wrote, the variables that raise these limits, and reports to a watching process."""

import ctypes
import errno
import gzip
import io
import os
import resource
import signal
import stat
import struct
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO

from harness.errors import Limit, RatchetError

_MIB = 1 << 20


# Captures and modules of several hundred MB are ordinary. A record has about 60 KB. A ledger of thousands of attempts
# is read at once.
FILE = Limit(counts="bytes in a file", most=1024 * _MIB, variable="RATCHET_MAX_FILE_BYTES")
UNPACKED = Limit(counts="bytes unpacked", most=256 * _MIB, variable="RATCHET_MAX_UNPACKED_BYTES")
RECORD = Limit(counts="bytes in a record or a kernel.py", most=16 * _MIB, variable="RATCHET_MAX_RECORD_BYTES")
LEDGER = Limit(counts="bytes from git at once", most=512 * _MIB, variable="RATCHET_MAX_LEDGER_BYTES")
ANSWER = Limit(counts="bytes in an answer", most=64 * _MIB, variable="RATCHET_MAX_ANSWER_BYTES")
# The limit of the verb `table`, which takes minutes for each shape.
SHAPES = Limit(counts="shapes in a file", most=10_000, variable="RATCHET_MAX_SHAPES")
# The most programs from which the best may be chosen. Nobody has compiled so many, and from 10^13 on a double cannot
# distinguish the chance of a false gain that is allowed to each program from 0.
MOST_LOOKED_AT = 10**9
# The limits of a whole process that reads files. The process may always take this much, however small the files are.
MEMORY = Limit(counts="bytes of memory", most=1024 * _MIB, variable="RATCHET_MAX_MEMORY_BYTES")
SECONDS = Limit(counts="seconds of a processor", most=20, variable="RATCHET_MAX_SECONDS")

_MEMORY_PER_BYTE = 10
_SECONDS_PER_MIB = 10
# Address space for tables of libraries and threads' stacks, which is reserved and hardly used.
_ROOM = 4 << 30

# PR_SET_PDEATHSIG of prctl(2).
_PR_SET_PDEATHSIG = 1

# The pipe by which this process tells its watching process what it reads: see harness.shell.watch.
_watcher: int | None = None


def memory_bytes(read: int) -> int:
    """The memory that a process may take after reading this many bytes: ten times as much, and at least MEMORY."""
    return max(MEMORY.value, _MEMORY_PER_BYTE * read)


def seconds(read: int) -> int:
    """The processor seconds that a process may take after reading this many bytes: ten per MiB, at least SECONDS."""
    return max(SECONDS.value, _SECONDS_PER_MIB * read // _MIB)


def read(path: Path, limit: Limit = FILE) -> bytes:
    """The bytes of a regular file. Raises RatchetError `too-large` or `not-a-file`, and OSError."""
    # Opening a pipe would otherwise wait for its writer.
    with open(os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK), "rb") as stream:
        _size(os.fstat(stream.fileno()), path, limit)
        return read_stream(stream, str(path), limit)


def check_file(path: Path, limit: Limit = FILE) -> int:
    """The size in bytes of a regular file that another reader is going to read. Raises what `read` raises."""
    return _size(os.stat(path), path, limit)


def _size(status: os.stat_result, path: Path, limit: Limit) -> int:
    if stat.S_ISDIR(status.st_mode):
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), str(path))
    if not stat.S_ISREG(status.st_mode):
        raise RatchetError("not-a-file", f"expected {path} to be a regular file, got a pipe, socket or device")
    limit.check(status.st_size, str(path))
    return status.st_size


def read_stream(stream: IO[bytes], name: str, limit: Limit = FILE) -> bytes:
    """All bytes of `stream`. Raises RatchetError `too-large`."""
    most = limit.value
    data = stream.read(most + 1)
    if len(data) > most:
        limit.refuse(name, f"more than {most:,}")
    note(len(data))
    return data


def unpacked(data: bytes, name: str) -> bytes:
    """The unpacked bytes of gzip data. Raises RatchetError `too-large`, and OSError or EOFError if data are cut off."""
    most = UNPACKED.value
    with gzip.GzipFile(fileobj=io.BytesIO(data)) as stream:
        contents = stream.read(most + 1)
    if len(contents) > most:
        UNPACKED.refuse(name, f"more than {most:,} out of {len(data):,}")
    note(len(contents))
    return contents


def note(size: int) -> None:
    """Tells the watching process that this process works on `size` more bytes of a file that others wrote."""
    if _watcher is not None:
        with suppress(OSError):
            os.write(_watcher, struct.pack("<q", size))


def note_objects(size: int) -> None:
    """Tells the watching process that `size` bytes of a capture become records: they count 1.5 times.

    The shortest events become 13 bytes of records for each of their bytes. The records and the table of a verb take 280
    MB for a capture of 23 MB with a million events of one statistic each, and 200 MB with two statistics, as TPUs write
    them (x86-64).
    """
    note(size // 2)


def allow(times: int) -> None:
    """Tells the watching process that data is read `times` times, so that reading may take that many times as long."""
    note(-times)


def watched_through(descriptor: int) -> None:
    """Makes `note` write to this pipe from now on."""
    global _watcher
    _watcher = descriptor


def confine(size: int) -> None:
    """Limits memory and processor time of this process, a child that works on `size` bytes.

    Beyond the limits, allocations fail or a signal ends the process.
    """
    memory, time = memory_bytes(size) + _ROOM, seconds(size)
    for kind, most in ((resource.RLIMIT_DATA, memory), (resource.RLIMIT_CPU, time)):
        hard = resource.getrlimit(kind)[1]
        with suppress(ValueError, OSError):
            resource.setrlimit(kind, (most if hard == resource.RLIM_INFINITY else min(most, hard), hard))


def end_with_parent() -> None:
    """Makes Linux kill this process when its parent dies, for whatever reason."""
    with suppress(OSError, AttributeError):
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)


@contextmanager
def pythons_limits_in_words(what: str) -> Iterator[None]:
    """Turns Python's own limits on nesting, memory and the size of numbers into a RatchetError `too-large`."""
    try:
        yield
    except RecursionError as error:
        raise RatchetError("too-large", f"{what} is nested too deeply for Python") from error
    except MemoryError as error:
        raise RatchetError("too-large", f"{what} needs more memory than there is") from error
    except OverflowError as error:
        raise RatchetError("too-large", f"{what} holds a number that is too large to compute with") from error
    except ValueError as error:
        if "integer string conversion" not in str(error):
            raise
        raise RatchetError("too-large", f"{what} holds a number of more digits than Python reads: {error}") from error
