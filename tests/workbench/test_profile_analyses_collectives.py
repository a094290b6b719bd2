"""Collectives read off HLO text, their time in flight, their bandwidth against the links', on captures made by hand."""

from dataclasses import replace
from typing import Any

import pytest
from analyses import by, named, overlap
from analysis_examples import US, Ran, capture, device, op

from harness.records import Device, Operation
from harness.workbench.profiles.collectives import collective_of
from harness.workbench.profiles.database import Database

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
    # v5e: 2 x 50 GB/s along an axis.
    assert collectives.column("link_fraction")[0] == pytest.approx(1.5 * WHOLE / 30e-6 / 100e9)
    assert any("from start to done" in note for note in collectives.notes)


@pytest.mark.long
def test_flags_for_what_stalls() -> None:
    def notes_of(*ran: Ran) -> tuple[str, ...]:
        return overlap(capture(device(ran)))[0].notes[1:]

    (flag,) = notes_of((START, 0, 1), (WORK, 1, 20), (DONE, 21, 4))
    assert "all-gather stalls for 16.0% of its time in flight" in flag
    assert "xla_tpu_enable_async_collective_fusion_fuse_all_gather" in flag
    assert "xla_tpu_enable_sparse_core_collective_offload_all_gather" in flag
    assert notes_of((START, 0, 1), (WORK, 1, 20), (DONE, 21, 1)) == ()
    stalls, nothing = notes_of((SYNCHRONOUS, 0, 30))
    assert "all-reduce stalls for 100.0%" in stalls
    assert "No collective overlaps with other work: try the base flag xla_tpu_enable_async_collective_fusion" in nothing


@pytest.mark.parametrize(
    ("seconds", "expected"),
    [
        (5, "too fast: check the array"),
        (20, "uses several axes"),
        (33, "near the link"),
        (50, "look"),
        (80, "far below"),
    ],
)
def test_readings_of_the_bus_bandwidth(seconds: float, expected: str) -> None:
    # 1.5 x 2 MiB over 100 GB/s: 31.5 us on one axis.
    table = overlap(capture(device([(SYNCHRONOUS, 0, seconds)])))[1]
    assert table.column("reading") == (expected,)


def test_links_that_nothing_is_published_about() -> None:
    table = overlap(capture(device([(SYNCHRONOUS, 0, 30)], kind="TPU v99")))[1]
    assert (table.column("link_fraction"), table.column("reading")) == ((None,), ("unknown",))
    assert any("no published figures for the links of TPU v99" in note for note in table.notes)
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
