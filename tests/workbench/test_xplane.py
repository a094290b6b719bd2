"""Profiles as records: the files' contents as the reader gives them, agreement with XProf's tools, and broken files."""

import tempfile
from collections import Counter
from itertools import pairwise
from pathlib import Path

import pytest
from breakdown_examples import timeline
from capture_examples import (
    HOST,
    MATMUL,
    MODULE,
    PALLAS,
    V6E,
    Ran,
    corrupt_run,
    four_devices,
    one_core,
    one_device_run,
    plane,
    run_folder,
    serialized,
    space,
)
from jax.profiler import ProfileData

from harness.dumps import xplane
from harness.errors import RatchetError
from harness.hardware import chip
from harness.records import Capture, Device
from harness.workbench.hlo.proto import origins
from harness.workbench.profiles import conversion, reading
from harness.workbench.traces.xspace import xspace


def self_seconds(devices: tuple[Device, ...]) -> Counter[str]:
    """By operation, over all devices."""
    totals: Counter[str] = Counter()
    for device in devices:
        for run in device.executions:
            totals[device.operations[run.operation].name] += run.self_seconds  # type: ignore[assignment]
    return totals


# --- what a capture says -----------------------------------------------------------------------


def test_a_tpu_device_has_operations_with_what_their_metadata_says(one_device: Capture) -> None:
    (device,) = one_device.devices
    assert (one_device.name, one_device.is_simulated, one_device.left_out) == ("one-device", False, ())
    assert (device.name, device.host, device.platform, device.kind) == ("TPU:0", HOST, "tpu", "TPU v6 lite")
    assert (device.peak_flops_per_second, device.hbm_bytes_per_second) == (918e12, 1640e9)
    by_name = {operation.name: operation for operation in device.operations}
    matmul, pallas = by_name["fusion.3"], by_name["splash_mha_fwd.1"]
    assert matmul.text == MATMUL[0]
    assert (matmul.category, matmul.module) == ("convolution fusion", MODULE)
    assert (matmul.framework_name, matmul.source) == ("jit(train_step)/jvp(mlp)/dot_general:", "/src/model.py:41")
    assert (matmul.flops, matmul.bytes_accessed) == (17_179_869_184.0, 29_360_128.0)
    # XLA says 0 for a kernel whose cost it does not know; known costs stay.
    assert PALLAS[1]["flops"] == 0
    assert (pallas.flops, pallas.bytes_accessed) == (None, 6_291_456.0)
    assert by_name["copy.2"].flops is None


def test_nested_operations_are_taken_from_the_time_of_the_one_around_them(one_device: Capture) -> None:
    (device,) = one_device.devices
    names = [device.operations[run.operation].name for run in device.executions[:6]]
    assert names == ["splash_mha_fwd.1", "fusion.3", "while.1", "copy.2", "fusion.5", "fusion.9"]
    loop = device.executions[2]
    assert [loop.seconds, loop.self_seconds] == pytest.approx([14e-6, 3e-6])
    assert device.executions[0].start == pytest.approx(5e-6), "the capture begins with the host's first annotation"
    starts = [run.start for run in device.executions]
    assert starts == sorted(starts)


def test_steps_modules_and_annotations_are_periods(one_device: Capture, four: Capture) -> None:
    (device,) = one_device.devices
    assert [step.name for step in device.steps] == ["0", "1", "2"]
    assert [module.name for module in device.modules] == [MODULE] * 3
    assert [module.seconds for module in device.modules] == [pytest.approx(96e-6)] * 3
    calls = [(period.name, period.step) for period in one_device.host_periods]
    assert calls == [("kernel_step_0", 0), ("kernel_step_1", 1), ("kernel_step_2", 2)]
    assert [period.step for period in four.host_periods if period.name == "train"] == [0, 1, 2]


def test_several_devices_keep_apart_and_what_runs_beside_them_is_no_part_of_their_time(four: Capture) -> None:
    cores = [device for device in four.devices if "SparseCore" not in device.name]
    assert [device.name for device in cores] == ["TPU:0", "TPU:1", "TPU:2", "TPU:3"]
    sums = [sum(run.self_seconds for run in device.executions) for device in cores]
    assert sums == [pytest.approx(318e-6)] * 4
    slower = self_seconds((four.devices[2],))["fusion.9"] / self_seconds((four.devices[0],))["fusion.9"]
    assert slower == pytest.approx(32 / 20)
    for device in cores:
        beside = Counter(device.operations[run.operation].name for run in device.asynchronous)
        assert beside == {"all-gather-start.2": 3, "all-reduce-start.1": 3}
    (sparse,) = set(four.devices) - set(cores)
    assert sparse.name == "TPU:0 SparseCore 0"
    assert [sparse.operations[run.operation].name for run in sparse.executions] == ["gather"]
    assert four.left_out == ()


