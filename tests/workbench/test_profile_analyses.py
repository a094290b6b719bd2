"""The analyses of a capture on synthetic TPU captures, whose figures are worked out by hand from their docstrings."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from analyses import (
    breakdown,
    by,
    compare,
    framework_ops,
    gaps,
    gaps_and_inside,
    lines,
    mfu,
    ops,
    overlap,
    overview,
    report,
    roofline,
    rows,
    scopes,
    steps_table,
    utilization,
    waste,
)

from harness.errors import RatchetError, UsageError
from harness.records import Capture, Table
from harness.units import decimal, percent
from harness.workbench.profiles import diagnosis, hotspots, memory
from harness.workbench.profiles.analysis import tables

US = 1e-6
# Every analysis of one capture.
EVERY: tuple[Callable[[Capture], tuple[Table, ...]], ...] = (
    *(ops, framework_ops, breakdown, mfu, overlap, roofline, utilization, gaps, steps_table, lines, scopes, waste),
    *(overview, memory.memory, memory.diagnose, diagnosis.diagnose),
)
# FLOPs of fusion.3 and fusion.9, and of fusion.5; a step has both matmuls.
MATMUL_FLOPS, TANH_FLOPS = 2**34, 2**19
STEP_FLOPS = 2 * MATMUL_FLOPS + TANH_FLOPS
PEAK, BANDWIDTH = 918e12, 1640e9


# --- operations --------------------------------------------------------------------------------


def test_ops_give_rates_and_leave_uncounted_kernels_unknown(one_device: Capture) -> None:
    (table,) = ops(one_device)
    assert table.column("operation")[:3] == ("splash_mha_fwd.1", "fusion.3", "fusion.9")
    of = {row["operation"]: row for row in rows(table)}
    assert of["while.1"]["mean_seconds"] == pytest.approx(3 * US)
    assert of["fusion.3"]["flops_per_second"] == pytest.approx(MATMUL_FLOPS / 20e-6)
    assert of["splash_mha_fwd.1"]["flops_per_second"] is None
    assert of["copy.2"]["bytes_per_second"] == pytest.approx(4_194_304 / 6e-6)
    assert of["splash_mha_fwd.1"]["share"] == pytest.approx(120 / 282)
    assert any("42.6% of the time is in custom calls" in note for note in table.notes)
    (short,) = ops(one_device, top=2)
    assert len(short.rows) == 2
    assert "2 of 6 operations are shown" in short.notes[0]
    assert by(short, "operation", "share")["fusion.3"] == pytest.approx(60 / 282)


def test_framework_operations_by_category(four: Capture) -> None:
    categories, table = framework_ops(four)
    assert by(categories, "category", "self_seconds") == pytest.approx(
        {"matmul": 516 * US, "attention": 480 * US, "collective": 216 * US, "other": 60 * US}
    )
    assert by(table, "framework_name", "direction")["jit(train_step)/transpose(jvp(mlp))/psum:"] == "backward"
    _, only = framework_ops(four, ["attention"])
    assert only.column("framework_name") == ("jit(train_step)/jvp(attention)/pallas_call:",)
    _, none = framework_ops(four, ["moe"])
    assert "no operation belongs to moe; the categories of this capture are matmul, attention" in none.why_empty
    with pytest.raises(UsageError, match="gla, moe, attention, norm, embedding, collective, matmul, other, got 'mlp'"):
        framework_ops(four, ["mlp"])


def test_breakdown_by_class_and_direction(one_device: Capture, four: Capture) -> None:
    classes, directions, experts = breakdown(one_device)
    assert by(classes, "class", "self_seconds") == pytest.approx(
        {
            "attention": 120 * US,
            "matmul": 120 * US,
            "data formatting": 18 * US,
            "elementwise fusion": 15 * US,
            "control flow": 9 * US,
        }
    )
    assert by(classes, "class", "step_seconds")["matmul"] == pytest.approx(40 * US)
    assert any("Data formatting takes 6.4%, over 5%" in note for note in classes.notes)
    assert by(directions, "direction", "self_seconds") == pytest.approx(
        {"forward": 195 * US, "backward": 60 * US, "neither known": 27 * US}
    )
    assert "no operation is called gmm" in experts.why_empty
    classes, _, _ = breakdown(four)
    assert by(classes, "class", "share")["communication"] == pytest.approx(216 / 1272)
    assert not any("Data formatting" in note for note in classes.notes)


def test_scopes_are_a_tree_with_the_longest_first(one_device: Capture) -> None:
    (table,) = scopes(one_device, depth=2)
    assert table.column("scope") == (
        "jit(train_step)",
        "  jvp(attention)",
        "  jvp(mlp)",
        "  transpose(jvp(mlp))",
        "  while",
        "(no tf_op)",
    )
    assert table.column("seconds") == pytest.approx(tuple(us * US for us in (264, 120, 75, 60, 9, 18)))
    assert table.column("depth") == (1, 2, 2, 2, 2, 1)
    (large,) = scopes(one_device, depth=1, at_least=0.5)
    assert large.column("scope") == ("jit(train_step)",)
    assert any("less than 50.0% of the time: 1." in note for note in large.notes)


def test_source_lines(one_device: Capture) -> None:
    (table,) = lines(one_device)
    assert by(table, "source", "self_seconds") == pytest.approx(
        {
            "/src/attention.py:12": 120 * US,
            "/src/model.py:41": 120 * US,
            "(no source in the capture)": 18 * US,
            "/src/model.py:42": 15 * US,
            "/src/model.py:50": 9 * US,
        }
    )
    assert by(table, "source", "longest")["/src/model.py:41"] == "fusion.3"


# --- what the device could do ------------------------------------------------------------------


@pytest.mark.long
def test_mfu_from_the_model_and_from_the_trace(one_device: Capture, four: Capture) -> None:
    (table,) = mfu(one_device, gbs=27, sequence=1000, flops_per_token=1.02e6)
    # 27.54 GFLOP in 100 us at 918 TFLOP/s.
    assert by(table, "from", "mfu") == pytest.approx({"the model": 0.3, "the trace": STEP_FLOPS / (PEAK * 100e-6)})
    assert any("leaves out Pallas kernels" in note for note in table.notes)
    (table,) = mfu(four, gbs=27, sequence=1000, flops_per_token=1.02e6, device_count=8)
    assert by(table, "from", "mfu")["the model"] == pytest.approx(0.3 * 100 / 150 / 8)
    # Every device does the same work, so the number of devices cancels out.
    assert by(table, "from", "mfu")["the trace"] == pytest.approx(STEP_FLOPS / (PEAK * 150e-6))
    (absurd,) = mfu(one_device, gbs=270, sequence=1000, flops_per_token=1.02e6)
    assert "An MFU over 100 % is impossible" in absurd.notes[0]
    for arguments, name in (((0, 1, 1), "--gbs"), ((1, -1, 1), "--seq"), ((1, 1, 0), "--flops-per-token")):
        with pytest.raises(UsageError, match=f"expected {name} above 0"):
            mfu(one_device, *arguments)


@pytest.mark.long
def test_no_table_calls_simulated_times_measured_or_the_other_way_round(one_device: Capture) -> None:
    """Checks the words of every table except tables that name both kinds, and the simulator's own."""
    made = replace(one_device, is_simulated=True)
    for capture, other in ((one_device, "simulated"), (made, "measured")):
        both = (*compare(capture, capture), *report(capture, capture))
        for table in (*both, *(table for analysis in EVERY for table in analysis(capture))):
            named = [f"{column.title} {column.name}" for column in table.columns]
            assert other not in " ".join((table.title, *named, *table.notes)), table.name
    assert roofline(one_device)[0].columns[3].title == "measured"
    assert (roofline(made)[0].columns[3].title, roofline(made)[0].columns[3].name) == ("simulated", "mean_seconds")


