"""Matrix product of activations and weights of float8 on a TPU: the one file that an experiment changes.

One kernel without a grid, which copies by hand. A stays in VMEM, and strips of columns of Q pass by, each multiplied over
all of k at once. The first strip comes in chunks of k together with A, so that products begin after the first chunk.
"""

import functools

import jax
import jax.numpy as jnp
from jax.experimental import pallas as pl
from jax.experimental.pallas import tpu as pltpu

KERNEL_NAME = "streamed_fp8_matmul"
PROBLEM_DESCRIPTION = "matmul of float8_e4m3fn with a scale for each row and column, added up in float32"

# Columns of Q, and of the result, that are multiplied at a time.
STRIP = 512
# The part of k that A and the first strip of Q are fetched by.
CHUNK = 1024
VMEM_LIMIT = 60 * 2**20


def multiply(
    a_hbm, q_hbm, scales_ref, row_ref, c_hbm, a_ref, q_ref, acc_ref, c_ref, first, fetched, written, *, chunk, strip
):
    """C [m, n]; a [m, k] is all of A, q [2, k, strip] and c [2, m, strip] two strips, acc [m, strip] float32 sums.

    `first` has a semaphore for each chunk of A and of the first strip, `fetched` and `written` one for each buffer.
    """
    (m, k), strips, chunks = a_ref.shape, q_hbm.shape[1] // strip, a_ref.shape[1] // chunk
    column = row_ref[...].T

    def of_first(number):
        part = pl.ds(number * chunk, chunk)
        return (
            pltpu.make_async_copy(q_hbm.at[part, pl.ds(0, strip)], q_ref.at[0, part], first.at[1, number]),
            pltpu.make_async_copy(a_hbm.at[:, part], a_ref.at[:, part], first.at[0, number]),
        )

    def of_strip(number, slot):
        columns = pl.ds(pl.multiple_of(number * strip, strip), strip)
        return pltpu.make_async_copy(q_hbm.at[:, columns], q_ref.at[slot], fetched.at[slot])

    def out(number, slot):
        columns = pl.ds(pl.multiple_of(number * strip, strip), strip)
        return pltpu.make_async_copy(c_ref.at[slot], c_hbm.at[:, columns], written.at[slot])

    def finish(sums, number, slot):
        columns = pl.ds(pl.multiple_of(number * strip, strip), strip)
        c_ref[slot] = (sums * scales_ref[:, columns] * column).astype(c_ref.dtype)
        out(number, slot).start()

    for number in range(chunks):
        for copy in of_first(number):
            copy.start()
    of_strip(1, 1).start()
    for number in range(chunks):
        for copy in of_first(number):
            copy.wait()
        part = pl.ds(number * chunk, chunk)
        product = jnp.dot(a_ref[:, part], q_ref[0, part], preferred_element_type=jnp.float32)
        sums = product if number == 0 else acc_ref[...] + product
        if number == chunks - 1:
            finish(sums, 0, 0)
        else:
            acc_ref[...] = sums

    def step(number, _):
        slot = jax.lax.rem(number, 2)

        @pl.when(number + 1 < strips)
        def fetch():
            of_strip(number + 1, 1 - slot).start()

        of_strip(number, slot).wait()

        @pl.when(number >= 2)
        def reuse():
            out(number - 2, slot).wait()

        finish(jnp.dot(a_ref[...], q_ref[slot], preferred_element_type=jnp.float32), number, slot)
        return 0

    jax.lax.fori_loop(1, strips, step, 0)
    for number in (strips - 2, strips - 1):
        out(number, number % 2).wait()


def kernel_fn(a, q, scales, row_scales):
    """The product of a [m, k] and q [k, n], scaled [1, n] and [m, 1], in bfloat16.

    Raises ValueError where a strip or a chunk does not divide them.
    """
    (m, k), n = a.shape, q.shape[1]
    strip, chunk = min(STRIP, n // 2), min(CHUNK, k)
    for name, length, block in (("STRIP", n, strip), ("CHUNK", k, chunk)):
        if length % block:
            raise ValueError(f"expected {name} to divide {length}, got {name}={block}")
    chunks = k // chunk
    whole = pl.BlockSpec(memory_space=pltpu.VMEM)
    far = pl.BlockSpec(memory_space=pl.ANY)
    return pl.pallas_call(
        functools.partial(multiply, chunk=chunk, strip=strip),
        out_shape=jax.ShapeDtypeStruct((m, n), jnp.bfloat16),
        in_specs=[far, far, whole, whole],
        out_specs=far,
        scratch_shapes=[
            pltpu.VMEM((m, k), a.dtype),
            pltpu.VMEM((2, k, strip), q.dtype),
            pltpu.VMEM((m, strip), jnp.float32),
            pltpu.VMEM((2, m, strip), jnp.bfloat16),
            pltpu.SemaphoreType.DMA((2, chunks)),
            pltpu.SemaphoreType.DMA((2,)),
            pltpu.SemaphoreType.DMA((2,)),
        ],
        compiler_params=pltpu.CompilerParams(vmem_limit_bytes=VMEM_LIMIT),
        name=KERNEL_NAME,
    )(a, q, scales, row_scales.reshape(1, m))
