"""Gives each transfer of an interpreted kernel a separate component of the vector clocks, and chooses when it ends.

It corrects two properties of JAX's TPU interpret mode (0.10.2, 0.12.0):

- JAX draws a component of the vector clocks for each transfer, and by default has as many of these components as cores.
  On one core, all transfers share one component. So two transfers seem to follow each other, and JAX misses races
  between a transfer and an access that did not wait for this transfer. This module gives each transfer a component that
  no other transfer under way has.
- If a wait may end several transfers, JAX always ends the transfer that was started last, and treats the wait as a wait
  for this transfer. But a wait counts bytes, whichever transfer moved them. So this module treats a transfer as arrived
  only when all transfers on the semaphore have been waited for.
"""

import contextlib
import inspect
import random
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from jax._src.pallas.mosaic.interpret import interpret_pallas_call, race_detection_state, shared_memory
from jax._src.pallas.mosaic.interpret import utils as interpret_utils

from harness.judge.evaluate.interpret import places
from harness.judge.evaluate.interpret.replaced import parameters, replaced, unknown_version

OVERLAP = "OVERLAPPING COPY"
TOO_MANY = "TOO MANY TRANSFERS"
# The limits on the number of transfers under way at a time, tried from first to last. The first limit is enough for
# nearly every kernel; with the last limit, the clock of each memory access takes 16 KiB.
MOST_UNDER_WAY = (62, 510, 4096)
MOST = f"expected at most {MOST_UNDER_WAY[-1]:,} transfers under way at a time, got more; wait for earlier ones first"
# A transfer advances its component by this number: by one before and after its read, and before and after its write.
_ADVANCE = 4

# The order in which a wait ends transfers: last started first, first started first, or drawn from this seed.
Order = Literal["last", "first"] | int


class TooManyTransfersError(RuntimeError):
    """More transfers are under way than the clocks have components."""


@dataclass(slots=True)
class Waits:
    """The findings about the waits of one run.

    `had_choice`: at least one wait could have ended any of several transfers. `unfinished`: the number of transfers
    that have not ended.
    """

    had_choice: bool = False
    unfinished: int = 0


@contextlib.contextmanager
def transfers_end(order: Order) -> Iterator[Waits]:
    """Within this context transfers end in `order`, and no two transfers under way share a component of the clocks.

    An interpreted kernel raises RuntimeError if a copy reads memory that it writes (OVERLAP), or if more transfers are
    under way than the clocks have components (TOO_MANY). Raises NotImplementedError for an unknown version of JAX's
    interpreter, because races would not be found.
    """
    memory, semaphore, dma = shared_memory.SharedMemory, shared_memory.Semaphore, interpret_pallas_call.DMA
    if not _is_known(memory, semaphore, dma):
        raise unknown_version("races would not be found")
    look_up = memory.get_semaphores_and_increment_clock
    begin, wait, read, write = semaphore.__init__, semaphore.wait, dma.execute_read, dma.execute_write
    clip = interpret_utils.clip_range_to_shape
    waits, drawn = Waits(), random.Random(order)
    starting, turn = threading.local(), threading.Lock()

    def looked_up(self: Any, *arguments: Any, **named: Any) -> Any:
        semaphores, clock = look_up(self, *arguments, **named)
        # The thread that starts a transfer has just looked up its semaphores.
        starting.clock = clock
        return semaphores, clock

    def component(self: Any) -> int:
        clock = components(starting.clock)
        with turn:
            ends = self.__dict__.setdefault("_ends_of_transfers", np.zeros_like(clock))
            # A component is free if the starting core has waited for the last transfer that had the component.
            free = np.flatnonzero(clock[self.num_cores :] == ends[self.num_cores :])
            if len(free):
                place: int = self.num_cores + int(free[0])
                ends[place] = clock[place] + _ADVANCE
                waits.unfinished += 1
                return place
        raise TooManyTransfersError(f"{TOO_MANY}: more than {self.vector_clock_size - self.num_cores:,} under way")

    class Tasks(list[Any]):
        """The transfers that a wait on one semaphore may end."""

        def append(self, task: Any) -> None:
            # A copy whose length is known only at run time may move nothing. Then no wait depends on this copy, so it
            # gives no wait a choice.
            if is_empty(interpret_utils.to_range(task.__self__.src_transforms)):
                task()
            else:
                super().append(task)

        def pop(self, *_: Any) -> Any:
            if len(self) > 1:
                waits.had_choice = True
            if order == "last":
                return super().pop()
            return super().pop(0 if order == "first" else drawn.randrange(len(self)))

    def begun(self: Any, *arguments: Any, **named: Any) -> None:
        begin(self, *arguments, **named)
        self.tasks = [Tasks(pending) for pending in self.tasks]

    def waited(self: Any, value: Any, global_core_id: Any, *, has_tasks: bool = False, **options: Any) -> None:
        if not int(value):
            # A wait for zero establishes no order, but JAX would order it after the signals that have arrived.
            return
        core = int(global_core_id)
        tasks = self.tasks[core]
        while has_tasks and self.count_by_core[core] < value and tasks:
            tasks.pop()()
        arrived = self.clocks[core]
        is_all = self.count_by_core[core] <= value and all(map(_has_ended, tasks))
        if not has_tasks or is_all or arrived is None:
            wait(self, value, global_core_id, has_tasks=has_tasks, **options)
            return
        # Another thread may read the clock at any time, so it is complete before it is set.
        nothing = arrived.copy()
        components(nothing)[:] = 0
        self.clocks[core] = nothing
        try:
            wait(self, value, global_core_id, has_tasks=has_tasks, **options)
        finally:
            self.clocks[core] = arrived

    def read_apart(self: Any) -> None:
        if _overlaps(self):
            raise RuntimeError(f"{OVERLAP}: a copy within one buffer reads memory that it writes")
        with places.at(self.source_info):
            read(self)

    def written(self: Any) -> None:
        was_done = self.state == interpret_pallas_call.DmaState.COMPLETED
        with places.at(self.source_info):
            write(self)
        if not was_done:
            with turn:
                waits.unfinished -= 1

    def clipped(where: Any, shape: Any) -> Any:
        # JAX would report an empty range at the end of a buffer as an access beyond the buffer.
        return where if is_empty(where) and _is_within(where, shape) else clip(where, shape)

    with (
        replaced(memory, get_semaphores_and_increment_clock=looked_up, get_random_virtual_device_id=component),
        replaced(semaphore, __init__=begun, wait=waited),
        replaced(dma, execute_read=read_apart, execute_write=written),
        replaced(interpret_utils, clip_range_to_shape=clipped),
    ):
        yield waits


