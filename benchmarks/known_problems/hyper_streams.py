"""The last step of hyper-connections: a token's streams, mixed, and a layer's output added to each."""

from dataclasses import dataclass, field, replace

import numpy as np

from harness.operators.axes import axis
from harness.operators.formula import Formula
from harness.records import Array

TOKENS, STREAMS, MODEL = 256, 4, 512
CHIP = "v6e"


@dataclass(frozen=True, slots=True, kw_only=True)
class HyperStreams(Formula):
    """Y [tokens, streams model], bfloat16: stream j is post[j] X + sum over i of comb[i, j] times stream i of R."""

    operation = "hyper_streams"
    tokens: int = field(metadata=axis(shortest=64, is_uneven=True))
    streams: int
    model: int
    dtype: str = "bfloat16"

    def arrays(self):
        x = Array(name="x", shape=(self.tokens, self.model), dtype=self.dtype)
        streams = replace(x, name="r", shape=(self.tokens, self.streams * self.model))
        post = Array(name="post", shape=(self.tokens, self.streams), dtype="float32")
        comb = replace(post, name="comb", shape=(self.tokens, self.streams, self.streams))
        return (x, streams, post, comb), (replace(streams, name="y"),)

    def formula(self, in_bfloat16, x, r, post, comb):
        r = r.reshape(len(x), self.streams, self.model)
        y = post[:, :, None] * x[:, None] + np.einsum("tij,tim->tjm", in_bfloat16(comb), r)
        return y.reshape(len(x), -1)


def problem():
    return HyperStreams(tokens=TOKENS, streams=STREAMS, model=MODEL)
