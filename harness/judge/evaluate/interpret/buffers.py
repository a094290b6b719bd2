"""Gives the buffers of TPU interpret mode three properties of a chip's buffers, and notes reads of unwritten memory.

- A window alternates between two buffers. So after a block was written to HBM, the next step reads other contents.
- A block is fetched while an earlier step runs. So the block lacks the values that this step writes to the array in
  HBM.
- A negative index accesses memory in front of an array. JAX's interpreter counts this index from the end, as numpy
  does.

JAX writes by swapping values, so this module cannot detect that a kernel uses a replaced value.
`jaxprs.uses_replaced_values` detects it.
"""

import contextlib
import inspect
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import jax.numpy as jnp
import numpy as np
from jax._src.pallas.mosaic.interpret import interpret_pallas_call, shared_memory
from jax._src.pallas.mosaic.interpret import utils as interpret_utils
from numpy.typing import NDArray

from harness.judge.evaluate.interpret import places
from harness.judge.evaluate.interpret.left_memory import IN_HBM, anything, is_unwritten
from harness.judge.evaluate.interpret.replaced import replaced, unknown_version

# The methods of JAX's memory class through which all accesses go.
_METHODS = ("get_buffer_content", "store_buffer_content", "swap_buffer_content")
# The functions that call these methods, each with the parameter that names the input or output whose block is copied.
_FUNCTIONS = {"get": "input_name", "store": "output_name"}


@dataclass(slots=True)
class _Memory:
    """The buffers of one Pallas call. The keys are those of JAX: memory space, number, chip, core."""

    # The output window that was read last, by chip and core, and the windows whose block has been written to HBM.
    window: dict[tuple[int, int], Any] = field(default_factory=dict)
    replaced: set[Any] = field(default_factory=set)
    # The arrays in HBM from which blocks were fetched, and the contents of these arrays before the first write to them.
    fetched: set[Any] = field(default_factory=set)
    before: dict[Any, NDArray[Any]] = field(default_factory=dict)
    # For each buffer that begins unwritten: JAX's object, and an array that is True where the buffer was written.
    buffers: dict[Any, Any] = field(default_factory=dict)
    written: dict[Any, NDArray[np.bool_]] = field(default_factory=dict)


@dataclass(slots=True)
class Buffers:
    """The buffers of a run. `comes_early`: a fetched block lacks all writes of the same call to its array in HBM.

    `unwritten_read` describes the first read of unwritten memory; "" without one. `in_front` is the error of an access
    in front of a buffer. This error also ends the runs of the other chips. It is stored here, because the errors of
    those runs may hide it.
    """

    comes_early: bool
    unwritten_read: str = ""
    in_front: IndexError | None = None
    # By id(), JAX's object for the memory of a Pallas call. The object is kept alive, so that no later object has its
    # id().
    memories: dict[int, tuple[Any, _Memory]] = field(default_factory=dict)

    def of(self, memory: Any) -> _Memory:
        """The buffers of the Pallas call that has this memory."""
        if id(memory) not in self.memories:
            # Another thread of the same call may get here first.
            self.memories.setdefault(id(memory), (memory, _Memory()))
        return self.memories[id(memory)][1]


class _Access(threading.local):
    """The purpose of this thread's current access ("fetch", "write back", "window" or ""), and its chip and core."""

    purpose: str = ""
    core: tuple[int, int] = (0, 0)


_access = _Access()
_run: Buffers | None = None


@contextlib.contextmanager
def as_on_chip(*, comes_early: bool, seed: int) -> Iterator[Buffers]:
    """Within this context interpreted programs run with the buffers of a chip, one program at a time.

    Afterwards, buffers hold numbers drawn with `seed` where nothing was written, except as `_leave_anything` states.
    Raises NotImplementedError if this version of JAX's interpreter is unknown here.
    """
    global _run
    memory = shared_memory.SharedMemory
    methods = {name: getattr(memory, name, None) for name in (*_METHODS, "allocate_buffer")}
    functions = {name: getattr(interpret_pallas_call, name, None) for name in _FUNCTIONS}
    if not all(map(callable, (*methods.values(), *functions.values()))) or not all(
        parameter in inspect.signature(functions[name]).parameters  # type: ignore[arg-type]
        for name, parameter in _FUNCTIONS.items()
    ):
        raise unknown_version("its buffers cannot be changed")
    _run = Buffers(comes_early=comes_early)
    with (
        replaced(memory, **{name: _replacement(name, method) for name, method in methods.items()}),
        # A traced program keeps these functions for later runs, so they look up the current run at each call.
        replaced(
            interpret_pallas_call, **{name: _with_purpose(name, function) for name, function in functions.items()}
        ),
    ):
        try:
            yield _run
        finally:
            for _, buffers in _run.memories.values():
                _leave_anything(buffers, np.random.default_rng(seed))
            _run = None


