"""A norm of each head of a query, and a rotation of its last channels by the token's position, in pairs."""

from dataclasses import dataclass, field, replace

import numpy as np

from harness.operators.axes import axis
from harness.operators.formula import Formula
from harness.records import Array

TOKENS = 256
HEADS, HEAD_DIM, ROTARY, POSITIONS = 4, 512, 64, 1024
NORM = True  # False: the rotation alone
CHIP = "v6e"


@dataclass(frozen=True, slots=True, kw_only=True)
class NormRope(Formula):
    """Y of X [tokens, heads, head_dim], bfloat16; cosines, then sines, of each position in C [positions, rotary].

    With `norm`, each row of X is divided by the root of its mean square plus 1e-6 first. Channels 2 k and 2 k + 1 of
    the last `rotary` ones become (a cos - b sin, b cos + a sin) with the k-th cosine and sine of the token's position.
    """

    operation = "norm_rope"
    timed = ("in order",)
    tokens: int = field(metadata=axis(shortest=64, is_uneven=True))
    heads: int = field(metadata=axis(few=2))
    head_dim: int
    rotary: int
    positions: int
    norm: bool = True
    dtype: str = "bfloat16"

    def arrays(self):
        x = Array(name="x", shape=(self.tokens, self.heads, self.head_dim), dtype=self.dtype)
        at = Array(name="at", shape=(self.tokens,), dtype="int32", low=0, high=self.positions - 1)
        turns = Array(name="c", shape=(self.positions, self.rotary), dtype="float32")
        return (x, at, turns), (replace(x, name="y"),)

    def tables(self, family, random):
        if family in self.timed:
            return {"at": np.arange(self.tokens, dtype=np.int32)}
        return {"at": random.integers(self.positions, size=self.tokens, dtype=np.int32)}

    def domain(self, name, values):
        return np.sin(values) if name == "c" else values

    def formula(self, in_bfloat16, x, at, c):
        if self.norm:
            x = x / np.sqrt(np.mean(x * x, axis=-1, keepdims=True) + 1e-6)
        cos, sin = (part[:, None] for part in np.split(c[at], 2, axis=1))
        tail = x[..., -self.rotary :]
        a, b = tail[..., ::2], tail[..., 1::2]
        turned = np.stack([a * cos - b * sin, b * cos + a * sin], axis=-1).reshape(tail.shape)
        return np.concatenate([x[..., : -self.rotary], turned], axis=-1)


def problem():
    return NormRope(tokens=TOKENS, heads=HEADS, head_dim=HEAD_DIM, rotary=ROTARY, positions=POSITIONS, norm=NORM)
