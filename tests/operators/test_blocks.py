"""The places where probes change inputs: within blocks, so that rows of a block that affect each other show."""

import re
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from harness.loop import scaffold
from harness.operators import AllReduce, Attention, GroupedMatmulTransposed, Probe, ReduceScatter, changed, check_probe
from harness.operators.blocks import drawn_block, drawn_border
from harness.operators.formula import Formula
from harness.prepare import data

SEEDS = st.integers(0, 2**31)
Floats = NDArray[np.float32]


def fewest_beside(changed_ones: range, block: int, length: int) -> int:
    """The most, over all blocks, of the smaller number of a block's changed and unchanged positions."""
    counts = []
    for start in range(0, length, block):
        size = min(start + block, length) - start
        inside = len(range(max(start, changed_ones.start), min(start + size, changed_ones.stop)))
        counts.append(min(inside, size - inside))
    return max(counts)


@given(st.integers(8, 3000), SEEDS)
def test_a_drawn_block_leaves_a_quarter_of_a_kernels_block_on_both_sides(length: int, seed: int) -> None:
    drawn = drawn_block(length, np.random.default_rng(seed))
    assert 0 <= drawn.start < drawn.stop <= length
    assert len(drawn) < length
    assert len(drawn) <= 160
    for block in (64, 128, 256, 384, 512, 1024):
        if block <= length:
            assert fewest_beside(drawn, block, length) >= min(block, 128) // 4, (drawn, block)
    shorter = 1 << (length.bit_length() - 1)
    if shorter < 128:
        assert fewest_beside(drawn, shorter, length) >= shorter // 4, drawn


@given(st.integers(2, 3000), SEEDS, st.integers(0, 3000), st.integers(1, 3000))
def test_a_border_is_drawn_where_it_is_asked_for_if_it_can_be(length: int, seed: int, first: int, count: int) -> None:
    within = range(first, first + count)
    border = drawn_border(length, np.random.default_rng(seed), within)
    assert 0 < border < length
    if length >= 128:
        assert border % 64 in range(16, 49)
        assert border % 128 in range(32, 97)
        possible = [at for at in within if at % 64 in range(16, 49) and at % 128 in range(32, 97) and at <= length - 32]
        assert border in within or not possible


@pytest.mark.parametrize("length", range(8))
def test_of_a_few_positions_some_are_drawn(length: int) -> None:
    for seed in range(40):
        drawn = drawn_block(length, np.random.default_rng(seed))
        assert set(drawn) <= set(range(length))
        assert len(drawn) == min(length, 1) or 1 < len(drawn) < length


def test_blocks_begin_and_end_at_many_places_and_reach_both_ends() -> None:
    drawn = [drawn_block(512, np.random.default_rng(seed)) for seed in range(3000)]
    assert {place % 64 for block in drawn for place in (block.start, block.stop)} == set(range(64))
    assert {block.start for block in drawn} > {0}
    assert {block.stop for block in drawn} > {512}


def smallest_of_templates() -> Iterator[tuple[str, Any]]:
    """The smallest shape of every template except for decoding, which has fewer rows than any block.

    Problems stated by formulas have a probe for every axis, most of which are shorter than a block.
    """
    for name in scaffold.templates():
        stated = data.read(scaffold.text(name, "prepare.py"))
        assert stated is not None
        problem: Any = stated[0]
        for member in getattr(problem, "members", ()) or (problem,):
            single = getattr(member, "problem", member)
            small = next(single.reduced())
            if "decode" not in small.statement().title and not isinstance(single, Formula):
                yield small.statement().title, small


@pytest.mark.parametrize("problem", (each := dict(smallest_of_templates())).values(), ids=each)
def test_no_probe_of_one_block_coincides_with_blocks_of_a_kernel(problem: Any) -> None:
    tested = [
        (int(block[1]), int(block[2]) + 1)
        for seed in range(40)
        for probe in problem.probes(False, seed)
        if (block := re.search(r"\b(\d+) to (\d+)\b", probe.name)) is not None
    ]
    assert all(any(end % 64 in range(16, 49) for end in ends) for ends in tested)
    # Groups of rows are blocks of their own, wherever their borders are. Tokens without a sequence see nothing. Sums
    # over chips have rows changed at an odd period.
    assert len(tested) >= 20 or isinstance(problem, (GroupedMatmulTransposed, AllReduce, ReduceScatter))


@pytest.mark.parametrize("sequence", [256, 384, 512])
def test_what_is_hidden_shares_a_block_with_what_is_not(sequence: int) -> None:
    problem = Attention(sequence=sequence, head_dim=64, causal=True, window=sequence // 2)
    for seed in range(40):
        hidden = [each.regions[0].ranges[0] for each in problem.probes(False, seed) if each.name.startswith("keys and")]
        borders = [max(keys.start, keys.stop % sequence) for keys in hidden]
        assert len(borders) == 2
        assert all(border % 64 in range(16, 49) for border in borders)


# --- Never missed ------------------------------------------------------------------------------


def spread(o: Floats, size: int, leak: Callable[[Floats], Floats]) -> NDArray[Any]:
    """A right answer, larger by up to a thousandth (within a tolerance) by the value that `leak` gives a block."""
    blocks = o.reshape(-1, size, o.shape[-1])
    leaked = leak(blocks)
    values: NDArray[Any] = (blocks * (1 + np.float32(1e-3) * leaked / (1 + leaked))).reshape(o.shape)
    return values.astype(ml_dtypes.bfloat16)


LEAKS: dict[str, Callable[[Floats], Floats]] = {
    "within a block": lambda blocks: np.ptp(blocks, axis=1, keepdims=True),
    "to the next block": lambda blocks: np.roll(np.ptp(blocks, axis=1, keepdims=True), 1, axis=0),
}


@pytest.mark.long
def test_rows_that_leak_are_never_missed() -> None:
    """At the shortest of reduced shapes, where blocks are a third of the rows."""
    problem = Attention(sequence=256, head_dim=64)
    output = problem.statement().outputs

    def right(inputs: Sequence[NDArray[Any]]) -> Floats:
        q, k, v = (array.astype(np.float32) for array in inputs)
        scores = q @ k.T * np.float32(problem.scale)
        weights = np.exp(scores - scores.max(axis=1, keepdims=True))
        averages: Floats = weights @ v / weights.sum(axis=1, keepdims=True)
        return averages

    for seed in range(300):
        probe: Probe = next(each for each in problem.probes(False, seed) if each.name.startswith("queries"))
        inputs = problem.make_inputs(probe.family, seed)
        before, after = right(inputs), right(changed(probe, inputs))
        honest = (before.astype(ml_dtypes.bfloat16), after.astype(ml_dtypes.bfloat16))
        assert check_probe(output, probe, [honest[0]], [honest[1]], mode="reduced", seed=seed)[1] is None
        for name, leak in LEAKS.items():
            for size in (64, 128):
                spreads = [spread(o, size, leak) for o in (before, after)]
                failure = check_probe(output, probe, [spreads[0]], [spreads[1]], mode="reduced", seed=seed)[1]
                assert failure is not None, (seed, probe.name, name, size)
                assert failure.kind == "wrong-dependence"
