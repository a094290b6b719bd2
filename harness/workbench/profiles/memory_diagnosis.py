"""What is wrong with a program's memory: padding, vocabulary-sized, alike, long-lived buffers, jumps, and remedies."""

import math
from collections import defaultdict
from collections.abc import Iterator, Sequence
from statistics import median

from harness import units
from harness.records import Capture, Table
from harness.workbench.profiles import allocator, memory_remedies, memory_rules
from harness.workbench.profiles.allocator import AllocatorState
from harness.workbench.profiles.buffers import Buffer, Heap, Life
from harness.workbench.profiles.memory import NO_EVENTS, NO_MODULES, actual_bytes, chosen, planned, static_peak
from harness.workbench.profiles.memory_rules import (
    OPTIMIZER,
    PARAMETERS,
    TRAINING_BYTES_PER_PARAMETER,
    VOCABULARY_ELEMENTS,
)
from harness.workbench.profiles.op_times import origin, share
from harness.workbench.profiles.reading import sources
from harness.workbench.tables import Field, Fields, table_of

# From the published analysis: above this the tiling costs more than it is worth looking past.
_PADDING_BYTES = 500 * (1 << 20)
# A temporary is kept long if it lives for this part of the schedule; with this size a long one is critical.
_LONG, _VERY_LONG, _LARGE_BYTES = 0.3, 0.8, 100 * (1 << 20)
_SPIKES = 3
_IN_ORDER = "in order"
# Ours, since the published analysis states none: a step gives back what it takes, so a tenth of the memory is a leak or
# a cache; half as much again as usual is a moment worth looking at; a third of what is free in pieces is hard to use.
_GROWTH, _SPIKE, _FRAGMENTATION = 0.10, 1.5, 0.30


_VOCABULARY: Fields[Buffer] = (
    Field("buffer", "buffer", lambda buffer: buffer.name),
    Field("shape", "shape", lambda buffer: buffer.shape),
    Field("category", "what for", memory_rules.category),
    Field("bytes", "stored", lambda buffer: buffer.stored_bytes, "B"),
    Field("operation", "from", lambda buffer: buffer.op_name),
)
_PADDING: Fields[Buffer] = (
    Field("buffer", "buffer", lambda buffer: buffer.name),
    Field("shape", "shape and layout", lambda buffer: buffer.shape),
    Field("bytes", "stored", lambda buffer: buffer.stored_bytes, "B"),
    Field("needed_bytes", "needed", lambda buffer: buffer.needed_bytes, "B"),
    Field("padding_bytes", "padding", lambda buffer: _wasted(buffer), "B"),
    Field("stored_to_needed", "ratio", lambda buffer: share(buffer.stored_bytes, buffer.needed_bytes or 0.0), "ratio"),
)
_ALIKE: Fields[tuple[str, list[float]]] = (
    Field("shape", "shape", lambda one: one[0]),
    Field("count", "count", lambda one: len(one[1]), "count"),
    Field("bytes", "together", lambda one: sum(one[1]), "B"),
)


def diagnose(capture: Capture, top: int = 10, module: str | None = None) -> tuple[Table, ...]:
    """Findings on the largest module's memory, or that of `module`, and on what the allocator saw.

    Raises RatchetError where the capture cannot be converted, UsageError `unknown-module`.
    """
    paths = sources(capture)
    heaps = planned(paths)
    heap = chosen(heaps, module)
    return (
        _reserved(capture, allocator.memories(paths), heaps),
        _padding(heap, top),
        _vocabulary(heap),
        _retained(heap, top),
        _equal_shapes(heap, top),
        _spikes(heap),
        _estimate(heap),
        memory_remedies.activations_table(heap),
        memory_remedies.remedies_table(heap),
    )


