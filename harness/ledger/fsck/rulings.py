"""Derives every verdict again from the recorded evidence and policy, and compares it with the recorded verdict."""

import math
from bisect import bisect_left
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from harness.hardware import Chip, chip
from harness.judge.evaluate.timing import latency
from harness.judge.key import problem_digests
from harness.judge.verdict import decision
from harness.judge.verdict.champion_evidence import known_evidence
from harness.judge.verdict.compare_measured import attempts_since_accept
from harness.judge.verdict.roofline import recorded_seconds
from harness.ledger.codec import schema_of
from harness.ledger.fsck.checks import NOT_COMPUTED, equal
from harness.ledger.fsck.inventory import HeldAttempt, finding
from harness.records import Attempt, Evidence, Finding, Key, Policy, Simulation, Verdict

# Since this schema a simulated gain is accepted only with recorded runs under changed constants of the simulator.
_RESIMULATED_SINCE = 2
# Since this schema, `problem` in a record's key is the hash of its statement; older statements had fewer fields.
_STATED_SINCE = 9


@dataclass(frozen=True, slots=True, kw_only=True)
class _Book:
    """All records, the lowest number first."""

    records: tuple[HeldAttempt, ...]

    def between(self, after: int, before: int) -> tuple[HeldAttempt, ...]:
        """The records with numbers strictly between the two."""
        first, end = (bisect_left(self.records, number, key=_number) for number in (after + 1, before))
        return self.records[first:end]

    def of(self, number: int) -> tuple[Attempt, ...]:
        """The attempts of that number: two if two clones used it."""
        return tuple(record.attempt for record in self.between(number - 1, number + 1))


def verdicts(everything: Sequence[HeldAttempt], present: Key | None, notes: list[str]) -> Iterator[Finding]:
    """Findings for each verdict that does not follow from its record, and each latency that its evidence contradicts.

    `present` is the key of new evidence, if known. A verdict by the judge of `present` must match in full; a
    verdict by another judge must match in outcome and time ratio. If a champion's evidence is not here, a note says so
    and the verdict is not checked.
    """
    book = _Book(records=tuple(sorted(everything, key=_number)))
    early = 0
    for record in everything:
        try:
            chip_then = chip(record.attempt.evidence.chip)
            inconsistent = (*_of_record(record), *_of_champion(record.attempt, book))
        except NOT_COMPUTED:
            # `checks.derived` reports it.
            continue
        for kind, what in inconsistent:
            yield finding(kind, record.where, f"attempt {record.attempt.number}: {what}", _remedy(record))
        opponents = _opponents(record.attempt, book)
        if not opponents:
            notes.append(
                f"{record.where}: verdict not derived again, because the evidence of its champion (attempt "
                f"{record.attempt.champion.attempt if record.attempt.champion else 'none'}) is not here"
            )
            continue
        objections = [_objection(record, opponent, book, chip_then, present) for opponent in opponents]
        early += _is_early_accept(record)
        if None not in objections:
            kind, what = next(filter(None, objections))
            yield finding(kind, record.where, f"attempt {record.attempt.number} {what}", _remedy(record))
    if early:
        notes.append(
            f"accepts older than the rule that a gain must hold under changed constants of the simulator: {early}; "
            "their verdicts were derived again without that rule"
        )


def _number(record: HeldAttempt) -> int:
    return record.attempt.number


def _remedy(record: HeldAttempt) -> str:
    return (
        f"the record or its evidence was edited: `replay {record.attempt.number}` judges its kernel.py again; a log "
        "from a clone that you trust has the original"
    )


# --- a record against itself --------------------------------------------------------------------


