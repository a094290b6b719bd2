"""Device memory as tables: peak and capacity, its composition at the peak, what is alive then, the heap over time."""

from collections import defaultdict
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path

from harness import units
from harness.errors import UsageError
from harness.records import Capture, Column, Table
from harness.workbench.profiles import allocator, buffers, memory_rules
from harness.workbench.profiles.allocator import Level, Memory
from harness.workbench.profiles.buffers import HBM, SPACE_NAMES, Heap
from harness.workbench.profiles.reading import hlo_protos
from harness.workbench.profiles.spent import origin

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


def memory(capture: Capture, top: int = 10, module: str | None = None) -> tuple[Table, ...]:
    """What the allocator saw (measured), and what the compiler planned for the largest module, or `module` (static).

    Raises RatchetError where the capture cannot be converted, UsageError `unknown-module` or `usage`.
    """
    if top < 1:
        raise UsageError("usage", f"expected --top 1 or more, got {top}")
    paths = tuple(map(Path, capture.paths))
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


def planned(paths: Sequence[Path]) -> tuple[Heap, ...]:
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


def _measured(capture: Capture, seen: Sequence[Memory], heaps: Sequence[Heap]) -> Table:
    static = max((heap.peak_bytes for heap in heaps if heap.space == HBM), default=None)
    notes = [
        "used = reserved (programs' workspace) + allocated (their arguments and results), as XProf adds it up; "
        "allocated alone leaves the workspace out.",
        "actual = reserved - available, the published rule for what is really in use; - where it says nothing.",
        "static bound: the compiler's peak of the largest module; while it runs 5 to 15 % less is in use.",
    ]
    return Table(
        name="memory",
        title="Device memory at its peak",
        origin=origin(capture),
        columns=(
            Column(name="host", title="host"),
            Column(name="memory", title="memory"),
            Column(name="capacity_bytes", title="capacity", unit="B"),
            Column(name="used_bytes", title="used", unit="B"),
            Column(name="used_fraction", title="of it", unit="fraction"),
            Column(name="actual_bytes", title="actual", unit="B"),
            Column(name="reserved_bytes", title="reserved", unit="B"),
            Column(name="allocated_bytes", title="allocated", unit="B"),
            Column(name="available_bytes", title="available", unit="B"),
            Column(name="fragmentation", title="fragmented", unit="fraction"),
            Column(name="lifetime_peak_bytes", title="peak since start", unit="B"),
            Column(name="static_peak_bytes", title="static bound", unit="B"),
        ),
        rows=tuple(
            (
                one.host,
                one.name,
                one.capacity_bytes or None,
                one.peak.used_bytes,
                one.peak.used_bytes / one.capacity_bytes if one.capacity_bytes else None,
                actual_bytes(one.peak),
                one.peak.reserved_bytes,
                one.peak.allocated_bytes,
                one.peak.free_bytes,
                one.fragmentation,
                one.lifetime_peak_bytes or None,
                static,
            )
            for one in seen
        ),
        notes=tuple(notes) if seen else (),
        why_empty="" if seen else NO_EVENTS,
    )


def _allocations(capture: Capture, seen: Sequence[Memory], top: int) -> Table:
    found = [
        (
            one.name,
            allocation.op_name or "(no name)",
            memory_rules.of_name(allocation.op_name),
            allocation.region,
            allocation.shape,
            allocation.count,
            allocation.bytes_each * allocation.count,
        )
        for one in seen
        for allocation in sorted(one.alive, key=lambda alive: -alive.bytes_each * alive.count)
    ]
    kept = found[:top]
    notes = ["`stack` (the programs' workspace) and `unused preallocated` are what no single allocation explains."]
    if len(found) > len(kept):
        notes.append(f"{len(found) - len(kept)} smaller ones are left out (--top).")
    return Table(
        name="allocations",
        title="Alive at the measured peak",
        origin=origin(capture),
        columns=(
            Column(name="memory", title="memory"),
            Column(name="operation", title="allocated for"),
            Column(name="category", title="what for", is_whole=True),
            Column(name="region", title="region"),
            Column(name="shape", title="shape"),
            Column(name="count", title="count", unit="count"),
            Column(name="bytes", title="size", unit="B"),
        ),
        rows=tuple(kept),
        notes=tuple(notes) if kept else (),
        why_empty="" if kept else NO_EVENTS,
    )


def _over_time(capture: Capture, seen: Sequence[Memory]) -> Table:
    rows, notes = [], []
    for one in seen:
        peaks = _peaks([level.used_bytes for level in one.levels])
        rows += [(one.name, one.levels[place].seconds, one.levels[place].used_bytes) for place in peaks]
        line = sparkline([one.levels[place].used_bytes for place in peaks], one.capacity_bytes)
        notes.append(
            f"memory {one.name}, empty to full: {line}; {one.allocations} allocations and {one.deallocations} "
            "deallocations while the capture was taken."
        )
    return Table(
        name="memory_over_time",
        title="Memory in use over time",
        origin=origin(capture),
        columns=(
            Column(name="memory", title="memory"),
            Column(name="at_seconds", title="at", unit="s"),
            Column(name="used_bytes", title="used", unit="B"),
        ),
        rows=tuple(rows),
        notes=tuple(notes) if rows else (),
        why_empty="" if rows else NO_EVENTS,
    )


