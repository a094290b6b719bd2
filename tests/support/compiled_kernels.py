"""Compiles one small kernel for a chip; the environment says where the compiler's dumps go. A child of a test."""

import sys

import jax
import jax.numpy as jnp
from jax.experimental import pallas as pl
from jax.experimental.pallas import tpu as pltpu
from jax.sharding import SingleDeviceSharding

from harness.hardware import chip
from harness.judge.evaluate.compile.topology import described_device

ROWS, COLUMNS, BLOCK = 2048, 512, 256


def _double(x_ref, o_ref):  # type: ignore[no-untyped-def]
    o_ref[...] = x_ref[...] * 2


def doubled(x: jax.Array) -> jax.Array:
    """Doubles blocks of rows, in a grid of 8 parallel steps."""
    block = pl.BlockSpec((BLOCK, COLUMNS), lambda i: (i, 0))
    return pl.pallas_call(
        _double,
        out_shape=jax.ShapeDtypeStruct(x.shape, x.dtype),
        grid=(ROWS // BLOCK,),
        in_specs=[block],
        out_specs=block,
        compiler_params=pltpu.CompilerParams(dimension_semantics=("parallel",)),
    )(x)


def _write(rows_ref, _, cache_ref, sem):  # type: ignore[no-untyped-def]
    copy = pltpu.make_async_copy(rows_ref, cache_ref.at[pl.ds(0, BLOCK)], sem)
    copy.start()
    copy.wait()


def updated(cache: jax.Array) -> jax.Array:
    """Writes rows into a cache, in place, and returns nothing else."""
    anywhere = pl.BlockSpec(memory_space=pl.ANY)
    return pl.pallas_call(
        _write,
        out_shape=jax.ShapeDtypeStruct(cache.shape, cache.dtype),
        in_specs=[anywhere, anywhere],
        out_specs=anywhere,
        scratch_shapes=[pltpu.SemaphoreType.DMA],
        input_output_aliases={1: 0},
    )(jnp.ones((BLOCK, COLUMNS), cache.dtype), cache)


def scaled(x: jax.Array) -> jax.Array:
    """The largest magnitude of each row, by XLA, and a kernel that doubles the quotients."""
    return doubled(x / jnp.max(jnp.abs(x), axis=1, keepdims=True))


# The function, and the arguments that it may overwrite.
KERNELS = {
    "doubled": (doubled, ()),
    "updated": (updated, ()),
    "updated in place": (updated, (0,)),
    "scaled": (scaled, ()),
}


def _main(kernel: str, chip_name: str) -> None:
    function, donated = KERNELS[kernel]
    sharding = SingleDeviceSharding(described_device(chip(chip_name)))
    operand = jax.ShapeDtypeStruct((ROWS, COLUMNS), jnp.float32, sharding=sharding)
    jax.jit(function, donate_argnums=donated).lower(operand).compile()


if __name__ == "__main__":
    _main(*sys.argv[1:])
