"""Kernels screened side by side, in as many processes as jobs: compiled and timed, not checked, nothing recorded.

`python -m harness.loop.screening` is such a process: requests as lines of JSON on stdin, for each a line with the
evidence on stdout. A judgement ends every process below it that it does not know, so two cannot share one process; one
after the other they share what has imported JAX.
"""

import itertools
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor, as_completed
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import msgspec

from harness import contest as contests
from harness.contest import PACKAGE, Contest
from harness.errors import RatchetError
from harness.judge.sandbox.environment import cores
from harness.loop.evaluate import Options, evaluate
from harness.records import Evidence, Policy

# A compiler takes one to three GB.
_MOST_JOBS = 16
# For a process that does not end after it was asked to.
_ENDING_SECONDS = 10.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """One kernel to screen; `checked` where a latency comes only with the checks (a CPU's)."""

    directory: str
    chip: str
    kernel: bytes
    on: str | None
    checked: bool
    policy: Policy
    work: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """The evidence, or the known error that kept it from being taken."""

    evidence: Evidence | None
    error_kind: str = ""
    error: str = ""


def jobs(asked: int | None) -> int:
    """How many settings to screen at a time: as many as `asked` for, else one for each core."""
    return asked or min(cores(), _MOST_JOBS)


def why_no_latency(evidence: Evidence) -> tuple[str, str]:
    """The kind of failure because of which there is no latency, `no-latency` where nothing failed, and a sentence."""
    if evidence.failure is not None:
        return evidence.failure.kind, evidence.failure.message
    reasons = evidence.latency.reasons if evidence.latency else ()
    return "no-latency", "; ".join(reasons) or "no latency was taken"


Ask = Callable[[], bytes | None]
Tell = Callable[[bytes, Evidence], None]


def screen(contest: Contest, ask: Ask, tell: Tell, policy: Policy, *, on: str | None, jobs: int) -> None:
    """Screens the kernels that `ask` gives until it gives None, in `jobs` processes at a time; `tell` hears of each.

    One of the two is called at a time. Files go to `profile_data/sweep/<place>` of the contest. Whatever is raised,
    Ctrl-C too, no process is left. Raises the RatchetError that a process ended with, RuntimeError where one ended in
    another way.
    """
    turn = threading.Lock()
    places = itertools.count()
    running: list[subprocess.Popen[bytes]] = []
    is_over = False

    def request() -> Request | None:
        with turn:
            kernel = None if is_over else ask()
            if kernel is None:
                return None
            return Request(
                directory=str(contest.directory), chip=contest.chip.name, kernel=kernel, on=on,
                checked=on == "cpu", policy=policy, work=f"sweep/{next(places):03d}",
            )  # fmt: skip

    def serve() -> None:
        asked = request()
        if asked is None:
            return
        process = _start()
        running.append(process)
        assert process.stdin is not None
        assert process.stdout is not None
        while asked is not None:
            # Where it has ended there is no answer to read either, which says so.
            with suppress(BrokenPipeError):
                process.stdin.write(msgspec.json.encode(asked) + b"\n")
                process.stdin.flush()
            found = _evidence(process.stdout.readline(), process)
            with turn:
                tell(asked.kernel, found)
            asked = request()
        process.communicate()

    with ThreadPoolExecutor(max_workers=jobs) as pool:
        futures = [pool.submit(serve) for _ in range(jobs)]
        try:
            for future in as_completed(futures):
                future.result()
        except BaseException:
            is_over = True
            for process in running:
                _end(process)
            raise


def _start() -> "subprocess.Popen[bytes]":
    # The harness that asks is the one that answers. `-P`: what lies in the working directory is the candidate's, and
    # nothing of it shall be imported here.
    path = os.pathsep.join(filter(None, (str(PACKAGE.parent), os.environ.get("PYTHONPATH"))))
    return subprocess.Popen(
        [sys.executable, "-P", "-m", "harness.loop.screening"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env={**os.environ, "PYTHONPATH": path},
    )


def _evidence(out: bytes, process: "subprocess.Popen[bytes]") -> Evidence:
    try:
        answer = msgspec.json.decode(out, type=Answer)
    except msgspec.DecodeError:
        code = process.wait()
        raise RuntimeError(f"screening ended with exit code {code} and without an answer") from None
    if answer.evidence is None:
        raise RatchetError(answer.error_kind, answer.error)
    return answer.evidence


def _end(process: "subprocess.Popen[bytes]") -> None:
    """Ctrl-C first: then it ends its own children."""
    if process.poll() is None:
        process.send_signal(signal.SIGINT)
        try:
            process.wait(_ENDING_SECONDS)
        except subprocess.TimeoutExpired:
            process.kill()


def main() -> int:
    """Answers each request."""
    for line in sys.stdin.buffer:
        sys.stdout.buffer.write(msgspec.json.encode(_answer(msgspec.json.decode(line, type=Request))) + b"\n")
        sys.stdout.buffer.flush()
    return 0


def _answer(request: Request) -> Answer:
    try:
        contest = contests.load(Path(request.directory), request.chip)
        evidence = evaluate(
            contest,
            request.kernel,
            Options(on=request.on),
            request.policy,
            lambda stage, state, seconds: None,
            work=request.work,
            checked=request.checked,
        )
    except RatchetError as error:
        return Answer(evidence=None, error_kind=error.kind, error=str(error))
    return Answer(evidence=evidence)


if __name__ == "__main__":
    try:
        sys.exit(main())
    except KeyboardInterrupt:
        # Who sent it says what was interrupted.
        sys.exit(130)
