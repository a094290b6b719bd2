"""Reports waits of an interpreted kernel that can never end; JAX's TPU interpreter would hang."""

import contextlib
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from jax._src.pallas.mosaic.interpret import shared_memory

from harness.judge.evaluate.interpret.replaced import parameters, replaced

DEADLOCK = "DEADLOCK"
# The interval at which a waiting core checks whether the other cores have ended.
_LOOK_SECONDS = 0.05
# The longest time for which the late core (see `other_chips`) waits for the others. A core that polls a semaphore can
# always continue, so without a limit the late core would wait for ever.
_LATE_SECONDS = 10.0
_LATE_LOOK_SECONDS = 0.001


@contextlib.contextmanager
def deadlocks_found() -> Iterator[None]:
    """Within this context a wait raises RuntimeError if its signal can never come.

    - On one core, only copies under way can signal during a wait. The wait first completes these copies, and raises if
      the count is still too low.
    - On several cores, a wait raises if each core has ended or is in a wait that no copy under way can end. A core that
      waits for something else, such as a collective of XLA, may still signal. In this case, only the time limit of the
      check ends the waits.
    - If this version of JAX has other semaphores, nothing is changed.
    """
    semaphore: Any = getattr(shared_memory, "Semaphore", None)
    wait: Any = getattr(semaphore, "wait", None)
    if parameters(wait)[1:3] != ["value", "global_core_id"]:
        yield
        return

    def finite_wait(self: Any, value: Any, global_core_id: Any, **options: Any) -> None:
        if self.num_cores == 1:
            tasks = self.tasks[0]
            while self.count_by_core[0] < value and tasks:
                tasks.pop()()
            if (count := int(self.count_by_core[0])) < value:
                raise RuntimeError(
                    f"{DEADLOCK}: a wait for {int(value):,} on a semaphore that has {count:,}, with no copy under way"
                )
        else:
            wait_with_others(self, int(value), int(global_core_id))
        wait(self, value, global_core_id, **options)

    with replaced(semaphore, wait=finite_wait):
        yield


def wait_with_others(semaphore: Any, value: int, core: int) -> None:
    """Waits until the semaphore holds `value` on this core, and meanwhile runs the copies that signal it.

    Raises RuntimeError if no core can continue.
    """
    waits = semaphore.shared_memory.__dict__.setdefault("_waits_of_cores", _Waits())
    while True:
        semaphore.shared_memory.check_failed()
        with semaphore.cv:
            if semaphore.count_by_core[core] >= value:
                return
            copy = semaphore.tasks[core].pop() if semaphore.tasks[core] else None
            if copy is None:
                waits.of_cores[core] = semaphore, value
                try:
                    # Another core may end during this wait, and its end notifies no semaphore.
                    semaphore.cv.wait(_LOOK_SECONDS)
                    stuck = waits.stuck(semaphore.shared_memory)
                finally:
                    waits.ended += 1
                    del waits.of_cores[core]
        if copy is not None:
            copy()
        elif stuck:
            # A failed core waits for the other cores to end, so its error is checked for first.
            semaphore.shared_memory.check_failed()
            raise RuntimeError(f"{DEADLOCK}: {stuck}")


def let_others_go_on(memory: Any, core: int) -> None:
    """Waits, for at most `_LATE_SECONDS`, until each other core has ended or is blocked in a wait."""
    waits = memory.__dict__.setdefault("_waits_of_cores", _Waits())
    ends = time.monotonic() + _LATE_SECONDS
    while waits.is_one_late and waits.may_go_on(memory, core):
        memory.check_failed()
        waits.is_one_late = time.monotonic() < ends
        time.sleep(_LATE_LOOK_SECONDS)


@dataclass(slots=True)
class _Waits:
    """The cores that wait now, each with its semaphore and the count that it needs, and the number of ended waits.

    `is_one_late`: the late core still waits for the other cores; False after a wait of more than `_LATE_SECONDS`.
    """

    of_cores: dict[int, tuple[Any, int]] = field(default_factory=dict)
    ended: int = 0
    is_one_late: bool = True

    def stuck(self, memory: Any) -> str:
        """A description of each core's wait; "" if a core can continue, or might be able to.

        Before a waiting core continues, it ends its wait. So if no wait ends during this call, all cores were waiting
        during the whole call.
        """
        ended, stuck = self.ended, self._stuck()
        if len(stuck) + _at_barriers(memory) < memory.num_devices or ended != self.ended:
            return ""
        cores: dict[str, list[int]] = {}
        for core, reason in sorted(stuck.items()):
            cores.setdefault(reason, []).append(core)
        return "; ".join(f"{text}, on {_chips(each)}" for text, each in cores.items())

    def may_go_on(self, memory: Any, late: int) -> bool:
        """True if a core other than `late` can continue, or might be able to."""
        ended, stuck = self.ended, self._stuck()
        return len(stuck.keys() - {late}) + _at_barriers(memory) < memory.num_devices - 1 or ended != self.ended

    def _stuck(self) -> dict[int, str]:
        """The cores whose semaphore is too low, with no copy under way to it; each with a description of its wait."""
        stuck = {}
        for core, (semaphore, value) in list(self.of_cores.items()):
            count = int(semaphore.count_by_core[core])
            if count < value and not semaphore.tasks[core]:
                stuck[core] = f"a wait for {value:,} on a semaphore that has {count:,}"
        return stuck


def _at_barriers(memory: Any) -> int:
    """The number of cores at the barriers before and after the kernel."""
    return int(memory.barrier.n_waiting + memory.clean_up_barrier.n_waiting)


def _chips(numbers: list[int]) -> str:
    return f"chip{'s' * (len(numbers) > 1)} {', '.join(map(str, numbers))}"
