"""The order in which TPU interpret mode walks the parallel axes of a grid, drawn without compiling anything."""

import contextlib
import inspect
from collections.abc import Iterator
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax._src.pallas.mosaic.interpret import interpret_pallas_call
from numpy.typing import NDArray

# JAX draws within the program that it interprets, and compiles that for every length of an axis: a third of a second.
_DRAWN = "_get_randomized_grid_coordinates"
_PARAMETERS = ["grid", "mosaic_params", "random_seed"]


@contextlib.contextmanager
def later_steps_first() -> Iterator[None]:
    """Within this context no parallel axis with several steps begins with the first one.

    A kernel that relies on the first step having run first is wrong by what it declares. A JAX that draws the order
    otherwise keeps its own.
    """
    draw: Any = getattr(interpret_pallas_call, _DRAWN, None)
    is_known = inspect.isfunction(draw) and list(inspect.signature(draw).parameters) == _PARAMETERS
    if is_known:
        setattr(interpret_pallas_call, _DRAWN, orders)
    try:
        yield
    finally:
        if is_known:
            setattr(interpret_pallas_call, _DRAWN, draw)


def orders(grid: tuple[Any, ...], mosaic_params: Any, random_seed: int | None) -> tuple[jax.Array, ...]:
    """The steps along each axis, in the order in which they run: empty for an axis that is not parallel."""
    generator = np.random.default_rng(random_seed)
    is_parallel = interpret_pallas_call._get_parallel_dim_semantics(mosaic_params, len(grid))
    return tuple(
        jnp.asarray(_order(steps if drawn else 0, generator)) for steps, drawn in zip(grid, is_parallel, strict=True)
    )


def _order(steps: int, generator: np.random.Generator) -> NDArray[np.int32]:
    order = generator.permutation(np.arange(steps, dtype=np.int32))
    if steps > 1 and order[0] == 0:
        order[[0, -1]] = order[[-1, 0]]
    return order
