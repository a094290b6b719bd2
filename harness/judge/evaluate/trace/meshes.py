"""The mesh of chips on which a program runs, for tracing and lowering on a machine without these chips."""

from collections.abc import Sequence
from typing import Any

import jax
from jax.sharding import NamedSharding, PartitionSpec

from harness.hardware import Chip
from harness.records import Array
from harness.sandbox import arrays, asked_device

# For each dimension of each array, the mesh axis over which the dimension is split (None: not split).
Splits = tuple[tuple[str | None, ...], ...]


def splits(inputs: Sequence[Array]) -> Splits:
    """The splits of these arrays, in their order."""
    return tuple(array.split for array in inputs)


def placements(splits: Splits, mesh: Any) -> tuple[NamedSharding, ...]:
    """The NamedSharding of each array on `mesh`, from its split."""
    return tuple(NamedSharding(mesh, PartitionSpec(*split)) for split in splits)


def shapes(inputs: Sequence[Array], mesh: Any) -> tuple[jax.ShapeDtypeStruct, ...]:
    """The shapes of these arrays, split over the axes of `mesh`; without shardings if `mesh` is None."""
    avals = [jax.ShapeDtypeStruct(array.shape, arrays.dtype(array.dtype)) for array in inputs]
    return _with_shardings(avals, placements(splits(inputs), mesh) if mesh is not None else ())


def placed(avals: Sequence[Any], splits: Splits, chip: Chip) -> tuple[jax.ShapeDtypeStruct, ...]:
    """The shapes of these values, split over the mesh of chips; without shardings for a single chip."""
    return _with_shardings(avals, placements(splits, asked_device.abstract_mesh(chip)) if chip.mesh else ())


def _with_shardings(avals: Sequence[Any], places: Sequence[NamedSharding]) -> tuple[jax.ShapeDtypeStruct, ...]:
    pairs = zip(avals, places or (None,) * len(avals), strict=True)
    return tuple(jax.ShapeDtypeStruct(aval.shape, aval.dtype, sharding=place) for aval, place in pairs)
