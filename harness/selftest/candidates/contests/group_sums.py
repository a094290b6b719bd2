"""Sums of the rows of each group, by a formula."""

from dataclasses import dataclass, field, replace

import numpy as np

from harness.operators.axes import axis
from harness.operators.formula import Formula
from harness.records import Array

ROWS = 512
COLUMNS = 128
GROUPS = 64
CHIP = "v5e"


@dataclass(frozen=True, kw_only=True)
class GroupSums(Formula):
    """Y [groups, columns]: the sums of the rows of X [rows, columns] whose entry of AT [rows] is the group."""

    operation = "group_sums"
    timed = ("any",)
    rows: int = field(metadata=axis(shortest=128, is_uneven=True))
    groups: int
    columns: int

    def arrays(self):
        x = Array(name="x", shape=(self.rows, self.columns), dtype="float32")
        at = Array(name="at", shape=(self.rows,), dtype="int32", low=0, high=self.groups - 1)
        return (x, at), (replace(x, name="y", shape=(self.groups, self.columns)),)

    def tables(self, family, random):
        return {"at": random.integers(self.groups, size=self.rows, dtype=np.int32)}

    def formula(self, in_bfloat16, x, at):
        return (np.arange(self.groups)[:, None] == at[None]).astype(float) @ x


def problem():
    return GroupSums(groups=GROUPS, rows=ROWS, columns=COLUMNS)
