"""Transfers in flight in an executed schedule, and accesses to the memory of transfers that were not waited for.

As in the interpreter, a transfer is in flight until all transfers on its sync flag have been waited for. This is
because a flag counts the granules of all its transfers together. The checks cover VMEM (transfers, and the loads and
stores of `accesses.py`) and HBM (transfers) of one kernel on one core.
"""

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain, takewhile
from math import prod

from harness.judge.simulate.accesses import Rows, Touch
from harness.judge.simulate.contents import ROW_BYTES, WORD
from harness.judge.simulate.scalar import ALLOCATION_SPACING
from harness.judge.simulate.values import Unknown

# A descriptor of strides has three words for each level; a transfer without strides has none.
_MOST_DESCRIPTOR_WORDS = 30
# Transfers are looked up by pieces of 2 ** `_PIECE_BITS` granules of a memory. A transfer that covers more than
# `_MOST_PIECES` pieces is always checked.
_PIECE_BITS = {"vmem": 10, "hbm": 15}
_MOST_PIECES = 1024
_MOST_REGIONS = 4096

Place = tuple[str, "int | Unknown"]
_NOT_WAITED = "which nothing has waited for"


@dataclass(frozen=True, slots=True)
class _Strides:
    """The layout of a transfer's granules: runs of `length` granules, repeated at nested levels.

    Each level has the source's stride, the target's stride, and the number of repetitions.
    """

    length: int
    levels: tuple[tuple[int, int, int], ...] = ()


