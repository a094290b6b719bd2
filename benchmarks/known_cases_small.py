"""Kernels of packages with only a few kernels, called by their interfaces, at sizes of models and ciphers in use."""

from functools import partial
from typing import Any

import jax.numpy as jnp
from known_cases import Case, Program, called, of

_ROWS, _WIDTH, _HIDDEN = 4096, 4096, 14336


def _forge(kernel: str, operands: dict[str, Any], **options: Any) -> Program:
    return called("pallas_forge", kernel, operands, **options)


def _gated(kernel: str) -> Program:
    weights = {name: of(_WIDTH, _HIDDEN) for name in ("w_gate", "w_up")}
    return _forge(kernel, {"x": of(_ROWS, _WIDTH), **weights})


def _normalised() -> Program:
    return _forge(
        "fused_rmsnorm_residual", {"x": of(_ROWS, _WIDTH), "residual": of(_ROWS, _WIDTH), "weight": of(_WIDTH)}
    )


def _multiplied(**blocks: int) -> Program:
    return _forge("tiled_matmul", {"x": of(_ROWS, _WIDTH), "w": of(_WIDTH, _WIDTH)}, **blocks)


def _recurrent(*, reverse: bool = False) -> Program:
    arrays = {name: of(1, 2048, 2560, dtype=jnp.float32) for name in "xa"}
    return called("recurrentgemma.jax.pallas", "lru_pallas_scan", arrays, reverse=reverse)


def _polynomials() -> Program:
    integers = {"vec": of(18, 1024, dtype=jnp.uint32), "matrix": of(18, 3, 1024, dtype=jnp.uint32)}
    return called("jaxite.jaxite_lib.polymul_kernel", "negacyclic_vector_matrix_polymul", integers)


def _whole_numbers() -> Program:
    arrays = {"lhs": of(8, 512, dtype=jnp.int32), "rhs": of(512, 512, dtype=jnp.int32)}
    return called("jaxite.jaxite_lib.polymul_kernel", "i32_matmul", arrays)


_NAMED = "the package's fault: it knows only chips named `TPU v` and a digit, but v7x is named TPU7x"
# Found by reading the packages.
EXPLAINED = {"jaxite": {"product of polynomials": _NAMED}}
# By package.
CASES: dict[str, dict[str, Case]] = {
    "pallas-forge": {
        "matmul": _multiplied,
        "matmul, blocks of 512": partial(_multiplied, block_m=512, block_k=512, block_n=512),
        "rmsnorm of a sum": _normalised,
        "swiglu": partial(_gated, "fused_swiglu"),
        "geglu": partial(_gated, "fused_geglu"),
    },
    "recurrentgemma": {"scan": _recurrent, "scan, reversed": partial(_recurrent, reverse=True)},
    "jaxite": {"product of polynomials": _polynomials, "matmul of whole numbers": _whole_numbers},
}
