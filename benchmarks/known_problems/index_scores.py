"""Scores of an index of compressed keys: products by head, without negative ones, weighted and summed."""

from dataclasses import dataclass, field

import numpy as np

from harness.operators.axes import axis
from harness.operators.formula import Formula
from harness.records import Array

HEADS, QUERIES, KEYS, HEAD_DIM, SCALE = 32, 128, 512, 128, 0.088
CHIP = "v6e"


@dataclass(frozen=True, slots=True, kw_only=True)
class IndexScores(Formula):
    """S [queries, keys], float32: the sum over heads of max(Q K^T, 0) scale W.

    Q [heads, queries, head_dim], K [keys, head_dim] and the heads' weights W [queries, heads] are bfloat16.
    """

    operation = "index_scores"
    heads: int
    queries: int = field(metadata=axis(shortest=64))
    keys: int = field(metadata=axis(shortest=256))
    head_dim: int
    scale: float
    dtype: str = "bfloat16"

    def arrays(self):
        shapes = {
            "q": (self.heads, self.queries, self.head_dim),
            "k": (self.keys, self.head_dim),
            "w": (self.queries, self.heads),
        }
        inputs = tuple(Array(name=name, shape=shape, dtype=self.dtype) for name, shape in shapes.items())
        return inputs, (Array(name="s", shape=(self.queries, self.keys), dtype="float32"),)

    def matmul_flops(self):
        return 2 * self.heads * self.queries * self.keys * self.head_dim

    def formula(self, in_bfloat16, q, k, w):
        total = 0
        for head in range(self.heads):
            total = total + np.maximum(q[head] @ k.T, 0) * w[:, head, None]
        return total * self.scale


def problem():
    return IndexScores(heads=HEADS, queries=QUERIES, keys=KEYS, head_dim=HEAD_DIM, scale=SCALE)
