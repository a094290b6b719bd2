"""Relations between a schedule's operations: jumps and their delay slots, signals and waits, loads and pushes."""

import re
from collections import deque
from collections.abc import Collection, Sequence
from functools import cache

from harness.dumps.llo import Bundle, Op, Schedule, called_name
from harness.judge.simulate.functional_units import EUP
from harness.judge.simulate.machine import Machine

# The units by opcode prefix. Operations that only rename a value or mark a place take no slot of a unit.
_UNITS = {
    ("vpop.sfrf", "vpop.ccrf"): "",
    ("vld",): "VLOAD",
    ("vst",): "VSTORE",
    ("vpop",): "VPOP",
    ("dma.", "vsync", "vwait"): "DMA",
    ("sphi", "int_to_ptr", "inlined_call", "reloc", "compiler-", "sfence", "strace", "vtrace", "vsettm", "vdelay"): "",
}
# A vector register: 8 x 128 values of 32 bits.
REGISTER_BYTES = 4096
_SPILLS = {"vst": "spill", "vld": "fill"}
_WORD = re.compile(r"\[smem:\[(#allocation\d+)\]\]")
# The texts of a load and of a store of an allocation's first row.
_ALLOCATION_LOADED = re.compile(r"\s*\[vmem:\[(#allocation[\w.]*)\] sm:\$0x1\]\s*$")
_STORED = re.compile(r"\s*\[vmem:\[#allocation[\w.]*\] sm:\$0x1\](?:,|\s*/\*vst_source=\*/)?\s*%\w+_(v\d+)")
_TIMED = ("dma.", "vwait", "vdelay", "vpop.ccrf")
_SPACE = re.compile(r"\.(hbm|vmem|smem)$")
# The operation that raises a sync flag of another core or chip.
REMOTE_SIGNAL = "vsyncadd.remote"
# The note of a wait for the other core of the chip; and the notes of waits for the other chips when a program begins.
_MEETING = "barrier-megacore"
LAUNCH_BARRIER = ("global-barrier", "enhanced-barrier")
# The name of the wait for a copy from one core to the other.
EXCHANGED = "all-reduce-megacore"
_HANDSHAKES = ("vwait.eq", "vwait.ne")
_ONE_LESS = str(2**32 - 1)
_REGION = re.compile(r"region(\d+)")


def delay_slots(bundles: Sequence[Bundle], index: int, machine: Machine) -> int:
    """The number of bundles after a branch that run even if the branch is taken.

    On all chips except v7x, there is one slot for each cycle until the branch takes effect.

    On v7x, the compiler replaces the empty bundles at the end of the slots with a single empty bundle, and a chip that
    jumps waits for the cycles of the omitted bundles. So the slots usually end with the last empty bundle before the
    next branch or region. They extend beyond this bundle only if no bundle was left out and the last slot contains an
    operation. In this case, the bundles after the last empty bundle have at least one of these properties:
    - They come from the path without the jump, and carry the branch's opposite predicate.
    - Several empty bundles precede them.
    - A region ends with them, and another region starts after them.

    These rules were found by comparing 1163 branches of 46 programs with the schedule before empty bundles are removed
    (pass `packed-bundles-post-ra` of libtpu 0.0.50).
    """
    most = machine.branch_slots
    if not machine.branch_slots_vary:
        return most
    (branch,) = (op for op in bundles[index].ops if is_branch(op))
    opposite = branch.predicate[1:] if branch.predicate[:1] == "!" else f"!{branch.predicate}"
    behind = bundles[index + 1 : index + 1 + most]
    end = next((i for i, bundle in enumerate(behind) if bundle.regions or any(map(is_branch, bundle.ops))), len(behind))
    last_empty = max((i + 1 for i in range(end) if not behind[i].ops), default=0)
    if not last_empty:
        return end
    rest = behind[last_empty:end]
    are_moved_up = all(any(op.predicate == opposite for op in bundle.ops) for bundle in rest)
    are_several_empty = last_empty > 1 and not behind[last_empty - 2].ops
    next_one = bundles[index + 1 + most : index + 2 + most]
    ends_region = bool(rest) and rest[-1].ends and bool(next_one) and bool(next_one[0].regions)
    return end if end == most and (are_moved_up or are_several_empty or ends_region) else last_empty


def memory_space(bundles: Sequence[Bundle], index: int, register: str) -> str:
    """The memory space that `register` points to, from the operation that computed the address; `?` if unknown."""
    for bundle in bundles[index::-1]:
        for op in bundle.ops:
            if op.destination == register and (match := _SPACE.search(op.opcode)):
                return match[1]
    return "?"


