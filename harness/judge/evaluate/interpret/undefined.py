"""Makes undefined results visible: marks accesses beyond an array, and provides marks for other modules."""

import functools
from typing import Any

import jax.numpy as jnp
import numpy as np
from jax import lax, tree_util
from jax._src.state.indexing import NDIndexer, Slice
from jax.extend import core

from harness.judge.evaluate.interpret.rewriting import rewritten
from harness.judge.evaluate.trace.jaxprs import Equation, Jaxpr, inlined

# Integers in place of undefined results, by size in bytes: the bits of a NaN, or a number that kernels do not reach.
_MARKS = {8: 0x7FF8DEAD00000000, 4: 0x7FC0DEAD, 2: 0x5EAD, 1: 0x5D}
# The result of each comparison with an undefined value: the opposite of the comparison's result with NaN.
_IF_UNDEFINED = {"eq": True, "ne": False, "lt": True, "le": True, "gt": True, "ge": True, "is_finite": True}
# Marked memory of these types is recognised by its bits, which are a NaN as float32. Any NaN in a 16-bit float counts
# as marked, because XLA on a CPU sometimes converts such floats to float32 and back.
_BY_BITS = (jnp.float32, jnp.int32, jnp.uint32)
_BY_NAN = (jnp.bfloat16, jnp.float16)
# The number in mixed memory, which is large enough to change every sum; and the widths, in bits, of the integers that
# mixed memory replaces.
_NUMBER, _MIXED_BITS = 1 << 13, (8, 32)
# The position of the first index among the operands.
_FIRST_INDEX = {"get": 1, "swap": 2}


def is_between(value: Any, low: Any, high: Any) -> Any:
    """True for elements that are at least `low` and at most `high`."""
    return lax.bitwise_and(lax.ge(value, lax.full_like(value, low)), lax.le(value, lax.full_like(value, high)))


def marks(like: Any) -> Any:
    """An array of this shape and dtype that makes results visibly wrong: NaN, a large integer, or 0 if neither fits."""
    if jnp.issubdtype(like.dtype, jnp.floating):
        return lax.full_like(like, float("nan"))
    if like.dtype == jnp.bool_ or like.dtype.itemsize not in _MARKS or jnp.iinfo(like.dtype).bits < 8:
        return lax.full_like(like, 0)
    return lax.full_like(like, _MARKS[like.dtype.itemsize])


def marked_memory(like: Any) -> Any:
    """An array of this shape and dtype that `with_flipped_comparisons` recognises; `like` for other dtypes."""
    if like.dtype in _BY_BITS:
        return lax.bitcast_convert_type(lax.full(like.shape, _MARKS[4], jnp.int32), like.dtype)
    return marks(like) if jnp.issubdtype(like.dtype, jnp.floating) else like


def mixed_memory(like: Any) -> Any:
    """An array of this shape and dtype that cycles through a marked NaN, a plain NaN, a number and its negative.

    Integers cycle through a mark (32-bit integers only), 0, 1 and the value of `like`. All other dtypes keep `like`,
    also 16-bit integers, because JAX's semaphores have this type.
    """
    if jnp.issubdtype(like.dtype, jnp.floating):
        number = min(float(_NUMBER), float(jnp.finfo(like.dtype).max))
        contents = [marked_memory(like), marks(like), lax.full_like(like, number), lax.full_like(like, -number)]
    elif jnp.issubdtype(like.dtype, jnp.integer) and jnp.iinfo(like.dtype).bits in _MIXED_BITS:
        contents = [marked_memory(like), lax.full_like(like, 0), lax.full_like(like, 1), like]
    else:
        return like
    turn = lax.rem(lax.iota(jnp.int32, like.size), np.int32(len(contents)))
    return lax.select_n(lax.reshape(turn, like.shape), *contents)


