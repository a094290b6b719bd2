"""Device memory as tables: peak and capacity, its composition at the peak, what is alive then, the heap over time."""

import math
from collections import defaultdict
from collections.abc import Sequence
from itertools import pairwise

from harness import units
from harness.errors import UsageError
from harness.records import Capture, Table
from harness.workbench.profiles import allocator, buffers, memory_rules
from harness.workbench.profiles.allocator import Allocation, AllocatorState, Level
from harness.workbench.profiles.buffers import HBM, SPACE_NAMES, Buffer, Heap
from harness.workbench.profiles.op_times import origin, share
from harness.workbench.profiles.reading import hlo_protos, sources
from harness.workbench.profiles.remote import Source
from harness.workbench.tables import Field, Fields, table_of

# How many moments a heap over time is shown at.
_MOMENTS = 12
_BARS = "▁▂▃▄▅▆▇█"
NO_EVENTS = (
    "the capture has no allocator events (MemoryAllocation on the host's plane): a CPU writes none, and a TPU only "
    "where something was allocated while the capture was taken"
)
NO_MODULES = (
    "the capture carries no HLO module with a buffer assignment (the /host:metadata plane): it was taken with "
    "enable_hlo_proto=False, or the program was compiled before and elsewhere"
)


_MODULES: Fields[Heap] = (
    Field("module", "module", lambda heap: heap.module),
    Field("space", "memory", lambda heap: SPACE_NAMES[heap.space]),
    Field("peak_bytes", "peak", lambda heap: heap.peak_bytes, "B"),
    Field("argument_bytes", "arguments", lambda heap: heap.argument_bytes, "B"),
    Field("temporary_bytes", "the rest", lambda heap: heap.peak_bytes - heap.argument_bytes, "B"),
    Field("peak_place", "peak at", lambda heap: peak_fraction(heap), "fraction"),
)
_ALLOCATIONS: Fields[tuple[AllocatorState, Allocation]] = (
    Field("memory", "memory", lambda one: one[0].name),
    Field("operation", "allocated for", lambda one: one[1].op_name or "(no name)"),
    Field("category", "what for", lambda one: memory_rules.of_name(one[1].op_name), is_whole=True),
    Field("region", "region", lambda one: one[1].region),
    Field("shape", "shape", lambda one: one[1].shape),
    Field("count", "count", lambda one: one[1].count, "count"),
    Field("bytes", "size", lambda one: one[1].bytes_each * one[1].count, "B"),
)
_LEVELS: Fields[tuple[AllocatorState, Level]] = (
    Field("memory", "memory", lambda one: one[0].name),
    Field("at_seconds", "at", lambda one: one[1].seconds, "s"),
    Field("used_bytes", "used", lambda one: one[1].used_bytes, "B"),
)
_BUFFERS: Fields[Buffer] = (
    Field("buffer", "buffer", lambda buffer: buffer.name),
    Field("shape", "shape", lambda buffer: buffer.shape),
    Field("category", "what for", memory_rules.category, is_whole=True),
    Field("group", "group", lambda buffer: buffer.group),
    Field("bytes", "stored", lambda buffer: buffer.stored_bytes, "B"),
    Field("needed_bytes", "without padding", lambda buffer: buffer.needed_bytes, "B"),
    Field("operation", "from", lambda buffer: buffer.op_name),
    Field("source", "source", lambda buffer: buffer.source),
)


def memory(capture: Capture, top: int = 10, module: str | None = None) -> tuple[Table, ...]:
    """What the allocator saw (measured), and what the compiler planned for the largest module, or `module` (static).

    Raises RatchetError where the capture cannot be converted, UsageError `unknown-module`.
    """
    paths = sources(capture)
    seen = allocator.memories(paths)
    heaps = planned(paths)
    meant = chosen(heaps, module)
    return (
        _measured(capture, seen, heaps),
        _allocations(capture, seen, top),
        _over_time(capture, seen),
        _modules(heaps),
        _composition(meant),
        _alive(meant, top),
        _schedule(meant),
    )


def planned(paths: Sequence[Source]) -> tuple[Heap, ...]:
    """The heaps of all modules of the capture, HBM before VMEM, the largest peak first."""
    found = buffers.heaps(paths, tuple(hlo_protos(paths)))
    return tuple(sorted(found, key=lambda heap: (heap.space, -heap.peak_bytes)))


