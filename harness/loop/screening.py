"""Kernels screened side by side, each in a process of its own: compiled and timed, not checked, nothing recorded.

`python -m harness.loop.screening` is that process: a request as JSON on stdin, the evidence as JSON on stdout.
A judgement ends every process below it that it does not know, so two cannot share one process.
"""

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import msgspec

from harness import contest as contests
from harness.contest import PACKAGE, Contest
from harness.errors import RatchetError
from harness.loop.evaluate import Options, evaluate
from harness.records import Evidence, Policy

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


Tell = Callable[[int, Evidence], None]


def screen(
    contest: Contest, kernels: Sequence[bytes], policy: Policy, *, on: str | None, jobs: int, tell: Tell
) -> tuple[Evidence, ...]:
    """The evidence about each of `kernels`, in their order, from `jobs` processes at a time; `tell` hears of each.

    Files go to `profile_data/sweep/<place>` of the contest. Whatever is raised, Ctrl-C too, no process is left.
    Raises the RatchetError that a process ended with, RuntimeError where one ended in another way.
    """
    requests = [
        Request(
            directory=str(contest.directory), chip=contest.chip.name, kernel=kernel, on=on,
            checked=on == "cpu", policy=policy, work=f"sweep/{place:03d}",
        )
        for place, kernel in enumerate(kernels)
    ]  # fmt: skip
    running: list[subprocess.Popen[bytes]] = []
    # The harness that asks is the one that answers.
    path = os.pathsep.join(filter(None, (str(PACKAGE.parent), os.environ.get("PYTHONPATH"))))

    def one(place: int) -> Evidence:
        # `-P`: what lies in the working directory is the candidate's, and nothing of it shall be imported here.
        process = subprocess.Popen(
            [sys.executable, "-P", "-m", "harness.loop.screening"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env={**os.environ, "PYTHONPATH": path},
        )
        running.append(process)
        out, _ = process.communicate(msgspec.json.encode(requests[place]))
        evidence = _evidence(out, process.returncode)
        tell(place, evidence)
        return evidence

    with ThreadPoolExecutor(max_workers=jobs) as pool:
        futures = [pool.submit(one, place) for place in range(len(requests))]
        try:
            return tuple(future.result() for future in futures)
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            for process in running:
                _end(process)
            raise


def _evidence(out: bytes, code: int) -> Evidence:
    try:
        answer = msgspec.json.decode(out, type=Answer)
    except msgspec.DecodeError:
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
    """Answers one request."""
    request = msgspec.json.decode(sys.stdin.buffer.read(), type=Request)
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
        answer = Answer(evidence=evidence)
    except RatchetError as error:
        answer = Answer(evidence=None, error_kind=error.kind, error=str(error))
    sys.stdout.buffer.write(msgspec.json.encode(answer))
    return 0


if __name__ == "__main__":
    try:
        sys.exit(main())
    except KeyboardInterrupt:
        # Who sent it says what was interrupted.
        sys.exit(130)
