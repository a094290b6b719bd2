"""The compiled program must do the work of the checked one: less is a failure, more may be honest."""

from dataclasses import replace
from typing import Any

import pytest
from evidence_examples import V5E, evidence, simulation
from narrowing import present
from refusals import assert_failed

from harness.judge.verdict import crosscheck
from harness.judge.verdict.decision import decide
from harness.operators import RMSNorm
from harness.records import Evidence, Policy, Unit

USEFUL = 4 * 16384 * 16384 * 128
STEPS = 128 * 64


def ran(mxu_flops: int | None = USEFUL, steps: int | None = STEPS, **changes: Any) -> Evidence:
    """A passing candidate whose simulated run shows these counts."""
    return evidence(simulation=simulation(mxu_flops=mxu_flops, executed_steps=steps), **changes)


@pytest.mark.parametrize("flops", [USEFUL, 2 * USEFUL, 8 * USEFUL, None])
def test_all_useful_work_or_more_passes(flops: int | None) -> None:
    # Twice the work: head_dim 64 on tiles of 128. Eight times: float32 in several passes.
    assert crosscheck.failure(ran(flops)) is None


def test_less_work_than_is_useful_is_another_program() -> None:
    words = f"{USEFUL // 128:,} FLOPs on the matrix unit (simulated)", f"the problem needs {USEFUL:,} in matmuls"
    assert_failed(crosscheck.failure(ran(USEFUL // 128)), "static", "program-differs", *words)


def test_kernels_without_a_matrix_product_are_another_program() -> None:
    whole = ran()
    failure = present(crosscheck.failure(replace(whole, mosaic=replace(present(whole.mosaic), matmul=0))))
    assert "no matrix product in its kernels" in failure.message


@pytest.mark.parametrize(
    ("fewer", "words"),
    [
        ({"hbm_written_bytes": 4_194_304 // 2}, "2,097,152 of the outputs' 4,194,304 bytes written to HBM (simulated)"),
        ({"hbm_read_bytes": 4_194_304}, "4,194,304 of the inputs' 12,582,912 bytes read from HBM (simulated)"),
    ],
)
def test_arrays_that_are_not_moved_are_another_program(fewer: dict[str, Any], words: str) -> None:
    whole = ran()
    changed = replace(whole, simulation=replace(present(whole.simulation), **fewer))
    assert_failed(crosscheck.failure(changed), "static", "program-differs", words)


def test_what_only_moves_bytes_is_judged_by_its_transfers() -> None:
    norm = RMSNorm(rows=16384, columns=128).statement()
    inputs, outputs = 2 * 2 * 16384 * 128 + 2 * 128, 2 * 2 * 16384 * 128
    run = replace(simulation(mxu_flops=0), hbm_read_bytes=inputs, hbm_written_bytes=outputs)
    whole = replace(evidence(simulation=run), problem=norm)
    assert crosscheck.failure(whole) is None
    # Only one of the two outputs is written, as by a kernel that leaves the other out.
    half = replace(whole, simulation=replace(run, hbm_written_bytes=outputs // 2))
    assert crosscheck.failure(half) is not None


def test_what_is_not_known_says_nothing() -> None:
    assert crosscheck.failure(evidence(trace=None)) is None
    assert crosscheck.failure(ran(None, mosaic=None)) is None
    # A run that stopped half-way has no counts.
    half = replace(ran(1), simulation=simulation(None, mxu_flops=1, executed_steps=1))
    assert crosscheck.failure(half) is None
    # A loop whose trip count the trace does not show: it has less arithmetic than is useful itself.
    whole = ran(USEFUL // 2)
    assert crosscheck.failure(replace(whole, trace=replace(present(whole.trace), pallas_flops=USEFUL // 2))) is None


def test_the_verdict_is_failed() -> None:
    policy = Policy()
    assert decide(ran(), None, None, policy, V5E).outcome == "accept"
    verdict = decide(ran(USEFUL // 2), None, None, policy, V5E)
    assert verdict.outcome == "failed"
    assert present(verdict.failure).kind == "program-differs"


@pytest.mark.parametrize(
    ("slots", "traced", "is_refused"),
    [
        (16384 * 16384 // 2048, 16384 * 16384, False),
        (16384 * 16384 // 8192, 16384 * 16384, True),
        # A kernel that computes its exponentials in another way has none in its trace.
        (0, 0, False),
    ],
)
def test_exponentials_that_the_trace_has_must_be_executed(slots: int, traced: int, is_refused: bool) -> None:
    whole = ran()
    unit = Unit(name="EUP", slots_per_bundle=1, static_slots=1, executed_slots=slots, offered_slots=1 << 30)
    simulated = replace(
        whole,
        problem=replace(whole.problem, work=replace(whole.problem.work, exponentials=16384 * 16384)),
        trace=replace(present(whole.trace), exponentials=traced),
        simulation=replace(present(whole.simulation), units=(unit,)),
    )
    failure = crosscheck.failure(simulated)
    assert (failure is not None) == is_refused
    assert failure is None or f"of {traced:,} exponentials (simulated)" in failure.message
