"""Every verdict ruled again: the evidence, the champion's evidence and the policy of a record decide, not its words."""

import math
from bisect import bisect_left
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from harness.hardware import Chip, chip
from harness.judge.evaluate.timing import latency
from harness.judge.key import problem_digest, statement_digest
from harness.judge.verdict import decision
from harness.judge.verdict.champion_evidence import known_evidence
from harness.judge.verdict.compare_measured import attempts_since_accept
from harness.ledger.codec import schema_of
from harness.ledger.fsck.checks import NOT_COMPUTED
from harness.ledger.fsck.inventory import HeldAttempt, finding
from harness.records import Attempt, Evidence, Finding, Key, Policy, Simulation, Verdict

# Sums of doubles, added up in another order than then.
_RELATIVE_TOLERANCE = 1e-9
# Since then a simulated gain is accepted only with the runs on other machines that its record holds.
_RESIMULATED_SINCE = 2
# Since then the hash of a record's statement is the problem of its key; older statements had fewer fields.
_STATED_SINCE = 9


@dataclass(frozen=True, slots=True, kw_only=True)
class _Book:
    """All records, the lowest number first, and the numbers beside them."""

    records: tuple[HeldAttempt, ...]
    numbers: tuple[int, ...]

    def between(self, after: int, before: int) -> tuple[HeldAttempt, ...]:
        """The records whose numbers lie between the two, without them."""
        return self.records[bisect_left(self.numbers, after + 1) : bisect_left(self.numbers, before)]

    def of(self, number: int) -> tuple[Attempt, ...]:
        """The attempts of that number: two where two clones numbered apart."""
        return tuple(known.attempt for known in self.between(number - 1, number + 1))


def verdicts(everything: Sequence[HeldAttempt], present: Key | None, notes: list[str]) -> Iterator[Finding]:
    """Every verdict that does not follow from its record, and every time that its evidence does not give.

    `present` is the key of evidence taken now, where it is known: under its judge a verdict is the same to the
    letter, under others its outcome and its time ratio are. Nothing is said of a verdict whose champion's evidence is
    not here, but that it is not.
    """
    ordered = sorted(everything, key=lambda known: known.attempt.number)
    book = _Book(records=tuple(ordered), numbers=tuple(known.attempt.number for known in ordered))
    early = 0
    for known in everything:
        try:
            chip_then = chip(known.attempt.evidence.chip)
            inconsistent = (*_of_record(known), *_of_champion(known.attempt, book))
        except NOT_COMPUTED:
            # `checks.derived` says so.
            continue
        for kind, what in inconsistent:
            yield finding(kind, known.where, f"attempt {known.attempt.number}: {what}", _remedy(known))
        opponents = _opponents(known.attempt, book)
        if not opponents:
            notes.append(
                f"{known.where}: not ruled again, the evidence of its champion (attempt "
                f"{known.attempt.champion.attempt if known.attempt.champion else 'none'}) is not here"
            )
            continue
        said = [_objection(known, one, book, chip_then, present) for one in opponents]
        early += _is_early_accept(known)
        if None not in said:
            kind, what = next(filter(None, said))
            yield finding(kind, known.where, f"attempt {known.attempt.number} {what}", _remedy(known))
    if early:
        notes.append(
            f"{early} accepts are older than the runs on other machines that a simulated gain has needed since: they "
            "were ruled again without"
        )


def _remedy(known: HeldAttempt) -> str:
    return (
        f"the record was edited, or its evidence was: replay {known.attempt.number} judges its kernel.py again; a log "
        "from a clone that you trust says what it was"
    )


# --- what a record says of itself --------------------------------------------------------------


