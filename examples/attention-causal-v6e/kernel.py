"""Causal attention forward on a TPU v6e, softmax(scale Q K^T) V of keys up to each query: what an experiment changes.

Everything is transposed: scores are [keys, queries], so that the softmax of a query runs down a
column, and P lies as the matrix unit wants its weights. There the product V^T P fills all of a
256 x 256 unit, where P V would leave half of it empty (head_dim is 128). Keys that no query of a
block sees are neither fetched nor computed. See the kernel.py at the top of the repository for what
the judge takes from this file.
"""

import functools
import math

import jax
import jax.numpy as jnp
from jax.experimental import pallas as pl
from jax.experimental.pallas import tpu as pltpu

KERNEL_NAME = "transposed_causal_attention"
PROBLEM_DESCRIPTION = "causal attention forward, one head, softmax scale 1/sqrt(head_dim)"

# Queries and keys of one block: as many of both, so that only blocks on the diagonal are hidden in part.
BLOCK = 4096
# Keys of a block on the diagonal that are worked on at a time, with the queries from their first one on.
STRIP = 512
# How much VMEM the compiler may give the kernel, in bytes; a v6e has 128 MiB.
VMEM_LIMIT = 100 * 2**20
# Keys whose largest visible score is the first guess of a query's maximum.
SAMPLE = 128
# Rows of ones below V^T, one packed register of them: their product with the weights is the sum of the weights.
ONES = 16
# The largest exponent of a weight. Most of the weight lies some powers of two below the largest; there
# exponents near zero lose least when they are rounded to bfloat16.
TOP = 3.0
# The score of a hidden key: far below any other.
HIDDEN = -1e30


def hide(scores, first_query):
    """HIDDEN for the keys, from 0 on, that come after their query, from first_query on."""
    key = jax.lax.broadcasted_iota(jnp.int32, scores.shape, 0)
    query = first_query + jax.lax.broadcasted_iota(jnp.int32, scores.shape, 1)
    return jnp.where(key <= query, scores, HIDDEN)


def attend(q_ref, k_ref, v_ref, o_ref, q_t_ref, v_t_ref, m_ref, acc_ref, *, scale):
    """One step: block of queries against block of keys and values, all [BLOCK, d].

    q_t [d, BLOCK], m [1, BLOCK] and acc [d + ONES, BLOCK] float32 live in VMEM over all key blocks of one
    query block: the queries, what is subtracted from their scores, and the output and (in the rows from
    d on) the sum of its weights, not yet divided. v_t [d + ONES, BLOCK] is V^T, with
    ones below.
    """
    pair, step, last = pl.program_id(0), pl.program_id(1), pl.num_programs(1) - 1
    d = q_ref.shape[1]
    # exp(scale x) = 2^(factor x). Applied to the scores: queries that are scaled first are rounded once more.
    factor = scale * math.log2(math.e)

    @pl.when((step == 0) | (step == pair + 1))
    def start():
        q_t_ref[...] = q_ref[...].T
        v_t_ref[d:] = jnp.ones_like(v_t_ref[d:])
        sample = jnp.dot(k_ref[:SAMPLE], q_t_ref[...], preferred_element_type=jnp.float32)
        # The keys are the first of all. Only in the first block there are queries that do not see them all.
        sample = hide(sample, jnp.where(step == 0, pair, last - 1 - pair) * BLOCK)
        m_ref[...] = sample.max(axis=0, keepdims=True) - TOP / factor
        acc_ref[...] = jnp.zeros_like(acc_ref)

    def absorb(keys, queries, crossed):
        """Takes `keys` of the block of keys into m and acc of these queries; `crossed`: both begin on the diagonal."""
        scores = jnp.dot(k_ref[keys], q_t_ref[:, queries], preferred_element_type=jnp.float32)
        if crossed:
            scores = hide(scores, 0)
        # Relative to the maximum so far and rounded at once: half the registers until the new maximum is known.
        exponents = ((scores - m_ref[:, queries]) * factor).astype(jnp.bfloat16)
        rise = jnp.maximum(exponents.max(axis=0, keepdims=True) - jnp.bfloat16(TOP), 0)
        # The power of two of the hardware. jnp.exp2 is the same there, but multiplies by a rounded ln 2 elsewhere.
        weights = jnp.power(jnp.bfloat16(2), exponents - rise)
        rise = rise.astype(jnp.float32)
        m_ref[:, queries] += rise / factor
        values = jnp.dot(v_t_ref[:, keys], weights, preferred_element_type=jnp.float32)
        # What was summed up so far was relative to the old maximum.
        acc_ref[:, queries] = acc_ref[:, queries] * jnp.exp2(-rise) + values

    on_diagonal = (step == pair) | (step == last)

    @pl.when(jnp.logical_not(on_diagonal))
    def before():
        # Here as in `diagonal`, not once for both: within one block of code it is hidden behind the first scores.
        v_t_ref[:d] = v_ref[...].T
        every = slice(0, BLOCK)
        absorb(every, every, crossed=False)

    @pl.when(on_diagonal)
    def diagonal():
        v_t_ref[:d] = v_ref[...].T
        # In strips of keys, each with the queries that see any of it: of eight strips, 28 of 64 tiles are left out.
        for first in range(0, BLOCK, STRIP):
            absorb(slice(first, first + STRIP), slice(first, BLOCK), crossed=True)
        o_ref[...] = (acc_ref[:d] / acc_ref[d : d + 1]).T.astype(o_ref.dtype)


