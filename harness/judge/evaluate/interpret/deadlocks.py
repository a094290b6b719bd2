"""Waits that nothing can end, named where a kernel is interpreted: JAX's TPU interpreter waits for ever."""

import contextlib
import inspect
from collections.abc import Iterator
from typing import Any

from jax._src.pallas.mosaic.interpret import shared_memory

DEADLOCK = "DEADLOCK"


@contextlib.contextmanager
def deadlocks_found() -> Iterator[None]:
    """Within this context a wait on one core raises RuntimeError where what it waits for can never come.

    On one core nothing but copies that are under way can signal while it waits, and those are done here, so that the
    interpreter finds its count complete or this raises. What several cores wait for the others may still give: their
    waits end with the time of the check. A JAX whose semaphores are other ones is left as it is.
    """
    semaphore: Any = getattr(shared_memory, "Semaphore", None)
    wait: Any = getattr(semaphore, "wait", None)
    if not (inspect.isfunction(wait) and list(inspect.signature(wait).parameters)[1:3] == ["value", "global_core_id"]):
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
        wait(self, value, global_core_id, **options)

    semaphore.wait = finite_wait
    try:
        yield
    finally:
        semaphore.wait = wait