def cross_core_pops(schedule: Schedule) -> set[int]:
    """The identities of operations that take a scalar from a vector of the other core; only checks use such scalars."""
    pushed: deque[bool] = deque()
    sent: set[str] = set()
    pops: set[int] = set()
    if not schedule.ops_where("vpop.ccrf".__eq__):
        return pops
    for bundle in schedule.bundles:
        for op in bundle.ops:
            if op.opcode == "vpop.ccrf":
                sent.add(op.destination)
            elif op.opcode == "vpush":
                pushed.append(op.arguments in sent)
            elif op.opcode == "spop" and pushed and pushed.popleft():
                pops.add(id(op))
            elif op.destination in sent:
                sent.discard(op.destination)
    return pops


def meetings(schedule: Schedule) -> dict[int, int]:
    """For each wait for the other core, by identity: the identity of the signal directly before the wait."""
    signal: Op | None = None
    pairs: dict[int, int] = {}
    for bundle in schedule.bundles:
        for op in bundle.ops:
            if op.opcode == REMOTE_SIGNAL and not op.predicate and op.operands[1:] == ("1",):
                signal = op
            elif (
                op.opcode.startswith("vwait")
                and op.note == _MEETING
                and signal is not None
                and op.operands[1:] == ("1",)
            ):
                pairs[id(op)] = id(signal)
                signal = None
            elif is_timed(op) or is_branch(op):
                signal = None
    return pairs


def exchanges(schedule: Schedule) -> frozenset[int]:
    """Identities of the operations with which an op of XLA adds the values of both cores, directly after a barrier.

    One core copies its part into the memory of the other core, which adds the parts. Both cores wait for the copy; the
    note of this wait is EXCHANGED. Flags between the cores signal that there is room and that the copy is done. The
    next barrier waits for the same events.
    """
    copied = schedule.ops_where("dma.done.wait".__eq__)
    if not any(op.note == EXCHANGED for _, op in copied):
        return frozenset()
    identities: set[int] = set()
    before: Op | None = None
    for bundle in schedule.bundles:
        for op in bundle.ops:
            if op.note == EXCHANGED:
                identities.add(id(op))
                if before is not None and before.opcode == "dma.general":
                    identities.add(id(before))
            elif op.opcode.startswith(_HANDSHAKES) or (op.opcode == REMOTE_SIGNAL and op.operands[1:] == (_ONE_LESS,)):
                identities.add(id(op))
            before = op if is_timed(op) else before
    return frozenset(identities)


def pushed_loads(schedule: Schedule) -> dict[int, Op | None]:
    """The operation that fills the register of each `vpush`, by the identity of the `vpush`.

    This operation is a load, or a `vstv`, which puts a scalar into all places of the register. It is None if the pushed
    value is computed, or if a jump or the start of a region is between the operation and the `vpush`. If the program
    itself filled a load's allocation at its beginning, the result has the filling operation instead of the load.
    """
    loads: dict[int, Op | None] = {}
    for index, op in schedule.ops_where("vpush".__eq__):
        load = _load_before(schedule, index, op.operands[0] if op.operands else "")
        loads[id(op)] = load and (_load_of_copy(schedule, load) or load)
    return loads


def _load_before(schedule: Schedule, index: int, register: str) -> Op | None:
    """The load or `vstv` that fills a vector register before a bundle; None if a jump or region's start is between."""
    for bundle in schedule.bundles[index - 1 :: -1] if index else ():
        writers = [op for op in bundle.ops if op.destination == register]
        if writers:
            is_load = writers[0].opcode in ("vld", "vstv") and not writers[0].predicate
            return writers[0] if is_load and len(writers) == 1 else None
        if bundle.regions or any(map(is_branch, bundle.ops)):
            return None
    return None


def _load_of_copy(schedule: Schedule, load: Op) -> Op | None:
    """The load or `vstv` whose value the program stores to the allocation that `load` reads.

    None unless all of these hold: the program stores to the allocation exactly once, the store precedes the program's
    first jump, and all other uses of the allocation are loads.
    """
    allocation = _ALLOCATION_LOADED.match(load.text) if load.opcode == "vld" else None
    if allocation is None:
        return None
    mention = re.compile(re.escape(allocation[1]) + r"(?![\w.])")
    uses = [(index, op) for index, op in schedule.ops_where(lambda _: True) if mention.search(op.text)]
    stores = [(index, op) for index, op in uses if op.opcode != "vld"]
    if len(stores) != 1:
        return None
    ((index, store),) = stores
    stored = _STORED.search(store.text)
    jumps = (
        place for place, bundle in enumerate(schedule.bundles) if bundle.regions or any(map(is_branch, bundle.ops))
    )
    if store.opcode != "vst" or store.predicate or stored is None or index >= next(jumps, len(schedule.bundles)):
        return None
    return _load_before(schedule, index, stored[1])


def prefetched_words(schedule: Schedule) -> frozenset[str]:
    """The words of scalar memory (`#allocation9`) that show whether the previous program already fetched an operand.

    XLA's cross-program prefetch compares the word with 0 by "not equal". The runtime writes only one other word that is
    compared by "not equal": the command to run, which is compared with 1.
    """
    loaded: dict[str, str] = {}
    words = set()
    for bundle in schedule.bundles:
        asked = [op.operands for op in bundle.ops if op.opcode.startswith("scmp.ne.") and op.operands[1:] == ("0",)]
        words |= {loaded[operands[0]] for operands in asked if operands[0] in loaded}
        for op in bundle.ops:
            word = _WORD.fullmatch(op.arguments) if op.opcode == "sld" else None
            if word is not None:
                loaded[op.destination] = word[1]
            else:
                loaded.pop(op.destination, None)
    return frozenset(words)