def _of_record(known: HeldAttempt) -> Iterator[tuple[str, str]]:
    """What its evidence, key and policy do not agree in."""
    attempt = known.attempt
    key, policy, default = attempt.key, attempt.policy, Policy()
    if (
        policy.minimum_effect < default.minimum_effect
        or policy.false_accept_rate > default.false_accept_rate
        or len(policy.looks) > len(default.looks)
    ):
        yield "policy", "its policy asks for less than the ratchet does"
    for name, evidence in (("", attempt.evidence), ("its champion's ", attempt.champion_evidence)):
        if evidence is None:
            continue
        if evidence.chip != key.chip or any(one.problem != stated for one, stated in _member_statements(evidence)):
            yield "key", f"{name}evidence is of another chip or problem than it says"
        if schema_of(known.data) >= _STATED_SINCE and _problem(evidence, key) != key.problem:
            yield "key", f"{name}statement is not the problem {key.problem} of its key"
        yield from (("time", f"{name}{said}") for said in _times(evidence, key))
    champion, theirs = attempt.champion, attempt.champion_evidence
    if attempt.kind == "experiment" and champion is None:
        yield "verdict", "it is an experiment and names no champion"
    if champion is not None and champion.attempt >= attempt.number:
        yield "verdict", f"it was judged against attempt {champion.attempt}, which came after it"
    if champion is not None and theirs is not None and attempt.kind == "experiment":
        yield from (("time", said) for said in _differing(champion.seconds, _seconds(theirs), "its champion's time"))


def _problem(evidence: Evidence, key: Key) -> str:
    """The digest of the problem as a key of that time has it."""
    return problem_digest(evidence.problem) if key.timing else statement_digest(evidence.problem)


def _member_statements(evidence: Evidence) -> Iterator[tuple[Evidence, object]]:
    """Each member of a suite with what the suite states of it."""
    for named, member in evidence.named_members:
        yield member, named.statement


def _times(evidence: Evidence, key: Key) -> Iterator[str]:
    """A latency that the samples, the simulation or the members do not give."""
    if evidence.latency is not None and evidence.latency.source != key.source:
        yield f"latency is {evidence.latency.source}, its key says {key.source}"
    if evidence.members and evidence.latency is not None:
        known = [seconds for member in evidence.members if (seconds := _seconds(member)) is not None]
        whole = evidence.problem.mean(known) if len(known) == len(evidence.problem.members or ()) else None
        yield from _differing(_seconds(evidence), whole, "latency")
    for _, program in evidence.programs:
        run, taken = program.simulation, program.latency
        if taken is not None and taken.source == "simulated":
            yield from _differing(taken.seconds, run.mean_seconds if run else None, "latency")
        elif taken is not None and taken.source != "simulated" and program.samples is not None:
            yield from _differing(taken.seconds, latency.measured(program.samples, taken.source).seconds, "latency")
        if run is not None:
            yield from _cycles(run)


def _cycles(run: Simulation) -> Iterator[str]:
    """A simulated time that its cycles do not give, and cycles that their parts do not."""
    if run.seconds is None or run.cycles is None:
        return
    by_clock = run.cycles / run.clock_hz
    parts = run.bundle_cycles + run.dma_wait_cycles + run.unit_stall_cycles + run.launch_cycles
    if not _equal(run.seconds, by_clock):
        yield f"simulated time is {run.seconds:.6g} s, its cycles take {by_clock:.6g} s"
    # Bundles are counted in whole cycles.
    if not math.isclose(run.cycles, parts, rel_tol=_RELATIVE_TOLERANCE, abs_tol=1.0):
        yield f"simulated cycles are {run.cycles:.6g}, their parts add up to {parts:.6g}"


def _of_champion(attempt: Attempt, book: _Book) -> Iterator[tuple[str, str]]:
    """What it says of the champion and the champion's own record does not, where both are of the same key."""
    if attempt.champion is None:
        return
    records = book.of(attempt.champion.attempt)
    if attempt.kind == "experiment" and attempt.champion_evidence is not None and attempt.key.source == "simulated":
        times = [_seconds(one.evidence) for one in records if one.key.timed == attempt.key.timed]
        if times and not any(_equal(_seconds(attempt.champion_evidence), time) for time in times):
            yield "time", f"its champion takes another time than the record of attempt {attempt.champion.attempt} says"
    ratio, own = attempt.verdict.time_ratio, _seconds(attempt.evidence)
    if attempt.kind == "rebaseline" and ratio is not None and records:
        times = [_seconds(one.evidence) for one in records]
        if not any(own is not None and time and _equal(ratio, own / time) for time in times):
            yield "verdict", f"its time is not {ratio:.4g} times that of attempt {attempt.champion.attempt}"


