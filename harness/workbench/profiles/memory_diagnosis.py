"""What is wrong with a program's memory: padding, vocabulary-sized, alike and long-lived buffers, jumps, estimate."""

import math
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path

from harness import units
from harness.records import Capture, Column, Table
from harness.workbench.profiles import allocator, memory_rules
from harness.workbench.profiles.allocator import Memory
from harness.workbench.profiles.buffers import HBM, Heap, Life
from harness.workbench.profiles.memory import NO_EVENTS, NO_MODULES, actual_bytes, chosen, planned
from harness.workbench.profiles.memory_rules import (
    OPTIMIZER,
    PARAMETERS,
    TRAINING_BYTES_PER_PARAMETER,
    VOCABULARY_ELEMENTS,
)
from harness.workbench.profiles.spent import origin

# From the published analysis: above this the tiling costs more than it is worth looking past.
_PADDING_BYTES = 500 * (1 << 20)
# A temporary is kept long if it lives for this part of the schedule; with this size a long one is critical.
_LONG, _VERY_LONG, _LARGE_BYTES = 0.3, 0.8, 100 * (1 << 20)
_SPIKES = 3


def diagnose(capture: Capture, top: int = 10, module: str | None = None) -> tuple[Table, ...]:
    """Findings on the largest module's memory, or that of `module`, and on what the allocator saw.

    Raises RatchetError where the capture cannot be converted, UsageError `unknown-module`.
    """
    paths = tuple(map(Path, capture.paths))
    heaps = planned(paths)
    heap = chosen(heaps, module)
    return (
        _reserved(capture, allocator.memories(paths), heaps),
        _padding(heap, top),
        _vocabulary(heap),
        _retained(heap, top),
        _alike(heap, top),
        _spikes(heap),
        _estimate(heap),
    )


def _reserved(capture: Capture, seen: Sequence[Memory], heaps: Sequence[Heap]) -> Table:
    static = max((heap.peak_bytes for heap in heaps if heap.space == HBM), default=None)
    rows = []
    for one in seen:
        actual = actual_bytes(one.peak)
        share = actual / one.capacity_bytes if actual is not None and one.capacity_bytes else None
        used = one.peak.used_bytes / one.capacity_bytes if one.capacity_bytes else None
        rows.append(
            (
                one.name,
                actual,
                share,
                one.peak.allocated_bytes,
                static,
                actual / static if actual is not None and static else None,
                one.levels[-1].used_bytes - one.levels[0].used_bytes if one.levels else None,
                _reading(max((value for value in (share, used) if value is not None), default=None)),
            )
        )
    return Table(
        name="reserved",
        title="Reserved minus available",
        origin=origin(capture),
        columns=(
            Column(name="memory", title="memory"),
            Column(name="actual_bytes", title="actual", unit="B"),
            Column(name="used_fraction", title="of capacity", unit="fraction"),
            Column(name="allocated_bytes", title="allocated alone", unit="B"),
            Column(name="static_peak_bytes", title="static bound", unit="B"),
            Column(name="actual_to_static", title="actual/static", unit="ratio"),
            Column(name="grown_bytes", title="grown meanwhile", unit="B"),
            Column(name="reading", title="reading", is_whole=True),
        ),
        rows=tuple(rows),
        notes=(
            "actual/static is 0.85 to 0.95 in the published runs; grown meanwhile: in use at the end minus at the "
            "start, what was allocated and not given back.",
            "The reading goes by the larger of actual and reserved + allocated: what a runtime counts as reserved "
            "differs, and room that is not there costs a run.",
        )
        if rows
        else (),
        why_empty="" if rows else NO_EVENTS,
    )


def _reading(share: float | None) -> str:
    if share is None:
        return "unknown: the capacity is not said"
    if share > 0.9:
        return "nearly full: reduce what is alive at the peak"
    return "room for a larger batch" if share < 0.5 else "in order"


