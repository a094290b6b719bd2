"""Compiles a schedule to one Python function, which runs the scalar program and counts the runs of each stretch.

The function does no vector work. The time of vector work is computed once for each stretch of bundles and state of the
units. So the number of Python statements per kernel step is about the number of scalar instructions.
"""

import re
from bisect import bisect_left, bisect_right
from collections import deque
from collections.abc import Mapping
from functools import partial
from typing import cast

from harness.dumps.llo import EXIT_REGION, UNREADABLE, Op, Schedule
from harness.judge.simulate import values as arithmetic
from harness.judge.simulate.accesses import Access, Touch, accesses, in_groups, touch_of
from harness.judge.simulate.compiled import Program, Run
from harness.judge.simulate.functional_units import Stretch, kinds_of_users
from harness.judge.simulate.machine import Machine
from harness.judge.simulate.scalar import ALLOCATION_SPACING, CROSS_CORE, Names, Write, expression, write_of
from harness.judge.simulate.several_chips import ASSIGNMENT, MEETING, identity_words
from harness.judge.simulate.structure import (
    EXCHANGED,
    LAUNCH_BARRIER,
    REMOTE_SIGNAL,
    cross_core_pops,
    delay_slots,
    exchanges,
    is_branch,
    is_for_first_core,
    is_timed,
    meetings,
    memory_space,
    pushed_loads,
    scalar_program,
)

_REGISTER = re.compile(r"\b[sp]\d+\b")
# A constant predicate: `dma.general (0), ...` and `dma.general (!1), ...` are never executed.
_CONSTANT_PREDICATE = re.compile(r" *\((!?[01])\),")
_NEVER = ("0", "!1")
_THREAD = re.compile(r"\[thread:[^\]]*\]")
_REGION = re.compile(r"region(\d+)")
# The results that a division pushes for later pops, by the division's note.
_DIVISIONS = {"kDivAndRem": ("divided", "remainder"), "kDiv": ("divided",), "kRem": ("remainder",)}


# The index of the operand that shows whether a transfer goes to another chip.
_TO_A_CHIP = 6


def compile_program(
    schedule: Schedule, machine: Machine, *, traced: bool = False, flags: Mapping[str, int] | None = None
) -> Program:
    """The schedule as an executable program. If `traced`, the program reports every stretch to the memory's trace.

    If the program runs on several chips, `flags` has the numbers of its sync flags by name. Such a program yields its
    clock before each access to another chip, and while it waits for another chip.
    """
    on_several_chips = flags is not None
    writer = _Writer(schedule, machine, traced, flags)
    text = writer.function()
    if on_several_chips:
        writer.names.base(ASSIGNMENT)
    scope: dict[str, object] = {**vars(arithmetic), "deque": deque, "partial": partial}
    exec(compile(text, f"<schedule of {schedule.name}>", "exec"), scope)
    return Program(
        stretches=tuple(writer.stretches),
        kinds=writer.kinds,
        names=writer.names.by_address(),
        operands=writer.names.operands,
        outputs=frozenset(writer.names.outputs),
        calls=tuple(writer.calls),
        run=cast(Run, scope["run"]),
        text=text,
        touches=tuple(writer.touches),
        for_first_core=is_for_first_core(schedule),
        identity=identity_words(schedule, writer.names) if on_several_chips else {},
    )


