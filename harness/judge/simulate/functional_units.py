"""The units that an operation occupies for several cycles (MXU, XLU, EUP), and stalls of bundles that wait for them.

Bundles issue in order, each as a whole. A bundle stalls until every unit to which it pushes is free, and every result
that it pops is available. The compiler relies on these stalls and leaves out the empty bundles that would only wait. So
the number of bundles alone is less than the number of cycles that the units need.

`Units` in harness/chips/row.py describes the cycles and latencies; each chip's values are in its file in harness/chips.
An operation that uses none of these units takes one cycle.
"""

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import chain
from math import ceil

from harness.dumps.llo import Op, Schedule
from harness.judge.simulate.machine import Machine


@dataclass(frozen=True, slots=True)
class Use:
    """One operation's use of one unit.

    - Issue: the operation issues once `port` is free or will be free within `early` cycles.
    - Start: it starts at the cycle at which both `port` and the port `behind` (if any) are free, and occupies `port`
      for `cycles`.
    - Results: the first result is available `latency` cycles after the start, and the next ones every `spacing` cycles.
      All `results` values enter `queue`, or one value enters each of `slots`.
    - If `pops`, the operation takes one value out of `queue` instead.

    A queue whose name ends in `]` is an addressed result buffer, and so is each slot. All other queues are first in,
    first out.
    """

    port: str
    cycles: float
    queue: str
    latency: int = 0
    results: int = 0
    spacing: int = 0
    pops: bool = False
    flops: int = 0
    early: float = 0
    behind: str = ""
    slots: tuple[str, ...] = ()


# One stretch's uses: (bundle offset within the stretch, uses of that bundle).
Uses = tuple[tuple[int, tuple[Use, ...]], ...]
# Cycles from the stretch's start until each port is free, and until each result is available. Free ports are left out.
State = tuple[tuple[tuple[str, float], ...], tuple[tuple[str, tuple[int, ...]], ...]]

IDLE: State = ((), ())


@dataclass(frozen=True, slots=True)
class Stretch:
    """Bundles `first` to `last` (excluded) that run in sequence, with no decision or transfer between them.

    `users` are the operations that use units: for each bundle's offset, the index of each operation's kind in the
    program's list of kinds. With indices, a stretch is the same on every machine. If a predicated operation occupies a
    unit, each outcome of the predicate is a separate stretch.
    """

    first: int
    last: int
    users: tuple[tuple[int, tuple[int, ...]], ...]


@dataclass(slots=True)
class Pass:
    """The passage through a stretch from one state: its cycles, the state at its end, and the number of such runs.

    `stalls` has each stall of one passage: bundle offset within the stretch, cause, cycles.
    """

    cycles: int
    state: int
    stalls: tuple[tuple[int, str, int], ...] = ()
    visits: int = 0


# The most results that a queue keeps. No hardware FIFO is as deep. So a queue exceeds this limit only if pops were
# paired with the wrong pushes.
_DEEPEST_QUEUE = 512

# Rows of 8-bit values in one register.
_NARROW_ROWS = 32

# After this many cycles without an operation, all units are idle on every chip.
_LONGEST_MEMORY = 1 << 14

_MXU = re.compile(r"mxu\d")
_XLU = re.compile(r"xlu\d")
_THIRD_XLU = "xlu2"
# The width of a transpose follows its operands: (vx, 128) or (vx, vy, 128).
_WIDTH = re.compile(r", (\d+)$")
_BUFFER = re.compile(r"mrb\[(\d+)\]")
_EUP_WORDS = "vexp vpow vrcp vlog vrsqrt vtanh vsqrt vsin vcos verf vsigmoid vsigshft vrecip"
# The beginnings of the opcodes of the transcendental unit.
EUP = tuple(_EUP_WORDS.split())
# The opcodes for which `uses_of` may return uses.
_OF_UNITS = re.compile(rf"mxu\d|xlu\d|^vpop\.eup$|^(?:{'|'.join(EUP)})")


