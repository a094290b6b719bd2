"""The second half of an encoder's layer: the product behind attention, a norm, gated units, and both residuals."""

from dataclasses import dataclass, field

import numpy as np
from scipy.special import erf

from harness.operators.axes import axis
from harness.operators.formula import Formula
from harness.records import Array

ROWS, MODEL, INNER, EPS = 1024, 256, 256, 1e-5
CHIP = "v6e"


@dataclass(frozen=True, slots=True, kw_only=True)
class GatedMlp(Formula):
    """Z [rows, model] float32: h = A WO + BO + X, z = h + (gelu(n WG + BG) (n WU + BU)) WD + BD, n the norm of h.

    The norm is (h - mean) / sqrt(variance + eps) G + B. A and the weights, WG and WU side by side, are bfloat16,
    everything else float32; gelu is exact.
    """

    operation = "gated_mlp"
    rows: int = field(metadata=axis(shortest=512))
    model: int
    inner: int
    eps: float
    dtype: str = "bfloat16"

    def arrays(self):
        model, inner = self.model, self.inner
        matrices = {"wo": (model, model), "wi": (model, 2 * inner), "wd": (inner, model)}
        vectors = {"bo": model, "g": model, "b": model, "bi": 2 * inner, "bd": model}
        x = Array(name="x", shape=(self.rows, model), dtype="float32")
        inputs = (
            Array(name="a", shape=x.shape, dtype=self.dtype),
            x,
            *(Array(name=name, shape=shape, dtype=self.dtype) for name, shape in matrices.items()),
            *(Array(name=name, shape=(length,), dtype="float32") for name, length in vectors.items()),
        )
        return inputs, (Array(name="z", shape=x.shape, dtype="float32"),)

    def domain(self, name, values):
        # Weights of a layer are small, so that the result of a product is about as large as its operand.
        return values / 16 if name in ("wo", "wi", "wd") else values

    def matmul_flops(self):
        return 2 * self.rows * self.model * (self.model + 3 * self.inner)

    def formula(self, in_bfloat16, a, x, wo, wi, wd, bo, g, b, bi, bd):
        h = a @ wo + bo + x
        n = h - np.mean(h, axis=1, keepdims=True)
        n = n / np.sqrt(np.mean(n * n, axis=1, keepdims=True) + self.eps)
        gate, up = np.split(in_bfloat16(n * g + b) @ wi + bi, 2, axis=1)
        gelu = 0.5 * gate * (1 + erf(gate * 0.5**0.5))
        return h + in_bfloat16(gelu * up) @ wd + bd


def problem():
    return GatedMlp(rows=ROWS, model=MODEL, inner=INNER, eps=EPS)
