"""Kernels screened in several places: each result is reported once, whatever happens to the places."""

import os
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from functools import cache
from pathlib import Path

import msgspec
import pytest
from loop_fixtures import committed_contest
from narrowing import present
from refusals import refused

from harness import contest as contests
from harness.candidate import Candidate
from harness.contest import Contest
from harness.loop import screening
from harness.loop.bench import Bench
from harness.loop.screening import Answer, Place, Places, Process, Request
from harness.records import Evidence, Policy
from harness.sandbox.environment import environment

pytestmark = pytest.mark.long


@pytest.fixture(scope="module")
def contest(tmp_path_factory: pytest.TempPathFactory) -> Contest:
    return contests.load(committed_contest(tmp_path_factory.mktemp("screening") / "contest", 512))


class Scripted:
    """A place whose answers come from the function `does`."""

    def __init__(self, contest: Contest, does: Callable[[bytes], Answer | None]) -> None:
        self._does, self.is_closed = does, False

    def is_ready(self) -> bool:
        return True

    def answer(self, request: Request) -> Answer | None:
        return self._does(request.candidate.text)

    def close(self, *, is_interrupted: bool) -> None:
        self.is_closed = True


@cache
def _evidence(contest: Contest) -> Evidence:
    return Evidence(problem=contest.problem.statement(), chip=contest.chip.name, environment=environment())


def screened(contest: Contest, scripts: list[Callable[[bytes], Answer | None]], count: int) -> list[tuple[bytes, str]]:
    """The results of kernels 0 to count; all places must be closed at the end."""
    left = [Candidate(text=str(number).encode()) for number in reversed(range(count))]
    results: list[tuple[bytes, str]] = []
    places: list[Scripted] = []

    def open_() -> Place | None:
        places.append(Scripted(contest, scripts[len(places)]))
        return places[-1]

    def tell(kernel: Candidate, evidence: Evidence) -> None:
        results.append((kernel.text, evidence.failure.kind if evidence.failure else ""))

    try:
        places_to_open = Places(count=len(scripts), open=open_)
        screening.screen(Bench(contest=contest), lambda: left.pop() if left else None, tell, places_to_open)
    finally:
        assert all(place.is_closed for place in places)
    return results


def test_what_was_lost_is_screened_again_and_told_of_once(contest: Contest) -> None:
    tries: Counter[bytes] = Counter()

    def loses(kernel: bytes) -> Answer | None:
        tries[kernel] += 1
        return None if tries[kernel] <= 2 else Answer(evidence=_evidence(contest))

    results = screened(contest, [loses, loses, loses], 20)
    assert sorted(results) == sorted((str(number).encode(), "") for number in range(20))


def test_a_kernel_that_ends_whoever_screens_it_fails_and_the_others_do_not(contest: Contest) -> None:
    def loses(kernel: bytes) -> Answer | None:
        return None if kernel == b"3" else Answer(evidence=_evidence(contest))

    results = dict(screened(contest, [loses, loses], 6))
    assert results == {b"0": "", b"1": "", b"2": "", b"3": "killed", b"4": "", b"5": ""}


def test_a_place_that_cannot_work_is_left_out(contest: Contest) -> None:
    refused: list[bytes] = []

    def refuses(kernel: bytes) -> Answer | None:
        refused.append(kernel)
        return Answer(evidence=None, error_kind="other-key", error="it has another compiler")

    def works(kernel: bytes) -> Answer | None:
        # Waits until the refusing place had its turn.
        while not refused:
            time.sleep(0.001)
        return Answer(evidence=_evidence(contest))

    results = screened(contest, [refuses, works], 8)
    assert len(refused) == 1
    assert sorted(results) == sorted((str(number).encode(), "") for number in range(8))


def test_where_none_can_work_it_says_why(contest: Contest) -> None:
    def refuses(kernel: bytes) -> Answer | None:
        return Answer(evidence=None, error_kind="no-space", error="no space left")

    with refused("no-space", "no space left"):
        screened(contest, [refuses, refuses, refuses], 8)


def test_what_the_search_raises_ends_every_place(contest: Contest) -> None:
    waits = threading.Event()

    def works(kernel: bytes) -> Answer | None:
        if kernel == b"0":
            raise ZeroDivisionError
        waits.wait(5)
        return Answer(evidence=_evidence(contest))

    threading.Timer(0.3, waits.set).start()
    with pytest.raises(ZeroDivisionError):
        screened(contest, [works, works], 4)