def chosen(heaps: Sequence[Heap], module: str | None) -> Heap | None:
    """The HBM of `module`, of the largest one where None is named; None where there is none at all.

    Raises UsageError `unknown-module`.
    """
    found = [heap for heap in heaps if heap.space == HBM and module in (None, heap.module, heap.module.split("(")[0])]
    if module is not None and not found:
        known = ", ".join(dict.fromkeys(heap.module for heap in heaps)) or "none"
        raise UsageError("unknown-module", f"expected one of the capture's modules ({known}), got {module!r}")
    return found[0] if found else None


def actual_bytes(peak: Level) -> int | None:
    """Reserved minus available (protocol, section 6); None where less is reserved than free, which that cannot mean."""
    return peak.reserved_bytes - peak.free_bytes if peak.reserved_bytes > peak.free_bytes else None


def peak_of(capture: Capture) -> tuple[float | None, str]:
    """Peak HBM of the fullest memory, and which figure it is: the allocator's before the compiler's."""
    paths = sources(capture)
    seen = allocator.memories(paths)
    if seen:
        fullest = max(seen, key=lambda memory: memory.peak.used_bytes)
        actual = actual_bytes(fullest.peak)
        if actual is not None:
            return float(actual), "reserved - available"
        return float(fullest.peak.used_bytes), "reserved + allocated"
    peak = static_peak(planned(paths))
    return (peak, "unknown") if peak is None else (peak, "planned, an upper bound")


def estimate_of(capture: Capture) -> tuple[float | None, float]:
    """The planned peak of the largest module, None without modules, and 16 bytes for each parameter among its "
    "arguments."""
    heap = chosen(planned(sources(capture)), None)
    if heap is None:
        return None, 0.0
    own = [buffer for buffer in heap.alive if memory_rules.category(buffer) == memory_rules.PARAMETERS]
    count = sum(math.prod(memory_rules.dimensions(buffer.shape)) for buffer in own)
    return heap.peak_bytes, float(count * memory_rules.TRAINING_BYTES_PER_PARAMETER)


def static_peak(heaps: Sequence[Heap]) -> float | None:
    """The compiler's peak of the largest module in HBM, None where there is no module."""
    return max((heap.peak_bytes for heap in heaps if heap.space == HBM), default=None)


def _measured(capture: Capture, seen: Sequence[AllocatorState], heaps: Sequence[Heap]) -> Table:
    static = static_peak(heaps)
    fields: Fields[AllocatorState] = (
        Field("host", "host", lambda one: one.host),
        Field("memory", "memory", lambda one: one.name),
        Field("capacity_bytes", "capacity", lambda one: one.capacity_bytes or None, "B"),
        Field("used_bytes", "used", lambda one: one.peak.used_bytes, "B"),
        Field("used_fraction", "of it", lambda one: share(one.peak.used_bytes, one.capacity_bytes), "fraction"),
        Field("actual_bytes", "actual", lambda one: actual_bytes(one.peak), "B"),
        Field("reserved_bytes", "reserved", lambda one: one.peak.reserved_bytes, "B"),
        Field("allocated_bytes", "allocated", lambda one: one.peak.allocated_bytes, "B"),
        Field("available_bytes", "available", lambda one: one.peak.free_bytes, "B"),
        Field("fragmentation", "fragmented", lambda one: one.fragmentation, "fraction"),
        Field("lifetime_peak_bytes", "peak since start", lambda one: one.lifetime_peak_bytes or None, "B"),
        Field("static_peak_bytes", "static bound", lambda _: static, "B"),
    )
    notes = (
        "used = reserved (programs' workspace) + allocated (their arguments and results), as XProf adds it up; "
        "allocated alone leaves the workspace out.",
        "actual = reserved - available, the published rule for what is really in use; - where it says nothing.",
        "static bound: the compiler's peak of the largest module; while it runs 5 to 15 % less is in use.",
    )
    return table_of("memory", "Device memory at its peak", origin(capture), fields, seen, notes, NO_EVENTS)


def _allocations(capture: Capture, seen: Sequence[AllocatorState], top: int) -> Table:
    found = [
        (one, allocation)
        for one in seen
        for allocation in sorted(one.alive, key=lambda alive: -alive.bytes_each * alive.count)
    ]
    notes = ["`stack` (the programs' workspace) and `unused preallocated` are what no single allocation explains."]
    if len(found) > top:
        notes.append(f"{len(found) - top} smaller ones are left out (--top).")
    title = "Alive at the measured peak"
    return table_of("allocations", title, origin(capture), _ALLOCATIONS, found[:top], notes, NO_EVENTS)


