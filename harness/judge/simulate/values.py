"""A scalar register's value while a schedule is executed: an integer, or an unknown value with a reason."""

import math
import operator
import struct
from collections.abc import Callable
from typing import TypeVar

_T = TypeVar("_T")


class Unknowable(Exception):
    """Raised if control flow (a branch, a transfer, a wait) depends on a value that the simulator does not know.

    `unwritten` is True if the program never wrote this value.
    """

    def __init__(self, reason: str, *, unwritten: bool = False) -> None:
        super().__init__(reason)
        self.unwritten = unwritten


class Unknown:
    """An unknown value. Arithmetic with it gives an unknown value; a decision that needs it raises Unknowable.

    `unwritten`: the value was read from memory that the program never wrote.
    """

    __slots__ = ("reason", "unwritten")

    def __init__(self, reason: str, *, unwritten: bool = False) -> None:
        self.reason = reason
        self.unwritten = unwritten

    def _spread(self, _other: object = None) -> "Unknown":
        return self

    def _and(self, other: object) -> "Unknown | int":
        return 0 if other.__class__ is not Unknown and other == 0 else self

    def _or(self, other: object) -> "Unknown | bool":
        return True if other is True else self

    def __bool__(self) -> bool:
        raise Unknowable(self.reason, unwritten=self.unwritten)

    def __int__(self) -> int:
        raise Unknowable(self.reason, unwritten=self.unwritten)

    __index__ = __int__
    __add__ = __radd__ = __sub__ = __rsub__ = __mul__ = __rmul__ = _spread
    __xor__ = __rxor__ = __lshift__ = __rlshift__ = __rshift__ = __rrshift__ = _spread
    __floordiv__ = __rfloordiv__ = __mod__ = __rmod__ = _spread
    __lt__ = __le__ = __gt__ = __ge__ = __eq__ = __ne__ = _spread  # type: ignore[assignment]
    __and__ = __rand__ = _and
    __or__ = __ror__ = _or
    __hash__ = object.__hash__


class Assumed(Unknown):
    """An unknown value that is treated as `holds` in every decision; used in runs that bound a range."""

    __slots__ = ("holds",)

    def __init__(self, reason: str, holds: bool) -> None:
        super().__init__(reason)
        self.holds = holds

    def __bool__(self) -> bool:
        return self.holds

    def _turned(self, other: object = None) -> "Unknown":
        # `^ True` negates a predicate.
        return Assumed(self.reason, not self.holds) if other is True else self

    def _both(self, other: object) -> "Unknown | int":
        if isinstance(other, Assumed):
            return Assumed(self.reason, self.holds and other.holds)
        return super()._and(other)

    def _either(self, other: object) -> "Unknown | bool":
        if isinstance(other, Assumed):
            return Assumed(self.reason, self.holds or other.holds)
        return super()._or(other)

    __xor__ = __rxor__ = _turned  # type: ignore[assignment]
    __and__ = __rand__ = _both
    __or__ = __ror__ = _either


def pick(predicate: "bool | Unknown", value: _T, otherwise: _T) -> "_T | Unknown":
    """The register's value after a predicated instruction: `value` if the predicate holds, else `otherwise`.

    Unknown if the predicate is unknown.
    """
    if predicate.__class__ is Unknown:
        return predicate
    return value if predicate else otherwise


def decided(value: "int | Unknown", what: str) -> int:
    """The integer `value`. Raises Unknowable, with the words that `what` depends on it, if the value is not known."""
    if isinstance(value, Unknown):
        raise Unknowable(f"{what} depends on {value.reason}", unwritten=value.unwritten)
    return value


def smaller(word: "int | Unknown", other: "int | Unknown") -> "int | Unknown":
    """The minimum; unknown if either value is unknown."""
    return pick(word < other, word, other)


def larger(word: "int | Unknown", other: "int | Unknown") -> "int | Unknown":
    """The maximum; unknown if either value is unknown."""
    return pick(word > other, word, other)


def divided(dividend: "int | Unknown", other: "int | Unknown") -> "int | Unknown":
    """The unsigned quotient of 32-bit values; unknown for a division by zero."""
    if isinstance(dividend, Unknown) or isinstance(other, Unknown):
        return dividend if isinstance(dividend, Unknown) else other
    if other == 0:
        return Unknown("a division by zero")
    return (dividend & 0xFFFFFFFF) // (other & 0xFFFFFFFF)


def remainder(dividend: "int | Unknown", other: "int | Unknown") -> "int | Unknown":
    """The remainder of the division in `divided`; unknown for a division by zero."""
    return (dividend & 0xFFFFFFFF) - divided(dividend, other) * (other & 0xFFFFFFFF)


_COMPARISONS: dict[str, Callable[[float, float], bool]] = {
    "eq": operator.eq,
    "ne": operator.ne,
    "lt": operator.lt,
    "le": operator.le,
    "gt": operator.gt,
    "ge": operator.ge,
}
_ARITHMETIC: dict[str, Callable[[float, float], float]] = {
    "sadd": operator.add,
    "ssub": operator.sub,
    "smul": operator.mul,
    "smin": min,
    "smax": max,
}


def float_word(value: float) -> int:
    """The word (signed) that holds a floating-point number of 32 bits."""
    word: int = struct.unpack("<i", struct.pack("<f", value))[0]
    return word


def float_of(number: "int | Unknown") -> "int | Unknown":
    """The word that holds a whole number as a floating-point number."""
    return number if isinstance(number, Unknown) else float_word(number)


def _numbers(left: "int | Unknown", other: "int | Unknown") -> "tuple[float, float] | Unknown":
    """Two words as floating-point numbers; unknown if one is NaN or subnormal, which machines treat differently."""
    numbers = []
    for word in (left, other):
        if isinstance(word, Unknown):
            return word
        number: float = struct.unpack("<f", struct.pack("<I", word & 0xFFFFFFFF))[0]
        if math.isnan(number) or 0 < abs(number) < 2.0**-126:
            return Unknown("a floating-point number that machines treat differently (NaN or subnormal)")
        numbers.append(number)
    return numbers[0], numbers[1]


def floats_compared(how: str, word: "int | Unknown", other: "int | Unknown") -> "bool | Unknown":
    """The result of comparing two words as floating-point numbers."""
    numbers = _numbers(word, other)
    return numbers if isinstance(numbers, Unknown) else _COMPARISONS[how](*numbers)


def floats_computed(how: str, word: "int | Unknown", other: "int | Unknown") -> "int | Unknown":
    """The word with the result of an operation on the floating-point numbers in two words."""
    numbers = _numbers(word, other)
    if isinstance(numbers, Unknown):
        return numbers
    try:
        return float_word(_ARITHMETIC[how](*numbers))
    except OverflowError:
        return Unknown("a floating-point number beyond the largest")
