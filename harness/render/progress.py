"""Progress on stderr: live lines on a terminal, plain lines elsewhere, nothing when quiet."""

import sys
import time
from collections.abc import Mapping
from types import TracebackType
from typing import Self, TextIO

from rich.console import Console
from rich.progress import Progress as Live
from rich.progress import SpinnerColumn, TaskID, TextColumn, TimeElapsedColumn

from harness.units import seconds as in_seconds

_BEGINS = ("start", "started", "begin", "running")
# The stages of an evaluation, explained to first-time readers.
STAGE_WORDS = {
    "trace": "kernel.py becomes a program",
    "compile": "by the chip's compiler",
    "certificate": "the program checked is the one compiled",
    "simulate": "executes the compiled schedule",
    "correctness": "full shape on the CPU, against float64",
    "reduced shapes": "on the CPU, against float64",
    "interpret": "step by step: races, bounds, unwritten memory",
    "checks left out": "those that the kernel is shipped without",
    "measure": "on the device",
}


class Progress:
    """Call it with (stage, state, seconds): `start` begins a stage, any other ends it (a word but `done` is shown).

    On a terminal each running stage is a line with its time so far, and a finished one stays as a
    plain line. Use as a context manager, which ends with the total. `stream` is stderr unless given.
    """

    def __init__(self, *, quiet: bool = False, stream: TextIO | None = None) -> None:
        stream = sys.stderr if stream is None else stream
        self._quiet = quiet
        self._stream = stream
        self._running: dict[str, TaskID] = {}
        self._console = Console(file=stream, highlight=False)
        self._live: Live | None = None
        self._began = time.monotonic()
        self._ended = 0
        self._begun: set[str] = set()
        self._overlapped = False
        self._expected: Mapping[str, float] = {}

    def __enter__(self) -> Self:
        self._began = time.monotonic()
        if not self._quiet and self._console.is_terminal:
            columns = (SpinnerColumn(), TextColumn("{task.description}", markup=False), TimeElapsedColumn())
            self._live = Live(*columns, console=self._console, transient=True)
            self._live.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._live is not None:
            self._live.stop()
            self._live = None
        if self._ended > 1 and error is None:
            self._print("total", time.monotonic() - self._began, "stages run side by side" if self._overlapped else "")

    def expect(self, stages: Mapping[str, float], total_seconds: float | None, attempts: int) -> None:
        """Announces the expected total, and each stage's time while it runs; from `attempts` earlier attempts."""
        self._expected = stages
        if total_seconds is not None and not self._quiet:
            of = "the last attempt" if attempts == 1 else f"median of the last {attempts} attempts"
            self._print("expected", total_seconds, of)

    def __call__(self, stage: str, state: str, seconds: float) -> None:
        """A stage began, or ended after `seconds`; stages run side by side, so they may end in any order."""
        if self._quiet:
            return
        (self._begun.add if state in _BEGINS else self._begun.discard)(stage)
        self._overlapped = self._overlapped or len(self._begun) > 1
        if state in _BEGINS:
            if self._live is not None and stage not in self._running:
                about = f" (of about {in_seconds(self._expected[stage], 1)})" if stage in self._expected else ""
                self._running[stage] = self._live.add_task(f"{stage}{about}")
            return
        task = self._running.pop(stage, None)
        if self._live is not None and task is not None:
            self._live.remove_task(task)
        self._ended += 1
        self._print(stage, seconds, STAGE_WORDS.get(stage, "") if state in ("done", "end", "ok") else state)

    def _print(self, stage: str, seconds: float, remark: str) -> None:
        text = f"  {stage:<22}{in_seconds(seconds, 1):>9}  {remark}".rstrip()
        if self._live is not None:
            self._console.print(text, markup=False)
        else:
            print(text, file=self._stream, flush=True)
