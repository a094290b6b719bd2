"""Checks of a problem's fields, which refuse invalid values with the field's name and the expectation."""

import math
from collections.abc import Sequence

from harness.errors import UsageError
from harness.operators.rounding import DTYPES


def require_sizes(operation: str, **sizes: object) -> None:
    """Raises UsageError `bad-problem` if one of these is not a positive integer."""
    for name, value in sizes.items():
        if isinstance(value, bool) or not isinstance(value, int) or value < 1:
            raise UsageError("bad-problem", f"{operation}: expected {name} to be a positive integer, got {value!r}")


def require_positive(operation: str, name: str, value: object) -> None:
    """Raises UsageError `bad-problem` if `value` is not a positive finite number."""
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not (math.isfinite(value) and value > 0):
        raise UsageError("bad-problem", f"{operation}: expected a positive finite {name}, got {value!r}")


def require_flag(operation: str, name: str, value: object) -> None:
    """Raises UsageError `bad-problem` if `value` is neither True nor False."""
    if not isinstance(value, bool):
        raise UsageError("bad-problem", f"{operation}: expected {name} to be True or False, got {value!r}")


def require_dtype(operation: str, dtype: object, dtypes: Sequence[str] = tuple(DTYPES)) -> None:
    """Raises UsageError `bad-problem` if `dtype` is not one of `dtypes`."""
    if dtype not in dtypes:
        raise UsageError("bad-problem", f"{operation}: expected dtype {' or '.join(dtypes)}, got {dtype!r}")
