"""The verb `profile`, with real processes: kernel.py captured on the CPU, through JAX's server, and in snapshots."""

import hashlib
import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import analyses
import pytest
from loop_fixtures import PROJECT, ratchet
from screen_examples import line
from xprof.convert import _pywrap_profiler_plugin

from harness import contest as contests
from harness.candidate import Candidate
from harness.errors import RatchetError
from harness.loop.exported import exported
from harness.loop.scaffold import scaffold
from harness.records import Policy
from harness.shell.main import main
from harness.verbs.parts.profile import session_label
from harness.workbench.capture import capturing
from harness.workbench.capture.capturing import CapturedKernel
from harness.workbench.capture.messages import StepsWindow
from harness.workbench.capture.profile_server import free_port, require_free, serving, snapshots
from harness.workbench.profiles import conversion, places, reading

pytestmark = pytest.mark.long

BROKEN = "def kernel_fn(q, k, v):\n    return q\n"


def kernel(folder: Path) -> CapturedKernel:
    """kernel.py of the contest in `folder`, to be run on the CPU."""
    contest = contests.load(folder)
    return CapturedKernel(
        contest=folder,
        candidate=contest.candidate(),
        problem=contest.member(None).problem,
        chip=contest.chip,
        source="measured cpu",
        policy=Policy(),
    )


def silent(stage: str, state: str, seconds: float) -> None:
    """No progress."""


