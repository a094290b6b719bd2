"""A question about another chip and its answer: scaled resources, and the module's time with them."""

import math
from dataclasses import dataclass, fields

from harness.errors import UsageError

# The least gain that counts: a gain below a tenth of a percent does not justify a change of a chip or a kernel.
NOTABLE = 0.001


@dataclass(frozen=True, slots=True, kw_only=True)
class Factors:
    """Factors by which a chip's resources are multiplied; 1 changes nothing.

    - clock: the clock of the core and of all its units; the times of the memory, in seconds, stay the same.
    - bandwidth: bytes per second of HBM.
    - dma_latency: from the start of a transfer to its arrival, without the time for its bytes.
    - transfer_cost: how long each transfer occupies the path to HBM, in addition to the time for its bytes.
    - mxu: speed of the matrix units, both intake per cycle and latency of a result (scaling only one helps little,
      because the schedule then waits for the other).
    - link_bandwidth: bytes per second of each link between chips.
    """

    clock: float = 1.0
    bandwidth: float = 1.0
    dma_latency: float = 1.0
    transfer_cost: float = 1.0
    mxu: float = 1.0
    link_bandwidth: float = 1.0

    def __post_init__(self) -> None:
        """Raises UsageError `bad-factor` for a factor outside 0.001 to 1000; latencies and costs may go down to 0."""
        for field in fields(self):
            value = getattr(self, field.name)
            least = 0.0 if field.name in ("dma_latency", "transfer_cost") else 1e-3
            if not (math.isfinite(value) and least <= value <= 1e3):
                raise UsageError(
                    "bad-factor",
                    f"--{field.name.replace('_', '-')}: expected a factor from {least:g} to 1000 such as x2, "
                    f"got x{value:g}",
                )

    @property
    def resources(self) -> tuple[str, ...]:
        """The scaled resources, such as `clock x1.1` and `mxu x2`."""
        factors = {field.name.replace("_", " "): getattr(self, field.name) for field in fields(self)}
        return tuple(f"{name} x{factor:g}" for name, factor in factors.items() if factor != 1)

    @property
    def words(self) -> str:
        """The scaled resources in one text, such as `clock x1.1, mxu x2`; empty if nothing is scaled."""
        return ", ".join(self.resources)


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """The module's time on the scaled machine, and its ratio to the time on the real machine (new / old).

    With several timing inputs, both are means over the inputs. `parts` has, by name, the ratios of the timing inputs
    and of the operations that take a notable share of the time, in each case only if there are several.
    """

    scale: Factors
    seconds: float
    time_ratio: float
    parts: tuple[tuple[str, float], ...] = ()

    @property
    def profits(self) -> bool:
        """True if the kernel would be faster by a notable amount."""
        return self.time_ratio < 1 - NOTABLE
