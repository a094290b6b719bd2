"""JAX's TPU interpret mode with less bookkeeping; except for empty accesses, its results and reports are the same.

At 1,024 grid steps, two parts of JAX's mode took ten times as long as all others together:

- To find races, JAX compares every access of a buffer with all earlier accesses. Nearly all of these pairs are ordered,
  or touch different memory. This module passes only the other pairs to JAX. It compares only accesses that overlap, and
  it compares an access with the maximum of many clocks at once.
- JAX converts the arguments of each callback to JAX arrays, and the callback converts them back. This module leaves out
  both conversions.
"""

import contextlib
import inspect
import threading
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from jax._src import callback, source_info_util
from jax._src.pallas.mosaic.interpret import interpret_pallas_call
from numpy.typing import NDArray

from harness.judge.evaluate.interpret import places
from harness.judge.evaluate.interpret.replaced import parameters, replaced
from harness.judge.evaluate.interpret.transfers import components

Clock = NDArray[np.int32]
# The first index and the end of an access in each of `_DIMENSIONS` dimensions.
Ranges = tuple[tuple[int, int], ...]

# The number of accesses in a block. A block whose latest clock is before an access is skipped as a whole.
_BLOCK = 256
_DIMENSIONS = 16
_WHOLE = ((0, np.iinfo(np.int64).max),) * _DIMENSIONS
# The parameters of JAX's function that calls a callback, and the parameters of its checks that are used here.
_CALLBACK = ["args", "result_avals", "callback", "sharding", "ordered"]
_CHECKED = ("clock", "buffer_key", "rnge")


@dataclass(slots=True)
class _Block:
    """Consecutive accesses with the same ranges: their numbers, and the componentwise maximum of their clocks."""

    numbers: list[int] = field(default_factory=list)
    clocks: list[Clock] = field(default_factory=list)
    latest: Clock | None = None
    # The clocks as rows of a matrix; clocks added since the last use of the matrix are missing.
    rows: Clock | None = None

    def matrix(self) -> Clock:
        if self.rows is None or len(self.rows) < len(self.clocks):
            self.rows = np.stack(self.clocks)
        return self.rows


@dataclass(slots=True)
class _Neighbours:
    """The places of the ranges that overlap one range, among the first `compared` ranges of a buffer."""

    places: list[int] = field(default_factory=list)
    compared: int = 0


class Accesses:
    """The reads, or the writes, of one buffer: JAX's note on each, its ranges, and its vector clock.

    A kernel that copies page by page accesses few ranges again and again, so accesses with the same ranges are kept
    together. A new access is compared only with accesses whose ranges overlap its own.
    """

    def __init__(self) -> None:
        self._entries: list[Any] = []
        self._blocks: list[list[_Block]] = []
        self._places: dict[Ranges, int] = {}
        self._neighbours: dict[Ranges, _Neighbours] = {}
        # The bounds of each range in each dimension; there may be more rows than ranges.
        self._starts, self._stops = (np.zeros((_BLOCK, _DIMENSIONS), np.int64) for _ in range(2))

    def add(self, entry: Any, clock: Clock, ranges: Ranges) -> None:
        """Records one access."""
        place = self._places.setdefault(ranges, len(self._blocks))
        if place == len(self._blocks):
            self._blocks.append([])
            if place == len(self._starts):
                self._starts, self._stops = (np.concatenate([rows, rows]) for rows in (self._starts, self._stops))
            self._starts[place], self._stops[place] = np.transpose(ranges)
        blocks = self._blocks[place]
        if not blocks or len(blocks[-1].numbers) == _BLOCK:
            blocks.append(_Block())
        block = blocks[-1]
        block.numbers.append(len(self._entries))
        block.clocks.append(clock)
        block.latest = clock.copy() if block.latest is None else np.maximum(block.latest, clock)
        self._entries.append(entry)

    def unordered(self, clock: Clock, ranges: Ranges) -> list[Any]:
        """The notes on overlapping accesses that are ordered neither before nor after `clock`, oldest first."""
        numbers: list[int] = []
        for block in (block for place in self._overlapping(ranges) for block in self._blocks[place]):
            latest = block.latest
            # A clock later than the maximum is later than every clock in the block.
            if latest is None or ((latest <= clock).all() and (latest < clock).any()):
                continue
            rows = block.matrix()
            not_later, not_earlier = (rows <= clock).all(axis=1), (rows >= clock).all(axis=1)
            # Two accesses with equal clocks are not ordered.
            is_ordered = (not_later | not_earlier) & (rows != clock).any(axis=1)
            numbers += [block.numbers[place] for place in np.flatnonzero(~is_ordered)]
        return [self._entries[number] for number in sorted(numbers)]

    def _overlapping(self, ranges: Ranges) -> list[int]:
        """The places of the ranges that overlap `ranges` in every dimension."""
        neighbours, count = self._neighbours.setdefault(ranges, _Neighbours()), len(self._blocks)
        if neighbours.compared < count:
            starts, stops = np.transpose(ranges)
            new = slice(neighbours.compared, count)
            overlaps = np.maximum(self._starts[new], starts) < np.minimum(self._stops[new], stops)
            neighbours.places += [*(neighbours.compared + np.flatnonzero(overlaps.all(axis=1))).tolist()]
            neighbours.compared = count
        return neighbours.places


