"""Options of XLA on a CPU with which it makes every conversion that a checked program states.

To add up numbers that were just converted to bfloat16, int8 or uint8, XLA on a CPU (jaxlib 0.10.2, 0.12.0) calls a
library that adds up the numbers before the conversion. The compilers of TPUs convert. What was checked like that would
be another program, so here the library is called for products alone, and sums show that it was not.
"""

from collections.abc import Sequence
from functools import cache

import jax
import jax.numpy as jnp
import numpy as np

from harness.judge.sandbox.messages import Rejected

# Without its products, an unrolled kernel takes 1.4 times as long. Later versions may know neither option nor library.
_PRODUCTS = "LIBRARY_FUSION_TYPE_DOT,LIBRARY_FUSION_TYPE_INDIVIDUAL_DOT"
_TRIED: tuple[dict[str, str], ...] = ({"xla_cpu_experimental_ynn_fusion_type": _PRODUCTS}, {})
# What XLA says of an option, or a value of it, that it does not know.
_UNKNOWN = "INVALID_ARGUMENT"
# Each costs 40 ms. That conversions to other types are made is tested, not looked at in every evaluation.
_DTYPES = ("bfloat16", "int8", "uint8")
# Smaller sums are made without the library.
_SHAPE = (256, 256)


@cache
def options() -> dict[str, str]:
    """The `compiler_options` for `jax.jit`: those of `_TRIED` that this XLA knows first."""
    for tried in _TRIED[:-1]:
        try:
            jax.jit(lambda x: x, compiler_options=tried).lower(0).compile()
        except jax.errors.JaxRuntimeError as error:
            if _UNKNOWN not in str(error):
                raise
        else:
            return tried
    return _TRIED[-1]


@cache
def require_conversions() -> None:
    """Raises Rejected `unsound-cpu` where conversions are left out with these options too."""
    if skipped := skipped_conversions(options()):
        raise Rejected(
            "correctness", "unsound-cpu",
            f"expected XLA on this CPU to convert before it adds up, got sums of numbers not converted to "
            f"{', '.join(skipped)} (jax {jax.__version__}): nothing can be checked here; use the JAX of "
            "requirements.lock",
        )  # fmt: skip


def skipped_conversions(compiler_options: dict[str, str], dtypes: Sequence[str] = _DTYPES) -> list[str]:
    """The types that XLA leaves conversions to out with these options."""
    # Not one of these is a number of any of the types, and all are rounded down.
    values = (np.arange(np.prod(_SHAPE)) % 7 + 1.0004).astype(np.float32).reshape(_SHAPE)

    def sums(x: jax.Array) -> list[jax.Array]:
        return [jnp.sum(x.astype(dtype).astype(jnp.float32), axis=1) for dtype in dtypes]

    got = jax.jit(sums, compiler_options=compiler_options)(values)
    expected = [values.astype(jnp.dtype(dtype)).astype(np.float32).sum(axis=1) for dtype in dtypes]
    # Leaving any of these out is 1e-4 here; sums in another order are 1e-6.
    return [
        dtype for dtype, g, e in zip(dtypes, got, expected, strict=True) if not np.allclose(g, e, rtol=2e-5, atol=0)
    ]
