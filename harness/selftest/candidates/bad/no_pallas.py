"""Has no Pallas call at all: it gives back the values as they are.

Row: 10
Caught by: static no-pallas-call
"""

import jax
import jax.numpy as jnp

KERNEL_NAME = "planted"
PROBLEM_DESCRIPTION = "attention forward, one head"
BLOCK = 128


def attend(q_ref, k_ref, v_ref, o_ref):
    scores = jax.lax.dot_general(q_ref[...], k_ref[...], (((1,), (1,)), ((), ())), preferred_element_type=jnp.float32)
    scores = scores * q_ref.shape[1] ** -0.5
    weights = jnp.exp(scores - scores.max(axis=1, keepdims=True))
    values = jnp.dot(weights.astype(v_ref.dtype), v_ref[...], preferred_element_type=jnp.float32)
    o_ref[...] = (values / weights.sum(axis=1, keepdims=True)).astype(o_ref.dtype)


def kernel_fn(q, k, v):
    return v


def compute_flops(sequence, head_dim):
    return (4 * head_dim + 5) * sequence * sequence


def get_tiling_meta():
    return {}
