"""What if the chip were different: the same schedule on a machine with one resource scaled, to see which one counts."""

import math
from dataclasses import dataclass, fields, replace

from harness.dumps.llo import ModuleDump
from harness.errors import UsageError
from harness.hardware import Chip
from harness.judge.simulate.machine import Machine, machine_of
from harness.judge.simulate.module import run_module
from harness.records import Simulation

# Less than a tenth of a percent is nothing that anybody would build a chip, or rewrite a kernel, for.
NOTABLE = 0.001


@dataclass(frozen=True, slots=True, kw_only=True)
class Scale:
    """Factors on a chip's resources; 1 changes nothing.

    clock: of the core, all its units with it; memory keeps its seconds. bandwidth: bytes per
    second of HBM. dma_latency: from the start of a transfer to its arrival beyond its bytes.
    transfer_cost: for how long each transfer keeps the way to HBM busy beyond its bytes. mxu:
    speed of the matrix units, what they take in per cycle and how soon a result comes out
    (one without the other helps little: the schedule waits for whichever is left).
    """

    clock: float = 1.0
    bandwidth: float = 1.0
    dma_latency: float = 1.0
    transfer_cost: float = 1.0
    mxu: float = 1.0

    def __post_init__(self) -> None:
        """Raises UsageError `bad-factor`: latencies and costs may be 0, everything else is positive and finite."""
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
        """Those that are scaled: `clock x1.1`, `mxu x2`."""
        factors = {field.name.replace("_", " "): getattr(self, field.name) for field in fields(self)}
        return tuple(f"{name} x{factor:g}" for name, factor in factors.items() if factor != 1)

    @property
    def words(self) -> str:
        """`clock x1.1, mxu x2`; empty where nothing is scaled."""
        return ", ".join(self.resources)


# One resource at a time, as far as it can be thought: twice as much of what there is, no latency at all.
SWEEP = (
    Scale(clock=2.0),
    Scale(mxu=2.0),
    Scale(bandwidth=2.0),
    Scale(dma_latency=0.0),
    Scale(transfer_cost=0.0),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """The module's time on the scaled machine, and against that on the real one (new / old)."""

    scale: Scale
    seconds: float
    time_ratio: float

    @property
    def profits(self) -> bool:
        """Whether the kernel would be faster by a notable amount."""
        return self.time_ratio < 1 - NOTABLE


def scaled(machine: Machine, scale: Scale) -> Machine:
    """`machine` with its resources scaled; with all factors 1 an equal one."""
    clock = scale.clock

    def in_cycles(cycles: float, factor: float) -> int:
        return round(cycles * factor * clock)

    return replace(
        machine,
        clock_hz=machine.clock_hz * clock,
        hbm_bytes_per_cycle=machine.hbm_bytes_per_cycle * scale.bandwidth / clock,
        dma_latency_cycles=in_cycles(machine.dma_latency_cycles, scale.dma_latency),
        transfer_cycles=in_cycles(machine.transfer_cycles, scale.transfer_cost),
        matmul_rows_per_cycle=machine.matmul_rows_per_cycle * scale.mxu,
        push_cycles=max(1, round(machine.push_cycles / scale.mxu)),
        push_transposed_cycles=max(1, round(machine.push_transposed_cycles / scale.mxu)),
        matmul_latency_cycles=max(1, round(machine.matmul_latency_cycles / scale.mxu)),
    )


def answers(
    dump: ModuleDump,
    chip: Chip,
    scales: tuple[Scale, ...] = SWEEP,
    *,
    deadline_seconds: float = 60.0,
) -> tuple[Simulation, tuple[Answer, ...]]:
    """The run on the real machine, and one answer for each scale, in their order; none where it has no latency.

    The schedule stays what the compiler made for the real chip: for another one it would have
    made a better one, so a gain shown here is a lower bound.
    """
    real = run_module(dump, chip, deadline_seconds=deadline_seconds)
    found = []
    for scale in scales:
        machine = scaled(machine_of(chip), scale)
        run = run_module(dump, chip, machine=machine, deadline_seconds=deadline_seconds, with_lines=False)
        if real.seconds is not None and run.seconds is not None:
            found.append(Answer(scale=scale, seconds=run.seconds, time_ratio=run.seconds / real.seconds))
    return real, tuple(found)