def test_flop_rates_are_said_to_be_of_executed_flops_and_the_useful_ones_stand_beside(one_device: Capture) -> None:
    (alone,) = ops(one_device)
    assert any("executed FLOPs" in note for note in alone.notes)
    assert not any("Useful" in note for note in alone.notes)
    (useful,) = tables(one_device, (hotspots.OPS,), top=None, useful_flops=1e9)
    whole = sum(by(useful, "operation", "self_seconds").values())
    rate = decimal(1e9 * 3 / whole, "FLOP/s")
    note = f"Useful FLOPs, as the contest of the attempt counts them: 1.0 GFLOP a run, {rate}."
    assert note in useful.notes
    assert note in overview(one_device, 1e9)[1].notes


def test_roofline_ratios_and_verdicts(one_device: Capture) -> None:
    (table,) = roofline(one_device)
    matmul, tanh = MATMUL_FLOPS / PEAK, 4_194_304 / BANDWIDTH
    assert by(table, "operation", "predicted_seconds") == pytest.approx(
        {
            "all with a prediction": 3 * (2 * matmul + 2 * tanh),
            "fusion.3": matmul,
            "fusion.9": matmul,
            "copy.2": tanh,
            "fusion.5": tanh,
        }
    )
    assert by(table, "operation", "ratio")["fusion.3"] == pytest.approx(20e-6 / matmul)
    assert by(table, "operation", "verdict") == {
        "all with a prediction": "look",
        "fusion.3": "fine",
        "fusion.9": "fine",
        "copy.2": "wrong sharding or layout?",
        "fusion.5": "look",
    }
    assert by(table, "operation", "bound")["copy.2"] == "memory"
    # A kernel without a FLOP count has no prediction, and neither has a collective.
    assert any("cover 54.3% of the time: 45.7% of the time has no prediction" in note for note in table.notes)


