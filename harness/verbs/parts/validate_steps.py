"""The steps of `validate`: each a command line of the ratchet's in a process of its own, ended at its limit."""

import json
import os
import shlex
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from harness import contest as contests
from harness.contest import PACKAGE
from harness.errors import RatchetError
from harness.files import write_atomically
from harness.hardware import Chip
from harness.loop import scaffold
from harness.operators import Suite
from harness.records.validation import MeasuredKernel, StepOutcome, ValidationStep
from harness.render.progress import Progress
from harness.workbench.capture.profile_server import free_port

# A CPU stands in for the chip to try the command itself: sizes that it computes in seconds.
_ON_A_CPU = {
    "attention": (("SEQUENCE", "512"),),
    "matmul": (("M", "512"), ("N", "512"), ("K", "512")),
    "rmsnorm": (("ROWS", "256"), ("COLUMNS", "256")),
}
_KERNEL_SECONDS, _STEP_SECONDS, _CAPTURE_SECONDS = 300.0, 180.0, 20.0
_IDENTITY = {
    f"GIT_{who}_{what}": value
    for who in ("AUTHOR", "COMMITTER")
    for what, value in (("NAME", "validate"), ("EMAIL", "validate@localhost"))
}
_Document = dict[str, Any]


class _NotHeldError(Exception):
    """What a step was to show was not there; the message says what was."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Step:
    """A command line of the ratchet's, and what its document says: a sentence, or _NotHeldError."""

    name: str
    shows: str
    words: tuple[str, ...]
    read: Callable[[_Document], str]
    limit_seconds: float = _STEP_SECONDS
    before: Callable[[], None] = lambda: None


