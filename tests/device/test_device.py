"""Facts that only a device shows: each test runs command lines of the ratchet on it, and reads their documents.

`./ratchet.sh test -m device` runs them; `./ratchet.sh validate` does, and makes a page of what they showed. With `--on
cpu` a CPU stands in for the chip, on small kernels, to try the tests themselves.
"""

import shutil
import subprocess
import sys
import time
from pathlib import Path

import pytest
from device_commands import (
    KERNEL_SECONDS,
    ON_A_CPU,
    STEP_SECONDS,
    Commands,
    Device,
    Note,
    examples,
    no_gain,
    started,
    waited,
)

from harness import contest as contests
from harness.contest import PACKAGE
from harness.errors import RatchetError
from harness.hardware import DEFAULT_CHIP, chip_of_device
from harness.judge.evaluate.timing.device import attached
from harness.loop import scaffold
from harness.operators import Suite
from harness.workbench.capture.profile_server import free_port

pytestmark = pytest.mark.device
MODES = ("TRACE_COMPUTE", "TRACE_COMPUTE_AND_SYNC")
_CAPTURE_SECONDS = 20.0


@pytest.fixture(scope="session")
def device(pytestconfig: pytest.Config, tmp_path_factory: pytest.TempPathFactory) -> Device:
    """The device that `--on` names, with the contest of attempts committed. Skips the tests without a TPU."""
    on, chip = pytestconfig.getoption("on"), pytestconfig.getoption("chip")
    if on == "tpu":
        present = attached("tpu")
        attached_chip = chip_of_device(present.kind) if present else None
        if attached_chip is None:
            pytest.skip("no TPU is attached; --on cpu tries the tests themselves")
        chip = attached_chip.name
    deadline = time.monotonic() + 60 * pytestconfig.getoption("minutes")
    folders = [tmp_path_factory.mktemp(name, numbered=False) for name in ("contests", "logs")]
    device = Device(on=on, chip=chip or DEFAULT_CHIP, contests=folders[0], logs=folders[1], deadline=deadline)
    device.contest("attention")
    device.commit()
    return device


@pytest.fixture
def commands(device: Device, record_property: Note, request: pytest.FixtureRequest) -> Commands:
    """The command lines of this test."""
    name = request.node.name.removeprefix("test_").replace("[", "-").rstrip("]")
    record_property("shows", " ".join(str(request.function.__doc__).split()).rstrip("."))
    return Commands(device=device, note=record_property, name=name)


def test_machine(commands: Commands) -> None:
    """The installed packages and the attached device are fit for measuring."""
    rows = commands.document("doctor")["tables"][0]["rows"]
    if problems := [f"{row['what']}: {row['value']}" for row in rows if row["state"] == "problem"]:
        commands.fail("; ".join(problems))
    commands.note("shown", "no problem")


def test_attempt(commands: Commands, device: Device) -> None:
    """An attempt is timed on the device and accepted as the first champion."""
    folder = str(device.contest("attention"))
    words = ("-C", folder, "experiment: baseline", "--on", device.on)
    attempt = commands.document(*words, limit=KERNEL_SECONDS)["attempt"]
    reasons, latency = "; ".join(attempt["verdict"]["reasons"]), attempt["evidence"]["latency"] or {}
    expected = ("accept", "measured cpu" if device.on == "cpu" else "measured")
    if (attempt["verdict"]["outcome"], latency.get("source")) != expected:
        commands.fail(reasons)
    commands.note("shown", reasons)


def test_same_program_again(commands: Commands, device: Device) -> None:
    """The same program again is no improvement: an A/A control."""
    folder = device.contest("attention")
    with (folder / "kernel.py").open("a", encoding="utf-8") as text:
        text.write("# An A/A control.\n")
    words = ("-C", str(folder), "experiment: the same program, an A/A control", "--again", "--on", device.on)
    shown, holds = no_gain(commands.document(*words, limit=KERNEL_SECONDS)["attempt"]["verdict"])
    if not holds:
        commands.fail(shown)
    commands.note("shown", shown)


@pytest.mark.parametrize("mode", MODES)
def test_capture(commands: Commands, device: Device, mode: str) -> None:
    """A capture of three calls of the kernel."""
    commands.rows("profile", "-C", str(_profiled(device, mode)), "--on", device.on, "--mode", mode, "--calls", "3")