def test_a_roofline_of_little_of_the_time_is_no_verdict_on_the_program(one_device: Capture) -> None:
    (device,) = one_device.devices
    operations = tuple(
        of if of.name == "fusion.5" else replace(of, flops=None, bytes_accessed=None, hbm_bytes=None)
        for of in device.operations
    )
    (table,) = roofline(replace(one_device, devices=(replace(device, operations=operations),)))
    share = by(table, "operation", "share")["all with a prediction"]
    assert by(table, "operation", "verdict") == {
        "all with a prediction": f"unknown: covers {percent(share)} of the time",
        "fusion.5": "look",
    }
    assert f"The verdicts cover {percent(share)} of the time" in table.notes[0]


def test_utilization_says_what_uncounted_kernels_leave_open(one_device: Capture, four: Capture) -> None:
    (table,) = utilization(one_device)
    (row,) = table.rows
    step_bytes = 2 * 29_360_128 + 6_291_456 + 2 * 4_194_304
    expected = (288 * US, STEP_FLOPS / (PEAK * 96e-6), step_bytes / (BANDWIDTH * 96e-6), 40 / 96)
    assert row == ("TPU:0", "jit_train_step(9152)", 3, *map(pytest.approx, expected), "open: TC up to 81%")
    assert len(utilization(four)[0].rows) == 4


# --- time without work -------------------------------------------------------------------------


def test_gaps_inside_and_between_runs(one_device: Capture) -> None:
    idle, largest, patterns = gaps(one_device, top=3)
    assert by(idle, "part", "idle_fraction") == pytest.approx({"all runs": 15 / 288, "between runs": 8 / 296})
    assert by(idle, "part", "verdict") == {"all runs": "fair", "between runs": "fine"}
    assert by(idle, "part", "gaps") == {"all runs": 9, "between runs": 2}
    assert any("6 or more steps; the capture has 3" in note for note in idle.notes)
    assert largest.column("seconds") == pytest.approx((4 * US, 4 * US, 3 * US))
    assert largest.column("place") == ("between runs", "between runs", "inside jit_train_step(9152)")
    assert (largest.column("before")[2], largest.column("after")[2]) == ("fusion.3", "copy.2")
    seen = by(patterns, "pattern", "is_seen")
    assert [name for name, is_seen in seen.items() if is_seen] == ["copies"]
    assert seen["transfers not overlapped"] is None
    assert by(patterns, "pattern", "value")["copies"] == pytest.approx(18 / 282)
    assert by(patterns, "pattern", "value")["many very short blocks"] == pytest.approx(1 / 20)


def test_rows_that_are_missing_inside_kernels_are_asked_for(one_device: Capture) -> None:
    # Kernels take 41.7 % of the runs, and nothing was recorded in them.
    assert "in the mode TRACE_COMPUTE" in gaps_and_inside(one_device)[0].notes[-1]
    assert not any(table.name == "host_transfers" for table in gaps_and_inside(one_device))


def test_gaps_say_what_the_host_did_meanwhile(four: Capture) -> None:
    idle, largest, patterns = gaps(four, top=1)
    assert idle.column("idle_fraction") == pytest.approx((0.0, 88 / 406) * 4)
    assert set(by(idle, "part", "verdict").values()) == {"excellent", "host or input?"}
    assert largest.rows[0][2] == pytest.approx(44 * US)
    assert largest.rows[0][3:] == ("between runs", "all-reduce-done.1", "all-gather-start.2", "next_batch")
    seen = by(patterns, "pattern", "is_seen")
    assert [name for name, is_seen in seen.items() if is_seen] == ["large collectives", "idle while the host works"]