@pytest.fixture(scope="module")
def contest(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A contest that is small enough to be captured quickly; no repository."""
    folder = tmp_path_factory.mktemp("contest")
    scaffold(folder, "attention", (("SEQUENCE", "512"),))
    return folder


@pytest.fixture(scope="module")
def printed(contest: Path) -> dict[str, object]:
    """The output of `profile --json`, after it captured two calls."""
    done = ratchet(contest, "profile", "--calls", "2", "--warmup", "1", "--json", expect=0)
    assert "kernel.py runs on the CPU, whose times say nothing about a TPU" in done.stderr
    (table,) = json.loads(done.stdout)["tables"]
    assert isinstance(table, dict)
    return table


def test_a_capture_of_kernel_py_is_where_xprof_looks_and_is_read_again(
    contest: Path, printed: dict[str, object]
) -> None:
    assert printed["origin"] == "measured cpu"
    assert isinstance(printed["rows"], list)
    assert [row["call"] for row in printed["rows"]] == [0, 1]
    (place,) = places.runs(contest / "profile_data")
    assert place.name.startswith("kernel-profile-")
    assert any(str(place.paths[0]) in note for note in printed["notes"])  # type: ignore[attr-defined]
    capture = reading.read(place.paths)
    (device,) = capture.devices
    assert device.platform == "cpu"
    assert [step.name for step in device.steps] == ["kernel_step_0", "kernel_step_1"]
    for step, row in zip(device.steps, printed["rows"], strict=True):
        inside = [run for run in device.executions if step.start <= run.start <= step.end]
        assert inside
        # The host's time is taken inside the annotation.
        assert row["host_seconds"] <= step.seconds * 1.01 + 1e-6
    assert (contest / "profile_data" / "kernel.cpu.hlo.txt").read_text().startswith("HloModule")
    assert conversion.tool(place.paths, "overview_page")


def test_the_newest_capture_is_listed(
    contest: Path, printed: dict[str, object], capsys: pytest.CaptureFixture[str]
) -> None:
    (table,) = analyses.printed(capsys, "xprof", "list-runs", "-C", str(contest))
    assert {row["origin"] for row in table["rows"]} == {"measured cpu"}


def test_captures_come_through_jaxs_server_and_snapshots_of_a_cpu_are_said_to_be_missing(contest: Path) -> None:
    before = {place.name for place in places.runs(contest / "profile_data")}
    with exported(kernel(contest), 1, silent) as program, serving(program, free_port()) as served:
        with pytest.raises(RatchetError, match="cannot listen on port") as caught:
            require_free(int(served.address.rpartition(":")[2]))
        assert caught.value.kind == "port-in-use"
        logdir = str(contest / "profile_data")
        _pywrap_profiler_plugin.trace(served.address, logdir, "", True, 300, 3, {})
        (place,) = [place for place in places.runs(contest / "profile_data") if place.name not in before]
        (device,) = reading.read(place.paths).devices
        assert device.executions
        with pytest.raises(RatchetError, match="only a TPU's profiler") as caught:
            next(snapshots(served, 1, 0.01, lambda number: f"snapshot-{number}"))
        assert caught.value.kind == "no-snapshot"
    assert not (contest / "profile_data" / "plugins" / "profile" / "snapshot-0").exists()
    require_free(int(served.address.rpartition(":")[2]))


def test_a_window_of_steps_of_a_running_kernel_is_captured(contest: Path) -> None:
    logdir = str(contest / "profile_data")
    window = StepsWindow(
        first=3, last=5, mode="TRACE_COMPUTE", profile_directory=logdir, session="kernel-profile-window"
    )
    with exported(kernel(contest), 1, silent) as program, serving(program, free_port(), window) as served:
        folder = served.capture_folder()
    assert folder.name == "kernel-profile-window"
    (device,) = reading.read(tuple(folder.glob("*.xplane.pb"))).devices
    assert [step.step for step in device.steps] == [3, 4, 5]
    assert device.executions


@pytest.mark.slow
def test_a_served_kernel_stops_cleanly_at_ctrl_c(contest: Path) -> None:
    words = ["profile", "--serve", str(free_port()), "--warmup", "1", "--quiet"]
    process = subprocess.Popen(
        [sys.executable, "-m", "harness", *words],
        cwd=contest,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": PROJECT},
    )
    assert process.stdout is not None
    lines: list[str] = []
    while not lines or not lines[-1].startswith("Ctrl-C"):
        lines.append(process.stdout.readline())
    process.send_signal(signal.SIGINT)
    rest, _ = process.communicate(timeout=60)
    assert (process.returncode, rest) == (0, "stopped\n")
    assert lines[0].endswith(f"listens on localhost:{words[2]}\n")
    assert any("all interfaces" in line for line in lines)


def test_a_kernel_that_does_not_trace_is_a_known_error_and_leaves_no_capture(contest: Path, tmp_path: Path) -> None:
    scaffold(tmp_path, "attention", (("SEQUENCE", "512"),))
    (tmp_path / "kernel.py").write_text(BROKEN)
    with pytest.raises(RatchetError, match="trace: ") as caught, exported(kernel(tmp_path), 1, silent) as program:
        capturing.capture(program, label="kernel", mode="TRACE_COMPUTE", calls=1)
    assert caught.value.kind not in ("bug", "crash")
    assert places.runs(tmp_path / "profile_data") == ()


def test_a_capture_bears_the_number_of_the_newest_attempt_with_this_kernel() -> None:
    ours, other = hashlib.sha256(b"ours").hexdigest(), hashlib.sha256(b"other").hexdigest()
    rows = tuple(line(number, "", kernel_sha256=digest) for number, digest in enumerate((ours, ours, other), 1))
    assert session_label(Candidate(text=b"ours"), rows, "profile") == "0002-profile"
    assert session_label(Candidate(text=b"new"), rows, "profile") == "kernel-profile"


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["--mode", "NONSENSE"], "TRACE_COMPUTE_AND_SYNC"),
        (["--calls", "0"], "a whole number, 1 or more, got '0'"),
        (["--serve", "9999", "--snapshots", "2"], "leave --serve out"),
        (["--every", "nan"], "above 0, got nan"),
        (["--on", "tpu"], "JAX sees no TPU"),
    ],
)
def test_wrong_options_are_refused_before_anything_runs(
    words: list[str], sentence: str, contest: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["profile", "-C", str(contest), *words]) in (2, 4)
    assert sentence in capsys.readouterr().err
