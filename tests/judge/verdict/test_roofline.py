"""The formulas, against the published values."""

from dataclasses import replace

import pytest
from evidence_examples import KEY, V5E, attempt, evidence, measured, pallas_call, simulation, statement
from narrowing import present

from harness.advice.report import advise, report, row
from harness.hardware import chip
from harness.judge.verdict import roofline
from harness.judge.verdict.changes import changes
from harness.judge.verdict.roofline import impossibilities, regime, score, utilisation
from harness.records import Verdict, Work


def test_published_work_floors_and_ridge() -> None:
    work = statement().work
    assert work.flops / 1e9 == pytest.approx(138.8, abs=0.05)
    assert roofline.compute_only_seconds(work, V5E) * 1e3 == pytest.approx(0.70, abs=0.005)
    traffic = present(pallas_call(bq=1024).hbm_bytes)
    assert roofline.memory_only_seconds(traffic, V5E) * 1e3 == pytest.approx(0.17, abs=0.005)
    assert V5E.ridge_flops_per_byte == pytest.approx(240.5, abs=0.05)
    assert chip("v7x").ridge_flops_per_byte == pytest.approx(313, abs=0.5)


def test_narrow_types_are_judged_by_their_own_peaks() -> None:
    work = replace(statement().work, matmul_dtype="int8")
    assert roofline.peak(work, V5E) == 394e12
    assert roofline.compute_only_seconds(work, V5E) == work.flops / 394e12
    assert V5E.ridge("int8") == pytest.approx(2 * V5E.ridge_flops_per_byte)
    # int8 can do this work in a time that bfloat16 cannot, but not twice as much.
    seconds = statement().work.matmul_flops / (1.5 * 197e12)
    assert impossibilities(statement().work, seconds, V5E)
    assert not impossibilities(work, seconds, V5E)
    assert "394.0 TFLOP/s that a v5e can do in int8" in impossibilities(work, seconds / 1.5, V5E)[0]
    figures = report(replace(evidence(2.16e-3), problem=replace(statement(), work=work)), V5E)
    assert figures.util == pytest.approx(0.326 / 2, abs=0.0005)
    # Chips without a faster unit for a type multiply it as bfloat16.
    for name in ("v5e", "v6e"):
        assert chip(name).peak_flops_per_second("float8_e4m3fn") == chip(name).peak_bf16_flops_per_second
    assert chip("v7x").peak_flops_per_second("float8_e4m3fn") == 2 * chip("v7x").peak_bf16_flops_per_second
    assert chip("v6e").peak_flops_per_second("uint4") == 4 * chip("v6e").peak_bf16_flops_per_second
    assert chip("v4").peak_flops_per_second("int8") == chip("v4").peak_bf16_flops_per_second


def test_published_score() -> None:
    assert score(0.648, 2.12e-3) == pytest.approx(3057, abs=0.5)
    figures = report(evidence(2.16e-3), V5E)
    assert figures.score == pytest.approx(1509.9, abs=0.5)
    assert figures.util == pytest.approx(0.326, abs=0.0005)
    assert figures.flops_per_second == pytest.approx(64.3e12, rel=1e-3)


def test_report_of_the_naive_kernel() -> None:
    figures = report(evidence(2.16e-3, bq=128), V5E)
    assert figures.traffic_source == "block index maps"
    assert figures.hbm_bytes == 2 * 128 * 16384 * 128 * 2 + 2 * 16384 * 128 * 2
    assert figures.intensity == pytest.approx(128, abs=0.5)
    assert figures.regime == "memory-bound"
    assert figures.bandwidth_util == pytest.approx(0.612, abs=0.001)
    assert figures.gap_seconds == pytest.approx(2.16e-3 - present(figures.memory_only_seconds))
    assert figures.gap_size == "large"
    assert present(figures.mxu_util) < (figures.util or 0)
    assert figures.vmem_bytes == pallas_call().vmem_bytes
    assert figures.vmem_limit_bytes == 16 << 20
    assert not figures.impossible


