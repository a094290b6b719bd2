"""What would make a training step's memory smaller: whether it recomputes its activations, what each remedy saves."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate, pairwise

from harness import units
from harness.records import Table
from harness.workbench.hlo.training_memory import CHUNKS
from harness.workbench.profiles import memory_rules
from harness.workbench.profiles.buffers import Buffer, Heap
from harness.workbench.profiles.memory import NO_MODULES
from harness.workbench.profiles.memory_rules import LOGITS, OPTIMIZER, PARAMETERS
from harness.workbench.tables import Field, Fields, table_of

# How JAX calls what jax.checkpoint computes again, and the two halves of a derivative.
_AGAIN, _BACKWARD, _FORWARD = "rematted_computation", "transpose(", "jvp("
# Ours: a rise of less than this part of what the forward half leaves is no recomputation worth the name.
_RISE = 0.05


@dataclass(frozen=True, slots=True, kw_only=True)
class Half:
    """A half of a training step: its activations, in bytes, from its first change of the heap to its last."""

    name: str
    levels: tuple[float, ...]

    @property
    def made(self) -> float:
        """What rises add up to."""
        return sum(max(0.0, after - before) for before, after in pairwise(self.levels))

    @property
    def rises(self) -> int:
        """How often it rises after it fell, or rises at first."""
        ways = [after > before for before, after in pairwise(self.levels) if after != before]
        return sum(is_up for is_up, was_up in zip(ways, [False, *ways], strict=False) if not was_up)


def halves(heap: Heap) -> tuple[Half, ...]:
    """The forward and the backward half of the schedule; none where no buffer of a backward pass is made.

    Activations are what the forward pass makes, and what is computed again for the backward pass.
    """
    begins = min((life.first + 1 for life in heap.lives if _BACKWARD in life.op_name), default=None)
    kept = [life for life in heap.lives if _is_activation(life.op_name)]
    if begins is None or not kept:
        return ()
    changes = [0.0] * len(heap.heap_bytes)
    for life in kept:
        # Made by the change `first`, so that it is there after it, and gone with the one after `last`.
        for at, size in ((life.first + 1, life.stored_bytes), (life.last + 1, -life.stored_bytes)):
            if at < len(changes):
                changes[at] += size
    levels = list(accumulate(changes))
    return (
        Half(name="forward", levels=tuple(levels[:begins])),
        Half(name="backward", levels=tuple(levels[begins - 1 :])),
    )


def _is_activation(op_name: str) -> bool:
    return _AGAIN in op_name or (_FORWARD in op_name and _BACKWARD not in op_name)


_HALVES: Fields[Half] = (
    Field("half", "half", lambda half: half.name),
    Field("first_bytes", "begins with", lambda half: half.levels[0], "B"),
    Field("most_bytes", "most", lambda half: max(half.levels), "B"),
    Field("last_bytes", "ends with", lambda half: half.levels[-1], "B"),
    Field("made_bytes", "made", lambda half: half.made, "B"),
    Field("rises", "rises", lambda half: half.rises, "count"),
)


def activations_table(heap: Heap | None) -> Table:
    """Activations in both halves, and whether the backward half makes them anew."""
    found = halves(heap) if heap else ()
    notes: tuple[str, ...] = ()
    if found:
        forward, backward = found
        is_again = backward.made > _RISE * max(forward.levels)
        said = (
            f"They fall and rise in the backward half: {units.decimal(backward.made, 'B')} are recomputed "
            f"(jax.checkpoint), {units.decimal(backward.levels[0], 'B')} are kept for it."
            if is_again
            else f"They only fall in the backward half: all {units.decimal(max(forward.levels), 'B')} are kept for it, "
            "nothing is recomputed. jax.checkpoint trades them for a second forward pass."
        )
        notes = (
            said,
            "Activations: temporaries of the forward pass, and what is computed again, by their names in JAX.",
        )
    why = NO_MODULES if heap is None else (
        f"{heap.module} keeps no temporary from a forward for a backward pass: it is no training step, or a loop holds "
        "both passes"
    )  # fmt: skip
    return table_of("activations", "Activations over the schedule", "static", _HALVES, found, notes, why)


@dataclass(frozen=True, slots=True, kw_only=True)
class Remedy:
    """What takes memory away from the peak, at most `saved_bytes`, and what that costs."""

    name: str
    saved_bytes: float
    of: str
    how: str


_REMEDIES: Fields[tuple[Remedy, float]] = (
    Field("remedy", "remedy", lambda one: one[0].name, is_whole=True),
    Field("saved_bytes", "saves at most", lambda one: one[0].saved_bytes, "B"),
    Field("saved_fraction", "of the peak", lambda one: one[0].saved_bytes / one[1], "fraction"),
    Field("of", "of", lambda one: one[0].of),
    Field("how", "how", lambda one: one[0].how),
)


def remedies_table(heap: Heap | None) -> Table:
    """The remedies that the buffers alive at the peak leave room for, the largest first."""
    found = sorted(remedies(heap), key=lambda one: -one.saved_bytes) if heap else []
    note = (
        "Upper bounds, read off the buffers alive at the peak: another moment may become the peak then, and the "
        "compiler may plan anew."
    )
    peak = heap.peak_bytes if heap else 1.0
    why = NO_MODULES if heap is None else (
        f"nothing alive at the peak of {heap.module} is by its name a parameter, an optimizer's state, logits or an "
        "activation"
    )  # fmt: skip
    title = "What would make the peak smaller"
    return table_of("remedies", title, "static", _REMEDIES, [(one, peak) for one in found], (note,), why)


def remedies(heap: Heap) -> Iterator[Remedy]:
    """Each remedy of the published analysis that has something to save here."""
    alive: dict[str, list[Buffer]] = {}
    for buffer in heap.alive:
        alive.setdefault(memory_rules.category(buffer), []).append(buffer)
    logits = _bytes(alive.get(LOGITS, ()))
    if logits:
        yield Remedy(
            name="chunked cross entropy", saved_bytes=logits * (1 - 1 / CHUNKS), of="logits",
            how=f"compute the loss in {CHUNKS} pieces of the sequence (jax.lax.map under jax.checkpoint)",
        )  # fmt: skip
    is_recomputed = any(_AGAIN in life.op_name for life in heap.lives)
    kept = [
        buffer for buffer in heap.alive
        if buffer.group == "Temporary" and memory_rules.category(buffer) != LOGITS
        and _FORWARD in buffer.op_name and _BACKWARD not in buffer.op_name
    ]  # fmt: skip
    # What is recomputed is alive again while it is used, one piece at a time.
    saved = _bytes(kept) - max((buffer.stored_bytes for buffer in kept), default=0.0)
    if saved > 0 and not is_recomputed:
        yield Remedy(
            name="rematerialisation", saved_bytes=saved, of="activations kept for the backward pass",
            how="jax.checkpoint around each layer: about one forward pass more",
        )  # fmt: skip
    moments = [buffer for buffer in alive.get(OPTIMIZER, ()) if buffer.shape.startswith("f32")]
    if moments:
        yield Remedy(
            name="bfloat16 optimizer state", saved_bytes=_bytes(moments) / 2, of="float32 optimizer state",
            how="such as optax.adamw(mu_dtype=jnp.bfloat16); the second moment needs care",
        )  # fmt: skip
    state = [*alive.get(PARAMETERS, ()), *alive.get(OPTIMIZER, ())]
    if state:
        yield Remedy(
            name="sharding over twice the devices", saved_bytes=_bytes(state) / 2, of="parameters and optimizer state",
            how="NamedSharding along a data axis (FSDP): weights are gathered layer by layer",
        )  # fmt: skip


def _bytes(buffers: Sequence[Buffer]) -> float:
    return sum(buffer.stored_bytes for buffer in buffers)
