"""Screens kernels in parallel, one in each place: they are compiled and timed, not checked, and not recorded.

A place is a process of this machine, or one on a machine of a Ray cluster (`ray_cluster.py`). `python -m
harness.loop.screening` is such a process: it reads requests as lines of JSON from stdin, and answers each with a line
on stdout. An evaluation kills all unknown child processes, so two evaluations cannot run in one process at a time.
Successive evaluations share the process that has imported JAX.
"""

import itertools
import os
import signal
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor, as_completed
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import Protocol

import msgspec

from harness import contest as contests
from harness import reading_limits
from harness.candidate import Candidate
from harness.contest import PACKAGE
from harness.errors import RatchetError
from harness.judge.key import key_difference
from harness.loop.bench import Bench
from harness.records import Evidence, Failure, Key, Policy
from harness.sandbox.environment import cores, environment

# A compiler takes one to three GB.
_MOST_JOBS = 16
# The longest wait for a process that was asked to end.
_ENDING_SECONDS = 10.0
# A kernel whose screening place was lost this often is not tried again.
_MOST_TRIES = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """One candidate to screen.

    `checked`: the candidate's checks run too; on a CPU they give the latency. `prepare` is the text of the contest's
    prepare.py. A place whose key differs from `key` refuses the request.
    """

    directory: str
    prepare: bytes
    chip: str
    candidate: Candidate
    on: str | None
    checked: bool
    policy: Policy
    work: str
    key: Key


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """The evidence, or the kind and the text of the RatchetError that prevented it."""

    evidence: Evidence | None
    error_kind: str = ""
    error: str = ""


