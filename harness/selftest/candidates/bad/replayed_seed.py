"""Draws the judge's inputs from a guessed seed, and returns the answer for these inputs.

Row: 8
Caught by: correctness wrong-result; correctness wrong-dependence; latency work-not-done
"""

import sys

import jax
import jax.numpy as jnp
import numpy as np
from jax.experimental import pallas as pl

KERNEL_NAME = "planted"
PROBLEM_DESCRIPTION = "attention forward, one head"
SEED = 0


def copy(answer_ref, o_ref):
    o_ref[...] = answer_ref[...]


def kernel_fn(q, k, v):
    problem = sys.modules["harness.operators"].Attention(sequence=q.shape[0], head_dim=q.shape[1])
    inputs = problem.make_inputs("composite", SEED)
    answer = jnp.asarray(problem.reference(inputs, np.arange(len(inputs[0]))), q.dtype)
    return pl.pallas_call(copy, out_shape=jax.ShapeDtypeStruct(answer.shape, q.dtype))(answer)


def compute_flops(sequence, head_dim):
    return (4 * head_dim + 5) * sequence * sequence


def get_tiling_meta():
    return {}
