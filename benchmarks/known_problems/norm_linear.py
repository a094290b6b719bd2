"""A layer norm and the product with a matrix that follows it."""

from dataclasses import dataclass, field, replace

import numpy as np

from harness.operators.axes import axis
from harness.operators.formula import Formula
from harness.records import Array

ROWS, MODEL, OUT, EPS = 1024, 256, 512, 1e-5
CHIP = "v6e"


@dataclass(frozen=True, slots=True, kw_only=True)
class NormLinear(Formula):
    """Y [rows, out] bfloat16: (x - mean) / sqrt(variance + eps) G + B of rows of X, times W, plus C.

    W [model, out] is bfloat16, everything else float32.
    """

    operation = "norm_linear"
    rows: int = field(metadata=axis(shortest=512))
    model: int
    out: int
    eps: float
    dtype: str = "bfloat16"

    def arrays(self):
        x = Array(name="x", shape=(self.rows, self.model), dtype="float32")
        g, b = (replace(x, name=name, shape=(self.model,)) for name in "gb")
        w = Array(name="w", shape=(self.model, self.out), dtype=self.dtype)
        return (x, g, b, w, replace(x, name="c", shape=(self.out,))), (
            replace(w, name="y", shape=(self.rows, self.out)),
        )

    def matmul_flops(self):
        return 2 * self.rows * self.model * self.out

    def formula(self, in_bfloat16, x, g, b, w, c):
        z = x - np.mean(x, axis=1, keepdims=True)
        z = z / np.sqrt(np.mean(z * z, axis=1, keepdims=True) + self.eps)
        return in_bfloat16(z * g + b) @ w + c


def problem():
    return NormLinear(rows=ROWS, model=MODEL, out=OUT, eps=EPS)