def uses_of(op: Op, machine: Machine) -> tuple[Use, ...]:
    """The uses that `op` makes of these units; empty for an operation that is complete after one cycle."""
    name = op.opcode
    if mxu := _MXU.search(name):
        return _mxu_uses(name, mxu[0], machine)
    if xlu := _XLU.search(name):
        if name.startswith("vpop"):
            return (Use("", 0, f"{xlu[0]} {name.split('.')[1]}", pops=True),)
        if name.startswith("vset"):
            return ()
        if name.startswith("vxpose"):
            return _transpose_uses(op, xlu[0], machine)
        kind, latency = "permute", machine.permute_latency_cycles
        if ".xlane" in name:
            kind, latency = "xlane", machine.reduce_latency_cycles
        if xlu[0] == _THIRD_XLU:
            latency -= machine.third_xlu_early_cycles
        return (Use(xlu[0], machine.xlu_cycles, f"{xlu[0]} {kind}", latency, results=1),)
    if name == "vpop.eup":
        return (Use("", 0, "eup", pops=True),)
    if name.startswith(EUP):
        cycles = machine.eup_packed_cycles if ".bf16" in name else 1
        return (Use("eup", cycles, "eup", machine.eup_latency_cycles, results=1),)
    return ()


def kinds_of_users(schedule: Schedule, machine: Machine) -> tuple[dict[int, list[tuple[str, int]]], tuple[Op, ...]]:
    """The operations that use units, by bundle, each as (predicate, kind); and one operation of each kind.

    Operations of one kind use the units in the same way, on any machine.
    """
    numbers: dict[str, int | None] = {}
    kinds: list[Op] = []
    users: dict[int, list[tuple[str, int]]] = {}
    for index, op in schedule.ops_where(lambda opcode: bool(_OF_UNITS.search(opcode))):
        # The results of a transpose depend on its width.
        key = op.opcode
        if key.startswith("vxpose") and (width := _WIDTH.search(op.arguments)):
            key += width[0]
        if key not in numbers:
            numbers[key] = len(kinds) if uses_of(op, machine) else None
            kinds += [op] if numbers[key] is not None else []
        number = numbers[key]
        if number is not None:
            users.setdefault(index, []).append((op.predicate, number))
    return users, tuple(kinds)


def waited_for(use: Use) -> str:
    """The cause of a stall for `use`: `MXU busy`, `MXU weights` (its weight port), `XLU result` and so on."""
    unit, _, port = (use.queue if use.pops else use.port).partition(" ")
    return f"{unit[:3].upper()} {'result' if use.pops else port or 'busy'}"


