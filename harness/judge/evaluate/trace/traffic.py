"""Computes the traffic and buffers of a Pallas call from its index maps at every grid step and its padded blocks."""

import math
from dataclasses import replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.extend import core
from numpy.typing import NDArray

from harness.hardware import Chip
from harness.judge.evaluate.trace import grids
from harness.records import Array, PallasCall, Scratch, Window
from harness.sandbox.messages import Rejected

# The tile of TPU vector memory: 128 lanes by 8 sublanes of 32 bits; narrower types pack
# 2 or 4 rows into a sublane (JAX documentation, "Pallas TPU: quickstart and details").
_LANES = 128
_SUBLANES = 8
_BY_HAND = ("any", "hbm", "host")
_ON_CHIP = ("default", "none", "vmem")


def pallas_call(equation: Any, chip: Chip, grid: tuple[int | None, ...], *, is_called_once: bool = True) -> PallasCall:
    """The record of a `pallas_call` equation with this grid, traffic included.

    The traffic is None if the call stands in a loop or a branch of the program (not `is_called_once`). It is also None
    on a GPU, because the kernel itself loads from a block, and does so an unknown number of times. Raises Rejected
    `dynamic-grid` or `overlapping-windows`.
    """
    mapping = equation.params["grid_mapping"]
    bounds = tuple(bound for bound in grid if bound is not None)
    if len(bounds) < len(grid):
        raise Rejected(
            "static",
            "dynamic-grid",
            f"expected grid bounds that are constants or are computed from the problem's tables, got {_words(grid)}: "
            "the number of steps and the traffic are unknown; compute the bounds from integer inputs, outside of loops",
        )
    names = _operand_names(equation)
    tables = [
        _table(name, var.aval)
        for name, var in zip(names, equation.params["jaxpr"].invars[: mapping.num_index_operands], strict=False)
    ]
    steps = _grid_points(bounds)
    roles = ("input",) * mapping.num_inputs + ("output",) * mapping.num_outputs
    windows = [
        _window(names[mapping.num_index_operands + i], roles[i], block, steps, chip)
        for i, block in enumerate(mapping.block_mappings)
    ]
    if not is_called_once:
        windows = [replace(window, fetches=None, hbm_bytes=None) for window in windows]
    options = equation.params["compiler_params"]
    semantics = getattr(options, "dimension_semantics", None) or ()
    if mapping.vmapped_dims:
        semantics = grids.semantics(equation)
    return PallasCall(
        name=str(equation.params.get("name") or "pallas_call"),
        grid=bounds,
        dimension_semantics=tuple(str(getattr(kind, "value", kind)) for kind in semantics),
        windows=(*tables, *windows),
        scratch=tuple(_scratch(aval) for aval in mapping.scratch_avals),
        vmem_limit_bytes=getattr(options, "vmem_limit_bytes", None),
    )


def _words(grid: tuple[int | None, ...]) -> str:
    return " x ".join("?" if bound is None else str(bound) for bound in grid)


def _operand_names(equation: Any) -> list[str]:
    """The names that the kernel gives to its references, without `_ref`."""
    jaxpr = equation.params["jaxpr"]
    names = getattr(jaxpr.debug_info, "arg_names", None) or ()
    names = [str(name or "").removesuffix("_ref") for name in names]
    names += [""] * (len(jaxpr.invars) - len(names))
    return [name or f"operand {position}" for position, name in enumerate(names)]


def _grid_points(grid: tuple[int, ...]) -> tuple[NDArray[np.int32], ...]:
    """The index along each axis at every step, last axis fastest: the order in which a TPU runs the grid."""
    return tuple(axis.reshape(-1).astype(np.int32) for axis in np.indices(grid)) if grid else ()


def _table(name: str, aval: Any) -> Window:
    """A scalar-prefetch operand, which is fetched into SMEM once and as a whole."""
    aval = getattr(aval, "inner_aval", aval)
    array = Array(name=name, shape=tuple(aval.shape), dtype=str(aval.dtype))
    return Window(
        name=name,
        role="input",
        array=array,
        block_shape=array.shape,
        memory_space="smem",
        buffers=1,
        fetches=1,
        hbm_bytes=_bytes(array.shape, aval.dtype),
        vmem_bytes=0,
    )


