"""A linear recurrence in time, h[t] = a[t] h[t - 1] + x[t], as gated linear recurrent units have it."""

from dataclasses import dataclass, field, replace

import numpy as np

from harness.operators.axes import axis
from harness.operators.formula import Formula
from harness.records import Array

TIME, WIDTH = 512, 512
REVERSE = False  # True: from the last step to the first
CHIP = "v6e"


@dataclass(frozen=True, slots=True, kw_only=True)
class LinearScan(Formula):
    """H [time, width] of X and of gates A in 0 to 1, float32; before the first step H is 0."""

    operation = "linear_scan"
    time: int = field(metadata=axis(shortest=64, is_uneven=True))
    width: int = field(metadata=axis(shortest=256))
    reverse: bool = False
    dtype: str = "float32"

    def arrays(self):
        x = Array(name="x", shape=(self.time, self.width), dtype=self.dtype)
        return (x, replace(x, name="a")), (replace(x, name="h"),)

    def domain(self, name, values):
        return 1 / (1 + np.exp(-values.clip(-80, 80))) if name == "a" else values

    def formula(self, in_bfloat16, x, a):
        order = range(self.time)[:: -1 if self.reverse else 1]
        states, state = {}, np.zeros_like(x[0])
        for step in order:
            state = states[step] = a[step] * state + x[step]
        return np.stack([states[step] for step in range(self.time)])


def problem():
    return LinearScan(time=TIME, width=WIDTH, reverse=REVERSE)