class Run:
    """The steps, one after the other, each whether or not those before it held; files go below `scratch`."""

    def __init__(self, scratch: Path, target: Chip, on: str, deadline: float, progress: Progress) -> None:
        self._scratch, self._target, self._on = scratch, target, on
        self._deadline, self._progress = deadline, progress
        self.logs = scratch / "logs"
        self.logs.mkdir()
        self._top = scratch / "contests"
        self._top.mkdir()
        self.done: list[ValidationStep] = []
        self.kernels: list[MeasuredKernel] = []

    def steps(self) -> None:
        """All of them; the first kernels come early, so that little time shows something of everything."""
        folders = list(self._contests())
        first = folders[0]
        for words in (("init", "--quiet"), ("add", "--all"), ("commit", "--quiet", "--message", "contests")):
            _git(self._top, *words)
        on = ("--on", self._on)
        self._take(_Step(name="machine", shows="what is installed and attached", words=("doctor",), read=_machine))
        self._take(self._kernel(first))
        self._take(
            _Step(
                name="attempt", shows="an attempt is timed on the device and accepted as the first champion",
                words=("-C", str(first), "experiment: baseline", *on), read=self._accepted,
                limit_seconds=_KERNEL_SECONDS,
            ),
            _Step(
                name="A/A control", shows="the same program again is no improvement",
                words=("-C", str(first), "experiment: the same program, an A/A control", "--again", *on),
                read=_no_gain, limit_seconds=_KERNEL_SECONDS, before=lambda: _comment(first / "kernel.py"),
            ),
        )  # fmt: skip
        for name, mode in (("capture", "TRACE_COMPUTE"), ("deep capture", "TRACE_COMPUTE_AND_SYNC")):
            # In a folder of its own, so that what is read is what was captured.
            where = _copy(first, first.with_name(f"{first.name}-{mode.lower()}"))
            self._take(
                _Step(
                    name=name, shows=f"a capture of three calls with {mode}",
                    words=("profile", "-C", str(where), *on, "--mode", mode, "--calls", "3"), read=_captured,
                ),
                _Step(
                    name=f"{name}: operations", shows="the operations of the kernel, with their times",
                    words=("xprof", "ops", str(where / "profile_data")), read=_rows("operations"),
                ),
                _Step(
                    name=f"{name}: lines", shows="times of single source lines inside the kernel",
                    words=("xprof", "lines", str(where / "profile_data")), read=_rows("lines"),
                ),
            )  # fmt: skip
        # A CPU's profiler keeps no history to take them from.
        if self._on != "cpu":
            self._take(
                _Step(
                    name="snapshots", shows="snapshots of the running kernel from the profiler's history",
                    words=("profile", "-C", str(first), *on, "--snapshots", "2", "--every", "1"), read=_captured,
                )
            )  # fmt: skip
        self._served(first)
        for folder in folders[1:]:
            self._take(self._kernel(folder))

    def _contests(self) -> Iterator[Path]:
        """A contest for every template, made for the chip, and a copy of every example of the chip."""
        for name in _ON_A_CPU if self._on == "cpu" else scaffold.templates():
            sizes = _ON_A_CPU[name] if self._on == "cpu" else ()
            try:
                scaffold.scaffold(self._top / name, name, (*sizes, ("CHIP", repr(self._target.name))))
            except RatchetError:
                # A template whose default sizes or types are not for this chip.
                continue
            if not isinstance(contests.load(self._top / name).problem, Suite):
                yield self._top / name
        for folder in sorted((PACKAGE.parent / "examples").glob("*")) if self._on != "cpu" else ():
            if not (folder / "prepare.py").is_file():
                continue
            contest = contests.load(folder)
            if contest.chip != self._target or isinstance(contest.problem, Suite):
                continue
            yield _copy(folder, self._top / f"{folder.name}-champion")

    def _kernel(self, folder: Path) -> _Step:
        def read(document: _Document) -> str:
            evidence = document["evidence"]
            latency, simulation = evidence["latency"] or {}, evidence["simulation"] or {}
            kernel = MeasuredKernel(
                name=folder.name, problem=evidence["problem"]["title"], measured_seconds=latency.get("seconds"),
                plus_minus_seconds=latency.get("plus_minus_seconds"), simulated_seconds=simulation.get("seconds"),
            )  # fmt: skip
            self.kernels.append(kernel)
            if failure := evidence["failure"]:
                raise _NotHeldError(f"{failure['kind']}: {failure['message']}")
            if kernel.measured_seconds is None:
                raise _NotHeldError(f"no latency: {'; '.join(latency.get('reasons', ()))}")
            return f"{1e6 * kernel.measured_seconds:,.1f} us {latency['source']}"

        return _Step(
            name=f"kernel {folder.name}", shows="it is right, and timed on the device",
            words=("judge", "-C", str(folder), "--on", self._on), read=read, limit_seconds=_KERNEL_SECONDS,
        )  # fmt: skip

    def _accepted(self, document: _Document) -> str:
        attempt = document["attempt"]
        latency = attempt["evidence"]["latency"] or {}
        source = "measured cpu" if self._on == "cpu" else "measured"
        if attempt["verdict"]["outcome"] != "accept" or latency.get("source") != source:
            raise _NotHeldError("; ".join(attempt["verdict"]["reasons"]))
        return "; ".join(attempt["verdict"]["reasons"])

    def _take(self, *steps: _Step) -> None:
        for step in steps:
            quiet = () if step.words[0] == "xprof" else ("--quiet",)
            command = (sys.executable, "-P", "-m", "harness", *step.words, "--json", *quiet)
            shown = _shown(step.words, self._scratch)
            if (left := self._left(step.limit_seconds)) <= 0:
                self._note(step, shown, "not run", 0.0, "the time that was given is over")
                continue
            began = time.monotonic()
            step.before()
            with self._shown(step.name):
                printed, complained, is_over = self._output(command, left, step.name)
            outcome: StepOutcome = "timed out"
            found = f"ended after {left:.0f} s"
            try:
                if not is_over:
                    outcome, found = "held", _answer(step, printed)
            except _NotHeldError as error:
                outcome, found = "not held", str(error)
            except (ValueError, LookupError, TypeError):
                outcome, found = "not held", f"no document, but: {(complained or printed).strip()[-400:]}"
            self._note(step, shown, outcome, time.monotonic() - began, found)

    def _output(self, command: tuple[str, ...], limit: float, name: str) -> tuple[str, str, bool]:
        """What it prints on each stream, which are kept, and whether it had to be ended, with all it had started."""
        place = self.logs / f"{len(self.done):02}-{name.replace(' ', '-').replace(':', '').replace('/', '')}"
        stdout, stderr = place.with_suffix(".json"), place.with_suffix(".stderr")
        with stdout.open("wb") as out, stderr.open("wb") as complaints:
            process = subprocess.Popen(
                command, cwd=self._top, env=os.environ | _IDENTITY, stdout=out, stderr=complaints,
                stdin=subprocess.DEVNULL, start_new_session=True,
            )  # fmt: skip
            is_over = not _ended(process, limit)
        printed, complained = (path.read_text(encoding="utf-8", errors="replace") for path in (stdout, stderr))
        return printed, complained, is_over

    def _served(self, folder: Path) -> None:
        """A capture that another process takes through the profiler's server, while the kernel runs."""
        port, log = free_port(), self.logs / "served"
        words = ("profile", "-C", str(folder), "--on", self._on, "--serve", str(port))
        step = _Step(
            name="profiler server", shows="a capture through JAX's profiler server, of the running kernel",
            words=words, read=lambda _: "",
        )  # fmt: skip
        shown = _shown(words, self._scratch)
        if (left := self._left(step.limit_seconds)) <= 0:
            self._note(step, shown, "not run", 0.0, "the time that was given is over")
            return
        began = time.monotonic()
        with self._shown(step.name), (self.logs / "served.stderr").open("wb") as complaints:
            server = subprocess.Popen(
                (sys.executable, "-P", "-m", "harness", *words), cwd=self._top, stdin=subprocess.DEVNULL,
                stdout=complaints, stderr=complaints, start_new_session=True,
            )  # fmt: skip
            try:
                is_there = _captured_from(server, port, log, began + left, partial(self._has_operations, log))
            finally:
                _end(server)
        taken = time.monotonic() - began
        if is_there:
            self._note(step, shown, "held", taken, "another process captured it, with operations")
        else:
            said = (self.logs / "served.stderr").read_text(encoding="utf-8", errors="replace").strip()
            self._note(step, shown, "not held", taken, f"no capture in {left:.0f} s: {said[-400:]}")

    def _has_operations(self, log: Path) -> bool:
        """Whether the kernel ran while that was captured: a server that waits for it answers too."""
        words = (sys.executable, "-P", "-m", "harness", "xprof", "ops", str(log), "--json")
        printed, _, _ = self._output(words, _STEP_SECONDS, "profiler server: operations")
        try:
            return bool(json.loads(printed)["tables"][0]["rows"])
        except (ValueError, LookupError, TypeError):
            return False

    def _left(self, limit: float) -> float:
        return min(limit, self._deadline - time.monotonic())

    @contextmanager
    def _shown(self, name: str) -> Iterator[None]:
        began = time.monotonic()
        self._progress(name, "start", 0.0)
        yield
        self._progress(name, "done", time.monotonic() - began)

    def _note(self, step: _Step, command: str, outcome: StepOutcome, seconds: float, found: str) -> None:
        found = found.replace(str(self._scratch), ".")
        noted = ValidationStep(
            name=step.name, shows=step.shows, command=command, outcome=outcome, seconds=seconds,
            limit_seconds=step.limit_seconds, found=found,
        )  # fmt: skip
        self.done.append(noted)


