"""The source line of each operation of a schedule, including operations for which the compiler names no line."""

import re
from collections import deque
from functools import cache
from typing import NamedTuple

from harness.dumps.llo import Schedule
from harness.judge.simulate.structure import unit_of, vector_spill

_VECTOR = re.compile(r"%v\d+_(v\d+)")
_ARRAY = re.compile(r"[mx][xl]u\d")


class Ascribed(NamedTuple):
    """The source line of each operation of a bundle (`kernel.py:23`, or ""), and the lines that share the cycle."""

    operations: tuple[str, ...]
    shared: tuple[str, ...]


def ascribed(schedule: Schedule) -> list[Ascribed]:
    """The lines of each bundle's operations.

    The compiler names no line for operations that it adds itself. An added operation belongs to:
    - the line that pops its result, for a transcendental;
    - the line whose value is saved, for a spill;
    - the line of the next operation on the same MXU or XLU, for an operation without a register;
    - the line that uses its result next in the schedule, for any other vector operation (a fill, a pack).

    An empty bundle belongs to the lines of the next bundle, because it exists only to delay the next bundle.
    """
    lines = [[op.source for op in bundle.ops] for bundle in schedule.bundles]
    _name_pushes(schedule, lines)
    uses: dict[str, str] = {}
    for bundle, here in zip(reversed(schedule.bundles), reversed(lines), strict=True):
        if "" in here:
            for place, op in enumerate(bundle.ops):
                if not here[place] and op.opcode[0] == "v":
                    here[place] = uses.get(op.destination or _array(op.opcode), "")
        for op in bundle.ops:
            uses.pop(op.destination, None)
        for op, line in zip(bundle.ops, here, strict=True):
            if line:
                if "%v" in op.text:
                    for register in _VECTOR.findall(op.text):
                        uses[register] = line
                if not op.destination and (array := _array(op.opcode)):
                    uses[array] = line
    makers: dict[str, str] = {}
    for bundle, here in zip(schedule.bundles, lines, strict=True):
        if "" in here:
            for place, op in enumerate(bundle.ops):
                if not here[place] and vector_spill(op) == "spill" and (stored := _VECTOR.findall(op.text)):
                    here[place] = makers.get(stored[-1], "")
        for op, line in zip(bundle.ops, here, strict=True):
            if op.destination:
                makers[op.destination] = line
    ascriptions: list[Ascribed] = []
    shared: tuple[str, ...] = ("",)
    for here in reversed(lines):
        shared = tuple(here) or shared
        ascriptions.append(Ascribed(tuple(here), shared))
    return ascriptions[::-1]


@cache
def _array(opcode: str) -> str:
    """The MXU or XLU that executes the operation, such as `mxu0`, or ""."""
    match = _ARRAY.search(opcode)
    return match[0] if match else ""


def _name_pushes(schedule: Schedule, lines: list[list[str]]) -> None:
    """Gives each operation of the transcendental unit the line that pops its result (first in, first out)."""
    opcodes = {opcode for opcode in schedule.places if opcode == "vpop.eup" or unit_of(opcode) == "EUP"}
    pushed: deque[tuple[list[str], int]] = deque()
    for bundle, here in zip(schedule.bundles, lines, strict=True):
        for place, op in enumerate(bundle.ops):
            if op.opcode not in opcodes:
                continue
            if op.opcode != "vpop.eup":
                pushed.append((here, place))
            elif pushed:
                where, which = pushed.popleft()
                where[which] = where[which] or here[place]
