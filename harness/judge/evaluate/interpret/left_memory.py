"""Fills unwritten memory with the values that the last run left there, as a kernel on a chip finds them.

Memory that the last run did not write holds random numbers, which `buffers` writes at the end of that run.
"""

import contextlib
import threading
import zlib
from collections.abc import Iterator
from typing import Any

import jax.numpy as jnp
import numpy as np
from jax._src.pallas.mosaic.interpret import shared_memory
from jax._src.pallas.mosaic.interpret import utils as interpret_utils
from numpy.typing import NDArray

from harness.judge.evaluate.interpret.replaced import parameters, replaced, unknown_version

# The contents of buffers in VMEM and SMEM and of outputs in HBM. The key is the number of the kernel's call in the run,
# and the interpreter's key for the buffer. The interpreter numbers buffers from the same number in every call.
Left = dict[tuple[int, Any], NDArray[Any]]
IN_HBM = ("any", "hbm")
# A smaller array that holds only the filler may be an input, so its integers are not replaced.
_MANY = 128
# The bytes of the largest integers that a chip computes with.
_LARGEST_INTEGER = 4


@contextlib.contextmanager
def memory_left(left: Left, *, is_found: bool, number: float | None = None, seed: int = 0) -> Iterator[None]:
    """A context for one run of an interpreted program; afterwards `left` holds the values that the run left in memory.

    - If `is_found`, unwritten memory begins with the contents of `left`, which the last run of the same program left.
    - In all other unwritten memory, floats begin as `number`, unless it is None.
    - In all other unwritten arrays in HBM of at least `_MANY` elements, integers begin as numbers drawn with `seed`,
      because the next kernel may read elements that this kernel did not write.

    Raises NotImplementedError if this version of JAX's interpreter is unknown here.
    """
    memory = shared_memory.SharedMemory
    allocate = memory.allocate_buffer
    if not {"self", "key", "value"} <= {*parameters(allocate)}:
        raise unknown_version("its memory cannot be kept from run to run")
    before = dict(left) if is_found else {}
    # Keys are ids of the memory objects of calls. The value is the object, kept alive so that its id() is not reused,
    # and the call's number.
    calls: dict[int, tuple[Any, int]] = {}
    buffers: dict[tuple[int, Any], Any] = {}
    lock = threading.Lock()

    def allocated(self: Any, key: Any, *arguments: Any, **named: Any) -> None:
        with lock:
            _, call = calls.setdefault(id(self), (self, len(calls)))
        place = call, key
        value, content = named.get("value"), before.get(place)
        if value is None or not is_unwritten(key, value):
            allocate(self, key, *arguments, **named)
            return
        if content is not None and _are_alike(content, value):
            named["value"] = content.copy()
        elif number is not None and jnp.issubdtype(value.dtype, jnp.floating):
            named["value"] = np.full_like(value, clipped(number, value.dtype))
        elif key[0] in IN_HBM and jnp.issubdtype(value.dtype, jnp.integer) and value.size >= _MANY:
            random = np.random.default_rng((seed, call, zlib.crc32(repr(key).encode())))
            named["value"] = anything(value, random)
        allocate(self, key, *arguments, **named)
        buffers[place] = self.mem[key]

    try:
        with replaced(memory, allocate_buffer=allocated):
            yield
    finally:
        left.clear()
        left.update({place: buffer.content for place, buffer in buffers.items()})


def clipped(number: float, dtype: Any) -> float:
    """The number, limited to the range of this floating-point dtype."""
    most = float(jnp.finfo(dtype).max)
    return max(-most, min(most, number))


def _are_alike(content: NDArray[Any], value: NDArray[Any]) -> bool:
    return (content.shape, content.dtype) == (value.shape, value.dtype)


def is_unwritten(key: Any, value: NDArray[Any]) -> bool:
    """True if `value` is the filler of unwritten memory, not an input in HBM or a table in scalar memory."""
    if key[0] not in (*IN_HBM, "smem"):
        return True
    unwritten = interpret_utils.get_uninitialized_value(value.dtype, "nan")
    return bool(value.size) and bool(np.all((value == unwritten) | ((value != value) & (unwritten != unwritten))))


def anything(like: NDArray[Any], random: np.random.Generator) -> NDArray[Any]:
    """Zeros, ones and other numbers at random, a third each, in the shape and dtype of `like`.

    Of booleans, a third are False and the rest are True. Returns `like` itself for dtypes that are neither floats,
    integers of at most 32 bits nor booleans.
    """
    turn = random.integers(3, size=like.shape)
    others: NDArray[Any]
    if jnp.issubdtype(like.dtype, jnp.floating):
        others = random.standard_normal(like.shape) * 2.0 ** random.integers(-8, 9)
    elif jnp.issubdtype(like.dtype, jnp.integer) and like.dtype.itemsize <= _LARGEST_INTEGER:
        limits = jnp.iinfo(like.dtype)
        others = random.integers(int(limits.min), int(limits.max), size=like.shape, endpoint=True, dtype=np.int64)
    else:
        return (turn > 0) if like.dtype == np.bool_ else like
    return np.where(turn == 0, others, turn - 1).astype(like.dtype)
