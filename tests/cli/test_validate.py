"""`validate`: the tests of a device on the CPU of this machine, and the page that is made of their report."""

import subprocess
import sys
import tarfile
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
import verb_examples
from capture_examples import empty_run, one_device_run, truncated_run
from command_line import Shell
from device_commands import Commands, Device, no_gain, waited

from harness.errors import RatchetError
from harness.records.validation import MeasuredKernel, Validation
from harness.render.sections import screen
from harness.render.validation import validation_blocks
from harness.verbs.parts import validate as made

pytestmark = pytest.mark.long


def validation(*kernels: MeasuredKernel) -> Validation:
    return replace(verb_examples.validation(), kernels=kernels)


def kernel(name: str, measured: float | None, simulated: float | None) -> MeasuredKernel:
    return MeasuredKernel(
        name=name, problem="a problem", measured_seconds=measured, plus_minus_seconds=1e-6, simulated_seconds=simulated
    )


def test_the_simulators_error_is_of_the_kernels_that_have_both_times() -> None:
    result = validation(kernel("a", 1e-3, 1.1e-3), kernel("b", 2e-3, 1.9e-3), kernel("c", None, 1e-3))
    text = screen(validation_blocks(result), 100)
    assert "median 7.5%, worst 10.0%, of 2 kernels" in text
    assert "+10.0%" in text
    assert "-5.0%" in text
    assert "1 not held" in text
    assert "is unknown" in screen(validation_blocks(validation(kernel("c", None, 1e-3))), 100)


@pytest.mark.parametrize(
    ("outcome", "expected"), [("reject", True), ("inconclusive", True), ("accept", False), ("failed", False)]
)
def test_an_improvement_of_the_same_program_is_not_what_was_to_be_shown(outcome: str, expected: bool) -> None:
    verdict = {"outcome": outcome, "reasons": [], "time_ratio": 0.9, "time_ratio_low": 0.8, "time_ratio_high": 1.1}
    shown, holds = no_gain(verdict)
    assert "x0.9000, from x0.8000 to x1.1000" in shown
    assert holds == expected


def test_a_step_that_goes_on_is_ended_with_what_it_started(tmp_path: Path) -> None:
    sleeping = "import subprocess, sys; subprocess.run([sys.executable, '-c', 'import time; time.sleep(99)'])"
    process = subprocess.Popen([sys.executable, "-c", sleeping], start_new_session=True)
    assert not waited(process, 1.0)
    # It was ended by a signal, not because its sleep was over.
    assert process.returncode != 0


@pytest.mark.parametrize("limit", [1.0, 20.0])
def test_what_outlives_a_step_is_ended_too(limit: float) -> None:
    ignoring = "import signal, time; signal.signal(signal.SIGINT, signal.SIG_IGN); print(flush=True); time.sleep(99)"
    starting = (
        "import subprocess, sys, time; "
        f"child = subprocess.Popen([sys.executable, '-c', {ignoring!r}], stdout=subprocess.PIPE); "
        "child.stdout.readline(); print(child.pid, flush=True); "
        f"time.sleep({99 if limit < 2 else 0})"
    )
    process = subprocess.Popen([sys.executable, "-c", starting], stdout=subprocess.PIPE, start_new_session=True)
    assert process.stdout is not None
    with process.stdout as printed:
        child = int(printed.readline())
    assert waited(process, limit) == (limit > 2)
    deadline = time.monotonic() + 10
    while (state := _state(child)) not in ("", "Z") and time.monotonic() < deadline:
        time.sleep(0.05)
    assert state in ("", "Z")


