"""Compiles programs for the CPU with XLA's algebraic simplifier left out, and tests that nothing else rewrites them.

The algebraic simplifier of XLA for CPUs rewrites floating-point arithmetic, such as (x + a) - b to x + (a - b),
log(exp(x)) to x, and exp(a) exp(b) to exp(a + b). The TPU's compiler rewrites no arithmetic in kernels; for operations
outside kernels, `simplified` has the rules of XLA for a TPU. If the simplifier ran on the CPU, a kernel that overflows
or rounds on a chip would be right on the CPU, and a kernel that rounds on purpose would be wrong on the CPU. A fused
multiply-add, which rounds once instead of twice, would have the same effect (`ROUND_TWICE` in sandbox/environment.py
prevents it).
"""

from collections.abc import Callable
from functools import cache
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from harness.sandbox.messages import Rejected

# With this option, jaxlib 0.10.2 and 0.12.0 leave out the pass at every place where it would run.
_OPTIONS = {"xla_disable_hlo_passes": "algsimp"}
# Adding and subtracting this number rounds a float32 to a whole number.
_ROUNDING = np.float32(1.5 * 2**23)
_VALUES = np.array([0.3, 1.7, 60.0, 90.0], np.float32)


def jit_as_written(function: Callable[..., Any], **options: Any) -> Callable[..., Any]:
    """The function, compiled for the CPU on its first call, without changes of its arithmetic."""
    return jax.jit(function, compiler_options=_OPTIONS, **options)  # type: ignore[no-any-return]


@cache
def require_arithmetic_as_written() -> None:
    """Raises Rejected `unsound-cpu` if XLA rewrites arithmetic for this CPU."""
    if rewritten := rewritten_arithmetic(jit_as_written):
        raise Rejected(
            "correctness",
            "unsound-cpu",
            f"expected XLA on this CPU to compute arithmetic as written, got {', '.join(rewritten)} rewritten "
            f"(jax {jax.__version__}): nothing can be checked here; use the JAX of requirements.lock",
        )


def rewritten_arithmetic(jit: Callable[[Callable[..., Any]], Callable[..., Any]]) -> list[str]:
    """The expressions that programs compiled by `jit` compute in another way than they state."""
    with np.errstate(all="ignore"):
        expected = _expressions(_VALUES, np)
    got = jit(lambda x: _expressions(x, jnp))(_VALUES)
    return [name for name in expected if not _is_same(got[name], expected[name])]


def _is_same(got: Any, expected: Any) -> bool:
    """True if the finite numbers are about the same, and all other numbers are in the same places.

    Infinity and NaN count as the same: if the CPU flushes subnormal numbers to 0, infinity times such a number is NaN.
    """
    mine, stated = (np.where(np.isfinite(values), values, np.nan) for values in (got, expected))
    return np.allclose(mine, stated, rtol=1e-4, atol=0, equal_nan=True)


def _expressions(x: Any, module: Any) -> dict[str, Any]:
    """Expressions of `x` that XLA may compute in another way, by name; `module` is numpy or jax.numpy."""
    large, exp = np.float32(2.0**124), module.exp
    return {
        "(x + a) - a": (x + _ROUNDING) - _ROUNDING,
        "x a / a": x * large / large,
        "x a b": x * large * (1 / large),
        "log(exp(x))": module.log(exp(x)),
        "exp(x) exp(-x)": exp(x) * exp(-x),
        "x x - 2 x x / 2": x * x - (x * 2) * x * np.float32(0.5),
    }
