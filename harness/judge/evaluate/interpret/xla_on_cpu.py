"""Options of XLA on a CPU with which it makes every conversion that a checked program states.

To add up numbers that were just converted to bfloat16, int8 or uint8, XLA on a CPU (jaxlib 0.10.2, 0.12.0) calls a
library that adds up the numbers before the conversion. The compilers of TPUs convert. What was checked like that would
be another program, so here that library is not called, and a sum of each type shows that it was not.
"""

from functools import cache

import jax
import jax.numpy as jnp
import numpy as np

from harness.judge.sandbox.messages import Rejected

# Later versions may know neither the option nor the library.
_TRIED: tuple[dict[str, str], ...] = ({"xla_cpu_experimental_ynn_fusion_type": ""}, {})
_DTYPES = ("bfloat16", "float16", "float8_e4m3fn", "float8_e5m2", "int8", "uint8", "int16", "int32")
# Smaller sums are made without the library.
_SHAPE = (256, 256)
_UNKNOWN_OPTION = "No such compile option"


@cache
def options() -> dict[str, str]:
    """The `compiler_options` for `jax.jit`. Raises Rejected `unsound-cpu` where conversions are left out with all."""
    for tried in _TRIED:
        try:
            skipped = skipped_conversions(tried)
        except jax.errors.JaxRuntimeError as error:
            if _UNKNOWN_OPTION not in str(error):
                raise
            continue
        if not skipped:
            return tried
    raise Rejected(
        "correctness", "unsound-cpu",
        f"expected XLA on this CPU to convert before it adds up, got sums of numbers not converted to "
        f"{', '.join(skipped)} (jax {jax.__version__}): nothing can be checked here; use the JAX of requirements.lock",
    )  # fmt: skip


def skipped_conversions(compiler_options: dict[str, str]) -> list[str]:
    """The types that XLA leaves conversions to out with these options. Raises JaxRuntimeError for an unknown one."""
    # Not one of these is a number of any of the types, and all are rounded down.
    values = (np.arange(np.prod(_SHAPE)) % 7 + 1.0004).astype(np.float32).reshape(_SHAPE)

    def sums(x: jax.Array) -> list[jax.Array]:
        return [jnp.sum(x.astype(dtype).astype(jnp.float32), axis=1) for dtype in _DTYPES]

    got = jax.jit(sums, compiler_options=compiler_options)(values)
    expected = [values.astype(jnp.dtype(dtype)).astype(np.float32).sum(axis=1) for dtype in _DTYPES]
    # Leaving any of these out is 1e-4 here; sums in another order are 1e-6.
    return [
        dtype for dtype, g, e in zip(_DTYPES, got, expected, strict=True) if not np.allclose(g, e, rtol=2e-5, atol=0)
    ]
