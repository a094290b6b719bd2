"""Bounds of a grid that follow from a program's tables are known; those that do not are not."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.experimental import pallas as pl
from refusals import rejected

from harness.hardware import chip
from harness.judge.evaluate.trace import jaxprs, known_tables, traffic

X = jax.ShapeDtypeStruct((256, 128), jnp.float32)
SIZES = jax.ShapeDtypeStruct((4,), jnp.int32)
HELD = np.array([3, 0, 2, 1], np.int32)


def copy(x_ref: Any, y_ref: Any) -> None:
    y_ref[...] = x_ref[...]


def called(x: Any, bound: Any) -> Any:
    block = pl.BlockSpec((8, 128), lambda i, j: (j, 0))
    return pl.pallas_call(copy, out_shape=X, grid=(2, bound), in_specs=[block], out_specs=block)(x)


def grid(function: Callable[..., Any], *tables: Any) -> Any:
    """The grid of the function's one Pallas call, as it is known with these contents of its tables."""
    closed = jax.make_jaxpr(function)(X, SIZES)
    (call,) = jaxprs.pallas_calls(closed.jaxpr)
    return call, known_tables.grids(closed, [None, *tables])[id(call)]


@pytest.mark.parametrize(
    "bound",
    [
        lambda x, sizes: sizes.sum(),
        lambda x, sizes: jnp.cumsum(sizes, dtype=jnp.int32)[-1],
        lambda x, sizes: jnp.sum((sizes + 1) // 2 * 2, dtype=jnp.int32) - 2,
        jax.jit(lambda x, sizes: jax.lax.fori_loop(0, 4, lambda i, total: total + sizes[i], 0)),
        lambda x, sizes: jnp.max(sizes) * 2,
        lambda x, sizes: 6,
    ],
)
def test_what_follows_from_tables_is_known(bound: Callable[..., Any]) -> None:
    assert grid(lambda x, sizes: called(x, bound(x, sizes)), HELD)[1] == (2, 6)
    # The call is within a function, as in packages.
    within = jax.jit(lambda x, sizes: called(x, bound(x, sizes)))
    call, bounds = grid(lambda x, sizes: within(x, sizes) + 1, HELD)
    assert bounds == (2, 6)
    assert traffic.pallas_call(call, chip("v5e"), bounds).steps == 12


def with_vjp(function: Callable[..., Any]) -> Any:
    derived: Any = jax.custom_vjp(function)
    derived.defvjp(lambda *arguments: (function(*arguments), None), lambda kept, gradient: (gradient, None))
    return derived


def with_jvp(function: Callable[..., Any]) -> Any:
    derived: Any = jax.custom_jvp(function)
    derived.defjvp(lambda arguments, tangents: (function(*arguments), tangents[0]))
    return derived


def with_vmap(function: Callable[..., Any]) -> Any:
    derived: Any = jax.custom_batching.custom_vmap(function)
    derived.def_vmap(lambda size, batched, *arguments: (function(*arguments), False))
    return derived


@pytest.mark.parametrize("wrapped", [jax.jit, jax.checkpoint, with_vjp, with_jvp, with_vmap])
def test_it_is_known_within_whatever_packages_wrap_their_kernels_in(wrapped: Callable[..., Any]) -> None:
    assert grid(wrapped(lambda x, sizes: called(x, sizes.sum())), HELD)[1] == (2, 6)
    # Constants of the function itself, such as what follows from a mask.
    assert grid(wrapped(lambda x, sizes: called(x, jnp.asarray(HELD)[0] * 2)), HELD)[1] == (2, 6)


@pytest.mark.parametrize(
    "function",
    [
        lambda x, sizes: called(x, x[0, 0].astype(jnp.int32)),
        lambda x, sizes: called(x, sizes.astype(jnp.float32).mean().astype(jnp.int32)),
        lambda x, sizes: jax.lax.scan(lambda x, size: (called(x, size), None), x, sizes)[0],
    ],
)
def test_what_does_not_follow_from_integers_is_refused(function: Callable[..., Any]) -> None:
    call, bounds = grid(function, HELD)
    assert bounds == (2, None)
    with rejected("dynamic-grid", r"got 2 x \?: neither constants nor the problem's tables determine the bounds"):
        traffic.pallas_call(call, chip("v5e"), bounds)


def test_without_contents_nothing_is_known() -> None:
    assert grid(lambda x, sizes: called(x, sizes.sum()), None)[1] == (2, None)
