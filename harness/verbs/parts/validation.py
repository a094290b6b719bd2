"""What `validate` does: tries everything that a device is needed for, and writes a page and an archive of it."""

import platform
import tarfile
import time
from argparse import Namespace
from datetime import UTC, datetime
from pathlib import Path
from tempfile import TemporaryDirectory

from harness.errors import RatchetError, UsageError
from harness.files import write_atomically
from harness.hardware import DEFAULT_CHIP, Chip, chip, chip_of_device
from harness.judge.evaluate.evaluation import environment
from harness.judge.evaluate.timing.device import attached
from harness.records.validation import Validation
from harness.render.layout import terminal_width
from harness.render.validation import page, validation_text
from harness.shell.arguments import directory
from harness.shell.verb import Outcome
from harness.verbs.parts.given import progress_of
from harness.verbs.parts.validate_steps import Run

# Captures above this size stay out of the archive, which somebody is to send.
_MOST_BYTES = 64 << 20


def validate(given: Namespace) -> Outcome:
    target, device = _target(given)
    on = given.on or "tpu"
    out = (given.out or directory(None) / f"validate-{target.name}{'-on-cpu' if on == 'cpu' else ''}").resolve()
    began, started = time.monotonic(), datetime.now(UTC).isoformat(timespec="seconds")
    with TemporaryDirectory(prefix="ratchet-validate-") as scratch, progress_of(given) as shown:
        run = Run(Path(scratch), target, on, began + 60 * given.minutes, shown)
        run.steps()
        found = Validation(
            chip=target.name, source="measured cpu" if on == "cpu" else "measured", device=device,
            versions=_versions(), started=started, seconds=time.monotonic() - began, minutes=given.minutes,
            steps=tuple(run.done), kernels=tuple(run.kernels), archive=f"{out.name}.tar.gz",
        )  # fmt: skip
        text = page(found).encode()
        write_atomically(run.logs / "validate.md", text)
        write_atomically(out.with_name(f"{out.name}.md"), text)
        _pack(Path(scratch), out.with_name(found.archive))
    held = all(step.outcome == "held" for step in found.steps)
    return Outcome(document=found, text=lambda: validation_text(found, terminal_width()), exit_code=0 if held else 1)


def _target(given: Namespace) -> tuple[Chip, str]:
    """The chip that kernels are for, and the device that runs them. Raises RatchetError `no-device`."""
    if given.on == "cpu":
        processor = platform.processor() or platform.machine()
        return chip(given.chip or DEFAULT_CHIP), f"the CPU of this machine ({processor})"
    found = attached("tpu")
    target = chip_of_device(found.kind) if found else None
    if found is None or target is None:
        raise RatchetError(
            "no-device",
            f"expected a TPU, JAX sees {f'a {found.kind}' if found else 'none'}; --on cpu tries the command itself",
        )
    if given.chip and chip(given.chip) != target:
        raise UsageError("usage", f"expected --chip {target.name}, which is here, got {given.chip}")
    return target, found.kind


def _versions() -> str:
    here = environment()
    return f"jax {here.jax}, libtpu {here.libtpu or 'none'}, Python {here.python}, {platform.platform()}"


def _pack(scratch: Path, archive: Path) -> None:
    """Logs, documents and captures as one file; whole or not at all."""
    partial = archive.with_name(archive.name + ".partial")
    with tarfile.open(partial, "w:gz") as stream:
        for path in sorted(scratch.rglob("*")):
            inside = path.relative_to(scratch)
            wanted = inside.parts[0] == "logs" or "plugins" in inside.parts or inside.suffix == ".py"
            if wanted and path.is_file() and not path.is_symlink() and path.stat().st_size <= _MOST_BYTES:
                stream.add(path, inside.as_posix(), filter=_nobodys)
    partial.replace(archive)


def _nobodys(member: tarfile.TarInfo) -> tarfile.TarInfo:
    """Without whose file it is."""
    member.uid = member.gid = 0
    member.uname = member.gname = ""
    return member
