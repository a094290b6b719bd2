"""The one whole capture of TPUs at hand, four v6e that offload to the host: its figures next to XProf's.

The file lies beside the project and is not part of it; `host_offload` in capture_examples has the same properties.
"""

from pathlib import Path
from typing import Any

import pytest
from analyses import (
    gaps,
    gaps_and_inside,
    named,
    ops,
    overlap,
    overview,
    printed_by_name,
    rows,
    rows_by,
    steps_table,
    utilization,
    waste,
)
from capture_examples import OFFLOAD_RUNS, OFFLOADED_BYTES, REAL

from harness.records import Capture, Table
from harness.workbench.profiles import conversion, diagnosis, hotspots, memory, reading
from harness.workbench.profiles.analysis import tables
from harness.workbench.profiles.database import database_of

MS, US, NS = 1e-3, 1e-6, 1e-9
needs_the_file = pytest.mark.skipif(not REAL.is_file(), reason=f"the capture of real TPUs, {REAL.name}, is not there")


@pytest.fixture(scope="module")
def real() -> Capture:
    if not REAL.is_file():
        pytest.skip(f"the capture of real TPUs, {REAL.name}, is not there")
    return reading.read([REAL])


@pytest.fixture(scope="module")
def diagnosed(real: Capture) -> dict[str, Table]:
    return named(diagnosis.diagnose(real))


@pytest.fixture(scope="module")
def made(runs: dict[str, Path]) -> Capture:
    return reading.read([runs["offload"]])


# --- the real one -------------------------------------------------------------------------------


def test_every_operation_is_xprofs_to_its_digits_and_in_its_order(real: Capture) -> None:
    theirs = conversion.ask([REAL], "hlo_stats")[0].rows
    ours = rows(ops(real)[0])
    assert len(ours) == len(theirs) == 17
    assert [row["operation"] for row in ours] == [row["hlo_op_name"] for row in theirs]
    for mine, row in zip(ours, theirs, strict=True):
        # XProf adds doubles of microseconds.
        for ours_column, name in (("self_seconds", "total_self_time"), ("seconds", "total_time")):
            assert mine[ours_column] == pytest.approx(float(str(row[name])) * US, rel=1e-9)
        assert (mine["count"], mine["category"]) == (row["occurrences"], row["category"])


def test_steps_are_even(real: Capture) -> None:
    steps, variation, _ = steps_table(real)
    assert [round(100 * row["spread"], 3) for row in rows(steps)] == [0.017, 0.051, 0.063, 0.058]
    assert rows(variation)[0]["verdict"] == "fine"


def test_devices_are_busy_by_their_own_clock(real: Capture) -> None:
    shown = rows(overview(real)[0])
    assert shown[0]["busy_seconds"] == pytest.approx(78.784, abs=5e-4)
    assert [round(100 * row["idle_fraction"], 1) for row in shown] == [14.8, 12.9, 12.9, 12.9]


def test_there_is_no_idle_time_between_operations(real: Capture) -> None:
    idle, _, patterns = gaps(real, top=10)
    first = next(row for row in rows(idle) if (row["device"], row["part"]) == ("TPU:0", "all runs"))
    assert first["idle_seconds"] == pytest.approx(147.5 * US, abs=0.5 * US)
    assert round(100 * first["idle_fraction"], 4) == 0.0002
    # All idle time is that of the start, before the first step.
    parts = {row["part"]: row for row in rows(idle) if row["device"] == "TPU:0"}
    assert parts["between runs"]["idle_seconds"] == 0.0
    assert parts["outside steps"]["idle_seconds"] == pytest.approx(13.753, abs=1e-3)
    seen = rows_by(patterns, "pattern")
    assert not seen["many very short blocks"]["is_seen"]
    assert seen["host transfers not overlapped"]["value"] == pytest.approx(0.965, abs=5e-4)


def test_operations_wait_for_the_host(real: Capture) -> None:
    shown = rows(ops(real)[0])
    assert shown[0]["operation"] == "copy-done.4"
    took = {row["operation"]: round(row["self_seconds"], 3) for row in shown}
    expected = {"copy-done.4": 77.773, "copy-done.5": 72.946, "broadcast_add_fusion": 3.191}
    assert {name: took[name] for name in expected} == expected
    total, _ = waste(real)
    assert round(100 * rows_by(total, "kind")["wait for host memory"]["share"], 1) == 96.5


