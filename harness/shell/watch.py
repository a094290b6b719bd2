"""Runs a verb that reads strangers' files: in a child, which is ended if it takes too much time or memory."""

import os
import signal
import struct
import sys
import time
from collections.abc import Callable
from contextlib import suppress

from harness import reading_limits

_LOOK_SECONDS = 0.02
_HEARD_SECONDS = 0.5
_NUMBER = struct.Struct("<q")
_FORWARDED = (signal.SIGTERM, signal.SIGHUP)


def run_watched(run: Callable[[], int], fail: Callable[[str, str], int]) -> int:
    """The exit code of `run`, which runs in a child, or of `fail(kind, message)` if the child had to be ended.

    Memory and time are limited from the first `reading_limits.note` on, because before it the child has not read any
    stranger's file.
    """
    if not hasattr(os, "fork"):
        return run()
    reading, writing = os.pipe()
    os.set_blocking(reading, False)
    child = os.fork()
    if child == 0:
        os.close(reading)
        _run(run, writing)
    os.close(writing)
    # Ctrl-C on a terminal reaches the child as well, and the child prints what it left behind. A signal to this process
    # alone is passed on, once it is clear that the child did not get it.
    asked: list[float] = []
    before = signal.signal(signal.SIGINT, lambda number, _: asked.append(time.monotonic() + _HEARD_SECONDS))
    for number in _FORWARDED:
        signal.signal(number, lambda number, _: os.kill(child, number))
    try:
        status, size, complaint = _until_it_ends(child, reading, asked)
    finally:
        os.close(reading)
        signal.signal(signal.SIGINT, before)
        for number in _FORWARDED:
            signal.signal(number, signal.SIG_DFL)
    if complaint:
        return fail("too-large", complaint)
    code = os.waitstatus_to_exitcode(status)
    if code >= 0:
        return code
    if size is None or -code in (signal.SIGTERM, signal.SIGHUP, signal.SIGINT):
        return 128 - code
    name = signal.Signals(-code).name
    return fail("reader-died", f"the file may be broken or hostile: the process that read it was ended by {name}")


def _run(run: Callable[[], int], writing: int) -> None:
    """Runs `run` in the child and ends the process with its exit code; does not return."""
    code = 5
    try:
        reading_limits.end_with_parent()
        reading_limits.watched_through(writing)
        code = run()
        sys.stdout.flush()
        sys.stderr.flush()
    except SystemExit as error:
        code = error.code if isinstance(error.code, int) else 1
    finally:
        os._exit(code)


def _until_it_ends(child: int, reading: int, asked: list[float]) -> tuple[int, int | None, str]:
    """The child's wait status, the number of bytes that it reported, and the reason why it was ended, or "".

    `asked` are the times after which the child is interrupted, if it still runs.
    """
    size: int | None = None
    begun, early = 0.0, 0.01
    wait, times = 0.001, 1
    complaint = ""
    while True:
        ended, status = os.waitpid(child, os.WNOHANG)
        if ended:
            return status, size, complaint
        if asked and time.monotonic() > asked[0]:
            asked.clear()
            os.kill(child, signal.SIGINT)
        if not complaint:
            numbers = _reported(reading)
            if numbers and size is None:
                begun = _cpu_seconds(child)
            if numbers:
                size = (size or 0) + sum(number for number in numbers if number > 0)
                times = max(times, *(-number for number in numbers))
            if size is not None:
                complaint = _excess(child, size, times, _cpu_seconds(child) - begun)
            if complaint:
                os.kill(child, signal.SIGKILL)
        # The first waits are short, so that a quick verb does not have to wait for its watcher.
        wait = min(_LOOK_SECONDS, wait * 1.5 if wait < early else _LOOK_SECONDS)
        time.sleep(wait)


def _reported(reading: int) -> list[int]:
    try:
        data = os.read(reading, 1 << 16)
    except BlockingIOError:
        return []
    return [number for (number,) in _NUMBER.iter_unpack(data[: len(data) // 8 * 8])]


def _excess(child: int, size: int, times: int, spent: float) -> str:
    """A sentence on the limit that the child exceeds; "" if it exceeds none."""
    most_bytes, most_seconds = reading_limits.memory_bytes(size), reading_limits.seconds(size) * times
    what = f"the data read ({size:,} bytes)"
    if (resident := _resident_bytes(child)) > most_bytes:
        return (
            f"{what} takes {resident:,} bytes of memory, more than {most_bytes:,}; the limit is ten times the bytes "
            f"read, but at least {reading_limits.MEMORY.variable} ({reading_limits.MEMORY.value:,}): raise this "
            "variable if you trust the file"
        )
    if spent > most_seconds:
        return (
            f"{what} takes more than {most_seconds:,} s of CPU time; the limit is the larger of 10 s for each "
            f"MiB and {reading_limits.SECONDS.variable} ({reading_limits.SECONDS.value:,} s), times {times}: raise "
            "this variable if you trust the file"
        )
    return ""


def _resident_bytes(child: int) -> int:
    with suppress(OSError, IndexError, ValueError), open(f"/proc/{child}/statm", "rb") as stream:
        return int(stream.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    return 0


def _cpu_seconds(child: int) -> float:
    """CPU seconds of all threads of the child; wall clock if there is no /proc."""
    with suppress(OSError, IndexError, ValueError), open(f"/proc/{child}/stat", "rb") as stream:
        fields = stream.read().rpartition(b")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
    return time.monotonic() if not os.path.isdir("/proc/self") else 0.0
