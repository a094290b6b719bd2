"""The account of one call of an HLO op: every cycle without an issue, and its cause."""

from collections import deque

from harness.dumps.llo import Schedule
from harness.records import PartKind


class Account:
    """Cycles without an issue by bundle, kind and name (see records.Part).

    `turn` counts the exit tests of the kernel's grid loop so far. The loop is pipelined, so it has `pipeline_depth`
    more turns than the grid has steps. A turn first fetches, then runs a step's body, then waits for the write-back of
    a body's output. So the first body runs in turn `first_body` = `pipeline_depth` - 1, and the last body in the second
    to last turn. `first_body` is None without a grid.
    """

    def __init__(self, schedule: Schedule) -> None:
        self.cycles: dict[tuple[int, PartKind, str], int] = {}
        self.name = schedule.name
        self.turn = 0
        self.first_body = None if schedule.grid_exit is None else max(0, schedule.pipeline_depth - 1)
        # Waits of recent turns, for which it is not known yet whether a body follows.
        self._recent: deque[tuple[int, bool, int, str, int]] = deque()

    def add(self, bundle: int, kind: PartKind, cycles: int, name: str = "") -> None:
        """Adds cycles that were not spent waiting for a transfer."""
        key = bundle, kind, name
        self.cycles[key] = self.cycles.get(key, 0) + cycles

    def wait(self, bundle: int, name: str, outgoing: bool, cycles: int) -> None:
        """Adds a wait for a transfer of the operand `name`; `outgoing` is True if the operand is written back."""
        if self.first_body is None:
            self.add(bundle, "operand wait", cycles, name)
        elif self.turn < self.first_body or (self.turn == self.first_body and not outgoing):
            self.add(bundle, "fill and drain", cycles, name)
        else:
            self._recent.append((self.turn, outgoing, bundle, name, cycles))
            self._settle(self.turn + 1)

    def _settle(self, turns: int, *, ended: bool = False) -> None:
        """Records the waits for which `turns` turns show whether a body follows; all waits if the loop has `ended`."""
        while self._recent and (ended or self._recent[0][0] < turns - 2):
            turn, outgoing, bundle, name, cycles = self._recent.popleft()
            drains = turn > turns - 2 or (turn == turns - 2 and outgoing)
            self.add(bundle, "fill and drain" if drains else "operand wait", cycles, name)

    def close(self) -> None:
        """Records the remaining waits when the op has ended."""
        self._settle(self.turn, ended=True)
