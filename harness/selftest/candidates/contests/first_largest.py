"""The column of the largest integer of each row, by a formula."""

from dataclasses import dataclass, field, replace

import numpy as np

from harness.operators.axes import axis
from harness.operators.formula import Formula
from harness.records import Array

ROWS = 256
COLUMNS = 128
CHIP = "v5e"


@dataclass(frozen=True, kw_only=True)
class FirstLargest(Formula):
    """Y [rows, 1]: the column of the largest of X [rows, columns] int32, the first of several equal ones."""

    operation = "first_largest"
    timed = ("any",)
    numbers = ("x",)
    rows: int = field(metadata=axis(shortest=128, is_uneven=True))
    columns: int

    def arrays(self):
        x = Array(name="x", shape=(self.rows, self.columns), dtype="int32", low=-(2**31), high=2**31 - 1)
        return (x,), (replace(x, name="y", shape=(self.rows, 1), low=None, high=None),)

    def formula(self, in_bfloat16, x):
        return np.argmax(x, axis=1)[:, None]


def problem():
    return FirstLargest(rows=ROWS, columns=COLUMNS)
