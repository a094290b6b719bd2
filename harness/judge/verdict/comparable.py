"""Reasons why evidence cannot support a verdict, and the check that two programs are comparable."""

import itertools

from harness.hardware import Chip
from harness.judge.verdict import roofline, schedule_checks
from harness.records import Evidence, Latency, Source


def barely_possible(evidence: Evidence, chip: Chip) -> tuple[str, ...]:
    """A doubt about the clock if the low end of a measured time's interval is below the least time on `chip`.

    Simulated times are not tested against this limit: a simulated schedule is one that the chip can issue, even if the
    simulator errs about its time.
    """
    time = evidence.latency
    if time is None or time.seconds is None or not time.plus_minus_seconds or time.source == "simulated":
        return ()
    low = time.seconds - time.plus_minus_seconds
    reasons = roofline.impossibilities(evidence.problem.work, low, chip) if low > 0 else ("the interval reaches zero",)
    return tuple(f"the low end of the measured interval is impossible: {sentence}" for sentence in reasons)


def doubts(evidence: Evidence, who: str) -> tuple[str, ...]:
    """Reasons why `evidence` cannot support a verdict; empty if it can."""
    if evidence.failure:
        return (f"{who} failed under the present key ({evidence.failure.kind}), so there is no time to compare with",)
    if evidence.unchecked:
        return (f"checks of {who} were not run ({len(evidence.unchecked)}), and nothing unchecked is accepted",)
    if len(evidence.members) != len(evidence.problem.members or ()):
        return (f"not every member of the suite was evaluated for {who}, and nothing unchecked is accepted",)
    if evidence.members:
        of_members = (doubts(member, f"{who} at {named.name}") for named, member in evidence.named_members)
        unsupported = tuple(itertools.chain.from_iterable(of_members))
    elif not evidence.checks:
        return (f"no correctness check of {who} was run, and nothing unchecked is accepted",)
    else:
        unsupported = schedule_checks.doubts(evidence)
    return unsupported or _without_time(evidence, who)


def _without_time(evidence: Evidence, who: str) -> tuple[str, ...]:
    if roofline.latency_seconds(evidence) is not None:
        return ()
    reasons = evidence.latency.reasons if evidence.latency else ()
    return (f"the latency of {who} is unknown: {'; '.join(reasons) or 'no latency was taken'}",)


def latency(evidence: Evidence) -> Latency:
    if evidence.latency is None:
        raise ValueError("expected evidence with a latency, got none")
    return evidence.latency


def known_seconds(evidence: Evidence) -> float:
    latency_seconds = roofline.latency_seconds(evidence)
    if latency_seconds is None:
        raise ValueError("expected a known latency, got none")
    return latency_seconds


def label(source: Source, chip: Chip) -> str:
    return f"{source} {chip.name}" if source != "measured cpu" else f"{source}, which says nothing about a {chip.kind}"


def require_comparable(candidate: Evidence, champion: Evidence, chip: Chip) -> None:
    """Raises ValueError, which names the first difference, if the two are not comparable.

    Remedy: evaluate the champion again.
    """
    sources = (latency(candidate).source, champion.latency.source if champion.latency else latency(candidate).source)
    pairs: list[tuple[str, object, object]] = [
        ("chip", candidate.chip, champion.chip),
        ("chip of the verdict", candidate.chip, chip.name),
        ("problem", candidate.problem, champion.problem),
        ("source", *sources),
    ]
    ours, theirs = candidate.environment, champion.environment
    names = ("jax", "jaxlib", "libtpu", *(() if sources[0] == "simulated" else ("machine",)))
    pairs += [(name, getattr(ours, name), getattr(theirs, name)) for name in names]
    for name, our_value, their_value in pairs:
        if our_value != their_value:
            values = f"{our_value} for the candidate, {their_value} for the champion"
            raise ValueError(f"candidate and champion are not comparable: {name} is {values}")
