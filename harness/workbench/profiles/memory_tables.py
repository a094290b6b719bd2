"""A capture's memory as tables: what the compiler planned for each module, and what the allocator saw."""

from collections.abc import Iterator

from harness.workbench.profiles import allocator, memory_rules
from harness.workbench.profiles.allocator import AllocatorState
from harness.workbench.profiles.buffers import SPACE_NAMES, Heap
from harness.workbench.profiles.database import MORE, Database, Row, TableOf
from harness.workbench.profiles.memory import planned
from harness.workbench.profiles.reading import sources


def _planned(database: Database) -> tuple[Heap, ...]:
    if "planned" not in database.options:
        database.options["planned"] = planned(sources(database.capture))
    found: tuple[Heap, ...] = database.options["planned"]
    return found


def _seen(database: Database) -> tuple[AllocatorState, ...]:
    if "seen" not in database.options:
        database.options["seen"] = allocator.memories(sources(database.capture))
    found: tuple[AllocatorState, ...] = database.options["seen"]
    return found


def _heaps(database: Database) -> Iterator[Row]:
    for number, heap in enumerate(_planned(database)):
        yield number, heap.module, SPACE_NAMES[heap.space], heap.peak_bytes, heap.argument_bytes


def _buffers(database: Database) -> Iterator[Row]:
    for number, heap in enumerate(_planned(database)):
        for one in heap.alive:
            kind = memory_rules.category(one)
            yield (
                number, one.name, one.shape, kind, one.group, one.op_name, one.source, one.stored_bytes,
                one.needed_bytes,
            )  # fmt: skip


def _memories(database: Database) -> Iterator[Row]:
    for one in _seen(database):
        peak = one.peak
        yield (
            one.host, one.name, one.capacity_bytes or None, peak.reserved_bytes, peak.allocated_bytes, peak.free_bytes,
            one.fragmentation, one.lifetime_peak_bytes or None,
        )  # fmt: skip


MORE["heaps"] = TableOf("heaps", "the memory of one module in one memory space, as the compiler planned it", """
    heap INTEGER           its number here
    module VARCHAR         `jit_f(4)`
    space VARCHAR          HBM or VMEM
    peak_bytes DOUBLE      in use at most
    argument_bytes DOUBLE  of them its arguments
    """, _heaps)  # fmt: skip
MORE["buffers"] = TableOf("buffers", "a buffer that is alive at a planned peak", """
    heap INTEGER           of heaps
    name VARCHAR           its own
    shape VARCHAR          with its layout
    category VARCHAR*      parameters, optimizer, attention ...
    group_name VARCHAR     Parameter, Output or Temporary
    op_name VARCHAR        where in the program it comes from
    source VARCHAR         its line
    bytes DOUBLE           as stored
    needed_bytes DOUBLE    as its shape alone would need; NULL of small ones, which come as one
    """, _buffers)  # fmt: skip
MORE["memories"] = TableOf("memories", "a device's memory at its peak, as the allocator saw it", """
    host VARCHAR           its host
    name VARCHAR           of the memory
    capacity_bytes DOUBLE  of it
    reserved_bytes DOUBLE  the programs' workspace
    allocated_bytes DOUBLE what goes in and out of them
    free_bytes DOUBLE      available
    fragmentation DOUBLE   XProf's, at the peak
    lifetime_peak_bytes DOUBLE since the process began
    """, _memories)  # fmt: skip