def _state(number: int) -> str:
    """The state of a process in Linux's words; "" if there is none."""
    try:
        return Path(f"/proc/{number}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()[0]
    except OSError:
        return ""


@pytest.mark.parametrize(
    ("write", "has_operations"), [(one_device_run, True), (empty_run, False), (truncated_run, False)]
)
def test_a_capture_without_operations_is_not_the_kernels(
    write: Callable[[Path], Path], has_operations: bool, tmp_path: Path
) -> None:
    write(tmp_path / "captured")
    assert commands(tmp_path).has_operations(tmp_path / "captured") == has_operations


def commands(folder: Path) -> Commands:
    (folder / "logs").mkdir()
    device = Device(on="cpu", chip="v5e", contests=folder, logs=folder / "logs", deadline=time.monotonic() + 60)
    return Commands(device=device, note=lambda name, value: None, name="example")


def test_a_command_that_fails_fails_its_test_with_its_message(tmp_path: Path) -> None:
    with pytest.raises(pytest.fail.Exception, match=r"\[no-contest\]"):
        commands(tmp_path).document("results")


REPORT = """<testsuites><testsuite>
<testcase name="test_machine" time="2.5"><properties><property name="shows" value="it is fit"/>
  <property name="command" value="./ratchet.sh doctor"/><property name="limit_seconds" value="180.0"/></properties>
  <failure message="Failed: libtpu: missing">trace</failure></testcase>
<testcase name="test_kernel[matmul]" time="9"><properties><property name="command" value="./ratchet.sh judge"/>
  <property name="problem" value="a matmul"/><property name="measured_seconds" value="0.001"/>
  <property name="shown" value="1,000.0 us measured"/></properties></testcase>
<testcase name="test_snapshots" time="0"><properties><property name="command" value="./ratchet.sh profile"/>
  <property name="outcome" value="not run"/></properties><skipped message="the time is over"/></testcase>
<testcase name="test_kernel[paged]" time="0"><skipped message="not for v5e"/></testcase>
<testcase name="test_lines[DEEP]" time="1"><error message="the fixture broke"/></testcase>
</testsuite></testsuites>"""


def test_a_report_of_the_tests_becomes_steps_and_kernels(tmp_path: Path) -> None:
    report = tmp_path / "steps.xml"
    report.write_text(REPORT, encoding="utf-8")
    steps, kernels = made._read(report)
    assert [(step.name, step.outcome, step.found) for step in steps] == [
        ("machine", "not held", "libtpu: missing"),
        ("kernel matmul", "held", "1,000.0 us measured"),
        ("snapshots", "not run", "the time is over"),
        ("lines DEEP", "not held", "the fixture broke"),
    ]
    assert steps[0].limit_seconds == 180
    (timed,) = kernels
    assert (timed.name, timed.measured_seconds, timed.simulated_seconds) == ("matmul", 1e-3, None)


def test_no_report_is_no_page(tmp_path: Path) -> None:
    with pytest.raises(RatchetError, match="none did"):
        made._read(tmp_path / "steps.xml")


def test_what_there_is_no_time_for_is_said_not_to_be_run(tmp_path: Path, shell: Shell) -> None:
    out = tmp_path / "found"
    document = shell.document("validate", "--on", "cpu", "--minutes", "0.0001", "--out", out, code=1)
    assert {step["outcome"] for step in document["steps"]} == {"not run"}
    assert document["kernels"] == []
    assert "no kernel" not in (tmp_path / "found.md").read_text(encoding="utf-8")
    with tarfile.open(tmp_path / "found.tar.gz") as archive:
        assert "logs/validate.md" in archive.getnames()


def test_without_a_tpu_it_says_so(shell: Shell) -> None:
    complaint = shell.complaint("validate", "--quiet", code=4)
    assert "JAX sees none; --on cpu tries the command itself [no-device]" in complaint


@pytest.mark.slow
def test_everything_holds_on_a_cpu(tmp_path: Path, shell: Shell) -> None:
    out = tmp_path / "found"
    document = shell.document("validate", "--on", "cpu", "--minutes", "15", "--out", out, code=(0, 1))
    broken = {step["name"]: step["found"] for step in document["steps"] if step["outcome"] != "held"}
    assert broken == {}
    assert {timed["name"] for timed in document["kernels"]} == {"attention", "matmul", "rmsnorm"}
    assert all(timed["measured_seconds"] and timed["simulated_seconds"] for timed in document["kernels"])
    with tarfile.open(tmp_path / "found.tar.gz") as archive:
        assert any(name.endswith(".xplane.pb") for name in archive.getnames())
