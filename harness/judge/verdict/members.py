"""The members of a suite: the times of champion and candidate for each, and the members that lose more than allowed."""

from collections.abc import Iterable, Mapping, Sequence

from harness.judge.verdict.roofline import recorded_seconds
from harness.judge.verdict.ruling import ROUNDING
from harness.records import Evidence, MemberTimes, Resimulation, Statement
from harness.units import percent, seconds

Named = tuple[str, Evidence]


def pairs(candidate: Evidence, champion: Evidence) -> tuple[tuple[Named, Named], ...]:
    """Each program of the candidate with the champion's program. Raises ValueError if one side has more programs."""
    return tuple(zip(candidate.programs, champion.programs, strict=True))


def is_same_program(candidate: Evidence, champion: Evidence) -> bool:
    """True if both were traced to the same program and have the same time."""
    ours, theirs = candidate.trace, champion.trace
    is_same = ours is not None and theirs is not None and ours.fingerprint == theirs.fingerprint
    return is_same and recorded_seconds(candidate) == recorded_seconds(champion)


def times(candidate: Evidence, champion: Evidence) -> tuple[MemberTimes, ...]:
    """The times of candidate and champion for each member of a suite; empty for a single problem."""
    if not candidate.members:
        return ()
    return tuple(
        MemberTimes(name=name, champion_seconds=recorded_seconds(theirs), candidate_seconds=recorded_seconds(ours))
        for (name, ours), (_, theirs) in pairs(candidate, champion)
    )


def losing(suite: Statement, members: Iterable[MemberTimes]) -> tuple[MemberTimes, ...]:
    """The members that lose more than allowed, or whose loss is unknown."""
    most = 1 + (suite.may_lose or 0.0) + ROUNDING
    # The comparison is negated, so that a NaN counts as losing.
    return tuple(member for member in members if member.time_ratio is None or not member.time_ratio <= most)


def losers(suite: Statement, members: Iterable[MemberTimes], under: str) -> tuple[str, ...]:
    """A sentence on each member that `losing` returns; `under` names the simulated machine in words."""
    return tuple(_loss(suite, member, under) for member in losing(suite, members))


def _loss(suite: Statement, member: MemberTimes, under: str) -> str:
    if member.time_ratio is None:
        return f"{member.name} has no time, {under}"
    both_seconds = (member.candidate_seconds or 0.0, member.champion_seconds or 0.0)
    return (
        f"{member.name} takes {percent(member.time_ratio - 1)} more time than the champion, and no member may lose "
        f"more than {percent(suite.may_lose or 0.0)}: {' against '.join(map(seconds, both_seconds))}, {under}"
    )


def resimulated(
    candidate: Evidence, champion: Evidence, runs: Mapping[str, tuple[Resimulation, ...]]
) -> tuple[Resimulation, ...]:
    """The runs of the whole suite on each machine variant, from the runs of its members.

    `runs` is never empty. By name, it has the runs of each member for which champion and candidate are different
    programs.
    """
    alike = {member.name: member for member in times(candidate, champion) if member.name not in runs}
    suite = candidate.problem
    suite_runs = []
    for each in zip(*runs.values(), strict=True):
        changed = {
            name: MemberTimes(name=name, champion_seconds=run.champion_seconds, candidate_seconds=run.candidate_seconds)
            for name, run in zip(runs, each, strict=True)
        }
        of_all = [(alike | changed)[name] for name, _ in candidate.programs]
        old = _mean(suite, [member.champion_seconds for member in of_all])
        new = _mean(suite, [member.candidate_seconds for member in of_all])
        run = Resimulation(
            name=each[0].name, champion_seconds=old, candidate_seconds=new, members=tuple(changed.values())
        )
        suite_runs.append(run)
    return tuple(suite_runs)


def _mean(suite: Statement, times: Sequence[float | None]) -> float | None:
    """The suite's mean of these times; None if one of them is None."""
    known_times = [time for time in times if time is not None]
    return suite.mean(known_times) if len(known_times) == len(times) else None
