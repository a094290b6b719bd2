"""A layer of gated units: y = gelu(x w_gate) (x w_up), with the tanh approximation of gelu."""

from dataclasses import dataclass, field

import numpy as np

from harness.operators.axes import axis
from harness.operators.formula import Formula
from harness.records import Array

TOKENS, MODEL, HIDDEN = 256, 512, 512
CHIP = "v6e"


@dataclass(frozen=True, slots=True, kw_only=True)
class GeGLU(Formula):
    """Y [tokens, hidden] of X [tokens, model] and two weights [model, hidden]."""

    operation = "geglu"
    tokens: int = field(metadata=axis(shortest=128, is_uneven=True))
    model: int = field(metadata=axis(shortest=256))
    hidden: int = field(metadata=axis(shortest=256))
    dtype: str = "bfloat16"

    def arrays(self):
        x = Array(name="x", shape=(self.tokens, self.model), dtype=self.dtype)
        gate, up = (Array(name=name, shape=(self.model, self.hidden), dtype=self.dtype) for name in ("w_gate", "w_up"))
        return (x, gate, up), (Array(name="y", shape=(self.tokens, self.hidden), dtype=self.dtype),)

    def matmul_flops(self):
        return 4 * self.tokens * self.model * self.hidden

    def formula(self, in_bfloat16, x, w_gate, w_up):
        gate, up = x @ w_gate, x @ w_up
        inner = np.sqrt(2 / np.pi).astype(gate.dtype) * (gate + 0.044715 * gate * gate * gate)
        return 0.5 * gate * (1 + np.tanh(inner)) * up


def problem():
    return GeGLU(tokens=TOKENS, model=MODEL, hidden=HIDDEN)
