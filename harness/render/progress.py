"""Progress on stderr: live lines on a terminal, plain lines elsewhere, nothing when quiet."""

import sys
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from types import TracebackType
from typing import Self, TextIO

from rich.console import Console
from rich.progress import Progress as Live
from rich.progress import SpinnerColumn, TaskID, TextColumn, TimeElapsedColumn

from harness.units import seconds as in_seconds

_BEGINS = ("start", "started", "begin", "running")
# If stderr is not a terminal, a line names the running stages whenever nothing was printed for this long.
_SILENCE_SECONDS = 20.0
# What happens while no stage is running.
_BETWEEN_STAGES = "starting: prepare.py is read, and the judge's processes begin"
# The stages of an evaluation, explained to first-time readers.
STAGE_WORDS = {
    "trace": "kernel.py becomes a program",
    "compile": "with the chip's compiler",
    "certificate": "the checked program is the compiled program",
    "simulate": "executes the compiled schedule",
    "correctness": "full shape on the CPU, against float64",
    "reduced shapes": "on the CPU, against float64",
    "interpret": "step by step: races, bounds, unwritten memory",
    "checks left out": "the compiler's checks that the kernel switches off",
    "measure": "on the device",
}


def _ended(state: str) -> str:
    # The judge says this of every stage that ends when the outcome is known, also of the stage that decided it.
    return "ended early: the outcome is known" if state == "not needed" else state


class Progress:
    """The progress of stages, printed when it is called with (stage, state, seconds).

    The state `start` begins a stage. Any other state ends the stage, and is shown unless it is a success.

    On a terminal, each running stage is a line with its time so far, and a finished stage stays as a plain line.
    Elsewhere, a line names the running stages if nothing was printed for `_SILENCE_SECONDS`.

    Use it as a context manager: at its end it prints the total. `stream` is stderr by default.
    """

    def __init__(
        self, *, quiet: bool = False, stream: TextIO | None = None, silence_seconds: float = _SILENCE_SECONDS
    ) -> None:
        stream = sys.stderr if stream is None else stream
        self._quiet = quiet
        self._stream = stream
        self._running: dict[str, TaskID] = {}
        self._console = Console(file=stream, highlight=False)
        self._live: Live | None = None
        self._began = time.monotonic()
        self._ended = 0
        self._begun: dict[str, float] = {}
        self._overlapped = False
        self._expected: Mapping[str, float] = {}
        self._expected_seconds: float | None = None
        self._silence_seconds = silence_seconds
        self._printed = self._began
        self._is_over = threading.Event()
        # True once a line has reported that the expected time is over.
        self._is_late = False
        self._watch: threading.Thread | None = None
        # Guards the data that the watching thread shares with the others.
        self._lock = threading.Lock()

    def __enter__(self) -> Self:
        self._began = time.monotonic()
        if not self._quiet and self._console.is_terminal:
            columns = (SpinnerColumn(), TextColumn("{task.description}", markup=False), TimeElapsedColumn())
            self._live = Live(*columns, console=self._console, transient=True)
            self._live.start()
        elif not self._quiet:
            self._watch = threading.Thread(target=self._break_silence, daemon=True)
            self._watch.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._watch is not None:
            self._is_over.set()
            self._watch.join()
        if self._live is not None:
            self._live.stop()
            self._live = None
        if self._ended > 1 and error is None:
            self._print("total", time.monotonic() - self._began, "stages run side by side" if self._overlapped else "")

    def expect(self, stages: Mapping[str, float], total_seconds: float | None, source: str) -> None:
        """Announces the expected total, and each stage's expected time while it runs.

        `source` has words on the attempts that the figures come from. If `stages` has a `screening`, the total is that
        of a search: the screening and one attempt.
        """
        self._expected, self._expected_seconds = stages, total_seconds
        if total_seconds is not None and not self._quiet:
            screening = stages.get("screening")
            if screening is not None:
                attempt = in_seconds(total_seconds - screening, 1)
                source = f"screening {in_seconds(screening, 1)} and one attempt {attempt}, from {source}"
            self._print("expected", total_seconds, source)

    def __call__(self, stage: str, state: str, seconds: float) -> None:
        """Records that a stage began or, after `seconds`, ended. Stages run side by side and may end in any order."""
        if self._quiet:
            return
        with self._lock:
            if state in _BEGINS:
                self._begun.setdefault(stage, time.monotonic())
            else:
                self._begun.pop(stage, None)
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
        self._print(stage, seconds, STAGE_WORDS.get(stage, "") if state in ("done", "end", "ok") else _ended(state))

    @contextmanager
    def during(self, what: str) -> Iterator[None]:
        """Within this context `what` counts as running; nothing is printed when the context ends."""
        with self._lock:
            self._begun[what] = time.monotonic()
        try:
            yield
        finally:
            with self._lock:
                self._begun.pop(what, None)

    def _break_silence(self) -> None:
        while not self._is_over.wait(max(0.0, self._printed + self._silence_seconds - time.monotonic())):
            now = time.monotonic()
            if now - self._printed < self._silence_seconds:
                continue
            with self._lock:
                running = ", ".join(f"{stage} {in_seconds(now - begun, 1)}" for stage, begun in self._begun.items())
            elapsed = now - self._began
            expected = self._expected_seconds
            late = ""
            if expected is not None and elapsed > expected and not self._is_late:
                self._is_late = True
                late = f"; {in_seconds(expected, 1)} were expected"
            self._print("running", elapsed, f"{running or _BETWEEN_STAGES}{late}")

    def _print(self, stage: str, seconds: float, remark: str) -> None:
        self._printed = time.monotonic()
        text = f"  {stage:<22}{in_seconds(seconds, 1):>9}  {remark}".rstrip()
        if self._live is not None:
            self._console.print(text, markup=False)
        else:
            print(text, file=self._stream, flush=True)
