"""What stages hand on to each other, and the steps of a judgement in the order in which failures count."""

from dataclasses import dataclass
from typing import Any, Literal

# What a stage waits for. `device` is there when all other stages are done and a device is to time the kernel.
Need = Literal[
    "kernel", "trace", "shapes", "chip program", "schedule", "full program", "reduced program", "outputs",
    "full outputs", "device",
]  # fmt: skip


# Lower counts first. Of a stage: which step of a judgement it belongs to, and its place there. Of a request: its number
# among the stage's requests as well. What follows from a request has a higher rank than that.
Rank = tuple[int, ...]
# The steps, in the order in which what they find counts.
TRACE, REDUCED, COMPILE, SIMULATE, COMPARE, FULL, DEVICE = range(7)


@dataclass(frozen=True, slots=True)
class Product:
    """Something that a stage gave and others wait for, with what they have to know of it."""

    need: Need
    value: Any


@dataclass(frozen=True, slots=True)
class Known:
    """A request whose answer is known, so that no process is asked."""

    request: Any
    reply: Any
