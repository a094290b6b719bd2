"""Cycles of a simulated run by part, by source line and by spill, and the run's timeline."""

from dataclasses import dataclass, field
from typing import Literal

PartKind = Literal["issuing", "empty bundles", "operand wait", "barrier wait", "unit stall", "fill and drain", "launch"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """Cycles of one kind.

    `name` is the operand whose transfer is waited for, or the cause of the unit's stall, else "".

    Operands have the names of the HLO instructions that a kernel is called with (`k_ref.1`); an array that the kernel
    writes back is called `naive.1 output`. If a wait is for several operands, `name` is the last to arrive.

    - issuing: bundles with operations, one cycle each.
    - empty bundles: bundles without operations.
    - operand wait: waits for a transfer, except during fill and drain.
    - unit stall: waits for a busy unit (`MXU busy`, `MXU weights`), for a result that is not ready (`XLU result`), for
      a `delay` that the program asks for, or for a `branch` to take effect.
    - fill and drain: waits for transfers before a kernel's first grid step begins and after its last one ends.
    - barrier wait: waits for the other core.
    - launch: the top-level program, except its waits.
    """

    kind: PartKind
    name: str
    cycles: float


# Name of pushes of weights that the matrix unit transposes.
TRANSPOSED_PUSH = "MXU transposed push"


@dataclass(frozen=True, slots=True, kw_only=True)
class LineTime:
    """Cost of one source line; `line` 0 is everything that belongs to no line.

    - A bundle's cycle is divided evenly among its operations. An empty bundle's cycle is divided among the operations
      of the next bundle that is not empty.
    - A stall or wait belongs to the operation that waits. The waits of a kernel's grid pipeline belong to no line.
    - Operations that the compiler added belong to the line that they work for (harness/judge/simulate/source_lines.py).

    `operations` are executed operations per unit. Two kinds are listed a second time under separate names: operations
    of the transcendental unit except exponentials (`EUP rcp`, `EUP rsqrt`; missing in old records), and pushes of
    weights that the matrix unit transposes. `spilled_bytes` are the bytes of vector registers that this line computes
    and that are saved to VMEM; `filled_bytes` are the bytes of vector registers that this line uses and that are
    restored.
    """

    file: str
    line: int
    issue_cycles: float
    stall_cycles: float
    wait_cycles: float
    operations: tuple[tuple[str, int], ...] = ()
    spilled_bytes: int = 0
    filled_bytes: int = 0

    @property
    def units(self) -> dict[str, int]:
        """The executed operations of each unit, each operation once."""
        return {name: number for name, number in self.operations if " " not in name}

    @property
    def exponentials(self) -> int:
        """Operations of the transcendental unit that are exponentials, as far as the record distinguishes them."""
        others = sum(number for name, number in self.operations if name.startswith("EUP "))
        return self.units.get("EUP", 0) - others

    @property
    def cycles(self) -> float:
        """All cycles of the line."""
        return self.issue_cycles + self.stall_cycles + self.wait_cycles


@dataclass(frozen=True, slots=True, kw_only=True)
class CycleBreakdown:
    """One core's run by part: the parts sum to the core's cycles, and so do the lines.

    If several cores ran, the core is the one that ends last. `lines` is empty if lines were not requested, as in
    screening. `spill_cycles` is a lower bound on the bundles that spilling adds: the bundles that issue only spills and
    fills.
    """

    parts: tuple[Part, ...]
    lines: tuple[LineTime, ...]
    steps: int | None
    spilled_bytes: int
    filled_bytes: int
    spill_cycles: float

    @property
    def cycles(self) -> float:
        """All cycles of the run."""
        return sum(part.cycles for part in self.parts)

    @property
    def bubble_fraction(self) -> float:
        """The cycles in which nothing is issued, as a fraction of all cycles."""
        idle = sum(part.cycles for part in self.parts if part.kind != "issuing")
        return idle / self.cycles if self.cycles else 0.0


SpanKind = Literal["op", "step", "transfer", "link", "wait", "stall", "issue"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Span:
    """A span from cycle `start` to cycle `end` of the run.

    `row` names the row that shows the span:

    - `core 0 ops`, `core 0 steps`, `core 0 DMA in`, `core 0 DMA out`, `core 0 waits`.
    - In the window that is shown bundle by bundle, also `core 0 stalls` and one row per unit (`core 0 MXU`). There,
      successive bundles with the same operations are one span.
    - With several chips, the names of rows begin with `chip 0` instead. The row `chip 0 DMA to chips` has the transfers
      that the chip sends. Each direction of a link that is used has a row such as `chip 0 link to 1`.

    `hbm_bytes` is set for transfers and for ops (the bytes of the transfers that begin while the op runs), `link_bytes`
    for links, `flops` for ops, and `line` for issued operations.
    """

    kind: SpanKind
    row: str
    name: str
    start: int
    end: int
    hbm_bytes: int = 0
    flops: int = 0
    line: int = 0
    link_bytes: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class TransferCycles:
    """Cycles of one core in which a transfer is in flight, and those in which the core also waits for a transfer."""

    in_flight: int
    waited: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Timeline:
    """A simulated run to draw: all grid steps, and some steady-state steps bundle by bundle (`window`).

    `left_out` counts the spans, by row, that were dropped to keep the timeline small. `instructions` are the HLO texts
    of its ops by name. `parts` and `transfers` cover each core's whole run, or each chip's if there are several chips.
    """

    chip: str
    clock_hz: float
    cycles: int
    spans: tuple[Span, ...]
    window: tuple[int, int] | None = None
    left_out: tuple[tuple[str, int], ...] = ()
    instructions: dict[str, str] = field(default_factory=dict)
    parts: tuple[CycleBreakdown, ...] = ()
    transfers: tuple[TransferCycles, ...] = ()

    def end(self, number: int) -> int:
        """The cycle at which core or chip `number` is done."""
        return round(self.parts[number].cycles) if number < len(self.parts) else self.cycles