def test_two_hosts_are_one_capture(tmp_path: Path) -> None:
    first = one_device_run(tmp_path)
    second = run_folder(tmp_path, "one-device", first.read_bytes(), "host-1")
    capture = reading.read([first, second])
    assert [device.name for device in capture.devices] == ["TPU:0", "TPU:0"]
    assert self_seconds(capture.devices)["fusion.3"] == pytest.approx(120e-6)


def test_a_gpu_has_the_kernels_of_its_streams() -> None:
    def kernel(name: str, start: float, op: str) -> Ran:
        return Ran(name, start, 4.0, {"hlo_op": op, "hlo_module": "jit_f", "program_id": 3} if op else {})

    streams = {
        "Stream #7(Compute)": [kernel("gemm_fusion_dot_2", 0.0, "gemm_fusion_dot.2"), kernel("add_1", 6.0, "add.1")],
        "Stream #8(MemcpyH2D)": [kernel("MemcpyH2D", 1.0, "")],
        "XLA TraceMe": [Ran("note", 0.0, 1.0)],
    }
    stats: dict[str, int | float | str] = {"device_type_string": "NVIDIA H100", "memory_bandwidth": 3_352_000_000_000}
    data = serialized(space(plane(1, "/device:GPU:0", streams, stats)))
    (device,) = capture_of(data).devices
    assert (device.platform, device.kind, device.hbm_bytes_per_second) == ("gpu", "NVIDIA H100", 3.352e12)
    names = ("gemm_fusion_dot.2", "add.1", "MemcpyH2D")
    assert self_seconds((device,)) == dict.fromkeys(names, pytest.approx(4e-6))
    assert {operation.module for operation in device.operations} == {"jit_f(3)", ""}


def capture_of(data: bytes) -> Capture:
    """The capture of one file's bytes."""
    with tempfile.TemporaryDirectory() as folder:
        return reading.read([run_folder(Path(folder), "run", data)])


def test_what_the_simulator_wrote_is_marked(tmp_path: Path) -> None:
    path = tmp_path / "simulated-v5e.xplane.pb"
    path.write_bytes(xspace(timeline(), chip("v5e"), "0003 simulated v5e", "host"))
    capture = reading.read([path])
    assert capture.is_simulated
    assert {device.kind for device in capture.devices} == {"TPU v5 lite (simulated)"}
    assert all(device.executions for device in capture.devices)
    assert "drawn by the simulator: " in " ".join(capture.left_out)


# --- a real capture of this machine's CPU ------------------------------------------------------


@pytest.mark.long
def test_a_cpu_capture_has_its_operations_from_whichever_thread(runs: dict[str, Path]) -> None:
    capture = reading.read([runs["cpu"]])
    (device,) = capture.devices
    assert (device.name, device.platform, device.peak_flops_per_second) == ("CPU:0", "cpu", None)
    assert [step.step for step in device.steps] == [0, 1, 2]
    assert {step.name for step in device.steps} == {"train"}
    (name,) = {module.name for module in device.modules}
    assert name.startswith("jit_loss(")
    assert len(device.modules) == 3
    scopes = {operation.framework_name for operation in device.operations}
    assert any("jvp(mlp)" in scope for scope in scopes)
    assert any("attention" in scope for scope in scopes)
    dots = [operation for operation in device.operations if "dot_general" in operation.framework_name]
    assert dots
    assert all(operation.source.endswith(("<string>:8", "<string>:10")) for operation in dots)
    first, last = device.steps[0], device.steps[-1]
    assert all(first.start <= run.start and run.end <= last.end + 1e-3 for run in device.executions)


@pytest.mark.long
def test_a_cpu_captures_times_are_those_of_jaxs_own_reader(runs: dict[str, Path]) -> None:
    ours = self_seconds(reading.read([runs["cpu"]]).devices)
    theirs: Counter[str] = Counter()
    for their_plane in ProfileData.from_file(str(runs["cpu"])).planes:
        for line in their_plane.lines:
            for event in line.events:
                operation = dict(event.stats).get("hlo_op")
                if operation is not None:
                    theirs[str(operation)] += event.duration_ns * 1e-9
    assert theirs
    assert ours == {name: pytest.approx(seconds) for name, seconds in theirs.items()}


def test_the_modules_of_a_capture_can_be_read_on(runs: dict[str, Path]) -> None:
    protos = reading.hlo_protos([runs["cpu"]])
    (loss,) = [name for name in protos if name.startswith("jit_loss(")]
    assert "dot" in {origin.opcode for origin in origins(protos[loss]).values()}
    with pytest.raises(RatchetError, match="HloProto") as caught:
        origins(b"\x0a\xff")
    assert caught.value.kind == "bad-hlo"


# --- what is no capture ------------------------------------------------------------------------


