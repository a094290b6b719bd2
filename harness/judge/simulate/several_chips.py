"""Chips that run one program together: the links between them, and the transfers and signals that each chip receives.

Each chip is simulated separately. It yields its clock before it accesses another chip, so that uses of links are
simulated in the order of time. Chip i of a program is at place i of its slice; the first axis varies fastest.
"""

from collections import Counter
from collections.abc import Generator, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from heapq import heappush
from math import inf, prod
from typing import TypeAlias

from harness.chips.row import Links
from harness.dumps.llo import Schedule
from harness.errors import UsageError
from harness.hardware import slice_shape
from harness.judge.simulate.contents import ROW_BYTES
from harness.judge.simulate.machine import Machine
from harness.judge.simulate.scalar import ALLOCATION_SPACING as _SPACING
from harness.judge.simulate.scalar import Names
from harness.judge.simulate.values import Unknowable, Unknown
from harness.records import LinkTraffic

# The compiler's tags for words of scalar memory: the place where a program runs, the address in HBM of the table with
# the chip of each partition, and the place where the top-level program stores data for all programs.
_REGISTRY = "program shared registry"
_CHIP_ID, _CORE = "chip ID", "core index"
_PARTITION, _ASSIGNMENT_PLACE = "partition id location", "device assignment ptr"
_IDENTITY = (_CHIP_ID, _PARTITION, "replica id location", _CORE, _ASSIGNMENT_PLACE, _REGISTRY)
# The tags of the registry that the top-level program fills, and of the table to which the registry points. Bits 24 to
# 27 of that table's words are routes to the other chips.
_SHARED, _ROUTES = "Program registry", "Routing table index mapping tables"
# For slices of 32 chips and more: the tag of the table with the chip of each routing entry, and the number of entries
# for each chip.
_ROUTING_KEY, _ENTRIES = "<routing-table-index-mapping-key>", 16
# The addresses of the registry and the routes in other programs, above all addresses of these programs.
_REGISTRY_PLACE, _ROUTES_PLACE = 1 << 40, 1 << 41
# The symbol of the table with the chip of each partition.
ASSIGNMENT = "device assignment"
# The names of waits for another chip in the account. The name of sent data is `NAME to another chip`.
OTHER_CHIP = "another chip"
TRANSFER, SIGNAL = f"{OTHER_CHIP}'s transfer", f"{OTHER_CHIP}'s signal"
# The names of waits for the other core of the chip in the account.
CORE_TRANSFER, CORE_SIGNAL = "the other core's transfer", "the other core's signal"

# The bits of a transfer's overrides and of a remote signal's target (libtpu 0.0.42 and 0.0.50).
_AWAY, _CHIP = 0x4000, 0x3FFF
# The bits of the chip in an entry of a routing table.
_ROUTED_CHIP = 0xFF
_SIGNAL_CHIP_BIT, _SIGNAL_CORE_BIT = 17, 14
_FLAG, _CORE_BIT = 0x1FFF, 13
# On v6e, this bit of a transfer's flag word is set if the transfer raises the flag by 1 instead of by its granules.
# XLA's reductions set it.
_RAISED_BY_ONE = 0x10000
_FLAG_BYTES = 4
# A made-up flag number, above all true numbers, for the barrier of a chip's cores, which has no flag.
MEETING = _FLAG + 1
_LAUNCH_FLAG = "global barrier sync flag"
# The first made-up number of a flag, above all true numbers.
_FIRST_OWN_FLAG = 0x400


