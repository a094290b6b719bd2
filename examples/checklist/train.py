"""A step with the faults that `doctor` looks for (`step`), one without them (`mended`), one that fails (`traced`)."""

import functools

import jax
import jax.numpy as jnp
import numpy as np

ROWS, WIDTH, HEADS, WORDS, HEAD = 8, 2048, 8, 512, 64
WEIGHTS = jnp.ones((WIDTH, WIDTH), jnp.bfloat16)
QUERIES = jnp.ones((HEADS, WORDS, HEAD), jnp.bfloat16)


@jax.jit
def product(x, weights, queries):
    """A product of few rows, and scores whose heads fill half of a matrix unit."""
    return x @ weights, jnp.einsum("hqd,hkd->hqk", queries, queries)


def drawn(rows):
    """Input that the host makes while the device waits."""
    return np.random.default_rng(0).standard_normal((rows, WIDTH)).astype(jnp.bfloat16)


def step():
    """Its input is made and handed over in each call, and it is scaled operation by operation, outside jit."""
    x = jnp.asarray(np.mean([drawn(ROWS) for _ in range(512)], axis=0, dtype=np.float32), jnp.bfloat16)
    for _ in range(3):
        x = x * 2 + 1
    return product(x, WEIGHTS, QUERIES)


@functools.cache
def batch():
    """The same input, made once and kept on the device."""
    return jnp.asarray(drawn(512))


@jax.jit
def whole(x, weights):
    """All of it in one program."""
    return jax.lax.fori_loop(0, 3, lambda _, y: y * 2 + 1, x) @ weights


def mended():
    """As many rows as pay for reading the weights, on the device already, in one program."""
    return whole(batch(), WEIGHTS)


@jax.jit
def chosen(x):
    return x if x.sum() > 0 else -x


def traced():
    """Asks a traced value for its truth."""
    return chosen(WEIGHTS)
