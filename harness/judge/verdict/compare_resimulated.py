"""Tests a simulated gain on all machine variants, in each of which one uncertain constant or rule is changed."""

import math
from dataclasses import replace
from operator import itemgetter

from harness.judge.verdict import members
from harness.judge.verdict.roofline import recorded_seconds
from harness.records import NOMINAL, OTHER_WAY, Evidence, Resimulation, Verdict
from harness.units import percent, seconds

# The same dump on the same machine always takes the same simulated cycles. This tolerance is for seconds stored as
# text.
_SAME = 1e-9


def judged(verdict: Verdict, candidate: Evidence, champion: Evidence, resimulated: tuple[Resimulation, ...]) -> Verdict:
    """The accept `verdict` if the simulated gain holds on every machine, otherwise an inconclusive verdict.

    On each machine the candidate must take less time than the champion. The size of the gain does not matter: the
    nominal times already show that it is large enough and exceeds the simulator's error for programs of this kind. A
    constant that makes all kernels faster (for example, transfers at no cost) also makes their difference smaller.

    The verdict is inconclusive in each of these cases:

    - there are no runs, or a run has no time;
    - the times of the nominal run are not the judged times;
    - the ratio on a machine is 1 or more, so the sign of the gain depends on the changed constant;
    - a member of a suite loses more than `may_lose` on a machine.
    """
    doubt = _unusable(candidate, champion, resimulated) or _loss_sentence(resimulated)
    doubt = doubt or _members_lost(candidate, resimulated)
    if doubt:
        return replace(verdict, outcome="inconclusive", reasons=(doubt, *verdict.reasons), resimulated=resimulated)
    return replace(verdict, reasons=(*verdict.reasons, summary(resimulated)), resimulated=resimulated)


def summary(resimulated: tuple[Resimulation, ...]) -> str:
    """One line on the machine variant on which the gain is smallest; "" if there are no variants."""
    variants = [run for run in resimulated if run.name != NOMINAL]
    ratios = [(ratio, run) for run in variants if (ratio := run.time_ratio) is not None]
    if not ratios:
        return ""
    largest_ratio, worst = max(ratios, key=itemgetter(0))
    return (
        f"faster under all {len(variants)} variations of the simulator (a gain of any size suffices); the smallest "
        f"gain, {percent(1 - largest_ratio)} less time, is under {worst.name}: {_times(worst)}"
    )


def _unusable(candidate: Evidence, champion: Evidence, resimulated: tuple[Resimulation, ...]) -> str:
    """The reason why the runs prove nothing about the two judged times; "" if there is no such reason."""
    nominal = next((run for run in resimulated if run.name == NOMINAL), None)
    if nominal is None or len(resimulated) < 2:
        return (
            "champion and candidate were not simulated again with the simulator's uncertain constants changed, so the "
            "gain may depend on one of these constants"
        )
    recorded = {"champion": (champion, nominal.champion_seconds), "candidate": (candidate, nominal.candidate_seconds)}
    for who, (evidence, again) in recorded.items():
        time = recorded_seconds(evidence)
        if time is None or again is None or not math.isclose(time, again, rel_tol=_SAME):
            got = seconds(again) if again is not None else "no time"
            judged_time = seconds(time) if time else "no time"
            return (
                f"simulated again, the {who} takes {got} instead of the judged {judged_time}: its dumps are not those "
                "of the judged program"
            )
    return ""


def _loss_sentence(resimulated: tuple[Resimulation, ...]) -> str:
    """A sentence on a machine on which the gain is unknown or lost; "" if the gain holds on all machines."""
    ratios: list[tuple[float, Resimulation]] = []
    for run in resimulated:
        if run.time_ratio is None:
            return f"the gain under {run.name} is unknown: simulated again, one of the two programs has no time"
        ratios.append((run.time_ratio, run))
    # The comparison is negated, so that a NaN counts as a lost gain.
    losing = [(ratio, run) for ratio, run in ratios if not ratio < 1]
    if not losing:
        return ""
    _, worst = max(losing, key=itemgetter(0))
    if worst.name == OTHER_WAY:
        return (
            "the gain depends on the contest's assumption on branches (ASSUME): under the opposite assumption the "
            f"candidate takes {_times(worst)}; make a change that gains under both assumptions, or measure on a device"
        )
    return (
        f"the gain depends on an uncertain constant of the simulator: under {worst.name} the candidate takes "
        f"{_times(worst)}; make a change that gains there too, or measure on a device"
    )


def _members_lost(candidate: Evidence, resimulated: tuple[Resimulation, ...]) -> str:
    """A sentence on a member that loses too much on one of the machines; "" if no member does."""
    for run in resimulated:
        for sentence in members.losers(candidate.problem, run.members, f"simulated under {run.name}"):
            return f"a member's loss depends on an uncertain assumption of the simulator: {sentence}"
    return ""


def _times(run: Resimulation) -> str:
    times = (run.candidate_seconds, run.champion_seconds)
    return " against ".join(seconds(time) if time is not None else "no time" for time in times)
