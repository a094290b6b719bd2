"""Computes the traffic of a Pallas call from its index maps at every grid step, and its buffers from padded blocks."""

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

# The tile of TPU vector memory: 128 lanes by 8 sublanes of 32 bits. Narrower types pack 2 or 4 rows into a sublane
# (JAX documentation, "Pallas TPU: quickstart and details").
_LANES = 128
_SUBLANES = 8
_BY_HAND = ("any", "hbm", "host")
_ON_CHIP = ("default", "none", "vmem")


def pallas_call(equation: Any, chip: Chip, grid: tuple[int | None, ...], *, is_called_once: bool = True) -> PallasCall:
    """The record of a `pallas_call` equation with this grid, traffic included.

    The traffic of an operand is None in each of these cases:

    - The call is in a loop or branch of the program (not `is_called_once`).
    - Prefetched values decide which blocks are fetched.
    - The kernel copies the operand itself.
    - The chip is a GPU, whose kernels load from their blocks an unknown number of times.

    Raises Rejected `dynamic-grid` or `overlapping-windows`.
    """
    mapping = equation.params["grid_mapping"]
    bounds = tuple(bound for bound in grid if bound is not None)
    if len(bounds) < len(grid):
        sizes = " x ".join("?" if bound is None else str(bound) for bound in grid)
        message = (
            f"expected a grid of known size, got {sizes}: neither constants nor the problem's tables determine the "
            "bounds marked ?; compute them from integer inputs, outside of loops"
        )
        raise Rejected("static", "dynamic-grid", message)
    names = _operand_names(equation)
    count = mapping.num_index_operands
    tables = [_table(name, var.aval) for name, var in zip(names, equation.params["jaxpr"].invars[:count], strict=False)]
    # The index along each axis at every step. The last axis varies fastest, as when a TPU runs the grid.
    steps = tuple(axis.reshape(-1).astype(np.int32) for axis in np.indices(bounds)) if bounds else ()
    roles = ("input",) * mapping.num_inputs + ("output",) * mapping.num_outputs
    blocks = zip(names[count:], roles, mapping.block_mappings, strict=False)
    windows = [_window(name, role, block, steps, chip) for name, role, block in blocks]
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


def _operand_names(equation: Any) -> list[str]:
    """The names that the kernel gives to its references, without `_ref`."""
    jaxpr = equation.params["jaxpr"]
    names = getattr(jaxpr.debug_info, "arg_names", None) or ()
    names = [str(name or "").removesuffix("_ref") for name in names]
    names += [""] * (len(jaxpr.invars) - len(names))
    return [name or f"operand {position}" for position, name in enumerate(names)]


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
        hbm_bytes=math.prod(array.shape) * int(jnp.dtype(aval.dtype).itemsize),
        vmem_bytes=0,
    )


def _window(name: str, role: Any, block: Any, steps: tuple[NDArray[np.int32], ...], chip: Chip) -> Window:
    aval = block.array_aval
    array = Array(name=name, shape=tuple(aval.shape), dtype=str(aval.dtype))
    shape = tuple(int(getattr(extent, "block_size", 1)) for extent in block.block_shape)
    # The kernel does not see squeezed dimensions, and they are not padded.
    inner = tuple(int(extent.block_size) for extent in block.block_shape if hasattr(extent, "block_size"))
    space = str(block.transformed_block_aval.memory_space).lower() if chip.platform == "tpu" else "hbm"
    on_chip = space in _ON_CHIP
    fetches = moved = None
    buffers = 0
    if space not in _BY_HAND:
        places = _places(block, steps)
        if role == "output":
            _refuse_overlapping(name, block, shape, places)
        buffers = 2
        if places is not None:
            changed = np.ones(len(places), dtype=bool)
            changed[1:] = (places[1:] != places[:-1]).any(axis=1)
            fetches = int(changed.sum())
            moved = _moved_bytes(block, shape, array, places[changed])
            buffers = 1 if fetches == 1 else 2
        if block.pipeline_mode is not None:
            buffers = int(block.pipeline_mode.buffer_count)
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
    closed, jaxpr = block.index_map_jaxpr, block.index_map_jaxpr.jaxpr
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
    operand_of: dict[Any, Any] = {}

    def unhinted(variables: list[Any]) -> list[Any]:
        return [operand_of.get(var, var) if isinstance(var, core.Var) else var for var in variables]

    equations = []
    for equation in jaxpr.eqns:
        operands = unhinted(equation.invars)
        if equation.primitive.name == "multiple_of":
            operand_of[equation.outvars[0]] = operands[0]
        else:
            equations.append(equation.replace(invars=operands))
    return jaxpr.replace(eqns=equations, outvars=unhinted(jaxpr.outvars))


def _refuse_overlapping(name: str, block: Any, shape: tuple[int, ...], places: NDArray[np.int64] | None) -> None:
    """Raises Rejected `overlapping-windows` if two windows of an output share elements or may share elements.

    Each window is copied out while the next window is filled, so the values of either window may remain.
    """
    axes = [axis for axis, extent in enumerate(block.block_shape) if type(extent).__name__ == "Element"]
    if not axes:
        return
    overlap = "a table decides where they begin"
    if places is not None:
        overlap = _overlap(axes, shape, np.unique(places, axis=0))
    if overlap:
        message = f"expected windows of the output {name} that do not overlap, got windows that may: {overlap}"
        remedy = "use blocks (without pl.Element), or windows at multiples of their size"
        raise Rejected("static", "overlapping-windows", f"{message}; {remedy}")


def _overlap(axes: list[int], shape: tuple[int, ...], places: NDArray[np.int64]) -> str:
    """A description of two windows that share elements, or "".

    `places` count elements along `axes`, and blocks along the other axes.
    """
    sizes = np.ones(len(shape), dtype=np.int64)
    sizes[axes] = [shape[axis] for axis in axes]
    # Few windows are close to each other along the axis with the most places, so few pairs must be compared.
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
        is_block = type(extent).__name__ in ("Blocked", "Squeezed")
        elements *= np.clip(whole - places[:, axis] * size, 0, size) if is_block else size
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
    """Bytes of an array in VMEM: the last axis is padded to 128 lanes, the axis before it to 8 sublanes of 32 bits.

    A vector is padded to a whole tile of 8 sublanes by 128 lanes.
    """
    itemsize: int = jnp.dtype(dtype).itemsize
    shape = shape or (1,)
    rows = _SUBLANES * max(1, 4 // itemsize)
    if len(shape) == 1:
        return _round_up(shape[0], _LANES * rows) * itemsize
    padded = (*shape[:-2], _round_up(shape[-2], rows), _round_up(shape[-1], _LANES))
    return math.prod(padded) * itemsize


def _round_up(value: int, multiple: int) -> int:
    return -(-value // multiple) * multiple
