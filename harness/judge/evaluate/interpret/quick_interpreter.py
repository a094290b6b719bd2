"""JAX's TPU interpret mode with less bookkeeping: what it computes, what it finds and what it says are its own.

Two things took ten times as long as all else at 1,024 grid steps. To look for races, JAX compares every access of a
buffer with all that went before; nearly all of them are ordered, which their largest clock shows at once, and here JAX
is shown the others alone. And it makes arrays of its own of whatever a callback is given, which all of its callbacks
turn into numbers or numpy arrays again.
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
from jax._src.pallas.mosaic.interpret import interpret_pallas_call
from numpy.typing import NDArray

Clock = NDArray[np.int32]


@dataclass(slots=True)
class Accesses:
    """The reads, or the writes, of one buffer: what JAX notes of each, and its vector clock."""

    entries: list[Any] = field(default_factory=list)
    clocks: list[Clock] = field(default_factory=list)
    _latest: Clock | None = None
    # As many of `clocks` as were needed together so far, in rows.
    _matrix: Clock | None = None

    def add(self, entry: Any, clock: Clock) -> None:
        """Notes one access."""
        self.entries.append(entry)
        self.clocks.append(clock)
        self._latest = clock.copy() if self._latest is None else np.maximum(self._latest, clock)

    def unordered(self, clock: Clock) -> list[Any]:
        """What is noted of those that neither happened before `clock` nor after it, in their order."""
        # Later than the latest of each component is later than every one of them.
        if self._latest is None or _is_before(self._latest, clock):
            return []
        rows = self._rows()
        not_later, not_earlier = (rows <= clock).all(axis=1), (rows >= clock).all(axis=1)
        # Either way there has to be a component that differs: equal clocks are those of two that nothing orders.
        is_ordered = (not_later | not_earlier) & (rows != clock).any(axis=1)
        return [self.entries[place] for place in np.flatnonzero(~is_ordered)]

    def _rows(self) -> Clock:
        have = 0 if self._matrix is None else len(self._matrix)
        if have < len(self.clocks):
            new = np.stack(self.clocks[have:])
            self._matrix = new if self._matrix is None else np.concatenate((self._matrix, new))
        assert self._matrix is not None
        return self._matrix


def _is_before(one: Clock, other: Clock) -> bool:
    return bool((one <= other).all() and (one < other).any())


@contextlib.contextmanager
def quick_interpreter() -> Iterator[None]:
    """Within this context TPU interpret mode does less, as described above; what a JAX has otherwise stays as it is."""
    state: Any = getattr(interpret_pallas_call, "RaceDetectionState", None)
    called: Any = getattr(callback, "io_callback_impl", None)
    has_state, has_called = is_known(state), _is_known_call(called)
    if has_state:
        interpret_pallas_call.RaceDetectionState = quick(state)
    if has_called:
        callback.io_callback_impl = _called_with_its_arrays
    try:
        yield
    finally:
        if has_state:
            interpret_pallas_call.RaceDetectionState = state
        if has_called:
            callback.io_callback_impl = called


def _called_with_its_arrays(*arrays: Any, callback: Any, **_: Any) -> Any:
    return callback(*arrays)


def _is_known_call(function: Any) -> bool:
    """Whether it is the function that JAX calls with a callback's arguments when a program runs."""
    expected = ["args", "result_avals", "callback", "sharding", "ordered"]
    return inspect.isfunction(function) and list(inspect.signature(function).parameters) == expected


def is_known(state: Any) -> bool:
    """Whether JAX's class has what is used of it here."""
    checks = [getattr(state, name, None) for name in ("check_read", "check_write")]
    return inspect.isclass(state) and all(
        inspect.isfunction(check) and {"clock", "buffer_key"} <= set(inspect.signature(check).parameters)
        for check in checks
    )


def quick(state: Any) -> Any:
    """JAX's class of the races of one run, which is shown those accesses alone that may be part of one."""

    places = {name: _places(getattr(state, name)) for name in ("check_read", "check_write")}

    class Quick(state):  # type: ignore[misc]  # known at run time only
        def __init__(self, *arguments: Any, **named: Any) -> None:
            super().__init__(*arguments, **named)
            # Cores are threads of this process. What JAX is shown is in its own lists only while it looks.
            self._turn = threading.Lock()
            self._reads: dict[Any, Accesses] = defaultdict(Accesses)
            self._writes: dict[Any, Accesses] = defaultdict(Accesses)

        def check_read(self, *arguments: Any, **named: Any) -> None:
            clock, key = _clock_and_key(places["check_read"], arguments, named)
            with self._turn:
                self.writes[key] = self._writes[key].unordered(clock)
                self.reads[key] = []
                try:
                    super().check_read(*arguments, **named)
                finally:
                    self._reads[key].add(self.reads[key].pop(), clock)

        def check_write(self, *arguments: Any, **named: Any) -> None:
            clock, key = _clock_and_key(places["check_write"], arguments, named)
            with self._turn:
                self.writes[key] = self._writes[key].unordered(clock)
                self.reads[key] = self._reads[key].unordered(clock)
                try:
                    super().check_write(*arguments, **named)
                finally:
                    self._writes[key].add(self.writes[key].pop(), clock)

    return Quick


def _places(check: Any) -> dict[str, int]:
    """Where its parameters stand, `self` not counted."""
    return {name: place for place, name in enumerate(list(inspect.signature(check).parameters)[1:])}


def _clock_and_key(places: dict[str, int], arguments: tuple[Any, ...], named: dict[str, Any]) -> tuple[Clock, Any]:
    clock, key = (named[name] if name in named else arguments[places[name]] for name in ("clock", "buffer_key"))
    # jax 0.12 has a class of clocks, jax 0.10 the arrays themselves.
    return getattr(clock, "clock", clock), key