@dataclass(frozen=True, slots=True)
class Region:
    """A set of granules: `count` runs of `length` granules, whose starts are `stride` granules apart."""

    first: int
    stride: int
    count: int
    length: int

    @property
    def end(self) -> int:
        """The granule after the region's last granule."""
        return self.first + self.stride * (self.count - 1) + self.length

    def overlaps(self, first: int, end: int) -> bool:
        """True if the region has a granule between `first` and `end` (excluded)."""
        if self.count == 1:
            return self.first < end and first < self.first + self.length
        begin = max(0, (first - self.length - self.first) // self.stride + 1)
        last = min(self.count - 1, -((self.first - end) // self.stride) - 1)
        return begin <= last

    def runs(self) -> Iterator[tuple[int, int]]:
        """The first granule of each run, and the granule after its last."""
        for number in range(self.count):
            begin = self.first + number * self.stride
            yield begin, begin + self.length


@dataclass(slots=True, eq=False)
class Side:
    """The memory that a transfer reads or writes: the space, the regions, and the pieces that contain the regions."""

    space: str
    regions: tuple[Region, ...]
    pieces: tuple[int, ...]


@dataclass(slots=True, eq=False)
class Moving:
    """A transfer in flight."""

    source: Side
    target: Side
    line: str
    is_raced: bool = False

    @property
    def name(self) -> str:
        """A description of the transfer, such as `a transfer from HBM to VMEM (kernel.py:7)`."""
        at = f" ({self.line})" if self.line else ""
        return f"a transfer from {self.source.space.upper()} to {self.target.space.upper()}{at}"


class _Pieces:
    """The transfers in flight that read (or write) one memory space, by the pieces that they access."""

    def __init__(self) -> None:
        self._at: defaultdict[int, list[Moving]] = defaultdict(list)
        self._everywhere: list[Moving] = []

    def add(self, moving: Moving, side: Side) -> None:
        if not side.pieces:
            self._everywhere.append(moving)
        for piece in side.pieces:
            self._at[piece].append(moving)

    def remove(self, moving: Moving, side: Side) -> None:
        if not side.pieces:
            self._everywhere.remove(moving)
        for piece in side.pieces:
            some = self._at[piece]
            some.remove(moving)
            if not some:
                del self._at[piece]

    def near(self, pieces: Iterable[int]) -> Iterable[Moving]:
        """The transfers that may access one of the pieces; all transfers if there are no pieces."""
        if not self._at and not self._everywhere:
            return ()
        moving_by_id = {id(moving): moving for moving in self._everywhere}
        for piece in pieces or tuple(self._at):
            for moving in self._at.get(piece, ()):
                moving_by_id[id(moving)] = moving
        return moving_by_id.values()


class UnderWay:
    """The transfers in flight while a kernel runs; `busy` counts the transfers of each allocation of VMEM.

    `raced(what, line)` is called for an access to the memory of a transfer in flight, and for a transfer that overlaps
    another transfer, if at least one of the two writes. If `is_watching` is False, nothing is checked.
    """

    def __init__(
        self,
        touches: Sequence[Touch],
        granule_bytes: int,
        words: "Mapping[int, int | Unknown]",
        raced: Callable[[str, str], None],
        *,
        is_watching: bool,
    ) -> None:
        self.busy: dict[int, int] = {}
        self._touches = touches
        self._scale = max(1, ROW_BYTES // granule_bytes)
        self._descriptors = words
        self._raced = raced
        self._is_watching = is_watching
        self._reading, self._writing = ({space: _Pieces() for space in _PIECE_BITS} for _ in range(2))
        self._by_flag: dict[int, list[Moving]] = {}
        # Flags with a transfer whose source or target memory is not known.
        self._unfollowed: set[int] = set()
        # The layouts are cached, because the transfers of a kernel have few sizes and strides.
        self._strides_of: dict[tuple[int, ...], _Strides | None] = {}

    def started(
        self,
        flag: "int | Unknown",
        source: Place,
        target: Place,
        size: "int | Unknown",
        layout: "tuple[int | Unknown, ...]",
        line: str,
    ) -> None:
        """Records a transfer of `size` granules; `layout` is empty, or strides and counts, or a descriptor's address.

        A side with an unknown place is not tracked. If the strides are unknown, neither side is tracked.
        """
        is_empty = not isinstance(size, Unknown) and size == 0
        if not self._is_watching or isinstance(flag, Unknown) or is_empty:
            return
        strides = self._strides(size, layout)
        if strides is None:
            self._unfollowed.add(flag)
            return
        moving = Moving(_side(source, 0, strides), _side(target, 1, strides), line)
        if not (moving.source.regions and moving.target.regions):
            self._unfollowed.add(flag)
        self._look_at(moving)
        self._by_flag.setdefault(flag, []).append(moving)
        for side, under_way in ((moving.source, self._reading), (moving.target, self._writing)):
            if side.regions:
                under_way[side.space].add(moving, side)
        for allocation in self._allocations(moving):
            self.busy[allocation] = self.busy.get(allocation, 0) + 1

    def arrived(self, flag: int) -> bool:
        """True if the memory of the flag's transfers was not accessed before the program waited for all of them.

        Also False if one of these transfers, or the program's accesses, were not tracked. Ends these transfers.
        """
        is_clear = bool(self._touches) and flag not in self._unfollowed
        self._unfollowed.discard(flag)
        for moving in self._by_flag.pop(flag, ()):
            is_clear = is_clear and not moving.is_raced
            for side, under_way in ((moving.source, self._reading), (moving.target, self._writing)):
                if side.regions:
                    under_way[side.space].remove(moving, side)
            for allocation in self._allocations(moving):
                self.busy[allocation] -= 1
                if not self.busy[allocation]:
                    del self.busy[allocation]
        return is_clear

    def touch(self, number: int, base: int) -> None:
        """Checks the accesses of the Touch with this number, whose register has the value `base`."""
        touch, bits = self._touches[number], _PIECE_BITS["vmem"]
        first, end = ((base + row) * self._scale for row in (touch.low, touch.high))
        pieces = range(first >> bits, (end - 1 >> bits) + 1)
        for moving in self._writing["vmem"].near(pieces):
            self._look_into(touch, base, moving, moving.target)
        if touch.writes:
            for moving in self._reading["vmem"].near(pieces):
                self._look_into(touch, base, moving, moving.source)

    def _look_into(self, touch: Touch, base: int, moving: Moving, side: Side) -> None:
        """Reports the first access to memory that the transfer writes, or the first store to memory that it reads."""
        is_written = side is moving.target
        rows = (*touch.reads, *touch.writes) if is_written else touch.writes
        if not any(self._is_in(base, each, side.regions) for each in rows):
            return
        for access in touch.accesses:
            is_race = is_written or access.is_write
            if is_race and any(self._is_in(base, each, side.regions) for each in access.rows):
                what = "a store to" if access.is_write else "a load from"
                verb = "writes" if is_written else "reads"
                moving.is_raced = True
                self._raced(f"{what} VMEM that {moving.name} {verb}, {_NOT_WAITED}", access.source)
                return

    def _is_in(self, base: int, rows: Rows, regions: tuple[Region, ...]) -> bool:
        first, end = ((base + row) * self._scale for row in rows)
        return any(region.overlaps(first, end) for region in regions)

    def _look_at(self, moving: Moving) -> None:
        """Reports each transfer in flight that overlaps a new transfer, and a new transfer with overlapping sides."""
        source, target = moving.source, moving.target
        if source.space == target.space and _meet(source.regions, target.regions):
            moving.is_raced = True
            self._raced(f"{moving.name} that reads what it writes", moving.line)
        pairs = (
            (source, [(other, other.target) for other in self._near(self._writing, source)]),
            (target, [(other, other.target) for other in self._near(self._writing, target)]),
            (target, [(other, other.source) for other in self._near(self._reading, target)]),
        )
        for side, others in pairs:
            for other, theirs in others:
                if _meet(side.regions, theirs.regions):
                    moving.is_raced = other.is_raced = True
                    self._raced(
                        f"{moving.name} that overlaps {other.name} in {side.space.upper()}, {_NOT_WAITED}", moving.line
                    )

    def _near(self, under_way: Mapping[str, _Pieces], side: Side) -> Iterable[Moving]:
        return under_way[side.space].near(side.pieces) if side.regions else ()

    def is_one_run(self, size: "int | Unknown", layout: "tuple[int | Unknown, ...]") -> bool:
        """True if a transfer's granules are known to be contiguous in source and target."""
        strides = self._strides(size, layout)
        if strides is None:
            return False
        length = strides.length
        for *steps, count in reversed(strides.levels):
            if count > 1 and any(step != length for step in steps):
                return False
            length *= count
        return True

    def _allocations(self, moving: Moving) -> set[int]:
        sides = (side for side in (moving.source, moving.target) if side.space == "vmem")
        size = self._scale * ALLOCATION_SPACING
        return {place // size for side in sides for each in side.regions for place in (each.first, each.end - 1)}

    def _strides(self, size: "int | Unknown", layout: "tuple[int | Unknown, ...]") -> "_Strides | None":
        """The layout of a transfer's granules; None if it is not known."""
        if len(layout) == 1:
            (descriptor,) = layout
            if isinstance(descriptor, Unknown):
                return None
            places = range(descriptor, descriptor + _MOST_DESCRIPTOR_WORDS)
            layout = tuple(self._descriptors[place] for place in takewhile(self._descriptors.__contains__, places))
        if isinstance(size, Unknown) or any(isinstance(each, Unknown) for each in layout):
            return None
        key = (size, *map(int, layout))
        if key not in self._strides_of:
            self._strides_of[key] = _strides_of(size, key[1:], self._scale)
        return self._strides_of[key]


def _strides_of(size: int, numbers: tuple[int, ...], scale: int) -> _Strides | None:
    """The layout that triples of numbers describe, outermost level first; None if it does not fit `size`.

    Without numbers, the layout is a single run. The first two numbers of a triple are the strides of its level. The
    third is the number of repetitions at the next level or, in the last triple, the number of rows of a run.
    """
    if size <= 0 or len(numbers) % 3:
        return None
    if not numbers:
        return _Strides(size)
    strides = list(zip(numbers[::3], numbers[1::3], strict=True))
    *within, rows = numbers[2::3]
    length = rows * scale
    granules = length * prod(within)
    if length <= 0 or min(0, *within, *chain.from_iterable(strides)) < 0 or not granules or size % granules:
        return None
    counts = (size // granules, *within)
    return _Strides(length, tuple((*pair, count) for pair, count in zip(strides, counts, strict=True)))


def _side(place: Place, number: int, strides: _Strides) -> Side:
    space, address = place
    if space not in _PIECE_BITS or isinstance(address, Unknown):
        return Side(space, (), ())
    length, stride, count, starts = strides.length, 0, 1, [address & WORD]
    # The set of granules does not depend on the order of the levels.
    for step, times in sorted((level[number], level[2]) for level in strides.levels):
        if not step or times == 1:
            continue
        if count == 1 and step == length:
            length *= times
        elif count == 1:
            stride, count = step, times
        elif step == stride * count:
            count *= times
        elif len(starts) * times <= _MOST_REGIONS:
            starts = [start + turn * step for start in starts for turn in range(times)]
        else:
            return Side(space, (), ())
    regions = tuple(Region(start, stride, count, length) for start in starts)
    return Side(space, regions, _pieces(regions, _PIECE_BITS[space]))


def _pieces(regions: tuple[Region, ...], bits: int) -> tuple[int, ...]:
    """The pieces that contain the regions; empty if there are too many."""
    if len(regions) == 1 and regions[0].count == 1:
        span = range(regions[0].first >> bits, (regions[0].end - 1 >> bits) + 1)
        return tuple(span) if len(span) <= _MOST_PIECES else ()
    pieces: set[int] = set()
    for region in regions:
        for first, end in region.runs() if region.count <= _MOST_PIECES else [(region.first, region.end)]:
            pieces.update(range(first >> bits, min((end - 1 >> bits) + 1, (first >> bits) + _MOST_PIECES + 1)))
            if len(pieces) > _MOST_PIECES:
                return ()
    return tuple(pieces)


def _meet(some: tuple[Region, ...], others: tuple[Region, ...]) -> bool:
    for some_region in some:
        for other in others:
            if some_region.first >= other.end or other.first >= some_region.end:
                continue
            few, many = sorted((some_region, other), key=lambda region: region.count)
            if any(many.overlaps(first, end) for first, end in few.runs()):
                return True
    return False
