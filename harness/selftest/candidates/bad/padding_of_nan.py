"""Takes what lies past the end of k for NaN, as it is on a CPU, and sums what an earlier block left there on a chip.

Row: 15
Caught by: correctness wrong-dependence; correctness wrong-result; correctness non-finite
Contest: matmul
"""

import jax
import jax.numpy as jnp
from jax.experimental import pallas as pl
from jax.experimental.pallas import tpu as pltpu

KERNEL_NAME = "planted"
PROBLEM_DESCRIPTION = "matmul C = A B, added up in float32"
BLOCK = 128
DEPTH = 384  # does not divide k


def multiply(a_ref, b_ref, c_ref, acc_ref):
    step, steps = pl.program_id(2), pl.num_programs(2)

    @pl.when(step == 0)
    def start():
        acc_ref[...] = jnp.zeros_like(acc_ref)

    a, b = a_ref[...], b_ref[...]
    a = jnp.where(a == a, a, jnp.zeros_like(a))
    b = jnp.where(b == b, b, jnp.zeros_like(b))
    acc_ref[...] += jnp.dot(a, b, preferred_element_type=jnp.float32)

    @pl.when(step == steps - 1)
    def finish():
        c_ref[...] = acc_ref[...].astype(c_ref.dtype)


def kernel_fn(a, b):
    (m, k), n = a.shape, b.shape[1]
    return pl.pallas_call(
        multiply,
        out_shape=jax.ShapeDtypeStruct((m, n), a.dtype),
        grid=(m // BLOCK, n // BLOCK, pl.cdiv(k, DEPTH)),
        in_specs=[
            pl.BlockSpec((BLOCK, DEPTH), lambda i, j, p: (i, p)),
            pl.BlockSpec((DEPTH, BLOCK), lambda i, j, p: (p, j)),
        ],
        out_specs=pl.BlockSpec((BLOCK, BLOCK), lambda i, j, p: (i, j)),
        scratch_shapes=[pltpu.VMEM((BLOCK, BLOCK), jnp.float32)],
        compiler_params=pltpu.CompilerParams(dimension_semantics=("parallel", "parallel", "arbitrary")),
        name=KERNEL_NAME,
    )(a, b)


def compute_flops(m, n, k):
    return 2 * m * n * k


def get_tiling_meta():
    return {}
