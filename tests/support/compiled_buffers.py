"""Compiles a kernel for a chip with a scratch buffer of every shape; the environment says where dumps go."""

import sys
from typing import Any

import jax
from jax.experimental import pallas as pl
from jax.experimental.pallas import tpu as pltpu
from jax.sharding import SingleDeviceSharding

from harness.hardware import chip
from harness.judge.evaluate.compile.topology import described_device
from harness.sandbox import asked_device

_SHAPES = (*((5, rows, 128) for rows in (1, 2, 3, 4, 6, 8, 9, 12, 24, 32)), (3, 4, 200), (1000,), (130,), (4,))
BUFFERS = tuple((shape, dtype) for dtype in ("float32", "bfloat16", "int8") for shape in _SHAPES)


def _copy(*refs: Any) -> None:
    """Copies every input to its output, by way of its buffer."""
    count, arrived = len(BUFFERS), refs[-1]
    for source, target, buffer in zip(refs[:count], refs[count : 2 * count], refs[2 * count : -1], strict=True):
        for start, end in ((source, buffer), (buffer, target)):
            copy = pltpu.make_async_copy(start, end, arrived)
            copy.start()
            copy.wait()


def _main(name: str) -> None:
    anywhere = [pl.BlockSpec(memory_space=pl.ANY)] * len(BUFFERS)
    sharding = SingleDeviceSharding(described_device(chip(name)))
    operands = [jax.ShapeDtypeStruct(shape, dtype, sharding=sharding) for shape, dtype in BUFFERS]

    def program(*arrays: jax.Array) -> Any:
        return pl.pallas_call(
            _copy,
            out_shape=[jax.ShapeDtypeStruct(array.shape, array.dtype) for array in arrays],
            in_specs=anywhere,
            out_specs=anywhere,
            scratch_shapes=[*(pltpu.VMEM(shape, dtype) for shape, dtype in BUFFERS), pltpu.SemaphoreType.DMA],
            name="buffers",
        )(*arrays)

    with asked_device.aiming_at(chip(name)):
        jax.jit(program).lower(*operands).compile()


if __name__ == "__main__":
    _main(*sys.argv[1:])
