"""The start and the duration of each stage of an evaluation."""

import time

from harness.judge.evaluate.request import Progress
from harness.records import StageTime


class StageClock:
    """The times of stages by name; `progress` is called when a stage begins or ends. A stage may have several jobs."""

    def __init__(self, progress: Progress) -> None:
        self._progress = progress
        self._began = time.monotonic()
        self._open: dict[str, tuple[int, float]] = {}
        self._failures: dict[str, str] = {}
        self._times: list[StageTime] = []

    @property
    def times(self) -> tuple[StageTime, ...]:
        """The finished stages, in the order in which they began."""
        return tuple(sorted(self._times, key=lambda stage: stage.start_seconds))

    def begin(self, name: str) -> None:
        """Records that another job of the stage has started."""
        running, start = self._open.get(name, (0, time.monotonic()))
        self._open[name] = (running + 1, start)
        if not running:
            self._progress(name, "start", 0.0)

    def fail(self, name: str, kind: str) -> None:
        """Records that a job of the stage failed. The stage will end with the kind of its first failure."""
        self._failures.setdefault(name, kind)

    def close(self, name: str, state: str, *, goes_on: bool) -> None:
        """Records that one job of a stage is done; the last job ends the stage, unless `goes_on` is true."""
        running, start = self._open[name]
        self._open[name] = (running - 1, start)
        if running == 1 and not goes_on:
            self._end(name, state)

    def end_all(self, state: str) -> None:
        """Ends every stage that is still open."""
        for name in tuple(self._open):
            self._end(name, state)

    def _end(self, name: str, state: str) -> None:
        _, start = self._open.pop(name)
        seconds = time.monotonic() - start
        self._progress(name, self._failures.pop(name, state), seconds)
        self._times.append(StageTime(stage=name, start_seconds=start - self._began, seconds=seconds))
