"""Words and edits about blocks that several rules use: short steps, room for a larger block, fetching further ahead."""

from dataclasses import replace

from harness.advice.kernel_changes import Kind
from harness.advice.observed import Observed, blocks, fits, grown_vmem, vmem_after
from harness.advice.rules.rule import RuleCase
from harness.records import Edit, Window
from harness.units import count

# The largest key block of the best published attention kernels: with a larger one the tile of scores spills.
LARGE_KEY_BLOCK = 2048
# A step that is shorter than this cannot hide the fetch of the next step's block, because about a microsecond passes
# before the first byte of a block arrives (DMA latency).
SHORT_STEP_SECONDS = 1e-6


def larger_key_block(seen: Observed) -> Edit | None:
    """The edit that makes attention's key/value block 4 or else 2 times as large; None if neither is possible."""
    if not seen.is_attention:
        return None
    key = seen.inputs[1]
    rows, factor = key.block_shape[-2], 4
    most = min(key.array.shape[-2], LARGE_KEY_BLOCK)
    while factor >= 2 and not (rows * factor <= most and fits(seen, rows, factor)):
        factor //= 2
    if factor < 2:
        return None
    return Edit(window=key.name, axis=-2, size=rows, new=rows * factor)


def raise_words(edit: Edit) -> str:
    """The advice to make this edit of the key/value block."""
    return f"raise the key/value block (rows of {edit.window}'s block, now {edit.size}) to {edit.new}"


def doubling_edits(seen: Observed) -> tuple[Edit, ...]:
    """Edits that double an input's block along one axis, up to the axis's length.

    Axes along which the block has only one element, or all elements of the array, are left out.
    """
    return tuple(
        Edit(
            window=window.name,
            axis=axis,
            size=window.block_shape[axis],
            new=min(2 * window.block_shape[axis], window.array.shape[axis]),
        )
        for window in seen.inputs
        if len(window.block_shape) == len(window.array.shape)
        for axis in range(-len(window.block_shape), 0)
        if 1 < window.block_shape[axis] < window.array.shape[axis]
    )


def fetch_ahead(seen: Observed, names: str, observation: str) -> RuleCase:
    """A case that advises to overlap the transfers of the inputs `names` with arithmetic; the gain has no bound.

    A BlockSpec of pl.pallas_call takes one or two buffers; an input's BlockSpec of pltpu.emit_pipeline takes more (jax
    0.10.2).
    """
    knob: str = "buffers"
    kind: Kind = "body"
    edits: tuple[Edit, ...] = ()
    larger = larger_key_block(seen) if seen.steps != 1 else None
    grown = grown_vmem(seen, lambda window: 2.0 if window.buffers > 1 else 1.0)
    if seen.steps == 1:
        words = (
            f"leave {names} in HBM (a BlockSpec with memory_space=pl.ANY) and fetch the next part with "
            "pltpu.make_async_copy while the kernel computes with the current part: a grid of one step fetches whole "
            "blocks before it computes"
        )
    elif larger:
        knob, kind, edits = "key block", "constants", (larger,)
        words = f"{raise_words(larger)}: each step then has more arithmetic to hide a transfer behind"
    elif not seen.is_attention and grown <= seen.report.vmem_limit_bytes:
        knob, kind, edits = "block", "constants", doubling_edits(seen)
        words = f"double the blocks of {names}: VMEM has room, and each transfer is then longer"
    else:
        words = (
            f"fetch {names} further ahead (a pallas_call's BlockSpec takes at most two buffers): leave the arrays in "
            "pl.ANY and walk them inside the kernel with pltpu.emit_pipeline, whose input BlockSpecs take "
            "pipeline_mode=pl.Buffered(3), or with pltpu.make_async_copy into three slots of a scratch buffer"
        )
    return RuleCase(observation=observation, suggestion=words, knob=knob, kind=kind, edits=edits)


def walked_input(seen: Observed) -> tuple[Window, int] | None:
    """The largest input window that the grid walks in blocks that can be halved, and the axis; None without one.

    A block of one head cannot be halved. An array that the kernel copies by hand has no block.
    """
    walks = [
        (window, axis)
        for window in seen.inputs
        if len(window.block_shape) == len(window.array.shape) and all(window.block_shape) and blocks(window) > 1
        for axis, (size, block) in enumerate(zip(window.array.shape, window.block_shape, strict=True))
        if 1 < block < size
    ]
    return max(walks, key=lambda item: item[0].vmem_bytes, default=None)


def within_vmem(seen: Observed, finding: RuleCase) -> RuleCase | None:
    """`finding` without edits that, by an estimate, exceed the kernel's VMEM limit; the suggestion says what they need.

    None if no edit is left and no limit of this chip has room for one of them.
    """
    if seen.chip.platform != "tpu":
        return finding
    needed = {edit: vmem_after(seen, edit.axis, edit.size, edit.new) for edit in finding.edits}
    # The estimate may exceed the memory of a kernel that fits, so an edit that shrinks a block always fits.
    limit = seen.report.vmem_limit_bytes
    fitting = tuple(edit for edit in finding.edits if edit.new <= edit.size or needed[edit] <= limit)
    if len(fitting) == len(finding.edits):
        return finding
    raised = [edit for edit in finding.edits if edit not in fitting and needed[edit] < seen.chip.vmem_bytes]
    if not (fitting or raised):
        return None
    words = finding.suggestion
    for new, least in {edit.new: needed[edit] for edit in raised}.items():
        words += f"; {limit_words(seen, str(new), least)}"
    return replace(finding, edits=fitting, suggestion=words)


def limit_words(seen: Observed, name: str, needed: float) -> str:
    """The advice to raise the VMEM limit as well, for a block called `name` that makes the call need `needed` bytes."""
    return (
        f"{name} needs about {count(needed)} bytes of VMEM: in the same attempt, raise vmem_limit_bytes in "
        f"pltpu.CompilerParams (now {count(seen.report.vmem_limit_bytes)}) above that"
    )