@contextlib.contextmanager
def quick_interpreter() -> Iterator[None]:
    """Within this context TPU interpret mode does less bookkeeping, except where this version of JAX is unknown."""
    state: Any = getattr(interpret_pallas_call, "RaceDetectionState", None)
    with contextlib.ExitStack() as replacements:
        if is_known(state):
            replacements.enter_context(replaced(interpret_pallas_call, RaceDetectionState=quick(state)))
        # At run time JAX calls this function with the arguments of a callback.
        if parameters(getattr(callback, "io_callback_impl", None)) == _CALLBACK:
            replacements.enter_context(replaced(callback, io_callback_impl=_called_with_its_arrays))
        summarize = getattr(source_info_util, "summarize", None)
        if parameters(summarize) == ["source_info", "num_frames"]:
            replacements.enter_context(replaced(source_info_util, summarize=_remembered(summarize)))
        yield


def _remembered(summarize: Any) -> Any:
    """JAX's function that describes the source line of an access; it searches the frames of each source only once."""
    texts: dict[tuple[int, int], tuple[Any, str]] = {}

    def remembered(source: Any, num_frames: int = 1) -> str:
        # The source is kept alive, so that no later source has its id().
        if (id(source), num_frames) not in texts:
            texts[id(source), num_frames] = source, summarize(source, num_frames)
        return texts[id(source), num_frames][1]

    return remembered


def _called_with_its_arrays(*arrays: Any, callback: Any, **_: Any) -> Any:
    named = getattr(getattr(callback, "callback_func", None), "keywords", {})
    with places.at(named.get("source_info")):
        return callback(*arrays)


def is_known(state: Any) -> bool:
    """True if `state` is JAX's class in a known version."""
    checks = [getattr(state, name, None) for name in ("check_read", "check_write")]
    return inspect.isclass(state) and all({*_CHECKED} <= {*parameters(check)} for check in checks)


def quick(state: Any) -> Any:
    """A subclass of JAX's class for the races of one run; it passes on only accesses that may be part of a race."""
    positions = {name: _positions(getattr(state, name)) for name in ("check_read", "check_write")}

    class Quick(state):  # type: ignore[misc]  # known at run time only
        def __init__(self, *arguments: Any, **named: Any) -> None:
            super().__init__(*arguments, **named)
            # Cores are threads of this process, and JAX's lists are filled only during a check. So only one check may
            # run at a time.
            self._turn = threading.Lock()
            self._reads: dict[Any, Accesses] = defaultdict(Accesses)
            self._writes: dict[Any, Accesses] = defaultdict(Accesses)

        def check_read(self, *arguments: Any, **named: Any) -> None:
            clock, key, ranges = _what_is_checked(positions["check_read"], arguments, named)
            with self._turn:
                self.writes[key] = self._writes[key].unordered(clock, ranges)
                self.reads[key] = []
                try:
                    super().check_read(*arguments, **named)
                finally:
                    self._reads[key].add(self.reads[key].pop(), clock, ranges)

        def check_write(self, *arguments: Any, **named: Any) -> None:
            clock, key, ranges = _what_is_checked(positions["check_write"], arguments, named)
            with self._turn:
                self.writes[key] = self._writes[key].unordered(clock, ranges)
                self.reads[key] = self._reads[key].unordered(clock, ranges)
                try:
                    super().check_write(*arguments, **named)
                finally:
                    self._writes[key].add(self.writes[key].pop(), clock, ranges)

    return Quick


def _positions(check: Any) -> dict[str, int]:
    """The positions of the parameters of `check`, without `self`."""
    return {name: place for place, name in enumerate(parameters(check)[1:])}


def _what_is_checked(
    positions: dict[str, int], arguments: tuple[Any, ...], named: dict[str, Any]
) -> tuple[Clock, Any, Ranges]:
    """The clock, the buffer and the ranges of an access."""
    clock, key, where = (named[name] if name in named else arguments[positions[name]] for name in _CHECKED)
    return components(clock), key, ranges_of(where)


def ranges_of(where: Any) -> Ranges:
    """The first index and the end of the access in each dimension; dimensions that `where` lacks are accessed whole.

    An empty access, such as a copy of no rows, overlaps nothing here; JAX may count it as overlapping other accesses.
    """
    bounds = [
        _WHOLE[0]
        if part == slice(None)
        else (int(part.start), int(part.stop))
        if isinstance(part, slice)
        else (int(part), int(part) + 1)
        for part in where
    ]
    return (*bounds, *_WHOLE[len(bounds) :])
