"""Waits for other chips, idle time outside the steps, and operations that the capture lacks."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest
from analyses import by, compare, gaps_and_inside, mfu, named, overview, rows, rows_by, steps_table, utilization
from analysis_examples import capture, device, op
from capture_examples import late_start, run_folder, serialized

from harness.records import Capture, Device, Period, Table
from harness.workbench.profiles import diagnosis, hotspots, reading
from harness.workbench.profiles.analysis import tables
from harness.workbench.profiles.database import database_of

US = 1e-6


def read(folder: Path, recorded: int) -> Capture:
    return reading.read([run_folder(folder, f"recorded-{recorded}", serialized(late_start(recorded)))])


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Capture:
    return read(tmp_path_factory.mktemp("late"), 6)


@pytest.fixture(scope="module")
def shown(whole: Capture) -> dict[str, Table]:
    """The tables of gaps, diagnosis and overview."""
    return named((*gaps_and_inside(whole), *diagnosis.diagnose(whole), *overview(whole)))


@pytest.fixture(scope="module")
def cut(tmp_path_factory: pytest.TempPathFactory) -> Capture:
    return read(tmp_path_factory.mktemp("late"), 2)


def test_a_run_begins_with_its_wait_whatever_the_clocks_drift(whole: Capture) -> None:
    lengths = {
        device.name: [run.seconds for run in device.modules if run.name == "jit_psum(1)"] for device in whole.devices
    }
    assert lengths["TPU:0"] == pytest.approx([50.5 * US, 50.5 * US], rel=1e-4)
    assert lengths["TPU:1"] == pytest.approx([3_050 * US, 450 * US], rel=1e-4)
    assert [run.seconds for run in whole.devices[1].modules[2:]] == pytest.approx([1_000 * US] * 6, rel=1e-4)


def test_waits_are_listed_by_device_and_are_not_idle(whole: Capture, shown: dict[str, Table]) -> None:
    (row,) = rows(shown["runtime_waits"])[:1]
    assert (row["device"], row["wait"], row["module"]) == (
        "TPU:1", "for the other chips (barrier-cores)", "jit_psum(1)"
    )  # fmt: skip
    assert row["count"] == 2
    assert (row["seconds"], row["longest_seconds"]) == pytest.approx((3_400 * US, 3_000 * US), rel=1e-4)
    inside = {row["device"]: row["idle_seconds"] for row in rows(shown["idle"]) if row["part"] == "all runs"}
    assert inside == pytest.approx({"TPU:0": 5 * US, "TPU:1": 5 * US}, rel=0.01)
    assert not any("XLA TraceMe" in sentence for sentence in whole.left_out)


@pytest.mark.long
def test_the_start_is_no_idle_time_of_the_steps(shown: dict[str, Table]) -> None:
    findings = rows_by(shown["findings"])
    assert "idle between runs" not in findings
    # Between the first sum and the first step, on both devices, without the second sum and the waits before it.
    outside = findings["idle outside steps"]
    waits = 3_000 + 400 + 0.5 + 0.5
    assert outside["seconds"] == pytest.approx((2 * (390_000 - 2 * 50) - 400.5) * US, rel=1e-4)
    assert "before the first step" in outside["evidence"]
    assert findings["waiting for other chips"]["seconds"] == pytest.approx(waits * US, rel=1e-3)
    assert findings["waiting for other chips"]["evidence"] == "longest 3.000 ms on TPU:1"
    idle = [row for row in rows(shown["idle"]) if row["part"] == "outside steps"]
    assert {row["verdict"] for row in idle} == {"start or end: not counted"}
    assert sum(row["idle_seconds"] for row in idle) == pytest.approx(outside["seconds"])


@pytest.mark.long
def test_shares_are_of_the_time_that_the_overview_calls_idle_or_busy(shown: dict[str, Table]) -> None:
    idle = sum(row["idle_fraction"] for row in rows(shown["devices"])) / 2
    assert by(shown["findings"], "finding", "share")["idle outside steps"] == pytest.approx(idle, rel=1e-3)
    assert any("100.0% of the idle time is before the first step" in note for note in shown["devices"].notes)


def test_what_ran_before_the_steps_is_no_part_of_them(whole: Capture, shown: dict[str, Table]) -> None:
    per_step = by(named(tables(whole, hotspots.BREAKDOWN))["classes"], "class", "step_seconds")
    assert per_step == pytest.approx({"communication": 0.0, "elementwise fusion": 1_000 * US})
    (metrics,) = rows(shown["metrics"])
    assert (metrics["hottest_operation"], metrics["hottest_seconds"]) == ("fusion.5", pytest.approx(1_000 * US))


def test_a_capture_is_as_long_as_its_last_event(shown: dict[str, Table]) -> None:
    assert "600.000 ms captured" in shown["devices"].title


@pytest.mark.long
def test_time_without_recorded_operations_is_neither_idle_nor_uneven(cut: Capture) -> None:
    of_runs = "select device, count(*) filter (not is_recorded) as missing from runs group by 1 order by 1"
    assert database_of(cut).rows(of_runs) == [(0, 4), (1, 4)]
    lacks = "The capture lacks operations of TPU:0 in 4 of 8 runs, TPU:1 in 4 of 8 runs"
    steps, variation, _ = steps_table(cut)
    assert [row["count"] for row in rows(steps)] == [6, 6]
    assert all(row["median_seconds"] == pytest.approx(1_000 * US, rel=1e-3) for row in rows(steps))
    assert all(row["idle_fraction"] == pytest.approx(0, abs=1e-6) for row in rows(steps))
    shown = named((*gaps_and_inside(cut), *diagnosis.diagnose(cut)))
    assert any(lacks in note for note in steps.notes)
    for name in ("idle", "findings"):
        assert any(lacks in note for note in shown[name].notes), name
    assert any(lacks in note for note in overview(cut)[0].notes)
    findings = by(shown["findings"], "finding", "share")
    assert not findings.keys() & {"idle between runs", "idle inside runs", "uneven steps"}
    assert all(share < 1 for share in findings.values())
    assert rows(variation)[0]["verdict"] == "fine"


def test_runs_without_operations_are_left_out_of_utilisation(whole: Capture, cut: Capture) -> None:
    used = {row["module"]: row["hbm_fraction"] for row in rows(utilization(cut)[0])}
    assert used == pytest.approx({row["module"]: row["hbm_fraction"] for row in rows(utilization(whole)[0])}, rel=1e-3)
    assert any("TC and HBM leave these runs out" in note for note in utilization(cut)[0].notes)


def test_steps_without_any_operation_have_no_idle_time_and_no_spread(tmp_path: Path) -> None:
    text = late_start(1)
    capture = reading.read([run_folder(tmp_path, "one", serialized(text))])
    steps, variation, host = steps_table(capture)
    # The first step is the last with an operation, so that it may be incomplete.
    assert [row["spread"] for row in rows(steps)] == [None, None]
    assert "unknown: operations are missing" in variation.column("verdict")
    assert host.why_empty


WORK = replace(op("fusion.1", "loop fusion"), flops=1e6)


def made(*devices: Device) -> Capture:
    """A capture of these devices, of which there is no file."""
    return replace(capture(*devices), paths=())


def of_runs(lengths: Sequence[float], lacking: Sequence[int], until: float = 1e9, apart: float = 0.0) -> Device:
    """A core of runs `apart` us apart, each of ten operations: none in `lacking` or from `until` on."""
    starts = [sum(lengths[:number]) + number * apart for number in range(len(lengths))]
    ran = [
        (WORK, start + part * length / 10, length / 10)
        for number, (start, length) in enumerate(zip(starts, lengths, strict=True))
        for part in range(10)
        if number not in lacking and start + part * length / 10 < until
    ]
    return device(ran, steps=list(zip(starts, lengths, strict=True)))


@pytest.mark.long
def test_a_hole_is_no_idle_time_and_no_step() -> None:
    holed = made(of_runs([1_000.0] * 10, [3]))
    parts = {row["part"]: row for row in rows(named(gaps_and_inside(holed))["idle"])}
    assert parts.keys() == {"all runs", "fill: 2 steps", "steady: 5 steps", "drain: 2 steps"}
    assert [row["seconds"] for row in database_of(holed).rows_by_name("from part_times order by place")] == (
        pytest.approx([9_000 * US, 2_000 * US, 5_000 * US, 2_000 * US])
    )
    assert "idle between runs" not in named(diagnosis.diagnose(holed))["findings"].column("finding")


def test_the_time_around_a_hole_is_idle() -> None:
    holed = made(of_runs([1_000.0] * 10, [3], apart=100.0))
    assert database_of(holed).rows("select count(*), sum(seconds) from pauses") == [(8, pytest.approx(900 * US))]
    (between,) = database_of(holed).rows("select seconds, idle from part_times where part = 'between runs'")
    assert between == pytest.approx((9_900 * US, 900 * US))


def test_a_pause_without_a_loop_of_steps_is_a_share_of_the_whole_time() -> None:
    alone = device([(WORK, 0, 100), (WORK, 200, 100)], steps=[(0, 100)])
    alone = replace(alone, modules=(*alone.modules, Period(name="jit_g(2)", start=200 * US, seconds=100 * US)))
    (between,) = database_of(made(alone)).rows("select seconds, idle from part_times where part = 'between runs'")
    assert between == pytest.approx((300 * US, 100 * US))


@pytest.mark.long
def test_figures_of_a_step_leave_out_the_step_that_is_cut() -> None:
    full, half = (made(of_runs([1_000.0] * 10, [], until)) for until in (1e9, 6_500.0))
    assert database_of(half).rows("select in_steps_count, in_steps_seconds, count from times") == [
        (60, pytest.approx(6_000 * US), 65)
    ]
    assert rows(mfu(half)[0])[0]["mfu"] == pytest.approx(rows(mfu(full)[0])[0]["mfu"])
    assert [row["time_ratio"] for row in rows(compare(full, half)[0])] == pytest.approx([1.0, 1.0])
    of_full, of_half = (rows(named(diagnosis.diagnose(each))["metrics"])[0] for each in (full, half))
    for name in ("mxu_fraction", "hottest_seconds"):
        assert of_full[name] == pytest.approx(of_half[name]), name


@pytest.mark.long
def test_steps_without_operations_cost_nothing() -> None:
    lengths = [1_000.0] * 3 + [1_100.0] + [1_000.0] * 3 + [9_000.0] * 2
    findings = by(named(diagnosis.diagnose(made(of_runs(lengths, [7, 8]))))["findings"], "finding", "seconds")
    assert findings["uneven steps"] == pytest.approx(100 * US)
    # The last run with operations of the faster core may be cut off.
    faster = device(
        [(WORK, 1_000 * step, 900) for step in range(3)], steps=[(1_000 * step, 1_000) for step in range(5)]
    )
    cores = of_runs([1_000.0] * 5, [3, 4]), replace(faster, name="TPU:1")
    findings = by(named(diagnosis.diagnose(made(*cores)))["findings"], "finding", "seconds")
    assert findings["load imbalance"] == pytest.approx(2 * 100 * US)


def test_a_wait_belongs_to_the_run_in_which_it_begins() -> None:
    core = of_runs([100.0] * 3, [], apart=50.0)
    waits = tuple(Period(name="dependency-wait", start=at * US, seconds=US) for at in (310, 0, 120))
    waiting = made(replace(core, waits=waits))
    modules = database_of(waiting).rows("select module from waits order by start_seconds")
    assert modules == [("jit_f(1)",), (None,), ("jit_f(1)",)]
