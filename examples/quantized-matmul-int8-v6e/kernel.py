"""Matrix product of activations and weights of eight bits on a TPU: what an experiment changes.

One kernel without a grid, which copies by hand. All of A and Q fits into the 128 MiB of a v6e's VMEM, so k passes by
once, in chunks for all of the result at a time: each byte is read once, and products take longer than transfers.
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
# There are as few as keep the transfers ahead of the products.
CHUNKS = (256, 256, 512, 512, 1024, 1536, 2048, 2048, 2048, 2048, 2048)
# The part of a chunk whose products go to the sums in VMEM at once: two tiles of the 256 x 256 matrix units, one in
# each. Of longer parts the compiler spills partial sums; reading those back delays one unit, and then each the other.
PIECE = 512
# How many chunks are asked for ahead of the one that is multiplied.
AHEAD = 2
# Columns of the result that are finished and written at a time.
STRIP = 256
# A, Q, the sums and the result, 94 MiB.
VMEM_LIMIT = 110 * 2**20


def multiply(
    a_hbm, q_hbm, scales_hbm, rows_hbm, c_hbm,
    a_ref, q_ref, acc_ref, c_ref, scales_ref, row_ref, fetched, begun, scaling, written,
    *, chunks, width,
):  # fmt: skip
    """C [m, n]; a, q and c in VMEM are whole, acc [m, n] int32 are the sums so far.

    The scales of rows are row [1, m].
    `fetched` has a semaphore for each chunk of A and of Q, `begun` for each half of Q's first one,
    `scaling` for the scales of each kind; `written` is one for all strips.
    """
    m, n = c_ref.shape
    starts = [sum(chunks[:number]) for number in range(len(chunks))]
    last = len(chunks) - 1

    def of_a(start, size, number):
        part = pl.ds(start, size)
        return pltpu.make_async_copy(a_hbm.at[:, part], a_ref.at[:, part], fetched.at[0, number])

    def of_q(start, size, number):
        part = pl.ds(start, size)
        return pltpu.make_async_copy(q_hbm.at[part], q_ref.at[part], fetched.at[1, number])

    def begin():
        """The copies of the first chunk's Q, in two halves of its columns, each with these columns."""
        part = pl.ds(0, chunks[0])
        halves = (pl.ds(0, n // 2), pl.ds(n // 2, n // 2))
        return [
            (half, pltpu.make_async_copy(q_hbm.at[part, half], q_ref.at[part, half], begun.at[number]))
            for number, half in enumerate(halves)
        ]

    def fetch(numbers):
        for number in numbers:
            of_a(starts[number], chunks[number], number).start()
            of_q(starts[number], chunks[number], number).start()

    def product(start, size, columns=slice(None), rows=slice(None)):
        some = pl.ds(start, size)
        return jnp.dot(a_ref[rows, some], q_ref[some, columns], preferred_element_type=jnp.int32)

    of_scales = (
        pltpu.make_async_copy(rows_hbm, row_ref, scaling.at[0]),
        pltpu.make_async_copy(scales_hbm, scales_ref, scaling.at[1]),
    )
    of_a(0, chunks[0], 0).start()
    for _, copy in begin():
        copy.start()
    fetch(range(1, min(1 + AHEAD, len(chunks))))
    for copy in of_scales:
        copy.start()

    # Products begin when half of the first chunk is there.
    of_a(0, chunks[0], 0).wait()
    for half, copy in begin():
        copy.wait()
        if last:
            acc_ref[:, half] = product(0, chunks[0], half)
    # Chunks of one size that follow each other are a loop.
    number = 1
    while number < last:
        first, size = number, chunks[number]
        number += 1
        while number < last and chunks[number] == size:
            number += 1
        fetch(range(first + AHEAD, min(number + AHEAD, len(chunks))))

        def add(turn, _, first=first, size=size):
            start = starts[first] + turn * size
            of_a(start, size, first + turn).wait()
            of_q(start, size, first + turn).wait()
            for piece in range(0, size, PIECE):
                acc_ref[...] += product(pl.multiple_of(start + piece, 256), min(PIECE, size))
            return 0

        jax.lax.fori_loop(0, number - first, add, 0)

    start, end = starts[last], starts[last] + chunks[last]
    if last:
        of_a(start, end - start, last).wait()
        of_q(start, end - start, last).wait()
    for copy in of_scales:
        copy.wait()
    column = row_ref[...].T
    for strip in range(0, n, width):
        columns = pl.ds(strip, width)
        # The last strip goes in halves of its rows: what leaves after the last product is half as much.
        halves = 2 if strip + width == n else 1
        for half in range(halves):
            rows = pl.ds(half * (m // halves), m // halves)
            for piece in range(start, end - PIECE, PIECE):
                sums = product(piece, PIECE, columns, rows)
                acc_ref[rows, columns] = acc_ref[rows, columns] + sums if last or piece > start else sums
            piece = max(start, end - PIECE)
            sums = product(piece, end - piece, columns, rows)
            if last or piece > start:
                sums += acc_ref[rows, columns]
            scaled = sums.astype(jnp.float32) * scales_ref[:, columns] * column[half * (m // halves) :][: m // halves]
            c_ref[rows, columns] = scaled.astype(c_ref.dtype)
            pltpu.make_async_copy(c_ref.at[rows, columns], c_hbm.at[rows, columns], written).start()
    # The semaphore counts bytes: one wait for all of them.
    pltpu.make_async_copy(c_ref, c_hbm, written).wait()


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
            pltpu.SemaphoreType.DMA((2,)),
            pltpu.SemaphoreType.DMA(()),
        ],
        compiler_params=pltpu.CompilerParams(vmem_limit_bytes=VMEM_LIMIT),
        name=KERNEL_NAME,
        # [m, 1] is laid out with one number in each row of 128 lanes; as a row it need not be copied for that.
    )(a, q, scales, row_scales.reshape(1, m))
