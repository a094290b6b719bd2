"""The judge's front door: what this contest computes and on which chip, in plain constants."""

from dataclasses import dataclass, field, replace

import numpy as np

from harness.operators.axes import axis
from harness.operators.formula import Formula
from harness.records import Array

ROWS = 512
COLUMNS = 128
SIZE = 41
CHIP = "v5e"


@dataclass(frozen=True, kw_only=True)
class Places(Formula):
    """Y [rows, columns] = X times the number of whole groups of `size` before place AT [rows]."""

    operation = "places"
    timed = ("any",)
    rows: int = field(metadata=axis(shortest=128, is_uneven=True))
    columns: int
    size: int

    def arrays(self):
        x = Array(name="x", shape=(self.rows, self.columns), dtype="float32")
        at = Array(name="at", shape=(self.rows,), dtype="int32", low=0, high=4095)
        return (x, at), (replace(x, name="y"),)

    def tables(self, family, random):
        return {"at": random.integers(4096, size=self.rows, dtype=np.int32)}

    def formula(self, in_bfloat16, x, at):
        return x * (at // self.size)[:, None]


def problem():
    return Places(rows=ROWS, columns=COLUMNS, size=SIZE)


if __name__ == "__main__":
    try:
        from harness.cli import judge_contest
    except ModuleNotFoundError as missing:
        raise SystemExit(f"{missing}: run prepare.py with the Python in .venv, or run ./ratchet.sh judge") from None
    raise SystemExit(judge_contest(__file__))