def _with_purpose(name: str, function: Any) -> Any:
    def accessed(token: Any, device_id: Any, local_core_id: Any, *arguments: Any, **named: Any) -> Any:
        _access.core = int(device_id), int(local_core_id)
        if named.get(_FUNCTIONS[name]) is not None:
            _access.purpose = "fetch" if name == "get" else "write back"
        elif name == "get" and not {"source_info", "clock", "src_device_id"} & {*named}:
            _access.purpose = "window"
        try:
            return function(token, device_id, local_core_id, *arguments, **named)
        finally:
            _access.purpose = ""

    # JAX's copies call `__wrapped__`, which is the function without its error handler.
    accessed.__wrapped__ = getattr(function, "__wrapped__", function)  # type: ignore[attr-defined]
    return accessed


def _replacement(name: str, method: Any) -> Any:
    def allocated(self: Any, key: Any, *arguments: Any, **named: Any) -> Any:
        result = method(self, key, *arguments, **named)
        value = named.get("value")
        if _run is not None and value is not None and is_unwritten(key, value):
            buffers = _run.of(self)
            buffers.written[key] = np.zeros(value.shape, bool)
            buffers.buffers[key] = self.mem[key]
        return result

    def accessed(self: Any, key: Any, where: Any, *arguments: Any, **named: Any) -> Any:
        if _run is None:
            return method(self, key, where, *arguments, **named)
        _refuse_in_front(_run, name, key, where)
        buffers = _run.of(self)
        _refill(self, buffers, key)
        if name == "get_buffer_content":
            result = method(self, key, where, *arguments, **named)
            return _read(_run, self, buffers, key, where, result)
        if key in buffers.fetched and key not in buffers.before:
            buffers.before[key] = self.mem[key].content.copy()
        if key in buffers.written:
            with contextlib.suppress(IndexError):
                buffers.written[key][where] = True
        result = method(self, key, where, *arguments, **named)
        if _access.purpose == "write back":
            buffers.replaced.add(buffers.window.get(_access.core))
        return result

    return allocated if name == "allocate_buffer" else accessed


def _leave_anything(buffers: _Memory, random: np.random.Generator) -> None:
    """Writes random numbers to memory that the run did not write, as if another program had left them for the next run.

    Integers in HBM and SMEM keep their values, because they may be an input. If all integers of an input equal the
    interpreter's filler, the input cannot be distinguished from unwritten memory.
    """
    for key, written in buffers.written.items():
        content = buffers.buffers[key].content
        may_be_input = key[0] in (*IN_HBM, "smem") and not jnp.issubdtype(content.dtype, jnp.floating)
        if content.shape == written.shape and not may_be_input and not written.all():
            content[~written] = anything(content[~written], random)


def _read(run: Buffers, memory: Any, buffers: _Memory, key: Any, where: Any, result: Any) -> Any:
    """The result of a read. A fetch of an input's block returns the contents that the chip would have fetched.

    Notes the window that was read, and describes in `run.unwritten_read` the first read of unwritten memory.
    """
    if _access.purpose == "fetch":
        buffers.fetched.add(key)
        if run.comes_early and key in buffers.before and result[0] is not None:
            buffer = shared_memory.Buffer(buffers.before[key], logical_shape=memory.mem[key].logical_shape)
            return (buffer[where].copy(), *result[1:])
    elif _access.purpose == "window" and key[0] not in IN_HBM:
        buffers.window[_access.core] = key
    elif _access.purpose == "" and key in buffers.written:
        with contextlib.suppress(IndexError):
            if not run.unwritten_read and not buffers.written[key][where].all():
                shape = [*buffers.written[key].shape]
                run.unwritten_read = f"{places.line()}a read of {places.memory(key[0])} of shape {shape}"
    return result


def _refill(memory: Any, buffers: _Memory, key: Any) -> None:
    """Fills a window, before its next use, with the value of unwritten memory if its block was written to HBM."""
    if key in buffers.replaced:
        buffers.replaced.discard(key)
        content = memory.mem[key].content
        content[...] = interpret_utils.get_uninitialized_value(content.dtype, "nan")
        if key in buffers.written:
            buffers.written[key][...] = False


def _refuse_in_front(run: Buffers, name: str, key: Any, where: Any) -> None:
    """Raises IndexError if an index is negative."""
    for index in where:
        first = index.start if isinstance(index, slice) else index
        if first is not None and first < 0:
            access = "read" if name == "get_buffer_content" else "write"
            run.in_front = IndexError(
                f"expected the {access} to stay within its array in {places.memory(key[0])}, got {list(where)}, which "
                "begins at a negative index"
            )
            raise run.in_front
