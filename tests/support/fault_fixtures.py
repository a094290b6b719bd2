"""Attempts in real processes that are broken at chosen writes: the client of fault_server."""

import json
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

Answer = dict[str, Any]
# The default git command that somebody else runs in a race.
COMMIT = ("commit", "-q", "--allow-empty", "--only", "-m", "race")


class Server:
    """A process that forks a fresh child per order, so that an attempt costs no start of Python."""

    def __init__(self) -> None:
        here = Path(__file__).parent
        self.process = subprocess.Popen(
            [sys.executable, str(here / "fault_server.py")],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env={**os.environ, "PYTHONPATH": os.pathsep.join([str(here), str(here.parents[1])])},
        )

    def send(
        self,
        contest: Path,
        action: str,
        fault: str = "none",
        at: int = 1,
        before: str = "",
        command: Sequence[str] = COMMIT,
    ) -> None:
        """Orders an attempt (`accept`, `reject`) or a `recover`; `fault` strikes at the `at`-th write with `before`."""
        assert self.process.stdin is not None
        order: dict[str, Any] = {"contest": str(contest), "action": action, "fault": fault, "at": at, "before": before}
        order["command"] = list(command)
        self.process.stdin.write(f"{json.dumps(order)}\n")
        self.process.stdin.flush()

    def answer(self) -> Answer:
        """The end of the process, and its writes; raises if it ended by a bug."""
        assert self.process.stdout is not None
        answer: Answer = json.loads(self.process.stdout.readline())
        assert answer["status"] != 5, answer["events"][-1][-1]
        return answer

    def obey(self, contest: Path, action: str, *words: Any, **more: Any) -> Answer:
        """Sends an order and returns the answer."""
        self.send(contest, action, *words, **more)
        return self.answer()

    def close(self) -> None:
        """Ends the process."""
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.close()
        self.process.wait(60)
        self.process.stdout.close()