def _window(name: str, role: Any, block: Any, steps: tuple[NDArray[np.int32], ...], chip: Chip) -> Window:
    aval = block.array_aval
    array = Array(name=name, shape=tuple(aval.shape), dtype=str(aval.dtype))
    shape = tuple(int(getattr(extent, "block_size", 1)) for extent in block.block_shape)
    # The kernel does not see squeezed dimensions, and they are not padded.
    inner = tuple(int(extent.block_size) for extent in block.block_shape if hasattr(extent, "block_size"))
    space = str(block.transformed_block_aval.memory_space).lower() if chip.platform == "tpu" else "hbm"
    if space in _BY_HAND:
        return Window(
            name=name,
            role=role,
            array=array,
            block_shape=shape,
            memory_space=space,
            buffers=0,
            fetches=None,
            hbm_bytes=None,
            vmem_bytes=0,
        )
    places = _places(block, steps)
    if role == "output":
        _refuse_overlapping(name, block, shape, places)
    fetches = moved = None
    buffers = 2
    if places is not None:
        changed = np.ones(len(places), dtype=bool)
        changed[1:] = (places[1:] != places[:-1]).any(axis=1)
        fetches = int(changed.sum())
        moved = _moved_bytes(block, shape, array, places[changed])
        buffers = 1 if fetches == 1 else 2
    if block.pipeline_mode is not None:
        buffers = int(block.pipeline_mode.buffer_count)
    on_chip = space in _ON_CHIP
    return Window(
        name=name,
        role=role,
        array=array,
        block_shape=shape,
        memory_space="vmem" if on_chip else space,
        buffers=buffers,
        fetches=fetches,
        hbm_bytes=moved,
        vmem_bytes=buffers * padded_bytes(inner, aval.dtype) if on_chip else 0,
    )


def _places(block: Any, steps: tuple[NDArray[np.int32], ...]) -> NDArray[np.int64] | None:
    """The block index at every step `[steps, dimensions]`, or None if it depends on prefetched values."""
    closed = block.index_map_jaxpr
    jaxpr = closed.jaxpr
    tables = set(jaxpr.invars[len(steps) :])
    if any(var in tables for equation in jaxpr.eqns for var in equation.invars if isinstance(var, core.Var)):
        return None
    count = len(steps[0]) if steps else 1
    step_numbers = dict(zip(jaxpr.invars, steps, strict=False))
    if any(not isinstance(out, core.Literal) and out not in step_numbers for out in jaxpr.outvars):
        results = jax.vmap(lambda *at: _evaluate(closed, at), axis_size=count)(*steps)
    else:
        results = [out.val if isinstance(out, core.Literal) else step_numbers[out] for out in jaxpr.outvars]
    columns = [np.broadcast_to(np.asarray(result, dtype=np.int64), (count,)) for result in results]
    return np.stack(columns, axis=1) if columns else np.zeros((count, 0), dtype=np.int64)


def _evaluate(closed: Any, at: tuple[Any, ...]) -> Any:
    """The block index at one grid step by the index map `closed`, which must read no table."""
    jaxpr = _without_hints(closed.jaxpr)
    return core.jaxpr_as_fun(closed.replace(jaxpr=jaxpr.replace(invars=jaxpr.invars[: len(at)])))(*at)


def _without_hints(jaxpr: Any) -> Any:
    """The same index map without `pl.multiple_of`, for which JAX (0.10.2, 0.12.0) has no batching rule."""
    meant: dict[Any, Any] = {}

    def of(var: Any) -> Any:
        return meant.get(var, var) if isinstance(var, core.Var) else var

    equations = []
    for equation in jaxpr.eqns:
        if equation.primitive.name == "multiple_of":
            meant[equation.outvars[0]] = of(equation.invars[0])
        else:
            equations.append(equation.replace(invars=[of(var) for var in equation.invars]))
    return jaxpr.replace(eqns=equations, outvars=[of(var) for var in jaxpr.outvars])


