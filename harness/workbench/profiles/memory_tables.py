"""A capture's memory as tables: the compiler's plan (XProf's memory_viewer) and the allocator's view."""

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import msgspec

from harness.dumps.xplane import Space
from harness.workbench.profiles import conversion, memory_rules, op_times, reading
from harness.workbench.profiles.database import Database, Row, made_on_demand
from harness.workbench.profiles.places import host_name
from harness.workbench.profiles.reading import HOST_PLANE, hlo_protos, sources
from harness.workbench.profiles.remote import Source

# XLA's memory spaces with buffers in captures of TPUs; other devices have only the first space.
_SPACES = {0: "HBM", 1: "VMEM"}
_MEBIBYTE = 1 << 20
_PICOSECONDS = 1e12
# XProf's times are compared in nanoseconds, because hosts count nanoseconds and a server rounds smaller units.
_NANOSECOND = 1000
# Reserved, allocated and free bytes count as parts of one memory if their sum is at most this multiple of the chip's
# HBM: a stated capacity of 32 GB may mean 32 GiB, which is 7 % more.
_SLACK = 1.1
# One answer of XProf: about a module in a memory space, or about an allocator on a host.
_Answer = Mapping[str, Any]


def _heap_answers(database: Database) -> list[tuple[int, str, int, _Answer]]:
    """For each module and memory space with buffers: a number, the module, the memory space and XProf's answer."""
    if "planned" not in database.options:
        paths = sources(database.capture)
        questions = [(module, space) for space in _SPACES for module in hlo_protos(paths)]
        options = [{"module_name": module, "memory_space": str(space)} for module, space in questions]
        answers = conversion.answers(paths, "memory_viewer", options) if options else ()
        answer = [(*of, msgspec.json.decode(answer)) for of, answer in zip(questions, answers, strict=True)]
        kept = [entry for entry in answer if entry[2].get("maxHeap")]
        kept.sort(key=lambda entry: (entry[1], -entry[2]["peakHeapMib"]))
        database.options["planned"] = [(number, *entry) for number, entry in enumerate(kept)]
    planned: list[tuple[int, str, int, _Answer]] = database.options["planned"]
    return planned


@made_on_demand("""heaps: the memory of one module in one memory space, as the compiler planned it
    heap INTEGER           its number here, HBM before VMEM, the largest first
    module VARCHAR         `jit_f(4)`
    space VARCHAR          HBM or VMEM
    peak_bytes DOUBLE      the most bytes in use at once
    argument_bytes DOUBLE  the part of the peak for arguments
    peak_place INTEGER     number of the change that reaches the peak; NULL if every buffer lives throughout
    changes INTEGER        the number of changes of the heap, at least 1
    is_recomputed BOOLEAN* true if something is recomputed for the backward pass
""")
def heaps_table(database: Database) -> Iterator[Row]:
    for number, module, space, answer in _heap_answers(database):
        sizes = answer.get("heapSizes", ())
        # XProf counts changes from 0, but `heapSizes` begins with the size before the first change. So the place of the
        # peak is one more than XProf's position. The JSON of proto3 leaves out a position of 0.
        place = answer.get("peakHeapSizePosition", 0) + 1 if sizes else None
        arguments = answer.get("entryComputationParametersMib", 0.0) * _MEBIBYTE
        peak = answer["peakHeapMib"] * _MEBIBYTE
        is_again = any(memory_rules.AGAIN in block.get("tfOpName", "") for block in answer.get("bufferBlocks", ()))
        yield number, module, _SPACES[space], peak, arguments, place, max(1, len(sizes) - 1), is_again


@made_on_demand("""buffers: a buffer that is alive at a planned peak
    heap INTEGER           of heaps
    name VARCHAR           its name
    shape VARCHAR          with its layout
    category VARCHAR*      parameters, optimizer, attention ...
    group_name VARCHAR     Parameter, Output or Temporary
    op_name VARCHAR        the operation that makes it
    source VARCHAR         its source line
    bytes DOUBLE           its size as stored
    needed_bytes DOUBLE    its size without padding; NULL for small buffers, which are one row
    elements DOUBLE*       the number of elements of its shape
    longest BIGINT*        its longest dimension
""")
def buffers_table(database: Database) -> Iterator[Row]:
    for number, _, _, answer in _heap_answers(database):
        for entry in answer["maxHeapBySize"]:
            name, shape = entry.get("instructionName") or entry.get("label", ""), entry.get("shapeString", "")
            group, op_name = entry.get("groupName", ""), entry.get("tfOpName", "")
            needed = entry["unpaddedShapeMib"] * _MEBIBYTE if "unpaddedShapeMib" in entry else None
            source = entry.get("sourceInfo", {})
            where = f"{source['fileName']}:{source.get('lineNumber', 0)}" if source.get("fileName") else ""
            names = name, shape, memory_rules.category(name, shape, group, op_name), group, op_name, where
            stored = entry.get("logicalBufferSizeMib", 0.0) * _MEBIBYTE
            sizes = memory_rules.dimensions(shape)
            yield number, *names, stored, needed, float(math.prod(sizes)), max(sizes, default=0)


