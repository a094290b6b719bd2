"""Squared distances of all pairs of rows, by a formula."""

from dataclasses import dataclass, field, replace

import numpy as np

from harness.operators.axes import axis
from harness.operators.formula import Formula
from harness.records import Array

ROWS = 512
OTHERS = 512
COLUMNS = 128
CHIP = "v5e"


@dataclass(frozen=True, kw_only=True)
class Distances(Formula):
    """D [rows, others] of X [rows, columns] and Y [others, columns]: the sum of (x - y)^2 along the columns."""

    operation = "distances"
    rows: int = field(metadata=axis(shortest=64, is_uneven=True))
    others: int = field(metadata=axis(shortest=128))
    columns: int
    dtype: str = "bfloat16"

    def arrays(self):
        x = Array(name="x", shape=(self.rows, self.columns), dtype=self.dtype)
        return (x, replace(x, name="y", shape=(self.others, self.columns))), (
            replace(x, name="d", shape=(self.rows, self.others)),
        )

    def formula(self, in_bfloat16, x, y):
        return np.stack([np.sum(np.square(row - y), axis=1) for row in x])


def problem():
    return Distances(rows=ROWS, others=OTHERS, columns=COLUMNS)
