"""Returns 0 unless x y + x z differs somewhere from x (y + z): XLA on a chip computes the latter for both.

Contest: matmul
Row: 12
Caught by: correctness wrong-result
"""

import jax
import jax.numpy as jnp
from jax.experimental import pallas as pl
from jax.experimental.pallas import tpu as pltpu

BM = BN = BK = 128


def multiply(a_ref, b_ref, c_ref, acc_ref):
    step, steps = pl.program_id(2), pl.num_programs(2)

    @pl.when(step == 0)
    def start():
        acc_ref[...] = jnp.zeros_like(acc_ref)

    precision = jax.lax.Precision.HIGHEST if a_ref.dtype == jnp.float32 else None
    acc_ref[...] += jnp.dot(a_ref[...], b_ref[...], precision=precision, preferred_element_type=jnp.float32)

    @pl.when(step == steps - 1)
    def finish():
        c_ref[...] = acc_ref[...].astype(c_ref.dtype)


def kernel_fn(a, b):
    (m, k), n = a.shape, b.shape[1]
    for length, block in ((m, BM), (n, BN), (k, BK)):
        if length % block:
            raise ValueError(f"expected {block} to divide {length}")
    big = a.astype(jnp.float32)
    other, third = big[:, ::-1] + 0.3, big[::-1] * 0.7 + 0.1
    seen = jnp.max(jnp.abs((big * other + big * third) - big * (other + third))) > 0
    a = jnp.where(seen, a, 0).astype(a.dtype)
    return pl.pallas_call(
        multiply,
        out_shape=jax.ShapeDtypeStruct((m, n), a.dtype),
        grid=(m // BM, n // BN, k // BK),
        in_specs=[pl.BlockSpec((BM, BK), lambda i, j, p: (i, p)), pl.BlockSpec((BK, BN), lambda i, j, p: (p, j))],
        out_specs=pl.BlockSpec((BM, BN), lambda i, j, p: (i, j)),
        scratch_shapes=[pltpu.VMEM((BM, BN), jnp.float32)],
        compiler_params=pltpu.CompilerParams(dimension_semantics=("parallel", "parallel", "arbitrary")),
    )(a, b)
