"""The memory a schedule's scalar program can see: scalar memory, sync flags, and the DMA engine that raises them."""

from heapq import heappop, heappush
from math import ceil

from harness.simulate.machine import Machine
from harness.simulate.values import Unknowable, Unknown, decided

_WORD_BYTES = 4


class Memory:
    """State of one HLO op's run: time is in cycles since it began."""

    def __init__(self, machine: Machine, names: dict[int, str]) -> None:
        self.machine = machine
        self.names = names
        self.words: dict[int, int | Unknown] = {}
        self.flags: dict[int, int] = {}
        self.arrivals: dict[int, list[tuple[int, int]]] = {}
        self.hbm_free = 0.0
        self.local_free = 0.0
        self.read_bytes = 0
        self.written_bytes = 0
        self.transfers = 0
        self.wait_cycles = 0
        self.remarks: dict[str, int] = {}

    def name_of(self, address: int) -> str:
        """`#allocation5 + 3` for an address."""
        base = max((start for start in self.names if start <= address), default=None)
        return f"address {address}" if base is None else f"{self.names[base]} + {address - base}"

    def load(self, address: "int | Unknown") -> "int | Unknown":
        """The scalar memory word, unknown if nothing wrote it."""
        if isinstance(address, Unknown):
            return address
        word = self.words.get(address)
        if word is None:
            return Unknown(f"the scalar memory word {self.name_of(address)}, which nothing wrote")
        return word

    def store(self, predicate: "bool | Unknown", address: "int | Unknown", value: "int | Unknown") -> None:
        """Writes a scalar memory word under a predicate; where either is unknown, so is what it may have written."""
        if isinstance(address, Unknown):
            self.remark(f"a store to scalar memory whose address depends on {address.reason}")
            doubt = Unknown(f"scalar memory that a store at {address.reason} may have changed")
            self.words = dict.fromkeys(self.words, doubt)
        elif isinstance(predicate, Unknown):
            self.words[address] = predicate
        elif predicate:
            self.words[address] = value

    def set_flag(self, flag: "int | Unknown", value: "int | Unknown") -> None:
        """Sets a sync flag."""
        self.flags[decided(flag, "a sync flag")] = decided(value, "a sync flag's value")

    def add_flag(self, flag: "int | Unknown", amount: "int | Unknown") -> None:
        """Adds to a sync flag."""
        address = decided(flag, "a sync flag")
        self.flags[address] = self.flags.get(address, 0) + decided(amount, "a sync flag's value")

    def check(self, failed: "bool | Unknown", where: str) -> None:
        """Notes a bounds check of the compiler that fails, or that cannot be evaluated; the chip would halt."""
        if isinstance(failed, Unknown):
            self.remark(f"a check cannot be evaluated ({failed.reason}): {where}")
        elif failed:
            self.remark(f"a bounds check fails: {where}")

    def overwrite(self, address: "int | Unknown", size: "int | Unknown") -> None:
        """Makes the scalar memory that a transfer fills unknown: what it brings is not in the schedule."""
        first = decided(address, "the destination in scalar memory of a transfer")
        words = decided(size, "the size of a transfer to scalar memory") * self.machine.granule_bytes // _WORD_BYTES
        filled = Unknown(f"a table that a transfer brought to {self.name_of(first)}, whose contents are not known")
        self.words.update(dict.fromkeys(range(first, first + words), filled))

    def start(self, kind: str, size: "int | Unknown", flag: "int | Unknown", clock: int) -> None:
        """Starts a transfer of `size` granules at `clock`; it raises its flag when it has arrived.

        A transfer occupies its path for bytes / bandwidth, in the order of starting, reads and
        writes alike, and arrives one latency later: transfers overlap their latencies but not
        their bytes.
        """
        granules = decided(size, f"the size of a {kind}")
        target = decided(flag, f"the sync flag of a {kind}")
        if granules < 0:
            raise Unknowable(f"a {kind} has the impossible size of {granules} granules")
        amount = granules * self.machine.granule_bytes
        source, _, destination = kind.removeprefix("dma.").partition("_to_")
        self.transfers += 1
        machine = self.machine
        if "hbm" in (source, destination):
            touched = amount * ((source == "hbm") + (destination == "hbm"))
            self.read_bytes += amount * (source == "hbm")
            self.written_bytes += amount * (destination == "hbm")
            self.hbm_free = max(self.hbm_free, clock) + touched / machine.hbm_bytes_per_cycle
            arrival = self.hbm_free + machine.dma_latency_cycles
        else:
            self.local_free = max(self.local_free, clock) + amount / machine.local_bytes_per_cycle
            arrival = self.local_free + machine.local_dma_latency_cycles
        heappush(self.arrivals.setdefault(target, []), (ceil(arrival), granules))

    def wait(self, flag: "int | Unknown", goal: "int | Unknown", clock: int) -> int:
        """The cycle at which the flag has reached `goal`; raises Unknowable if nothing under way brings it there."""
        address = decided(flag, "a wait")
        needed = decided(goal, "a wait")
        value = self.flags.get(address, 0)
        pending = self.arrivals.get(address, [])
        ready = clock
        while pending and (value < needed or pending[0][0] <= clock):
            arrival, granules = heappop(pending)
            value += granules
            ready = max(ready, arrival)
        self.flags[address] = value
        if value < needed:
            raise Unknowable(
                f"a wait for {needed} on the sync flag {self.name_of(address)} can never be satisfied: "
                f"it has {value} and no transfer is under way"
            )
        self.wait_cycles += ready - clock
        return ready

    def remark(self, text: str) -> None:
        """Counts something worth telling."""
        self.remarks[text] = self.remarks.get(text, 0) + 1