def _transpose_uses(op: Op, xlu: str, machine: Machine) -> tuple[Use, ...]:
    """The uses of one operation of a transpose. Several operations take rows in; the last operation gives the results.

    `width` columns become rows. A register holds 8 rows of 32 bits, 16 of 16 bits or 32 of 8 bits. An opcode with
    `binary` transposes two arrays.
    """
    is_wide = ".b32" in op.opcode
    cycles = machine.xlu_cycles if is_wide else machine.transpose_packed_cycles
    if ".end" not in op.opcode:
        return (Use(xlu, cycles, ""),)
    width = _WIDTH.search(op.arguments)
    rows = 16 if ".b16" in op.opcode else 32 if ".b8" in op.opcode else 8
    results = max(1, (int(width[1]) if width else 128) // rows * (2 if ".binary" in op.opcode else 1))
    latency = machine.transpose_latency_cycles if is_wide else machine.transpose_packed_latency_cycles
    if xlu == _THIRD_XLU:
        latency -= machine.third_xlu_transpose_early_cycles
    # On v5, rows of 16-bit values enter at half the rate of 32-bit rows, but their results come out at the same rate.
    return (Use(xlu, cycles, f"{xlu} trf", latency, results, spacing=machine.xlu_cycles),)


def _mxu_uses(name: str, mxu: str, machine: Machine) -> tuple[Use, ...]:
    buffer = _BUFFER.search(name)
    if name.startswith("vpop"):
        return (Use("", 0, f"{mxu}[{buffer[1]}]" if buffer else mxu, pops=True),)
    if name.startswith("vmatmul"):
        rows, results = _rows_and_results(name, machine)
        # A register has the same number of bytes for every dtype, so one register of 8-bit values has more rows. On
        # chips that multiply 8-bit values directly, these rows go in faster.
        is_narrow = rows >= _NARROW_ROWS and ".bf16" not in name
        faster = machine.narrow_rate ** (rows // _NARROW_ROWS) if is_narrow else 1
        cycles = max(1, round(rows / machine.matmul_rows_per_cycle / faster))
        spacing = cycles // results
        busy = cycles * machine.matmul_slowdown
        latency = machine.matmul_narrow_latency_cycles if is_narrow else machine.matmul_latency_cycles
        flops = 2 * rows * machine.mxu_size**2
        # The first matmul with new weights takes the weights from the staging registers once all of them have arrived.
        weights = f"{mxu} weights" if "lgmr" in name or ".dwg" in name else ""
        early = machine.matmul_queue * busy
        latch = (Use(weights, 0, "", early=early),) if weights else ()
        slots = tuple(f"{mxu}[{int(buffer[1]) + i}]" for i in range(results)) if buffer else ()
        matmul = Use(
            mxu,
            busy,
            "" if slots else mxu,
            latency,
            results,
            1 if slots else spacing,
            flops=flops,
            early=early,
            # Without a queue, the latch has already waited for the weights.
            behind=weights if early else "",
            slots=slots,
        )
        return (*latch, matmul)
    if name.startswith("vmatpush"):
        # Opcodes that push float32 contain no dtype.
        is_float32 = re.match(r"vmatpush\d?(?:\.xpose)?\.msr[ab]\b", name) is not None
        plain = machine.push_float32_cycles if is_float32 else machine.push_cycles
        turned = machine.push_float32_transposed_cycles if is_float32 else machine.push_transposed_cycles
        cycles = turned if ".xpose" in name else plain
        return (Use(f"{mxu} weights", cycles, ""),)
    if name.startswith("vmatprep.subr"):
        # On 256-wide units, a row pair needs a prep and a push. The cost of both is booked on the push.
        return (Use(f"{mxu} weights", 0, "", early=machine.prep_early_cycles),)
    return ()


def _rows_and_results(name: str, machine: Machine) -> tuple[int, int]:
    """The number of rows of the left operand in one matmul, and of result vectors (8 rows of 32 bits each).

    A vector register holds 8 rows of 32-bit values, 16 of 16-bit, 32 of 8-bit and 64 of 4-bit values.
    """
    # A matmul from the MXU's register of rows (lmr) names 16 rows, but only one result is popped, as for 8 rows.
    if ".f32" in name or ".s32" in name or ".lmr." in name:
        return 8, max(1, machine.matmul_results // 2)
    if ".s4" in name or ".u4" in name:
        return 2 * _NARROW_ROWS, 4 * machine.matmul_results
    if ".s8" in name or ".u8" in name or ".x8" in name or ".f8" in name:
        return _NARROW_ROWS, 2 * machine.matmul_results
    return 16, machine.matmul_results


class Pipes:
    """A cache of the stalls of stretches. A stretch that is entered in the same state takes the same time again."""

    def __init__(self, stretches: Iterable[tuple[int, Uses]]) -> None:
        self._stretches = tuple(stretches)
        self._states: list[State] = [IDLE]
        self._numbers: dict[State, int] = {IDLE: 0}
        self._after: dict[tuple[int, int], int] = {}
        self.memories: tuple[dict[int, Pass], ...] = tuple({} for _ in self._stretches)
        self.empty_pops = 0

    @property
    def counts(self) -> tuple[int, ...]:
        """The number of times that each stretch ran."""
        return tuple(sum(passed.visits for passed in memory.values()) for memory in self.memories)

    @property
    def matmuls(self) -> tuple[float, int]:
        """The cycles for which all matmuls so far have occupied matrix units, and their FLOPs."""
        cycles, flops = 0.0, 0
        for (_, uses), count in zip(self._stretches, self.counts, strict=True):
            for use in chain.from_iterable(bundle for _, bundle in uses) if count else ():
                if use.flops:
                    cycles += count * use.cycles
                    flops += count * use.flops
        return cycles, flops

    def stalls(self) -> Iterator[tuple[int, int, str, int]]:
        """The stalls of all passages: stretch, bundle offset within it, cause (see `waited_for`), cycles."""
        for number, memory in enumerate(self.memories):
            for passed in memory.values():
                for offset, name, cycles in passed.stalls:
                    yield number, offset, name, cycles * passed.visits

    def run(self, stretch: int, state: int) -> Pass:
        """The passage through the stretch with this number, entered in the state with the number `state`."""
        length, uses = self._stretches[stretch]
        ports = dict(self._states[state][0])
        queues = {name: list(values) for name, values in self._states[state][1]}
        stall = 0
        stalls = []
        for offset, bundle in uses:
            now = offset + stall
            ready = now
            last = None
            for use in bundle:
                free: float = 0
                if use.pops:
                    queue = queues.get(use.queue)
                    if queue:
                        free = queue[0] if use.queue[-1] == "]" else queue.pop(0)
                    elif use.queue[-1] != "]":
                        self.empty_pops += 1
                elif use.port:
                    free = ports.get(use.port, 0) - use.early
                if free > ready:
                    ready, last = ceil(free), use
            if last is not None:
                stall += ready - now
                stalls.append((offset, waited_for(last), ready - now))
            for use in bundle:
                start = ready
                if use.cycles:
                    before = ports.get(use.port, 0)
                    if use.behind:
                        before = max(before, ports.get(use.behind, 0))
                    # A unit that is busy for a part of this cycle begins when it becomes free, before the next bundle.
                    begin = before if ready - before < 1 else ready
                    ports[use.port] = begin + use.cycles
                    start = max(ready, ceil(begin))
                if use.results:
                    first = start + use.latency
                    out = [first + i * use.spacing for i in range(use.results)]
                    if use.slots:
                        queues.update((slot, [value]) for slot, value in zip(use.slots, out, strict=True))
                    else:
                        queues[use.queue] = (queues.get(use.queue, []) + out)[-_DEEPEST_QUEUE:]
        end = length + stall
        passed = self.memories[stretch][state] = Pass(end, self._number(ports, queues, end), tuple(stalls))
        return passed

    def later(self, state: int, cycles: int) -> int:
        """The state after `cycles` without an operation."""
        if state == 0 or cycles == 0:
            return state
        cycles = min(cycles, _LONGEST_MEMORY)
        later_state = self._after.get((state, cycles))
        if later_state is None:
            ports, queues = self._states[state]
            later_state = self._number(dict(ports), {name: list(values) for name, values in queues}, cycles)
            self._after[state, cycles] = later_state
        return later_state

    def _number(self, ports: dict[str, float], queues: dict[str, list[int]], elapsed: int) -> int:
        # Tuples are made from lists, because queues can be long, and generators would take twice the time.
        state = (
            tuple(sorted([(name, free - elapsed) for name, free in ports.items() if free > elapsed])),
            tuple(
                [
                    (name, tuple([out - elapsed if out > elapsed else 0 for out in values]))
                    for name, values in sorted(queues.items())
                    if values and (name[-1] != "]" or values[0] > elapsed)
                ]
            ),
        )
        number = self._numbers.get(state)
        if number is None:
            number = self._numbers[state] = len(self._states)
            self._states.append(state)
        return number
