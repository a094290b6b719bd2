"""Matrix product of activations and weights of eight bits on a TPU: what an experiment changes.

One kernel without a grid, which copies by hand. All of A and Q fits into the 128 MiB of a v6e's VMEM, so k passes by once,
in chunks for all of the result at a time: each byte is read once, and products take longer than transfers all along.
Chunks are small at first, so that products begin early. The last one is multiplied strip by strip of columns, and each
strip of the result is scaled and leaves while the next one is multiplied.
"""

import functools

import jax
import jax.numpy as jnp
from jax.experimental import pallas as pl
from jax.experimental.pallas import tpu as pltpu

KERNEL_NAME = "streamed_int8_matmul"
PROBLEM_DESCRIPTION = "matmul of int8 with a scale for each row and column, added up in int32"

# Rows of Q, and columns of A, that are fetched and multiplied at a time: a prefix of these adds up to k.
CHUNKS = (256, 256, 512, 512, 512, 1024, 1024, 1024, 1024, 2048, 2048, 2048, 2048)
# How many chunks are asked for before the first one is multiplied.
AHEAD = 2
# Columns of the result that are finished and written at a time.
STRIP = 512
# A, Q, the sums and the result, 94 MiB.
VMEM_LIMIT = 110 * 2**20


def multiply(
    a_hbm, q_hbm, scales_hbm, rows_hbm, c_hbm,
    a_ref, q_ref, acc_ref, c_ref, scales_ref, rows_ref, fetched, scaled, written,
    *, chunks, width,
):  # fmt: skip
    """C [m, n]; a, q and c in VMEM are whole, acc [m, n] int32 are the sums so far, rows [1, m] the scales of rows.

    `fetched` has a semaphore for each chunk of A and of Q, `scaled` one for the scales, `written` one for each strip.
    """
    starts = [sum(chunks[:number]) for number in range(len(chunks))]
    last = len(chunks) - 1

    def copies(start, size, number):
        part = pl.ds(start, size)
        return (
            pltpu.make_async_copy(a_hbm.at[:, part], a_ref.at[:, part], fetched.at[0, number]),
            pltpu.make_async_copy(q_hbm.at[part], q_ref.at[part], fetched.at[1, number]),
        )

    def fetch(numbers):
        for number in numbers:
            for copy in copies(starts[number], chunks[number], number):
                copy.start()

    def product(start, size, columns=slice(None)):
        some = pl.ds(start, size)
        return jnp.dot(a_ref[:, some], q_ref[some, columns], preferred_element_type=jnp.int32)

    of_scales = (
        pltpu.make_async_copy(scales_hbm, scales_ref, scaled.at[0]),
        pltpu.make_async_copy(rows_hbm, rows_ref, scaled.at[1]),
    )
    fetch(range(min(AHEAD, len(chunks))))
    for copy in of_scales:
        copy.start()

    # Chunks of one size that follow each other are a loop.
    number = 0
    while number < last:
        first, size = number, chunks[number]
        number += 1
        while first > 0 and number < last and chunks[number] == size:
            number += 1
        fetch(range(first + AHEAD, min(number + AHEAD, len(chunks))))

        def add(turn, _, first=first, size=size):
            start = pl.multiple_of(starts[first] + turn * size, 256)
            for copy in copies(start, size, first + turn):
                copy.wait()
            sums = product(start, size)
            acc_ref[...] = sums if first == 0 else acc_ref[...] + sums
            return 0

        jax.lax.fori_loop(0, number - first, add, 0)

    for copy in (*of_scales, *copies(starts[last], chunks[last], last)):
        copy.wait()
    column = rows_ref[...].T
    leaving = []
    for strip in range(0, c_ref.shape[1], width):
        columns = pl.ds(strip, width)
        sums = product(starts[last], chunks[last], columns)
        if last:
            sums += acc_ref[:, columns]
        c_ref[:, columns] = (sums.astype(jnp.float32) * scales_ref[:, columns] * column).astype(c_ref.dtype)
        leaving.append(
            pltpu.make_async_copy(c_ref.at[:, columns], c_hbm.at[:, columns], written.at[strip // width])
        )
        leaving[-1].start()
    for copy in leaving:
        copy.wait()


def kernel_fn(a, q, scales, row_scales):
    """The product of a [m, k] and q [k, n], scaled [1, n] and [m, 1], in bfloat16.

    Raises ValueError where no prefix of CHUNKS adds up to k, or STRIP does not divide n.
    """
    (m, k), n = a.shape, q.shape[1]
    chunks = next((CHUNKS[:count] for count in range(1, len(CHUNKS) + 1) if sum(CHUNKS[:count]) == k), None)
    width = min(STRIP, n)
    if chunks is None or n % width:
        raise ValueError(f"expected a prefix of {CHUNKS} for k and {STRIP} to divide n, got {k} and {n}")
    hbm = pl.BlockSpec(memory_space=pl.ANY)
    return pl.pallas_call(
        functools.partial(multiply, chunks=chunks, width=width),
        out_shape=jax.ShapeDtypeStruct((m, n), jnp.bfloat16),
        in_specs=[hbm] * 4,
        out_specs=hbm,
        scratch_shapes=[
            pltpu.VMEM((m, k), jnp.int8),
            pltpu.VMEM((k, n), jnp.int8),
            pltpu.VMEM((m, n), jnp.int32),
            pltpu.VMEM((m, n), jnp.bfloat16),
            pltpu.VMEM((1, n), jnp.float32),
            pltpu.VMEM((1, m), jnp.float32),
            pltpu.SemaphoreType.DMA((2, len(chunks))),
            pltpu.SemaphoreType.DMA((2,)),
            pltpu.SemaphoreType.DMA((n // width,)),
        ],
        compiler_params=pltpu.CompilerParams(vmem_limit_bytes=VMEM_LIMIT),
        name=KERNEL_NAME,
        # [m, 1] is laid out with one number in each row of 128 lanes; as a row it need not be copied for that.
    )(a, q, scales, row_scales.reshape(1, m))
