"""Copies from and to the host's memory, and groups as releases of 2025 stored them, in a module of our own."""

from pathlib import Path

import pytest
from analyses import printed_by_name
from capture_examples import ADD, V6E, Ran, plane, run_folder, serialized, space
from jaxlib import _hlo

from harness.dumps.schema import message_class
from harness.workbench.hlo import proto

_ARRAY, _HOST = "f32[1024,1024]{1,0:T(8,128)}", "f32[1024,1024]{1,0:T(8,128)S(5)}"
TEXT = f"""HloModule jit_f, is_scheduled=true, replica_count=8

%add (a: f32[], b: f32[]) -> f32[] {{
  %a = f32[] parameter(0)
  %b = f32[] parameter(1)
  ROOT %c = f32[] add(%a, %b)
}}

ENTRY %main (p: f32[1024,1024]) -> f32[1024,1024] {{
  %p = {_HOST} parameter(0)
  %copy-start = ({_ARRAY}, {_HOST}, u32[]{{:S(2)}}) copy-start(%p)
  %copy-done = {_ARRAY} copy-done(%copy-start)
  ROOT %all-reduce = {_ARRAY} all-reduce(%copy-done), replica_groups=[4,2]<=[2,4]T(1,0), to_apply=%add
}}
"""
BYTES = 4 * 1024 * 1024
# The reverse of harness/workbench/hlo/proto.py: the field that XLA writes today, and the field of 2025.
_GROUPS = {
    "HloModuleProto": (("computations", 3, "Computation*"),),
    "Computation": (("instructions", 2, "Instruction*"),),
    "Instruction": (("collective_device_list", 87, "DeviceList"), ("counted", 92, "bytes")),
    "DeviceList": (("counted", 2, "bytes"),),
}


def of_2025() -> bytes:
    """The module with the groups in field 87 alone."""
    module = _hlo.hlo_module_from_text(TEXT).as_serialized_hlo_module_proto()
    parsed = message_class("groups_of_2025", _GROUPS, "HloModuleProto").FromString(module)
    moved = 0
    for computation in parsed.computations:
        for instruction in computation.instructions:
            if instruction.counted:
                instruction.collective_device_list.counted = instruction.counted
                instruction.counted = b""
                moved += 1
    assert moved == 1, "XLA writes the groups elsewhere now"
    return bytes(parsed.SerializeToString())


def test_groups_of_2025_keep_their_transposition() -> None:
    (reduced,) = (
        instruction
        for computation in proto.module(of_2025()).computations
        for instruction in computation.instructions
        if instruction.opcode == "all-reduce"
    )
    assert reduced.groups is not None
    assert reduced.groups.text == "[4,2]<=[2,4]T(1,0)"
    assert reduced.groups.groups == ((0, 4), (1, 5), (2, 6), (3, 7))


@pytest.fixture(scope="module")
def captured(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A capture of a v6e that holds the module."""
    entry = b"\x0a" + _varint(len(of_2025())) + of_2025()
    metadata = plane(2, "/host:metadata", {"": [Ran(("jit_f(1)", {"Hlo Proto": entry}), 0.0, 0.0)]}, {})
    text = space(plane(1, "/device:TPU:0", {"XLA Ops": [Ran(ADD, 0.0, 1.0)]}, V6E), metadata)
    return run_folder(tmp_path_factory.mktemp("host"), "held", serialized(text))


def _varint(number: int) -> bytes:
    return bytes([number & 127 | 128, number >> 7]) if number > 127 else bytes([number])


def test_a_copy_from_the_host_is_priced_at_its_link_on_the_captures_chip(
    captured: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    answer = printed_by_name(capsys, "hlo", str(captured))
    assert answer["operations"]["title"] == "hottest operations of jit_f, predicted on v6e"
    copied = next(row for row in answer["operations"]["rows"] if row["name"] == "copy-start")
    assert copied["bound"] == "host link"
    assert copied["seconds"] == pytest.approx(BYTES / 27.1e9)
    notes = answer["operations"]["notes"]
    assert "the host's link carries 27.1 GB/s from the host, 27.4 GB/s to the host" in notes[0]
    assert "Of these, 154.771 us are from the host, 0 s to the host, and 0 s on the chip." in notes[2]
    assert [row["kind"] for row in answer["copies"]["rows"]] == ["host"]
    remedies = [row["reading"] for row in answer["copy_causes"]["rows"] if row["fact"] == "remedy"]
    assert remedies == ["start the copy earlier, so that more work runs meanwhile (prefetch), or offload less"]
    # A chip that is named explicitly wins.
    slower = printed_by_name(capsys, "hlo", str(captured), "--chip", "v5e")["operations"]["rows"][0]
    assert slower["seconds"] == pytest.approx(BYTES / 15e9)


def test_one_copy_shows_both_rates(captured: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (row,) = printed_by_name(capsys, "hlo", str(captured), "--op", "copy-start")["time"]["rows"]
    assert (row["host_bytes"], row["hbm_bytes"]) == (BYTES, BYTES)
    assert row["host_seconds"] == pytest.approx(BYTES / 27.1e9)
    assert row["memory_seconds"] == pytest.approx(BYTES / 1640e9)


def test_the_directions_of_the_link_do_not_add_up(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    back = f"({_HOST}, {_ARRAY}, u32[]{{:S(2)}}) copy-start(%sum)"
    text = (
        TEXT.partition("ENTRY")[0].replace("replica_count=8", "replica_count=1")
        + f"""ENTRY %main (p: f32[]) -> f32[] {{
  %p = {_HOST} parameter(0)
  %copy-start = ({_ARRAY}, {_HOST}, u32[]{{:S(2)}}) copy-start(%p)
  %copy-done = {_ARRAY} copy-done(%copy-start)
  %sum = {_ARRAY} add(%copy-done, %copy-done)
  %copy-start.1 = {back}
  ROOT %copy-done.1 = {_HOST} copy-done(%copy-start.1)
}}
"""
    )
    (tmp_path / "f.txt").write_text(text)
    shown = printed_by_name(capsys, "hlo", str(tmp_path / "f.txt"), "--chip", "v6e")["operations"]
    times = {row["name"]: row["seconds"] for row in shown["rows"]}
    assert times["copy-start.1"] == pytest.approx(BYTES / 27.4e9)
    assert shown["notes"][2] == (
        "Of these, 154.771 us are from the host, 153.077 us to the host, and 7.673 us on the chip. All three may "
        "overlap: the total is 154.771 us with full overlap, 315.521 us without any. The link is the limit: starting "
        "copies earlier saves at most 160.749 us."
    )
