"""Accesses to vector memory in a schedule: which rows its loads and stores touch, relative to a scalar register."""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import NamedTuple

from harness.dumps.llo import Op, Schedule
from harness.judge.simulate.scalar import ALLOCATION_SPACING, Names, expression

# Allocations are told apart as long as there are fewer: addresses of 32 bits count granules.
_MOST_ALLOCATIONS = 1000
_PLACE = re.compile(r"\[vmem:\[([^\]]*)\]([^\]]*)\]")
_MASK = re.compile(r"sm:\$0x([0-9a-f]+)")
_STRIDE = re.compile(r"\bss:\$(-?\d+)")
_ALWAYS = ("vld", "vld.sshfl", "vst", "vst.msk")
# Rows from `first` to before `end`.
Rows = tuple[int, int]


class Access(NamedTuple):
    """Rows that one operation reads or writes: from what its register holds (no register: from 0)."""

    register: str
    rows: tuple[Rows, ...]
    is_write: bool
    predicate: str
    source: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Touch:
    """All accesses of a stretch of bundles that start from one value of one register: rows from `low` to before `high`.

    `reads` and `writes` are their rows, sorted and apart.
    """

    low: int
    high: int
    reads: tuple[Rows, ...]
    writes: tuple[Rows, ...]
    accesses: tuple[Access, ...]


def accesses(schedule: Schedule, names: Names) -> dict[int, list[Access]]:
    """Those of a kernel by bundle, but for spilled registers, which no transfer moves, and rows that are not known."""
    found: dict[int, list[Access]] = {}
    if not schedule.is_kernel:
        return found
    for index, op in schedule.ops_where(_ALWAYS.__contains__):
        access = None if "_spill" in op.text else _access(op, names)
        if access is not None:
            found.setdefault(index, []).append(access)
    return found if names.allocations < _MOST_ALLOCATIONS else {}


def touch_of(some: Sequence[Access]) -> Touch:
    """Accesses of one register's value, together."""
    reads, writes = (_merged(rows for each in some if each.is_write == kind for rows in each.rows) for kind in (0, 1))
    both = (*reads, *writes)
    return Touch(
        low=min(first for first, _ in both), high=max(end for _, end in both), reads=reads, writes=writes,
        accesses=tuple(some),
    )  # fmt: skip


def in_groups(
    found: Mapping[int, Sequence[Access]], span: range, written: Mapping[int, frozenset[str]]
) -> dict[int, list[list[Access]]]:
    """The accesses of the bundles in `span`, by the bundle where all of a group can be looked at.

    Those of one register, or of one allocation, stand together until a bundle writes it. `written` are the registers
    that each bundle writes.
    """
    groups: dict[int, list[list[Access]]] = {}
    under: dict[str | int, list[Access]] = {}
    for index in span:
        for access in found.get(index, ()):
            # Without a register an allocation is known.
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


def _access(op: Op, names: Names) -> Access | None:
    match = _PLACE.search(op.arguments)
    mask = _MASK.search(match[2]) if match is not None else None
    if match is None or mask is None:
        return None
    stride = _STRIDE.search(match[2])
    offsets = _offsets(int(mask[1], 16), int(stride[1]) if stride else 1, "sps:" in match[2])
    register, base = "", 0
    for term in expression(match[1], names).strip("()").split(" + "):
        if term.lstrip("-").isdigit():
            base += int(term)
        elif register or not term[1:].isdigit():
            return None
        else:
            register = term
    if not offsets:
        return None
    rows = tuple((base + first, base + end) for first, end in offsets)
    return Access(register, rows, op.opcode.startswith("vst"), op.predicate, op.source)


@cache
def _offsets(mask: int, stride: int, is_shuffled: bool) -> tuple[Rows, ...]:
    """The rows of a register's sublanes in `mask`; of one whose sublanes are shuffled (`sps`) the first alone."""
    sublanes = [sublane for sublane in range(8) if mask >> sublane & 1]
    if is_shuffled:
        sublanes = sublanes[:1] if sublanes[:1] == [0] else []
    return _merged((sublane * stride, sublane * stride + 1) for sublane in sublanes)


def _merged(rows: Iterable[Rows]) -> tuple[Rows, ...]:
    merged: list[Rows] = []
    for first, end in sorted(rows):
        if merged and first <= merged[-1][1]:
            merged[-1] = merged[-1][0], max(end, merged[-1][1])
        else:
            merged.append((first, end))
    return tuple(merged)
