"""Tracks the events of other chips that an interpreted chip can rely on: a chip has begun, a wait took a signal.

If a kernel contains a barrier, JAX's TPU interpret mode (0.10.2, 0.12.0) lets a chip write to a chip that has not
begun. It also treats a wait for one of several signals as a wait for all signals that have arrived. Both hide races.
"""

import contextlib
import itertools
import math
import threading
from collections import Counter
from collections.abc import Iterator
from typing import Any

import numpy as np
from jax._src.pallas.mosaic.interpret import interpret_pallas_call, shared_memory

from harness.judge.evaluate.interpret.deadlocks import let_others_go_on, wait_with_others
from harness.judge.evaluate.interpret.replaced import replaced
from harness.judge.evaluate.interpret.transfers import components

NOT_BEGUN = "CHIP NOT BEGUN"
# If there are at most this many ways to take units from the senders, all ways are compared. If there are more, only the
# units that each sender must have sent are considered.
_MOST_WAYS = 4096


@contextlib.contextmanager
def knowledge_of_chips(late: int) -> Iterator[None]:
    """Within this context a wait proves only the events without which its semaphore cannot reach the count.

    Chip `late` ends a wait only when no other chip can continue. By then, all signals and transfers that do not depend
    on this wait have begun. So all signals and transfers that could end the wait are known, including those for other
    waits.

    An interpreted kernel raises RuntimeError (NOT_BEGUN) if a chip sends to another chip before it has received a
    signal from that chip, directly or through other chips. To send is to copy, or to signal a semaphore other than a
    barrier's.
    """
    memory, semaphore, dma = shared_memory.SharedMemory, shared_memory.Semaphore, interpret_pallas_call.DMA
    look_up, synchronise = memory.get_semaphores_and_increment_clock, memory.update_clocks
    guarantee, make = memory.guarantee_semaphore_with_fixed_id, dma.__init__
    signal, wait = semaphore.signal, semaphore.wait
    acting = threading.local()

    def note_core(self: Any, sem_ids: Any, global_core_id: Any) -> Any:
        acting.core = int(global_core_id)
        return look_up(self, sem_ids, global_core_id)

    def note_barrier(self: Any, *threads: Any) -> None:
        synchronise(self, *threads)
        count = threads[1] - threads[0] if len(threads) > 1 else len(threads[0])
        # JAX puts this barrier before every kernel that has no barrier of its own.
        self.all_have_begun = getattr(self, "all_have_begun", False) or count == self.num_cores

    def note_semaphore(self: Any, semaphore_id: Any) -> None:
        self.__dict__.setdefault("barriers", set()).add(int(semaphore_id))
        guarantee(self, semaphore_id)

    def make_transfer(self: Any, *arguments: Any, **named: Any) -> None:
        make(self, *arguments, **named)
        _require_begun(self.dst_sem.shared_memory, self.src_device_id, self.dst_device_id, self.clock)

    def note_signal(self: Any, inc: Any, global_core_id: Any, clock: Any, *arguments: Any, **named: Any) -> None:
        core, sender = int(global_core_id), getattr(acting, "core", int(global_core_id))
        if self.id not in getattr(self.shared_memory, "barriers", ()):
            _require_begun(self.shared_memory, sender, core, clock)
        with self.cv:
            self.__dict__.setdefault("sent", {}).setdefault(core, []).append((sender, int(inc), clock.copy()))
            signal(self, inc, global_core_id, clock, *arguments, **named)

    def wait_for_known(self: Any, value: Any, global_core_id: Any, *, has_tasks: bool = False, **options: Any) -> None:
        core = int(global_core_id)
        if core == late:
            let_others_go_on(self.shared_memory, core)
        if has_tasks:
            wait(self, value, global_core_id, has_tasks=has_tasks, **options)
            return
        wait_with_others(self, int(value), core)
        with self.cv:
            units_taken = self.__dict__.setdefault("taken", Counter())
            units_taken[core] += int(value)
            arrived = self.clocks[core]
            if arrived is not None:
                sent = self.__dict__.get("sent", {}).get(core, [])
                self.clocks[core] = _certain_clock(arrived, sent, units_taken[core])
            try:
                wait(self, value, global_core_id, has_tasks=has_tasks, **options)
            finally:
                self.clocks[core] = arrived

    with (
        replaced(
            memory,
            get_semaphores_and_increment_clock=note_core,
            update_clocks=note_barrier,
            guarantee_semaphore_with_fixed_id=note_semaphore,
        ),
        replaced(semaphore, signal=note_signal, wait=wait_for_known),
        replaced(dma, __init__=make_transfer),
    ):
        yield


def _require_begun(memory: Any, sender: int, target: int, clock: Any) -> None:
    """Raises RuntimeError if the sender's clock has no event of the target. Clocks begin at zero in each kernel."""
    if sender != target and not getattr(memory, "all_have_begun", False) and not components(clock)[target]:
        raise RuntimeError(
            f"{NOT_BEGUN}: chip {sender} sends to chip {target} without knowing that chip {target} has begun this "
            "kernel; let the two chips signal each other's barrier semaphore first"
        )


def _certain_clock(arrived: Any, sent: list[tuple[int, int, Any]], units_taken: int) -> Any:
    """The vector clock of the events that must have happened before `units_taken` units could be taken.

    The units may come from any of the senders. Units of one sender are taken in the order in which they were sent. The
    chip knows only the events that all ways to take the units have in common.
    """
    certain_clock = arrived.copy()
    numbers = components(certain_clock)
    numbers[:] = 0
    if not sent:
        return certain_clock
    heard: dict[int, list[Any]] = {}
    for sender, units, clock in sent:
        before = heard.setdefault(sender, [np.zeros_like(numbers)])
        before += [np.maximum(before[-1], components(clock))] * units
    spare = sum(len(clocks) - 1 for clocks in heard.values()) - units_taken
    counts = [range(max(0, len(clocks) - 1 - spare), len(clocks)) for clocks in heard.values()]
    if math.prod(map(len, counts)) > _MOST_WAYS:
        counts = [count[:1] for count in counts]
        units_taken = sum(count[0] for count in counts)
    ways = [
        np.maximum.reduce([clocks[count] for clocks, count in zip(heard.values(), way, strict=True)])
        for way in itertools.product(*counts)
        if sum(way) == units_taken
    ]
    if ways:
        numbers[:] = np.minimum.reduce(ways)
    return certain_clock