def result_words(schedule: Schedule) -> frozenset[str]:
    """The words of scalar memory that hold the address of the only result, or of the table of results' addresses.

    A result may be in a parameter's memory. So the program compares the result's address with the parameter's address,
    and copies the parameter if they differ.
    """
    words = set()
    for bundle in schedule.bundles:
        loaded = {op.destination: _WORD.fullmatch(op.arguments) for op in bundle.ops if op.opcode == "sld"}
        for op in bundle.ops:
            word = loaded.get(op.arguments.rpartition(" ")[2]) if op.opcode == "int_to_ptr.hbm" else None
            if word is not None:
                words.add(word[1])
    return frozenset(words)


def is_for_first_core(schedule: Schedule) -> bool:
    """True if all cores except the first leave the program at its beginning.

    The program then tests the number of its core before it moves data or waits. All other cores jump past all
    operations that move data or wait.
    """
    asked: set[str] = set()
    others: set[str] = set()
    for bundle in schedule.bundles:
        for op in bundle.ops:
            if is_timed(op):
                return False
            if is_branch(op) and op.predicate in others and (region := _REGION.search(op.arguments)):
                # The exit is the region without a start.
                starts = (i for i, other in enumerate(schedule.bundles) if int(region[1]) in other.regions)
                behind = schedule.bundles[next(starts, len(schedule.bundles)) :]
                return not any(is_timed(op) for other in behind for op in other.ops)
            is_asked = op.opcode.startswith("scmp.ne.s32") and op.operands[1:] == ("0",) and op.operands[0] in asked
            for registers, more in ((asked, op.note == "core id"), (others, is_asked)):
                (registers.add if more else registers.discard)(op.destination)
    return False


def is_branch(op: Op) -> bool:
    return op.opcode.startswith("sbr")


def is_timed(op: Op) -> bool:
    """True if the operation depends on the clock or advances it."""
    if op.opcode == "inlined_call":
        return called_name(op) != ""
    return op.opcode.startswith(_TIMED)


def scalar_program(schedule: Schedule, also: Collection[int] = ()) -> dict[int, list[Op]]:
    """The operations that can affect the scalar program, by bundle: all except operations from vectors to vectors.

    `also` are identities of operations from vectors to vectors that are included too.
    """
    scalars = {op.destination for op in schedule.ops if op.destination[:1] in ("s", "p")}
    by_bundle: dict[int, list[Op]] = {}
    heard = schedule.places_where(_is_heard)
    quiet = schedule.places_where(lambda opcode: not _is_heard(opcode))
    heard += [place for place in quiet if schedule.ops[place].destination in scalars]
    if also:
        heard += [place for place in quiet if id(schedule.ops[place]) in also]
    for place in sorted(set(heard)):
        by_bundle.setdefault(schedule.homes[place], []).append(schedule.ops[place])
    return by_bundle


def _is_heard(opcode: str) -> bool:
    return opcode[0] != "v" or "sync" in opcode or opcode.startswith(_TIMED)


def vector_spill(op: Op) -> str:
    """`spill` if the operation saves a vector register to VMEM, `fill` if it restores a register, else ""."""
    return _SPILLS.get(op.opcode[:3], "") if "_spill" in op.text else ""


def vector_spills(schedule: Schedule) -> list[tuple[int, Op]]:
    """All spills and fills of vector registers, each with the index of its bundle."""
    moves = schedule.ops_where(lambda opcode: opcode[:3] in _SPILLS)
    return [(index, op) for index, op in moves if "_spill" in op.text]


def spilling_bundles(schedule: Schedule) -> dict[str, list[int]]:
    """The bundle indices of all spills and of all fills (the keys), with one index for each operation."""
    ops, homes = schedule.ops, schedule.homes
    bundles: dict[str, list[int]] = {}
    for opcode, places in schedule.places.items():
        if kind := _SPILLS.get(opcode[:3]):
            bundles.setdefault(kind, []).extend(homes[place] for place in places if "_spill" in ops[place].text)
    return bundles


@cache
def unit_of(opcode: str) -> str:
    """The unit whose slot the operation takes, named as in the compiler's table of slots; "" if it takes no slot.

    `DMA` is the unit of transfers and of waits for transfers, which the table does not have.
    """
    for prefixes, unit in _UNITS.items():
        if opcode.startswith(prefixes):
            return unit
    if "mxu" in opcode or "xlu" in opcode:
        return "MXU" if "mxu" in opcode else "XLU"
    if opcode.startswith(EUP):
        return "EUP"
    return "VALU" if opcode.startswith("v") else "SALU"