def _reserved(capture: Capture, seen: Sequence[AllocatorState], heaps: Sequence[Heap]) -> Table:
    static = static_peak(heaps)

    def filled(one: AllocatorState) -> float | None:
        actual = actual_bytes(one.peak)
        return None if actual is None else share(actual, one.capacity_bytes)

    def reading(one: AllocatorState) -> str:
        shares = (filled(one), share(one.peak.used_bytes, one.capacity_bytes))
        found = _reading(max((value for value in shares if value is not None), default=None))
        said = [*([] if found == _IN_ORDER else [found]), *_in_time(one)]
        return "; ".join(said) or _IN_ORDER

    def against_static(one: AllocatorState) -> float | None:
        actual = actual_bytes(one.peak)
        return None if actual is None or static is None else share(actual, static)

    def grown(one: AllocatorState) -> float | None:
        return one.levels[-1].used_bytes - one.levels[0].used_bytes if one.levels else None

    fields: Fields[AllocatorState] = (
        Field("memory", "memory", lambda one: one.name),
        Field("actual_bytes", "actual", lambda one: actual_bytes(one.peak), "B"),
        Field("used_fraction", "of capacity", filled, "fraction"),
        Field("allocated_bytes", "allocated alone", lambda one: one.peak.allocated_bytes, "B"),
        Field("static_peak_bytes", "static bound", lambda _: static, "B"),
        Field("actual_to_static", "actual/static", against_static, "ratio"),
        Field("grown_bytes", "grown meanwhile", grown, "B"),
        Field("peak_to_median", "peak/median", _spike, "ratio"),
        Field("fragmentation", "fragmentation", lambda one: one.fragmentation, "fraction"),
        Field("reading", "reading", reading, is_whole=True),
    )
    notes = (
        f"Growth counts from {units.percent(_GROWTH, 0)} of the capacity on, a spike from {_SPIKE:g} times the median "
        f"level, fragmentation (XProf's, at the peak) from {units.percent(_FRAGMENTATION, 0)} on: our thresholds.",
        "actual/static is 0.85 to 0.95 in the published runs; grown meanwhile: in use at the end minus at the "
        "start, what was allocated and not given back.",
        "The reading goes by the larger of actual and reserved + allocated: what a runtime counts as reserved "
        "differs, and room that is not there costs a run.",
    )
    return table_of("reserved", "Reserved minus available", origin(capture), fields, seen, notes, NO_EVENTS)


def _reading(share: float | None) -> str:
    if share is None:
        return "unknown: the capacity is not said"
    if share > 0.9:
        return "nearly full: reduce what is alive at the peak"
    return "room for a larger batch" if share < 0.5 else _IN_ORDER


def _in_time(one: AllocatorState) -> Iterator[str]:
    """What its levels over time say, where they pass a threshold."""
    grown = share(one.levels[-1].used_bytes - one.levels[0].used_bytes, one.capacity_bytes) if one.levels else None
    if grown is not None and grown >= _GROWTH:
        yield (
            f"grows: {units.percent(grown)} of the capacity was taken and not given back; look for what is kept from "
            "step to step"
        )
    spike = _spike(one)
    if spike is not None and spike >= _SPIKE:
        yield f"a spike: the peak is {spike:.1f} times the median level; see what is alive at the peak"
    if one.fragmentation >= _FRAGMENTATION:
        yield f"fragmented: {units.percent(one.fragmentation)}; fewer sizes, or buffers that are donated"


def _spike(one: AllocatorState) -> float | None:
    return share(one.peak.used_bytes, median(level.used_bytes for level in one.levels)) if one.levels else None


def _padding(heap: Heap | None, top: int) -> Table:
    padded = [buffer for buffer in heap.alive if _wasted(buffer) > 0] if heap else []
    total = sum(_wasted(buffer) for buffer in heap.alive) if heap else 0.0
    why = NO_MODULES if heap is None else f"no buffer alive at the peak of {heap.module} is padded"
    verdict = "much: the shapes do not fit the tiles" if total > _PADDING_BYTES else "little"
    note = (
        f"{units.decimal(total, 'B')} of {units.decimal(heap.peak_bytes if heap else 0, 'B')} at the peak are padding: "
        f"{verdict} (500 MiB is the published limit). Added up over the buffers: XProf's sum leaves arguments and "
        "results out."
    )
    worst = sorted(padded, key=lambda buffer: -_wasted(buffer))[:top]
    return table_of("padding", "Padding", "static", _PADDING, worst, (note,), why)


def _wasted(buffer: Buffer) -> float:
    return 0.0 if buffer.needed_bytes is None else buffer.stored_bytes - buffer.needed_bytes


def _vocabulary(heap: Heap | None) -> Table:
    found = [buffer for buffer in heap.alive if memory_rules.has_vocabulary(buffer.shape)] if heap else []
    total = sum(buffer.stored_bytes for buffer in found)
    why = NO_MODULES if heap is None else (
        f"no buffer alive at the peak of {heap.module} has a dimension of {VOCABULARY_ELEMENTS:,} or more"
    )  # fmt: skip
    note = (
        f"{units.decimal(total, 'B')} together. Logits and their gradients shrink with a chunked cross entropy "
        "(the loss in pieces of the sequence), embeddings and their optimizer state with sharding over it."
    )
    return table_of("vocabulary", "Vocabulary-sized buffers", "static", _VOCABULARY, found, (note,), why)


