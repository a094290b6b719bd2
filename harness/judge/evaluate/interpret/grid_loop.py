"""Changes JAX's grid loop for `interpret=True` so that a step copies only its blocks instead of whole arrays."""

import contextlib
from collections.abc import Iterator
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax
from jax._src import core
from jax._src.pallas import hlo_interpreter
from jax._src.state.types import AccumEffect, RefEffect, WriteEffect

from harness.judge.evaluate.interpret.replaced import parameters, replaced

# The number of parameters of each replaced function in jax 0.10.2 and 0.12.0.
_REPLACED = {"kernel_to_hlo_jaxpr": 3, "_pad_to_block_dimension": 2, "_dynamic_slice": 4, "_dynamic_update_slice": 5}
_CALL = "pallas_call_hlo_interpret"
# XLA on the CPU converts a whole array of these types to update a slice of it.
_NARROW = (jnp.bfloat16, jnp.float16)


@contextlib.contextmanager
def quick_grid_loop() -> Iterator[None]:
    """Within this context `interpret=True` is lowered so that a grid step copies its blocks, not whole arrays.

    JAX's grid loop (seen in 0.10.2 and 0.12.0) writes every input block back into its array after each step. The
    changed loop does not write back inputs that the kernel only reads. It carries arrays of 16-bit floats as integers
    with the same bits. XLA updates integers in place, but converts a whole array of 16-bit floats. A step of JAX's
    flash attention on arrays of 33 MB then takes 0.1 ms instead of 16 ms. If this version of JAX has other functions,
    its loop stays unchanged.
    """
    plain: dict[str, Any] = {name: getattr(hlo_interpreter, name, None) for name in (*_REPLACED, _CALL)}
    are_known = all(len(parameters(plain[name])) == count for name, count in _REPLACED.items())
    if not are_known or not callable(plain[_CALL]):
        yield
        return
    # The values are kept alive, so that no id() is reused.
    read: dict[int, Any] = {}

    def kernel(jaxpr: Any, consts: Any, mapping: Any) -> Any:
        discharged, discharged_consts, scratch = plain["kernel_to_hlo_jaxpr"](jaxpr, consts, mapping)
        closed = _on_bits(jaxpr, discharged, discharged_consts, mapping)
        return closed.jaxpr, closed.consts, scratch

    def padded(value: Any, shape: Any) -> Any:
        return _as_bits(plain["_pad_to_block_dimension"](value, shape))

    def remembering_slice(start: Any, shape: Any, array: Any, squeezed: Any) -> Any:
        block = plain["_dynamic_slice"](start, shape, array, squeezed)
        read[id(block)] = (block, array)
        return block

    def sparing_write(start: Any, shape: Any, array: Any, block: Any, squeezed: Any) -> Any:
        if id(block) in read and read[id(block)][1] is array:
            return array
        return plain["_dynamic_update_slice"](start, shape, array, block, squeezed)

    def call(*arguments: Any, grid_mapping: Any, **params: Any) -> Any:
        outputs = plain[_CALL](*arguments, grid_mapping=grid_mapping, **params)
        dtypes = (block.array_aval.dtype for block in grid_mapping.block_mappings_output)
        return [_of_bits(output, dtype) for output, dtype in zip(outputs, dtypes, strict=True)]

    new: tuple[Any, ...] = (kernel, padded, remembering_slice, sparing_write, call)
    with replaced(hlo_interpreter, **dict(zip(plain, new, strict=True))):
        yield


def _on_bits(jaxpr: Any, discharged: Any, consts: Any, mapping: Any) -> Any:
    """The kernel as a function of values, with 16-bit floats as bits. It returns read-only blocks unchanged."""
    first = mapping.num_index_operands
    blocks = range(first, first + len(mapping.block_mappings))
    kept = _only_read(jaxpr, mapping)
    dtypes = {place: jaxpr.invars[place].aval.dtype for place in blocks}

    def on_bits(*values: Any) -> list[Any]:
        operands = [_of_bits(value, dtypes.get(place, value.dtype)) for place, value in enumerate(values)]
        outputs = core.eval_jaxpr(discharged, consts, *operands)
        return [
            values[place] if place in kept else _as_bits(output) if place in dtypes else output
            for place, output in enumerate(outputs)
        ]

    avals = [
        jax.ShapeDtypeStruct(var.aval.shape, _bits(var.aval.dtype) if place in dtypes else var.aval.dtype)
        for place, var in enumerate(discharged.invars)
    ]
    with mapping.trace_env():
        return jax.make_jaxpr(on_bits)(*avals)


def _only_read(jaxpr: Any, mapping: Any) -> frozenset[int]:
    """The positions of inputs that the kernel does not write to; none if its effects are unknown.

    Every kernel writes to its outputs. If its effects do not show these writes, the effects are incomplete.
    """
    touched = [effect for effect in jaxpr.effects if isinstance(effect, RefEffect)]
    written = {effect.input for effect in touched if isinstance(effect, (WriteEffect, AccumEffect))}
    first = mapping.num_index_operands
    end = first + mapping.num_inputs
    outputs = jaxpr.invars[end : end + mapping.num_outputs]
    if not all(effect.input in jaxpr.invars for effect in touched) or not written.issuperset(outputs):
        return frozenset()
    return frozenset(place for place in range(first, end) if jaxpr.invars[place] not in written)


def _bits(dtype: Any) -> Any:
    return jnp.uint16 if dtype in _NARROW else dtype


def _as_bits(value: Any) -> Any:
    return lax.bitcast_convert_type(value, jnp.uint16) if value.dtype in _NARROW else value


def _of_bits(value: Any, dtype: Any) -> Any:
    return lax.bitcast_convert_type(value, dtype) if dtype in _NARROW and value.dtype == jnp.uint16 else value
