"""Tests that XLA on this CPU performs the conversions that `chip_model` adds. XLA skips some of JAX's conversions."""

from collections.abc import Sequence
from functools import cache

import jax
import jax.numpy as jnp
import numpy as np
from jax.extend import core

from harness.judge.evaluate.interpret import chip_model
from harness.judge.evaluate.interpret.as_written import jit_as_written
from harness.sandbox.messages import Rejected

# XLA is known to leave out conversions to these types. Conversions to other types are checked by tests only.
_DTYPES = ("bfloat16", "int8", "uint8")
# The shape must be this large: XLA computes smaller sums in another way.
_SHAPE = (256, 256)


@cache
def require_conversions() -> None:
    """Raises Rejected `unsound-cpu` if XLA adds up numbers without converting them first."""
    if skipped := skipped_conversions(_DTYPES):
        raise Rejected(
            "correctness",
            "unsound-cpu",
            "expected XLA on this CPU to round numbers before it adds them, got sums of numbers not rounded to "
            f"{', '.join(skipped)} (jax {jax.__version__}): nothing can be checked here; use the JAX of "
            "requirements.lock",
        )


def skipped_conversions(dtypes: Sequence[str]) -> list[str]:
    """The members of `dtypes` for which XLA on this CPU adds up numbers without converting them first."""
    # None of these values is exact in any of the types, and each is rounded down.
    values = (np.arange(np.prod(_SHAPE)) % 7 + 1.0004).astype(np.float32).reshape(_SHAPE)

    def sums(x: jax.Array) -> list[jax.Array]:
        return [jnp.sum(x.astype(dtype).astype(jnp.float32), axis=1) for dtype in dtypes]

    traced = jax.make_jaxpr(sums)(values)
    got = jit_as_written(core.jaxpr_as_fun(traced.replace(jaxpr=chip_model.with_roundings(traced.jaxpr))))(values)
    expected = [values.astype(jnp.dtype(dtype)).astype(np.float32).sum(axis=1) for dtype in dtypes]
    # A missing conversion changes these sums by 1e-4 (relative), another order of additions by 1e-6.
    return [
        dtype for dtype, g, e in zip(dtypes, got, expected, strict=True) if not np.allclose(g, e, rtol=2e-5, atol=0)
    ]