def _of_record(record: HeldAttempt) -> Iterator[tuple[str, str]]:
    """Contradictions between a record's evidence, key and policy, each as its kind and a sentence."""
    attempt = record.attempt
    key, policy, default = attempt.key, attempt.policy, Policy()
    if (
        policy.minimum_effect < default.minimum_effect
        or policy.false_accept_rate > default.false_accept_rate
        or len(policy.looks) > len(default.looks)
    ):
        yield "policy", "its policy is less strict than the ratchet's"
    for name, evidence in (("", attempt.evidence), ("its champion's ", attempt.champion_evidence)):
        if evidence is None:
            continue
        if evidence.chip != key.chip or any(
            member.problem != named.statement for named, member in evidence.named_members
        ):
            yield (
                "key",
                f"{name}evidence is of another chip than the key, or a member's problem is not the one that the suite "
                "states",
            )
        if schema_of(record.data) >= _STATED_SINCE and key.problem not in problem_digests(
            evidence.problem, is_timed=bool(key.timing)
        ):
            yield "key", f"{name}evidence states another problem than the key ({key.problem})"
        yield from (("time", f"{name}{complaint}") for complaint in _times(evidence, key))
    champion, theirs = attempt.champion, attempt.champion_evidence
    if attempt.kind == "experiment" and champion is None:
        yield "verdict", "it is an experiment but names no champion"
    if champion is not None and champion.attempt >= attempt.number:
        yield "verdict", f"it was judged against attempt {champion.attempt}, which came after it"
    if champion is not None and theirs is not None and attempt.kind == "experiment":
        yield from (
            ("time", complaint)
            for complaint in _differing(champion.seconds, recorded_seconds(theirs), "its champion's time")
        )


def _times(evidence: Evidence, key: Key) -> Iterator[str]:
    """Complaints about a latency that does not follow from samples, simulation or members."""
    if evidence.latency is not None and evidence.latency.source != key.source:
        yield f"latency is {evidence.latency.source}, the key says {key.source}"
    if evidence.members and evidence.latency is not None:
        times = [seconds for member in evidence.members if (seconds := recorded_seconds(member)) is not None]
        whole = evidence.problem.mean(times) if len(times) == len(evidence.problem.members or ()) else None
        yield from _differing(recorded_seconds(evidence), whole, "latency")
    for _, program in evidence.programs:
        run, measured = program.simulation, program.latency
        if measured is not None and measured.source == "simulated":
            yield from _differing(measured.seconds, run.mean_seconds if run else None, "latency")
        elif measured is not None and measured.source != "simulated" and program.samples is not None:
            yield from _differing(
                measured.seconds, latency.measured(program.samples, measured.source).seconds, "latency"
            )
        if run is not None:
            yield from _cycles(run)


def _cycles(run: Simulation) -> Iterator[str]:
    """Complaints about a simulated time that differs from its cycles, and cycles that differ from their parts' sum."""
    if run.seconds is None or run.cycles is None:
        return
    by_clock = run.cycles / run.clock_hz
    parts = run.bundle_cycles + run.dma_wait_cycles + run.unit_stall_cycles + run.launch_cycles
    if not equal(run.seconds, by_clock):
        yield f"simulated time is {run.seconds:.6g} s, its cycles take {by_clock:.6g} s"
    # Bundles are counted in whole cycles.
    if not math.isclose(run.cycles, parts, rel_tol=1e-9, abs_tol=1.0):
        yield f"simulated cycles are {run.cycles:.6g}, their parts add up to {parts:.6g}"


def _of_champion(attempt: Attempt, book: _Book) -> Iterator[tuple[str, str]]:
    """Contradictions between the times in the record and those in its champion's own record."""
    if attempt.champion is None:
        return
    records = book.of(attempt.champion.attempt)
    if attempt.kind == "experiment" and attempt.champion_evidence is not None and attempt.key.source == "simulated":
        times = [recorded_seconds(attempt_.evidence) for attempt_ in records if attempt_.key.timed == attempt.key.timed]
        if times and not any(equal(recorded_seconds(attempt.champion_evidence), time) for time in times):
            yield "time", f"its champion's time differs from that in the record of attempt {attempt.champion.attempt}"
    ratio, seconds_ = attempt.verdict.time_ratio, recorded_seconds(attempt.evidence)
    if attempt.kind == "rebaseline" and ratio is not None and records:
        times = [recorded_seconds(attempt_.evidence) for attempt_ in records]
        if not any(seconds_ is not None and time and equal(ratio, seconds_ / time) for time in times):
            yield "verdict", f"its time is not {ratio:.4g} times that of attempt {attempt.champion.attempt}"


