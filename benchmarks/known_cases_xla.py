"""Plain programs without a Pallas kernel: what XLA makes of a model's usual parts."""

import math
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from known_cases import Case, Program, integers, of

_MODEL, _HIDDEN, _HEADS, _TOKENS, _WORDS = 1024, 4096, 8, 2048, 8192
_WEIGHTS = {
    "qkv": of(_MODEL, 3 * _MODEL),
    "out": of(_MODEL, _MODEL),
    "up": of(_MODEL, _HIDDEN),
    "down": of(_HIDDEN, _MODEL),
    "scales": of(2, _MODEL),
}


def _normalised(x: jax.Array, scale: jax.Array) -> jax.Array:
    wide = x.astype(jnp.float32)
    return (wide * lax.rsqrt((wide**2).mean(-1, keepdims=True) + 1e-6)).astype(x.dtype) * scale


def _block(weights: dict[str, jax.Array], x: jax.Array) -> jax.Array:
    """One layer of a transformer, with causal attention."""
    heads = (_normalised(x, weights["scales"][0]) @ weights["qkv"]).reshape(len(x), 3, _HEADS, -1)
    q, k, v = heads[:, 0], heads[:, 1], heads[:, 2]
    logits = jnp.einsum("qhd,khd->hqk", q, k, preferred_element_type=jnp.float32) / math.sqrt(q.shape[-1])
    causal = jnp.arange(len(x))[:, None] >= jnp.arange(len(x))
    probabilities = jax.nn.softmax(jnp.where(causal, logits, -jnp.inf)).astype(x.dtype)
    x = x + jnp.einsum("hqk,khd->qhd", probabilities, v).reshape(len(x), -1) @ weights["out"]
    return x + jax.nn.gelu(_normalised(x, weights["scales"][1]) @ weights["up"]) @ weights["down"]


def _loss(weights: dict[str, jax.Array], table: jax.Array, tokens: jax.Array, wanted: jax.Array) -> jax.Array:
    x = _block(weights, table[tokens])
    logits = (x @ table.T).astype(jnp.float32)
    return -jnp.take_along_axis(jax.nn.log_softmax(logits), wanted[:, None], 1).mean()


def _train(weights: dict[str, jax.Array], table: jax.Array, tokens: jax.Array, wanted: jax.Array) -> Any:
    gradients = jax.grad(_loss, (0, 1))(weights, table, tokens, wanted)
    return jax.tree.map(lambda old, slope: old - 0.01 * slope, (weights, table), gradients)


def _adam(weights: jax.Array, slope: jax.Array, first: jax.Array, second: jax.Array, step: jax.Array) -> Any:
    first = 0.9 * first + 0.1 * slope
    second = 0.999 * second + 0.001 * slope**2
    rate = 1e-3 * jnp.sqrt(1 - 0.999**step) / (1 - 0.9**step)
    return weights - rate * first / (jnp.sqrt(second) + 1e-8), first, second


def _words(count: int) -> Any:
    return integers(np.random.default_rng(1).integers(0, _WORDS, count))


_convolution = partial(lax.conv_general_dilated, window_strides=(1, 1), padding="SAME")


def _convolved(image: jax.Array, filters: jax.Array) -> jax.Array:
    return _convolution(image, filters, dimension_numbers=("NHWC", "HWIO", "NHWC"))


def _integer_matmul(x: jax.Array, y: jax.Array) -> jax.Array:
    return lax.dot(x, y, preferred_element_type=jnp.int32)


def _scattered(table: jax.Array, rows: jax.Array, updates: jax.Array) -> jax.Array:
    return table.at[rows].add(updates)


def _counted(x: jax.Array, weights: jax.Array) -> jax.Array:
    """A loop whose number of turns is known."""
    return lax.fori_loop(0, 16, lambda _, value: jnp.tanh(value @ weights), x)


def _converged(x: jax.Array, weights: jax.Array) -> Any:
    """A loop that ends when its values stop changing, so floating-point data decide its number of turns."""

    def on(state: tuple[jax.Array, jax.Array, jax.Array]) -> jax.Array:
        return (state[1] > 1e-3) & (state[2] < 100)

    def turn(state: tuple[jax.Array, jax.Array, jax.Array]) -> tuple[jax.Array, jax.Array, jax.Array]:
        after = jnp.tanh(state[0] @ weights)
        return after, jnp.abs(after - state[0]).max().astype(jnp.float32), state[2] + 1

    return lax.while_loop(on, turn, (x, jnp.float32(1), jnp.int32(0)))


def _recurrent(x: jax.Array, weights: jax.Array, state: jax.Array) -> Any:
    def step(state: jax.Array, now: jax.Array) -> tuple[jax.Array, jax.Array]:
        after = jnp.tanh(now + state @ weights)
        return after, after

    return lax.scan(step, state, x)


def _program(function: Any, **operands: Any) -> Case:
    return partial(Program, function, operands)


CASES: dict[str, Case] = {
    "matmul": _program(jnp.matmul, x=of(4096, 4096), y=of(4096, 4096)),
    "matmul int8": _program(_integer_matmul, x=of(4096, 4096, dtype=jnp.int8), y=of(4096, 4096, dtype=jnp.int8)),
    "transformer block": _program(_block, weights=_WEIGHTS, x=of(_TOKENS, _MODEL)),
    "train step": _program(
        _train, weights=_WEIGHTS, table=of(_WORDS, _MODEL), tokens=_words(_TOKENS), wanted=_words(_TOKENS)
    ),
    "adam": _program(
        _adam,
        **{name: of(4096, 4096, dtype=jnp.float32) for name in ("weights", "slope", "first", "second")},
        step=of(dtype=jnp.float32),
    ),
    "convolution": _program(_convolved, image=of(32, 56, 56, 256), filters=of(3, 3, 256, 256)),
    "convolution backward": _program(
        jax.grad(lambda image, filters: _convolved(image, filters).astype(jnp.float32).sum(), (0, 1)),
        image=of(32, 56, 56, 256),
        filters=of(3, 3, 256, 256),
    ),
    "sort": _program(jnp.sort, a=of(64, 4096, dtype=jnp.float32)),
    "top k": _program(lambda operand: lax.top_k(operand, 8), operand=of(1024, 4096, dtype=jnp.float32)),
    "scatter": _program(
        _scattered,
        table=of(_WORDS, _MODEL, dtype=jnp.float32),
        rows=_words(_TOKENS),
        updates=of(_TOKENS, _MODEL, dtype=jnp.float32),
    ),
    "embedding": _program(lambda table, tokens: table[tokens], table=of(_WORDS, _MODEL), tokens=_words(_TOKENS)),
    "while loop": _program(_counted, x=of(1024, 1024), weights=of(1024, 1024)),
    "while loop until converged": _program(_converged, x=of(1024, 1024), weights=of(1024, 1024)),
    "recurrent network": _program(_recurrent, x=of(256, 128, 1024), weights=of(1024, 1024), state=of(128, 1024)),
    "softmax": _program(jax.nn.softmax, x=of(8192, 8192)),
    "cumulative sum": _program(lambda a: jnp.cumsum(a, axis=1), a=of(1024, 4096, dtype=jnp.float32)),
}
