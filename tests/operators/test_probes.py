"""The inputs that outputs depend on: honest kernels keep probes' promises; each probe sees its own faults."""

import math
import re
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import jax.numpy as jnp
import ml_dtypes
import numpy as np
import pytest
from numpy.typing import NDArray
from online_softmax import HONEST, attention

from harness.loop import scaffold
from harness.operators import Attention, Probe, RMSNorm, changed, check, check_determinism, check_probe
from harness.operators.outputs import spans
from harness.operators.probes import Part
from harness.prepare import data
from harness.records import Failure

pytestmark = pytest.mark.long

Kernel = Callable[[Sequence[NDArray[Any]]], NDArray[Any]]

PLAIN = Attention(sequence=384, head_dim=64)
CAUSAL = Attention(sequence=256, kv_sequence=384, head_dim=64, causal=True)
GROUPED = Attention(batch=2, heads=4, kv_heads=2, sequence=128, head_dim=64, causal=True)
WINDOW = Attention(sequence=384, kv_sequence=448, head_dim=64, causal=True, window=150)
PACKED = Attention(batch=2, heads=2, kv_heads=1, sequence=192, head_dim=64, causal=True, segments=3)
CAPPED = replace(GROUPED, kv_sequence=192, window=32, soft_cap=50.0)
PROBLEMS = {
    "plain": PLAIN,
    "causal": CAUSAL,
    "grouped": GROUPED,
    "float32": replace(PLAIN, dtype="float32"),
    "window": WINDOW,
    "capped": CAPPED,
    "packed": PACKED,
    "packed without a mask": replace(PACKED, causal=False),
    "packed in a window": replace(PACKED, window=40),
}


