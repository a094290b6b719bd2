"""A grid of settings of kernel.py: screened cheaply, then the best as one attempt that names the grid in its record.

Screening compiles each setting and takes its simulated latency, on both cores; what it leaves out is
whether the results are right, which is most of a judgement's time. A chip without a simulator is asked
itself, one setting at a time. Screened latencies choose and decide nothing: the chosen setting is
judged like any other candidate, and where a device times it, by a paired benchmark of samples taken afresh. So
however many settings are screened, luck has the one chance there that an attempt has
(benchmarks/FALSE_ACCEPTS.md). A simulated time has no luck in it, but an error of its model, and the fastest of
many is more likely than others to be one that errs in its favour: the verdict asks for more, the more were looked at
(`judge/verdict/compare_simulated.py`).
"""

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from harness.candidate import Candidate
from harness.errors import RatchetError
from harness.judge.evaluate import evaluation as measuring
from harness.judge.key import key_digest
from harness.judge.verdict import members, roofline
from harness.ledger import Ledger
from harness.ledger.table import scaled
from harness.loop import attempt as ratchet
from harness.loop import guard, preconditions, screening, search_state
from harness.loop.bench import Bench, Say
from harness.loop.options import Alternative, Options
from harness.loop.screening import Places
from harness.loop.search import Search, SearchProgress
from harness.loop.search_space import Grid, Setting, words
from harness.records import (
    MAY_PASS_NEXT_TIME,
    Evidence,
    Key,
    MemberTimes,
    Row,
    ScreenedSetting,
    Source,
    Sweep,
    SweepResult,
)
from harness.units import change


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """What a sweep came to, and the attempt that judged its best setting, if one was worth it."""

    swept: SweepResult
    judged: ratchet.AttemptResult | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Screening:
    """Settings of `parameters` to be screened in `places`, as the search asks for them that `begin` makes."""

    parameters: Grid
    begin: Callable[[], Search]
    places: Places


def sweep(bench: Bench, hypothesis: str, wanted: Screening, options: Options, say: Say) -> Outcome:
    """Screens the settings that are `wanted`, from kernel.py in the working tree; the best becomes an attempt.

    The search begins while nobody else searches this contest: it knows all that was found before it.

    Where the best fails its checks, the next best is judged in its place, as long as its screened time is below the
    champion's; the record of the one attempt names each that failed. Where all fail, it is that of the best.

    kernel.py is not written while settings are screened, and what may not change is watched over. Raises what an
    attempt raises, and RatchetError `unknown-constant` before anything is screened, `tampered` where a candidate
    changed what is not its own.
    """
    began = time.monotonic()
    contest = bench.contest
    ledger = Ledger.open(contest.directory)
    with ledger.lock("sweep"):
        for sentence in ledger.recover():
            say(sentence)
        preconditions.refuse_unfit(ledger.place.repository, contest)
        if not options.rebaseline:
            preconditions.refuse_cpu_title(ledger.champion(), measuring.source(contest.chip, bench.on))
        original = contest.candidate()
        # Before anything is screened, so that a name that is none costs nothing.
        original.set(tuple((name, values[0]) for name, values in wanted.parameters))
        search = wanted.begin()
        watch = guard.begin(ledger, contest)
        found: _Found | RatchetError
        try:
            found = _screened(bench, ledger, original, search, wanted.places)
        except RatchetError as error:
            # It may follow from what somebody changed.
            found = error
        finally:
            tampering = guard.end(ledger, watch, "sweep", is_confined=bench.policy.is_confined)
            for sentence in tampering.sentences:
                say(sentence)
        if tampering.sentences:
            raise RatchetError(
                "tampered",
                f"something was changed while settings were screened: {tampering.sentences[0]}. Nothing was recorded; "
                "read kernel.py before you run it again",
            )
        if isinstance(found, RatchetError):
            raise found
        record = Sweep(
            parameters=wanted.parameters,
            source=found.source,
            chip=contest.chip.name,
            screened=found.screened,
            looked_at=_looked_at(found.screened, search),
            champion=found.champion.number if found.champion else None,
            champion_seconds=found.champion.seconds if found.champion else None,
        )
        ranked = _ranked(found.screened, again=options.again)
        if not ranked:
            return Outcome(
                swept=SweepResult(
                    hypothesis=hypothesis,
                    sweep=record,
                    best=None,
                    attempt=None,
                    outcome=None,
                    why_none=_why_none(found.screened),
                    seconds=time.monotonic() - began,
                ),
                judged=None,
            )
        best, *others = ranked
        count = len(found.screened)
        told = f"{hypothesis} [best of {count}: {words(best.settings)}]"
        alternatives = tuple(
            Alternative(
                settings=one.settings,
                hypothesis=f"{hypothesis} [best of {count} that does not fail: {words(one.settings)}]",
                seconds=one.seconds or 0.0,
                source=found.source,
                fingerprint=one.fingerprint,
            )
            for one in others
        )
        options = replace(options, settings=best.settings, sweep=record, alternatives=alternatives)
        judged = ratchet.attempt_locked(ledger, bench, told, options, say)
    swept = SweepResult(
        hypothesis=judged.attempt.hypothesis,
        sweep=judged.attempt.sweep or record,
        best=judged.attempt.settings,
        attempt=judged.attempt.number if judged.recorded else None,
        outcome=judged.attempt.verdict.outcome,
        why_none="" if judged.recorded else "the best setting is the champion's own, so nothing was recorded",
        seconds=time.monotonic() - began,
    )
    return Outcome(swept=swept, judged=judged)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Found:
    source: Source
    screened: tuple[ScreenedSetting, ...]
    champion: Row | None


