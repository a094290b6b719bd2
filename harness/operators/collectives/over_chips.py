"""An operator whose arrays are split evenly over the chips of a mesh with one axis."""

from collections.abc import Sequence
from dataclasses import replace

from harness.operators.axes import Operator
from harness.operators.fields import require
from harness.records import Statement

# The only axis of the mesh.
AXIS = "x"
# For each dimension of an array, the mesh axis that it is split over, or None.
Split = tuple[str | None, ...]


class OverChips(Operator):
    """Base of problems on `chips` chips, which requires even splits. Name it before the operator among the bases."""

    __slots__ = ()
    chips: int

    def require_fields(self) -> None:
        """Raises UsageError `bad-problem` if a size is invalid or not split evenly."""
        super().require_fields()
        statement = self.statement()
        lengths = {
            f"{length} of {array.name}": length
            for array in (*statement.inputs, *statement.outputs)
            for length, axis in zip(array.shape, array.split, strict=True)
            if axis is not None
        }
        uneven = [name for name, length in lengths.items() if length % self.chips]
        words = f"expected 2 chips or more, which divide {', '.join(uneven or lengths)}, got {self.chips}"
        require(self.operation, self.chips > 1 and not uneven, words)

    def over_chips(self, whole: Statement, splits: Sequence[Split]) -> Statement:
        """The statement `whole` over all chips: `splits` lists the splits of its inputs, then of its outputs."""
        pairs = zip((*whole.inputs, *whole.outputs), splits, strict=True)
        arrays = [replace(array, split=split) for array, split in pairs]
        count = len(whole.inputs)
        return replace(
            whole,
            title=f"{whole.title}, on {self.chips} chips",
            inputs=tuple(arrays[:count]),
            outputs=tuple(arrays[count:]),
            mesh=((AXIS, self.chips),),
            work=self.work(),
        )
