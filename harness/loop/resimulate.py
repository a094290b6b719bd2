"""Tests a simulated gain under the simulator's uncertain constants: simulates the dumps of both programs again."""

import math
import time
from dataclasses import dataclass, replace
from pathlib import Path

from harness.candidate import Candidate
from harness.contest import Contest
from harness.judge.evaluate import evaluation as measuring
from harness.judge.evaluate.timing import resimulation
from harness.judge.simulate import machine_variants
from harness.judge.verdict import decision as judging
from harness.judge.verdict import members
from harness.loop.bench import CHAMPION, Bench, Say
from harness.records import NOMINAL, OTHER_WAY, Evidence, Failure, Policy, Resimulation
from harness.units import quantity

# The name of the stage in which a gain is simulated again with changed uncertain constants.
_STAGE = "uncertain constants"


@dataclass(frozen=True, slots=True, kw_only=True)
class Defender:
    """The champion: its evidence, its files, and the folders of `profile_data` that may hold its dumps.

    Without dumps, `bench` compiles and simulates the champion, unchecked, into the first of `works`. `say` gets the
    reason if the new runs fail.
    """

    evidence: Evidence
    candidate: Candidate
    works: tuple[str, ...]
    bench: Bench
    say: Say


def resimulated(evidence: Evidence, work: str, defender: Defender | None) -> tuple[Resimulation, ...]:
    """The runs of both programs under each change of an uncertain constant; () unless the gain is a simulated one.

    `evidence` is about the candidate; its dumps are in the folder `work` of `profile_data`. Dumps count as the
    champion's if the hash of its kernel.py is next to them and if simulating them gives the judged time. If there are
    no such dumps, the champion is compiled again. If the runs fail, the reason is reported and the result is ().
    """
    if defender is None:
        return ()
    contest, policy = defender.bench.contest, defender.bench.policy
    if not judging.is_simulated_gain(evidence, defender.evidence, policy, contest.chip):
        return ()
    began = time.monotonic()
    defender.bench.progress(_STAGE, "start", 0.0)
    data = contest.directory / "profile_data"
    there = [other for other in defender.works if measuring.is_of(data / other, defender.candidate)]
    runs: tuple[Resimulation, ...] | Failure = ()
    for other in (*there, None):
        if other is None:
            bench = replace(defender.bench, timed=False, checked=False)
            bench.judge(defender.candidate, defender.works[0], CHAMPION)
        champion = data / (other or defender.works[0])
        runs = _run(champion, data / work, contest, policy, evidence, defender.evidence)
        if not isinstance(runs, Failure) and _is_the_champion(runs, defender.evidence):
            break
    changes = "failed" if isinstance(runs, Failure) else f"both programs, {quantity(len(runs) - 1, 'change')}"
    defender.bench.progress(_STAGE, changes, time.monotonic() - began)
    if isinstance(runs, Failure):
        defender.say(f"champion and candidate could not be simulated again: {runs.kind}: {runs.message}")
        return ()
    return runs


def _run(
    champion: Path, candidate: Path, contest: Contest, policy: Policy, ours: Evidence, theirs: Evidence
) -> tuple[Resimulation, ...] | Failure:
    """The runs of both programs; for a suite, combined from the runs of the members with different programs."""
    runs_of: dict[str, tuple[Resimulation, ...]] = {}
    for (name, new), (_, old) in members.pairs(ours, theirs):
        if name and members.is_same_program(new, old):
            continue
        dumps = (champion / name / "dumps", candidate / name / "dumps")
        other_way = (OTHER_WAY,) if contest.assumption is not None else ()
        machines = NOMINAL, *machine_variants.doubts(contest.chip), *other_way
        runs = resimulation.run(*dumps, contest.chip, policy, machines, machine_variants.seconds_on)
        if isinstance(runs, Failure):
            return runs
        runs_of[name] = runs
    return members.resimulated(ours, theirs, runs_of) if ours.members else runs_of[""]


def _is_the_champion(runs: tuple[Resimulation, ...], champion: Evidence) -> bool:
    judged_seconds = champion.latency.seconds if champion.latency else None
    again = runs[0].champion_seconds if runs else None
    return judged_seconds is not None and again is not None and math.isclose(judged_seconds, again, rel_tol=1e-9)