def kernel(problem: Attention, **how: Any) -> Kernel:
    """Attention of all heads of the problem as a numpy kernel does it."""

    def run(inputs: Sequence[NDArray[Any]]) -> NDArray[Any]:
        q = inputs[0].reshape(-1, problem.sequence, problem.head_dim)
        k, v = (array.reshape(-1, problem.kv_sequence, problem.head_dim) for array in inputs[1:3])
        group = problem.heads // problem.kv_heads
        stated = {name: getattr(problem, name) for name in ("scale", "causal", "window", "soft_cap")}
        ids = inputs[3].reshape(problem.batch, -1) if len(inputs) > 3 else [None] * problem.batch
        heads = [
            attention(q[h], k[h // group], v[h // group], **stated, ids=ids[h // problem.heads], **how)
            for h in range(len(q))
        ]
        return np.stack(heads).reshape(problem.statement().outputs[0].shape)

    return run


def verdicts(problem: Attention, run: Kernel, *, full: bool = False, seed: int = 5) -> dict[str, Failure | None]:
    """The verdict of each probe, by the first word of its name; `future` and `past` for what masks hide."""
    refused = {}
    for probe in problem.probes(full, seed):
        inputs = problem.make_inputs(probe.family, seed)
        check_, failure = probed(problem, probe, run(inputs), run(changed(probe, inputs)))
        assert check_.elements > 0
        assert check_.passed == (failure is None)
        hidden = "past" if "before" in probe.name else "future"
        refused[hidden if " and values" in probe.name else probe.name.split()[0]] = failure
    return refused


def probed(problem: Attention, probe: Probe, before: NDArray[Any], after: NDArray[Any]) -> Any:
    return check_probe(problem.statement().outputs, probe, [before], [after], mode="reduced", seed=5)


def passes_values(problem: Attention, run: Kernel) -> bool:
    """True if the outputs are right for every family of inputs."""
    for family in problem.families(full=False):
        inputs = problem.make_inputs(family, 3)
        if not check(problem, inputs, run(inputs), family=family, mode="reduced", seed=3)[0].passed:
            return False
    return True


# --- Honest kernels ----------------------------------------------------------------------------


@pytest.mark.parametrize("name", PROBLEMS)
@pytest.mark.parametrize("variation", HONEST)
def test_honest_variations_depend_on_what_they_should(name: str, variation: str) -> None:
    problem = PROBLEMS[name]
    for block, full in ((64, False), (problem.kv_sequence, False), (128, True)):
        outcomes = verdicts(problem, kernel(problem, variation=variation, block=block), full=full)
        assert set(outcomes.values()) == {None}, (outcomes, block, full)


@pytest.mark.parametrize("seed", range(8))
def test_an_honest_kernel_passes_whatever_is_drawn(seed: int) -> None:
    for problem in (PLAIN, CAUSAL, GROUPED, WINDOW, CAPPED, PACKED):
        assert set(verdicts(problem, kernel(problem), seed=seed).values()) == {None}


def smallest_of_each_template() -> dict[str, Any]:
    refused = {}
    for name in scaffold.templates():
        stated = data.read(scaffold.text(name, "prepare.py"))
        assert stated is not None
        problem: Any = stated[0]
        for member in getattr(problem, "members", ()) or (problem,):
            single = getattr(member, "problem", member)
            small = next(single.reduced())
            if isinstance(small, RMSNorm):
                # A reduced shape keeps its 8192 columns.
                small = replace(small, columns=1024)
            refused[small.statement().title] = small
    return refused


@pytest.mark.parametrize("problem", (each := smallest_of_each_template()).values(), ids=each)
@pytest.mark.parametrize("seeds", [3, pytest.param(24, marks=pytest.mark.slow)])
def test_an_honest_kernel_of_any_problem_passes_whatever_is_drawn(problem: Any, seeds: int) -> None:
    for seed in range(1000, 1000 + seeds):
        for full in (False, True):
            for probe in problem.probes(full, seed):
                inputs = problem.make_inputs(probe.family, seed)
                before, after = (honest(problem, arrays) for arrays in (inputs, changed(probe, inputs)))
                result, failure = check_probe(problem.statement().outputs, probe, before, after, mode="full", seed=seed)
                assert failure is None
                assert result.elements


def honest(problem: Any, inputs: Sequence[NDArray[Any]]) -> list[NDArray[Any]]:
    """The problem's outputs as an honest kernel rounds them."""
    outputs = problem.statement().outputs
    whole = problem.honest(inputs, np.arange(math.prod(outputs[0].shape[:-1])))
    return [
        whole[:, columns].astype(jnp.dtype(output.dtype)).reshape(output.shape) for _, output, columns in spans(outputs)
    ]


def test_each_problem_has_the_probes_that_mean_something_there() -> None:
    def names(problem: Attention, full: bool) -> list[str]:
        return [re.split(r" of | from \d| \d", probe.name)[0] for probe in problem.probes(full, 0)]

    assert names(PLAIN, False) == ["values", "keys", "queries"]
    assert names(GROUPED, False) == ["values", "keys", "queries", "all queries", "keys and values"]
    assert names(Attention(sequence=16384, head_dim=128), True) == ["values"]
    assert PLAIN.probes(False, 1) == PLAIN.probes(False, 1)
    assert PLAIN.probes(False, 1) != PLAIN.probes(False, 2)


def test_one_run_at_the_full_shape_shows_every_block_of_keys_to_rows_of_every_block() -> None:
    outcomes: set[tuple[bool, frozenset[int]]] = set()
    for seed in range(20):
        (probe,) = Attention(sequence=16384, head_dim=128).probes(True, seed)
        changed_keys: dict[range, list[int]] = {}
        for region in probe.regions:
            changed_keys.setdefault(region.ranges[1], []).extend(region.ranges[0])
        assert sorted(key for keys in changed_keys.values() for key in keys) == list(range(16384))
        is_aligned = all(min(keys) % 128 == 0 and len(keys) == 128 for keys in changed_keys.values())
        for n in range(128 if is_aligned else 127):
            rows = np.concatenate([part.rows for part in probe.moves if n in part.columns])
            assert len(rows) == 16384 * 3 // 8
        outcomes.add((is_aligned, frozenset(rows % 8)))
    # Both kinds of borders, and rows of every kind everywhere.
    assert {is_aligned for is_aligned, _ in outcomes} == {True, False}
    assert len({rows for _, rows in outcomes}) > 4


def test_under_a_mask_borders_are_none_of_the_kernels_own() -> None:
    (probe,) = Attention(sequence=16384, head_dim=128, causal=True).probes(True, 0)
    by_column: dict[int, list[int]] = {}
    for region in probe.regions:
        by_column.setdefault(region.ranges[1].start, []).extend(region.ranges[0])
    keys = [range(min(each), max(each) + 1) for each in by_column.values()]
    assert all(sorted(each) == list(block) for each, block in zip(by_column.values(), keys, strict=True))
    assert [a.stop for a in keys[:-1]] == [b.start for b in keys[1:]]
    assert (keys[0].start, keys[-1].stop) == (0, 16384)
    assert all(block.start % 130 == keys[1].start for block in keys[1:])
    # In the columns of a key, rows before it must not move, and rows from it on must.
    blind = {part.columns.start: part.rows.stop for part in probe.stays}
    first = {part.columns.start: part.rows.start for part in reversed(probe.moves)}
    for column, block in list(zip(by_column, keys, strict=True))[1:]:
        assert blind[column] == block.start
        assert block.start <= first[column] < block.start + 8


def test_values_of_equal_keys_that_sum_to_zero_move_their_row_all_the_same() -> None:
    # A right kernel failed with this seed: row 8348 sees six equal keys of a block, whose values sum to exactly 0.
    problem, seed, row, column = Attention(sequence=16384, head_dim=128, causal=True), 1293401948, 8348, 65
    (probe,) = problem.probes(True, seed)
    inputs = problem.make_inputs("composite", seed)
    seen = range(8343, row + 1)
    before, after = (np.asarray(arrays[2], np.float64)[seen, column] for arrays in (inputs, changed(probe, inputs)))
    assert before.any()
    assert before.sum() == 0
    assert (after != before).all()
    assert after.sum() != 0


# --- What only a probe sees --------------------------------------------------------------------


def masked_by_adding(problem: Attention) -> Kernel:
    """A mask, of the window if there is one, that subtracts 1000 from scores instead of replacing them."""

    def run(inputs: Sequence[NDArray[Any]]) -> NDArray[Any]:
        q, k, v = (array.astype(np.float32) for array in inputs)
        scores = q @ k.T * np.float32(problem.scale)
        later = np.arange(len(k)) - (np.arange(len(q))[:, None] + len(k) - len(q))
        gone = later <= -(problem.window or len(k))
        scores = np.where(gone if problem.window else later > 0, scores - 1000, scores)
        scores = np.where(later > 0, -np.inf, scores) if problem.window else scores
        weights = np.exp(scores - scores.max(axis=1, keepdims=True))
        values: NDArray[Any] = (weights @ v) / weights.sum(axis=1, keepdims=True)
        return values.astype(inputs[0].dtype)

    return run


def leaking(problem: Attention, axis: int) -> Kernel:
    """A right answer that grows by up to a thousandth of itself with the spread along the axis."""

    def run(inputs: Sequence[NDArray[Any]]) -> NDArray[Any]:
        o = kernel(problem, variation="float32 probabilities")([array.astype(np.float32) for array in inputs])
        spread = np.ptp(o, axis=axis, keepdims=True)
        values: NDArray[Any] = o * (1 + np.float32(1e-3) * spread / (1 + spread))
        return values.astype(inputs[0].dtype)

    return run


def remembering(problem: Attention, which: int) -> Kernel:
    """Computes again only where the input `which` has changed."""
    seen: dict[bytes, NDArray[Any]] = {}

    def run(inputs: Sequence[NDArray[Any]]) -> NDArray[Any]:
        key = inputs[which].tobytes()
        if key not in seen:
            seen[key] = kernel(problem)(inputs)
        return seen[key]

    return run


def showing_hidden_keys(problem: Attention, block: int = 128) -> Kernel:
    """Weighs keys after the query by a billionth, within blocks that hold both."""

    def run(inputs: Sequence[NDArray[Any]]) -> NDArray[Any]:
        o = kernel(problem, block=block)(inputs).astype(np.float32)
        v = inputs[2].astype(np.float32)
        for row in range(len(o)):
            o[row] += 1e-9 * v[row + 1 : -(-(row + 1) // block) * block].sum(axis=0)
        return o.astype(inputs[0].dtype)

    return run


SINGLE = replace(CAUSAL, sequence=384)
SLIDING = replace(SINGLE, window=150)
PLANTED: dict[str, tuple[Attention, Kernel, set[str]]] = {
    "mask that only subtracts": (SINGLE, masked_by_adding(SINGLE), {"future"}),
    "hidden keys show": (SINGLE, showing_hidden_keys(SINGLE), {"values", "future"}),
    "window that only subtracts": (SLIDING, masked_by_adding(SLIDING), {"past"}),
    "rows leak": (PLAIN, leaking(PLAIN, 0), {"queries"}),
    "heads leak": (GROUPED, leaking(GROUPED, 1), {"values", "queries", "all"}),
    "keys remembered": (PLAIN, remembering(PLAIN, 0), {"values", "keys"}),
    "queries not looked at": (PLAIN, remembering(PLAIN, 2), {"keys", "queries"}),
}


@pytest.mark.parametrize("name", PLANTED)
def test_a_planted_dependence_is_seen_by_probes(name: str) -> None:
    problem, run, expected = PLANTED[name]
    # Values of zero show hidden keys too, in rows that see nothing else.
    assert passes_values(problem, run) or name == "hidden keys show"
    failures = {word: failure for word, failure in verdicts(problem, run).items() if failure is not None}
    # A leak may also show in other probes, depending on the roundings.
    assert expected <= set(failures)
    assert {(failure.stage, failure.kind) for failure in failures.values()} == {("correctness", "wrong-dependence")}


def test_the_full_shape_shows_a_block_that_one_stretch_of_rows_does_not_read() -> None:
    # Weights are light: these rows lose no more than their noise, but not nothing.
    problem = Attention(sequence=1024, head_dim=64)
    honest = kernel(problem)

    def run(inputs: Sequence[NDArray[Any]]) -> NDArray[Any]:
        unread = inputs[2].copy()
        unread[128:256] = 0
        o = honest(inputs)
        o[640:768] = honest((*inputs[:2], unread))[640:768]
        return o

    failure = verdicts(problem, run, full=True)["values"]
    assert failure is not None
    # Of these 128 rows, only three in eight weigh all keys alike.
    assert re.search(r"elements in o\[64\d\.\.76\d, \d+\.\.\d+\] should have moved, and did not", failure.message)


def test_a_failure_names_what_was_changed_and_where_it_shows() -> None:
    probe = next(probe for probe in GROUPED.probes(False, 5) if probe.name.startswith("queries"))
    inputs = GROUPED.make_inputs(probe.family, 5)
    before = kernel(GROUPED)(inputs)
    after = kernel(GROUPED)(changed(probe, inputs))
    row = next(iter(probe.moves)).rows.start
    wrong = after.copy().reshape(-1, 64)
    wrong[row] = before.reshape(-1, 64)[row]
    free = next(part.rows.start for part in probe.stays)
    wrong[free, 7] *= 2
    result, failure = probed(GROUPED, probe, before, wrong.reshape(before.shape))
    assert failure is not None
    assert failure.message.startswith(f"{probe.name} were changed: 1 element in o[")
    assert "7] moved, and should not have; 64 elements in o[" in failure.message
    assert "0..63] should have moved, and did not (shape [2, 4, 128, 64], seed 5)" in failure.message
    assert (result.error, result.tolerance, result.passed) == (65.0, 0.0, False)
    assert (result.criterion, result.mode) == ("dependence", "reduced")


def test_bits_are_compared_not_numbers() -> None:
    output = PLAIN.statement().outputs[0]
    zero = np.zeros(output.shape, ml_dtypes.bfloat16)
    everywhere = Part(rows=range(384), columns=range(64))
    probe = replace(PLAIN.probes(False, 0)[0], moves=(), stays=(everywhere,))
    assert probed(PLAIN, probe, zero, -zero)[1] is not None
    assert probed(PLAIN, probe, zero, zero)[0].elements == zero.size
    with pytest.raises(ValueError, match="float32"):
        probed(PLAIN, probe, zero, zero.astype(np.float32))


def test_an_output_that_is_not_finite_has_not_moved_as_it_must() -> None:
    probe = PLAIN.probes(False, 0)[0]
    before = kernel(PLAIN)(PLAIN.make_inputs(probe.family, 0))
    after = np.full_like(before, np.inf)
    result, failure = probed(PLAIN, probe, before, after)
    assert failure is not None
    assert (failure.kind, result.error) == ("non-finite", float(after.size))


def test_only_the_regions_of_a_probe_are_changed() -> None:
    for probe in (*GROUPED.probes(False, 2), *GROUPED.probes(True, 2)):
        inputs = GROUPED.make_inputs(probe.family, 2)
        after = changed(probe, inputs)
        for position, (old, new) in enumerate(zip(inputs, after, strict=True)):
            marked = np.zeros(old.shape, bool)
            for region in probe.regions:
                if region.array == position:
                    marked[np.ix_(*region.ranges)] = True
            assert np.array_equal(old != new, marked & (old != 0)), probe.name
            assert np.isfinite(new.astype(np.float32)).all()


# --- Determinism -------------------------------------------------------------------------------


def test_other_bits_the_second_time_are_not_deterministic() -> None:
    outputs = PLAIN.statement().outputs
    first = kernel(PLAIN)(PLAIN.make_inputs("normal", 0))
    again = first.copy()
    result, failure = check_determinism(outputs, "normal", [first], [again], mode="reduced", seed=4)
    assert (result.family, result.criterion, result.elements, failure) == (
        "normal twice",
        "determinism",
        first.size,
        None,
    )
    again[300, 5] = np.nextafter(again[300, 5], np.array(9, again.dtype))
    result, failure = check_determinism(outputs, "normal", [first], [again], mode="reduced", seed=4)
    assert failure is not None
    assert (failure.kind, result.error) == ("not-deterministic", 1.0)
    assert "1 element in o[300, 5] changed (inputs: normal, seed 4)" in failure.message


# --- The second shape --------------------------------------------------------------------------


def test_the_second_shape_has_blocks_that_are_no_power_of_two() -> None:
    contest = Attention(sequence=16384, head_dim=128)
    small = next(contest.reduced())
    assert contest.second_shape(small) == replace(small, sequence=384, kv_sequence=384)
    longer = Attention(sequence=1024, kv_sequence=8192, head_dim=128, causal=True)
    second = longer.second_shape(next(longer.reduced()))
    assert second is not None
    assert (second.sequence, second.kv_sequence, second.causal) == (256, 384, True)
    shorter = Attention(sequence=8192, kv_sequence=1024, head_dim=128).second_shape(
        Attention(sequence=256, head_dim=128)
    )
    assert shorter is not None
    assert (shorter.sequence, shorter.kv_sequence) == (384, 256)
    assert Attention(sequence=384, head_dim=128).second_shape(Attention(sequence=256, head_dim=128)) is None
