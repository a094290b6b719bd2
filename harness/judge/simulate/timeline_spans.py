"""The recorder of a timeline's spans, row by row. A simulated run calls the recorder."""

from collections import Counter, deque
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from math import ceil

from harness.dumps.llo import Schedule
from harness.judge.simulate.functional_units import Pass, Stretch
from harness.judge.simulate.source_lines import Ascribed, ascribed
from harness.judge.simulate.stalls import Account
from harness.judge.simulate.structure import unit_of, vector_spill
from harness.records import Span, SpanKind

# The most spans in a row. Of a longer row, only the beginning, the end and the window are kept. Browsers display 15
# rows of this length without delay.
MOST_SPANS = 20_000
# The rows of transfers: to the core or within it, to HBM, to another chip.
READ, WRITTEN, SENT = "DMA in", "DMA out", "DMA to chips"


@dataclass(frozen=True, slots=True, kw_only=True)
class SpanWindow:
    """The part of an HLO op's first call that is shown bundle by bundle.

    - `op`: the op's name.
    - `first`, `last`: the first turn of the grid's loop in the window, and the first turn after it. For an op without a
      grid, both are cycles since the op's start.
    - `cycles`: the most cycles that are shown, not counting waits.
    """

    op: str
    first: int
    last: int
    cycles: int = 1 << 62


class _SpanRow:
    """Spans in the order of their ends. Keeps the first spans, the last spans and the spans of the window."""

    def __init__(self, most: int) -> None:
        self.half = most // 2
        self.first: list[Span] = []
        self.last: deque[Span] = deque(maxlen=self.half)
        self.left_out = 0

    def add(self, span: Span, shown: bool) -> None:
        if shown or len(self.first) < self.half:
            self.first.append(span)
            return
        self.left_out += len(self.last) == self.half
        self.last.append(span)


@dataclass(slots=True)
class _Call:
    """A call that is running. Its grid loop has been in turn `turn` since the cycle `turned`."""

    schedule: Schedule
    stretches: tuple[Stretch, ...]
    account: Account
    start: int
    window: SpanWindow | None
    turned: int
    turn: int = 0
    # The previous turn (number, start, end). It is added when another turn follows: the last turn is not a step.
    before: tuple[int, int, int] | None = None
    sources: list[Ascribed] | None = None
    shown_cycles: int = 0
    # Bytes that had been moved when the call began.
    moved_bytes: int = 0

    def shown(self, clock: int, turn: int) -> bool:
        """True if the cycle `clock`, or the turn `turn`, is in the window."""
        if self.window is None:
            return False
        place = clock - self.start if self.account.first_body is None else turn
        return self.window.first <= place < self.window.last


