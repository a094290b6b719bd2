"""The cross-entropy of each row of logits with its label."""

from dataclasses import dataclass, field

import numpy as np

from harness.operators.axes import axis
from harness.operators.formula import Formula
from harness.records import Array

TOKENS, WORDS = 256, 8192
CHIP = "v6e"
ASSUME = "always"


@dataclass(frozen=True, slots=True, kw_only=True)
class LogitsCrossEntropy(Formula):
    """Losses [tokens], float32: the logarithm of the sum of e^logits of a row, less the logit of its label."""

    operation = "logits_cross_entropy"
    timed = ("in order",)
    tokens: int = field(metadata=axis(shortest=64, is_uneven=True))
    words: int = field(metadata=axis(shortest=4096))
    dtype: str = "bfloat16"

    def arrays(self):
        logits = Array(name="logits", shape=(self.tokens, self.words), dtype=self.dtype)
        labels = Array(name="labels", shape=(self.tokens,), dtype="int32", low=0, high=self.words - 1)
        return (logits, labels), (Array(name="losses", shape=(self.tokens, 1), dtype="float32"),)

    def tables(self, family, random):
        if family in self.timed:
            return {"labels": np.arange(self.tokens, dtype=np.int32) * 31 % self.words}
        return {"labels": random.integers(self.words, size=self.tokens).astype(np.int32)}

    def formula(self, in_bfloat16, logits, labels):
        highest = np.max(logits, axis=1, keepdims=True)
        total = np.log(np.sum(np.exp(logits - highest), axis=1, keepdims=True)) + highest
        return total - np.take_along_axis(logits, labels[:, None], axis=1)


def problem():
    return LogitsCrossEntropy(tokens=TOKENS, words=WORDS)