def _padding(heap: Heap | None, top: int) -> Table:
    padded = [buffer for buffer in heap.alive if buffer.needed_bytes is not None] if heap else []
    wasted = {buffer: buffer.stored_bytes - (buffer.needed_bytes or 0.0) for buffer in padded}
    found = sorted((buffer for buffer in padded if wasted[buffer] > 0), key=lambda buffer: -wasted[buffer])
    total = sum(wasted.values())
    why = NO_MODULES if heap is None else f"no buffer alive at the peak of {heap.module} is padded"
    verdict = "much: the shapes do not fit the tiles" if total > _PADDING_BYTES else "little"
    notes = []
    if heap and found:
        notes.append(
            f"{units.decimal(total, 'B')} of {units.decimal(heap.peak_bytes, 'B')} at the peak are padding: {verdict} "
            "(500 MiB is the published limit). Added up over the buffers: XProf's sum leaves arguments and results out."
        )
    return Table(
        name="padding",
        title="Padding",
        origin="static",
        columns=(
            Column(name="buffer", title="buffer"),
            Column(name="shape", title="shape and layout"),
            Column(name="bytes", title="stored", unit="B"),
            Column(name="needed_bytes", title="needed", unit="B"),
            Column(name="padding_bytes", title="padding", unit="B"),
            Column(name="stored_to_needed", title="ratio", unit="ratio"),
        ),
        rows=tuple(
            (
                buffer.name,
                buffer.shape,
                buffer.stored_bytes,
                buffer.needed_bytes,
                wasted[buffer],
                buffer.stored_bytes / buffer.needed_bytes if buffer.needed_bytes else None,
            )
            for buffer in found[:top]
        ),
        notes=tuple(notes),
        why_empty="" if found else why,
    )


def _vocabulary(heap: Heap | None) -> Table:
    found = [buffer for buffer in heap.alive if memory_rules.has_vocabulary(buffer.shape)] if heap else []
    total = sum(buffer.stored_bytes for buffer in found)
    why = NO_MODULES if heap is None else (
        f"no buffer alive at the peak of {heap.module} has a dimension of {VOCABULARY_ELEMENTS:,} or more"
    )  # fmt: skip
    return Table(
        name="vocabulary",
        title="Vocabulary-sized buffers",
        origin="static",
        columns=(
            Column(name="buffer", title="buffer"),
            Column(name="shape", title="shape"),
            Column(name="category", title="what for"),
            Column(name="bytes", title="stored", unit="B"),
            Column(name="operation", title="from"),
        ),
        rows=tuple(
            (buffer.name, buffer.shape, memory_rules.category(buffer), buffer.stored_bytes, buffer.op_name)
            for buffer in found
        ),
        notes=(
            f"{units.decimal(total, 'B')} together. Logits and their gradients shrink with a chunked cross entropy "
            "(the loss in pieces of the sequence), embeddings and their optimizer state with sharding over it.",
        )
        if found
        else (),
        why_empty="" if found else why,
    )


def _retained(heap: Heap | None, top: int) -> Table:
    length = max(1, len(heap.heap_bytes) - 1) if heap else 1
    lives = [life for life in heap.lives if _fraction(life, length) >= _LONG] if heap else []
    lives.sort(key=lambda life: -life.stored_bytes)
    why = NO_MODULES if heap is None else f"no temporary buffer of {heap.module} lives for 30 % of its schedule"
    return Table(
        name="retained",
        title="Temporary buffers that are kept long",
        origin="static",
        columns=(
            Column(name="buffer", title="buffer"),
            Column(name="shape", title="shape"),
            Column(name="bytes", title="stored", unit="B"),
            Column(name="lives", title="lives for", unit="fraction"),
            Column(name="level", title="level"),
            Column(name="operation", title="from"),
        ),
        rows=tuple(
            (
                life.name,
                life.shape,
                life.stored_bytes,
                _fraction(life, length),
                _level(life, _fraction(life, length)),
                life.op_name,
            )
            for life in lives[:top]
        ),
        notes=(
            "Of the schedule's length. Gathered weights of all layers look kept here although they are fetched one "
            "layer at a time; activations shrink with jax.checkpoint (rematerialisation).",
        )
        if lives
        else (),
        why_empty="" if lives else why,
    )


