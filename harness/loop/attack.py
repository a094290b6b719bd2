"""A search for the input with the kernel's largest error, in the space of the problem's inputs."""

import secrets
import time
from dataclasses import dataclass
from pathlib import Path

import msgspec

from harness import files, reading_limits
from harness.candidate import Candidate
from harness.contest import Contest
from harness.errors import UsageError
from harness.judge.evaluate.request import Plan
from harness.loop import attack_search
from harness.loop.bench import Bench
from harness.operators import Member
from harness.operators.exact import is_exact
from harness.records.attack import Attack, WorstInput

_SCHEMA = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class _AttackFile:
    """The content of an attack's file: the worst input, its problem, and the hash of the kernel that was attacked."""

    schema: int
    problem: str
    kernel_sha256: str
    found: WorstInput


def attack(
    contest: Contest,
    member: Member,
    candidate: Candidate,
    *,
    minutes: float,
    seed: int | None,
    first: bool,
    tell: attack_search.Tell,
) -> Attack:
    """The result of a search of `minutes` for the input on which `candidate` has its largest error.

    `member` is the contest's problem, or a member of its suite. `tell` is called with each input that has a larger
    error than all inputs before it. With `first`, the search ends at the first wrong result. Writes the worst input to
    `profile_data/attack/`; records nothing. Raises RatchetError `busy`, and the errors of `attack_search.search`.
    """
    seed = secrets.randbits(31) if seed is None else seed
    began = time.monotonic()
    with Bench(contest=contest).locked("attack"):
        count, worst = attack_search.search(
            _plan(contest, member, candidate), seconds=60 * minutes, seed=seed, first=first, tell=tell
        )
    file = f"profile_data/attack/{candidate.sha256[:8]}-{seed}.json" if worst else ""
    result = _attack(member, candidate, seed, count, began, worst, file)
    if worst is not None:
        kept = _AttackFile(schema=_SCHEMA, problem=result.problem, kernel_sha256=result.kernel_sha256, found=worst)
        files.write_atomically(contest.directory / file, msgspec.json.format(msgspec.json.encode(kept)) + b"\n")
    return result


def repeat(contest: Contest, member: Member, candidate: Candidate, path: Path) -> Attack:
    """The error of `candidate` on the input in the file `path`, which may be relative to the contest's folder.

    Raises UsageError `bad-attack` if `attack` did not write `path` for this problem, RatchetError `busy`, and
    the errors of `attack_search.repeat`.
    """
    if not path.exists():
        path = contest.directory / path
    try:
        kept = msgspec.json.decode(reading_limits.read(path, reading_limits.RECORD), type=_AttackFile)
    except (OSError, msgspec.DecodeError, RecursionError) as error:
        raise UsageError("bad-attack", f"expected a file written by `attack`, got {path}: {error}") from error
    title = member.problem.statement().title
    if kept.problem != title:
        raise UsageError(
            "bad-attack",
            f"expected an input of `{title}`, got an input of `{kept.problem}` in {path}; name a file that `attack` "
            "wrote for this problem",
        )
    began = time.monotonic()
    with Bench(contest=contest).locked("attack"):
        worst = attack_search.repeat(_plan(contest, member, candidate), kept.found)
    return _attack(member, candidate, worst.seed, 1, began, worst, str(path))


def _attack(
    member: Member, candidate: Candidate, seed: int, inputs: int, began: float, worst: WorstInput | None, file: str
) -> Attack:
    statement = member.problem.statement()
    exact = {output.name: is_exact(member.problem, output) for output in statement.outputs}
    return Attack(
        problem=statement.title,
        kernel_sha256=candidate.sha256,
        seed=seed,
        tried=inputs,
        seconds=time.monotonic() - began,
        worst=worst,
        file=file,
        exact_outputs=tuple(name for name, is_so in exact.items() if is_so),
        tolerated_outputs=tuple(name for name, is_so in exact.items() if not is_so),
    )


def _plan(contest: Contest, member: Member, candidate: Candidate) -> Plan:
    bench = Bench(contest=contest, timed=False, reuses=False)
    request = bench.request(candidate, bench.profile_data / "attack" / "work")
    return Plan(request=request, member=member, source="simulated", work=request.work)
