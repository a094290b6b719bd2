"""Runs the ratchet's command lines for tests on a device: time limits, logs, the contents of documents."""

import json
import os
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn

import pytest

from harness.contest import PACKAGE
from harness.files import write_atomically
from harness.loop import scaffold

Document = dict[str, Any]
# The facts that a test notes next to its outcome, by name: `record_property`.
Note = Callable[[str, object], None]

STEP_SECONDS, KERNEL_SECONDS = 180.0, 300.0
# Sizes that a CPU computes in seconds, if it replaces the chip to try the tests themselves.
ON_A_CPU = {
    "attention": (("SEQUENCE", "512"),),
    "matmul": (("M", "512"), ("N", "512"), ("K", "512")),
    "rmsnorm": (("ROWS", "256"), ("COLUMNS", "256")),
}
_IDENTITY = {
    f"GIT_{who}_{what}": value
    for who in ("AUTHOR", "COMMITTER")
    for what, value in (("NAME", "device tests"), ("EMAIL", "device-tests@localhost"))
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Device:
    """The device that runs kernels (`tpu`, or `cpu` in its place), its chip, folders, and the deadline.

    `deadline` is on the monotonic clock, in seconds: commands that would begin after it are skipped.
    """

    on: str
    chip: str
    contests: Path
    logs: Path
    deadline: float

    def contest(self, template: str) -> Path:
        """The folder of a contest made from a template for the chip, made once. Raises RatchetError."""
        folder = self.contests / template
        if not folder.is_dir():
            sizes = ON_A_CPU.get(template, ()) if self.on == "cpu" else ()
            scaffold.scaffold(folder, template, (*sizes, ("CHIP", repr(self.chip))))
        return folder

    def copy(self, contest: Path, name: str) -> Path:
        """A contest's files in another folder, made once, without its records and captures."""
        into = self.contests / name
        into.mkdir(exist_ok=True)
        for path in contest.glob("*.py"):
            write_atomically(into / path.name, path.read_bytes())
        return into

    def commit(self) -> None:
        """Makes the folder of contests a repository with all that is in it."""
        for words in (("init", "--quiet"), ("add", "--all"), ("commit", "--quiet", "--message", "contests")):
            subprocess.run(["git", "-C", self.contests, *words], env=os.environ | _IDENTITY, check=True)


@dataclass(frozen=True, slots=True, kw_only=True)
class Commands:
    """The command lines of one test; each command and its findings are noted for the page of `validate`."""

    device: Device
    note: Note
    name: str

    def begin(self, words: tuple[str, ...], limit: float) -> float:
        """The seconds that a command may take; notes the command. Skips the test if no time is left."""
        shown = f"./ratchet.sh {shlex.join(words)}".replace(str(self.device.contests), ".")
        self.note("command", shown)
        self.note("limit_seconds", limit)
        left = min(limit, self.device.deadline - time.monotonic())
        if left <= 0:
            self.note("outcome", "not run")
            pytest.skip("the time is over")
        return left

    def document(self, *words: str, limit: float = STEP_SECONDS) -> Document:
        """The document that a command line prints. Fails the test without one, with an error, and past the limit."""
        left = self.begin(words, limit)
        quiet = () if words[0] == "xprof" else ("--quiet",)
        printed, complaints, has_ended = self.output((*words, "--json", *quiet), left)
        if not has_ended:
            self.note("outcome", "timed out")
            self.fail(f"ended after {left:.0f} s")
        try:
            document = json.loads(printed)
        except ValueError:
            self.fail(f"no document, but: {(complaints or printed).strip()[-400:]}")
        if "error" in document:
            self.fail(f"{document['error']['message']} [{document['error']['kind']}]")
        return dict(document)

    def rows(self, *words: str) -> int:
        """The number of rows in the first table that a command line prints. Fails the test if it is empty."""
        table = self.document(*words)["tables"][0]
        if not table["rows"]:
            self.fail(table["why_empty"] or f"no {table['name']}")
        self.note("shown", f"{len(table['rows'])} {table['name']}")
        return len(table["rows"])

    def has_operations(self, captures: Path) -> bool:
        """True if captures below a folder have operations: a capture of a server that waits for its kernel has none."""
        if not any(path.stat().st_size for path in captures.rglob("*.xplane.pb")):
            return False
        printed, _, _ = self.output(("xprof", "ops", str(captures), "--json"), STEP_SECONDS)
        try:
            return bool(json.loads(printed)["tables"][0]["rows"])
        except (ValueError, LookupError, TypeError):
            return False

    def output(self, words: tuple[str, ...], limit: float) -> tuple[str, str, bool]:
        """Both streams of a command line, which are kept as files, and whether it ended before the limit."""
        place = self.device.logs / f"{len(list(self.device.logs.iterdir())):02}-{self.name}"
        stdout, stderr = place.with_suffix(".json"), place.with_suffix(".stderr")
        with started(words, self.device.contests, stdout, stderr) as process:
            has_ended = waited(process, limit)
        printed, complaints = (path.read_text(encoding="utf-8", errors="replace") for path in (stdout, stderr))
        return printed, complaints, has_ended

    def fail(self, why: str) -> NoReturn:
        """Fails the test with a sentence that holds no folder of this machine."""
        pytest.fail(why.replace(str(self.device.contests), "."), pytrace=False)


@contextmanager
def started(words: tuple[str, ...], folder: Path, stdout: Path, stderr: Path) -> Iterator["subprocess.Popen[bytes]"]:
    """Runs a command line of the ratchet in `folder`; when the block ends, ends the command and all that it started."""
    with stdout.open("wb") as out, stderr.open("wb") as complaints:
        process = subprocess.Popen(
            (sys.executable, "-P", "-m", "harness", *words),
            cwd=folder,
            env=os.environ | _IDENTITY,
            stdout=out,
            stderr=complaints,
            stdin=subprocess.DEVNULL,
            start_new_session=True,
        )
        try:
            yield process
        finally:
            end(process)


def waited(process: "subprocess.Popen[bytes]", limit: float) -> bool:
    """True if a process ended by itself within `limit` seconds; it is ended in any case, with what it started."""
    try:
        process.wait(limit)
    except subprocess.TimeoutExpired:
        return False
    finally:
        end(process)
    return True


def end(process: "subprocess.Popen[bytes]") -> None:
    """Ends a process and all that it started: they form a process group."""
    # The second signal is for processes that outlive the first one.
    for sign in (signal.SIGINT, signal.SIGKILL):
        with suppress(ProcessLookupError, subprocess.TimeoutExpired):
            os.killpg(process.pid, sign)
            process.wait(20)


def no_gain(verdict: Document) -> tuple[str, bool]:
    """The outcome of an A/A control, and whether it holds: the same program must not improve, and must not fail."""
    low, ratio, high = (verdict[name] for name in ("time_ratio_low", "time_ratio", "time_ratio_high"))
    shown = f"{verdict['outcome']}: {'; '.join(verdict['reasons'])}"
    if ratio is not None and low is not None and high is not None:
        shown = f"{verdict['outcome']}, time x{ratio:.4f}, from x{low:.4f} to x{high:.4f}"
    return shown, verdict["outcome"] in ("reject", "inconclusive")


def examples() -> tuple[str, ...]:
    """The names of the examples."""
    return tuple(path.parent.name for path in sorted((PACKAGE.parent / "examples").glob("*/prepare.py")))