def _differing(stated: float | None, derived: float | None, what: str) -> Iterator[str]:
    if not equal(stated, derived):
        shown = ["unknown" if time is None else f"{time:.6g} s" for time in (stated, derived)]
        yield f"{what} is {shown[0]}, its evidence gives {shown[1]}"


# --- the ruling --------------------------------------------------------------------------------


def _opponents(attempt: Attempt, book: _Book) -> tuple[Evidence | None, ...]:
    """The champion's evidence under the attempt's key, from each record of its number; (None,) if none is needed.

    Two clones may have used the champion's number; the verdict has to follow from one of these records.
    """
    if attempt.kind != "experiment" or attempt.champion is None:
        return (None,)
    if attempt.champion_evidence is not None:
        return (attempt.champion_evidence,)
    number, commit = attempt.champion.attempt, attempt.champion.commit
    since = [(record.row, record.attempt) for record in book.between(number, attempt.number)]
    known_of_each = (
        known_evidence(champion, commit, attempt.key, since, is_checked=True) for champion in book.of(number)
    )
    return tuple(evidence for evidence in known_of_each if evidence is not None)


def _objection(
    record: HeldAttempt, opponent: Evidence | None, book: _Book, on: Chip, present: Key | None
) -> tuple[str, str] | None:
    """The kind of finding and the fault of the verdict, or None if the verdict follows from the evidence."""
    attempt, recorded = record.attempt, record.attempt.verdict
    try:
        ruled = _ruled(attempt, opponent, book, on)
        is_early = ruled.outcome == "inconclusive" and _is_early_accept(record)
        if is_early and opponent and decision.is_simulated_gain(attempt.evidence, opponent, attempt.policy, on):
            ruled = replace(ruled, outcome="accept")
    except NOT_COMPUTED as error:
        return "verdict", f"has a verdict that cannot be derived again: {error}"
    complaint = f"is recorded as {recorded.outcome}, its evidence gives {ruled.outcome}: {'; '.join(ruled.reasons[:2])}"
    if ruled.outcome != recorded.outcome:
        is_impossible = ruled.failure is not None and ruled.failure.kind == "impossible"
        return "impossible-time" if is_impossible else "verdict", complaint
    if attempt.kind == "experiment" and not equal(recorded.time_ratio, ruled.time_ratio):
        return (
            "verdict",
            f"is recorded with the time ratio {recorded.time_ratio}, its evidence gives {ruled.time_ratio}",
        )
    is_same_judge = present is not None and attempt.key.judge == present.judge
    if is_same_judge and attempt.kind in ("experiment", "baseline") and recorded != ruled:
        return (
            "verdict",
            "is recorded with other reasons or figures than the same judge gives, whose reasons are: "
            f"{'; '.join(ruled.reasons[:2])}",
        )
    return None


def _ruled(attempt: Attempt, opponent: Evidence | None, book: _Book, on: Chip) -> Verdict:
    recorded, sweep, since = attempt.verdict, attempt.sweep, attempt.verdict.attempts_since_accept or 1
    if attempt.key.source != "simulated":
        rows = [record.row for record in book.between(0, attempt.number)]
        since = max(since, attempts_since_accept(rows, attempt.key.source))
    looked_at = max(attempt.looked_at, sweep.looked_at if sweep else 1)
    tries = decision.Tries(since_accept=since, looked_at=looked_at)
    return decision.decide(attempt.evidence, opponent, attempt.paired, attempt.policy, on, recorded.resimulated, tries)


def _is_early_accept(record: HeldAttempt) -> bool:
    verdict = record.attempt.verdict
    is_gain = record.attempt.kind == "experiment" and verdict.outcome == "accept" and not verdict.resimulated
    return is_gain and record.attempt.key.source == "simulated" and schema_of(record.data) < _RESIMULATED_SINCE