def _refuse_overlapping(name: str, block: Any, shape: tuple[int, ...], places: NDArray[np.int64] | None) -> None:
    """Raises Rejected `overlapping-windows` if two windows of an output share elements or may share elements.

    Each window is copied out while the next window is filled, so either window's values may remain.
    """
    extents = [type(extent).__name__ for extent in block.block_shape]
    axes = [axis for axis, extent in enumerate(extents) if extent == "Element"]
    if not axes:
        return
    overlap = (
        "a table decides where its windows begin"
        if places is None
        else _overlap(axes, shape, np.unique(places, axis=0))
    )
    if overlap:
        raise Rejected(
            "static",
            "overlapping-windows",
            f"expected windows of the output {name} that do not overlap, got some that may: {overlap}. Use blocks "
            "(without pl.Element), or windows at multiples of their size",
        )


def _overlap(axes: list[int], shape: tuple[int, ...], places: NDArray[np.int64]) -> str:
    """A description of two windows that share elements, or "".

    `places` count elements along `axes`, and blocks along the other axes.
    """
    sizes = np.ones(len(shape), dtype=np.int64)
    sizes[axes] = [shape[axis] for axis in axes]
    # Along the axis with the most places, few windows are close to each other, so few pairs have to be compared.
    first = max(range(len(shape)), key=lambda axis: len(np.unique(places[:, axis])))
    places = places[np.argsort(places[:, first], kind="stable")]
    for apart in range(1, len(places)):
        difference = np.abs(places[apart:] - places[:-apart])
        if (difference[:, first] >= sizes[first]).all():
            break
        shared = (difference < sizes).all(axis=1)
        if shared.any():
            at = int(np.argmax(shared))
            window, other = (tuple(int(place) for place in places[which]) for which in (at, at + apart))
            return f"those at {window} and {other}, of {shape} elements"
    return ""


def _moved_bytes(block: Any, shape: tuple[int, ...], array: Array, places: NDArray[np.int64]) -> int:
    """Bytes of all fetched blocks; a block that reaches past the end of the array is cut off at the end."""
    elements = np.ones(len(places), dtype=np.int64)
    for axis, (extent, size, whole) in enumerate(zip(block.block_shape, shape, array.shape, strict=True)):
        if type(extent).__name__ in ("Blocked", "Squeezed"):
            elements *= np.clip(whole - places[:, axis] * size, 0, size)
        else:
            elements *= size
    return int(elements.sum()) * jnp.dtype(array.dtype).itemsize


def _scratch(aval: Any) -> Scratch:
    inner = getattr(aval, "inner_aval", aval)
    space = str(getattr(aval, "memory_space", "vmem")).lower()
    shape = tuple(getattr(inner, "shape", ()))
    dtype = getattr(inner, "dtype", None)
    return Scratch(
        shape=shape,
        dtype=str(dtype),
        memory_space=space,
        vmem_bytes=padded_bytes(shape, dtype) if space in _ON_CHIP else 0,
    )


def padded_bytes(shape: tuple[int, ...], dtype: Any) -> int:
    """Bytes of an array in VMEM: the last axis is padded to 128 lanes, the axis before it to whole sublanes."""
    itemsize: int = jnp.dtype(dtype).itemsize
    if not shape:
        shape = (1,)
    rows = _SUBLANES * max(1, 4 // itemsize)
    if len(shape) == 1:
        return _round_up(shape[0], _LANES * rows) * itemsize
    padded = (*shape[:-2], _round_up(shape[-2], rows), _round_up(shape[-1], _LANES))
    return math.prod(padded) * itemsize


def _round_up(value: int, multiple: int) -> int:
    return -(-value // multiple) * multiple


def _bytes(shape: tuple[int, ...], dtype: Any) -> int:
    return math.prod(shape) * int(jnp.dtype(dtype).itemsize)
