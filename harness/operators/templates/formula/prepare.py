from dataclasses import dataclass, field, replace

import numpy as np

from harness.operators.axes import axis
from harness.operators.formula import Formula
from harness.records import Array

ROWS = 4096
COLUMNS = 2048
CHIP = "v5e"


@dataclass(frozen=True, kw_only=True)
class BiasGelu(Formula):
    """Y = gelu(X + B): X and Y [rows, columns], B [columns]. Put your operation here."""

    operation = "bias_gelu"
    rows: int = field(metadata=axis(shortest=64, is_uneven=True))  # a length that smaller shapes shorten
    columns: int
    dtype: str = "bfloat16"

    def arrays(self):
        x = Array(name="x", shape=(self.rows, self.columns), dtype=self.dtype)
        return (x, replace(x, name="b", shape=(self.columns,))), (replace(x, name="y"),)

    def formula(self, in_bfloat16, x, b):  # in_bfloat16(values): what a kernel may round to bfloat16
        h = x + b
        return 0.5 * h * (1 + np.tanh((2 / np.pi) ** 0.5 * (h + 0.044715 * h**3)))


def problem():
    return BiasGelu(rows=ROWS, columns=COLUMNS)