@made_on_demand("""heap_levels: the planned heap after each of its changes
    heap INTEGER           of heaps
    place INTEGER          the change's number in the order of the schedule; 0 is the start
    bytes DOUBLE           bytes in use
    instruction VARCHAR    the instruction whose buffer is allocated or freed
""")
def heap_levels_table(database: Database) -> Iterator[Row]:
    for number, _, _, answer in _heap_answers(database):
        names = ("", *answer.get("hloInstructionNames", ()))
        for place, size in enumerate(answer.get("heapSizes", ())):
            yield number, place, size * _MEBIBYTE, names[place] if place < len(names) else ""


@made_on_demand("""lives: a temporary buffer, from the change that allocates it to the change that frees it
    heap INTEGER           of heaps
    name VARCHAR           its name
    shape VARCHAR          with its layout
    op_name VARCHAR        the operation that makes it
    bytes DOUBLE           its size as stored
    first INTEGER          the change that allocates it, counted from 0
    last INTEGER           the change that frees it
    is_activation BOOLEAN* true if the forward pass makes it, or recomputation for the backward pass
    is_backward BOOLEAN*   true if the backward pass makes it
""")
def lives_table(database: Database) -> Iterator[Row]:
    for number, _, _, answer in _heap_answers(database):
        for block in answer.get("bufferBlocks", ()):
            if block.get("shapeString"):
                op_name = block.get("tfOpName", "")
                names = block.get("name", ""), block["shapeString"], op_name
                life = block.get("startStep", 0), block.get("endStep", 0)
                purpose = memory_rules.is_activation(op_name), memory_rules.BACKWARD in op_name
                yield number, *names, float(block.get("size", 0)), *life, *purpose


def _allocator_answers(database: Database) -> list[tuple[int, Source, str, _Answer]]:
    """For each memory with allocator events: a number, the host's file, the memory's name and XProf's answer."""
    if "seen" not in database.options:
        kept: list[tuple[int, Source, str, _Answer]] = []
        # XProf's memory_profile reads one host at a time. For a capture without a host (simulated) it has no answer.
        for path in sources(database.capture):
            if answer := conversion.tool((path,), "memory_profile"):
                memories: dict[str, Any] = msgspec.json.decode(answer)["memoryProfilePerAllocator"]
                kept += [(len(kept) + at, path, *allocator) for at, allocator in enumerate(sorted(memories.items()))]
        database.options["seen"] = kept
    numbered: list[tuple[int, Source, str, _Answer]] = database.options["seen"]
    return numbered


def _level(answer: _Answer) -> Iterator[int]:
    """Reserved, allocated and free bytes."""
    return (int(answer.get(name, 0)) for name in ("stackReservedBytes", "heapAllocatedBytes", "freeMemoryBytes"))


@made_on_demand("""memories: a device's memory at its peak, as the allocator reports it
    memory INTEGER         its number here
    host VARCHAR           its host
    name VARCHAR           its name
    capacity_bytes DOUBLE  reserved, allocated and free bytes together
    reserved_bytes DOUBLE  the programs' workspace
    allocated_bytes DOUBLE their arguments and results
    free_bytes DOUBLE      available
    fragmentation DOUBLE   XProf's figure, from 0 to 1
    lifetime_peak_bytes DOUBLE the allocator's peak since the process began; some allocators leave the workspace out
    allocations INTEGER    their number during the capture
    deallocations INTEGER  their number during the capture
    actual_bytes DOUBLE*   bytes in use: reserved + allocated, or reserved - free; NULL if it is unknown which
""")
def memories_table(database: Database) -> Iterator[Row]:
    chip = op_times.chip_of(database.capture)
    for number, path, name, answer in _allocator_answers(database):
        summary = answer["profileSummary"]
        peak = summary.get("peakStats", {})
        activities = [entry["activityMetadata"].get("memoryActivity", "ALLOCATION") for entry in _timeline(answer)]
        counts = (sum(word == kind for word in activities) for kind in ("ALLOCATION", "DEALLOCATION"))
        capacity, lifetime = (
            int(summary.get(name, 0)) or None for name in ("memoryCapacity", "peakBytesUsageLifetime")
        )
        levels = [tuple(_level(entry["aggregationStats"])) for entry in _timeline(answer)]
        actual = _in_use(tuple(_level(peak)), levels, chip.hbm_bytes if chip else None)
        fragmentation = float(peak.get("fragmentation", 0.0))
        yield number, host_name(path), name, capacity, *_level(peak), fragmentation, lifetime, *counts, actual