def flag_numbers(schedules: Iterable[Schedule]) -> dict[str, dict[str, int]]:
    """The numbers of sync flags: by the schedule's name, then by the flag's name.

    Flags with the same place in all programs have their true numbers. All other flags have made-up numbers, which no
    two schedules share if there are enough numbers. The compiler may reuse a flag's true number while a transfer that
    raises the flag is in flight, and another program waits for this transfer later. The dump does not show this.
    """
    numbers: dict[str, dict[str, int]] = {}
    following = _FIRST_OWN_FLAG
    for schedule in schedules:
        flags = numbers.setdefault(schedule.name, {})
        for allocation in schedule.allocations:
            if allocation.space == "sflag" and allocation.address is not None:
                flags[allocation.name] = allocation.address // _FLAG_BYTES
            elif allocation.space == "sflag":
                count = -(-allocation.size // _FLAG_BYTES)
                following = _FIRST_OWN_FLAG if following + count > _FLAG else following
                flags[allocation.name] = following
                following += count
    return numbers


def identity_words(schedule: Schedule, names: Names) -> dict[str, int]:
    """By meaning: the addresses of the words that identify the chip and core on which the schedule's program runs.

    For the top-level program, also the addresses of the registry and of the table of routes, which this program makes.
    """
    tags = [
        (names.bases.get(allocation.name), allocation.tag)
        for allocation in schedule.allocations
        if allocation.space == "smem"
    ]
    meanings = (*_IDENTITY, _SHARED, _ROUTES)
    return {meaning: address for address, tag in tags for meaning in meanings if address is not None and meaning in tag}


def flag_of(word: int, granules: int) -> tuple[int, int]:
    """The number of the flag that a transfer to another chip raises, and the amount: 1, or the transfer's granules."""
    return word & _FLAG, 1 if word & _RAISED_BY_ONE else granules


def core_of(word: int) -> int:
    """The core whose flag a transfer raises on its destination chip."""
    return word >> _CORE_BIT & 1


def destination_of(overrides: int) -> int | None:
    """The chip to which a transfer goes (possibly the chip that starts it); None if the transfer stays on its core."""
    return overrides & _CHIP if overrides & _AWAY else None


def signalled(target: int) -> tuple[int, int, int]:
    """The chip, its core, and the number of the flag that a remote signal raises."""
    return target >> _SIGNAL_CHIP_BIT & _CHIP, target >> _SIGNAL_CORE_BIT & 1, target & _FLAG


@dataclass(frozen=True, slots=True)
class Link:
    """One direction of a link: the sending chip, the axis, and the step to the next (1) or previous chip (-1)."""

    chip: int
    axis: int
    step: int


# Spans of time: begin and end of each, in cycles.
Times: TypeAlias = Sequence[tuple[float, float]]


@dataclass(frozen=True, slots=True)
class Passage:
    """A transfer between chips: its `route` of links in order, each with the times at which the transfer uses the link.

    At the cycle `left`, its last byte has left the sending chip. At the cycle `arrived`, its last byte has arrived at
    the other chip.
    """

    route: tuple[tuple[Link, Times], ...]
    left: float
    arrived: float


class Lane:
    """The times at which one direction of a link is busy, as spans in order with gaps between them."""

    def __init__(self) -> None:
        self.busy: list[tuple[float, float]] = []

    def free_at(self, begin: float) -> float:
        """The first time from `begin` on at which the lane is free."""
        return next((end for start, end in self.busy if start <= begin < end), begin)

    def take(self, times: Times, since: float) -> Times:
        """The times at which the lane carries data that arrives at `times`. The lane carries data as soon as possible.

        A later transfer may fill the gaps between earlier transfers, because packets of several transfers share a link.
        No transfer of this call or a later call begins before `since`.
        """
        while self.busy and self.busy[0][1] < since:
            del self.busy[0]
        carried: list[tuple[float, float]] = []
        place, at = 0, 0.0
        for begin, end in times:
            at, left = max(at, begin), end - begin
            while left > 0:
                while place < len(self.busy) and self.busy[place][1] <= at:
                    place += 1
                start, until = self.busy[place] if place < len(self.busy) else (inf, inf)
                if start <= at:
                    at = until
                    continue
                stop = min(start, at + left)
                left = left - (stop - at) if stop == start else 0.0
                carried.append((at, stop))
                at = stop
        merged: list[tuple[float, float]] = []
        for start, end in sorted([*self.busy, *carried]):
            if merged and start <= merged[-1][1]:
                merged[-1] = merged[-1][0], max(end, merged[-1][1])
            else:
                merged.append((start, end))
        self.busy = merged
        return carried


@dataclass(slots=True, kw_only=True)
class Network:
    """The links of a slice: when each direction is busy, and the bytes that it has carried. Time is in cycles.

    Transfers that raise the `launch_flag` belong to the barrier at which all chips begin a program, so their bytes are
    not counted. `launch_places` are the addresses in HBM, in granules, at which chips report their programs. `routing`
    has the entries of all chips' routing tables. It is None if transfers on this slice name the destination chip
    instead.
    """

    shape: tuple[int, ...]
    links: Links
    machine: Machine
    launch_flag: int | None = None
    launch_places: Sequence[range] = ()
    routing: Sequence[int] | None = None
    carried: dict[Link, int] = field(default_factory=dict)
    _lanes: dict[Link, Lane] = field(default_factory=dict)
    _routes: dict[tuple[int, int], tuple[Link, ...]] = field(default_factory=dict)

    @property
    def bytes_per_cycle(self) -> float:
        """Bytes per cycle that one link carries in one direction."""
        return self.links.reached_bytes_per_second / self.machine.clock_hz

    @property
    def traffic(self) -> tuple[LinkTraffic, ...]:
        """The traffic of each direction of a link that was used, in the order of the chips."""
        used = [(link.chip, self.neighbour(link), amount) for link, amount in self.carried.items() if amount]
        return tuple(
            LinkTraffic(
                source=chip,
                destination=neighbour,
                bytes=amount,
                busy_seconds=amount / self.links.reached_bytes_per_second,
            )
            for chip, neighbour, amount in sorted(used)
        )

    def neighbour(self, link: Link) -> int:
        """The chip at the other end of a link."""
        here, stride, size = self.place(link.chip)[link.axis], prod(self.shape[: link.axis]), self.shape[link.axis]
        return link.chip + ((here + link.step) % size - here) * stride

    @property
    def hop_cycles(self) -> float:
        """Cycles that each link of the route adds to the time of a transfer."""
        return self.links.hop_seconds * self.machine.clock_hz

    def place(self, chip: int) -> tuple[int, ...]:
        """The coordinates of a chip."""
        coordinates = []
        for size in self.shape:
            coordinates.append(chip % size)
            chip //= size
        return tuple(coordinates)

    def route(self, source: int, destination: int) -> tuple[Link, ...]:
        """The links from one chip to another: along one axis after the other, and the shorter way around each ring."""
        kept_route = self._routes.get((source, destination))
        if kept_route is not None:
            return kept_route
        route: list[Link] = []
        chip = source
        places = zip(self.shape, self.place(source), self.place(destination), strict=True)
        for axis, (size, here, there) in enumerate(places):
            distance = there - here
            if self.links.closes(size) and abs(distance) > size // 2:
                distance -= size if distance > 0 else -size
            for _ in range(abs(distance)):
                route.append(Link(chip, axis, 1 if distance > 0 else -1))
                chip = self.neighbour(route[-1])
        return self._routes.setdefault((source, destination), tuple(route))

    def passage(self, source: int, destination: int, amount: int, *, flag: int, begins: float, read: float) -> Passage:
        """The passage of `amount` bytes from one chip to another.

        The first bytes are read at `begins`, the last bytes at `read`. The transfer raises `flag` at its destination.
        Each link of the route carries bytes as soon as it is free and the bytes have arrived. A link is busy only while
        it carries bytes.
        """
        length = amount / self.bytes_per_cycle
        times: Times = ((max(begins, read - length), max(begins + length, read)),)
        left = max(begins + length, read)
        since = begins - self.machine.dma_latency_cycles
        route: list[tuple[Link, Times]] = []
        for link in self.route(source, destination):
            lane = self._lanes.setdefault(link, Lane())
            times = lane.take(times, since) if amount else ((lane.free_at(times[0][0]),) * 2,)
            left = times[-1][1] if not route else left
            route.append((link, times))
            if flag != self.launch_flag:
                self.carried[link] = self.carried.get(link, 0) + amount
        return Passage(tuple(route), left, times[-1][1] + len(route) * self.hop_cycles)


@dataclass(slots=True)
class Waiting:
    """A core's wait in an op until a flag, which is now `value`, reaches `goal`. `line` is "" if it is not known.

    `pending` are the transfers and signals that were in flight to the flag when the wait began.
    """

    op: str
    line: str
    flag: str
    number: int
    value: int
    goal: int
    pending: Sequence[tuple[int, int, str, bool]]


@dataclass(slots=True, kw_only=True)
class ChipPort:
    """The state that one core shares with all other cores, including those of its own chip.

    `others` are the ports of all cores, grouped by chip. `inbox` has the transfers and signals from other cores, by
    flag number: a heap of scalar_memory.Arrival for each flag.
    """

    number: int
    core: int
    network: Network
    others: Sequence["ChipPort"] = ()
    inbox: dict[int, list[tuple[int, int, str, bool]]] = field(default_factory=dict)
    waiting: Waiting | None = None
    # Indices in `others` of the cores to which this core has sent data or signals since it last continued.
    served: set[int] = field(default_factory=set)
    # Words of scalar memory, by their addresses, that the top-level program has stored for the programs that it calls.
    shared: Mapping[int, "int | Unknown"] = field(default_factory=dict)

    def destination(self, number: int, line: str) -> int:
        """The chip that a transfer or signal names by `number`; `line` is its source line, if known.

        Raises Unknowable for a chip that does not exist, and for an entry without a route in the routing table.
        """
        routing, chip = self.network.routing, number
        if routing is not None:
            entry = _ENTRIES * self.number + number
            chip = routing[entry] if number < _ENTRIES and entry < len(routing) else -1
            if chip < 0:
                where = f" at {line}" if line else ""
                raise Unknowable(
                    f"it sends to a chip{where} that its routing table has no route to: on slices of 32 chips or more "
                    f"a chip reaches only {sum(word >= 0 for word in self._routes)} others"
                )
            chip &= _ROUTED_CHIP
        chips = len(self.others) // self.network.machine.cores
        if not 0 <= chip < chips:
            # A chip's number has 14 bits.
            meant = chip - _CHIP - 1 if chip > _CHIP // 2 else chip
            where = f" at {line}" if line else ""
            raise Unknowable(f"it sends to chip {meant}{where}, but the program runs on {chips} chips")
        return chip

    @property
    def _routes(self) -> Sequence[int]:
        """The entries of this chip's routing table."""
        return (self.network.routing or ())[_ENTRIES * self.number : _ENTRIES * (self.number + 1)]

    def share(self, words: Mapping[int, "int | Unknown"], identity: Mapping[str, int]) -> None:
        """Records the contents of the top-level program's scalar memory for the programs that it calls."""
        if _ROUTES not in identity or _SHARED not in identity:
            return
        registry, routes = identity[_SHARED], identity[_ROUTES]
        self.shared = {}
        for address, word in words.items():
            if registry <= address < registry + _SPACING:
                self.shared[_REGISTRY_PLACE + address - registry] = _ROUTES_PLACE if word == routes else word
            elif routes <= address < routes + _SPACING:
                self.shared[_ROUTES_PLACE + address - routes] = word

    def deliver(
        self, to: tuple[int, int], flag: int, arrival: int, amount: int, what: str, to_hbm: bool = False
    ) -> None:
        """Raises a flag of the chip and core `to` by `amount` at the cycle `arrival`; `what` names the cause."""
        place = to[0] * self.network.machine.cores + to[1]
        if place >= len(self.others):
            raise Unknowable(f"it sends to core {to[1]} of chip {to[0]}, which has only one core")
        heappush(self.others[place].inbox.setdefault(flag, []), (arrival, amount, what, to_hbm))
        self.served.add(place)

    def goes_on(self, clock: int) -> int | None:
        """The cycle at which this core, now at `clock`, continues; None while it waits for data not sent yet."""
        waiting = self.waiting
        if waiting is None:
            return clock
        reached = waiting.value
        for arrival, granules, _, _ in self._under_way(waiting):
            reached += granules
            if reached >= waiting.goal:
                return max(clock, arrival)
        return None

    def lacks(self, waiting: Waiting) -> int:
        """The amount that a wait still lacks after all transfers and signals in flight have arrived."""
        return waiting.goal - waiting.value - sum(granules for _, granules, _, _ in self._under_way(waiting))

    def _under_way(self, waiting: Waiting) -> list[tuple[int, int, str, bool]]:
        return sorted([*waiting.pending, *self.inbox.get(waiting.number, ())])

    def identity(self, words: Mapping[str, int], assignment: int) -> "dict[int, int | Unknown]":
        """By address, the words that identify the chip and core of a program, and the words that `share` recorded."""
        here = {
            _CHIP_ID: self.number,
            _CORE: self.core,
            _PARTITION: self.number,
            _ASSIGNMENT_PLACE: assignment,
            _REGISTRY: words.get(_SHARED, _REGISTRY_PLACE),
        }
        named = {address: here.get(meaning, 0) for meaning, address in words.items() if meaning in _IDENTITY}
        return {**self.shared, **named}


def ports(
    count: int, machine: Machine, top: Schedule, names: Mapping[int, str], constants: Mapping[int, Sequence[int]]
) -> list[ChipPort]:
    """The ports of all cores of a slice of `count` chips that run `top`; `names` are the names of `top`'s addresses.

    `constants` are words in HBM by their addresses. Raises UsageError `unknown-slice`.
    """
    links = machine.links
    if links is None:
        raise UsageError(
            "unknown-slice",
            f"expected a program for one chip, got {count} chips: nothing is known about the links of {machine.chip}",
        )
    addresses = {name: address for address, name in names.items()}
    keys = [allocation.name for allocation in top.allocations if allocation.tag == _ROUTING_KEY]
    rows = ROW_BYTES // machine.granule_bytes
    flags = {
        allocation.name: allocation.address // _FLAG_BYTES
        for allocation in top.allocations
        if allocation.address is not None
    }
    network = Network(
        shape=slice_shape(count, links),
        links=links,
        machine=machine,
        launch_flag=next(
            (flags[allocation.name] for allocation in top.allocations if allocation.tag.endswith(_LAUNCH_FLAG)), None
        ),
        launch_places=[
            range(place, place + allocation.size // machine.granule_bytes)
            for allocation in top.allocations
            if allocation.space == "hbm" and allocation.address
            for place in (
                allocation.address // machine.granule_bytes,
                *(at * scale for at, name in names.items() if name == allocation.name for scale in (1, rows)),
            )
        ],
        routing=next((constants.get(addresses.get(key, -1), ()) for key in keys), None),
    )
    several = [
        ChipPort(number=number, core=core, network=network) for number in range(count) for core in range(machine.cores)
    ]
    for port in several:
        port.others = several
    return several


def in_order_of_time(several: Sequence[ChipPort], steps: Sequence[Generator[int, int, int]]) -> str:
    """Runs all cores; the core that can continue first runs next. Returns the reason why the run has no end, or ""."""
    clocks = dict.fromkeys(range(len(several)), 0)
    running = dict.fromkeys(clocks, False)
    # The cycle at which each core continues, if it is known. For a waiting core, this changes only if another core
    # sends data or a signal to it.
    able = dict(clocks)
    while clocks:
        if not able:
            return deadlock([several[chip] for chip in clocks])
        _, chip = min((cycle, number) for number, cycle in able.items())
        port = several[chip]
        try:
            clocks[chip] = steps[chip].send(clocks[chip]) if running[chip] else next(steps[chip])
            running[chip] = True
        except StopIteration:
            del clocks[chip]
        except Unknowable as error:
            return f"chip {several[chip].number}: {error}"
        for other in {chip, *port.served}:
            cycle = several[other].goes_on(clocks[other]) if other in clocks else None
            if cycle is None:
                able.pop(other, None)
            else:
                able[other] = cycle
        port.served.clear()
    return ""


def left_over(port: ChipPort, names: Mapping[int, str]) -> dict[str, int]:
    """Counts of transfers and signals from other cores that were not waited for. Keys are sentences that name them.

    `names` are the names of flags by their numbers.
    """
    return Counter(
        f"{what} that nothing waits for (sync flag {names.get(flag, flag)})"
        for flag, entries in port.inbox.items()
        for _, _, what, _ in entries
    )


def deadlock(several: Sequence[ChipPort]) -> str:
    """A description of the waits of all chips, none of which can continue."""
    waits: dict[str, list[int]] = {}
    for port in several:
        waiting = port.waiting
        assert waiting is not None
        where = f"{waiting.op} ({waiting.line})" if waiting.line else waiting.op
        text = f"in {where} for {port.lacks(waiting)} more on the sync flag {waiting.flag}, which nobody sends"
        waits.setdefault(text, []).append(port.number)
    listed = [
        f"chips {', '.join(map(str, numbers))} wait {text}" if len(numbers) > 1 else f"chip {numbers[0]} waits {text}"
        for text, numbers in waits.items()
    ]
    return f"the chips wait for each other for ever: {'; '.join(listed)}"