def _retained(heap: Heap | None, top: int) -> Table:
    length = max(1, len(heap.heap_bytes) - 1) if heap else 1
    lives = [life for life in heap.lives if _fraction(life, length) >= _LONG] if heap else []
    lives.sort(key=lambda life: -life.stored_bytes)
    fields: Fields[Life] = (
        Field("buffer", "buffer", lambda life: life.name),
        Field("shape", "shape", lambda life: life.shape),
        Field("bytes", "stored", lambda life: life.stored_bytes, "B"),
        Field("lives", "lives for", lambda life: _fraction(life, length), "fraction"),
        Field("level", "level", lambda life: _level(life, _fraction(life, length))),
        Field("operation", "from", lambda life: life.op_name),
    )
    note = (
        "Of the schedule's length. Gathered weights of all layers look kept here although they are fetched one "
        "layer at a time; activations shrink with jax.checkpoint (rematerialisation)."
    )
    why = NO_MODULES if heap is None else f"no temporary buffer of {heap.module} lives for 30 % of its schedule"
    return table_of("retained", "Temporary buffers that are kept long", "static", fields, lives[:top], (note,), why)


def _fraction(life: Life, length: int) -> float:
    return (life.last - life.first) / length


def _level(life: Life, fraction: float) -> str:
    if fraction >= _VERY_LONG and life.stored_bytes >= _LARGE_BYTES:
        return "critical"
    return "warning" if fraction >= 0.5 else "notice"


def _equal_shapes(heap: Heap | None, top: int) -> Table:
    groups: dict[str, list[float]] = defaultdict(list)
    for buffer in heap.alive if heap else ():
        if buffer.shape:
            groups[buffer.shape].append(buffer.stored_bytes)
    found = sorted(((shape, sizes) for shape, sizes in groups.items() if len(sizes) > 1), key=lambda one: -sum(one[1]))
    why = NO_MODULES if heap is None else f"no two buffers alive at the peak of {heap.module} have the same shape"
    return table_of("alike", "Buffers of one shape alive together", "static", _ALIKE, found[:top], (), why)


def _spikes(heap: Heap | None) -> Table:
    sizes = heap.heap_bytes if heap else ()
    changes = {place: sizes[place] - sizes[place - 1] for place in range(1, len(sizes))}
    grown = {place: size for place, size in changes.items() if size > 0}
    fields: Fields[int] = (
        Field("instruction", "instruction", lambda place: heap.instructions[place] if heap else None),
        Field("place", "at", lambda place: place / max(1, len(sizes) - 1), "fraction"),
        Field("grows_bytes", "grows by", lambda place: grown[place], "B"),
        Field("bytes", "to", lambda place: sizes[place], "B"),
        Field("is_peak", "peak", lambda place: heap is not None and place == heap.peak_place),
    )
    largest = sorted(grown, key=lambda place: -grown[place])[:_SPIKES]
    why = NO_MODULES if heap is None else f"the heap of {heap.module} does not grow within its schedule"
    return table_of("spikes", "Largest jumps of the planned heap", "static", fields, largest, (), why)


def _estimate(heap: Heap | None) -> Table:
    own = [buffer for buffer in heap.alive if memory_rules.category(buffer) == PARAMETERS] if heap else []
    count = sum(math.prod(memory_rules.dimensions(buffer.shape)) for buffer in own)
    optimizer = sum(
        buffer.stored_bytes for buffer in (heap.alive if heap else ()) if memory_rules.category(buffer) == OPTIMIZER
    )
    fields: Fields[Heap] = (
        Field("parameters", "parameters", lambda _: count, "count"),
        Field("estimate_bytes", "estimate (predicted)", lambda _: count * TRAINING_BYTES_PER_PARAMETER, "B"),
        Field("static_peak_bytes", "planned peak (static)", lambda heap: heap.peak_bytes, "B"),
        Field("parameter_bytes", "parameters take", lambda _: sum(buffer.stored_bytes for buffer in own), "B"),
        Field("optimizer_bytes", "optimizer takes", lambda _: optimizer, "B"),
    )
    notes = ["16 bytes a parameter: weights 2, gradients 2, Adam 4 + 4, master copy 4; activations come on top."]
    if not optimizer:
        notes.append("No optimizer state is alive: for inference 2 bytes a parameter (bf16) are to be expected.")
    why = NO_MODULES if heap is None else f"no argument of {heap.module} is called a parameter"
    title = "The peak against the estimate from the parameters"
    return table_of("estimate", title, "mixed", fields, [heap] if heap and own else [], notes, why)
