"""A product of two matrices of whole numbers of 32 bits, modulo 2^32."""

from dataclasses import dataclass, field

import numpy as np

from harness.operators.axes import axis
from harness.operators.formula import Formula
from harness.records import Array

M, K, N = 8, 256, 256
CHIP = "v6e"


@dataclass(frozen=True, slots=True, kw_only=True)
class IntegerMatmul(Formula):
    """C [m, n] uint32 = A [m, k] B [k, n] modulo 2^32, of which each number is four bytes, the lowest first."""

    operation = "integer_matmul"
    numbers = ("a", "b")
    m: int
    k: int = field(metadata=axis(shortest=128))
    n: int = field(metadata=axis(shortest=128))
    dtype: str = "float32"

    def arrays(self):
        shapes = {"a": (self.m, self.k, 4), "b": (self.k, self.n, 4)}
        inputs = tuple(Array(name=name, shape=shape, dtype="uint8") for name, shape in shapes.items())
        return inputs, (Array(name="c", shape=(self.m, self.n), dtype="uint32"),)

    def families(self, full):
        return ("normal",)

    def formula(self, in_bfloat16, a, b):
        a, b = (values @ (1 << np.arange(0, 32, 8)) for values in (a, b))
        return a @ b & 0xFFFFFFFF


def problem():
    return IntegerMatmul(m=M, k=K, n=N)
