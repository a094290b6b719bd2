"""Attention over several chips: q, k and v are split along the sequence, and each chip needs all keys and values."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from harness.operators.attention.forward import Attention
from harness.operators.attention.rounding import softmax
from harness.operators.collectives.over_chips import AXIS, OverChips
from harness.operators.fields import require
from harness.operators.problem import Exact, Rows, Values
from harness.operators.rounding import DTYPES, relative_rounding
from harness.records import Statement, Work

# Kernels send half of each chip's keys each way round, so a chip may take the halves in any order.
_PARTS_OF_A_CHIP = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class RingAttention(OverChips, Attention):
    """Attention without a mask, on `chips` chips in a mesh with the axis x: q, k, v and o are split along the sequence.

    Raises UsageError `bad-problem` for lengths that the chips do not divide, and for a mask. Under a mask, contiguous
    parts of the sequence would give the chips different amounts of work.
    """

    operation = "ring_attention"
    chips: int = 4

    def require_fields(self) -> None:
        """Raises UsageError `bad-problem` if a size is invalid or not split evenly, or if keys are hidden."""
        OverChips.require_fields(self)
        is_plain = not self.causal and self.window is None and self.segments is None
        require(self.operation, is_plain, "expected neither causal, window nor segments")

    def work(self) -> Work:
        """The useful work of one chip: its queries with all keys. It receives the other chips' keys and values."""
        whole = Attention.work(self)
        keys = 2 * self.batch * self.kv_heads * self.kv_sequence * self.head_dim // self.chips
        return replace(
            whole,
            matmul_flops=whole.matmul_flops // self.chips,
            vector_flops=whole.vector_flops // self.chips,
            exponentials=whole.exponentials // self.chips,
            minimum_hbm_bytes=whole.minimum_hbm_bytes // self.chips,
            link_bytes=(self.chips - 1) * keys * DTYPES[self.dtype].itemsize,
        )

    def statement(self) -> Statement:
        whole = Attention.statement(self)
        split = (*(None,) * (len(whole.inputs[0].shape) - 2), AXIS, None)
        title = whole.title.replace("attention forward", "ring attention")
        return self.over_chips(replace(whole, title=title), [split] * 4)

    def exact_rounding(self, inputs: Sequence[Values], rows: Rows) -> Exact:
        """`Attention.exact_rounding`, for chips that take the parts of the keys in any order.

        Until a chip has seen the largest score of a row, the row's weights are rounded relative to a smaller maximum.
        So the weights of a group of equal keys may be rounded differently in each part that lacks the largest score.
        With V_p the sum of w_k v_k over the keys of a group in such a part (or in all other parts together), and r as
        in `attention.rounding.variances`, the variance is at most r^2 (P^2 + N^2) for each group, where P is the sum of
        the positive V_p and N that of the negative ones. `Attention.exact_rounding` has r^2 (P - N)^2 at least, so
        2 r^2 P N is added.
        """
        variance = np.square(Attention.exact_rounding(self, inputs, rows))
        parts = _PARTS_OF_A_CHIP * self.chips
        part = np.arange(self.kv_sequence) * parts // self.kv_sequence
        for piece in self._pieces(inputs, rows, np.float32):
            _, group, counts = np.unique(piece.k, axis=0, return_inverse=True, return_counts=True)
            tied = np.flatnonzero(counts[group.reshape(-1)] > 1)
            if not len(tied):
                continue
            groups, group = np.unique(group.reshape(-1)[tied], return_inverse=True)
            weights = softmax(piece, self.scale, self.soft_cap).weights
            weights /= weights.sum(axis=1, keepdims=True)
            for place, of_row in zip(piece.places, weights, strict=True):
                has_largest = np.isin(part, part[of_row == of_row.max()])
                # All parts with the largest score count as one.
                item = np.where(has_largest, parts, part)
                sums = np.zeros((len(groups), parts + 1, self.head_dim))
                np.add.at(sums, (group, item[tied]), of_row[tied, None] * piece.v[tied])
                cancelling = np.maximum(sums, 0).sum(axis=1) * np.maximum(-sums, 0).sum(axis=1)
                variance[place] += 2 * relative_rounding(self.dtype) ** 2 * cancelling.sum(axis=0)
        return np.sqrt(variance)