@pytest.mark.parametrize("mode", MODES)
def test_operations(commands: Commands, device: Device, mode: str) -> None:
    """The operations of the captured kernel, with their times."""
    commands.rows("xprof", "ops", str(_profiled(device, mode) / "profile_data"))


@pytest.mark.parametrize("mode", MODES)
def test_lines(commands: Commands, device: Device, mode: str) -> None:
    """Times of single source lines inside the captured kernel."""
    commands.rows("xprof", "lines", str(_profiled(device, mode) / "profile_data"))


def test_snapshots(commands: Commands, device: Device) -> None:
    """Snapshots of the running kernel from the profiler's history."""
    if device.on == "cpu":
        pytest.skip("a CPU's profiler keeps no history")
    folder = str(device.contest("attention"))
    commands.rows("profile", "-C", folder, "--on", device.on, "--snapshots", "2", "--every", "1")


def test_profiler_server(commands: Commands, device: Device) -> None:
    """Another process captures the running kernel through JAX's profiler server."""
    port, captures = free_port(), device.logs / "served"
    words = ("profile", "-C", str(device.contest("attention")), "--on", device.on, "--serve", str(port))
    until = time.monotonic() + commands.begin(words, STEP_SECONDS)
    printed, complaints = device.logs / "served.stdout", device.logs / "served.stderr"
    with started(words, device.contests, printed, complaints) as server:
        while not _captured(commands, port, captures):
            if server.poll() is not None or time.monotonic() > until:
                commands.fail(f"no capture with operations: {complaints.read_text(errors='replace').strip()[-400:]}")
            time.sleep(1)
    commands.note("shown", "another process captured it, with operations")


@pytest.mark.parametrize("name", [*scaffold.templates(), *(f"{name}-champion" for name in examples())])
def test_kernel(commands: Commands, device: Device, record_property: Note, name: str) -> None:
    """The kernel is right, and timed on the device."""
    folder = _contest_of_chip(device, name)
    evidence = commands.document("judge", "-C", str(folder), "--on", device.on, limit=KERNEL_SECONDS)["evidence"]
    latency, simulation = evidence["latency"] or {}, evidence["simulation"] or {}
    for field, value in (
        ("measured_seconds", latency.get("seconds")),
        ("plus_minus_seconds", latency.get("plus_minus_seconds")),
        ("simulated_seconds", simulation.get("seconds")),
    ):
        if value is not None:
            record_property(field, value)
    record_property("problem", evidence["problem"]["title"])
    if failure := evidence["failure"]:
        commands.fail(f"{failure['kind']}: {failure['message']}")
    if latency.get("seconds") is None:
        commands.fail(f"no latency: {'; '.join(latency.get('reasons', ()))}")
    commands.note("shown", f"{1e6 * latency['seconds']:,.1f} us {latency['source']}")


def _profiled(device: Device, mode: str) -> Path:
    """A copy of the contest for each mode, so that what is read is what was captured."""
    return device.copy(device.contest("attention"), f"attention-{mode.lower()}")


def _contest_of_chip(device: Device, name: str) -> Path:
    """The folder of a template's contest or of a copied example. Skips the test if it is not for the device."""
    example = name.removesuffix("-champion")
    if device.on == "cpu" and name not in ON_A_CPU:
        pytest.skip("on a CPU, small kernels stand for all")
    if example != name:
        folder = device.copy(PACKAGE.parent / "examples" / example, name)
    else:
        try:
            folder = device.contest(name)
        except RatchetError as error:
            pytest.skip(f"default sizes or types are not for {device.chip}: {error}")
    contest = contests.load(folder)
    if contest.chip.name != device.chip:
        pytest.skip(f"not for {device.chip}")
    if isinstance(contest.problem, Suite):
        pytest.skip("a suite is several kernels, each of which has a test")
    return folder


def _captured(commands: Commands, port: int, captures: Path) -> bool:
    """True if JAX's own client gets a capture with operations: a server that waits for the kernel answers too."""
    client = subprocess.Popen(
        (
            sys.executable,
            "-P",
            "-m",
            "jax.collect_profile",
            str(port),
            "500",
            "--log_dir",
            str(captures),
            "--no_perfetto_link",
        ),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    waited(client, _CAPTURE_SECONDS)
    if commands.has_operations(captures):
        return True
    shutil.rmtree(captures, ignore_errors=True)
    return False
