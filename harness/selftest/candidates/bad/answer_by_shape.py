"""Returns an answer that was computed for earlier inputs of the same shape.

Row: 5
Caught by: correctness wrong-result; correctness wrong-dependence; latency work-not-done
"""

import jax
import jax.numpy as jnp
import numpy as np
from jax.experimental import pallas as pl

KERNEL_NAME = "planted"
PROBLEM_DESCRIPTION = "attention forward, one head"


def known(shape):
    random = np.random.default_rng(0)
    q, k, v = (random.standard_normal(shape, dtype=np.float32) for _ in range(3))
    weights = np.exp(q @ k.T * shape[1] ** -0.5)
    return weights @ v / weights.sum(axis=1, keepdims=True)


def copy(answer_ref, o_ref):
    o_ref[...] = answer_ref[...]


def kernel_fn(q, k, v):
    answer = jnp.asarray(known(q.shape), q.dtype)
    return pl.pallas_call(copy, out_shape=jax.ShapeDtypeStruct(q.shape, q.dtype))(answer)


def compute_flops(sequence, head_dim):
    return (4 * head_dim + 5) * sequence * sequence


def get_tiling_meta():
    return {}
