"""The first step of hyper-connections: the mixes of a token's streams, and the sum of their squares."""

from dataclasses import dataclass, field, replace

import numpy as np

from harness.operators.axes import axis
from harness.operators.formula import Formula
from harness.records import Array

TOKENS, STREAMS, MODEL = 256, 4, 512
CHIP = "v6e"


@dataclass(frozen=True, slots=True, kw_only=True)
class HyperMixes(Formula):
    """Mixes [tokens, streams (streams + 2)] = X F^T and the sums of X^2 [tokens, 1], float32.

    X [tokens, streams model] is bfloat16, F float32 and not rounded.
    """

    operation = "hyper_mixes"
    tokens: int = field(metadata=axis(shortest=64, is_uneven=True))
    streams: int
    model: int
    dtype: str = "bfloat16"

    def arrays(self):
        x = Array(name="x", shape=(self.tokens, self.streams * self.model), dtype=self.dtype)
        weights = Array(name="f", shape=(self.streams * (self.streams + 2), x.shape[1]), dtype="float32")
        mixes = replace(weights, name="mixes", shape=(self.tokens, weights.shape[0]))
        return (x, weights), (mixes, replace(mixes, name="squares", shape=(self.tokens, 1)))

    def matmul_flops(self):
        return 2 * self.tokens * self.streams * (self.streams + 2) * self.streams * self.model

    def formula(self, in_bfloat16, x, f):
        return x @ f.T, np.sum(x * x, axis=1, keepdims=True)


def problem():
    return HyperMixes(tokens=TOKENS, streams=STREAMS, model=MODEL)
