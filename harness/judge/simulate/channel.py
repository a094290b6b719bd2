"""A core's path to HBM with the arrival times of transfers, and the assumptions of a run that bounds the latency."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from math import ceil

from harness.judge.simulate.machine import Machine

# Reasons why a program has a range of latencies instead of a latency.
FROM_VECTOR = "a scalar taken from a vector register (spop)"
SPARSE_CORE = "XLA hands a part of the program to the SparseCore, which is not modelled"


# A decision of the scalar program: the name of the schedule, and the decision's number in the schedule.
Decision = tuple[str, int]


@dataclass(frozen=True, slots=True)
class GrantedBound:
    """The assumptions of a run that bounds the latency.

    - `holds`: the outcome of each condition that depends on a vector's contents.
    - `turned`: the decisions whose outcome is reversed, each with its new outcome.
    - `without_sparse_core`: True if the SparseCore's work takes no time.
    - `decided`: the decisions that the run has made under these assumptions so far, each with its outcomes.
    """

    holds: bool = False
    without_sparse_core: bool = False
    turned: Mapping[Decision, bool] = field(default_factory=dict)
    decided: dict[Decision, set[bool]] = field(default_factory=dict)

    def with_turn(self, decision: Decision) -> "GrantedBound":
        """The same assumptions, but with the opposite outcome for a decision of this run."""
        turned = {**self.turned, decision: not all(self.decided[decision])}
        return GrantedBound(holds=self.holds, without_sparse_core=self.without_sparse_core, turned=turned)

    def decide(self, decision: Decision, holds: bool) -> bool:
        """The outcome in `turned`, or `holds` for a decision that is not in `turned`. Records the outcome."""
        outcome = self.turned.get(decision, holds)
        self.decided.setdefault(decision, set()).add(outcome)
        return outcome


class Channel:
    """One core's path to HBM, shared by all HLO ops of a module: the time at which it is free, and the moved bytes.

    `others` are the paths of the chip's other cores. A transfer for all cores moves its bytes over all paths.
    """

    def __init__(self, machine: Machine, bound: GrantedBound | None = None, others: Sequence["Channel"] = ()) -> None:
        self.machine = machine
        self.bound = bound
        self.others = others
        self.hbm_free = 0.0
        self.read_bytes = 0
        self.written_bytes = 0
        self.transfers = 0
        # By kind of transfer: the cycles for which a transfer occupies its paths, and the cycles that its bytes take at
        # the rate of a single transfer.
        self._cycles: dict[tuple[str, str, int, int, bool], tuple[float, float]] = {}

    @property
    def traffic(self) -> tuple[int, int, int]:
        """Bytes read from HBM, bytes written to HBM, and number of transfers of any kind, so far."""
        return self.read_bytes, self.written_bytes, self.transfers

    def arrival(
        self, source: str, destination: str, amount: int, clock: int, *, for_all: bool = False, alone: bool = False
    ) -> int:
        """The cycle at which a transfer of `amount` bytes that starts at `clock` has arrived.

        Reads and writes occupy the path one after the other in the order of their starts, each for a fixed cost plus
        bytes / bandwidth. A transfer arrives one latency after it has left the path; latencies overlap. The rate of a
        single transfer is limited, whatever the bandwidth. A transfer `for_all` cores uses the paths of all cores, and
        each core moves an equal part of the bytes, at no more than this limit. A transfer of a core that runs `alone`
        also uses all paths, but this core moves all bytes.
        """
        machine = self.machine
        self.transfers += 1
        self.read_bytes += amount * (source == "hbm")
        self.written_bytes += amount * (destination == "hbm")
        ways = (self, *self.others) if for_all or alone else (self,)
        kind = source, destination, amount, len(ways), for_all
        cycles_of_kind = self._cycles.get(kind)
        if cycles_of_kind is None:
            # No published time shows how long a transfer inside the chip takes. Such a transfer is simulated like one
            # from HBM at full bandwidth, on the assumption that the true time is not longer.
            read, written = source == "hbm", destination == "hbm"
            movers = len(ways) if for_all else 1
            cost = read / machine.hbm_read_share + written / machine.hbm_write_share
            cycles = machine.transfer_cycles + amount * (cost or 1.0) / len(ways) / machine.hbm_bytes_per_cycle
            cycles_of_kind = self._cycles[kind] = cycles, amount / movers / machine.transfer_bytes_per_cycle
        cycles, by_itself = cycles_of_kind
        latest = clock + by_itself
        for way in ways:
            way.hbm_free = (clock if clock > way.hbm_free else way.hbm_free) + cycles
            latest = way.hbm_free if way.hbm_free > latest else latest
        latency = machine.dma_write_latency_cycles if destination == "hbm" else machine.dma_latency_cycles
        return ceil(latest + latency)
