"""Accesses to vector memory in a schedule: the rows that loads and stores access, relative to a scalar register."""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import chain
from typing import NamedTuple

from harness.dumps.llo import Op, Schedule
from harness.judge.simulate.scalar import ALLOCATION_SPACING, Names

# Schedules with this number of allocations or more are not checked. Their allocations have made-up addresses that are
# `ALLOCATION_SPACING` apart, so the addresses of more allocations would not fit into 32 bits.
_MOST_ALLOCATIONS = 1000
# `[vmem:[#allocation5 + $0x38] sm:$0xff]`, `[vmem:[%s12_s10] ss:$2 sm:$0xf]`.
_PLACE = re.compile(r"\s*\[vmem:\[(?:(#allocation[\w.]*)|%[a-z]+\d+_(s\d+))(?: \+ \$0x([0-9a-f]+))?\]([^\]]*)\]")
_ALLOCATION = re.compile(r"#allocation[\w.]*")
_MASK = re.compile(r"sm:\$0x([0-9a-f]+)")
_STRIDE = re.compile(r"\bss:\$(-?\d+)")
_PATTERN = re.compile(r"\bpattern:\$0x([0-9a-f]{8})\b")
_ALWAYS = ("vld", "vld.sshfl", "vst", "vst.msk")
# The first row, and the row after the last.
Rows = tuple[int, int]


class Access(NamedTuple):
    """The rows that one operation reads or writes, relative to the value of its register, or to 0 without one."""

    register: str
    rows: tuple[Rows, ...]
    is_write: bool
    predicate: str
    source: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Touch:
    """All accesses in consecutive bundles that are relative to the same value of the same register.

    `low` is the first row accessed, `high` the row after the last. `reads` and `writes` are the rows that are read and
    written, sorted and merged.
    """

    low: int
    high: int
    reads: tuple[Rows, ...]
    writes: tuple[Rows, ...]
    accesses: tuple[Access, ...]


def accesses(schedule: Schedule, names: Names) -> dict[int, list[Access]]:
    """The accesses of a kernel by bundle, except those to unknown rows and to allocations that no transfer uses.

    Empty if the schedule is not that of a kernel, or has `_MOST_ALLOCATIONS` allocations or more.
    """
    by_bundle: dict[int, list[Access]] = {}
    if not schedule.is_kernel:
        return by_bundle
    moved = _moved(schedule)
    for index, op in schedule.ops_where(_ALWAYS.__contains__):
        match = _PLACE.match(op.text)
        access = _access(op, match, names) if match is not None and (match[2] or match[1] in moved) else None
        if access is not None:
            by_bundle.setdefault(index, []).append(access)
    return by_bundle if names.allocations < _MOST_ALLOCATIONS else {}


def touch_of(some: Sequence[Access]) -> Touch:
    """The accesses that are relative to one value of a register, as one Touch."""
    reads, writes = (_merged(rows for each in some if each.is_write == kind for rows in each.rows) for kind in (0, 1))
    both = (*reads, *writes)
    return Touch(
        low=min(first for first, _ in both),
        high=max(end for _, end in both),
        reads=reads,
        writes=writes,
        accesses=tuple(some),
    )


def in_groups(
    by_bundle: Mapping[int, Sequence[Access]], span: range, written: Mapping[int, frozenset[str]]
) -> dict[int, list[list[Access]]]:
    """The accesses in `span` in groups, by the bundle at which the whole group can be checked.

    Accesses relative to one register, or to one allocation, form a group until a bundle writes the register. An access
    with a predicate is a group by itself. `written` has the registers that each bundle writes.
    """
    groups: dict[int, list[list[Access]]] = {}
    under: dict[str | int, list[Access]] = {}
    for index in span:
        for access in by_bundle.get(index, ()):
            # If an access has no register, its row identifies the allocation.
            start = access.register or access.rows[0][0] // ALLOCATION_SPACING
            if access.predicate:
                groups.setdefault(index, []).append([access])
            elif start in under:
                under[start].append(access)
            else:
                under[start] = [access]
                groups.setdefault(index, []).append(under[start])
        for register in written.get(index, frozenset()) & under.keys():
            del under[register]
    return groups


def _moved(schedule: Schedule) -> set[str]:
    """The allocations whose addresses a scalar operation computes; transfers use only these allocations."""
    made = schedule.ops_where(lambda opcode: opcode[0] != "v" and opcode not in ("sst", "sld"))
    return set(chain.from_iterable(_ALLOCATION.findall(op.text) for _, op in made if "#" in op.text))


def _access(op: Op, match: re.Match[str], names: Names) -> Access | None:
    allocation, register, offset, options = match.groups()
    offsets = _offsets(options)
    if not offsets:
        return None
    first = int(offset, 16) if offset else 0
    if allocation:
        first += names.base(allocation)
    rows = tuple([(first + low, first + high) for low, high in offsets])
    return Access(register or "", rows, op.opcode.startswith("vst"), op.predicate, op.source)


@cache
def _offsets(options: str) -> tuple[Rows, ...]:
    """The rows that an access touches, relative to its address; empty if they are not known.

    The mask selects sublanes of the vector register. The last hexadecimal digit of a load's pattern is the row of
    sublane 0. The digit before is the row of sublane 1, and so on. If sublanes are shuffled (`sps`), only the row of
    sublane 0 is known. If the mask is in a register, no row is known.
    """
    mask, stride, pattern = _MASK.search(options), _STRIDE.search(options), _PATTERN.search(options)
    if mask is None:
        return ()
    sublanes = [sublane for sublane in range(8) if int(mask[1], 16) >> sublane & 1]
    if "sps:" in options:
        sublanes = sublanes[:1] if sublanes[:1] == [0] else []
    if pattern is not None:
        sublanes = [int(pattern[1][7 - sublane], 16) for sublane in sublanes]
    step = int(stride[1]) if stride else 1
    return _merged((sublane * step, sublane * step + 1) for sublane in sublanes)


def _merged(rows: Iterable[Rows]) -> tuple[Rows, ...]:
    merged: list[Rows] = []
    for first, end in sorted(rows):
        if merged and first <= merged[-1][1]:
            merged[-1] = merged[-1][0], max(end, merged[-1][1])
        else:
            merged.append((first, end))
    return tuple(merged)
