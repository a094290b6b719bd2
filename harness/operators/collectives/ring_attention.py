"""Attention over several chips: q, k and v are split along the sequence, and each chip needs all keys and values."""

from dataclasses import dataclass, replace

from harness.operators.attention.forward import Attention
from harness.operators.attention.rounding import SMALLEST_BLOCK
from harness.operators.collectives.over_chips import AXIS, OverChips
from harness.operators.fields import require
from harness.operators.rounding import DTYPES
from harness.records import Statement, Work


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

    @property
    def smallest_block(self) -> int:
        """The fewest keys that a kernel takes at a time: half of a chip's keys at most, for these go each way round."""
        return min(SMALLEST_BLOCK, max(1, self.kv_sequence // self.chips // 2))
