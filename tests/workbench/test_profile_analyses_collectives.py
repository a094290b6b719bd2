"""Collectives read off HLO text, their time in flight, their bandwidth against the links', on captures made by hand."""

from dataclasses import replace
from typing import Any

import pytest
from analyses import by, named, overlap, rows
from analysis_examples import US, Ran, capture, device, op

from harness.hardware import chip as chip_named
from harness.records import Device, Operation, Table
from harness.workbench.hlo.forecast import collective_tables
from harness.workbench.profiles.collectives import collective_of
from harness.workbench.profiles.database import Database

CHIP = chip_named("v6e")
RESULT = "bf16[1024,1024]{1,0:T(8,128)(2,1)}"
WHOLE = 2 * 1024 * 1024
FIRST = "dimensions={0}"
ALL, PAIRS, TURNED = (f"replica_groups={groups}" for groups in ("{{0,1,2,3}}", "{{0,4},{1,5}}", "[4,2]<=[2,4]T(1,0)"))
OF_EIGHT, UNNAMED = (f"replica_groups={groups}, to_apply=%add" for groups in ("[2,4]<=[8]", "{}"))
PERMUTED = (
    f"({RESULT}, {RESULT}, u32[]{{:S(2)}}, u32[]{{:S(2)}}) collective-permute-start(%p), "
    "source_target_pairs={{0,1},{1,0}}"
)
GATHERED = f"(bf16[256,1024]{{1,0}}, {RESULT}) all-gather-start(%p), replica_groups=[1,4]<=[4], {FIRST}"


@pytest.mark.parametrize(
    ("name", "rest", "kind", "size", "array_bytes", "bus_bytes"),
    [
        # The forms in which libtpu 0.0.50 writes collectives: operands have no shapes.
        ("all-gather.5", f"{RESULT} all-gather(%p), {ALL}, {FIRST}", "all-gather", 4, WHOLE, WHOLE * 3 / 4),
        ("all-reduce.2", f"{RESULT} all-reduce(%f), {OF_EIGHT}", "all-reduce", 4, WHOLE, WHOLE * 2 * 3 / 4),
        ("reduce_scatter.7", f"{RESULT} reduce-scatter(%p), {PAIRS}, {FIRST}", "reduce-scatter", 2, 2 * WHOLE, WHOLE),
        ("all_to_all.9", f"{RESULT} all-to-all(%b), {TURNED}, {FIRST}", "all-to-all", 2, WHOLE, WHOLE / 2),
        ("collective-permute-start", PERMUTED, "collective-permute", None, WHOLE, WHOLE),
        ("all-gather-start.1", GATHERED, "all-gather", 4, WHOLE, WHOLE * 3 / 4),
        # Groups without names, a fused collective, and no text: missing facts are unknown.
        ("all-reduce.2", f"{RESULT} all-reduce(%f), {UNNAMED}", "all-reduce", None, WHOLE, None),
        ("async-collective-done", f"{RESULT} fusion(%g), kind=kCustom, calls=%c", None, None, None, None),
        ("async-collective-done", "", None, None, None, None),
    ],
)
def test_what_a_collective_moves(
    name: str, rest: str, kind: str | None, size: int | None, array_bytes: float | None, bus_bytes: float | None
) -> None:
    facts = collective_of(op(name, text=rest and f"%{name} = {rest}"))
    assert (facts.kind, facts.size) == (kind, size)
    assert facts.array_bytes == pytest.approx(array_bytes)
    assert facts.bus_bytes == pytest.approx(bus_bytes)


START = op("all-gather-start.1", "all-gather-start", f"%all-gather-start.1 = {GATHERED}")
WORK = op("fusion.1", "loop fusion")
DONE = op("all-gather-done.1", "all-gather-done", f"%all-gather-done.1 = {RESULT} all-gather-done(%all-gather-start.1)")
SYNCHRONOUS = op("all-reduce.2", "all-reduce", f"%all-reduce.2 = {RESULT} all-reduce(%f), replica_groups=[1,4]<=[4]")


def collectives_of(ran_on: Device) -> list[dict[str, Any]]:
    return Database(capture(ran_on)).rows_by_name("select * from collectives order by rowid")


