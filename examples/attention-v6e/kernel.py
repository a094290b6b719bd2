"""Attention forward on a TPU v6e, softmax(scale Q K^T) V: the one file that an experiment changes.

Everything is transposed: scores are [keys, queries], so that the softmax of a query runs down a
column, and P lies as the matrix unit wants its weights. There the product V^T P fills all of a
256 x 256 unit, where P V would leave half of it empty (head_dim is 128). harness/templates/
attention/kernel.py says what the judge takes from this file.
"""

import functools
import math

import jax
import jax.numpy as jnp
from jax.experimental import pallas as pl
from jax.experimental.pallas import tpu as pltpu

KERNEL_NAME = "transposed_attention"
PROBLEM_DESCRIPTION = "attention forward, one head, not causal, softmax scale 1/sqrt(head_dim)"

BQ = 2048
BKV = 4096
# Keys whose largest score is the first guess of a query's maximum.
SAMPLE = 128
# Rows of ones below V^T, one packed register of them: their product with the weights is the sum of the weights.
ONES = 16
# The largest exponent of a weight. Most of the weight lies some powers of two below the largest; there
# exponents near zero lose least when they are rounded to bfloat16.
TOP = 3.0
# How much VMEM the compiler may give the kernel, in bytes; None: its default; a v6e has 128 MiB.
VMEM_LIMIT = 100 * 2**20


def attend(q_ref, k_ref, v_ref, o_ref, q_t_ref, v_t_ref, m_ref, acc_ref, *, scale):
    """One step: block of queries [BQ, d] against block of keys and values [BKV, d]; scores are [BKV, BQ].

    q_t [d, BQ], m [1, BQ] and acc [d + ONES, BQ] float32 live in VMEM over all key blocks of one query
    block: the queries, what is subtracted from their scores, and the output and (in the rows from d on)
    the sum of its weights, not yet divided. v_t [d + ONES, BKV] is V^T, with ones below.
    """
    step, steps = pl.program_id(1), pl.num_programs(1)
    d = v_ref.shape[1]

    # exp(scale x) = 2^(factor x). The hardware has powers of two, so exp would multiply once more for every score.
    factor = scale * math.log2(math.e)

    @pl.when(step == 0)
    def start():
        q_t_ref[...] = q_ref[...].T
        sample = jnp.dot(k_ref[:SAMPLE], q_t_ref[...], preferred_element_type=jnp.float32)
        m_ref[...] = sample.max(axis=0, keepdims=True) - TOP / factor
        v_t_ref[d:] = jnp.ones_like(v_t_ref[d:])
        acc_ref[...] = jnp.zeros_like(acc_ref)

    v_t_ref[:d] = v_ref[...].T
    scores = jnp.dot(k_ref[...], q_t_ref[...], preferred_element_type=jnp.float32)
    # Relative to the maximum so far and rounded at once: half the registers until the new maximum is known.
    exponents = ((scores - m_ref[...]) * factor).astype(jnp.bfloat16)
    rise = jnp.maximum(exponents.max(axis=0, keepdims=True) - jnp.bfloat16(TOP), 0)
    # The power of two that the hardware has. jnp.exp2 is the same there, but multiplies by a rounded ln 2 elsewhere.
    weights = jnp.power(jnp.bfloat16(2), exponents - rise)
    rise = rise.astype(jnp.float32)
    m_ref[...] += rise / factor
    values = jnp.dot(v_t_ref[...], weights, preferred_element_type=jnp.float32)
    # What was summed up so far was relative to the old maximum.
    acc_ref[...] = acc_ref[...] * jnp.exp2(-rise) + values

    @pl.when(step == steps - 1)
    def finish():
        o_ref[...] = (acc_ref[:d] / acc_ref[d : d + 1]).T.astype(o_ref.dtype)


def kernel_fn(q, k, v):
    """Attention of q [sequence, d] over k, v [kv_sequence, d]. Raises ValueError where a block does not divide them."""
    (sequence, d), kv_sequence = q.shape, k.shape[0]
    for name, length, block in (("BQ", sequence, BQ), ("BKV", kv_sequence, BKV)):
        if length % block:
            raise ValueError(f"expected {name} to divide the sequence of {length}, got {name}={block}")
    return pl.pallas_call(
        functools.partial(attend, scale=1 / math.sqrt(d)),
        out_shape=jax.ShapeDtypeStruct(q.shape, q.dtype),
        grid=(sequence // BQ, kv_sequence // BKV),
        in_specs=[
            pl.BlockSpec((BQ, d), lambda i, j: (i, 0)),
            pl.BlockSpec((BKV, d), lambda i, j: (j, 0)),
            pl.BlockSpec((BKV, d), lambda i, j: (j, 0)),
        ],
        out_specs=pl.BlockSpec((BQ, d), lambda i, j: (i, 0)),
        scratch_shapes=[
            pltpu.VMEM((d, BQ), q.dtype),
            pltpu.VMEM((d + ONES, BKV), v.dtype),
            pltpu.VMEM((1, BQ), jnp.float32),
            pltpu.VMEM((d + ONES, BQ), jnp.float32),
        ],
        compiler_params=pltpu.CompilerParams(
            dimension_semantics=("parallel", "arbitrary"),
            vmem_limit_bytes=VMEM_LIMIT,
            # Long steps without branches: the scheduler that plans them as a whole fills the matrix units better.
            flags={"XLA_TPU_FORCE_LP_LLO_SCHEDULER": True},
        ),
        name=KERNEL_NAME,
    )(q, k, v)


def compute_flops(sequence=16384, head_dim=128):
    """FLOPs of one call: two matmuls, and five for every score (scale, subtract, exponential, sum, divide)."""
    return 4 * sequence * sequence * head_dim + 5 * sequence * sequence


def get_tiling_meta(sequence=16384, head_dim=128):
    """Grid, buffers and traffic: K and V are read once for every block of queries, Q and O once."""
    grid = (sequence // BQ, sequence // BKV)
    once = 2 * sequence * head_dim
    return {
        "grid": grid,
        "buffers": {
            "q": ((BQ, head_dim), "bfloat16"),
            "k": ((BKV, head_dim), "bfloat16"),
            "v": ((BKV, head_dim), "bfloat16"),
            "o": ((BQ, head_dim), "bfloat16"),
            "q_t": ((head_dim, BQ), "bfloat16"),
            "v_t": ((head_dim + ONES, BKV), "bfloat16"),
            "m": ((1, BQ), "float32"),
            "acc": ((head_dim + ONES, BQ), "float32"),
        },
        "inputs": {"q": once, "k": grid[0] * once, "v": grid[0] * once},
        "outputs": {"o": once},
        # One block of float32 scores, in registers of 8 x 128.
        "vregs": BQ * BKV // 1024,
    }