def _in_use(peak: Sequence[int], levels: Sequence[Sequence[int]], hbm_bytes: float | None) -> int | None:
    """Bytes in use at `peak`; None if the capture does not show what the allocator counts as reserved.

    `peak` and each of `levels` are reserved, allocated and free bytes. If these are separate parts of one memory,
    reserved + allocated is in use. If reserved is a pool that contains the two others, reserved - free is in use
    (protocol, section 6). They are separate parts if one of these conditions is true:

    - reserved is smaller than the two others together, so it cannot contain them,
    - the sum of all three is constant while reserved changes,
    - the sum of all three is not larger than the chip's memory.
    """
    reserved, allocated, free = peak
    sums, of_reserved = {sum(level) for level in levels}, {level[0] for level in levels}
    if reserved < allocated + free or (len(sums) == 1 < len(of_reserved)):
        return reserved + allocated
    if hbm_bytes is None:
        return None
    return reserved + allocated if sum(peak) <= _SLACK * hbm_bytes else reserved - free


def _timeline(answer: _Answer) -> list[_Answer]:
    return list(answer.get("sampledTimelineSnapshots", ()))


@made_on_demand("""memory_levels: a device's memory at one moment, as the allocator reports it
    memory INTEGER         of memories
    place INTEGER          the moment's number
    at_seconds DOUBLE      the moment's time, from the capture's first event; NULL for a run on a server
    reserved_bytes DOUBLE  the programs' workspace
    allocated_bytes DOUBLE their arguments and results
    free_bytes DOUBLE      available
""")
def memory_levels_table(database: Database) -> Iterator[Row]:
    paths = sources(database.capture)
    spaces = {path: reading.space(path) for path in paths}
    zero_ps = min((each.start_ps for each in spaces.values() if each.start_ps is not None), default=0)
    offsets: dict[Source, set[int]] = {path: set() for path in paths}
    for _, path, _, answer in _allocator_answers(database):
        offsets[path] |= {_offset_ps(entry) for entry in _timeline(answer)}
    # XProf counts from the start of a thread's line, which is not the capture's first event.
    origins = {path: _origin_ps(spaces[path], sorted(offsets[path])) for path in paths}
    for number, path, _, answer in _allocator_answers(database):
        origin = origins[path]
        for place, entry in enumerate(_timeline(answer)):
            at = None if origin is None else (_offset_ps(entry) + origin - zero_ps) / _PICOSECONDS
            yield number, place, at, *_level(entry["aggregationStats"])


def _offset_ps(entry: _Answer) -> int:
    return int(entry.get("timeOffsetPs", 0))


def _origin_ps(contents: Space, offsets_ps: Sequence[int]) -> int | None:
    """The origin of `offsets_ps`, chosen so that each of these times is the time of an allocator's event.

    None if there is no such origin: a server's trace viewer omits these events, because they have no length.
    """
    lines = (line for plane in contents.planes if plane.name == HOST_PLANE for line in plane.lines)
    events = (event for line in lines for event in line.events)
    starts = sorted(event.start_ps for event in events if "bytes_reserved" in event.stats)
    moments = {round(start / _NANOSECOND) for start in starts}
    origins = (start - offset for start in starts for offset in offsets_ps[:1])
    return next(
        (
            origin
            for origin in origins
            if all(round((origin + offset) / _NANOSECOND) in moments for offset in offsets_ps)
        ),
        None,
    )


@made_on_demand("""allocations: memory that was alive at the measured peak, as the allocator reports it
    memory INTEGER         of memories
    op_name VARCHAR        the operation that it was allocated for
    category VARCHAR*      parameters, optimizer, attention ...
    region VARCHAR         the allocator's word: temp, output, stack ...
    shape VARCHAR          of the array
    count INTEGER          the number of such arrays
    bytes DOUBLE           of all these arrays
""")
def allocations_table(database: Database) -> Iterator[Row]:
    for number, _, _, answer in _allocator_answers(database):
        for active in answer.get("activeAllocations", ()):
            # A negative index means that the allocation is in the list of special allocations.
            at = int(active.get("snapshotIndex", 0))
            if at >= 0:
                of = answer["memoryProfileSnapshots"][at]["activityMetadata"]
            else:
                of = answer["specialAllocations"][int(active.get("specialIndex", 0))]
            count, name = int(active.get("numOccurrences", 1)), of.get("tfOpName", "")
            region, shape, size = of.get("regionType", ""), of.get("tensorShape", ""), int(of.get("allocationBytes", 0))
            yield number, name, memory_rules.category_of_name(name), region, shape, count, size * count