class _Writer:
    """Writes the function. Its registers are Python locals with the names of the chip's registers (`s12`, `p3`)."""

    def __init__(self, schedule: Schedule, machine: Machine, traced: bool, flags: Mapping[str, int] | None) -> None:
        self.traced = traced
        self.on_several_chips = flags is not None
        self.bundles = schedule.bundles
        self.grid_exit = schedule.grid_exit
        self.machine = machine
        self.names = Names(flags)
        self.stretches: list[Stretch] = []
        self.registers: set[str] = set()
        self.users, self.kinds = kinds_of_users(schedule, machine)
        self.pushes = pushed_loads(schedule)
        # The numbers of the loads whose words are pushed to the scalar program.
        loads = dict.fromkeys(id(load) for load in self.pushes.values() if load is not None)
        self.loads = {load: number for number, load in enumerate(loads)}
        # In a program of several chips, cores raise each other's flags by number, even within one chip.
        self.meetings = {} if self.on_several_chips else meetings(schedule)
        self.exchanges = frozenset[int]() if self.on_several_chips else exchanges(schedule)
        self.has_sparse_core = bool(schedule.ops_where(lambda opcode: opcode.startswith("int_to_ptr.sparse_core")))
        self.calls_others = bool(schedule.ops_where("inlined_call".__eq__))
        # If the kernel moves words to or from scalar memory, its writes to HBM and VMEM may change known words. So
        # these writes are tracked.
        self.reads_tables = schedule.is_kernel and bool(self.loads or schedule.ops_where(_may_move_words))
        looks_at_stores = self.loads or (self.reads_tables and schedule.ops_where(_may_reach_vectors))
        self.stores = {id(op) for _, op in schedule.ops_where(_is_store)} if looks_at_stores else set[int]()
        self.scalars = scalar_program(schedule, also={*self.pushes, *self.loads, *self.stores})
        self.calls: list[Op] = []
        self.decisions = 0
        self.cross_core = cross_core_pops(schedule)
        self.region_start = {region: i for i, bundle in enumerate(self.bundles) for region in bundle.regions}
        self.branches = {i: op for i, ops in self.scalars.items() for op in ops if is_branch(op)}
        self.users_at = sorted(self.users)
        self.guarded = {i for i, users in self.users.items() if any(predicate for predicate, _ in users)}
        timed = {i for i, ops in self.scalars.items() if any(map(self._is_timed, ops))}
        self.starts = sorted(self.guarded | timed)
        self.is_kernel = schedule.is_kernel
        self.accesses = accesses(schedule, self.names)
        self.touches: list[Touch] = []
        # The registers that the scalar work of each bundle may write. Empty if there are no accesses to check.
        self.written = (
            {index: frozenset(op.destination for op in ops) for index, ops in self.scalars.items()}
            if self.accesses
            else {}
        )

    def function(self) -> str:
        starts = self._block_starts()
        blocks = [
            self._block(first, last) for first, last in zip(starts, [*starts[1:], len(self.bundles)], strict=False)
        ]
        lines = [
            "def run(memory, pipes, tick, clock, call):",
            "    if False: yield clock",
            "    load, store, words, start, wait = memory.load, memory.store, memory.words, memory.start, memory.wait",
            "    decide = memory.decide",
            "    account, idle, late = memory.account, memory.account.add, memory.channel.machine.wait_cycles",
            "    stretch, later, memories = pipes.run, pipes.later, pipes.memories",
            *(["    passed = memory.trace.passed if memory.trace else lambda *_: None"] if self.traced else []),
            "    divisions, flags, pushes = deque(), deque(), deque()",
            "    busy, touch, started = memory.under_way.busy, memory.under_way.touch, memory.under_way.started",
            "    state = block = 0",
            "    unset = Unknown('a register that nothing wrote')",
        ]
        targets = [*sorted(self.registers), *(f"b{index}" for index in self.branches)]
        lines += [f"    {name} = {'False' if name[0] == 'b' else 'unset'}" for name in targets]
        if not blocks:
            return "\n".join([*lines, "    return clock"]) + "\n"
        lines += ["    while True:", "        tick(clock)"]
        lines += self._dispatch(blocks, 0, len(blocks), 2)
        return "\n".join(lines) + "\n"

    def _block_starts(self) -> list[int]:
        starts = {0}
        self.slots = {index: delay_slots(self.bundles, index, self.machine) for index in self.branches}
        for index, op in self.branches.items():
            starts.add(min(index + self.slots[index] + 1, len(self.bundles)))
            target = self._target(op)
            if target is not None:
                starts.add(target)
        self.block_of = {first: number for number, first in enumerate(sorted(starts - {len(self.bundles)}))}
        return sorted(self.block_of)

    def _target(self, op: Op) -> int | None:
        match = _REGION.search(op.arguments)
        return self.region_start.get(int(match[1]), self.region_start.get(EXIT_REGION)) if match else None

    def _dispatch(self, blocks: list[list[str]], first: int, last: int, depth: int) -> list[str]:
        """The blocks `first` to `last` under a binary tree of comparisons."""
        indent = "    " * depth
        if last - first == 1:
            return [indent + line for line in blocks[first]] or [indent + "pass"]
        middle = (first + last) // 2
        return [
            f"{indent}if block < {middle}:",
            *self._dispatch(blocks, first, middle, depth + 1),
            f"{indent}else:",
            *self._dispatch(blocks, middle, last, depth + 1),
        ]

    def _block(self, first: int, last: int) -> list[str]:
        lines: list[str] = []
        position = first
        while position < last:
            end = position + 1
            if position not in self.guarded:
                following = bisect_right(self.starts, position)
                end = min(last, self.starts[following]) if following < len(self.starts) else last
            lines += self._stretch(position, end)
            position = end
        # The delay slots of a branch in an earlier block may end here. So every branch is checked, in order.
        for index, op in sorted(self.branches.items()):
            behind = index + self.slots[index] + 1
            if behind == last or (last == len(self.bundles) and behind > last):
                lines += self._jump(index, op)
        lines.append(f"block = {self.block_of[last]}" if last < len(self.bundles) else "return clock")
        return lines

    def _jump(self, index: int, op: Op) -> list[str]:
        target = self._target(op)
        if target is None:
            where = f"{op.opcode} {op.arguments}".strip()
            return [f"if b{index}: {_raise(f'the branch `{where}` has an unknown target')}"]
        late = self.machine.branch_slots - self.slots[index]
        spent = f"    clock += {late}; state = later(state, {late}); idle({index}, 'unit stall', {late}, 'branch')"
        wait = [spent] if late else []
        return [f"if b{index}:", f"    b{index} = False", *wait, f"    block = {self.block_of[target]}", "    continue"]

    def _stretch(self, first: int, last: int) -> list[str]:
        """The statements of a stretch: the first bundle's transfers and waits, the time of all bundles, scalar work."""
        timed = [line for op in self.scalars.get(first, ()) if self._is_timed(op) for line in self._timed(op, first)]
        touched = self._touched(first, last)
        if any(line.lstrip().startswith("start(") for line in timed):
            # Operations in the bundle that starts a transfer read memory as it was before the transfer.
            timed = self._touched(first, first + 1).get(first, []) + timed
            touched = self._touched(first + 1, last)
        guarded = [predicate for predicate, _ in self.users.get(first, ()) if predicate]
        number = len(self.stretches)
        for outcome in range(1 << len(guarded)):
            self.stretches.append(Stretch(first, last, self._users_between(first, last, outcome)))
        if guarded:
            bits = " + ".join(f"({1 << i} if pick({_predicate(p)}, True, False) else 0)" for i, p in enumerate(guarded))
            for p in guarded:
                self.registers.add(p.lstrip("!"))
            timing = [f"number = {number} + {bits}"]
        else:
            timing = [f"number = {number}"] if self.traced else []
        which = "number" if timing else str(number)
        timing.append(f"after = memories[{which}].get(state) or stretch({which}, state)")
        if self.traced:
            timing.append("passed(number, clock, after)")
        timing.append("clock += after.cycles; state = after.state; after.visits += 1")
        scalar: list[str] = []
        for index in range(first, last):
            scalar += touched.get(index, [])
            if index in self.scalars:
                scalar += self._scalar(index)
        if self.grid_exit is not None and first <= self.grid_exit < last:
            scalar.append("account.turn += 1")
        return [*timed, *timing, *scalar]

    def _is_timed(self, op: Op) -> bool:
        return is_timed(op) or (self.on_several_chips and op.opcode == REMOTE_SIGNAL)

    def _touched(self, first: int, last: int) -> dict[int, list[str]]:
        """Statements that check the accesses of a stretch, by the bundle whose scalar work they precede."""
        groups = in_groups(self.accesses, range(first, last), self.written) if self.accesses else {}
        return {index: [self._touch(some) for some in several] for index, several in groups.items()}

    def _touch(self, some: list[Access]) -> str:
        number, touch, register = len(self.touches), touch_of(some), some[0].register
        self.touches.append(touch)
        self._note([register, _predicate(some[0].predicate)])
        condition = f"({_predicate(some[0].predicate)}) is True and " if some[0].predicate else ""
        place = f"{register or 0} + {touch.low} >> {ALLOCATION_SPACING.bit_length() - 1}"
        return f"if {condition}{place} in busy: touch({number}, {register or 0})"

    def _users_between(self, first: int, last: int, outcome: int) -> tuple[tuple[int, tuple[int, ...]], ...]:
        """The operations of a stretch that use units. Bit i of `outcome` is 1 if predicated operation i is executed."""
        if first in self.guarded:
            bits = iter(range(len(self.users[first])))
            here = tuple(kind for predicate, kind in self.users[first] if not predicate or outcome >> next(bits) & 1)
            return ((0, here),) if here else ()
        indices = self.users_at[bisect_left(self.users_at, first) : bisect_left(self.users_at, last)]
        return tuple((index - first, tuple(kind for _, kind in self.users[index])) for index in indices)

    def _timed(self, op: Op, index: int) -> list[str]:
        """Statements for an operation that depends on the clock, under the operation's predicate."""
        operands = _THREAD.sub("", op.arguments)
        if (constant := _CONSTANT_PREDICATE.match(operands)) is not None:
            if constant[1] in _NEVER:
                return []
            operands = operands[constant.end() :]
        values = [self._noted(part) for part in re.split(r",(?![^\[]*\])", operands) if part.strip()]
        if not op.predicate:
            return self._unpredicated(op, values, index)
        decision = self._decision(op)
        lines = self._unpredicated(op, values, index)
        return [f"if {decision}:", *(f"    {line}" for line in lines)] if lines else []

    def _unpredicated(self, op: Op, values: list[str], index: int) -> list[str]:
        """The statements of `_timed`; `values` are the operands as expressions."""
        units_wait = "state = later(state, clock - since)"
        if op.opcode == "inlined_call":
            number = len(self.calls)
            self.calls.append(op)
            arguments = "".join(f"{value}, " for value in values)
            return [f"clock = yield from call({number}, ({arguments}), clock); state = 0"]
        if op.opcode == "vpop.ccrf" and self.on_several_chips:
            return [
                "clock = yield clock; memory.meet(clock)",
                f"while memory.must_wait({MEETING}, 1, {op.source!r}): yield clock",
                f"since = clock; clock = wait({MEETING}, 1, clock, {index}, launches=True)",
                f"memory.add_flag({MEETING}, -1); {units_wait}",
            ]
        if op.opcode == "vpop.ccrf" or id(op) in self.meetings:
            # Once both cores have met, the other core has also raised this core's flag.
            signalled = f"; memory.add_flag({values[0]}, 1)" if values else ""
            return [f"since = clock; clock = yield clock; memory.met({index}, since, clock){signalled}", units_wait]
        if id(op) in self.exchanges:
            if op.note == EXCHANGED and len(values) == 2:
                return [
                    f"since = clock; clock = memory.exchanged({values[0]}, {values[1]}, clock, {index})",
                    units_wait,
                ]
            return [f"memory.set_flag({values[0]}, 0)"] if op.opcode.startswith("vwait.eq") else []
        if op.opcode.startswith("dma.") and len(values) >= 4:
            return self._transfer(op, values, index)
        if self.on_several_chips and op.opcode == REMOTE_SIGNAL and len(values) == 2:
            return [f"clock = yield clock; memory.signal({values[0]}, {values[1]}, clock, {op.source!r})"]
        if (op.opcode == "dma.done.wait" or op.opcode.startswith("vwait.ge")) and len(values) == 2:
            launches = ", launches=True" if self.on_several_chips and op.note in LAUNCH_BARRIER else ""
            blocked = f"while memory.must_wait({values[0]}, {values[1]}, {op.source!r}): yield clock"
            return [
                *([blocked] if self.on_several_chips else []),
                f"since = clock; clock = wait({values[0]}, {values[1]}, clock, {index}{launches}) + late",
                f"{units_wait}; idle({index}, 'unit stall', late, 'sync flag')",
            ]
        if op.opcode == "vdelay" and len(values) == 1:
            return [
                f"since = clock; clock += max(0, decided({values[0]}, 'a delay'))",
                f"{units_wait}; idle({index}, 'unit stall', clock - since, 'delay')",
            ]
        return [_raise(f"the unknown operation {op.opcode} moves data or waits")]

    def _transfer(self, op: Op, values: list[str], index: int) -> list[str]:
        """Statements that start a transfer; `values` are its operands as expressions."""
        kind, layout = op.opcode, _layout(op, values)
        if kind == "dma.general" and op.note:
            kind = f"dma.{op.note.replace('-', '_')}"
        elif kind == "dma.general":
            source, destination = (memory_space(self.bundles, index, op.operands[place]) for place in (0, 2))
            kind = f"dma.{source}_to_{destination}"
        if "_to_" not in kind or "?" in kind:
            return [_raise(f"the source and destination of {kind} are not known")]
        source, _, destination = kind.removeprefix("dma.").partition("_to_")
        operand = values[2] if destination == "hbm" else values[0]
        lines = [f"start({source!r}, {destination!r}, {operand}, {values[1]}, {values[3]}, clock)"]
        if source == "smem":
            lines.append(f"memory.drain({values[0]}, {destination!r}, {values[2]}, {values[1]}, {layout})")
        if self.is_kernel:
            sides = f"({source!r}, {values[0]}), ({destination!r}, {values[2]})"
            lines.append(f"started({values[3]}, {sides}, {values[1]}, {layout}, {op.source!r})")
        if self.calls_others:
            lines.append(f"memory.contents.copied({values[0]}, {values[2]}, {(source, destination)})")
        if destination == "smem":
            lines.append(f"memory.fill({source!r}, {values[0]}, {values[2]}, {values[1]}, {layout})")
        if self.on_several_chips and op.opcode == "dma.general" and len(values) > _TO_A_CHIP:
            away = values[_TO_A_CHIP]
            flags, when = f"({values[3]}, {values[4]})", f"clock, {op.source!r}"
            send = f"memory.send(({source!r}, {destination!r}, {operand}, {values[1]}), {flags}, {away}, {when})"
            lines = [
                f"if memory.is_away({away}):",
                f"    clock = yield clock; {send}",
                "else:",
                *(f"    {line}" for line in lines),
            ]
        if self.reads_tables and destination in ("hbm", "vmem") and source != "smem":
            # All chips run the same program. So if this chip writes to another chip, some other chip makes the same
            # write to this chip.
            lines.insert(0, f"memory.replace({destination!r}, {values[2]})")
        return lines

    def _scalar(self, index: int) -> list[str]:
        """The scalar work of one bundle. All operations read their registers before any operation writes one."""
        values: list[tuple[str, str, str]] = []
        effects: list[str] = []
        # Values that the caller passes are in registers before the first bundle, which may overwrite them.
        for op in sorted(self.scalars[index], key=lambda op: not op.opcode.startswith("inlined_call_operand")):
            write = write_of(op, self.names)
            if write is not None and op.opcode == "spop.sccf" and self.on_several_chips:
                write = Write(write.register, f"memory.popped(pushes, {CROSS_CORE!r}, is_pushed=False)")
            elif write is not None and op.opcode == "spop":
                is_check = id(op) in self.cross_core
                write = Write(write.register, f"memory.popped(pushes, {CROSS_CORE if is_check else ''!r})")
            if write is not None:
                values.append((write.register, write.value, _predicate(op.predicate)))
                self._note([write.register, write.value, _predicate(op.predicate)])
            elif not self._is_timed(op):
                effects += self._effect(op, index)
        written = [register for register, _, _ in values]
        reads = [set(_REGISTER.findall(f"{value} {predicate}")) for _, value, predicate in values]
        clash = len(set(written)) < len(written) or any(
            register in read for i, register in enumerate(written) for j, read in enumerate(reads) if i != j
        )
        touched = {name for line in effects for name in _REGISTER.findall(line)}
        if not clash and not touched & set(written):
            late = [line for line in effects if line.startswith(("store(", "words["))]
            early = [line for line in effects if not line.startswith(("store(", "words["))]
            return [*early, *(f"{r} = {_guarded(r, value, p)}" for r, value, p in values), *late]
        lines = [f"t{i} = {value}" for i, (_, value, _) in enumerate(values)]
        lines += [f"q{i} = {predicate}" for i, (_, _, predicate) in enumerate(values) if predicate]
        lines += effects
        return lines + [f"{r} = {_guarded(r, f't{i}', f'q{i}' if p else '')}" for i, (r, _, p) in enumerate(values)]

    def _effect(self, op: Op, index: int) -> list[str]:
        """Statements for an operation without a register: effects on memory, flags, control flow or the report."""
        name = op.opcode
        condition = _predicate(op.predicate) or "True"
        self._note([condition])
        if name == "sst":
            place, _, value = op.arguments.rpartition("]")
            terms = [self._noted(place), self._noted(value.strip(" ,"))]
            if not op.predicate and terms[0].isdigit():
                return [f"words[{terms[0]}] = {terms[1]}"]
            return [f"store({condition}, {terms[0]}, {terms[1]})"]
        if id(op) in self.loads and name == "vstv":
            return [f"w{self.loads[id(op)]} = partial(tuple, ({self._noted(op.arguments)},)), 0"]
        if id(op) in self.loads:
            return [f"w{self.loads[id(op)]} = memory.contents.vector({self._noted(op.arguments)})"]
        if id(op) in self.stores:
            return [f"memory.replace('vmem', {self._noted(op.operands[0])}, is_store=True)"]
        if id(op) in self.pushes:
            load = self.pushes[id(op)]
            return [
                f"if {self._condition(op)}: pushes.append({'None' if load is None else f'w{self.loads[id(load)]}'})"
            ]
        if name in ("vsyncadd", "vsyncpa", "vsyncset"):
            values = list(map(self._noted, op.operands))
            if len(values) != 2:
                return [_raise(f"the operation {name} {op.arguments} is not understood")]
            if self.on_several_chips and name == "vsyncpa" and values[1] == "1":
                # The compiler sets an unused flag with this operation, and may raise the flag later without resetting
                # it to 0.
                return []
            method = "add_flag" if name == "vsyncadd" else "set_flag"
            return [f"if {self._condition(op)}: memory.{method}({', '.join(values)})"]
        if name == "vsyncmov" and len(op.operands) == 1:
            flag = self._noted(op.operands[0])
            return [f"if {self._condition(op)}: flags.append(memory.flag({flag}))"]
        if name == "shalt.err":
            where = f"bundle {self.bundles[index].address:#x}" + (f", {op.note}" if op.note else "")
            return [f"memory.check({condition}, {where!r}, {op.source!r})"]
        if name.startswith("sdivrem"):
            values = list(map(self._noted, op.operands))
            results = _DIVISIONS.get(op.note)
            if len(values) != 2 or results is None:
                return [_raise(f"the operation {name} {op.arguments} {op.note}".strip() + " is not understood")]
            put = (f"divisions.append({result}({', '.join(values)}))" for result in results)
            return [f"if {self._condition(op)}: {'; '.join(put)}"]
        if is_branch(op):
            if any(other in self.branches for other in range(index + 1, index + self.slots[index] + 1)):
                return [_raise("a branch stands in the delay slots of another")]
            return [f"b{index} = {self._decision(op)}"]
        if name == UNREADABLE:
            return [_raise(f"`{op.arguments}` cannot be read as an operation")]
        if id(op) in self.meetings.values() or id(op) in self.exchanges:
            return []
        if "sync" in name and name.endswith(".remote"):
            return [f"memory.signalled({name!r}, sparse_core={self.has_sparse_core})"]
        if "sync" in name:
            return [_raise(f"the unknown operation {name} changes a sync flag")]
        if "smem" in op.arguments and not name.startswith(("inlined_call", "v")):
            return [f"store(True, Unknown({f'the unknown operation {name}'!r}), 0)"]
        return []

    def _noted(self, text: str) -> str:
        """An operand as a Python expression. Adds the registers that it names to `self.registers`."""
        value = expression(text, self.names)
        self._note([value])
        return value

    def _condition(self, op: Op) -> str:
        """The operation's predicate as an expression that raises Unknowable if the predicate is unknown."""
        if not op.predicate:
            return "True"
        self._note([_predicate(op.predicate)])
        return f"(True if {_predicate(op.predicate)} else False)"

    def _decision(self, op: Op) -> str:
        """The predicate of a decision that affects time, as an expression that gives True or False.

        If the predicate is unknown, a run that bounds the latency may assume an outcome; any other run raises
        Unknowable.
        """
        if not op.predicate:
            return "True"
        self._note([_predicate(op.predicate)])
        self.decisions += 1
        return f"(now if (now := {_predicate(op.predicate)}).__class__ is bool else decide({self.decisions}, now))"

    def _note(self, texts: list[str]) -> None:
        for text in texts:
            self.registers.update(_REGISTER.findall(text))


