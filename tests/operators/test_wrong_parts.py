"""The wrong parts of an output: blocks are named by their rows and columns, whatever rows were compared."""

from dataclasses import replace

import ml_dtypes
import numpy as np
import pytest

from harness.operators import Attention, Matmul, check
from harness.operators.wrong_parts import at_smaller_shape, wrong_parts
from harness.records import Array

SQUARE = Array(name="c", shape=(1024, 1024), dtype="bfloat16")
HEADS = Array(name="o", shape=(2, 4, 100, 64), dtype="bfloat16")


def marked(output: Array, *places: tuple[slice | int, ...]) -> str:
    wrong = np.zeros(output.shape, bool)
    for place in places:
        wrong[place] = True
    return wrong_parts((output,), wrong.reshape(-1, output.shape[-1]))


@pytest.mark.parametrize(
    ("output", "places", "words"),
    [
        (SQUARE, [(slice(256, 512), slice(0, 256))], "c[256..511, 0..255]"),
        (
            SQUARE,
            [(slice(0, 256), slice(256, 512)), (slice(256, 512), slice(0, 256))],
            "c[0..255, 256..511] and c[256..511, 0..255]",
        ),
        (SQUARE, [(300, 5)], "c[300, 5]"),
        (SQUARE, [(slice(None), slice(1000, 1024))], "c[0..1023, 1000..1023]"),
        (
            SQUARE,
            [(place, place) for place in range(0, 1024, 256)],
            "c[0, 0], c[256, 256], c[512, 512] and 1 more parts, up to c[768, 768]",
        ),
        (HEADS, [(1, 2, slice(96, 100))], "o[1, 2, 96..99, 0..63]"),
        # No tile spans the last rows of a head and the first rows of the next.
        (HEADS, [(0, 1, 99), (0, 2, 5)], "o[0, 1, 99, 0] to o[0, 2, 5, 63]"),
        (replace(HEADS, shape=(64,)), [(slice(3, 9),)], "o[3..8]"),
    ],
)
def test_neighbours_are_one_part(output: Array, places: list[tuple[slice | int, ...]], words: str) -> None:
    assert marked(output, *places) == words


def test_few_compared_rows_show_the_block_as_far_as_they_reach() -> None:
    rows = np.arange(3, 1024, 50)
    wrong = np.zeros((len(rows), 1024), bool)
    wrong[(rows >= 256) & (rows < 512), 512:] = True
    assert wrong_parts((SQUARE,), wrong, rows) == "c[303..503, 512..1023]"


def test_each_of_several_outputs_is_named() -> None:
    wrong = np.zeros((1024, 2048), bool)
    wrong[7, 1000:1100] = True
    outputs = (SQUARE, replace(SQUARE, name="d"))
    assert wrong_parts(outputs, wrong) == "c[7, 1000..1023] and d[7, 0..75]"


@pytest.mark.parametrize(
    ("value", "kind"), [(2.0, "wrong result in"), (np.nan, "of 262144 outputs are not finite, in")]
)
def test_a_wrong_block_is_named_in_the_failure(value: float, kind: str) -> None:
    problem = Matmul(m=512, n=512, k=256)
    inputs = problem.make_inputs("normal", 1)
    output = problem.honest(inputs, np.arange(512)).astype(ml_dtypes.bfloat16)
    output[256:, :256] *= value
    _, failure = check(problem, inputs, output, family="normal", mode="reduced", seed=1)
    assert failure is not None
    assert f"{kind} c[256..511, 0..255]" in failure.message


def test_a_smaller_shape_is_named_by_what_its_title_has_alone() -> None:
    contest = Attention(sequence=16384, head_dim=128)
    full, small = contest.statement(), next(contest.reduced()).statement()
    assert at_smaller_shape(small, full) == "at a smaller shape, sequence 256: "
    assert at_smaller_shape(full, full) == ""
