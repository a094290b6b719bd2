"""Captures as bytes: the memory of their events, the order of events, and truncated fields."""

import tracemalloc
from pathlib import Path

import pytest
from capture_examples import HOST, MATMUL, PALLAS, Ran, one_core, packed, run_folder, serialized, varint

from harness.dumps import xplane
from harness.errors import RatchetError
from harness.shell.main import main
from harness.workbench.profiles import reading

pytestmark = pytest.mark.long


def short_events(count: int) -> bytes:
    """A TPU's operations one after the other, with one statistic each: 23 bytes for an event, the shortest."""
    events = (
        b"\x08\x01\x10" + varint(number * 1_000_000) + b"\x18\xc0\x84\x3d" + packed(4, b"\x08\x01\x20\xc0\x84\x3d")
        for number in range(1_000_000, 1_000_000 + count)
    )
    line = packed(2, b"XLA Ops") + b"".join(packed(4, event) for event in events)
    described = b"\x08\x01" + packed(2, packed(2, b"%a = f32[8] add(%b, %b)"))
    named = b"\x08\x01" + packed(2, packed(2, b"device_duration_ps"))
    device = packed(2, b"/device:TPU:0") + packed(3, line) + packed(4, described) + packed(5, named)
    return packed(1, device) + packed(4, HOST.encode())


@pytest.mark.slow
def test_a_capture_of_short_events_takes_a_dozen_times_its_size(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    data = short_events(60_000)
    path = run_folder(tmp_path, "short", data)
    # This much is reserved and counted before a file is read, however little of it is used.
    monkeypatch.setenv("RATCHET_MAX_FILE_BYTES", str(len(data)))
    tracemalloc.start()
    try:
        (device,) = reading.read([path]).devices
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert len(device.executions) == 60_000
    assert device.executions[-1].seconds == 1e-6
    assert peak < 12 * len(data), peak / len(data)


@pytest.mark.parametrize("order", [(0, 1, 2), (2, 1, 0), (1, 2, 0)])
def test_self_time_does_not_depend_on_the_order_of_events_in_the_file(order: tuple[int, ...], tmp_path: Path) -> None:
    ran = (Ran(PALLAS, 0.0, 10.0), Ran(MATMUL, 0.0, 4.0), Ran(MATMUL, 1.0, 2.0))
    data = serialized(one_core(ran[at] for at in order))
    (device,) = reading.read([run_folder(tmp_path, "order", data)]).devices
    assert [round(run.self_seconds * 1e6, 3) for run in device.executions] == [6.0, 2.0, 2.0]
    assert [round(run.seconds * 1e6, 3) for run in device.executions] == [10.0, 4.0, 2.0]


def test_times_that_no_clock_has_are_refused_in_words(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    def timed(offset: int, length: int) -> bytes:
        return packed(4, b"\x08\x01\x10" + varint(offset) + b"\x18" + varint(length))

    line = packed(3, packed(2, b"XLA Ops") + timed(1 << 63, 1) + timed((1 << 63) - 1, 1))
    described = packed(4, b"\x08\x01" + packed(2, packed(2, b"add")))
    path = run_folder(tmp_path, "far", packed(1, packed(2, b"/device:TPU:0") + line + described) + packed(4, b"h"))
    assert main(["xprof", "ops", str(path)]) == 4
    assert "too large" in capsys.readouterr().err


@pytest.mark.parametrize(
    "data", [b"\xff" * 30, b"\x0a\x80", b"\x0a\x05\x1a\x7f", b"\x0a\x04\x1a\x02\x22\x09", b"\x0a\x02\x1a\x01", b"\x07"]
)
def test_fields_longer_than_what_they_are_in_are_no_profile(data: bytes) -> None:
    with pytest.raises(RatchetError) as refused:
        xplane.read(data, "broken")
    assert refused.value.kind == "bad-profile"