def _screened(bench: Bench, ledger: Ledger, original: Candidate, search: Search, places: Places) -> _Found:
    contest, progress, on = bench.contest, bench.progress, bench.on
    source = measuring.source(contest.chip, on)
    if contest.chip.platform == "tpu":
        source, on = "simulated", "simulated"
    table = scaled(ledger)
    rows = tuple(one.then for one in table.rows)
    key = contest.key(measuring.source(contest.chip, bench.on))
    title = search_state.title_row([one.row for one in table.rows], table.number)
    # On a device two times of different hours say nothing about each other.
    is_comparable = title is not None and title.source == source == "simulated" and title.key_digest == key_digest(key)
    champion_row = title if is_comparable else None
    # In the order in which they were asked for; different settings are different candidates.
    asked: dict[Candidate, tuple[Setting, ...]] = {}
    found: dict[Candidate, ScreenedSetting] = {}
    search_progress = SearchProgress(search.total)

    def ask() -> Candidate | None:
        settings = search.ask()
        if settings is None:
            return None
        candidate = original.set(settings)
        asked[candidate] = settings
        return candidate

    def tell(candidate: Candidate, evidence: Evidence) -> None:
        settings = asked[candidate]
        found[candidate] = one = _as_value(settings, evidence, rows, key, champion_row)
        if one.failure_kind in MAY_PASS_NEXT_TIME:
            search.forget(settings)
        else:
            search.tell(settings, one.seconds)
        state = search_progress.after(roofline.latency_seconds(evidence), screening.why_no_latency(evidence)[0])
        progress(words(settings), state, sum(stage.seconds for stage in evidence.stages))

    began = time.monotonic()
    progress("screening", "start", 0.0)
    # A device is timed by one at a time.
    screening.screen(
        contest, ask, tell, bench.policy, on=on, places=places if source == "simulated" else screening.local(1)
    )
    progress("screening", "done", time.monotonic() - began)
    return _Found(source=source, champion=champion_row, screened=tuple(found[candidate] for candidate in asked))


def _as_value(
    settings: tuple[Setting, ...], evidence: Evidence, rows: Sequence[Row], key: Key, champion: Row | None
) -> ScreenedSetting:
    """What one setting came to: a latency, with what a member of a suite loses too much, or why there is none."""
    fingerprint = evidence.trace.fingerprint if evidence.trace else ""
    same = next((row.number for row in reversed(rows) if _is_judged(row, fingerprint, evidence.schedule, key)), None)
    latency = roofline.latency_seconds(evidence)
    kind = message = ""
    if evidence.failure is not None or latency is None:
        kind, message = screening.why_no_latency(evidence)
    elif champion is not None and champion.members:
        message = _losses(evidence, dict(champion.members))
    return ScreenedSetting(
        settings=settings,
        seconds=None if kind else latency,
        failure_kind=kind,
        message=message,
        same_as=same,
        fingerprint=fingerprint,
    )


def _losses(evidence: Evidence, champion_seconds: Mapping[str, float | None]) -> str:
    """Which members of a suite lose more than they may against these times, "" where none does."""
    pairs = (
        MemberTimes(
            name=one.name,
            champion_seconds=champion_seconds.get(one.name),
            candidate_seconds=roofline.latency_seconds(found),
        )
        for one, found in evidence.named_members
    )
    lost = members.losing(evidence.problem, pairs)
    named = (f"{one.name} {'unknown' if one.time_ratio is None else change(one.time_ratio)}" for one in lost)
    return f"loses too much at {', '.join(named)}" if lost else ""


def _is_judged(row: Row, fingerprint: str, schedule: str, key: Key) -> bool:
    is_same_schedule = bool(schedule) and row.schedule == schedule and row.outcome != "failed"
    is_same = is_same_schedule or (bool(fingerprint) and row.fingerprint == fingerprint)
    is_same = is_same and row.key is not None and row.key.counts_for(key)
    return is_same and row.failure_kind not in MAY_PASS_NEXT_TIME


def _ranked(screened: Sequence[ScreenedSetting], *, again: bool) -> list[ScreenedSetting]:
    """The settings with a latency that were not judged before (or all, if they may be judged again), fastest first.

    Those at which a member of a suite loses too much come last.
    """
    left = [one for one in screened if one.seconds is not None and (again or one.same_as is None)]
    return sorted(left, key=lambda one: (bool(one.message), one.seconds or 0.0))


def _looked_at(screened: Sequence[ScreenedSetting], search: Search) -> int:
    programs = {one.fingerprint for one in screened if one.seconds is not None and one.settings not in search.earlier}
    return max(1, len(programs) + len(search.earlier))


def _why_none(screened: Sequence[ScreenedSetting]) -> str:
    if any(one.seconds is not None for one in screened):
        numbers = sorted({one.same_as for one in screened if one.same_as is not None})
        return (
            f"every setting with a latency was judged before (attempts {', '.join(map(str, numbers))}); nothing was "
            "recorded. To judge the best again, add --again"
        )
    if not screened:
        return "no setting was screened: there was no time, or nothing is left to try; nothing was recorded"
    kinds = sorted({one.failure_kind for one in screened})
    return f"no setting has a latency ({', '.join(kinds)}); nothing was recorded"
