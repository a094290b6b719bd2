"""The request for an evaluation of a contest's kernel, the options of an attempt, and failures that may pass."""

from collections.abc import Callable
from dataclasses import dataclass

from harness import files
from harness.candidate import Candidate
from harness.contest import Contest
from harness.judge import simulate
from harness.judge.evaluate import evaluation
from harness.judge.evaluate.compile.seen_programs import SeenPrograms
from harness.judge.evaluate.request import Listener, Request
from harness.judge.key import key_digest
from harness.records import Evidence, Failure, Source, Sweep
from harness.workbench.profiles import pruning

# Failures that may come from the machine rather than from the candidate: it may be tried again as it is.
MAY_PASS_NEXT_TIME = ("timeout", "killed", "crash", "out-of-memory", "judge-changed", "tampered")
# What Python says of shapes, types and names that do not fit: the same text fails so every time.
_PROGRAM_ERRORS = tuple(
    f"{error.__name__}:"
    for error in (TypeError, ValueError, IndexError, KeyError, NameError, AttributeError, ZeroDivisionError)
)

_NOBODY = Listener()

# How an evaluation is asked for whose latency has this source; a TPU is taken where there is one.
ON_SOURCE: dict[Source, str | None] = {"simulated": "simulated", "measured cpu": "cpu", "measured": None}

# What a champion's stages are called while a candidate is judged.
CHAMPION = "champion"

Say = Callable[[str], None]


def may_pass_next_time(failure: Failure) -> bool:
    """Whether it may come from the machine; a crash with which Python names an error of the program does not."""
    is_of_program = failure.kind == "crash" and failure.message.startswith(_PROGRAM_ERRORS)
    return failure.kind in MAY_PASS_NEXT_TIME and not is_of_program


@dataclass(frozen=True, slots=True, kw_only=True)
class Alternative:
    """Another setting of the same kernel.py: what it is called as an attempt, and its screened time and program."""

    settings: tuple[tuple[str, str], ...]
    hypothesis: str
    seconds: float
    source: Source
    fingerprint: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """How one attempt is to be run, from the command line.

    `alternatives` are judged in their order where the candidate fails, as long as they promise a win; all of
    them together are one attempt. `all_checks`: a candidate that is too slow is checked wholly all the same.
    """

    settings: tuple[tuple[str, str], ...] = ()
    expected_time_ratio: float | None = None
    on: str | None = None
    deep: bool = False
    again: bool = False
    record: bool = False
    rebaseline: bool = False
    all_checks: bool = False
    sweep: Sweep | None = None
    alternatives: tuple[Alternative, ...] = ()


def request(contest: Contest, candidate: Candidate, work: str, *, on: str | None = None) -> Request:
    """The request for all that can be found out about a candidate.

    Files go to `profile_data/<work>`. A program that was compiled and simulated before under the same key is not again.
    Raises RatchetError `bad-problem` where prepare.py's own problem does not keep what every problem must keep.
    """
    contest.require_conforming()
    return Request(
        directory=contest.directory, candidate=candidate, problem=contest.problem, chip=contest.chip,
        work=contest.directory / "profile_data" / work, simulate=simulate.run, on=on, programs=_programs(contest),
    )  # fmt: skip


def evaluate(asked: Request, listener: Listener = _NOBODY) -> Evidence:
    """The evidence about a candidate, as `judge.evaluate` gives it; nothing is pruned from profile_data meanwhile."""
    with pruning.in_use(asked.profile_data):
        return evaluation.evaluate(asked, listener)


def _programs(contest: Contest) -> SeenPrograms | None:
    """What was compiled and simulated before under the key of this contest; None for somebody who has no home."""
    folder = files.cache_directory()
    # What is compiled and simulated does not depend on the machine.
    if folder is None:
        return None
    return SeenPrograms(directory=folder / "programs", judge=key_digest(contest.key("simulated")))
