"""A core's way to HBM: the times of transfers, one after another, and the assumptions of a run that gives bounds."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from math import ceil

from harness.judge.simulate.machine import Machine

# Reasons for which there is no latency, but a range of latencies can be given.
FROM_VECTOR = "a scalar taken from a vector register (spop)"
SPARSE_CORE = "XLA hands a part of the program to the SparseCore, which is not modelled"


# A decision of the scalar program: the schedule's name, and the decision's number there.
Decision = tuple[str, int]


@dataclass(frozen=True, slots=True)
class GrantedBound:
    """The assumptions of a run that gives a bound of a latency instead of a latency.

    `holds`: the outcome of each condition that depends on a vector's contents, except those of the decisions in
    `turned`, which have their own. `without_sparse_core`: True if the SparseCore's work takes no time. `decided` has
    the outcomes of each such decision that the run came to.
    """

    holds: bool = False
    without_sparse_core: bool = False
    turned: Mapping[Decision, bool] = field(default_factory=dict)
    decided: dict[Decision, set[bool]] = field(default_factory=dict)

    def with_turn(self, decision: Decision) -> "GrantedBound":
        """The same assumptions with the other outcome of a decision that this run came to."""
        turned = {**self.turned, decision: not all(self.decided[decision])}
        return GrantedBound(holds=self.holds, without_sparse_core=self.without_sparse_core, turned=turned)

    def decide(self, decision: Decision, holds: bool) -> bool:
        """The outcome of a decision whose condition is assumed to be `holds`."""
        outcome = self.turned.get(decision, holds)
        self.decided.setdefault(decision, set()).add(outcome)
        return outcome


class Channel:
    """One core's way to HBM, shared by all HLO ops of a module: when it is free again, and the bytes that it moved.

    `others` are the ways of the chip's other cores: a transfer for the whole chip moves its bytes over all of them.
    """

    def __init__(self, machine: Machine, bound: GrantedBound | None = None, others: Sequence["Channel"] = ()) -> None:
        self.machine = machine
        self.bound = bound
        self.others = others
        self.hbm_free = 0.0
        self.read_bytes = 0
        self.written_bytes = 0
        self.transfers = 0
        # Cycles for which each kind of transfer seen so far keeps its ways busy, and cycles that it takes alone.
        self._cycles: dict[tuple[str, str, int, int, bool], tuple[float, float]] = {}

    @property
    def traffic(self) -> tuple[int, int, int]:
        """Bytes read from and written to HBM, and transfers of any kind, so far."""
        return self.read_bytes, self.written_bytes, self.transfers

    def arrival(
        self, source: str, destination: str, amount: int, clock: int, *, for_all: bool = False, alone: bool = False
    ) -> int:
        """The cycle at which a transfer of `amount` bytes that starts at `clock` has arrived.

        A transfer occupies its path for bytes / bandwidth, in the order of starting, reads and
        writes alike, and arrives one latency later: transfers overlap their latencies but not
        their bytes. None moves faster than a single transfer can. A transfer `for_all` cores has the
        bandwidth of all of them. A transfer of a core that runs `alone` has it too, but moves no faster than a
        single transfer can.
        """
        machine = self.machine
        self.transfers += 1
        self.read_bytes += amount * (source == "hbm")
        self.written_bytes += amount * (destination == "hbm")
        ways = (self, *self.others) if for_all or alone else (self,)
        kind = source, destination, amount, len(ways), for_all
        cycles_of_kind = self._cycles.get(kind)
        if cycles_of_kind is None:
            # No published time shows how long a transfer inside the chip takes. It gets the time of a transfer to HBM,
            # which is not shorter.
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
