"""Skips blocks of A in which every eighth row is zero, though the other rows can be nonzero.

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

    a = a_ref[...].astype(jnp.float32).reshape(16, 8, a_ref.shape[1])
    has = jnp.max(jnp.abs(a[:, 0])) > 0
    acc_ref[...] += jnp.where(has, jnp.dot(a_ref[...], b_ref[...], preferred_element_type=jnp.float32), 0.0)

    @pl.when(step == steps - 1)
    def finish():
        c_ref[...] = acc_ref[...].astype(c_ref.dtype)


def kernel_fn(a, b):
    (m, k), n = a.shape, b.shape[1]
    for length, block in ((m, BM), (n, BN), (k, BK)):
        if length % block:
            raise ValueError(f"expected {block} to divide {length}")

    return pl.pallas_call(
        multiply,
        out_shape=jax.ShapeDtypeStruct((m, n), a.dtype),
        grid=(m // BM, n // BN, k // BK),
        in_specs=[pl.BlockSpec((BM, BK), lambda i, j, p: (i, p)), pl.BlockSpec((BK, BN), lambda i, j, p: (p, j))],
        out_specs=pl.BlockSpec((BM, BN), lambda i, j, p: (i, j)),
        scratch_shapes=[pltpu.VMEM((BM, BN), jnp.float32)],
        compiler_params=pltpu.CompilerParams(dimension_semantics=("parallel", "parallel", "arbitrary")),
    )(a, b)
