"""Checks of a problem's fields, which refuse invalid values with the field's name and the expectation."""

import math
from collections.abc import Collection

from harness.errors import UsageError


def require(operation: str, condition: object, expectation: str) -> None:
    """Raises UsageError `bad-problem` with the text `expectation` unless the condition is true."""
    if not condition:
        raise UsageError("bad-problem", f"{operation}: {expectation}")


def require_sizes(operation: str, **sizes: object) -> None:
    """Raises UsageError `bad-problem` if one of these is not a positive integer."""
    for name, value in sizes.items():
        is_size = isinstance(value, int) and not isinstance(value, bool) and value > 0
        require(operation, is_size, f"expected {name} to be a positive integer, got {value!r}")


def require_positive(operation: str, name: str, value: object) -> None:
    """Raises UsageError `bad-problem` if `value` is not a positive finite number."""
    is_positive = isinstance(value, (int, float)) and not isinstance(value, bool) and math.isfinite(value) and value > 0
    require(operation, is_positive, f"expected a positive finite {name}, got {value!r}")


def require_flag(operation: str, name: str, value: object) -> None:
    """Raises UsageError `bad-problem` if `value` is neither True nor False."""
    require(operation, isinstance(value, bool), f"expected {name} to be True or False, got {value!r}")


def require_member(operation: str, name: str, value: object, allowed: Collection[str]) -> None:
    """Raises UsageError `bad-problem` if `value` is not one of the `allowed` values."""
    require(operation, value in tuple(allowed), f"expected {name} {' or '.join(allowed)}, got {value!r}")