def _modules(heaps: Sequence[Heap]) -> Table:
    return Table(
        name="modules",
        title="What the compiler planned, by module",
        origin="static",
        columns=(
            Column(name="module", title="module"),
            Column(name="space", title="memory"),
            Column(name="peak_bytes", title="peak", unit="B"),
            Column(name="argument_bytes", title="arguments", unit="B"),
            Column(name="temporary_bytes", title="the rest", unit="B"),
            Column(name="peak_place", title="peak at", unit="fraction"),
        ),
        rows=tuple(
            (
                heap.module,
                SPACE_NAMES[heap.space],
                heap.peak_bytes,
                heap.argument_bytes,
                heap.peak_bytes - heap.argument_bytes,
                peak_fraction(heap),
            )
            for heap in heaps
        ),
        notes=(
            "An upper bound, read off the buffer assignment; peak at: how far into the schedule's changes of the heap, "
            "- where everything lives throughout. In a training step, before 50 % is its forward half.",
        )
        if heaps
        else (),
        why_empty="" if heaps else NO_MODULES,
    )


def peak_fraction(heap: Heap) -> float | None:
    """How far into the schedule the peak lies."""
    return None if heap.peak_place is None else heap.peak_place / max(1, len(heap.heap_bytes) - 1)


def _composition(heap: Heap | None) -> Table:
    total: dict[str, float] = defaultdict(float)
    count: dict[str, int] = defaultdict(int)
    for buffer in heap.alive if heap else ():
        kind = memory_rules.category(buffer)
        total[kind] += buffer.stored_bytes
        count[kind] += 1
    whole = sum(total.values())
    return Table(
        name="composition",
        title=f"Composition of {heap.module} at its planned peak" if heap else "Composition at the planned peak",
        origin="static",
        columns=(
            Column(name="category", title="what for", is_whole=True),
            Column(name="bytes", title="size", unit="B"),
            Column(name="share", title="share", unit="fraction"),
            Column(name="buffers", title="buffers", unit="count"),
        ),
        rows=tuple(
            (kind, total[kind], total[kind] / whole if whole else None, count[kind])
            for kind in sorted(total, key=lambda kind: -total[kind])
        ),
        notes=("By group and name of the buffers, see harness/workbench/profiles/memory_rules.py.",) if total else (),
        why_empty="" if total else NO_MODULES,
    )


def _alive(heap: Heap | None, top: int) -> Table:
    found = heap.alive if heap else ()
    kept = found[:top]
    left_out = sum(buffer.stored_bytes for buffer in found[top:])
    return Table(
        name="buffers",
        title="Alive at the planned peak",
        origin="static",
        columns=(
            Column(name="buffer", title="buffer"),
            Column(name="shape", title="shape"),
            Column(name="category", title="what for", is_whole=True),
            Column(name="group", title="group"),
            Column(name="bytes", title="stored", unit="B"),
            Column(name="needed_bytes", title="without padding", unit="B"),
            Column(name="operation", title="from"),
            Column(name="source", title="source"),
        ),
        rows=tuple(
            (
                buffer.name,
                buffer.shape,
                memory_rules.category(buffer),
                buffer.group,
                buffer.stored_bytes,
                buffer.needed_bytes,
                buffer.op_name,
                buffer.source,
            )
            for buffer in kept
        ),
        notes=(f"{len(found) - top} smaller ones, {units.decimal(left_out, 'B')} together, are left out (--top).",)
        if len(found) > top
        else (),
        why_empty="" if kept else NO_MODULES,
    )


def _schedule(heap: Heap | None) -> Table:
    sizes = heap.heap_bytes if heap else ()
    peaks = _peaks(sizes)
    why = NO_MODULES if heap is None else "every buffer lives from start to end, so the heap does not change"
    return Table(
        name="heap_over_schedule",
        title="The planned heap over the schedule",
        origin="static",
        columns=(
            Column(name="place", title="at", unit="fraction"),
            Column(name="bytes", title="heap", unit="B"),
            Column(name="instruction", title="instruction"),
        ),
        rows=tuple(
            (
                place / max(1, len(sizes) - 1),
                sizes[place],
                heap.instructions[place] or "(start)" if heap else None,
            )
            for place in peaks
        ),
        notes=(f"empty to peak: {sparkline([sizes[place] for place in peaks], max(sizes))}; the highest moment of "
               "each stretch is shown.",) if sizes else (),
        why_empty="" if sizes else why,
    )  # fmt: skip


def _peaks(levels: Sequence[float]) -> tuple[int, ...]:
    """Where each of up to `_MOMENTS` equal stretches of `levels` is highest."""
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