def with_flipped_comparisons(jaxpr: Jaxpr) -> Jaxpr:
    """The same kernel; a comparison of a marked value gives the opposite of a comparison of NaN.

    If unwritten memory holds NaN, a kernel that compares it with a value always takes the same branch. On a chip, the
    kernel may read a value that an earlier call left there, such as its tag, and take the other branch.
    """
    return rewritten(jaxpr, _with_flip)


def _with_flip(equation: Equation) -> list[Equation]:
    name = equation.primitive.name
    if name not in _IF_UNDEFINED or equation.invars[0].aval.dtype not in (*_BY_BITS, *_BY_NAN):
        return [equation]
    (out,) = equation.outvars
    compared = core.Var(out.aval)
    flips = inlined(
        functools.partial(_flipped, _IF_UNDEFINED[name]), [compared, *equation.invars], [out], equation.source_info
    )
    return [equation.replace(outvars=[compared]), *flips]


def _flipped(answer: bool, compared: Any, *operands: Any) -> Any:
    for operand in operands:
        if operand.dtype in _BY_NAN:
            is_marked = lax.ne(operand, operand)
        else:
            bits = lax.bitcast_convert_type(operand, jnp.int32)
            is_marked = lax.eq(bits, lax.full_like(bits, _MARKS[4]))
        # An axis of one operand may have length one where the other operand's axis is longer.
        everywhere = jnp.broadcast_to(is_marked, compared.shape)
        compared = lax.select(everywhere, lax.full_like(compared, answer), compared)
    return compared


def with_marked_indices(jaxpr: Jaxpr) -> Jaxpr:
    """The same kernel; an access with a dynamic index outside the array reads or writes a mark.

    XLA on a CPU clamps this index. A chip reads or writes the memory at the address.
    """
    return rewritten(jaxpr, _with_marks)


def _with_marks(equation: Equation) -> list[Equation]:
    limits = _limits(equation)
    if not limits:
        return [equation]
    if equation.primitive.name == "get":
        (out,) = equation.outvars
        read = core.Var(out.aval)
        return [equation.replace(outvars=[read]), *_marked(read, limits, out, equation)]
    reference, value, *rest = equation.invars
    written = core.Var(value.aval)
    marked = _marked(value, limits, written, equation)
    return [*marked, equation.replace(invars=[reference, written, *rest])]


def _limits(equation: Equation) -> list[tuple[Any, int]]:
    """The indices of a read or write that may be outside the array, each with its largest value within the array."""
    first = _FIRST_INDEX.get(equation.primitive.name)
    if first is None:
        return []
    limits: list[tuple[Any, int]] = []
    for transform in tree_util.tree_unflatten(equation.params["tree"], equation.invars[first:]):
        if not isinstance(transform, NDIndexer):
            continue
        for index, length in zip(transform.indices, transform.shape, strict=True):
            if isinstance(index, Slice):
                if isinstance(index.size, int):
                    limits.append((index.start, length - 1 - (index.size - 1) * index.stride))
            else:
                limits.append((index, length - 1))
    return [(index, largest) for index, largest in limits if not _is_within(index, largest)]


def _is_within(index: Any, largest: int) -> bool:
    """True if an index is a constant within the array."""
    value = index.val if isinstance(index, core.Literal) else index
    return isinstance(value, (int, np.integer, np.ndarray)) and bool(np.all((value >= 0) & (value <= largest)))


def _marked(value: Any, limits: list[tuple[Any, int]], out: Any, equation: Equation) -> list[Equation]:
    def model(array: Any, *indices: Any) -> Any:
        is_within = np.True_
        for index, (_, largest) in zip(indices, limits, strict=True):
            within = is_between(index, 0, largest)
            is_within = lax.bitwise_and(is_within, lax.reduce_and_p.bind(within, axes=tuple(range(within.ndim))))
        return lax.select(lax.broadcast(is_within, array.shape), array, marks(array))

    return inlined(model, [value, *(index for index, _ in limits)], [out], equation.source_info)