def test_hbms_bytes_are_not_the_hosts(real: Capture) -> None:
    shown = [row for row in rows(utilization(real)[0]) if row["module"].startswith("jit_f(")]
    assert len(shown) == 4
    for row in shown:
        assert round(100 * row["hbm_fraction"], 3) == pytest.approx(5.016, abs=6e-3)
    moved = sum(
        device.operations[run.operation].hbm_bytes or 0.0
        for device in real.devices
        for run in device.executions
        if device.operations[run.operation].module.startswith("jit_f(")
    )
    assert moved == pytest.approx(25.77e12, rel=1e-4)


@pytest.mark.long
def test_host_transfers_are_its_only_finding(diagnosed: dict[str, Table]) -> None:
    assert list(diagnosed) == ["checklist", "metrics", "findings", "remedies"]
    first = rows(diagnosed["findings"])[0]
    assert first["finding"] == "host transfers, link-bound"
    assert round(100 * first["share"], 1) == 83.6
    # A step takes 784.3 ms, the link 594 ms from the host, and all that is no wait 24.1 ms.
    assert first["evidence"] == "at most 24.3% of a step to gain, by prefetch alone 3.1%"
    rates = "75.7% of the steps from the host at 27.1 GB/s, 74.9% of the steps to the host at 27.4 GB/s"
    assert f"The link to the host is busy {rates}." in diagnosed["findings"].notes
    assert diagnosed["findings"].notes[0] == (
        "83.6% of the time is host transfers, link-bound: fix this finding before all others."
    )


def test_a_workspace_that_is_reserved_once_is_in_use_and_does_not_grow(real: Capture) -> None:
    for row in rows(memory.diagnose(real)[0]):
        assert row["actual_bytes"] == pytest.approx(21.4926e9, rel=1e-5)
        assert row["actual_to_static"] == pytest.approx(1.0, abs=1e-3)
        assert row["grown_bytes"] < 1000
        assert row["reading"] == "in order"
    peak, source = memory.peak_of(real)
    assert source == "reserved + allocated"
    assert peak == pytest.approx(21.4927e9, rel=1e-5)
    query = "select min(at_seconds) from memory_levels where memory = 0 and reserved_bytes > 2e10"
    ((reserved,),) = database_of(real).rows(query)
    ((began,),) = database_of(real).rows("select min(start_seconds) from steps where device = 0")
    # 0.3 ms before the first of the steps, for which it is.
    assert (reserved, began) == pytest.approx((19.0172, 19.0175), abs=1e-4)


def test_a_program_that_waits_for_other_chips_runs_meanwhile(real: Capture) -> None:
    database = database_of(real)
    query = """select label, sum(seconds) from runs join devices using (device)
        where module like 'jit__psum%' group by 1 order by 1"""
    # XProf's line of modules, by the profiler's clock, shows 389.7, 419.7, 706.1 and 409.9 ms.
    assert dict(database.rows(query)) == pytest.approx(
        {"TPU:0": 0.38967, "TPU:1": 0.41962, "TPU:2": 0.70606, "TPU:3": 0.40991}, abs=1e-5
    )
    ((waited, most),) = database.rows("select sum(seconds), max(seconds) from waits where name = 'barrier-cores'")
    assert (waited, most) == pytest.approx((464.9 * MS, 340.978 * MS), abs=0.1 * MS)


@pytest.mark.long
def test_what_ran_before_the_loop_takes_no_time_of_a_step(real: Capture, diagnosed: dict[str, Table]) -> None:
    classes = rows_by(named(tables(real, hotspots.BREAKDOWN))["classes"], "class")
    assert (classes["communication"]["step_seconds"], classes["other"]["step_seconds"]) == (0.0, 0.0)
    assert classes["memory transfer"]["step_seconds"] == pytest.approx(760.083 * MS, abs=1e-6)
    findings = rows_by(diagnosed["findings"])
    assert "idle between runs" not in findings
    assert round(100 * findings["idle outside steps"]["share"], 1) == 13.4


