"""The chips by name and by JAX's device kind, and slices of chips; the facts of each chip are in harness/chips."""

from dataclasses import replace
from math import prod

from harness import chips
from harness.chips.row import Chip as Chip
from harness.chips.row import Links
from harness.errors import UsageError

# The chips that kernels are judged for; a row of harness/chips that has only figures serves predictions.
CHIPS = tuple(
    listed_chip for listed_chip in (chips.row(name).chip for name in chips.names()) if isinstance(listed_chip, Chip)
)
TPUS = tuple(listed_chip for listed_chip in CHIPS if listed_chip.platform == "tpu")
GPUS = tuple(listed_chip for listed_chip in CHIPS if listed_chip.platform == "cuda")
# The chip to judge and predict for if nothing names another chip.
DEFAULT_CHIP = "v5e"
# Chips whose programs address other chips by numbers that are larger than any chip's number (libtpu 0.0.42).
_NUMBERED_BY_CORE = ("v4",)


def chip(name: str) -> Chip:
    """The chip called `name` (`v5e`, any case). Raises UsageError `unknown-chip`, which names the chips."""
    for candidate in CHIPS:
        if candidate.name == name.strip().lower():
            return candidate
    names = ", ".join(candidate.name for candidate in CHIPS)
    raise UsageError("unknown-chip", f"unknown chip {name!r}: expected one of {names}")


def chip_of_device(device_kind: str) -> Chip | None:
    """The chip that a device reports as `device_kind` (`TPU v5 lite`, any case), or None if it is not in the table."""
    kind = device_kind.strip().lower()
    for candidate in CHIPS:
        if kind in (listed_kind.lower() for listed_kind in candidate.device_kinds):
            return candidate
    return None


def slice_shape(count: int, links: Links) -> tuple[int, ...]:
    """The sizes of the axes of a slice of `count` chips: as equal as they can be, the smallest first, axes of 1 last.

    Raises UsageError `unknown-slice` if `count` chips do not fill a slice.
    """
    shape: list[int] = []
    rest = count
    for axes in range(links.axes, 0, -1):
        size = max(size for size in range(1, rest + 1) if rest % size == 0 and size**axes <= rest)
        shape.append(size)
        rest //= size
    if prod(shape) != count or (count > 1 and shape.count(1) > links.axes - 2) or count & count - 1:
        raise UsageError("unknown-slice", f"expected chips that fill a slice such as 2x2, 2x4 or 4x4, got {count}")
    # In a torus of three axes a slice of four chips is flat.
    return tuple(sorted(shape, key=lambda size: size == 1))


def with_mesh(chip: Chip, mesh: tuple[tuple[str, int], ...]) -> Chip:
    """The chip as part of a slice with these axes; unchanged if `mesh` is empty. Raises UsageError `unknown-slice`."""
    if not mesh:
        return chip
    if chip.cores > 1:
        raise UsageError(
            "unknown-slice", f"problems on several chips are not judged for {chip.name}: expected v5e or v6e"
        )
    return replace(chip, mesh=mesh, topology=slice_topology(chip, prod(size for _, size in mesh)))


def slice_topology(chip: Chip, count: int) -> str:
    """The TPU compiler's name for a slice of `count` chips, such as `v5e:2x4`.

    Raises UsageError `unknown-slice`.
    """
    links = chips.row(chip.name).links
    if links is None or chip.topology is None:
        raise UsageError(
            "unknown-slice", f"programs on several chips are not simulated for {chip.name}: expected v5e, v5p or v6e"
        )
    if trouble := why_not_several(chip):
        raise UsageError("unknown-slice", f"{trouble}: expected v5e, v5p or v6e")
    sizes = "x".join(map(str, slice_shape(count, links)))
    return f"{chip.topology.partition(':')[0]}:{sizes}"


def why_not_several(chip: Chip) -> str:
    """The reason why programs on several chips of this kind are not simulated, or ""."""
    if chip.name in _NUMBERED_BY_CORE:
        return (
            f"programs on several chips are not simulated for {chip.name}, whose programs name the cores of other "
            "chips in a way that is not understood"
        )
    if chip.device == "core":
        return (
            f"programs on several chips are not simulated for {chip.name}: two devices share the links of a chip, and "
            "XLA offloads collectives to the SparseCore, which is not modelled (they stay on the TensorCore with "
            "--xla_tpu_enable_sparse_core_collective_offload_all_gather=false, likewise all_reduce and reduce_scatter)"
        )
    return ""
