"""Numbers as they are printed, each with its unit."""

import pytest

from harness import units


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (2.16e-3, "2.160 ms"),
        # A microsecond that a difference of floats made slightly smaller is not printed as a thousand nanoseconds.
        (0.9999999999e-6, "1.000 us"),
        (-0.99999999e-3, "-1.000 ms"),
        (999.9994e-9, "999.999 ns"),
        (0.5e-12, "0.001 ns"),
        (0.0, "0 s"),
    ],
)
def test_seconds_take_the_prefix_of_what_is_printed(value: float, expected: str) -> None:
    assert units.seconds(value) == expected


@pytest.mark.parametrize(
    ("value", "expected"), [(999.96e9, "1.0 TB"), (999.94e9, "999.9 GB"), (64.3e12, "64.3 TB"), (0.0, "0.0 B")]
)
def test_decimal_prefixes_likewise(value: float, expected: str) -> None:
    assert units.decimal(value, "B") == expected


def test_one_of_something_is_no_plural() -> None:
    assert [units.quantity(number, "attempt") for number in (0, 1, 1200)] == [
        "0 attempts",
        "1 attempt",
        "1,200 attempts",
    ]
    assert [units.quantity(number, "copy", "copies") for number in (1, 2)] == ["1 copy", "2 copies"]