def kernel_fn(q, k, v):
    """Causal attention of q, k, v [sequence, d]. Raises ValueError where a block does not divide the sequence."""
    sequence, d = q.shape
    if sequence % (2 * BLOCK):
        raise ValueError(f"expected 2 BLOCK to divide the sequence of {sequence}, got BLOCK={BLOCK}")
    blocks = sequence // BLOCK

    # Block i of queries needs the i + 1 blocks of keys up to its own. Together with the i-th from the end that makes
    # blocks + 1 steps for each i: a rectangular grid without a step that does nothing.
    def query_block(i, step):
        return jnp.where(step <= i, i, blocks - 1 - i), 0

    def key_block(i, step):
        return jnp.where(step <= i, step, step - i - 1), 0

    return pl.pallas_call(
        functools.partial(attend, scale=1 / math.sqrt(d)),
        out_shape=jax.ShapeDtypeStruct(q.shape, q.dtype),
        grid=(blocks // 2, blocks + 1),
        in_specs=[
            pl.BlockSpec((BLOCK, d), query_block),
            pl.BlockSpec((BLOCK, d), key_block),
            pl.BlockSpec((BLOCK, d), key_block),
        ],
        out_specs=pl.BlockSpec((BLOCK, d), query_block),
        scratch_shapes=[
            pltpu.VMEM((d, BLOCK), q.dtype),
            pltpu.VMEM((d + ONES, BLOCK), v.dtype),
            pltpu.VMEM((1, BLOCK), jnp.float32),
            pltpu.VMEM((d + ONES, BLOCK), jnp.float32),
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
    """FLOPs of one call: two matmuls and five for every score, of the pairs that the mask lets through."""
    pairs = sequence * (sequence + 1) // 2
    return 4 * pairs * head_dim + 5 * pairs


def get_tiling_meta(sequence=16384, head_dim=128):
    """Grid, buffers and traffic: each block of queries reads the keys and values up to its own, Q and O cross once."""
    blocks = sequence // BLOCK
    once = 2 * sequence * head_dim
    # Block i of queries needs i + 1 blocks of keys; the first is still there after block 0, which needs no other.
    keys = 2 * (blocks * (blocks + 1) // 2 - 1) * BLOCK * head_dim
    return {
        "grid": (blocks // 2, blocks + 1),
        "buffers": {
            "q": ((BLOCK, head_dim), "bfloat16"),
            "k": ((BLOCK, head_dim), "bfloat16"),
            "v": ((BLOCK, head_dim), "bfloat16"),
            "o": ((BLOCK, head_dim), "bfloat16"),
            "q_t": ((head_dim, BLOCK), "bfloat16"),
            "v_t": ((head_dim + ONES, BLOCK), "bfloat16"),
            "m": ((1, BLOCK), "float32"),
            "acc": ((head_dim + ONES, BLOCK), "float32"),
        },
        "inputs": {"q": once, "k": keys, "v": keys},
        "outputs": {"o": once},
    }
