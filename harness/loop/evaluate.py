"""What one evaluation of a kernel.py needs and gives: the options, and everything found out about the bytes."""

import hashlib
from collections.abc import Callable
from dataclasses import dataclass

from harness import files
from harness.contest import Contest
from harness.judge import simulate
from harness.judge.evaluate import evaluation as measuring
from harness.judge.evaluate.compile.seen_programs import SeenPrograms
from harness.judge.key import key_digest
from harness.records import Draw, Evidence, Failure, Policy, Source, Sweep, Trace
from harness.workbench.profiles import pruning

# Failures that may come from the machine rather than from the candidate: it may be tried again as it is.
MAY_PASS_NEXT_TIME = ("timeout", "killed", "crash", "out-of-memory", "judge-changed", "tampered")
# What Python says of shapes, types and names that do not fit: the same text fails so every time.
_PROGRAM_ERRORS = tuple(
    f"{error.__name__}:"
    for error in (TypeError, ValueError, IndexError, KeyError, NameError, AttributeError, ZeroDivisionError)
)

# How an evaluation is asked for whose latency has this source; a TPU is taken where there is one.
ON_SOURCE: dict[Source, str | None] = {"simulated": "simulated", "measured cpu": "cpu", "measured": None}

Progress = Callable[[str, str, float], None]
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


def of_champion(progress: Progress) -> Progress:
    """What tells of the champion's stages while a candidate is on trial."""
    return lambda stage, state, taken: progress(f"champion {stage}", state, taken)


def evaluate(
    contest: Contest,
    kernel: bytes,
    options: Options,
    policy: Policy,
    progress: Progress,
    *,
    work: str,
    timed: bool = True,
    checked: bool = True,
    draws: tuple[Draw, ...] = (),
    is_slower: Callable[[Evidence], bool] | None = None,
    is_anew: bool = False,
    after_trace: Callable[[Trace], None] = lambda trace: None,
) -> Evidence:
    """Everything found out about `kernel` (the bytes of a kernel.py); files go to `profile_data/<work>`.

    Not `timed`: a device's latency is left to a paired benchmark. Not `checked`: whether it is right is not asked.
    `draws` are those of an earlier evaluation: they are repeated, beside fresh ones. Of whom `is_slower` says so, once
    there is a simulated latency, the full shape is not checked. A program that was compiled and simulated before under
    the same key is not again, unless all `is_anew`.
    """
    contest.require_conforming()
    profile_data = contest.directory / "profile_data"
    with pruning.in_use(profile_data):
        return measuring.evaluate(
            contest.directory,
            kernel,
            contest.problem,
            contest.chip,
            policy,
            work_directory=profile_data / work,
            simulate=simulate.run,
            on=options.on,
            deep=options.deep,
            timed=timed,
            checked=checked,
            draws=draws,
            is_slower=is_slower,
            programs=None if is_anew else _programs(contest),
            after_trace=after_trace,
            progress=progress,
        )


def _programs(contest: Contest) -> SeenPrograms | None:
    """What was compiled and simulated before under the key of this contest; None for somebody who has no home."""
    folder = files.cache_directory()
    # What is compiled and simulated does not depend on the machine.
    if folder is None:
        return None
    return SeenPrograms(directory=folder / "programs", judge=key_digest(contest.key("simulated")))


def sha256(kernel: bytes) -> str:
    """The hash by which records know a kernel.py."""
    return hashlib.sha256(kernel).hexdigest()
