"""The axes of an operator, which its fields state, and the smaller shapes and compared rows that follow from them."""

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, fields, replace
from math import prod
from typing import Any, ClassVar, Literal, TypeVar

from harness.operators.blocks import SHORTEST, sampled_rows, shortened
from harness.operators.fields import require, require_member, require_sizes
from harness.operators.outputs import fewest_rows
from harness.operators.problem import Rows
from harness.operators.rounding import DTYPES
from harness.records import Statement, Work
from harness.records.problem import Parameter

Own = TypeVar("Own", bound="Operator")


@dataclass(frozen=True, slots=True, kw_only=True)
class Axis:
    """The rule for the value of a field in smaller shapes.

    - A length becomes `shortest`, 2 x `shortest`, 4 x `shortest` and so on, or keeps its full value. In the second
      shape it is 1.5 times as long if `is_uneven`.
    - A length `along` another field gets that field's length, but at most its own full value.
    - A count of equal things, such as heads, becomes at most `few`, and at most `fewer` in the second shape.
    - A `multiple` of another field stays the same multiple of that field.
    """

    shortest: int = SHORTEST
    is_uneven: bool = False
    along: str = ""
    few: int | None = None
    fewer: int | None = None
    multiple: str = ""


def axis(**stated: Any) -> Mapping[str, Axis]:
    """The metadata of a field: an Axis with these attributes."""
    return {"axis": Axis(**stated)}


class Operator(ABC):
    """The methods of a problem that follow from its fields. Subclasses are frozen dataclasses; int fields are sizes."""

    __slots__ = ()
    operation: ClassVar[str]
    # The most that one check may cost, in the unit of `row_cost`.
    checked: ClassVar[int]

    def __post_init__(self) -> None:
        """Raises UsageError if the fields do not describe a problem."""
        self.require_fields()

    def require_fields(self) -> None:
        """Raises UsageError `bad-problem` if a size, the dtype or a multiple is invalid."""
        instance: Any = self
        sizes = {field.name: getattr(self, field.name) for field in fields(instance) if field.type is int}
        require_sizes(self.operation, **sizes)
        require_member(self.operation, "dtype", instance.dtype, DTYPES)
        for name, rule in self._axes.items():
            if divisor := rule.multiple:
                whole, part = getattr(self, name), getattr(self, divisor)
                words = f"expected {divisor} to divide {name}, got {name}={whole}, {divisor}={part}"
                require(self.operation, whole % part == 0, words)

    def fill(self, **defaults: object) -> None:
        """Sets fields that are None to these defaults, during construction."""
        for name, value in defaults.items():
            if getattr(self, name) is None:
                object.__setattr__(self, name, value)

    @property
    def parameters(self) -> tuple[tuple[str, Parameter], ...]:
        """The fields that this problem uses, as its statement names them."""
        instance: Any = self
        every = ((field.name, getattr(self, field.name)) for field in fields(instance))
        return tuple((name, value) for name, value in every if value is not None)

    @abstractmethod
    def statement(self) -> Statement:
        """The operation, its arrays and its useful work, as a Problem states them."""

    @abstractmethod
    def work(self) -> Work:
        """The useful work of one call."""

    @property
    def row_cost(self) -> int:
        """The cost of comparing one row of every matrix of the output, in multiply-adds or the class's own unit."""
        return self.work().matmul_flops // (2 * fewest_rows(self.statement().outputs).shape[-2])

    def sample_rows(self, seed: int) -> Rows:
        """All rows if that is cheap; otherwise the first, the last and some evenly spread rows of every matrix."""
        *matrices, rows, _ = fewest_rows(self.statement().outputs).shape
        return sampled_rows(prod(matrices), rows, self.checked // self.row_cost, seed)

    def reduced(self: Own) -> Iterator[Own]:
        """The same problem at shorter lengths and with small counts, the cheapest first."""
        axes = {name: rule for name, rule in self._axes.items() if rule.few is None and not rule.multiple}
        wholes = {name: whole for name in axes if (whole := self._longest(name)) is not None}
        free = [name for name in wholes if not axes[name].along]
        for some in shortened([(self.shortest(name), wholes[name]) for name in free]):
            lengths = dict(zip(free, some, strict=True))
            reduced_lengths = {name: min(lengths[axes[name].along or name], getattr(self, name)) for name in wholes}
            yield self._resized(self, reduced_lengths, "few")

    def second_shape(self: Own, small: Own) -> Own | None:
        """The reduced problem with some lengths 1.5 times as long, so that numbers of blocks are not powers of two.

        Along each axis only the longest lengths change, and only if they stay below their full value. Counts become at
        most `fewer`. None if no length changes.
        """
        changes = {}
        for name, rule in self._axes.items():
            whole, longer = getattr(self, name), (getattr(small, name) or 0) * 3 // 2
            if rule.is_uneven and whole == self._longest(name) and longer < (whole or 0):
                changes[name] = longer
        return self._resized(small, changes, "fewer") if changes else None

    def shortest(self, name: str) -> int:
        """The length of a field in the smallest shape."""
        return self._axes[name].shortest

    def following(self, small: Mapping[str, Any]) -> dict[str, Any]:
        """The fields of a smaller shape of this problem that follow from its other fields, `small`."""
        return {}

    @property
    def _axes(self) -> dict[str, Axis]:
        instance: Any = self
        return {field.name: field.metadata["axis"] for field in fields(instance) if field.metadata}

    def _longest(self, name: str) -> int | None:
        """The longest of this field and the fields along the same axis; None if one of them is None."""
        home = self._axes[name].along or name
        lengths = [getattr(self, other) for other, rule in self._axes.items() if home in (other, rule.along)]
        return None if None in lengths else max(lengths)

    def _resized(self: Own, small: Own, lengths: dict[str, int], most: Literal["few", "fewer"]) -> Own:
        """`small` with these lengths, its counts limited by `most`, and the fields that follow from both."""
        instance: Any = small
        values = {field.name: getattr(small, field.name) for field in fields(instance)} | lengths
        for name, rule in self._axes.items():
            if (limit := getattr(rule, most)) and values[name] is not None:
                values[name] = min(values[name], limit)
        for name, rule in self._axes.items():
            if divisor := rule.multiple:
                values[name] = values[divisor] * (getattr(small, name) // getattr(small, divisor))
        resized: Own = replace(instance, **values | self.following(values))
        return resized