def _layout(op: Op, values: list[str]) -> str:
    """The strides of a transfer, as `UnderWay.started` expects them."""
    if op.opcode == "dma.general":
        # The strides follow the two sync flags.
        return f"({values[5]},)" if len(values) > 5 else "(Unknown('a descriptor'),)"
    return f"({', '.join(values[4:7])})" if len(values) == 7 else "()"


def _is_store(opcode: str) -> bool:
    """True if an operation writes vector memory; `vstv` moves a register instead."""
    return opcode.startswith("vst") and opcode != "vstv"


def _may_move_words(opcode: str) -> bool:
    """True if a transfer may have scalar memory on one side."""
    return opcode == "dma.general" or (opcode.startswith("dma.") and "smem" in opcode)


def _may_reach_vectors(opcode: str) -> bool:
    """True if a transfer may move words of scalar memory to vector memory."""
    return opcode in ("dma.smem_to_vmem", "dma.general")


def _raise(reason: str) -> str:
    """A statement that raises Unknowable, so that the run has no latency."""
    return f"raise Unknowable({reason!r})"


def _predicate(text: str) -> str:
    """A predicate such as `!p3` as a Python expression."""
    return f"({text[1:]} ^ True)" if text.startswith("!") else text


def _guarded(register: str, value: str, predicate: str) -> str:
    if predicate and "pop" in value:
        return f"({value} if {predicate} else {register})"
    return f"pick({predicate}, {value}, {register})" if predicate else value