def test_without_an_asynchronous_line_flight_is_from_start_to_done() -> None:
    flights = [(START, 0, 1), (WORK, 1, 20), (DONE, 21, 4), (START, 30, 1), (WORK, 31, 10), (DONE, 41, 0)]
    ran_on = device([*flights, (SYNCHRONOUS, 50, 30)])
    synchronous, gathered = collectives_of(ran_on)
    assert (gathered["count"], gathered["flights"], gathered["is_asynchronous"]) == (2, 2, True)
    assert gathered["flight_seconds"] == pytest.approx(36 * US)
    assert gathered["waited_seconds"] == pytest.approx(4 * US)
    assert gathered["start_seconds"] == pytest.approx(2 * US)
    assert not synchronous["is_asynchronous"]
    assert synchronous["waited_seconds"] == pytest.approx(30 * US)
    exposed, collectives, *_ = overlap(capture(ran_on))
    assert exposed.rows[0][2:5] == pytest.approx((4 * US, 30 * US, 34 * US))
    # v5e: 50 GB/s along a line.
    assert collectives.column("link_fraction")[0] == pytest.approx(1.5 * WHOLE / 30e-6 / 50e9)
    assert any(note.startswith("TPU:0 has no line of asynchronous operations") for note in collectives.notes)


def test_a_line_of_asynchronous_operations_is_missed_only_by_asynchronous_collectives() -> None:
    _, collectives, *_ = overlap(capture(device([(WORK, 0, 20), (SYNCHRONOUS, 20, 30)])))
    assert not any("asynchronous operations" in note for note in collectives.notes)


@pytest.mark.long
def test_flags_for_what_stalls() -> None:
    def notes_of(*ran: Ran) -> tuple[str, ...]:
        notes = overlap(capture(device(ran)))[0].notes[1:]
        return tuple(note for note in notes if not note.startswith("The program runs on 4 devices"))

    (flag,) = notes_of((START, 0, 1), (WORK, 1, 20), (DONE, 21, 4))
    assert "all-gather stalls for 16.0% of its time in flight" in flag
    assert "xla_tpu_enable_async_collective_fusion_fuse_all_gather" in flag
    assert "xla_tpu_enable_sparse_core_collective_offload_all_gather" in flag
    assert notes_of((START, 0, 1), (WORK, 1, 20), (DONE, 21, 1)) == ()
    (alone,) = notes_of((SYNCHRONOUS, 0, 30))
    assert "nothing else runs in its program, so no flag can hide it" in alone
    stalls, nothing = notes_of((SYNCHRONOUS, 0, 30), (WORK, 30, 5))
    assert "all-reduce stalls for 100.0%" in stalls
    assert "No collective overlaps with other work: try the base flag xla_tpu_enable_async_collective_fusion" in nothing


@pytest.mark.parametrize(
    ("seconds", "expected"),
    [
        (10, "too fast: check the array"),
        (40, "uses several axes"),
        (66, "near the link"),
        (100, "look"),
        (160, "far below"),
    ],
)
def test_readings_of_the_bus_bandwidth(seconds: float, expected: str) -> None:
    # 1.5 x 2 MiB over 50 GB/s: 62.9 us on one axis, which only 16 chips of v5e close to a ring.
    table = overlap(capture(device([(SYNCHRONOUS, 0, seconds)])))[1]
    assert table.column("reading") == (expected,)


def reduced_in(groups: str, seconds: float, chips: int = 4, kind: str = "TPU v6 lite") -> dict[str, Table]:
    """Tables of a capture with one all-reduce of 2 MiB in these groups."""
    text = f"%all-reduce.2 = {RESULT} all-reduce(%f), replica_groups={groups}"
    ran = [(op("all-reduce.2", "all-reduce", text), 0, seconds)]
    return named(overlap(capture(*(replace(device(ran, kind=kind), name=f"TPU:{at}") for at in range(chips)))))


def test_groups_that_lie_side_by_side_may_share_links() -> None:
    # On 2 x 4 chips, the pairs {0,4} and {2,6} both cross the middle of a line: each sends 2 MiB over 100 GB/s.
    shown = reduced_in("[4,2]<=[2,4]T(1,0)", 47.5)["collectives"]
    least = WHOLE / 100e9
    assert shown.column("link_fraction") == pytest.approx((least / 47.5e-6,))
    assert shown.column("shared_fraction") == pytest.approx((2 * least / 47.5e-6,))
    assert shown.column("reading") == ("far below, or look if links are shared",)
    assert any("along a slice of 2x4" in note for note in shown.notes)
    neighbours = reduced_in("{{0,1},{2,3},{4,5},{6,7}}", 30)["collectives"]
    assert (neighbours.column("shared_fraction"), neighbours.column("reading")) == ((None,), ("look",))


def test_the_least_time_is_that_of_predict_collective() -> None:
    # 16 chips of v6e may be a ring; 2 are none, as `predict collective --axis 2` says.
    for size, may_close in ((2, False), (16, True)):
        groups = f"[{32 // size},{size}]<=[32]"
        shown = reduced_in(groups, 50, 1)["collectives"]
        _, bounds = collective_tables("all-reduce", WHOLE, [size], CHIP, None, "")
        ring, line = (row["seconds"] for row in rows(bounds))
        assert bounds.column("which") == (("this axis", "") if may_close else ("", "this axis"))
        (least,) = shown.column("link_fraction")
        assert least == pytest.approx((ring if may_close else line) / 50e-6)
        assert any(("may be a ring" in note) == may_close for note in shown.notes if "does not state" in note)