def _differing(said: float | None, derived: float | None, what: str) -> Iterator[str]:
    if not _equal(said, derived):
        shown = ["unknown" if time is None else f"{time:.6g} s" for time in (said, derived)]
        yield f"{what} is {shown[0]}, its evidence gives {shown[1]}"


# --- the ruling --------------------------------------------------------------------------------


def _opponents(attempt: Attempt, book: _Book) -> tuple[Evidence | None, ...]:
    """The evidence of its champion under its key, one for each record there is of that number; (None,): it needs none.

    Two clones may have numbered apart, and the verdict has to follow from one of the champions.
    """
    if attempt.kind != "experiment" or attempt.champion is None:
        return (None,)
    if attempt.champion_evidence is not None:
        return (attempt.champion_evidence,)
    number, commit = attempt.champion.attempt, attempt.champion.commit
    since = [(one.row, one.attempt) for one in book.between(number, attempt.number)]
    found = (known_evidence(champion, commit, attempt.key, since, is_checked=True) for champion in book.of(number))
    return tuple(one for one in found if one is not None)


def _objection(
    known: HeldAttempt, opponent: Evidence | None, book: _Book, on: Chip, present: Key | None
) -> tuple[str, str] | None:
    """The kind of finding and what is wrong with the verdict, None where it follows."""
    attempt, recorded = known.attempt, known.attempt.verdict
    try:
        ruled = _ruled(attempt, opponent, book, on)
        is_early = ruled.outcome == "inconclusive" and _is_early_accept(known)
        if is_early and opponent and decision.is_simulated_gain(attempt.evidence, opponent, attempt.policy, on):
            ruled = replace(ruled, outcome="accept")
    except NOT_COMPUTED as error:
        return "verdict", f"cannot be ruled again: {error}"
    said = f"is recorded as {recorded.outcome}, its evidence gives {ruled.outcome}: {'; '.join(ruled.reasons[:2])}"
    if ruled.outcome != recorded.outcome:
        is_impossible = ruled.failure is not None and ruled.failure.kind == "impossible"
        return "impossible-time" if is_impossible else "verdict", said
    if attempt.kind == "experiment" and not _equal(recorded.time_ratio, ruled.time_ratio):
        return (
            "verdict",
            f"is recorded with the time ratio {recorded.time_ratio}, its evidence gives {ruled.time_ratio}",
        )
    is_same_judge = present is not None and attempt.key.judge == present.judge
    if is_same_judge and attempt.kind in ("experiment", "baseline") and recorded != ruled:
        return "verdict", f"is recorded in other words than the same judge gives it: {'; '.join(ruled.reasons[:2])}"
    return None


def _ruled(attempt: Attempt, opponent: Evidence | None, book: _Book, on: Chip) -> Verdict:
    recorded, sweep, since = attempt.verdict, attempt.sweep, attempt.verdict.attempts_since_accept or 1
    if attempt.key.source != "simulated":
        rows = [one.row for one in book.between(0, attempt.number)]
        since = max(since, attempts_since_accept(rows, attempt.key.source))
    looked_at = max(attempt.looked_at, sweep.looked_at if sweep else 1)
    tries = decision.Tries(since_accept=since, looked_at=looked_at)
    return decision.decide(attempt.evidence, opponent, attempt.paired, attempt.policy, on, recorded.resimulated, tries)


def _is_early_accept(known: HeldAttempt) -> bool:
    verdict = known.attempt.verdict
    is_gain = known.attempt.kind == "experiment" and verdict.outcome == "accept" and not verdict.resimulated
    return is_gain and known.attempt.key.source == "simulated" and schema_of(known.data) < _RESIMULATED_SINCE


def _seconds(evidence: Evidence) -> float | None:
    return evidence.latency.seconds if evidence.latency else None


def _equal(one: float | None, other: float | None) -> bool:
    if one is None or other is None:
        return one is other
    return math.isclose(one, other, rel_tol=_RELATIVE_TOLERANCE)
