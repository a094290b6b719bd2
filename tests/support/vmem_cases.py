"""Kernels on both sides of the VMEM that they may take; run for a chip, it asks libtpu about each and prints a line."""

import sys
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jax.experimental import pallas as pl
from jax.experimental.pallas import tpu as pltpu
from jax.sharding import SingleDeviceSharding

from harness.hardware import chip
from harness.judge.evaluate.compile.topology import described_device

MIB = 1 << 20
LIMIT = 2 * MIB
STEPS = 4
Call = Callable[..., Any]


def call(
    kernel: Call,
    rows: int,
    *,
    index: Call = lambda i: (i, 0),
    scratch: int = 0,
    dtype: Any = jnp.float32,
    limit: int | None = LIMIT,
    **options: Any,
) -> tuple[Call, jax.ShapeDtypeStruct]:
    """A kernel of four steps on blocks of `rows` by 128, and the shape that it is called with."""

    def program(x: Any) -> Any:
        return pl.pallas_call(
            kernel,
            grid=(STEPS,),
            in_specs=[pl.BlockSpec((rows, 128), index, **options)],
            out_specs=pl.BlockSpec((8, 128), lambda i: (i, 0)),
            out_shape=jax.ShapeDtypeStruct((8 * STEPS, 128), jnp.float32),
            scratch_shapes=[pltpu.VMEM((scratch, 128), jnp.float32)] if scratch else [],
            compiler_params=pltpu.CompilerParams(vmem_limit_bytes=limit),
        )(x)

    return program, jax.ShapeDtypeStruct((rows * STEPS, 128), dtype)


def add(x: Any, o: Any) -> None:
    o[...] = x[:8].astype(jnp.float32) + 1


def kept(x: Any, o: Any, s: Any) -> None:
    def start() -> None:
        s[...] = jnp.zeros_like(s)

    pl.when(pl.program_id(0) == 0)(start)
    s[...] = s[...] + x[0, 0]
    o[...] = s[:8]


def only_kept(x: Any, o: Any, s: Any) -> None:
    s[...] = s[...] * 2 + x[0, 0]
    o[...] = x[:8]


def written_first(x: Any, o: Any, s: Any) -> None:
    s[...] = jnp.full_like(s, x[0, 0])
    o[...] = s[:8] + s[-8:]


def in_part(x: Any, o: Any, s: Any) -> None:
    s[:8] = s[:8] + x[:8]
    o[...] = s[:8]


def read_in_vain(x: Any, o: Any, s: Any) -> None:
    jnp.exp(s[...])
    o[...] = x[:8]


# The rows that fit, and eight more (as many as a tile has), which do not: two copies of the input's blocks and two of
# the output's 4 KiB, in 2 MiB.
FITS, NARROW = 2040, 4080
BLOCKS = {
    "float32": (add, FITS, {}),
    "bfloat16": (add, NARROW, {"dtype": jnp.bfloat16}),
    "an index that is held back": (add, FITS, {"index": lambda i: (jnp.minimum(i, 2), 0)}),
    "the same block always": (add, 2 * FITS, {"index": lambda i: (i * 0, 0)}),
    "one copy": (add, 2 * FITS, {"pipeline_mode": pl.Buffered(1)}),
}


CASES: dict[str, tuple[Call, int, dict[str, Any], int, bool]] = {}
for _name, (_kernel, _rows, _options) in BLOCKS.items():
    _more = 16 if "bfloat16" in _name else 8
    CASES[_name] = (_kernel, _rows, _options, _more, True)
# 8 rows of x twice, 8 of o twice: 16 KiB; the rest of 2 MiB is scratch.
for _scratch, _is_certain in (
    (kept, True),
    (only_kept, True),
    (written_first, False),
    (in_part, False),
    (read_in_vain, False),
):
    CASES[f"scratch {_scratch.__name__}"] = (_scratch, 8, {"scratch": 4064}, 8, _is_certain)


def larger(case: str) -> tuple[Call, jax.ShapeDtypeStruct]:
    kernel, rows, options, more, _ = CASES[case]
    if "scratch" in options:
        return call(kernel, rows, **{**options, "scratch": options["scratch"] + more})
    return call(kernel, rows + more, **options)


def default_rows(scoped_vmem_bytes: int) -> int:
    """The number of float32 rows that fit if the kernel names no limit."""
    return (scoped_vmem_bytes - 2 * 4096) // 1024 // 8 * 8


def _main(name: str) -> None:
    on = chip(name)
    device = described_device(on)

    def outcome(program: Call, shape: jax.ShapeDtypeStruct) -> str:
        shape_on_device = jax.ShapeDtypeStruct(shape.shape, shape.dtype, sharding=SingleDeviceSharding(device))
        try:
            exported = jax.export.export(jax.jit(program), platforms=["tpu"])(shape)
            jax.jit(exported.call).lower(shape_on_device).compile()
        except Exception as error:  # noqa: BLE001  # JAX puts an error of its own before the compiler's
            return " ".join(str(error.__cause__ or error).split())
        return ""

    for case, (kernel, rows, options, _, _) in CASES.items() if on.name == "v5e" else ():
        print(f"{case}: fits\t{outcome(*call(kernel, rows, **options))}")
        print(f"{case}: larger\t{outcome(*larger(case))}")
    for more in (-8, 8):
        rows = default_rows(on.scoped_vmem_bytes) + more
        print(f"default {more}\t{outcome(*call(add, rows, limit=None))}")


if __name__ == "__main__":
    _main(sys.argv[1])
