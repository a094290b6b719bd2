"""The memory of a schedule's scalar program: scalar memory, sync flags, and the DMA engine that raises the flags."""

from bisect import bisect_right
from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from heapq import heappop, heappush
from itertools import chain
from math import ceil

from harness.judge.simulate.accesses import Touch
from harness.judge.simulate.channel import FROM_VECTOR, SPARSE_CORE, Channel
from harness.judge.simulate.contents import ROW_BYTES, WORD, WORD_BYTES, Contents, OperandContents, Words
from harness.judge.simulate.scalar import ALLOCATION_SPACING, CROSS_CORE, FIRST_OPERAND, is_in_a_result
from harness.judge.simulate.several_chips import (
    ASSIGNMENT,
    CORE_SIGNAL,
    CORE_TRANSFER,
    MEETING,
    OTHER_CHIP,
    SIGNAL,
    TRANSFER,
    ChipPort,
    Waiting,
    core_of,
    destination_of,
    flag_of,
    signalled,
)
from harness.judge.simulate.stalls import Account
from harness.judge.simulate.timeline_spans import READ, SENT, WRITTEN, SpanRecorder
from harness.judge.simulate.transfer_races import UnderWay
from harness.judge.simulate.values import Assumed, Unknowable, Unknown, decided
from harness.records import OffenceKind

# A transfer in flight: its arrival (cycle), its granules, its name, and True if it goes to HBM.
Arrival = tuple[int, int, str, bool]
# These bits of a flag's word mark a transfer that one core starts for both cores and that raises the flag on both.
_BOTH_CORES = 0x6000 << 16
_CHANGED = "scalar memory that a store at"
# The largest result that a scalar program writes. Words at this distance after a result's address are not part of it.
_LARGEST_RESULT = 1 << 17