class Place(Protocol):
    """A place where kernels are screened, one at a time."""

    def is_ready(self) -> bool:
        """True if the place can begin at once. The call may take a second."""

    def answer(self, request: Request) -> Answer | None:
        """The answer, None if the place was lost meanwhile: the caller may ask again, here or elsewhere."""

    def close(self, *, is_interrupted: bool) -> None:
        """Closes the place, at once if the search was interrupted."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Places:
    """At most `count` places, made by `open` until it returns None; `say` gets a sentence on each dropped place."""

    count: int
    open: Callable[[], Place | None]
    say: Callable[[str], None] = lambda sentence: None


def local(asked: int | None) -> Places:
    """`asked` processes of this machine; by default one for each core, up to 16."""
    return Places(count=asked or cores_to_use(), open=Process)


def cores_to_use() -> int:
    """The default number of settings that are screened at a time on this machine."""
    return min(cores(), _MOST_JOBS)


def why_no_latency(evidence: Evidence) -> tuple[str, str]:
    """The kind of the failure, `no-latency` if nothing failed, and the reason for the missing latency in a sentence."""
    if evidence.failure is not None:
        return evidence.failure.kind, evidence.failure.message
    reasons = evidence.latency.reasons if evidence.latency else ()
    return "no-latency", "; ".join(reasons) or "no latency was taken"


Ask = Callable[[], Candidate | None]
Tell = Callable[[Candidate, Evidence], None]


def screen(bench: Bench, ask: Ask, tell: Tell, places: Places, work: str = "sweep") -> None:
    """Screens the kernels from `ask` until it returns None, one at a time in each place; `tell` gets each result once.

    Each place judges with the policy and source of `bench`, unchecked except on a CPU. `ask` and `tell` are never
    called concurrently. Files go to `profile_data/<work>/<number>` of the contest. A kernel whose place was lost is
    screened again, and fails as `killed` if its places are lost too often. A place that cannot work (another judge or
    compiler, a full disk) is given up. Raises the RatchetError of the last place if all places are given up, and all
    exceptions of `ask` and `tell`. After any exception, including Ctrl-C, no process is left.
    """
    queue = _Queue(bench, ask, tell, places, work)
    with ThreadPoolExecutor(max_workers=places.count) as pool:
        futures = [pool.submit(queue.serve) for _ in range(places.count)]
        try:
            for future in as_completed(futures):
                future.result()
        except BaseException:
            queue.interrupt()
            raise


class _Queue:
    """The candidates that are being screened or await another try, and new ones; `serve` screens them in one place."""

    def __init__(self, bench: Bench, ask: Ask, tell: Tell, places: Places, work: str) -> None:
        self._bench, self._contest, self._work = bench, bench.contest, work
        self._ask, self._tell, self._places = ask, tell, places
        self._prepare = (self._contest.directory / "prepare.py").read_bytes()
        self._key = self._contest.key("simulated")
        self._change = threading.Condition()
        self._open: list[Place] = []
        self._begun = 0
        self._returned: list[Candidate] = []
        self._tries: Counter[Candidate] = Counter()
        self._numbers = itertools.count()
        self._under_way = 0
        self._is_asked_out = self._is_over = False

    def serve(self) -> None:
        """Opens a place and screens kernels there, one at a time, until none are left. Raises as `screen` does."""
        place = self._places.open()
        with self._change:
            self._begun += 1
            if place is None:
                return
            self._open.append(place)
        while not self._is_over:
            if not place.is_ready():
                continue
            candidate = self._next()
            if candidate is None:
                break
            answer = place.answer(self._request(candidate))
            if not self._took(candidate, answer):
                assert answer is not None
                self._give_up(place, RatchetError(answer.error_kind, answer.error))
                return
        self._close(place)

    def interrupt(self) -> None:
        """Closes every place at once."""
        with self._change:
            self._is_over = True
            self._change.notify_all()
            left = tuple(self._open)
        # Each place may take seconds to end.
        with ThreadPoolExecutor(max_workers=max(1, len(left))) as ending:
            list(ending.map(lambda place: place.close(is_interrupted=True), left))

    def _next(self) -> Candidate | None:
        """The next candidate, None at the end; waits while others are screened, because one may need another try."""
        with self._change:
            while not self._is_over:
                candidate = self._returned.pop() if self._returned else None if self._is_asked_out else self._ask()
                if candidate is not None:
                    self._under_way += 1
                    return candidate
                self._is_asked_out = True
                if not self._under_way:
                    self._is_over = True
                    self._change.notify_all()
                    break
                self._change.wait()
            return None

    def _took(self, candidate: Candidate, answer: Answer | None) -> bool:
        """Passes the evidence on, or puts the candidate back; False if the place cannot work."""
        with self._change:
            self._under_way -= 1
            self._change.notify_all()
            if self._is_over:
                return True
            if answer is not None and answer.evidence is not None:
                self._tell(candidate, answer.evidence)
                return True
            self._tries[candidate] += answer is None
            if self._tries[candidate] < _MOST_TRIES:
                self._returned.append(candidate)
            else:
                self._tell(candidate, self._without_answer())
            return answer is None

    def _give_up(self, place: Place, error: RatchetError) -> None:
        """Closes a place that cannot work. Raises `error` if it was the last one."""
        self._close(place)
        with self._change:
            if not self._open and self._begun == self._places.count:
                raise error
        self._places.say(f"one of {self._places.count} screening workers is left out: {error}")

    def _close(self, place: Place) -> None:
        with self._change:
            if place in self._open:
                self._open.remove(place)
        place.close(is_interrupted=False)

    def _request(self, candidate: Candidate) -> Request:
        return Request(
            directory=str(self._contest.directory),
            prepare=self._prepare,
            chip=self._contest.chip.name,
            candidate=candidate,
            on=self._bench.on,
            checked=self._bench.on == "cpu",
            policy=self._bench.policy,
            work=f"{self._work}/{next(self._numbers):03d}",
            key=self._key,
        )

    def _without_answer(self) -> Evidence:
        message = f"the process that screened this kernel ended {_MOST_TRIES} times without an answer"
        return Evidence(
            problem=self._contest.problem.statement(),
            chip=self._contest.chip.name,
            environment=environment(),
            failure=Failure(kind="killed", message=message, stage="compile"),
        )


class Process:
    """A process of this machine, started for the first kernel, and again after it was lost."""

    def __init__(self) -> None:
        self._process: subprocess.Popen[bytes] | None = None

    def is_ready(self) -> bool:
        return True

    def answer(self, request: Request) -> Answer | None:
        process = self._process = self._process or _start()
        assert process.stdin is not None
        assert process.stdout is not None
        # If the process has ended, reading its answer fails as well, and reports that.
        with suppress(BrokenPipeError):
            process.stdin.write(msgspec.json.encode(request) + b"\n")
            process.stdin.flush()
        try:
            return msgspec.json.decode(process.stdout.readline(), type=Answer)
        except msgspec.DecodeError:
            self.close(is_interrupted=True)
            return None

    def close(self, *, is_interrupted: bool) -> None:
        process, self._process = self._process, None
        if process is None:
            return
        if is_interrupted and process.poll() is None:
            # Ctrl-C first, so that it ends its own children.
            process.send_signal(signal.SIGINT)
            try:
                process.wait(_ENDING_SECONDS)
            except subprocess.TimeoutExpired:
                process.kill()
        process.communicate()


def _start() -> "subprocess.Popen[bytes]":
    # PYTHONPATH makes the process import this harness. `-P`: the working directory belongs to the candidate, so nothing
    # in it may be imported.
    path = os.pathsep.join(filter(None, (str(PACKAGE.parent), os.environ.get("PYTHONPATH"))))
    # The child inherits the mask. So an interrupt while Python starts is delivered only in `main`, and causes no
    # traceback.
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        return subprocess.Popen(
            [sys.executable, "-P", "-m", "harness.loop.screening"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env={**os.environ, "PYTHONPATH": path},
        )
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def main() -> int:
    """Answers each request on stdin."""
    reading_limits.end_with_parent()
    signal.signal(signal.SIGINT, _interrupted)
    # So far the inherited mask has blocked the signal.
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})
    for line in sys.stdin.buffer:
        sys.stdout.buffer.write(msgspec.json.encode(_answer(msgspec.json.decode(line, type=Request))) + b"\n")
        sys.stdout.buffer.flush()
    return 0


def _interrupted(number: int, frame: FrameType | None) -> None:
    # After Ctrl-C in a terminal the parent sends a second interrupt, which would break off the cleanup.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    raise KeyboardInterrupt


def _answer(request: Request) -> Answer:
    try:
        contest = contests.load(Path(request.directory), request.chip)
        here = contest.key("simulated")
        if here != request.key:
            raise RatchetError("other-key", f"it screens under {key_difference(request.key, here)}")
        bench = Bench(contest=contest, policy=request.policy, on=request.on, checked=request.checked)
        evidence = bench.judge(request.candidate, request.work)
    except RatchetError as error:
        return Answer(evidence=None, error_kind=error.kind, error=str(error))
    return Answer(evidence=evidence)


if __name__ == "__main__":
    try:
        sys.exit(main())
    except KeyboardInterrupt:
        # The sender reports the interruption.
        sys.exit(130)
