"""Memory as the last run left it, which a kernel finds on a chip wherever it has written nothing."""

import contextlib
import inspect
from collections.abc import Iterator
from typing import Any

import jax.numpy as jnp
import numpy as np
from jax._src.pallas.mosaic.interpret import shared_memory
from numpy.typing import NDArray

# The contents of buffers in VMEM and SMEM, by the number of the kernel's call in the run and the interpreter's key for
# the buffer. The interpreter numbers buffers from the same number in every call.
Left = dict[tuple[int, Any], NDArray[Any]]
_IN_HBM = ("any", "hbm")


@contextlib.contextmanager
def memory_left(left: Left, *, is_found: bool) -> Iterator[None]:
    """Within this context an interpreted program runs once; afterwards `left` holds what it leaves in VMEM and SMEM.

    If `is_found`, unwritten memory begins with what `left` held before: what the same program left on other inputs.
    Raises NotImplementedError if this version of JAX's interpreter is unknown here.
    """
    memory = shared_memory.SharedMemory
    allocate = memory.allocate_buffer
    if not {"self", "key", "value"} <= {*inspect.signature(allocate).parameters}:
        raise NotImplementedError("this JAX's TPU interpret mode is not known to the judge, so memory cannot be left")
    before = dict(left) if is_found else {}
    # Each call has a memory of its own, which is kept alive here so that it stays distinct from later ones.
    calls: list[Any] = []
    buffers: dict[tuple[int, Any], Any] = {}

    def allocated(self: Any, key: Any, *arguments: Any, **named: Any) -> None:
        if not any(self is call for call in calls):
            calls.append(self)
        place = next(number for number, call in enumerate(calls) if self is call), key
        value, content = named.get("value"), before.get(place)
        if content is not None and value is not None and _is_unwritten(key, value):
            named["value"] = content.copy() if _are_alike(content, value) else value
        allocate(self, key, *arguments, **named)
        if key[0] not in _IN_HBM:
            buffers[place] = self.mem[key]

    memory.allocate_buffer = allocated
    try:
        yield
    finally:
        memory.allocate_buffer = allocate
        left.clear()
        left.update({place: buffer.content for place, buffer in buffers.items()})


def _are_alike(content: NDArray[Any], value: NDArray[Any]) -> bool:
    return (content.shape, content.dtype) == (value.shape, value.dtype)


def _is_unwritten(key: Any, value: NDArray[Any]) -> bool:
    """True unless it is an array in HBM, or a table, which is handed over in scalar memory."""
    if key[0] == "smem":
        return bool(jnp.issubdtype(value.dtype, jnp.integer)) and bool(np.all(value == jnp.iinfo(value.dtype).max))
    return key[0] not in _IN_HBM