class Memory:
    """The memory of one call of one HLO op: scalar memory, sync flags, operands. Time is in cycles.

    - `core`: the number of the chip's core that runs the op.
    - `for_others`: transfers, by flag, that the first core has started for all cores; the first core runs first.
    - `arguments`: the values that the op's caller passes in registers.
    - `operands`: the op's operands, with their places and contents.
    - `account`: the account of the op's waits.
    - `trace`: the recorder of the waits and the transfers.
    - `runtime`: True for the top-level program. The runtime writes this program's scalar memory before the program
      starts. Each word is `runtime_words[name]`, or 1 if `runtime_words` does not contain its name.
    - `alone`: True if no other core runs this op.
    - `results_at`: the addresses of the results. A result may be in a parameter's memory; the program compares the
      addresses and copies only if they differ.
    - `touches`: the program's accesses to VMEM. If given, accesses to the memory of transfers in flight are reported.
    """

    def __init__(
        self,
        channel: Channel,
        names: dict[int, str],
        *,
        core: int = 0,
        for_others: dict[int, list[Arrival]] | None = None,
        arguments: Sequence["int | Unknown"] = (),
        operands: Sequence[OperandContents] = (),
        account: Account,
        trace: SpanRecorder | None = None,
        runtime: bool = False,
        alone: bool = False,
        runtime_words: Mapping[str, int] | None = None,
        results_at: Mapping[int, int] | None = None,
        touches: Sequence[Touch] | None = None,
        port: ChipPort | None = None,
        identity: Mapping[str, int] | None = None,
    ) -> None:
        self.channel = channel
        self.port = port
        self.chip = port.number if port is not None else 0
        self.names = names
        self.account = account
        self.trace = trace
        in_hbm = sorted((operand.address, operand.name) for operand in operands if operand.space == "hbm")
        self._operand_starts = [address for address, _ in in_hbm]
        self._operand_names = [name for _, name in in_hbm]
        self.core = core
        self.for_others = {} if for_others is None else for_others
        self.arguments = arguments
        self.operands = operands
        self.runtime = runtime
        self.alone = alone
        self.runtime_words = runtime_words or {}
        self.results_at = results_at or {}
        self.words: dict[int, int | Unknown] = {}
        if port is not None:
            assignment = next(address for address, name in names.items() if name == ASSIGNMENT)
            self.words.update(port.identity(identity or {}, assignment))
        self.flags: dict[int, int] = {}
        self.arrivals: dict[int, list[Arrival]] = {}
        self.contents = Contents(names, operands, channel.machine.granule_bytes)
        # Words that transfers copied from scalar memory, with the memory space and address of each destination, in the
        # order in which the transfers started.
        self._drained: list[tuple[str, int, list[int | Unknown]]] = []
        # Spilled scalars for which scalar memory has no room, by their addresses in HBM.
        self._spilled: dict[int, tuple[int | Unknown, ...]] = {}
        self.remarks: dict[str, int] = {}
        # Counts of offences (see records.Offence), each with the line of kernel.py if it is known.
        self.offences: dict[tuple[OffenceKind, str, str], int] = {}
        # Waits that needed only part of a transfer, by flag. Kept until all transfers on the flag have been waited for.
        self._parts: dict[int, list[str]] = {}
        # Flags whose last change set a value instead of adding to it. The compiler does this to the flags of a grid's
        # windows.
        self._set: set[int] = set()
        if port is not None:
            self.contents.hold({assignment: tuple(range(len(port.others)))})
        self._stored_anywhere = False
        # Words that a transfer with strides may have written, by the allocation's number.
        self._unclear: dict[int, Unknown] = {}
        # The names of operands over which this call has written.
        self._replaced: set[str] = set()
        self.under_way = UnderWay(
            touches or (),
            channel.machine.granule_bytes,
            self.words,
            partial(self.offend, "transfer-raced"),
            is_watching=touches is not None,
        )

    def name_of(self, address: int) -> str:
        """A name for the address, such as `#allocation5 + 3`."""
        base = max((start for start in self.names if start <= address), default=None)
        return f"address {address}" if base is None else f"{self.names[base]} + {address - base}"

    def load(self, address: "int | Unknown") -> "int | Unknown":
        """The word of scalar memory at `address`; unknown if neither program nor runtime is known to write it."""
        if isinstance(address, Unknown):
            return address
        word = self.words.get(address)
        if word is None and self.runtime and address in self.contents:
            words = self.contents[address]()
            return (
                words[0]
                if words
                else Unknown(f"the word at {self.name_of(address)}, an op's result whose value is not known")
            )
        if word is None and address // ALLOCATION_SPACING in self._unclear:
            return self._unclear[address // ALLOCATION_SPACING]
        if word is None:
            name = self.name_of(address)
            if self.runtime and "spill" not in name:
                # The top-level program runs only if a word, the command, is 1. No other unwritten word affects a
                # decision, so all of them can be 1.
                return self.runtime_words.get(name.removesuffix(" + 0"), 1)
            # The caller may have written words of an operand. A store to an unknown address may have written any word.
            unwritten = name.startswith("#") and not self._stored_anywhere
            return Unknown(f"the scalar memory word {name}, which nothing wrote", unwritten=unwritten)
        return word

    def drain(
        self,
        source: "int | Unknown",
        space: str,
        destination: "int | Unknown",
        size: "int | Unknown",
        layout: "tuple[int | Unknown, ...]",
    ) -> None:
        """Records the words that a transfer copies from scalar memory; `destination` and `size` count granules.

        The words of a transfer with strides (see `UnderWay.started`) are not recorded.
        """
        if not isinstance(size, Unknown) and size == 0:
            return
        is_spill = not isinstance(destination, Unknown) and "spill" in self.names.get(destination & WORD, "")
        is_known = not self._stored_anywhere and self.under_way.is_one_run(size, layout)
        if not is_spill and not self.runtime:
            self.replace(space, destination, keeps_drained=is_known and not isinstance(source, Unknown))
        if isinstance(source, Unknown) or isinstance(destination, Unknown) or isinstance(size, Unknown) or not is_known:
            if is_spill:
                self._spilled[decided(destination, "the place of a spill") & WORD] = ()
            return
        unset = Unknown("a word of scalar memory that is not known to have been written")
        count = size * self.channel.machine.granule_bytes // WORD_BYTES
        words = [self.words.get(source + place, unset) for place in range(count)]
        destination &= WORD
        if is_spill:
            self._spilled[destination] = tuple(words)
        else:
            self._drained.append((space, destination, words))

    def results(self, outputs: "Mapping[int, tuple[str, int]]") -> dict[int, Words]:
        """The words that the scalar program has put into its outputs, by operand.

        `outputs` are the memory space and address of each output, by operand.
        """
        contents: dict[int, Words] = {}
        granule = self.channel.machine.granule_bytes
        for index, (space, address) in outputs.items():
            words: dict[int, int | Unknown] = {}
            if space == "smem" and not self._stored_anywhere:
                words = {place - address: word for place, word in self.words.items() if self._is_near(place, address)}
            for _, destination, brought in self._drained:
                for base in {address, address * ROW_BYTES // granule}:
                    if space != "smem" and self._is_near(destination, base):
                        first = (destination - base) * granule // WORD_BYTES
                        words.update((first + place, word) for place, word in enumerate(brought))
            if words:
                unset = Unknown("a result that nothing wrote")
                whole = tuple(words.get(place, unset) for place in range(max(words) + 1))
                contents[index] = partial(tuple, whole)
        return contents

    def _is_near(self, place: int, base: int) -> bool:
        return 0 <= place - base < _LARGEST_RESULT

    def popped(
        self, pushes: "deque[tuple[Words, int] | None]", reason: str, *, is_pushed: bool = True
    ) -> "int | Unknown":
        """The scalar at the head of `pushes` (the first word of a vector register); unknown if a `reason` is given.

        If `is_pushed` is False, the scalar comes from the other core instead of a vector.
        """
        pushed = pushes.popleft() if pushes and is_pushed else None
        if reason and self.port is not None:
            return Unknown(reason)
        if self.runtime and self.port is not None:
            # At launch, each chip compares its program with the programs that the other chips report.
            return 1
        words = pushed[0]() if pushed is not None and not reason else None
        if pushed is None or words is None or pushed[1] >= len(words):
            if not reason and self.channel.bound is not None:
                return Assumed(FROM_VECTOR, self.channel.bound.holds)
            return Unknown(reason or FROM_VECTOR)
        return words[pushed[1]]

    def decide(self, number: int, condition: "int | Unknown") -> bool:
        """The outcome of the program's decision with this number. Raises Unknowable if the outcome is not known."""
        if isinstance(condition, Assumed) and self.channel.bound is not None:
            return self.channel.bound.decide((self.account.name, number), condition.holds)
        return bool(condition)

    def argument(self, index: int) -> "int | Unknown":
        """The value that the caller passed in a register as operand `index`; unknown if no value was passed."""
        if 0 <= index < len(self.arguments):
            return self.arguments[index]
        return Unknown(f"operand {index}, which the caller passed in a register")

    def store(self, predicate: "bool | Unknown", address: "int | Unknown", value: "int | Unknown") -> None:
        """Writes a word of scalar memory if the predicate holds.

        If the address or the predicate is unknown, the words that the store may have written become unknown.
        """
        if not isinstance(predicate, Unknown) and not predicate:
            return
        if isinstance(address, Unknown):
            self.remark(f"a store to scalar memory whose address depends on {address.reason}")
            self._stored_anywhere = True
            # If an earlier store of this kind made the address unknown, the earlier reason is kept, because reasons
            # must not nest.
            is_doubt = address.reason.startswith(_CHANGED)
            doubt = address if is_doubt else Unknown(f"{_CHANGED} {address.reason} may have changed")
            self.words.update(dict.fromkeys(self.words, doubt))
        elif isinstance(predicate, Unknown):
            self.words[address] = predicate
        else:
            self.words[address] = value

    def signalled(self, operation: str, *, sparse_core: bool) -> None:
        """Raises Unknowable if this core sends a signal and the reaction to this signal is not known."""
        if not sparse_core:
            raise Unknowable(f"{operation} signals another chip: remote copies and collectives are not modelled")
        if self.channel.bound is None or not self.channel.bound.without_sparse_core:
            raise Unknowable(SPARSE_CORE)

    def set_flag(self, flag: "int | Unknown", value: "int | Unknown") -> None:
        """Sets a sync flag."""
        address = decided(flag, "a sync flag")
        self.flags[address] = decided(value, "a sync flag's value")
        self._set.add(address)

    def add_flag(self, flag: "int | Unknown", amount: "int | Unknown") -> None:
        """Adds to a sync flag."""
        address = decided(flag, "a sync flag")
        self.flags[address] = self.flags.get(address, 0) + decided(amount, "a sync flag's value")
        self._set.discard(address)

    def flag(self, flag: "int | Unknown") -> "int | Unknown":
        """The value of a sync flag; unknown while a transfer may raise it, because arrival times are not exact."""
        address = decided(flag, "a sync flag")
        if self.arrivals.get(address):
            return Unknown(
                f"the sync flag {self.name_of(address)}, which is raised by a transfer that nothing has waited for"
            )
        if self.port is not None and not self.runtime and self.port.inbox.get(address):
            return Unknown(f"the sync flag {self.name_of(address)}, which another chip raises")
        return self.flags.get(address, 0)

    def check(self, failed: "bool | Unknown", where: str, line: str = "") -> None:
        """Records an offence if a check that the compiler inserted fails (the chip halts) or cannot be evaluated."""
        if isinstance(failed, Unknown):
            if failed.reason != CROSS_CORE:
                self.remark(f"a check cannot be evaluated ({failed.reason}): {where}")
                self.offend("check-unknown", f"a check of the compiler that depends on {failed.reason}: {where}", line)
        elif failed:
            self.offend("chip-halts", f"a check of the compiler that fails: {where}", line)

    def offend(self, kind: OffenceKind, what: str, line: str = "") -> None:
        """Counts an offence (see records.Offence)."""
        key = kind, what, line
        self.offences[key] = self.offences.get(key, 0) + 1

    def _offend_parts(self, parts: Iterable[str]) -> None:
        for what in parts:
            self.offend("transfer-part-waited", what)

    def end(self, clock: int, bundle: int) -> int:
        """The cycle at which the last transfer of an op ends. The op's program ends at `clock`.

        Records an offence for each transfer that was not waited for, or only in part, and for each flag that is not
        zero. A flag whose last change set a value is not recorded, because the compiler leaves the flags of a grid's
        windows at one.
        """
        last, name, outgoing = clock, "", False
        self._offend_parts(chain.from_iterable(self._parts.values()))
        for address, pending in self.arrivals.items():
            for arrival, _, operand, is_outgoing in pending:
                transfer = operand if operand.startswith(OTHER_CHIP) else f"a transfer of {operand}"
                what = f"{transfer} that nothing waits for (sync flag {self.name_of(address)})"
                self.offend("transfer-pending", what)
                if arrival > last:
                    last, name, outgoing = arrival, operand, is_outgoing
        for address, value in self.flags.items():
            if value and address not in self._set and not self.arrivals.get(address):
                self.offend(
                    "semaphore-not-zero", f"the semaphore {self.name_of(address)}, which holds {value} at the end"
                )
        if last > clock:
            self.account.wait(bundle, name, outgoing, last - clock)
            if self.trace is not None:
                self.trace.waited(name, clock, last)
        return last

    def fill(
        self,
        space: str,
        source: "int | Unknown",
        address: "int | Unknown",
        size: "int | Unknown",
        layout: "tuple[int | Unknown, ...]",
    ) -> None:
        """Writes a transfer's words into scalar memory: the operand's words if they are known, otherwise unknown words.

        The words of a transfer with strides (see `UnderWay.started`) are not contiguous. So all words from the
        transfer's destination to the end of the allocation become unknown.
        """
        first = decided(address, "the destination in scalar memory of a transfer")
        granule = self.channel.machine.granule_bytes
        count = decided(size, "the size of a transfer to scalar memory") * granule // WORD_BYTES
        if not count:
            return
        filled = Unknown(f"a table that a transfer brought to {self.name_of(first)}, whose contents are not known")
        words = None
        if self.under_way.is_one_run(size, layout):
            words = self._contents(space, source, granule)
        else:
            allocation = first // ALLOCATION_SPACING
            self._unclear[allocation] = filled
            behind = [place for place in self.words if place // ALLOCATION_SPACING == allocation and place >= first]
            self.words.update(dict.fromkeys(behind, filled))
        for place in range(count):
            self.words[first + place] = words[place] if words and place < len(words) else filled
        launch_places = self.port.network.launch_places if self.runtime and self.port is not None else ()
        if any(source in places for places in launch_places):
            # These words report the programs of the other chips.
            self.words.update(dict.fromkeys(range(first, first + count), 1))
        elif self.runtime and words is None and not isinstance(source, Unknown) and source < FIRST_OPERAND:
            # The source is the runtime's table of result addresses, which has one word for each result.
            self.words.update((first + result, address) for result, address in self.results_at.items())

    def _contents(self, space: str, source: "int | Unknown", granule: int) -> "tuple[int | Unknown, ...] | None":
        if isinstance(source, Unknown):
            return None
        source &= WORD
        if source in self._spilled:
            return self._spilled[source]
        for operand in self.operands:
            if operand.name in self._replaced:
                continue
            # A transfer's address is a 32-bit count of granules. An operand's address may be a count of rows of 512
            # bytes.
            for base in {operand.address, operand.address * ROW_BYTES // granule & WORD}:
                offset = (source - base) * granule // WORD_BYTES
                words = operand.words() if operand.space == space and offset >= 0 else None
                if words is not None and offset < len(words):
                    return words[offset:]
        written = self.contents.beginning_at(source, space) if self.runtime or self.port is not None else None
        return written() if written is not None else None

    def replace(
        self, space: str, destination: "int | Unknown", *, keeps_drained: bool = False, is_store: bool = False
    ) -> None:
        """Forgets the contents of the operand in HBM or VMEM that a transfer or a store writes.

        `destination` counts granules, or rows if `is_store`. If it is unknown, the contents of all operands in `space`
        are forgotten. With `keeps_drained`, words that the scalar program itself has written there are kept.
        """
        if isinstance(destination, Unknown):
            self._replaced.update(operand.name for operand in self.operands if operand.space == space)
        elif space == "hbm":
            self._replaced.add(self.operand_name(destination))
        if space == "vmem":
            self.contents.replace(destination, is_transfer=not is_store)
            if not isinstance(destination, Unknown):
                row = destination if is_store else self.contents.row(destination)
                self._replaced.update(
                    operand.name
                    for operand in self.operands
                    if operand.space == space and operand.address // ALLOCATION_SPACING == row // ALLOCATION_SPACING
                )
        if not keeps_drained:
            self._drained = [
                (its_space, place, words)
                for its_space, place, words in self._drained
                if its_space != space
                or not (isinstance(destination, Unknown) or self._is_same(space, place, destination, is_store))
            ]

    def _is_same(self, space: str, drained: int, destination: int, is_store: bool) -> bool:
        """True if both addresses are in the same operand or allocation."""
        if space == "hbm":
            return self.operand_name(drained) == self.operand_name(destination)
        rows = destination if is_store else self.contents.row(destination)
        return self.contents.row(drained) // ALLOCATION_SPACING == rows // ALLOCATION_SPACING

    def operand_name(self, address: "int | Unknown") -> str:
        """The name of the operand in HBM that contains `address`, which counts granules; "" if it is not known."""
        if isinstance(address, Unknown):
            return ""
        address &= WORD
        if is_in_a_result(address) and not any(map(is_in_a_result, self._operand_starts[-1:])):
            return ""
        # The address of a transfer counts granules. If an operand's address counts rows, it has been scaled to
        # granules.
        scale = max(1, ROW_BYTES // self.channel.machine.granule_bytes)
        place = bisect_right(self._operand_starts, address // scale if address >= FIRST_OPERAND * scale else address)
        return self._operand_names[place - 1] if place else ""

    def start(
        self,
        source: str,
        destination: str,
        operand: "int | Unknown",
        size: "int | Unknown",
        flag: "int | Unknown",
        clock: int,
    ) -> None:
        """Starts a transfer of `size` granules at `clock`. The transfer raises `flag` when it arrives.

        `operand` is the transfer's address in HBM, if it has one.
        """
        if isinstance(size, Unknown) or isinstance(flag, Unknown):
            decided(size, f"the size of a transfer from {source} to {destination}")
            decided(flag, f"the sync flag of a transfer from {source} to {destination}")
        granules, target = int(size), int(flag)
        if granules < 0:
            raise Unknowable(f"a transfer from {source} to {destination} has the impossible size {granules}")
        name = self.operand_name(operand) if "hbm" in (source, destination) else ""
        name = name or f"{source.upper()} to {destination.upper()}"
        amount = granules * self.channel.machine.granule_bytes
        for_both = target & _BOTH_CORES == _BOTH_CORES
        # In the top-level program, the first core starts the fetches for the ops of all cores.
        arrival = self.channel.arrival(
            source, destination, amount, clock, for_all=for_both or self.runtime, alone=self.alone
        )
        if self.trace is not None:
            touched = amount * ((source == "hbm") + (destination == "hbm"))
            self.trace.transferred(name, WRITTEN if destination == "hbm" else READ, touched, clock, arrival)
        if granules == 0:
            # An empty transfer adds nothing to its flag, so nothing can wait for it.
            return
        under_way = arrival, granules, name, destination == "hbm"
        if for_both:
            # The upper half of the word repeats the flag's low half. Removing it changes no allocation's address,
            # because allocations are far apart.
            target &= ~(_BOTH_CORES | (target & 0xFFFF) << 16)
            if self.port is None:
                self.for_others.setdefault(target, []).append(under_way)
            else:
                for core in range(self.channel.machine.cores):
                    if core != self.core:
                        self.port.deliver((self.port.number, core), target, *under_way)
        heappush(self.arrivals.setdefault(target, []), under_way)

    def is_away(self, overrides: "int | Unknown") -> bool:
        """True if a transfer goes to another chip, or to this chip's other core."""
        return destination_of(decided(overrides, "where a transfer goes")) is not None

    def send(
        self,
        moved: "tuple[str, str, int | Unknown, int | Unknown]",
        flags: "tuple[int | Unknown, int | Unknown]",
        overrides: "int | Unknown",
        clock: int,
        line: str,
    ) -> None:
        """Starts a transfer to another chip or core; it raises `flags[0]` there, and `flags[1]` here after the send.

        `moved` has the source's memory space, the destination's memory space, the address in HBM if there is one, and
        the number of granules.
        """
        source, destination, operand, size = moved
        assert self.port is not None
        number = destination_of(decided(overrides, "where a transfer goes"))
        granules = decided(size, "the size of a transfer to another chip")
        here, raised = flag_of(decided(flags[1], "the sync flag of a transfer to another chip"), granules)
        # Both flags are raised by the same amount, which follows from the word of this chip's flag.
        word = decided(flags[0], "the sync flag of a transfer to another chip")
        there, _ = flag_of(word, granules)
        assert number is not None
        chip = self.port.destination(number, line)
        name = (self.operand_name(operand) if source == "hbm" else "") or source.upper()
        machine = self.channel.machine
        amount = granules * machine.granule_bytes
        read = self.channel.arrival(source, "link", amount, clock)
        network = self.port.network
        passage = network.passage(
            self.port.number, chip, amount, flag=there, begins=clock + machine.dma_latency_cycles, read=read
        )
        left, arrived = ceil(passage.left), ceil(passage.arrived)
        if self.trace is not None:
            self.trace.transferred(f"{name} to chip {chip}", SENT, amount * (source == "hbm"), clock, arrived)
            for link, times in passage.route if there != network.launch_flag else ():
                lane = f"chip {link.chip} link to {network.neighbour(link)}"
                self.trace.crossed(lane, f"{name}, chip {self.port.number} to {chip}", amount, times)
        what = CORE_TRANSFER if chip == self.port.number else TRANSFER
        self.port.deliver((chip, core_of(word)), there, arrived, raised, what, destination == "hbm")
        heappush(self.arrivals.setdefault(here, []), (left, raised, f"{name} to {OTHER_CHIP}", False))

    def signal(self, target: "int | Unknown", amount: "int | Unknown", clock: int, line: str) -> None:
        """Raises a flag of another chip, or of this chip's other core, by `amount`."""
        assert self.port is not None
        number, core, flag = signalled(decided(target, "the target of a signal to another chip"))
        chip = self.port.destination(number, line)
        passage = self.port.network.passage(self.port.number, chip, 0, flag=flag, begins=clock, read=clock)
        raised = decided(amount, "a signal to another chip")
        what = CORE_SIGNAL if chip == self.port.number else SIGNAL
        self.port.deliver((chip, core), flag, ceil(passage.arrived), raised, what)

    def meet(self, clock: int) -> None:
        """Signals to the other cores of the chip that this core has reached the barrier."""
        assert self.port is not None
        for core in range(self.channel.machine.cores):
            if core != self.core:
                self.port.deliver((self.port.number, core), MEETING, clock, 1, CORE_SIGNAL)

    def must_wait(self, flag: "int | Unknown", goal: "int | Unknown", line: str) -> bool:
        """True if the transfers and signals in flight to the flag so far cannot raise it to `goal`.

        First moves the flag's transfers and signals from other cores out of the inbox, to the transfers in flight.
        """
        assert self.port is not None
        address, needed = decided(flag, "a wait"), decided(goal, "a wait")
        pending = self.arrivals.setdefault(address, [])
        for arrival in self.port.inbox.pop(address, ()):
            heappush(pending, arrival)
        value = self.flags.get(address, 0)
        is_lacking = value + sum(granules for _, granules, _, _ in pending) < needed
        self.port.waiting = None
        if is_lacking:
            name = self.name_of(address)
            self.port.waiting = Waiting(self.account.name, line, name, address, value, needed, pending)
        return is_lacking

    def wait(
        self, flag: "int | Unknown", goal: "int | Unknown", clock: int, bundle: int, *, launches: bool = False
    ) -> int:
        """The cycle at which the flag has reached `goal`. Raises Unknowable if the transfers in flight do not suffice.

        `launches`: the wait belongs to the barrier at which all chips begin a program. A wait for only part of a
        transfer is an offence, because a flag counts the bytes that have arrived, but does not show which bytes. Such a
        wait is no offence if the rest is waited for before the memory of the flag's transfers is accessed.
        """
        address = decided(flag, "a wait")
        needed = decided(goal, "a wait")
        value = self.flags.get(address, 0)
        pending = self.arrivals.setdefault(address, [])
        for_this = self.for_others.get(address) if self.core else None
        while for_this and value + sum(granules for _, granules, _, _ in pending) < needed:
            heappush(pending, for_this.pop(0))
        ready = clock
        last = "", False
        brought, name = 0, ""
        while pending and value < needed:
            arrival, brought, name, outgoing = heappop(pending)
            value += brought
            if arrival > ready:
                ready, last = arrival, (name, outgoing)
        self.flags[address] = value
        if value < needed and self.channel.bound is not None and self.channel.bound.without_sparse_core:
            self.flags[address] = needed
            return ready
        if value < needed:
            raise Unknowable(
                f"a wait for {needed} on the sync flag {self.name_of(address)} can never be satisfied: "
                f"it has {value} and no transfer is under way"
            )
        if brought and value > needed and name not in (SIGNAL, CORE_SIGNAL):
            what = (
                f"a wait for {needed} granules on the sync flag {self.name_of(address)}, which ends within a "
                "transfer of "
            )
            self._parts.setdefault(address, []).append(what + f"{brought} granules of {name}")
        if value == needed and not pending:
            parts = self._parts.pop(address, ())
            if not self.under_way.arrived(address):
                self._offend_parts(parts)
        if ready > clock:
            if launches:
                self.account.add(bundle, "barrier wait", ready - clock)
            else:
                self.account.wait(bundle, *last, ready - clock)
            if self.trace is not None:
                self.trace.waited(last[0], clock, ready)
        return ready

    def exchanged(self, flag: "int | Unknown", granules: "int | Unknown", clock: int, bundle: int) -> int:
        """The cycle at which this many granules have been copied from or to the other core. Adds them to the flag.

        The copy was started at a barrier, where both cores met just before.
        """
        address, count = decided(flag, "a wait"), decided(granules, "a wait")
        ready = self.channel.arrival("vmem", "vmem", count * self.channel.machine.granule_bytes, clock)
        self.flags[address] = self.flags.get(address, 0) + count
        self.account.add(bundle, "barrier wait", ready - clock)
        if self.trace is not None:
            self.trace.waited("the other core", clock, ready)
        return ready

    def met(self, bundle: int, since: int, clock: int) -> None:
        """Records the time for which this core has waited for the other core at a barrier."""
        self.account.add(bundle, "barrier wait", clock - since)
        if self.trace is not None:
            self.trace.waited("the other core", since, clock)

    def remark(self, text: str) -> None:
        """Counts a remark for the report."""
        self.remarks[text] = self.remarks.get(text, 0) + 1
