"""A causal convolution of each channel along packed sequences, whose last rows are kept for the next call."""

from dataclasses import dataclass, field, replace

import numpy as np

from harness.operators.axes import axis
from harness.operators.formula import Formula
from harness.records import Array

TOKENS, CHANNELS, WIDTH, SEQUENCES = 256, 512, 4, 8
CHIP = "v6e"


@dataclass(frozen=True, slots=True, kw_only=True)
class RaggedConvolution(Formula):
    """Y of X [tokens, channels], bfloat16, and the states [sequences + 1, width - 1, channels] after a call.

    Sequence i has the rows from STARTS[i] to STARTS[i + 1], and behind its state AT[i], or behind zeros if HAS[i] is 0,
    they are convolved with W [channels, 1, width] (the last weight meets a row itself), and B [channels] is added. Its
    last width - 1 rows are its new state. COUNTS are sequences of one token, of prompts, and all. The new states are
    reshaped to as many rows as Y has.
    """

    operation = "ragged_convolution"
    timed = ("decode", "mixed")
    # Each sequence has a state of its own, which is written.
    distinct = ("at",)
    tokens: int = field(metadata=axis(shortest=64))
    channels: int
    width: int
    sequences: int
    dtype: str = "bfloat16"

    def arrays(self):
        x = Array(name="x", shape=(self.tokens, self.channels), dtype=self.dtype)
        states = replace(x, name="states", shape=(self.sequences + 1, self.width - 1, self.channels))
        w, b = replace(x, name="w", shape=(self.channels, 1, self.width)), replace(x, name="b", shape=(self.channels,))
        starts = Array(name="starts", shape=(self.sequences + 1,), dtype="int32", low=0, high=self.tokens)
        at = replace(starts, name="at", shape=(self.sequences,), high=self.sequences)
        has = replace(at, name="has", high=1)
        counts = replace(at, name="counts", shape=(3,))
        after = replace(x, name="after", shape=self._in_rows)
        return (x, states, w, b, starts, at, has, counts), (replace(x, name="y"), after)

    @property
    def _in_rows(self):
        return (self.tokens, (self.sequences + 1) * (self.width - 1) * self.channels // self.tokens)

    def exact(self):
        return ("after",)

    def tables(self, family, random):
        if family == "decode":
            lengths = np.ones(self.sequences, np.int32)
            lengths[-1] = self.tokens - self.sequences + 1
        else:
            cuts = np.sort(random.choice(np.arange(1, self.tokens), self.sequences - 1, replace=False))
            lengths = np.diff(np.concatenate([[0], cuts, [self.tokens]]))
        return {
            "starts": np.concatenate([[0], np.cumsum(lengths)]).astype(np.int32),
            "at": (random.permutation(self.sequences) + 1).astype(np.int32),
            "has": random.integers(2, size=self.sequences).astype(np.int32),
            "counts": np.array([0, self.sequences, self.sequences], np.int32),
        }

    def formula(self, in_bfloat16, x, states, w, b, starts, at, has, counts):
        y, states = x * 0, np.array(states, subok=True)
        for start, end, place, is_kept in zip(starts[:-1], starts[1:], at, has, strict=True):
            before = states[place] if is_kept else 0 * np.abs(states[place])
            rows = np.concatenate([before, x[start:end]])
            windows = np.stack([rows[tap : tap + end - start] for tap in range(self.width)], axis=-1)
            y[start:end] = np.sum(windows * w[:, 0], axis=-1) + b
            states[place] = rows[len(rows) - self.width + 1 :]
        return y, states.reshape(self._in_rows)


def problem():
    return RaggedConvolution(tokens=TOKENS, channels=CHANNELS, width=WIDTH, sequences=SEQUENCES)