def test_no_bandwidth_is_that_of_half_a_transfer(real: Capture) -> None:
    rates = {row["operation"]: row["bytes_per_second"] for row in rows(ops(real)[0])}
    assert {name for name, rate in rates.items() if rate is None} == {
        name for name in rates if name.startswith("copy-")
    }
    assert max(rate for rate in rates.values() if rate) < 1.64e12


@pytest.mark.long
@needs_the_file
def test_where_operations_are_cut_off_nothing_is_idle() -> None:
    trimmed = reading.read([REAL.with_name("v6e_trimmed.xplane.pb")])
    (row,) = rows(steps_table(trimmed)[0])
    assert (row["count"], row["idle_fraction"], row["spread"]) == (7, None, None)
    assert row["median_seconds"] == pytest.approx(0.784, abs=1e-3)
    findings = rows_by(named(diagnosis.diagnose(trimmed))["findings"], "finding")
    assert not findings.keys() & {"idle between runs", "idle inside runs", "uneven steps"}
    assert all(row["share"] < 1 for row in findings.values())
    assert "operations of TPU:0 in 7 of 12 runs" in " ".join(steps_table(trimmed)[0].notes)


@pytest.mark.long
def test_the_all_reduce_is_far_from_a_line_but_near_links_that_pairs_share(real: Capture) -> None:
    shown = named(overlap(real))
    (row,) = rows(shown["collectives"])
    assert (round(100 * row["link_fraction"], 1), round(100 * row["shared_fraction"], 1)) == (44.1, 88.2)
    assert row["reading"] == "far below, or look if links are shared"
    assert not any("asynchronous operations" in note for note in shown["collectives"].notes)
    notes = " ".join(shown["communication"].notes)
    assert "The program runs on 8 devices, but the capture shows only 4 of them" in notes
    assert "nothing else runs in jit__psum" in notes
    assert "xla_tpu" not in notes
    # TPU:2 comes first to the first all-reduce.
    waits = rows_by(shown["core_waits"], "device")
    assert waits["TPU:2"]["longest_seconds"] == pytest.approx(340.978 * MS, rel=1e-5)
    assert max(row["seconds"] for device, row in waits.items() if device != "TPU:2") < 55 * MS
    (((least,),)) = database_of(real).rows("select distinct least_seconds from collectives")
    assert least == pytest.approx(53.687 * MS, rel=1e-4)


@needs_the_file
def test_groups_of_an_older_release_are_read(capsys: pytest.CaptureFixture[str]) -> None:
    shown = printed_by_name(capsys, "hlo", str(REAL), "--module", "jit__psum", "--op", "all-reduce")
    facts = {row["fact"]: row["reading"] for row in shown["operation"]["rows"]}
    assert facts["groups"].startswith("[4,2]<=[2,4]T(1,0)")
    assert (shown["collective"]["rows"][0]["devices_per_group"], shown["collective"]["rows"][0]["groups"]) == (2, 4)


@needs_the_file
def test_copies_from_and_to_the_host_are_priced_at_its_link(capsys: pytest.CaptureFixture[str]) -> None:
    shown = printed_by_name(capsys, "hlo", str(REAL))
    assert shown["operations"]["title"].endswith("predicted on v6e")
    slowest = shown["operations"]["rows"][0]
    assert slowest["bound"] == "host link"
    # Six copies and three sums; the measured step takes 784 ms.
    assert slowest["seconds"] == pytest.approx(198 * MS, abs=MS)
    (sums,) = [note for note in shown["operations"]["notes"] if note.startswith("Of these")]
    assert "594.322 ms with full overlap, 1.202 s without any. The link is the limit" in sums
    assert {row["kind"] for row in shown["copies"]["rows"]} == {"host"}
    causes = " ".join(row["reading"] for row in shown["copy_causes"]["rows"])
    assert "the host's link" in causes
    assert "offload less" in causes
    assert "VMEM" not in causes


# --- one of our own with the same properties ----------------------------------------------------


