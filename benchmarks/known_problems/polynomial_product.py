"""A vector of polynomials times a matrix of polynomials, modulo X^n + 1 and 2^32, as ciphers on lattices need it."""

from dataclasses import dataclass, field

import numpy as np

from harness.operators.axes import axis
from harness.operators.formula import Formula
from harness.records import Array

TERMS, COLUMNS, DEGREE = 6, 3, 256
CHIP = "v6e"


@dataclass(frozen=True, slots=True, kw_only=True)
class PolynomialProduct(Formula):
    """Y [columns, degree], uint32: the sum over terms of V [terms, degree] times M [terms, columns, degree].

    Each number of V and M is four bytes, the lowest first.
    """

    operation = "polynomial_product"
    numbers = ("v", "m")
    terms: int
    columns: int
    degree: int = field(metadata=axis(shortest=128))
    dtype: str = "float32"

    def arrays(self):
        shapes = {"v": (self.terms, self.degree, 4), "m": (self.terms, self.columns, self.degree, 4)}
        inputs = tuple(Array(name=name, shape=shape, dtype="uint8") for name, shape in shapes.items())
        return inputs, (Array(name="y", shape=(self.columns, self.degree), dtype="uint32"),)

    def families(self, full):
        return ("normal",)

    def formula(self, in_bfloat16, v, m):
        v, m = (values @ (1 << np.arange(0, 32, 8)) for values in (v, m))
        # A product with X moves the coefficients up by one; the one that leaves at the top enters below with the other
        # sign.
        row, column = np.indices((self.degree, self.degree))
        sign = np.where(row > column, -1, 1)
        total = np.zeros((self.columns, self.degree), np.int64)
        for term in range(self.terms):
            total += m[term] @ (v[term][(column - row) % self.degree] * sign)
        return total & 0xFFFFFFFF


def problem():
    return PolynomialProduct(terms=TERMS, columns=COLUMNS, degree=DEGREE)