def test_a_file_cut_anywhere_is_noticed() -> None:
    data = serialized(four_devices())
    read = [length for length in range(len(data)) if cut(data, length) is not None]
    # A file that is cut at the end of a plane is still a profile, without the final name.
    assert len(read) == 6
    assert not any(space_read.is_whole for length in read if (space_read := cut(data, length)))
    assert xplane.read(data, "whole.xplane.pb").is_whole
    assert "or is cut off" in capture_of(data[: read[0]]).left_out[0]


def cut(data: bytes, length: int) -> xplane.Space | None:
    """The contents of a file that ends too early, None if it is refused."""
    try:
        return xplane.read(data[:length], "cut.xplane.pb")
    except RatchetError:
        return None


def test_blocks_that_were_never_written_are_no_profile() -> None:
    with pytest.raises(RatchetError, match="not a complete profile"):
        xplane.read(b"\x22\x01a" + bytes(1_000_000), "cut.xplane.pb")


def test_something_else_and_nothing_at_all_are_no_profiles(tmp_path: Path) -> None:
    with pytest.raises(RatchetError, match="got none") as caught:
        reading.read([])
    assert caught.value.kind == "no-profile"
    # Fields that an XSpace does not have: a valid message of another kind.
    other = run_folder(tmp_path, "other", b"\x78\x01" * 40)
    with pytest.raises(RatchetError, match="named planes"):
        reading.read([other])
    with pytest.raises(RatchetError, match="gone"):
        reading.read([tmp_path / "gone.xplane.pb"])


def test_what_is_not_understood_is_counted() -> None:
    lines = {"XLA Ops": [Ran(MATMUL, 0.0, 5.0)], "Tensor Core Sync Flag": [Ran("flag", 0.0, 1.0)] * 3}
    text = space(plane(1, "/device:TPU:0", lines, V6E), plane(2, "/device:CUSTOM:x", {"row": [Ran("a", 0.0, 1.0)]}, {}))
    nameless = text.replace("events { metadata_id: 1 ", "events { metadata_id: 77 ", 1)
    summed = text.replace("offset_ps: 0 duration_ps: 1000000", "num_occurrences: 9 duration_ps: 1000000", 1)
    reported = text + 'errors: "buffer overflow"'
    heads = f"{HOST}.xplane.pb: "
    unread = heads + "ignored lines of devices: Tensor Core Sync Flag (3 events)"
    planes = heads + "ignored planes: /device:CUSTOM:x (1 event)"
    assert capture_of(serialized(text)).left_out == (planes, unread)
    assert heads + "1 event of a kind that the file does not describe" in capture_of(serialized(nameless)).left_out
    assert any("1 event without a place in time (sums)" in note for note in capture_of(serialized(summed)).left_out)
    data = ProfileData.text_proto_to_serialized_xspace(reported)
    assert heads + "the profiler reported: buffer overflow" in capture_of(data).left_out


def test_a_line_is_known_by_its_name_whatever_it_is_shown_as() -> None:
    shown = one_core([Ran(MATMUL, 0.0, 5.0)]).replace('name: "XLA Ops"', 'name: "XLA Ops" display_name: "Operations"')
    (device,) = capture_of(serialized(shown)).devices
    assert len(device.executions) == 1


def test_names_that_are_no_unicode_do_not_stop_the_reader() -> None:
    data = serialized(one_core([Ran("strange-name", 0.0, 5.0)]))
    (device,) = capture_of(data.replace(b"strange", b"str\xffnge")).devices
    assert device.operations[0].name == "str�nge-name"


def test_overlapping_operations_are_neighbours() -> None:
    ops = [Ran("a", 0.0, 5.0), Ran("b", 3.0, 5.0), Ran("c", 8.0, 1.0), Ran("d", 8.0, 0.0)]
    (device,) = capture_of(serialized(one_core(ops))).devices
    self_times = {"a": 5e-6, "b": 5e-6, "c": 1e-6, "d": 0.0}
    assert self_seconds((device,)) == {name: pytest.approx(seconds) for name, seconds in self_times.items()}
    assert all(earlier.start <= later.start for earlier, later in pairwise(device.executions))


# --- XProf's tools in a process of their own ---------------------------------------------------


@pytest.mark.long
def test_a_tool_without_an_answer_says_so_and_leaves_nothing_beside_the_capture(
    runs: dict[str, Path], tmp_path: Path
) -> None:
    path = runs["one"]
    with pytest.raises(RatchetError, match="not a known xplane tool") as caught:
        conversion.tool([path], "nonsense")
    assert caught.value.kind == "no-answer"
    with pytest.raises(RatchetError, match="no answer") as caught:
        conversion.tool([corrupt_run(tmp_path)], "hlo_stats")
    assert caught.value.kind == "no-answer"
    (answer,) = conversion.answers([path], "hlo_stats", [{}])
    assert answer == conversion.tool([path], "hlo_stats")
    assert list(path.parent.iterdir()) == [path]