@pytest.mark.parametrize(
    ("util", "bandwidth", "intensity", "expected"),
    [
        (0.29, 0.29, 10.0, "latency-bound"),
        (0.29, 0.29, 5000.0, "latency-bound"),
        (0.30, 0.10, 240.6, "compute-bound"),
        (0.10, 0.30, 240.5, "memory-bound"),
        (0.90, 0.90, 240.6, "compute-bound"),
    ],
)
def test_regimes_at_their_borders(util: float, bandwidth: float, intensity: float, expected: str) -> None:
    assert regime(util, bandwidth, intensity, V5E.ridge_flops_per_byte) == expected


@pytest.mark.parametrize(
    ("fraction", "size"), [(-0.2, "small"), (0.099, "small"), (0.1, "moderate"), (0.3, "moderate"), (0.301, "large")]
)
def test_gap_sizes(fraction: float, size: str) -> None:
    assert roofline.gap_size(fraction) == size


def test_causal_work_is_not_credited_twice() -> None:
    """The widely read example credits the full square: 99.4 % where the truth is about half."""
    seconds = statement().work.flops / (0.994 * V5E.peak_bf16_flops_per_second)
    full = report(evidence(seconds, bq=2048), V5E)
    causal = report(evidence(seconds, bq=2048, problem=statement(causal=True)), V5E)
    assert full.util == pytest.approx(0.994)
    assert causal.util == pytest.approx(0.497, abs=0.001)
    assert causal.score == pytest.approx((full.score or 0) / 2, rel=1e-3)


def test_more_than_the_mxu_can_do_is_impossible() -> None:
    work = statement().work
    floor = work.matmul_flops / V5E.peak_bf16_flops_per_second
    assert impossibilities(work, floor * 1.0001, V5E) == ()
    (sentence,) = impossibilities(work, floor * 0.9, V5E)
    assert "111.1%" in sentence
    assert "197.0 TFLOP/s" in sentence
    # All FLOPs over peak may exceed 1 a little: softmax does not run on the MXU.
    assert utilisation(work.flops, floor * 1.0001, V5E.peak_bf16_flops_per_second) > 1


def test_faster_than_the_minimum_traffic_is_impossible() -> None:
    work = Work(matmul_flops=0, vector_flops=1000, minimum_hbm_bytes=819_000_000)
    assert impossibilities(work, 1.0001e-3, V5E) == ()
    (sentence,) = impossibilities(work, 0.9e-3, V5E)
    assert "819.0 MB" in sentence
    assert "1.000 ms" in sentence
    assert "900.000 us" in sentence


def test_traffic_of_a_kernel_that_moves_data_by_hand_is_the_simulators() -> None:
    judged = evidence()
    trace = present(judged.trace)
    call = trace.pallas_calls[0]
    by_hand = replace(call.windows[1], fetches=None, hbm_bytes=None)
    call = replace(call, windows=(call.windows[0], by_hand, *call.windows[2:]))
    judged = replace(judged, trace=replace(trace, pallas_calls=(call,)))
    figures = report(judged, V5E)
    assert (figures.hbm_bytes, figures.traffic_source) == (1_082_130_432, "simulated DMA")
    # A run that stopped half-way has counted only a part.
    partial = report(replace(judged, simulation=simulation(None)), V5E)
    assert (partial.hbm_bytes, partial.traffic_source) == (None, "unknown")
    assert (partial.regime, partial.gap_fraction, partial.memory_only_seconds) == (None, None, None)
    # On v5p the simulator runs both cores and reports the whole chip's bytes.
    both = report(replace(judged, chip="v5p"), chip("v5p"))
    assert both.hbm_bytes == 1_082_130_432


@pytest.mark.parametrize("seconds", [None, 0.0, -1.0, float("nan"), float("inf")])
def test_an_unbelievable_latency_is_unknown_and_not_zero(seconds: float | None) -> None:
    judged = evidence()
    judged = replace(judged, latency=replace(present(judged.latency), seconds=seconds))
    figures = report(judged, V5E)
    assert (figures.seconds, figures.score, figures.util, figures.regime) == (None, None, None, None)
    assert figures.hbm_bytes is not None
    assert advise(judged, figures) == ()


