"""A scalar register's value while a schedule is executed: an integer, or unknown with the reason why."""

from typing import TypeVar

_T = TypeVar("_T")


class Unknowable(Exception):
    """Control flow (a branch, a transfer, a wait) depends on a value that the simulator does not know.

    `unwritten` says that it is not only unknown here: nothing in the program has written it.
    """

    def __init__(self, reason: str, *, unwritten: bool = False) -> None:
        super().__init__(reason)
        self.unwritten = unwritten


class Unknown:
    """A value nobody knows. It spreads through arithmetic and raises Unknowable where a decision needs it.

    `unwritten`: it is what memory held that the program never wrote.
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


def pick(predicate: "bool | Unknown", value: _T, otherwise: _T) -> "_T | Unknown":
    """`value` under the predicate, else `otherwise`: what a predicated instruction leaves in its register."""
    if predicate.__class__ is Unknown:
        return predicate
    return value if predicate else otherwise


def decided(value: "int | Unknown", what: str) -> int:
    """The integer; raises Unknowable, naming `what` needed it, if it is not known."""
    if isinstance(value, Unknown):
        raise Unknowable(f"{what} depends on {value.reason}", unwritten=value.unwritten)
    return value


def smaller(one: "int | Unknown", other: "int | Unknown") -> "int | Unknown":
    """The minimum, unknown if either is."""
    return pick(one < other, one, other)


def larger(one: "int | Unknown", other: "int | Unknown") -> "int | Unknown":
    """The maximum, unknown if either is."""
    return pick(one > other, one, other)


def divided(one: "int | Unknown", other: "int | Unknown") -> "int | Unknown":
    """The unsigned quotient of 32-bit values; unknown by zero."""
    if isinstance(one, Unknown) or isinstance(other, Unknown):
        return one if isinstance(one, Unknown) else other
    if other == 0:
        return Unknown("a division by zero")
    return (one & 0xFFFFFFFF) // (other & 0xFFFFFFFF)


def remainder(one: "int | Unknown", other: "int | Unknown") -> "int | Unknown":
    """What `divided` leaves."""
    return (one & 0xFFFFFFFF) - divided(one, other) * (other & 0xFFFFFFFF)