def test_all_is_on_the_devices_clock(made: Capture) -> None:
    (device,) = made.devices
    names = [device.operations[run.operation].name for run in device.executions]
    assert names == ["copy-start", "copy-done", "add_fusion", "copy-start.1", "copy-done.1"] * OFFLOAD_RUNS
    lengths = [run.seconds for run in device.executions]
    assert lengths == pytest.approx([length * US for length in (0.1, 189.0, 10.0, 0.1, 183.0)] * OFFLOAD_RUNS)
    assert all(run.self_seconds == run.seconds for run in device.executions)
    # Runs and asynchronous operations are on the other clock alone. A run begins 0.3 us before its first operation.
    assert [run.seconds for run in device.modules] == pytest.approx([382.9 * US] * OFFLOAD_RUNS)
    assert [run.seconds for run in device.asynchronous] == pytest.approx([189.2 * US] * OFFLOAD_RUNS)
    starts = [run.start - device.executions[0].start for run in device.asynchronous]
    assert starts == pytest.approx([384 * US * at for at in range(OFFLOAD_RUNS)])
    assert any(
        "the profiler's clock jumps relative to the devices' own clocks, by up to 100.0" in sentence
        for sentence in made.left_out
    )


@pytest.mark.long
def test_a_clock_that_jumps_makes_no_step_uneven_and_no_gap(made: Capture) -> None:
    steps, variation, _ = steps_table(made)
    assert rows(steps)[0]["spread"] < 0.001
    assert rows(variation)[0]["verdict"] == "fine"
    idle, _, patterns = gaps(made)
    whole = rows(idle)[0]
    # 1.4 us between runs, 0.4 us between the operations of each, 0.3 us before the first of all.
    assert whole["idle_seconds"] == pytest.approx((5 * 1.4 + 6 * 0.4 + 0.3) * US)
    seen = {name: row["is_seen"] for name, row in rows_by(patterns, "pattern").items()}
    assert seen["host transfers not overlapped"]
    assert not seen["many very short blocks"]
    assert seen["transfers not overlapped"] is None


@pytest.mark.parametrize("analysis", [overview, gaps_and_inside])
def test_transfers_stand_in_overview_and_gaps_with_the_links_own_time(analysis: Any, made: Capture) -> None:
    shown = named(analysis(made))
    there, back = rows(shown["host_transfers"])
    assert (there["direction"], there["count"], there["bytes"]) == ("from the host", OFFLOAD_RUNS, OFFLOADED_BYTES)
    assert there["bytes_per_second"] == pytest.approx(OFFLOADED_BYTES / (189.2 * US))
    assert there["busy_seconds"] == pytest.approx(189.2 * US * OFFLOAD_RUNS)
    assert there["waited_seconds"] == pytest.approx(189 * US * OFFLOAD_RUNS)
    assert (back["direction"], back["waited_seconds"]) == ("to the host", pytest.approx(183 * US * OFFLOAD_RUNS))
    assert there["link_seconds"] == pytest.approx(OFFLOADED_BYTES * OFFLOAD_RUNS / 27.1e9)
    notes = " ".join(shown["host_transfers"].notes)
    assert "27.1 GB/s from the host, 27.4 GB/s to the host" in notes
    # 10 us of work and 1.3 us of gaps can be hidden; or the fetch of a run and the store of another.
    assert "The link to the host is the limit" in notes
    assert "saves at most 2.8%" in notes
    assert "saves at most 50.6%" in notes


def test_bytes_in_host_memory_are_no_bytes_in_hbm(made: Capture) -> None:
    (row,) = rows(utilization(made)[0])
    moved = 4 * OFFLOADED_BYTES * OFFLOAD_RUNS
    assert row["hbm_fraction"] == pytest.approx(moved / (1640e9 * row["seconds"]))


def test_waiting_for_the_host_is_waste(made: Capture) -> None:
    total, _ = waste(made)
    shown = rows_by(total, "kind")
    assert shown["wait for host memory"]["seconds"] == pytest.approx(372 * US * OFFLOAD_RUNS)
    assert shown["wait for host memory"]["share"] == pytest.approx(372 / 382.2)
    assert shown.keys() == {"wait for host memory", "together"}
