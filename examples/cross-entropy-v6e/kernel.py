"""Cross-entropy of a language model's last layer on a TPU: the one file that an experiment changes.

All tokens stay in VMEM, so that W is read once: each grid step makes the logits of BV words, with the largest so far
and the sum of exponentials so far for each token. The judge traces kernel_fn and checks what compute_flops() and
get_tiling_meta() claim.
"""

import jax
import jax.numpy as jnp
from jax.experimental import pallas as pl
from jax.experimental.pallas import tpu as pltpu

KERNEL_NAME = "cross_entropy_of_all_tokens"
PROBLEM_DESCRIPTION = "log(sum(exp(x w))) minus the label's logit, of every token; logits added up in float32"

BT = 1024
BV = 2048
# How much VMEM the compiler may give the kernel, in bytes: two blocks of W of 20 MiB, X and the logits.
VMEM_LIMIT = 100 << 20


def lose(x_ref, w_ref, labels_ref, losses_ref, largest_ref, total_ref, label_ref):
    """One step: block of X [BT, model] times block of W [model, BV]; three numbers a token in VMEM."""
    word, words = pl.program_id(1), pl.num_programs(1)

    @pl.when(word == 0)
    def first():
        largest_ref[...] = jnp.full_like(largest_ref, -jnp.inf)
        total_ref[...] = jnp.zeros_like(total_ref)
        label_ref[...] = jnp.zeros_like(label_ref)

    logits = jnp.dot(x_ref[...], w_ref[...], preferred_element_type=jnp.float32)
    columns = word * BV + jax.lax.broadcasted_iota(jnp.int32, logits.shape, 1)
    is_label = columns == labels_ref[...]
    label_ref[...] += jnp.sum(jnp.where(is_label, logits, 0.0), axis=1, keepdims=True)
    largest = jnp.maximum(largest_ref[...], jnp.max(logits, axis=1, keepdims=True))
    so_far = total_ref[...] * jnp.exp(largest_ref[...] - largest)
    total_ref[...] = so_far + jnp.sum(jnp.exp(logits - largest), axis=1, keepdims=True)
    largest_ref[...] = largest

    @pl.when(word == words - 1)
    def finish():
        losses_ref[...] = largest_ref[...] + jnp.log(total_ref[...]) - label_ref[...]


def kernel_fn(x, w, labels):
    """The losses [tokens, 1] float32 of x [tokens, model], w [model, vocabulary] and labels [tokens, 1] int32.

    Raises ValueError where a block does not divide them.
    """
    (tokens, model), vocabulary = x.shape, w.shape[1]
    if tokens % BT or vocabulary % BV:
        raise ValueError(f"expected BT to divide {tokens} and BV {vocabulary}, got BT={BT}, BV={BV}")
    column = pl.BlockSpec((BT, 1), lambda i, j: (i, 0))
    return pl.pallas_call(
        lose,
        out_shape=jax.ShapeDtypeStruct((tokens, 1), jnp.float32),
        grid=(tokens // BT, vocabulary // BV),
        in_specs=[
            pl.BlockSpec((BT, model), lambda i, j: (i, 0)),
            pl.BlockSpec((model, BV), lambda i, j: (0, j)),
            column,
        ],
        out_specs=column,
        scratch_shapes=[pltpu.VMEM((BT, 1), jnp.float32)] * 3,
        compiler_params=pltpu.CompilerParams(
            dimension_semantics=("parallel", "arbitrary"), vmem_limit_bytes=VMEM_LIMIT
        ),
        name=KERNEL_NAME,
    )(x, w, labels)


def compute_flops(tokens=1024, model=5120, vocabulary=131072):
    """FLOPs of one call: the product, and three for every logit."""
    return 2 * tokens * model * vocabulary + 3 * tokens * vocabulary