def test_places_are_ended_together(contest: Contest) -> None:
    """Ending a place may take seconds: the first waits here until the last is being ended too."""
    ending = threading.Barrier(3, timeout=60)

    class Slow(Scripted):
        def close(self, *, is_interrupted: bool) -> None:
            if is_interrupted:
                ending.wait()
            super().close(is_interrupted=is_interrupted)

    def works(kernel: bytes) -> Answer | None:
        # No place answers before all have begun.
        begun.wait()
        return Answer(evidence=_evidence(contest))

    def tell(kernel: Candidate, evidence: Evidence) -> None:
        raise KeyboardInterrupt

    begun = threading.Barrier(3, timeout=60)
    places = Places(count=3, open=lambda: Slow(contest, works))
    with pytest.raises(KeyboardInterrupt):
        screening.screen(Bench(contest=contest), contest.candidate, tell, places)
    assert not ending.broken


def refused_request(contest: Contest) -> Request:
    """A request that a process refuses at once: under the key of another compiler."""
    return Request(
        directory=str(contest.directory),
        prepare=b"",
        chip=contest.chip.name,
        candidate=contest.candidate(),
        on="simulated",
        checked=False,
        policy=Policy(),
        work="sweep/000",
        key=replace(contest.key("simulated"), libtpu="0.0.1"),
    )


def test_a_process_under_another_key_refuses(contest: Contest) -> None:
    process = Process()
    try:
        answer = present(process.answer(refused_request(contest)))
        assert (answer.evidence, answer.error_kind) == (None, "other-key")
        assert "libtpu 0.0.1 ->" in answer.error
    finally:
        process.close(is_interrupted=False)


def test_a_second_interrupt_breaks_off_no_ending(contest: Contest) -> None:
    """A terminal's Ctrl-C comes twice: from the terminal, and from the parent process."""
    program = (
        "import atexit, sys, time\n"
        "from harness.loop import screening\n"
        "atexit.register(lambda: (print('ending', flush=True), time.sleep(0.5), print('ended', flush=True)))\n"
        "try:\n    screening.main()\nexcept KeyboardInterrupt:\n    sys.exit(130)\n"
    )
    process = subprocess.Popen(
        [sys.executable, "-c", program], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    assert process.stdin is not None
    assert process.stdout is not None
    # Its answer shows that it listens.
    process.stdin.write(msgspec.json.encode(refused_request(contest)) + b"\n")
    process.stdin.flush()
    assert b"other-key" in process.stdout.readline()
    process.send_signal(signal.SIGINT)
    assert process.stdout.readline() == b"ending\n"
    process.send_signal(signal.SIGINT)
    assert process.communicate(timeout=60) == (b"ended\n", b"")
    assert process.returncode == 130


def test_a_process_ends_at_once_though_who_begins_it_blocks_the_signal(contest: Contest) -> None:
    """Ray's workers block the signal: the process would be killed after ten seconds, and leave its files."""
    place = Process()
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        assert place.answer(refused_request(contest)) is not None
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
    process = present(place._process)
    place.close(is_interrupted=True)
    assert process.returncode == 130


def test_an_interrupt_while_python_starts_ends_in_no_traceback(capfd: pytest.CaptureFixture[str]) -> None:
    """A setting that is refused ends a search whose processes have only just begun."""
    begun = [screening._start() for _ in range(3)]
    for process in begun:
        process.send_signal(signal.SIGINT)
    for process in begun:
        process.communicate(timeout=60)
    assert [process.returncode for process in begun] == [130, 130, 130]
    assert capfd.readouterr().err == ""


def test_a_process_that_was_killed_is_begun_again(contest: Contest) -> None:
    process = Process()
    try:
        assert process.answer(refused_request(contest)) is not None
        assert process._process is not None
        first = process._process.pid
        os.kill(first, signal.SIGKILL)
        assert process.answer(refused_request(contest)) is None
        assert process.answer(refused_request(contest)) is not None
        assert process._process.pid != first
    finally:
        process.close(is_interrupted=True)


@pytest.mark.slow
def test_processes_of_this_machine_survive_kills(contest: Contest, tmp_path: Path) -> None:
    pytest.importorskip("libtpu", reason="the TPU compiler exists for x86-64 Linux only")
    text = contest.candidate()
    left = [text.set((("BQ", str(bq)), ("BKV", str(bkv)))) for bq in (128, 256, 512) for bkv in (128, 256)]
    wanted, screened_texts = set(left), []
    processes: list[Process] = []

    def open_() -> Place:
        processes.append(Process())
        return processes[-1]

    is_over = threading.Event()

    def kill() -> None:
        for _ in range(3):
            if is_over.wait(3):
                return
            for process in processes:
                if process._process is not None:
                    process._process.kill()
                    break

    killer = threading.Thread(target=kill)
    killer.start()
    screening.screen(
        Bench(contest=contest, on="simulated"),
        lambda: left.pop() if left else None,
        lambda kernel, evidence: screened_texts.append((kernel, evidence)),
        Places(count=2, open=open_),
    )
    is_over.set()
    killer.join()
    assert {kernel for kernel, _ in screened_texts} == wanted
    assert len(screened_texts) == len(wanted)
    assert all(evidence.failure is None for _, evidence in screened_texts)
