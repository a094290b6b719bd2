"""The input of the diagnosis rules: one run, with the properties that several rules use."""

import math
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from harness.advice.kernel_ops import outside_ops
from harness.advice.operands import problem_names
from harness.advice.score_block import float_inputs, is_attention, score_block_bytes
from harness.advice.simulated_rates import (
    LIMIT,
    compute_seconds,
    differ,
    least_seconds,
    matmul_seconds,
    memory_seconds,
    room_words,
)
from harness.hardware import Chip
from harness.hardware import chip as chip_named
from harness.judge.verdict.roofline import memory_only_seconds
from harness.records import (
    Ceiling,
    CounterLine,
    Evidence,
    LineTime,
    OpTime,
    PallasCall,
    PartKind,
    Report,
    Row,
    Scratch,
    Simulation,
    Window,
    report_words,
)
from harness.records.report_words import with_chip
from harness.units import percent


@dataclass(frozen=True, slots=True, kw_only=True)
class Observed:
    """The input of the rules; `call` is the only Pallas call, or None unless the program has exactly one."""

    evidence: Evidence
    report: Report
    seconds: float
    call: PallasCall | None
    run: Simulation | None
    previous: tuple[Row, ...]
    ceilings: tuple[Ceiling, ...] = ()

    @property
    def chip(self) -> Chip:
        """The chip that the kernel was judged for."""
        return chip_named(self.report.chip)

    @property
    def label(self) -> str:
        """The source of the latency, such as `[simulated v5e]`."""
        return f"[{with_chip(self.report.source, self.report.chip)}]"

    @property
    def is_simulated(self) -> bool:
        """True if the latency is simulated."""
        return self.report.source == "simulated"

    @property
    def simulated(self) -> str:
        """The words `[simulated v5e]`, for figures of the simulated schedule."""
        return f"[{report_words.simulated(self.report.chip)}]"

    @property
    def lines(self) -> tuple[LineTime, ...]:
        """The source lines of the run with their cycles; empty if these are not known."""
        breakdown = self.run.breakdown if self.run else None
        return tuple(line for line in breakdown.lines if line.line) if breakdown else ()

    @property
    def is_attention(self) -> bool:
        """True if the blocks of the first and second input are known to be those of queries and keys."""
        return is_attention(self.evidence)

    @property
    def has_exp_left(self) -> bool:
        """False if all exponentials of the program are known to have base two."""
        certificate = self.evidence.certificate
        places = certificate.primitives if certificate else ()
        # In JAX the variable that holds this primitive is called `exp2_p`; older records have the primitive's own name.
        names = {place.rpartition(":")[2].removesuffix("_p") for place, _ in places}
        return "exp2" not in names or "exp" in names

    @property
    def unless_exp2(self) -> str:
        """Words for a kernel that may use exponentials with base two already; "" if the program is known."""
        return "" if self.evidence.certificate else ", unless the kernel does so already"

    @property
    def is_causal(self) -> bool:
        """True if the problem has a causal mask."""
        return dict(self.evidence.problem.parameters).get("causal") is True

    @property
    def steps(self) -> int:
        """Grid steps of the call, 0 unless there is exactly one call."""
        return self.call.steps if self.call else 0

    @property
    def step_seconds(self) -> float | None:
        """The mean time of a grid step (latency / steps), or None unless there is one Pallas call and it has steps."""
        return self.seconds / self.call.steps if self.call and self.call.steps else None

    @property
    def inputs(self) -> tuple[Window, ...]:
        """The input windows of the only call, in order, without integer tables and windows in SMEM."""
        return float_inputs(self.evidence)

    @property
    def calls(self) -> tuple[PallasCall, ...]:
        """All Pallas calls of the program."""
        return self.evidence.trace.pallas_calls if self.evidence.trace else ()

    @property
    def outside_ops(self) -> list[OpTime] | None:
        """The operations that XLA put around the kernel, without collectives; None if these are not known."""
        return outside_ops(self.run.ops if self.run else (), self.calls)

    @property
    def matrix_blocks(self) -> tuple[Window, ...]:
        """The inputs whose blocks in VMEM have at least two dimensions larger than 1; integer tables are left out."""
        inputs = (window for call in self.calls for window in call.windows if window.role == "input")
        return tuple(
            window
            for window in inputs
            if window.memory_space == "vmem"
            and not window.array.is_table
            and sum(size > 1 for size in window.block_shape) >= 2
        )

    @property
    def room(self) -> float:
        """The share of the time that a change can save: `published_room`, or less if the simulator lets less pass."""
        if not self.is_simulated:
            return self.published_room
        least = least_seconds(self.evidence.problem, self.chip, self.report)
        return max(0.0, min(self.published_room, 1 - least / self.seconds))

    @property
    def room_words(self) -> str:
        """Words on the share of the time above the roofline, and on the room if the simulator lets less pass."""
        return room_words(self.published_room, self.room)

    @property
    def room_source(self) -> str:
        """The source of `room` as a bound on a gain."""
        if not differ(self.published_room, self.room):
            return "roofline"
        return f"{LIMIT}; published roofline: {percent(self.published_room)}"

    @property
    def compute_seconds(self) -> float:
        """The least time of the useful work at the published peak, or at the rate of the simulator's matrix units."""
        return compute_seconds(self.evidence, self.report, self.chip)

    @property
    def memory_seconds(self) -> float:
        """The time of the kernel's traffic at full bandwidth, or at what the simulator lets pass; 0 if unknown."""
        return memory_seconds(self.evidence, self.report, self.chip)

    @property
    def matmul_share(self) -> float:
        """The share of the time that the useful matmuls take at the peak, or at the rate of the simulator's units."""
        useful = self.report.mxu_util or 0.0
        if not self.is_simulated or not useful:
            return useful
        return min(1.0, max(useful, matmul_seconds(self.evidence.problem.work, self.chip, self.report) / self.seconds))

    @property
    def transfer_share(self) -> float:
        """The share of the time that `memory_seconds` takes."""
        return min(1.0, self.memory_seconds / self.seconds)

    @property
    def bandwidth_words(self) -> str:
        """`84.6% of the bandwidth`, and the share of the time that the simulator's transfers take, if it is larger."""
        words = f"{percent(self.report.bandwidth_util or 0)} of the bandwidth"
        if not differ(self.report.bandwidth_util or 0.0, self.transfer_share):
            return words
        return f"{words} ({percent(self.transfer_share)} of {LIMIT})"

    @property
    def published_room(self) -> float:
        """The share of the time above the roofline.

        The roofline is the longest of three times at full speed: of the useful work, the least traffic, and the bytes
        over the links.
        """
        least = memory_only_seconds(max(0, self.report.minimum_hbm_bytes - self.chip.cache_bytes), self.chip)
        floors = (self.report.compute_only_seconds, least, self.link_seconds)
        return max(0.0, 1 - max(floors) / self.seconds)

    @property
    def link_seconds(self) -> float:
        """The least time for the bytes that come to a chip from other chips; 0 for one chip."""
        return self.report.communication.floor_seconds if self.report.communication else 0.0

    def share(self, cycles: float) -> float:
        """`cycles` as a share of the simulated time; 0 if that is unknown."""
        return cycles / self.run.cycles if self.run and self.run.cycles else 0.0

    def slots(self, name: str) -> float:
        """The share of the issue slots of unit `name` that was used; 0 if unknown."""
        return next((unit.slot_fraction for unit in self.report.units if unit.name == name), 0.0)

    def used(self, name: str) -> float:
        """The larger of two shares of unit `name`: used issue slots, and busy time. 0 if neither is known."""
        return next((unit.used_fraction for unit in self.report.units if unit.name == name), 0.0)

    def counter(self, name: str) -> CounterLine | None:
        """Mosaic's counter `name`, or None if it was not counted."""
        return next((line for line in self.report.counters if (line.level, line.name) == ("mosaic", name)), None)

    def parts(self, kind: PartKind) -> dict[str, float]:
        """The parts of one kind as shares of the simulated cycles by name, the largest first; empty if unknown."""
        breakdown = self.run.breakdown if self.run else None
        if breakdown is None or not breakdown.cycles:
            return {}
        shares: defaultdict[str, float] = defaultdict(float)
        for part in breakdown.parts:
            if part.kind == kind and part.cycles:
                shares[part.name] += part.cycles / breakdown.cycles
        return dict(sorted(shares.items(), key=lambda item: item[1], reverse=True))

    def operand(self, name: str) -> str:
        """The problem's name for an operand of the schedule (`args_1_.3`: the second input); `name` if it has none."""
        return problem_names(name, self.evidence.problem, [op.name for op in self.run.ops] if self.run else ())


