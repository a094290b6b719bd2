"""The page and the archive of `validate`, made from the report of the device tests."""

import platform
import subprocess
import sys
import tarfile
import time
import xml.etree.ElementTree as xml
from argparse import Namespace
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import cast

from harness.errors import RatchetError, UsageError
from harness.files import write_atomically
from harness.hardware import DEFAULT_CHIP, Chip, chip, chip_of_device
from harness.judge.evaluate.evaluation import environment
from harness.judge.evaluate.timing.device import attached
from harness.records.validation import MeasuredKernel, StepOutcome, Validation, ValidationStep
from harness.render.validation import page, validation_blocks
from harness.shell.arguments import directory
from harness.shell.verb import Outcome
from harness.verbs.parts import project_tests

# Captures above this size stay out of the archive, which is meant to be sent.
_MOST_BYTES = 64 << 20


def run(arguments: Namespace) -> Outcome:
    (target, device), here = _target(arguments), environment()
    on = arguments.on or "tpu"
    out = (arguments.out or directory(None) / f"validate-{target.name}{'-on-cpu' if on == 'cpu' else ''}").resolve()
    began, started = time.monotonic(), datetime.now(UTC).isoformat(timespec="seconds")
    with TemporaryDirectory(prefix="ratchet-validate-") as folder:
        scratch = Path(folder)
        report = scratch / "steps.xml"
        options = [
            "tests/device",
            *["-m", "device", "-n", "0", "-v", "--tb", "no", "-rN", "--no-header", "-o", "junit_family=xunit1"],
        ]
        options += ["--on", on, "--chip", target.name, f"--minutes={arguments.minutes}"]
        options += [f"--basetemp={scratch / 'files'}", f"--junitxml={report}"]
        project_tests.run(options, subprocess.DEVNULL if arguments.quiet or arguments.json else sys.stderr.buffer)
        steps, kernels = _read(report)
        validation = Validation(
            chip=target.name,
            source="measured cpu" if on == "cpu" else "measured",
            device=device,
            versions=f"jax {here.jax}, libtpu {here.libtpu or 'none'}, Python {here.python}, {platform.platform()}",
            started=started,
            seconds=time.monotonic() - began,
            minutes=arguments.minutes,
            steps=tuple(steps),
            kernels=tuple(kernels),
            archive=f"{out.name}.tar.gz",
        )
        text = page(validation).encode()
        write_atomically(scratch / "files" / "logs" / "validate.md", text)
        write_atomically(out.with_name(f"{out.name}.md"), text)
        _pack(scratch / "files", out.with_name(validation.archive))
    code = 0 if all(step.outcome == "held" for step in validation.steps) else 1
    return Outcome(document=validation, text=lambda: validation_blocks(validation), exit_code=code)


def _target(arguments: Namespace) -> tuple[Chip, str]:
    """The chip that kernels are for, and the device that runs them.

    Raises RatchetError `no-device`, UsageError `usage`.
    """
    if arguments.on == "cpu":
        processor = platform.processor() or platform.machine()
        return chip(arguments.chip or DEFAULT_CHIP), f"the CPU of this machine ({processor})"
    device = attached("tpu")
    target = chip_of_device(device.kind) if device else None
    if device is None or target is None:
        raise RatchetError(
            "no-device",
            f"expected a TPU of a known kind, JAX sees {f'a {device.kind}' if device else 'none'}; --on cpu tries the "
            "command itself",
        )
    if arguments.chip and chip(arguments.chip) != target:
        raise UsageError("usage", f"expected --chip {target.name}, which is here, got {arguments.chip}")
    return target, device.kind


def _read(report: Path) -> tuple[list[ValidationStep], list[MeasuredKernel]]:
    """The steps in a JUnit report, and the kernels that they timed. Raises RatchetError `no-steps` if there are none.

    A test that is skipped before it notes a command is for another device and does not count as a step.
    """
    steps, kernels = [], []
    for case in xml.parse(report).iter("testcase") if report.is_file() else ():
        notes = {note.get("name", ""): note.get("value", "") for note in case.iter("property")}
        name = case.get("name", "").removeprefix("test_").replace("_", " ").replace("[", " ").rstrip("]")
        if "command" not in notes and case.find("error") is None:
            continue
        steps.append(_step(name, case, notes))
        if "problem" in notes:
            seconds = {
                field: float(notes[field]) if field in notes else None
                for field in ("measured_seconds", "plus_minus_seconds", "simulated_seconds")
            }
            kernels.append(MeasuredKernel(name=name.removeprefix("kernel "), problem=notes["problem"], **seconds))
    if not steps:
        raise RatchetError("no-steps", "expected device tests to run, none did: ./ratchet.sh test -m device says why")
    return steps, kernels


def _step(name: str, case: xml.Element, notes: Mapping[str, str]) -> ValidationStep:
    failures = [*case.iter("failure"), *case.iter("error")]
    message = failures[0].get("message", "") if failures else notes.get("shown", "the time is over")
    return ValidationStep(
        name=name,
        shows=notes.get("shows", ""),
        command=notes.get("command", ""),
        outcome=cast(StepOutcome, notes.get("outcome", "not held" if failures else "held")),
        seconds=float(case.get("time", 0)),
        limit_seconds=float(notes.get("limit_seconds", 0)),
        found=message.removeprefix("Failed: "),
    )


def _pack(scratch: Path, archive: Path) -> None:
    """Packs logs, captures and kernels into one file, which appears whole or not at all."""
    partial = archive.with_name(archive.name + ".partial")
    with tarfile.open(partial, "w:gz") as stream:
        for path, inside in _wanted(scratch):
            stream.add(path, inside.as_posix(), filter=_nobodys)
    partial.replace(archive)


def _wanted(scratch: Path) -> Iterator[tuple[Path, Path]]:
    for path in sorted(scratch.rglob("*")):
        inside = path.relative_to(scratch)
        is_wanted = inside.parts[0] == "logs" or "plugins" in inside.parts or inside.suffix == ".py"
        if is_wanted and path.is_file() and not path.is_symlink() and path.stat().st_size <= _MOST_BYTES:
            yield path, inside


def _nobodys(member: tarfile.TarInfo) -> tarfile.TarInfo:
    """The member without its owner."""
    member.uid = member.gid = 0
    member.uname = member.gname = ""
    return member
