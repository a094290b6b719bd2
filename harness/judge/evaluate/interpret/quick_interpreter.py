"""JAX's TPU interpret mode with less bookkeeping; except for empty accesses, its results and reports are the same.

At 1,024 grid steps, two parts of that mode took ten times as long as all others together. First, to find races, JAX
compares every access of a buffer with all earlier accesses. Nearly all pairs are ordered, or touch different memory;
this mode passes only the other pairs to JAX. The maximum of many clocks shows at once that an access is later than all
these clocks. Second, JAX converts the arguments of each callback to JAX arrays, and the callback converts them back.
Here the arguments are not converted.
"""

import contextlib
import inspect
import threading
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from jax._src import callback
from jax._src.pallas.mosaic.interpret import interpret_pallas_call, race_detection_state
from numpy.typing import NDArray

from harness.judge.evaluate.interpret.replaced import parameters, replaced
from harness.judge.evaluate.interpret.transfers import components, is_empty

Clock = NDArray[np.int32]

# The number of accesses in a block. A block whose latest clock is before an access is skipped as a whole.
_BLOCK = 256
# The parameters of JAX's function that calls a callback, and the parameters of its checks that are used here.
_CALLBACK = ["args", "result_avals", "callback", "sharding", "ordered"]
_CHECKED = ("clock", "buffer_key", "rnge")


@dataclass(slots=True)
class _Block:
    """Consecutive accesses: JAX's note on each access, and the componentwise maximum of their clocks."""

    entries: list[Any] = field(default_factory=list)
    clocks: list[Clock] = field(default_factory=list)
    latest: Clock | None = None
    # The clocks as rows of a matrix; clocks added since the last use of the matrix are missing.
    rows: Clock | None = None

    def matrix(self) -> Clock:
        if self.rows is None or len(self.rows) < len(self.clocks):
            self.rows = np.stack(self.clocks)
        return self.rows


@dataclass(slots=True)
class Accesses:
    """The reads, or the writes, of one buffer: JAX's note on each, and its vector clock."""

    blocks: list[_Block] = field(default_factory=list)

    def add(self, entry: Any, clock: Clock) -> None:
        """Records one access."""
        if not self.blocks or len(self.blocks[-1].entries) == _BLOCK:
            self.blocks.append(_Block())
        block = self.blocks[-1]
        block.entries.append(entry)
        block.clocks.append(clock)
        block.latest = clock.copy() if block.latest is None else np.maximum(block.latest, clock)

    def unordered(self, clock: Clock) -> list[Any]:
        """The notes on accesses that are ordered neither before nor after `clock`, oldest first."""
        entries: list[Any] = []
        for block in self.blocks:
            latest = block.latest
            # A clock later than the maximum is later than every clock in the block.
            if latest is None or ((latest <= clock).all() and (latest < clock).any()):
                continue
            rows = block.matrix()
            not_later, not_earlier = (rows <= clock).all(axis=1), (rows >= clock).all(axis=1)
            # Two accesses with equal clocks are not ordered.
            is_ordered = (not_later | not_earlier) & (rows != clock).any(axis=1)
            entries += [block.entries[place] for place in np.flatnonzero(~is_ordered)]
        return entries


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
        yield


def _called_with_its_arrays(*arrays: Any, callback: Any, **_: Any) -> Any:
    return callback(*arrays)


def is_known(state: Any) -> bool:
    """True if `state` is JAX's class in a known version."""
    checks = [getattr(state, name, None) for name in ("check_read", "check_write")]
    return inspect.isclass(state) and all({*_CHECKED} <= {*parameters(check)} for check in checks)


def quick(state: Any) -> Any:
    """A subclass of JAX's class for the races of one run; it passes on only accesses that may be part of a race."""
    places = {name: _places(getattr(state, name)) for name in ("check_read", "check_write")}

    class Quick(state):  # type: ignore[misc]  # known at run time only
        def __init__(self, *arguments: Any, **named: Any) -> None:
            super().__init__(*arguments, **named)
            # Cores are threads of this process, and JAX's lists are filled only during a check. So only one check may
            # run at a time.
            self._turn = threading.Lock()
            self._reads: dict[Any, Accesses] = defaultdict(Accesses)
            self._writes: dict[Any, Accesses] = defaultdict(Accesses)

        def check_read(self, *arguments: Any, **named: Any) -> None:
            clock, key, where = _what_is_checked(places["check_read"], arguments, named)
            with self._turn:
                self.writes[key] = _overlapping(self._writes[key].unordered(clock), where)
                self.reads[key] = []
                try:
                    super().check_read(*arguments, **named)
                finally:
                    self._reads[key].add(self.reads[key].pop(), clock)

        def check_write(self, *arguments: Any, **named: Any) -> None:
            clock, key, where = _what_is_checked(places["check_write"], arguments, named)
            with self._turn:
                self.writes[key] = _overlapping(self._writes[key].unordered(clock), where)
                self.reads[key] = _overlapping(self._reads[key].unordered(clock), where)
                try:
                    super().check_write(*arguments, **named)
                finally:
                    self._writes[key].add(self.writes[key].pop(), clock)

    return Quick


def _places(check: Any) -> dict[str, int]:
    """The positions of the parameters of `check`, without `self`."""
    return {name: place for place, name in enumerate(parameters(check)[1:])}


def _overlapping(accesses: list[Any], where: Any) -> list[Any]:
    """The accesses whose ranges overlap `where`. The second to last item of an access holds its ranges.

    An empty range, such as that of a copy of no rows, overlaps nothing; JAX may count it as overlapping other ranges.
    """
    if is_empty(where):
        return []
    return [
        access
        for access in accesses
        if not is_empty(access[-2]) and race_detection_state._ranges_overlap(where, access[-2])
    ]


def _what_is_checked(
    places: dict[str, int], arguments: tuple[Any, ...], named: dict[str, Any]
) -> tuple[Clock, Any, Any]:
    """The clock, the buffer and the ranges of an access."""
    clock, key, where = (named[name] if name in named else arguments[places[name]] for name in _CHECKED)
    return components(clock), key, where
