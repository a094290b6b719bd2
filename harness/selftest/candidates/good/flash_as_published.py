"""Calls the flash attention for TPUs that JAX publishes, unchanged.

Caught by: nothing
"""

from jax.experimental.pallas.ops.tpu.flash_attention import flash_attention

KERNEL_NAME = "planted"
PROBLEM_DESCRIPTION = "attention forward, one head"


def kernel_fn(q, k, v):
    q, k, v = (x[None, None] for x in (q, k, v))
    return flash_attention(q, k, v, sm_scale=q.shape[-1] ** -0.5)[0, 0]


def compute_flops(sequence, head_dim):
    return (4 * head_dim + 5) * sequence * sequence


def get_tiling_meta():
    return {}
