"""An interpreted kernel computes what it says: XLA on a CPU would leave roundings out."""

from typing import Any

import jax
import jax.numpy as jnp
import ml_dtypes
import numpy as np
import pytest
from jax.experimental import pallas as pl

from harness.hardware import chip
from harness.measure import interpretation

ROWS, COLUMNS = 16, 256


def rounding_kernel(x_ref: Any, o_ref: Any) -> None:
    """Rounds twice, and within a loop."""

    def body(_: Any, total: Any) -> Any:
        scaled = (x_ref[...] * 1.5).astype(jnp.bfloat16)
        return total + (scaled - jnp.bfloat16(0.3)).astype(jnp.float32)

    o_ref[...] = jax.lax.fori_loop(0, 2, body, jnp.zeros_like(x_ref))


def call(x: Any) -> Any:
    return pl.pallas_call(rounding_kernel, out_shape=jax.ShapeDtypeStruct(x.shape, x.dtype))(x)


@pytest.mark.parametrize("checked", [False, True])
def test_an_interpreted_kernel_rounds_to_bfloat16_where_it_says_so(checked: bool) -> None:
    x = np.random.default_rng(0).standard_normal((ROWS, COLUMNS), dtype=np.float32)
    scaled = (x * np.float32(1.5)).astype(ml_dtypes.bfloat16)
    expected = 2 * (scaled - ml_dtypes.bfloat16(0.3)).astype(np.float32)

    interpret = interpretation.checking_parameters(chip("v6e"), 1) if checked else True
    program = interpretation.runnable(jax.make_jaxpr(call)(x), interpret, chip("v6e"))
    np.testing.assert_array_equal(np.asarray(jax.jit(program)(x)[0]), expected)


def test_xla_on_a_cpu_leaves_such_roundings_out() -> None:
    """Where this fails, XLA has changed, and what rounds in `chip_model` may go."""
    x = np.random.default_rng(0).standard_normal((ROWS, COLUMNS), dtype=np.float32)
    expected = (x.astype(ml_dtypes.bfloat16) - ml_dtypes.bfloat16(0.3)).astype(np.float32)
    rounded = jax.jit(lambda x: (x.astype(jnp.bfloat16) - jnp.bfloat16(0.3)).astype(jnp.float32))
    assert (np.asarray(rounded(x)) != expected).any()
