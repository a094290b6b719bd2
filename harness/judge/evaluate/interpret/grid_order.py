"""The order in which TPU interpret mode walks the parallel axes of a grid. Each run of a program sets its own order."""

import contextlib
import functools
from collections.abc import Iterator
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax._src.pallas.mosaic.interpret import interpret_pallas_call
from numpy.typing import NDArray

from harness.judge.evaluate.interpret.replaced import parameters, replaced

# The function of JAX that is replaced. It draws the order within the interpreted program: compiling this takes 0.3 s
# for each new length of an axis, and all runs of a program have the same order.
_DRAWN = "_get_randomized_grid_coordinates"
_PARAMETERS = ["grid", "mosaic_params", "random_seed"]

# The seed of the orders in the current run; None for backward order.
_seed: int | None = None


@contextlib.contextmanager
def orders_from(seed: int | None) -> Iterator[None]:
    """Within this context parallel axes are walked in orders drawn from `seed`, or backwards if `seed` is None.

    A kernel must not rely on the order of steps that it declares parallel. The CPU reference program walks the steps
    forwards, and another run walks them backwards, so any two steps run in both orders. In a drawn order, the first
    step of an axis with several steps never runs first. If this version of JAX draws the order in another way, JAX's
    order is used.
    """
    global _seed
    _seed = seed
    is_known = parameters(getattr(interpret_pallas_call, _DRAWN, None)) == _PARAMETERS
    with replaced(interpret_pallas_call, **{_DRAWN: orders} if is_known else {}):
        yield


def orders(grid: tuple[Any, ...], mosaic_params: Any, random_seed: int | None) -> tuple[jax.Array, ...]:
    """The steps along each parallel axis in the order of the run; empty for an axis that is not parallel."""
    is_parallel = interpret_pallas_call._get_parallel_dim_semantics(mosaic_params, len(grid))
    return tuple(
        jax.pure_callback(
            functools.partial(_order, axis, steps), jax.ShapeDtypeStruct((steps,), jnp.int32), vmap_method="sequential"
        )
        if drawn
        else jnp.empty(0, jnp.int32)
        for axis, (steps, drawn) in enumerate(zip(grid, is_parallel, strict=True))
    )


def _order(axis: int, steps: int) -> NDArray[np.int32]:
    """The order of the steps along an axis; called in each run, because the program is traced only once."""
    if _seed is None:
        return np.arange(steps, dtype=np.int32)[::-1].copy()
    order = np.random.default_rng((_seed, axis)).permutation(np.arange(steps, dtype=np.int32))
    if steps > 1 and order[0] == 0:
        order[[0, -1]] = order[[-1, 0]]
    return order