def _fraction(life: Life, length: int) -> float:
    return (life.last - life.first) / length


def _level(life: Life, fraction: float) -> str:
    if fraction >= _VERY_LONG and life.stored_bytes >= _LARGE_BYTES:
        return "critical"
    return "warning" if fraction >= 0.5 else "notice"


def _alike(heap: Heap | None, top: int) -> Table:
    groups: dict[str, list[float]] = defaultdict(list)
    for buffer in heap.alive if heap else ():
        if buffer.shape:
            groups[buffer.shape].append(buffer.stored_bytes)
    found = sorted(((shape, sizes) for shape, sizes in groups.items() if len(sizes) > 1), key=lambda one: -sum(one[1]))
    why = NO_MODULES if heap is None else f"no two buffers alive at the peak of {heap.module} have the same shape"
    return Table(
        name="alike",
        title="Buffers of one shape alive together",
        origin="static",
        columns=(
            Column(name="shape", title="shape"),
            Column(name="count", title="count", unit="count"),
            Column(name="bytes", title="together", unit="B"),
        ),
        rows=tuple((shape, len(sizes), sum(sizes)) for shape, sizes in found[:top]),
        why_empty="" if found else why,
    )


def _spikes(heap: Heap | None) -> Table:
    sizes = heap.heap_bytes if heap else ()
    jumps = [(place, sizes[place] - sizes[place - 1]) for place in range(1, len(sizes))]
    largest = sorted((jump for jump in jumps if jump[1] > 0), key=lambda jump: -jump[1])[:_SPIKES]
    why = NO_MODULES if heap is None else f"the heap of {heap.module} does not grow within its schedule"
    return Table(
        name="spikes",
        title="Largest jumps of the planned heap",
        origin="static",
        columns=(
            Column(name="instruction", title="instruction"),
            Column(name="place", title="at", unit="fraction"),
            Column(name="grows_bytes", title="grows by", unit="B"),
            Column(name="bytes", title="to", unit="B"),
            Column(name="is_peak", title="peak"),
        ),
        rows=tuple(
            (
                heap.instructions[place] if heap else None,
                place / max(1, len(sizes) - 1),
                jump,
                sizes[place],
                heap is not None and place == heap.peak_place,
            )
            for place, jump in largest
        ),
        why_empty="" if largest else why,
    )


def _estimate(heap: Heap | None) -> Table:
    own = [buffer for buffer in heap.alive if memory_rules.category(buffer) == PARAMETERS] if heap else []
    count = sum(math.prod(memory_rules.dimensions(buffer.shape)) for buffer in own)
    optimizer = sum(
        buffer.stored_bytes for buffer in (heap.alive if heap else ()) if memory_rules.category(buffer) == OPTIMIZER
    )
    why = NO_MODULES if heap is None else f"no argument of {heap.module} is called a parameter"
    notes = ["16 bytes a parameter: weights 2, gradients 2, Adam 4 + 4, master copy 4; activations come on top."]
    if not optimizer:
        notes.append("No optimizer state is alive: for inference 2 bytes a parameter (bf16) are to be expected.")
    return Table(
        name="estimate",
        title="The peak against the estimate from the parameters",
        origin="mixed",
        columns=(
            Column(name="parameters", title="parameters", unit="count"),
            Column(name="estimate_bytes", title="estimate (predicted)", unit="B"),
            Column(name="static_peak_bytes", title="planned peak (static)", unit="B"),
            Column(name="parameter_bytes", title="parameters take", unit="B"),
            Column(name="optimizer_bytes", title="optimizer takes", unit="B"),
        ),
        rows=(
            (
                count,
                count * TRAINING_BYTES_PER_PARAMETER,
                heap.peak_bytes,
                sum(buffer.stored_bytes for buffer in own),
                optimizer,
            ),
        )
        if heap and own
        else (),
        notes=tuple(notes) if own else (),
        why_empty="" if own else why,
    )