def times_read(window: Window) -> float | None:
    """The number of times that the array of `window` is read: fetches over blocks; None if it is copied by hand."""
    if window.fetches is None:
        return None
    return window.fetches / blocks(window)


def blocks(window: Window) -> int:
    """The number of blocks of the array of `window`."""
    return math.prod(
        math.ceil(size / block) for size, block in zip(window.array.shape, window.block_shape, strict=True) if block
    )


def fits(seen: Observed, rows: int, factor: int, limit: float | None = None) -> bool:
    """True if buffers of `rows` rows can grow `factor` times within `limit` (None: the VMEM limit); an estimate."""
    return vmem_after(seen, -2, rows, rows * factor) <= (seen.report.vmem_limit_bytes if limit is None else limit)


def vmem_after(seen: Observed, axis: int, size: int, new: int) -> float:
    """VMEM of the call, by an estimate, if blocks and scratch of `size` elements along `axis` get `new` elements.

    For attention, the float32 tile of scores (query block x key/value block) counts too, because the compiler keeps it
    in VMEM although it is neither a window nor a scratch buffer.
    """
    factor = new / size

    def growth(shape: Sequence[int]) -> float:
        return factor if len(shape) >= -axis and shape[axis] == size else 1.0

    grown = grown_vmem(seen, lambda window: growth(window.block_shape), lambda scratch: growth(scratch.shape))
    return grown + (factor * score_block_bytes(seen.evidence) if seen.is_attention and axis == -2 else 0)


def grown_vmem(
    seen: Observed, factor: Callable[[Window], float], of_scratch: Callable[[Scratch], float] = lambda _: 1.0
) -> float:
    """VMEM of the call if every buffer grew by its factor; infinite unless there is exactly one call."""
    if seen.call is None:
        return math.inf
    return sum(window.vmem_bytes * factor(window) for window in seen.call.windows) + sum(
        scratch.vmem_bytes * of_scratch(scratch) for scratch in seen.call.scratch
    )