def _over_time(capture: Capture, seen: Sequence[AllocatorState]) -> Table:
    moments, notes = [], []
    for one in seen:
        highest = [one.levels[place] for place in _peaks([level.used_bytes for level in one.levels])]
        moments += [(one, level) for level in highest]
        line = sparkline([level.used_bytes for level in highest], one.capacity_bytes)
        notes.append(
            f"memory {one.name}, empty to full: {line}; {one.allocations} allocations and {one.deallocations} "
            "deallocations while the capture was taken."
        )
    title = "Memory in use over time"
    return table_of("memory_over_time", title, origin(capture), _LEVELS, moments, notes, NO_EVENTS)


def _modules(heaps: Sequence[Heap]) -> Table:
    note = (
        "An upper bound, read off the buffer assignment; peak at: how far into the schedule's changes of the heap, "
        "- where everything lives throughout. In a training step, before 50 % is its forward half."
    )
    title = "What the compiler planned, by module"
    return table_of("modules", title, "static", _MODULES, heaps, (note,), NO_MODULES)


def peak_fraction(heap: Heap) -> float | None:
    """How far into the schedule the peak lies."""
    return None if heap.peak_place is None else heap.peak_place / max(1, len(heap.heap_bytes) - 1)


def _composition(heap: Heap | None) -> Table:
    sizes: dict[str, list[float]] = defaultdict(list)
    for buffer in heap.alive if heap else ():
        sizes[memory_rules.category(buffer)].append(buffer.stored_bytes)
    whole = sum(map(sum, sizes.values()))
    fields: Fields[str] = (
        Field("category", "what for", lambda kind: kind, is_whole=True),
        Field("bytes", "size", lambda kind: sum(sizes[kind], 0.0), "B"),
        Field("share", "share", lambda kind: share(sum(sizes[kind], 0.0), whole), "fraction"),
        Field("buffers", "buffers", lambda kind: len(sizes[kind]), "count"),
    )
    title = f"Composition of {heap.module} at its planned peak" if heap else "Composition at the planned peak"
    kinds = sorted(sizes, key=lambda kind: -sum(sizes[kind]))
    notes = ("By group and name of the buffers, see harness/workbench/profiles/memory_rules.py.",)
    return table_of("composition", title, "static", fields, kinds, notes, NO_MODULES)


def _alive(heap: Heap | None, top: int) -> Table:
    found = heap.alive if heap else ()
    left_out = units.decimal(sum(buffer.stored_bytes for buffer in found[top:]), "B")
    notes = [f"{len(found) - top} smaller ones, {left_out} together, are left out (--top)."] if len(found) > top else []
    return table_of("buffers", "Alive at the planned peak", "static", _BUFFERS, found[:top], notes, NO_MODULES)


def _schedule(heap: Heap | None) -> Table:
    sizes = heap.heap_bytes if heap else ()
    peaks = _peaks(sizes)
    fields: Fields[int] = (
        Field("place", "at", lambda place: place / max(1, len(sizes) - 1), "fraction"),
        Field("bytes", "heap", lambda place: sizes[place], "B"),
        Field("instruction", "instruction", lambda place: heap.instructions[place] or "(start)" if heap else None),
    )
    line = sparkline([sizes[place] for place in peaks], max(sizes, default=0))
    note = f"empty to peak: {line}; the highest moment of each stretch is shown."
    why = NO_MODULES if heap is None else "every buffer lives from start to end, so the heap does not change"
    return table_of("heap_over_schedule", "The planned heap over the schedule", "static", fields, peaks, (note,), why)


def _peaks(levels: Sequence[float]) -> tuple[int, ...]:
    """Where each of up to `_MOMENTS` equal parts of `levels` is highest."""
    if len(levels) <= _MOMENTS:
        return tuple(range(len(levels)))
    ends = [len(levels) * moment // _MOMENTS for moment in range(_MOMENTS + 1)]
    return tuple(max(range(first, last), key=lambda place: levels[place]) for first, last in pairwise(ends))


def sparkline(levels: Sequence[float], full: float) -> str:
    """`levels` as bars, the highest bar for `full`."""
    if full <= 0:
        return ""
    last = len(_BARS) - 1
    return "".join(_BARS[min(last, round(level / full * last))] for level in levels)
