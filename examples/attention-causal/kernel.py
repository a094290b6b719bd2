"""Causal attention forward on a TPU, softmax(scale Q K^T) V of the keys up to each query: what an experiment changes.

Online softmax over the blocks of keys that some query of the block sees; the others are neither
fetched nor computed, nor are they steps of the grid. See the kernel.py at the top of the repository
for what the judge takes from this file.
"""

import functools
import math

import jax
import jax.numpy as jnp
from jax.experimental import pallas as pl
from jax.experimental.pallas import tpu as pltpu

KERNEL_NAME = "causal_attention"
PROBLEM_DESCRIPTION = "causal attention forward, one head, softmax scale 1/sqrt(head_dim)"

# Queries and keys of one block: as many of both, so that only blocks on the diagonal are hidden in part.
BLOCK = 2048
# Rows of a block on the diagonal that are worked on at a time.
STRIP = 512
# Rows of any other block that are worked on at a time: independent of each other, so that the matrix unit works for
# some while others are in their softmax.
ROWS = 1024
# The float32 scores of a block and what is made of them need more than the compiler's default of 16 MiB; a v5e has
# 128 MiB.
VMEM_LIMIT = 64 * 2**20
# The score of a hidden key: far below any other.
HIDDEN = -1e30


def attend(q_ref, k_ref, v_ref, o_ref, m_ref, l_ref, acc_ref, *, scale):
    """One step: block of queries against block of keys and values, all [BLOCK, d].

    m, l, acc [BLOCK, d] float32 live in VMEM over all key blocks of one query block: the running
    maximum (not scaled) and sum of each row (the same in every column) and the output not yet divided.
    """
    pair, step, last = pl.program_id(0), pl.program_id(1), pl.num_programs(1) - 1

    @pl.when((step == 0) | (step == pair + 1))
    def start():
        m_ref[...] = jnp.full_like(m_ref, -jnp.inf)
        l_ref[...] = jnp.zeros_like(l_ref)
        acc_ref[...] = jnp.zeros_like(acc_ref)

    # exp(scale x) = 2^(factor x). The hardware has powers of two, so exp would multiply once more for every score.
    factor = scale * math.log2(math.e)

    def absorb(rows, keys, hide):
        """Takes `keys` of the block of keys into these rows of m, l and acc; `hide` puts the mask on the scores."""
        scores = jax.lax.dot_general(
            q_ref[rows], k_ref[keys], (((1,), (1,)), ((), ())), preferred_element_type=jnp.float32
        )
        if hide:
            # Both blocks begin at the same place, so places within them compare like places in the sequence.
            query = rows.start + jax.lax.broadcasted_iota(jnp.int32, scores.shape, 0)
            key = jax.lax.broadcasted_iota(jnp.int32, scores.shape, 1)
            scores = jnp.where(key <= query, scores, HIDDEN)
        old_max = m_ref[rows, :1]
        new_max = jnp.maximum(old_max, scores.max(axis=1, keepdims=True))
        weights = jnp.exp2((scores - new_max) * factor)
        # What was summed up so far was relative to the old maximum.
        rescale = jnp.exp2((old_max - new_max) * factor)
        m_ref[rows] = jnp.broadcast_to(new_max, (rows.size, m_ref.shape[1]))
        l_ref[rows] = l_ref[rows] * rescale + weights.sum(axis=1, keepdims=True)
        values = jnp.dot(weights.astype(v_ref.dtype), v_ref[keys], preferred_element_type=jnp.float32)
        acc_ref[rows] = acc_ref[rows] * rescale + values

    on_diagonal = (step == pair) | (step == last)

    @pl.when(jnp.logical_not(on_diagonal))
    def before():
        for first in range(0, BLOCK, ROWS):
            absorb(pl.ds(first, ROWS), pl.ds(0, BLOCK), hide=False)

    @pl.when(on_diagonal)
    def diagonal():
        # In strips of rows, each up to its own end: of four strips, six sixteenths of the block are left out.
        for first in range(0, BLOCK, STRIP):
            absorb(pl.ds(first, STRIP), pl.ds(0, first + STRIP), hide=True)
        o_ref[...] = (acc_ref[...] / l_ref[:, :1]).astype(o_ref.dtype)


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

    accumulator = pltpu.VMEM((BLOCK, d), jnp.float32)
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
        scratch_shapes=[accumulator, accumulator, accumulator],
        compiler_params=pltpu.CompilerParams(
            dimension_semantics=("parallel", "arbitrary"), vmem_limit_bytes=VMEM_LIMIT
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
            "m": ((BLOCK, head_dim), "float32"),
            "l": ((BLOCK, head_dim), "float32"),
            "acc": ((BLOCK, head_dim), "float32"),
        },
        "inputs": {"q": once, "k": keys, "v": keys},
        "outputs": {"o": once},
    }