@pytest.mark.long
def test_steps_show_imbalance_that_waiting_hides(four: Capture, one_device: Capture) -> None:
    table, variation, host = steps_table(four)
    assert by(table, "device", "own_seconds") == pytest.approx(
        {"TPU:0": 85 * US, "TPU:1": 85 * US, "TPU:2": 97 * US, "TPU:3": 85 * US}
    )
    assert table.column("median_seconds") == pytest.approx((150 * US,) * 4)
    assert variation.column("spread") == pytest.approx((0.0, 0.0, 12 / 85, 44 / 150))
    assert variation.column("verdict") == ("fine", "fine", "load imbalance", "input pipeline or host")
    assert host.column("period") == ("next_batch",)
    assert host.column("share") == pytest.approx((120 / 132,))
    table, variation, host = steps_table(one_device)
    assert table.column("idle_fraction") == pytest.approx((0.09,))
    assert variation.column("spread")[1:3] == (None, None)
    assert "trace the host as well" in host.why_empty


# --- communication -----------------------------------------------------------------------------


@pytest.mark.long
def test_overlap_exposed_time_and_bus_bandwidth(four: Capture, one_device: Capture) -> None:
    exposed, collectives, *_ = overlap(four)
    assert by(exposed, "device", "exposed_seconds") == pytest.approx(
        {"TPU:0": 57 * US, "TPU:1": 57 * US, "TPU:2": 21 * US, "TPU:3": 57 * US}
    )
    assert by(exposed, "device", "hidden_fraction")["TPU:0"] == pytest.approx(1 - 57 / 198)
    assert by(exposed, "device", "exposed_fraction")["TPU:2"] == pytest.approx(21 / 318)
    assert collectives.column("collective") == ("all-reduce.1", "all-gather.2")
    assert collectives.column("devices") == (4, 4)
    assert collectives.column("array_bytes") == (2**20, 2**20)
    assert collectives.column("flight_seconds") == pytest.approx((18 * US, 45 * US))
    # 2 (n-1)/n and (n-1)/n with n = 4; an axis of four v6e is a line of 100 GB/s.
    bus = (1.5 * 2**20 / 18e-6, 0.75 * 2**20 / 45e-6)
    assert collectives.column("bus_bytes_per_second") == pytest.approx(bus)
    assert collectives.column("link_fraction") == pytest.approx((bus[0] / 100e9, bus[1] / 100e9))
    assert any("How to Scale Your Model" in note for note in collectives.notes)
    assert all("XLA moved no data between devices" in table.why_empty for table in overlap(one_device))


# --- two captures ------------------------------------------------------------------------------


@pytest.mark.long
def test_compare_by_step_with_new_and_vanished(one_device: Capture, four: Capture) -> None:
    totals, _, changes = compare(one_device, four)
    assert by(totals, "what", "a_seconds") == pytest.approx(
        {"step, median": 100 * US, "all operations": 94 * US, "4 new": None, "2 vanished": 9 * US}
    )
    assert by(totals, "what", "b_seconds")["4 new"] == pytest.approx(18 * US)
    assert changes.column("operation")[:2] == ("all-reduce-done.1", "copy.2")
    assert by(changes, "operation", "change_seconds")["fusion.9"] == pytest.approx(3 * US)
    assert by(changes, "operation", "time_ratio")["fusion.9"] == pytest.approx(23 / 20)
    assert {name for name, what in by(changes, "operation", "what").items() if what == "vanished"} == {
        "copy.2",
        "while.1",
    }
    sizes = [abs(row["change_seconds"]) for row in rows(changes)]
    assert sizes == sorted(sizes, reverse=True)
    same, *_ = compare(one_device, one_device)
    assert by(same, "what", "change_seconds")["all operations"] == 0


@pytest.mark.parametrize("analysis", [compare, report, diagnosis.diagnose])
def test_captures_from_different_sources_are_never_compared(analysis: Any, one_device: Capture) -> None:
    on_cpu = replace(one_device, devices=(replace(one_device.devices[0], platform="cpu"),))
    for other, words in ((replace(one_device, is_simulated=True), "simulated"), (on_cpu, "measured cpu")):
        with pytest.raises(RatchetError, match=rf"one-device \(measured\) and one-device \({words}\)") as caught:
            analysis(one_device, other)
        assert caught.value.kind == "not-comparable"