def test_evidence_of_another_chip_is_refused() -> None:
    with pytest.raises(ValueError, match="expected evidence for v6e, got evidence for v5e"):
        report(evidence(), chip("v6e"))


def test_counters_have_expectations_and_remarks() -> None:
    judged = evidence()
    mosaic = present(judged.mosaic)
    run = simulation(executed_spills=12, executed_steps=4096)
    odd = replace(
        judged,
        hlo=replace(present(judged.hlo), copy=3),
        mosaic=replace(mosaic, matmul=4, reduction=5),
        simulation=replace(run, ops=(*run.ops, replace(run.ops[0], name="copy.9"))),
    )
    lines = {(line.level, line.name): line for line in report(odd, V5E).counters}
    assert lines["hlo", "copy"].expected == "0"
    assert "copied in HBM" in lines["hlo", "copy"].remark
    assert lines["mosaic", "matmul"].expected == "2"
    assert lines["mosaic", "matmul"].remark
    assert lines["mosaic", "reduction"].expected == "2 to 4"
    assert lines["mosaic", "reduction"].remark
    assert lines["schedule", "spills executed"].remark
    assert lines["schedule", "grid steps executed"].expected == "8192"
    assert "fewer" in lines["schedule", "grid steps executed"].remark
    assert not any(line.remark for line in report(judged, V5E).counters)
    # The compiler peels a step of a core's loop, which runs beside the loop.
    peeled = replace(odd, simulation=simulation(executed_steps=8193))
    (line,) = [line for line in report(peeled, V5E).counters if line.name == "grid steps executed"]
    assert (line.count, line.remark) == (8193, "")
    strange = replace(judged, mosaic=replace(mosaic, not_understood=("tpu.new", "x.y")))
    (line,) = [line for line in report(strange, V5E).counters if line.name == "not understood"]
    assert (line.count, line.remark) == (2, "tpu.new, x.y")


def test_counters_of_a_level_that_is_not_known_are_absent() -> None:
    levels = {line.level for line in report(evidence(mosaic=None, simulation=None), V5E).counters}
    assert levels == {"hlo"}


def test_units_are_shares() -> None:
    units = {unit.name: unit for unit in report(evidence(), V5E).units}
    assert units["MXU"].slot_fraction == pytest.approx(0.30)
    assert units["MXU"].busy_fraction == pytest.approx(0.65)
    assert units["VALU"].busy_fraction is None


def test_changes_are_ranked_and_small_ones_left_out() -> None:
    before = evidence(2.16e-3, bq=128)
    after = evidence(1.0e-3, bq=2048, simulation=simulation(2.16e-3, executed_spills=5000))
    moved = {change.name: change for change in changes(after, before)}
    assert next(iter(moved)) == "spills executed"
    assert moved["HBM traffic"].after < moved["HBM traffic"].before
    assert moved["grid steps"].after == 512
    assert "bundles executed" not in moved
    assert changes(before, before) == ()


def test_source_of_a_candidate_without_latency() -> None:
    assert report(evidence(latency=None), V5E).source == "simulated"
    assert report(replace(measured(), latency=None), V5E).source == "measured"


def test_row_takes_the_figures_of_the_table() -> None:
    judged = evidence()
    figures = report(judged, V5E)
    line = row(
        attempt(judged, Verdict(outcome="accept", reasons=(), time_ratio=0.5), expected_time_ratio=0.7), figures, "abc"
    )
    assert (line.number, line.outcome, line.key_digest, line.key) == (2, "accept", "abc", KEY)
    assert (line.score, line.seconds, line.util) == (figures.score, 2.16e-3, figures.util)
    assert (line.copies, line.spills, line.time_ratio, line.expected_time_ratio) == (0, 0, 0.5, 0.7)
    assert (line.fingerprint, line.source, line.chip, line.commit) == ("a1b2c3", "simulated", "v5e", "")
