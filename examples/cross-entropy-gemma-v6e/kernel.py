"""Cross-entropy of a language model's last layer on a TPU: the one file that an experiment changes.

The honest naive kernel to start from: a block of logits at a time, with the largest so far and the sum of
exponentials so far for each token. The judge traces kernel_fn and checks what compute_flops() and get_tiling_meta()
claim.
"""

import jax
import jax.numpy as jnp
from jax.experimental import pallas as pl
from jax.experimental.pallas import tpu as pltpu

KERNEL_NAME = "naive_cross_entropy"
PROBLEM_DESCRIPTION = "log(sum(exp(x w))) minus the label's logit, of every token; logits added up in float32"

BT = 256
BV = 512
BK = 384
# How much VMEM the compiler may give the kernel, in bytes; None: its default (16 MiB on v5e).
VMEM_LIMIT = None


def lose(x_ref, w_ref, labels_ref, losses_ref, logits_ref, largest_ref, total_ref, label_ref):
    """One step: block of X [BT, BK] times block of W [BK, BV]; logits [BT, BV] and three numbers a token in VMEM."""
    word, words = pl.program_id(1), pl.num_programs(1)
    step, steps = pl.program_id(2), pl.num_programs(2)

    @pl.when((word == 0) & (step == 0))
    def first():
        largest_ref[...] = jnp.full_like(largest_ref, -jnp.inf)
        total_ref[...] = jnp.zeros_like(total_ref)
        label_ref[...] = jnp.zeros_like(label_ref)

    @pl.when(step == 0)
    def start():
        logits_ref[...] = jnp.zeros_like(logits_ref)

    # By default the matrix unit rounds float32 to bfloat16; HIGHEST takes six passes instead of one.
    precision = jax.lax.Precision.HIGHEST if x_ref.dtype == jnp.float32 else None
    logits_ref[...] += jnp.dot(x_ref[...], w_ref[...], precision=precision, preferred_element_type=jnp.float32)

    @pl.when(step == steps - 1)
    def add():
        logits = logits_ref[...]
        columns = word * BV + jax.lax.broadcasted_iota(jnp.int32, logits.shape, 1)
        is_label = columns == labels_ref[...]
        label_ref[...] += jnp.sum(jnp.where(is_label, logits, 0.0), axis=1, keepdims=True)
        largest = jnp.maximum(largest_ref[...], jnp.max(logits, axis=1, keepdims=True))
        so_far = total_ref[...] * jnp.exp(largest_ref[...] - largest)
        total_ref[...] = so_far + jnp.sum(jnp.exp(logits - largest), axis=1, keepdims=True)
        largest_ref[...] = largest

    @pl.when((word == words - 1) & (step == steps - 1))
    def finish():
        losses_ref[...] = largest_ref[...] + jnp.log(total_ref[...]) - label_ref[...]


def kernel_fn(x, w, labels):
    """The losses [tokens, 1] float32 of x [tokens, model], w [model, vocabulary] and labels [tokens, 1] int32.

    Raises ValueError where a block does not divide them.
    """
    (tokens, model), vocabulary = x.shape, w.shape[1]
    for constant, length, block in (("BT", tokens, BT), ("BV", vocabulary, BV), ("BK", model, BK)):
        if length % block:
            raise ValueError(f"expected {constant} to divide {length}, got {constant}={block}")
    column = pl.BlockSpec((BT, 1), lambda i, j, p: (i, 0))
    return pl.pallas_call(
        lose,
        out_shape=jax.ShapeDtypeStruct((tokens, 1), jnp.float32),
        grid=(tokens // BT, vocabulary // BV, model // BK),
        in_specs=[
            pl.BlockSpec((BT, BK), lambda i, j, p: (i, p)),
            pl.BlockSpec((BK, BV), lambda i, j, p: (p, j)),
            column,
        ],
        out_specs=column,
        scratch_shapes=[pltpu.VMEM((BT, BV), jnp.float32)] + [pltpu.VMEM((BT, 1), jnp.float32)] * 3,
        compiler_params=pltpu.CompilerParams(
            dimension_semantics=("parallel", "arbitrary", "arbitrary"), vmem_limit_bytes=VMEM_LIMIT
        ),
        name=KERNEL_NAME,
    )(x, w, labels)


def compute_flops(tokens=2048, model=2048, vocabulary=32768):
    """FLOPs of one call: the product, and three for every logit."""
    return 2 * tokens * model * vocabulary + 3 * tokens * vocabulary


def get_tiling_meta(tokens=2048, model=2048, vocabulary=32768):
    """X is read once for every block of words, W once for every block of tokens."""
    grid = (tokens // BT, vocabulary // BV, model // BK)
    # X stays where it is if one block has the whole model.
    x = 2 * tokens * model * (grid[1] if grid[2] > 1 else 1)
    return {
        "grid": grid,
        "buffers": {
            "x": ((BT, BK), "bfloat16"),
            "w": ((BK, BV), "bfloat16"),
            "labels": ((BT, 1), "int32"),
            "losses": ((BT, 1), "float32"),
            "logits": ((BT, BV), "float32"),
            "largest": ((BT, 1), "float32"),
            "total": ((BT, 1), "float32"),
            "label": ((BT, 1), "float32"),
        },
        "inputs": {"x": x, "w": 2 * model * vocabulary * grid[0], "labels": 4 * tokens},
        "outputs": {"losses": 4 * tokens},
    }
