"""A wait for some of the signals that have arrived: a chip knows what all ways to take them have in common."""

import numpy as np
import pytest

from harness.judge.evaluate.interpret.other_chips import _certain_clock

NOTHING = [0, 0, 0]


def sent(*signals: tuple[int, int, list[int]]) -> list[tuple[int, int, np.ndarray]]:
    return [(sender, units, np.array(clock, np.int32)) for sender, units, clock in signals]


@pytest.mark.parametrize(
    ("signals", "units", "expected"),
    [
        # A wait for one of two signals: it may be either.
        ([(1, 1, [0, 5, 0]), (2, 1, [0, 0, 7])], 1, NOTHING),
        ([(1, 1, [0, 5, 0]), (2, 1, [0, 0, 7])], 2, [0, 5, 7]),
        # A wait for one of two signals of the same chip: it is the first.
        ([(1, 1, [0, 5, 0]), (1, 1, [0, 8, 0])], 1, [0, 5, 0]),
        # A wait for two of three: at least one is chip 1's, whose second signal came after chip 2 had begun.
        ([(1, 1, [0, 5, 0]), (1, 1, [0, 8, 3]), (2, 1, [0, 0, 4])], 2, [0, 5, 3]),
        # A signal of two units is known by its first.
        ([(1, 2, [0, 5, 0])], 1, [0, 5, 0]),
        ([], 0, NOTHING),
    ],
)
def test_a_wait_knows_what_must_have_happened(
    signals: list[tuple[int, int, list[int]]], units: int, expected: list[int]
) -> None:
    arrived = np.array([9, 9, 9], np.int32)
    assert _certain_clock(arrived, sent(*signals), units).tolist() == expected
    assert arrived.tolist() == [9, 9, 9]


def test_of_too_many_ways_the_first_units_of_each_are_known() -> None:
    signals = [(sender, 1, [0, 0, 0]) for sender in range(12) for _ in range(20)]
    signals[0] = (0, 1, [3, 0, 0])
    assert _certain_clock(np.zeros(3, np.int32), sent(*signals), 20 * 12 - 19).tolist() == [3, 0, 0]