def test_devices_that_the_capture_does_not_show_are_counted() -> None:
    pairs = "[4,2]<=[2,4]T(1,0)"
    (note,) = [note for note in reduced_in(pairs, 30)["communication"].notes if "devices" in note]
    assert note.startswith("The program runs on 8 devices, but the capture shows only 4 of them")
    assert not any("The program" in note for note in reduced_in(pairs, 30, 8)["communication"].notes)


def test_links_that_nothing_is_published_about() -> None:
    table = overlap(capture(device([(SYNCHRONOUS, 0, 30)], kind="TPU v99")))[1]
    assert (table.column("link_fraction"), table.column("reading")) == ((None,), ("unknown",))
    assert any("no published figures for TPU v99" in note for note in table.notes)
    assert table.column("bus_bytes_per_second")[0] == pytest.approx(1.5 * WHOLE / 30e-6)


def test_a_gpus_collective_is_hidden_as_long_as_something_runs_beside_it() -> None:
    # XLA gives a GPU's kernel the name of the start half; 40 of its 45 us run beside the fusion, on another stream.
    reduced = op("all-reduce-start.1")
    gpu = replace(device([(WORK, 0, 80), (reduced, 40, 45)], kind="NVIDIA H100"), name="GPU:0", platform="gpu")
    (flight,) = collectives_of(gpu)
    assert (flight["name"], flight["count"], flight["is_asynchronous"]) == ("all-reduce.1", 1, True)
    assert (flight["flight_seconds"], flight["waited_seconds"]) == pytest.approx((45 * US, 5 * US))
    exposed, *_ = overlap(capture(gpu))
    assert exposed.column("exposed_fraction") == pytest.approx((5 / 85,))
    assert not any("xla_tpu" in note for note in exposed.notes)


def test_ends_without_a_start_are_no_flight() -> None:
    # The capture begins between two halves, and later one end is lost.
    ran = [(DONE, 0, 2), (START, 5, 1), (DONE, 20, 3), (DONE, 30, 1), (START, 40, 1), (DONE, 50, 4)]
    (gathered,) = collectives_of(device(ran))
    assert (gathered["count"], gathered["flights"]) == (4, 2)
    assert gathered["flight_seconds"] == pytest.approx((18 + 14) * US)
    assert gathered["waited_seconds"] == pytest.approx(10 * US)


def test_a_start_without_its_end_is_unknown_and_not_hidden() -> None:
    (row,) = overlap(capture(device([(START, 0, 1), (WORK, 1, 20)])))[0].rows
    assert row[1:] == (None,) * 6


def _sent(number: int, kind: str, where: str, groups: str) -> Operation:
    text = f"%{kind}.{number} = {RESULT} {kind}(%p), replica_groups={groups}, dimensions={{0}}"
    return op(f"{kind}.{number}", kind, text, f"jit(step)/{where}")


FORWARD, BACKWARD = "jvp(layer)/dot_general:", "transpose(jvp(layer))/dot_general:"
ROWS, COLUMNS = "{{0,1},{2,3}}", "{{0,2},{1,3}}"


@pytest.mark.parametrize(
    ("some", "serves"),
    [
        ([("all-gather", FORWARD), ("all-gather", BACKWARD), ("reduce-scatter", BACKWARD)], "FSDP"),
        ([("all-reduce", BACKWARD)], "data"),
        ([("all-reduce", FORWARD), ("all-reduce", BACKWARD)], "tensor (activations"),
        ([("all-gather", FORWARD), ("reduce-scatter", FORWARD)], "tensor, sequence"),
        ([("all-to-all", "jvp(moe)/dispatch:"), ("all-reduce", BACKWARD)], "expert"),
        ([("all-to-all", FORWARD)], "resharding"),
        ([("all-gather", FORWARD)], "FSDP or tensor"),
    ],
)
def test_what_an_axis_is_for(some: list[tuple[str, str]], serves: str) -> None:
    # The other axis has one sum of gradients.
    sent = [_sent(at, kind, where, ROWS) for at, (kind, where) in enumerate(some)]
    sent.append(_sent(9, "all-reduce", BACKWARD, COLUMNS))
    ran = [(operation, 10.0 * at, 5.0) for at, operation in enumerate(sent)]
    table = named(overlap(capture(device(ran)), {"data": 2, "model": 2}))["parallelism"]
    served = by(table, "axes", "serves")
    assert served["model"].startswith(serves)
    assert served["data"].startswith("data")
    assert "parallelism" not in named(overlap(capture(device([(op("add", "add"), 0, 5)]))))
