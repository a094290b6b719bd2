"""Values that may be None for the type checker, and are not in a test."""

from typing import TypeVar

_Value = TypeVar("_Value")


def present(value: _Value | None) -> _Value:
    """The value, which must not be None."""
    assert value is not None
    return value