def _is_known(memory: Any, semaphore: Any, dma: Any) -> bool:
    """True if JAX's classes have the functions that are replaced here."""
    functions = (
        (memory, "get_semaphores_and_increment_clock", ["self", "sem_ids", "global_core_id"]),
        (memory, "get_random_virtual_device_id", ["self"]),
        (dma, "execute_read", ["self"]),
        (dma, "execute_write", ["self"]),
        (interpret_utils, "clip_range_to_shape", ["rnge", "shape"]),
    )
    are_known = all(parameters(getattr(owner, name, None)) == names for owner, name, names in functions)
    wait = getattr(semaphore, "wait", None)
    return are_known and inspect.isfunction(wait) and _takes_has_tasks(wait)


def _takes_has_tasks(wait: Any) -> bool:
    options = inspect.signature(wait).parameters
    return "has_tasks" in options or any(option.kind is option.VAR_KEYWORD for option in options.values())


def _has_ended(task: Any) -> bool:
    """True if the part of the transfer that `task` performs (its read or its write) has already happened."""
    transfer, states = task.__self__, interpret_pallas_call.DmaState
    # A wait for the send needs only the read, because another chip's thread may read now and write later.
    is_read = not task.__name__.endswith("write")
    with transfer.lock:
        return bool(transfer.state == states.COMPLETED or (is_read and transfer.state != states.STARTED))


def is_empty(where: Any) -> bool:
    """True if these ranges select no element of a buffer."""
    return any(isinstance(part, slice) and part.stop <= part.start for part in where)


def _is_within(where: Any, shape: Any) -> bool:
    """True if no part of these ranges lies beyond the shape."""
    return all(
        part < length if isinstance(part, int) else part.stop <= length
        for part, length in zip(where, shape, strict=True)
    )


def components(clock: Any) -> Any:
    """The array of a vector clock. In jax 0.12 a clock is an object with an array; in jax 0.10 it is the array."""
    return getattr(clock, "clock", clock)


def _overlaps(dma: Any) -> bool:
    """True if the transfer reads and writes the same memory."""
    source = (dma.src_device_id, dma.src_local_core_id, dma.src_memory_space, dma.src_buffer_id)
    target = (dma.dst_device_id, dma.dst_local_core_id, dma.dst_memory_space, dma.dst_buffer_id)
    if source != target:
        return False
    ranges = (interpret_utils.to_range(transforms) for transforms in (dma.src_transforms, dma.dst_transforms))
    return bool(race_detection_state._ranges_overlap(*ranges))
