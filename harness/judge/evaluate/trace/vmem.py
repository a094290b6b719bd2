"""Finds Pallas calls that cannot fit into VMEM, because their blocks and scratch alone exceed it.

The sum is a lower bound; tests/judge/evaluate/test_vmem.py compares it with libtpu on both sides of the limit. The sum
includes every buffer of a pipelined operand (two if the block changes from step to step), and scratch that passes its
contents from one step to the next. Padding, intermediate values, and scratch that is written before it is read are not
counted, because libtpu may need no memory for them.
"""

import math
from typing import Any

import jax.numpy as jnp
from jax._src.state.indexing import NDIndexer, Slice
from jax.extend import core
from jax.tree_util import tree_unflatten

from harness.hardware import Chip
from harness.judge.evaluate.trace.jaxprs import Equation, Jaxpr
from harness.records import PallasCall, Window

_MIB = 1 << 20
# The types whose numbers have a known size in VMEM.
_SIZED = "float32 int32 uint32 bfloat16 float16 int16 uint16 int8 uint8 float8_e4m3fn float8_e5m2"
_WHOLE_BYTES = frozenset(_SIZED.split())
# Only scratch of these types is counted: the compiler can simplify integers away (0 * x is 0), but not floats.
_FLOATS = frozenset(("float32", "bfloat16", "float16"))


def excess(equation: Equation, call: PallasCall, chip: Chip) -> str:
    """The reason why the compiler for `chip` must refuse this call, as a sentence; "" if it may accept the call."""
    if chip.platform != "tpu":
        return ""
    limit = chip.vmem_limit(call.vmem_limit_bytes)
    blocks = sum(map(_block_bytes, call.windows))
    carried = _carried_bytes(equation)
    if blocks + carried <= limit:
        return ""
    whole = f" (all of a {chip.name})" if limit == chip.vmem_bytes else ""
    message = f"expected {call.name} to fit into {limit:,} bytes ({limit / _MIB:.2f} MiB) of VMEM{whole}"
    parts = f"{blocks:,} for its blocks, {carried:,} for scratch that is kept from step to step"
    got = f"got at least {blocks + carried:,} ({parts})"
    return f"{message}, {got}: the compiler was not run; use smaller blocks or less scratch"


def _block_bytes(window: Window) -> int:
    """The smallest possible size of the buffers of one operand, in bytes."""
    if window.memory_space != "vmem" or window.array.dtype not in _WHOLE_BYTES:
        return 0
    # If a table determines the next block, the block may never change, so one buffer is counted.
    copies = window.buffers if window.fetches is not None else 1
    return copies * math.prod(window.block_shape) * jnp.dtype(window.array.dtype).itemsize


def _carried_bytes(equation: Equation) -> int:
    """The bytes of the scratch arrays that a step reads as a whole before it writes to them."""
    jaxpr, mapping = equation.params["jaxpr"], equation.params["grid_mapping"]
    live = _live(jaxpr)
    carried_bytes = 0
    for var in jaxpr.invars[mapping.slice_scratch_ops]:
        shape, dtype = getattr(var.aval, "shape", ()), str(getattr(var.aval, "dtype", ""))
        space = str(getattr(var.aval, "memory_space", "")).lower()
        if space == "vmem" and dtype in _FLOATS and _is_read_first(jaxpr, var, live):
            carried_bytes += math.prod(shape) * jnp.dtype(dtype).itemsize
    return carried_bytes


def _live(jaxpr: Jaxpr) -> set[Any]:
    """The values on which results or writes depend."""
    live = set(jaxpr.outvars)
    for equation in reversed(jaxpr.eqns):
        is_read = equation.primitive.name == "get"
        if any(out in live for out in equation.outvars) or (equation.effects and not is_read):
            live |= {var for var in equation.invars if not isinstance(var, core.Literal)}
    return live


def _is_read_first(jaxpr: Jaxpr, reference: Any, live: set[Any]) -> bool:
    for equation in jaxpr.eqns:
        if not any(var is reference for var in equation.invars):
            continue
        name = equation.primitive.name
        if name == "get" and equation.invars[0] is reference:
            if _is_whole(equation) and equation.outvars[0] in live:
                return True
        elif name != "cond" or isinstance(equation.invars[0], core.Literal):
            # The reference is written, or passed to an operation that may write it. Uses in a `cond` do not count,
            # because the branch with the use may not be taken.
            return False
    return False


def _is_whole(equation: Equation) -> bool:
    """True if a read covers the whole reference."""
    transforms = tree_unflatten(equation.params["tree"], equation.invars[1:])
    return all(
        isinstance(transform, NDIndexer)
        and all(
            isinstance(index, Slice) and index.start == 0 and index.size == length and index.stride == 1
            for index, length in zip(transform.indices, transform.shape, strict=True)
        )
        for transform in transforms
    )
