"""The interpreter's messages in words: races, accesses out of bounds, and the lines of errors."""

from typing import Any

import pytest

from harness.judge.evaluate.interpret import places
from harness.judge.evaluate.trace import packages

RACE = """RACE DETECTED
  write of ('vmem', 109, 3, 0)[(slice(0, 16, 1), 2)] from 100, 0, kernel.py:28:4 (fused)
  read of ('vmem', 109, 3, 0)[()] from 0, 0, pallas_call
"""


def test_a_race_names_both_accesses_and_the_lines_that_are_known() -> None:
    words = "nothing orders the write of VMEM at [0:16, 2] in kernel.py line 28 before or after the read of VMEM"
    assert places.race(RACE, of_chips=False) == words


def test_a_race_between_chips_names_the_chip() -> None:
    words = places.race(RACE, of_chips=True)
    assert words.startswith(
        "nothing orders the write of VMEM (buffer 109 of chip 3) at [0:16, 2] in kernel.py line 28 "
    )
    assert words.endswith("; let the writing chip wait for a signal from the reading chip")


def test_a_race_in_unknown_words_is_quoted() -> None:
    assert places.race("RACE DETECTED: two accesses\n  clock: 1", of_chips=False) == "RACE DETECTED: two accesses"


@pytest.mark.parametrize(
    ("message", "words"),
    [
        (
            "IndexError: kernel.py line 7: Out-of-bounds read of (0 0 any 100): reading [(slice(88, 104, 1), 0)] but "
            "buffer has shape (96, 4).",
            "kernel.py line 7: expected the read to stay within an array of shape [96, 4] in HBM, got [88:104, 0]",
        ),
        (
            "Out-of-bounds masked swap of (0 0 vmem 1): swapping [(slice(0, 9, 1),)] but buffer has shape (8,).",
            "expected the masked swap to stay within an array of shape [8] in VMEM, got [0:9]",
        ),
        ("IndexError: a block at slice(0, 4, 1)", "a block at 0:4"),
    ],
)
def test_an_access_out_of_bounds_has_its_ranges_and_the_shape(message: str, words: str) -> None:
    assert places.beyond(message) == words


def test_an_error_without_a_known_line_is_unchanged() -> None:
    with pytest.raises(IndexError) as caught, places.at(None):
        raise IndexError("beyond")
    assert caught.value.args == ("beyond",)


def test_an_error_gets_the_line_of_the_innermost_operation_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(packages, "place_of", lambda equation: f"{equation.source_info}: ")
    outer: Any = "line 1"
    with pytest.raises(RuntimeError) as caught, places.at(outer), places.at("line 2"):
        raise RuntimeError("stuck")
    assert caught.value.args == ("line 2: stuck",)
    assert places.line() == ""
