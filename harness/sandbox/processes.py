"""The processes of children, and escaped processes, as /proc lists them: the child and the memory of each process."""

import contextlib
import ctypes
import os
import signal
import sys
from collections.abc import Collection, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from harness.sandbox import environment

# prctl(2): orphans below this process become its children, not init's, however often they forked.
_PR_SET_CHILD_SUBREAPER, _PR_GET_CHILD_SUBREAPER = 36, 37
_PROC = Path("/proc")


@dataclass(frozen=True, slots=True, kw_only=True)
class Process:
    """One living process; `leader` is the id of the child that it belongs to, None if it escaped from its child."""

    pid: int
    name: str
    leader: int | None
    threads: int
    resident_bytes: int

    @property
    def words(self) -> str:
        """The process's name in reports."""
        return f"{self.name or 'a process'} (pid {self.pid})"


@contextmanager
def adopting_orphans() -> Iterator[None]:
    """Within this context `below` finds all descendants of this process, however often they fork."""
    if sys.platform != "linux":
        yield
        return
    prctl = ctypes.CDLL(None).prctl
    before = ctypes.c_int(0)
    prctl(_PR_GET_CHILD_SUBREAPER, ctypes.byref(before))
    prctl(_PR_SET_CHILD_SUBREAPER, 1)
    try:
        yield
    finally:
        prctl(_PR_SET_CHILD_SUBREAPER, before.value)


def below(leaders: Collection[int]) -> tuple[Process, ...]:
    """All living processes of the children with these session leaders, and escaped processes; () without /proc.

    A process belongs to a leader by session or by descent. An escaped process was adopted by this process, but is in
    another session. Commands that this process runs are in its own session.
    """
    rows: dict[int, tuple[str, int, int, int, int]] = {}
    page = os.sysconf("SC_PAGE_SIZE")
    for pid in _numbers(_PROC):
        with contextlib.suppress(OSError):
            head, _, tail = (_PROC / str(pid) / "stat").read_bytes().rpartition(b")")
            # proc(5): after the name in parentheses come state, ppid, pgrp, session (4th) ... threads (18th),
            # rss in pages (22nd). The states Z and X mean that the process has ended, but was not reaped yet.
            fields = tail.split()
            if fields[0] not in (b"Z", b"X"):
                name = head.partition(b"(")[2].decode("utf-8", "replace")
                numbers = (int(fields[at]) for at in (1, 3, 17, 21))
                rows[pid] = (name, *numbers)  # type: ignore[assignment]
    here, own_session = os.getpid(), os.getsid(0)
    living = []
    for pid, (name, _, session, threads, pages) in rows.items():
        leader = session if session in leaders else _ancestor(pid, leaders, rows)
        if leader is None and (session == own_session or _ancestor(pid, (here,), rows) is None):
            continue
        shown = "".join(sign if sign.isprintable() else "?" for sign in name)
        process = Process(pid=pid, name=shown, leader=leader, threads=threads, resident_bytes=pages * page)
        living.append(process)
    return tuple(living)


def waited_seconds(of_child: Iterable[Process], seconds: float) -> float:
    """The seconds, at most `seconds`, in which these processes were ready to run, but waited for a core.

    Times count from the start of each process, so those of its earlier jobs are included. The result is 0 on an idle
    machine, for any number of threads, and about nine tenths of the time of a process that never sleeps if nine others
    want its core. A process that only sleeps does not wait. The result is also 0 if Linux does not report the times.
    """
    ran = waited = 0
    for process in of_child:
        tasks = _PROC / str(process.pid) / "task"
        for task in _numbers(tasks):
            with contextlib.suppress(OSError, ValueError):
                # Nanoseconds on a core, nanoseconds in the queue for a core, and number of turns.
                on_core, in_queue, _ = map(int, (tasks / f"{task}/schedstat").read_text().split())
                ran, waited = ran + on_core, waited + in_queue
    # More threads than cores wait for each other; that wait is their own.
    wanted = min(ran + waited, round(seconds * 1e9) * environment.cores()) if ran else 0
    share = min(1.0, ran / wanted) if wanted else 1.0
    return min(seconds, (ran + waited) / 1e9) * (1 - share)


def _numbers(folder: Path) -> tuple[int, ...]:
    """The ids that a folder of /proc lists; () if the folder is gone.

    A glob is not used: it would stat each match again, and raise if a process has ended meanwhile.
    """
    with contextlib.suppress(OSError):
        return tuple(int(name) for name in os.listdir(folder) if name.isdecimal())
    return ()


def kill(process: Process) -> None:
    """Ends one process, if it still exists."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.kill(process.pid, signal.SIGKILL)


def _ancestor(pid: int, targets: Collection[int], rows: dict[int, tuple[str, int, int, int, int]]) -> int | None:
    """The nearest ancestor of `pid` that is one of `targets`; None if there is none."""
    seen = set()
    while pid in rows and pid not in seen:
        seen.add(pid)
        pid = rows[pid][1]
        if pid in targets:
            return pid
    return None
