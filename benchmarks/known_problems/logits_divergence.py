"""The divergence of a student's words from a teacher's, both given by logits, of each row."""

from dataclasses import dataclass, field, replace

import numpy as np

from harness.operators.axes import axis
from harness.operators.formula import Formula
from harness.records import Array

TOKENS, WORDS = 256, 8192
CHIP = "v6e"
ASSUME = "always"


@dataclass(frozen=True, slots=True, kw_only=True)
class LogitsDivergence(Formula):
    """D [tokens, 1], float32: the sum over words of q (log q - log p), q the softmax of TEACHER, p that of STUDENT."""

    operation = "logits_divergence"
    # Of logits that are nearly equal the divergence is less than its roundings.
    own_families = ("normal", "large", "far-values", "spikes")
    tokens: int = field(metadata=axis(shortest=64, is_uneven=True))
    words: int = field(metadata=axis(shortest=4096))
    dtype: str = "bfloat16"

    def arrays(self):
        student = Array(name="student", shape=(self.tokens, self.words), dtype=self.dtype)
        divergence = Array(name="d", shape=(self.tokens, 1), dtype="float32")
        return (student, replace(student, name="teacher")), (divergence,)

    def formula(self, in_bfloat16, student, teacher):
        p, q = (self._logarithms(logits) for logits in (student, teacher))
        return np.sum(np.exp(q) * (q - p), axis=1, keepdims=True)

    def _logarithms(self, logits):
        above = logits - np.max(logits, axis=1, keepdims=True)
        return above - np.log(np.sum(np.exp(above), axis=1, keepdims=True))


def problem():
    return LogitsDivergence(tokens=TOKENS, words=WORDS)