def _copy(contest: Path, into: Path) -> Path:
    """A contest's files in another folder, without its records and captures."""
    into.mkdir()
    for path in contest.glob("*.py"):
        write_atomically(into / path.name, path.read_bytes())
    return into


def _git(top: Path, *words: str) -> None:
    subprocess.run(["git", "-C", top, *words], env=os.environ | _IDENTITY, check=True)


def _shown(words: tuple[str, ...], scratch: Path) -> str:
    return f"./ratchet.sh {shlex.join(words)}".replace(str(scratch), ".")


def _answer(step: _Step, printed: str) -> str:
    document = json.loads(printed)
    if "error" in document:
        raise _NotHeldError(f"{document['error']['message']} [{document['error']['kind']}]")
    return step.read(document)


def _machine(document: _Document) -> str:
    problems = [f"{row['what']}: {row['value']}" for row in document["tables"][0]["rows"] if row["state"] == "problem"]
    if problems:
        raise _NotHeldError("; ".join(problems))
    return "no problem"


def _no_gain(document: _Document) -> str:
    verdict = document["attempt"]["verdict"]
    low, ratio, high = (verdict[name] for name in ("time_ratio_low", "time_ratio", "time_ratio_high"))
    said = f"{verdict['outcome']}: {'; '.join(verdict['reasons'])}"
    if ratio is not None and low is not None and high is not None:
        said = f"{verdict['outcome']}, time x{ratio:.4f}, from x{low:.4f} to x{high:.4f}"
    if verdict["outcome"] not in ("reject", "inconclusive"):
        raise _NotHeldError(said)
    return said


def _captured(document: _Document) -> str:
    if not document["tables"][0]["rows"]:
        raise _NotHeldError(document["tables"][0]["why_empty"] or "no capture")
    return f"{len(document['tables'][0]['rows'])} {document['tables'][0]['name']}"


def _rows(what: str) -> Callable[[_Document], str]:
    def read(document: _Document) -> str:
        table = document["tables"][0]
        if not table["rows"]:
            raise _NotHeldError(table["why_empty"] or f"no {what}")
        return f"{len(table['rows'])} {what}"

    return read


def _comment(kernel: Path) -> None:
    """Another text of the same program."""
    kernel.write_text(kernel.read_text(encoding="utf-8") + "# An A/A control.\n", encoding="utf-8")


def _captured_from(
    server: "subprocess.Popen[bytes]", port: int, log: Path, deadline: float, is_wanted: Callable[[], bool]
) -> bool:
    """Whether JAX's own client gets the capture that is wanted before the deadline; the server needs a moment."""
    while server.poll() is None and (left := deadline - time.monotonic()) > 1:
        client = subprocess.Popen(
            (sys.executable, "-P", "-m", "jax.collect_profile", str(port), "500", "--log_dir", str(log),
             "--no_perfetto_link"), stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
            start_new_session=True,
        )  # fmt: skip
        _ended(client, min(left, _CAPTURE_SECONDS))
        if any(path.stat().st_size for path in log.rglob("*.xplane.pb")):
            if is_wanted():
                return True
            shutil.rmtree(log)
        time.sleep(1)
    return False


def _ended(process: "subprocess.Popen[bytes]", limit: float) -> bool:
    """Whether it ended by itself within `limit` seconds; it has ended in any case."""
    try:
        process.wait(limit)
    except subprocess.TimeoutExpired:
        return False
    finally:
        _end(process)
    return True


def _end(process: "subprocess.Popen[bytes]") -> None:
    """Ends the process and what it started, which is in a group of its own."""
    # The second for what outlives the process itself.
    for sign in (signal.SIGINT, signal.SIGKILL):
        with suppress(ProcessLookupError, subprocess.TimeoutExpired):
            os.killpg(process.pid, sign)
            process.wait(20)
