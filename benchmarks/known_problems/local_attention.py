"""Attention in which a query sees the keys that are no further away than a window, on either side."""

from dataclasses import dataclass, field, replace

import numpy as np

from harness.operators.axes import axis
from harness.operators.formula import Formula
from harness.records import Array

HEADS, SEQUENCE, HEAD_DIM, WINDOW = 2, 1024, 64, 64
CHIP = "v6e"


@dataclass(frozen=True, slots=True, kw_only=True)
class LocalAttention(Formula):
    """O of Q, K, V, all [heads, sequence, head_dim]; scores are divided by the root of head_dim."""

    operation = "local_attention"
    # Scores up to some thousands: a query's largest one has all of the weight.
    own_families = ("normal", "small", "spikes")
    heads: int = field(metadata=axis(few=2))
    sequence: int = field(metadata=axis(shortest=512))
    head_dim: int
    window: int
    dtype: str = "bfloat16"

    def arrays(self):
        q = Array(name="q", shape=(self.heads, self.sequence, self.head_dim), dtype=self.dtype)
        return (q, replace(q, name="k"), replace(q, name="v")), (replace(q, name="o"),)

    def domain(self, name, values):
        return values if name == "v" else np.clip(values, -64, 64)

    def matmul_flops(self):
        # Of the pairs inside of the window, each in two products.
        pairs = sum(
            min(self.window, place) + 1 + min(self.window, self.sequence - 1 - place) for place in range(self.sequence)
        )
        return 4 * self.heads * self.head_dim * pairs

    def formula(self, in_bfloat16, q, k, v):
        place = np.arange(self.sequence)
        outside = np.abs(place[:, None] - place) > self.window
        outputs = []
        for head in range(self.heads):
            scores = q[head] @ k[head].T * self.head_dim**-0.5
            scores = np.where(outside, -1e9, scores)
            weights = np.exp(scores - np.max(scores, axis=1, keepdims=True))
            outputs.append(in_bfloat16(weights) @ v[head] / np.sum(weights, axis=1, keepdims=True))
        return np.stack(outputs)


def problem():
    return LocalAttention(heads=HEADS, sequence=SEQUENCE, head_dim=HEAD_DIM, window=WINDOW)
