"""A child process as its parent sees it, and the requests that are sent to it."""

import socket
import subprocess
from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from harness.records import Stage
from harness.sandbox import processes, strip_paths, warm

# On a busy machine a job gets more time, but at most this many times its limit.
_MOST_WAITING = 8


@dataclass(slots=True, kw_only=True, eq=False)
class Job:
    """One request to one child, and its time limit."""

    child: "Child"
    label: str
    stage: Stage
    task: str
    arguments: Any
    reply_type: type
    limit_seconds: float
    nonce: str
    started: float = 0.0
    seconds: float = 0.0


@dataclass(slots=True, eq=False)
class Child:
    """One process in a session of its own, the channel to it, and the descriptor from which its output is read."""

    name: str
    directory: Path
    process: subprocess.Popen[bytes] | warm.Forked
    channel: socket.socket
    output: int
    queue: deque[Job] = field(default_factory=deque)
    received: bytearray = field(default_factory=bytearray)
    printed: bytearray = field(default_factory=bytearray)
    printed_bytes: int = 0
    ended: bool = False

    def last_output(self) -> str:
        """The end of the child's output as text; bytes that are not UTF-8 are replaced."""
        return strip_paths.harmless(bytes(self.printed).decode("utf-8", errors="replace")).strip()


def is_over(job: Job, elapsed: float, of_child: Iterable[processes.Process]) -> bool:
    """True if a job has used its time, not counting the time (up to a bound) in which its child waits for a core."""
    if elapsed <= job.limit_seconds:
        return False
    used = elapsed - processes.waited_seconds(of_child, elapsed)
    return used > job.limit_seconds or elapsed > _MOST_WAITING * job.limit_seconds