class SpanRecorder:
    """The spans of one core or chip, named `place`. A row keeps `most` spans, and all spans in its window.

    Without windows nothing is shown bundle by bundle. `flight_cycles` counts the cycles with a transfer in flight.
    `waited_cycles` counts the cycles in which, in addition, the core waits for a transfer. Both cover the whole run,
    including spans that are not kept.
    """

    def __init__(self, place: str, windows: Iterable[SpanWindow] = (), most: int = MOST_SPANS) -> None:
        self.place = place
        self.windows = {window.op: window for window in windows}
        self.most = most
        self.shown_cycles: tuple[int, int] | None = None
        self.flight_cycles = self.waited_cycles = self.moved_bytes = 0
        self._arrived = 0
        self._rows: dict[str, _SpanRow] = {}
        self._frames: list[_Call] = []
        self._seen: set[str] = set()
        # The last issue of each unit: successive bundles with the same issue are one span.
        self._issues: dict[str, tuple[str, int, int, int]] = {}

    @property
    def spans(self) -> Iterator[Span]:
        """All spans that are kept."""
        for row in self._rows.values():
            yield from row.first
            yield from row.last

    @property
    def left_out(self) -> Counter[str]:
        """The number of spans that are not kept, by row."""
        return Counter({name: row.left_out for name, row in self._rows.items() if row.left_out})

    def enter(self, schedule: Schedule, stretches: tuple[Stretch, ...], account: Account, clock: int) -> None:
        """Records that a call of an HLO op, or of the top-level program, begins."""
        window = None if schedule.name in self._seen else self.windows.get(schedule.name)
        self._seen.add(schedule.name)
        self._frames.append(_Call(schedule, stretches, account, clock, window, clock, moved_bytes=self.moved_bytes))

    def leave(self, clock: int) -> None:
        """Records that the innermost call has ended."""
        frame = self._frames[-1]
        if frame.before is not None:
            self._add(self._span("step", "steps", "drain", frame.before[1], clock))
        self._flush()
        self._frames.pop()
        if self._frames:
            span = self._span("op", "ops", frame.schedule.name, frame.start, clock)
            self._add(replace(span, hbm_bytes=self.moved_bytes - frame.moved_bytes))

    def passed(self, number: int, clock: int, after: Pass) -> None:
        """Records that stretch `number` of the innermost call begins at `clock`."""
        frame = self._frames[-1]
        if frame.account.turn != frame.turn:
            self._turn(frame, clock)
        if frame.shown(clock, frame.turn):
            self._bundles(frame, frame.stretches[number], clock, after)

    def transferred(self, name: str, row: str, hbm_bytes: int, start: int, arrival: int) -> None:
        """Records a transfer of the operand `name` that starts at `start` and arrives at `arrival`."""
        # Transfers come in the order of their starts.
        self.flight_cycles += max(0, arrival - max(start, self._arrived))
        self._arrived = max(self._arrived, arrival)
        self.moved_bytes += hbm_bytes
        self._add(replace(self._span("transfer", row, name, start, arrival), hbm_bytes=hbm_bytes))

    def crossed(self, link: str, name: str, link_bytes: int, times: Sequence[tuple[float, float]]) -> None:
        """Records, in the row `link`, the `times` at which a transfer uses one direction of a link between chips."""
        busy = sum(end - start for start, end in times)
        done, before = 0.0, 0
        for start, end in times:
            done += end - start
            moved = round(link_bytes * done / busy) if busy else 0
            where = Span(kind="link", row=link, name=name, start=ceil(start), end=ceil(end), link_bytes=moved - before)
            self._add(where)
            before = moved

    def waited(self, name: str, start: int, end: int) -> None:
        """Records that the core has waited for the operand `name`."""
        self.waited_cycles += max(0, min(end, self._arrived) - start)
        self._add(self._span("wait", "waits", name, start, end))

    def _turn(self, frame: _Call, clock: int) -> None:
        """Records that a turn has ended, and adds the turn before it, which was not the last."""
        if frame.before is not None:
            turn, start, end = frame.before
            step = turn - (frame.account.first_body or 0)
            self._add(self._span("step", "steps", f"step {step}" if step >= 0 else "fill", start, end), turn)
        frame.before = frame.turn, frame.turned, clock
        frame.turn, frame.turned = frame.account.turn, clock

    def _bundles(self, frame: _Call, stretch: Stretch, clock: int, after: Pass) -> None:
        stalls = {offset: (name, cycles) for offset, name, cycles in after.stalls}
        begin = self.shown_cycles[0] if self.shown_cycles else clock
        frame.sources = frame.sources or ascribed(frame.schedule)
        for index in range(stretch.first, stretch.last):
            if frame.window is None or frame.shown_cycles >= frame.window.cycles:
                frame.window = None
                break
            if index - stretch.first in stalls:
                name, cycles = stalls[index - stretch.first]
                self._add(self._span("stall", "stalls", name, clock, clock + cycles))
                clock += cycles
                frame.shown_cycles += cycles
            frame.shown_cycles += 1
            units: dict[str, set[str]] = {}
            lines: dict[str, int] = {}
            for op, source in zip(frame.schedule.bundles[index].ops, frame.sources[index].operations, strict=True):
                if unit := unit_of(op.opcode):
                    units.setdefault(unit, set()).add(f"{op.opcode} {vector_spill(op)}".strip())
                    lines[unit] = lines.get(unit) or int(source.rpartition(":")[2] or 0)
            for unit, names in units.items():
                self._issue(unit, " + ".join(sorted(names)), lines[unit], clock)
            clock += 1
        self.shown_cycles = begin, clock

    def _issue(self, unit: str, name: str, line: int, clock: int) -> None:
        pending = self._issues.get(unit)
        if pending is not None:
            if pending[:2] == (name, line) and pending[3] == clock:
                self._issues[unit] = name, line, pending[2], clock + 1
                return
            self._add(replace(self._span("issue", unit, pending[0], pending[2], pending[3]), line=pending[1]))
        self._issues[unit] = name, line, clock, clock + 1

    def _flush(self) -> None:
        for unit, (name, line, start, end) in self._issues.items():
            self._add(replace(self._span("issue", unit, name, start, end), line=line))
        self._issues.clear()

    def _span(self, kind: SpanKind, row: str, name: str, start: int, end: int) -> Span:
        return Span(kind=kind, row=f"{self.place} {row}", name=name, start=start, end=end)

    def _add(self, span: Span, turn: int | None = None) -> None:
        """Keeps a span, unless it is empty. `turn` is the span's turn; None for the innermost call's current turn."""
        if span.end == span.start:
            return
        frame = self._frames[-1]
        shown = span.kind not in ("issue", "stall") and frame.shown(span.start, frame.turn if turn is None else turn)
        self._rows.setdefault(span.row, _SpanRow(self.most)).add(span, shown)
