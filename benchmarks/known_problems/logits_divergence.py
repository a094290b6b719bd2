"""The divergence, by row, of a student's distribution over words from a teacher's, both given as logits."""

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
    """D [tokens, 1], float32: the sum over words of q (log q - log p), q the softmax of TEACHER, p that of STUDENT.

    Logits are within 512, which is far more than models have.
    """

    operation = "logits_divergence"
    # For logits that are nearly equal the divergence is less than its rounding errors.
    own_families = ("normal", "large", "far-values", "spikes")
    tokens: int = field(metadata=axis(shortest=64, is_uneven=True))
    words: int = field(metadata=axis(shortest=4096))
    dtype: str = "bfloat16"

    def arrays(self):
        student = Array(name="student", shape=(self.tokens, self.words), dtype=self.dtype)
        divergence = Array(name="d", shape=(self.tokens, 1), dtype="float32")
        return (student, replace(student, name="teacher")), (divergence,)

    def domain(self, name, values):
        return np.clip(values, -512, 512)

    def formula(self, in_bfloat16, student, teacher):
        # Summed in this order, as one pass over the words can, without the logarithms of all of them.
        (top, total), (top_q, total_q) = (self._sums(logits) for logits in (student, teacher))
        apart = np.sum(np.exp(teacher - top_q) * (teacher - student), axis=1, keepdims=True) / total_q
        return apart + (np.log(total) + top) - (np.log(total_q) + top_q)

    def _sums(self, logits):
        top = np.max(logits, axis=1, keepdims=True)
        return top, np.sum(np.exp(logits - top), axis=1, keepdims=True)


def problem():
    return LogitsDivergence(tokens=TOKENS, words=WORDS)
