"""Screens a grid of settings of kernel.py cheaply, then judges the best as one attempt; its record names the grid.

Screening compiles and simulates each setting, on all cores; it skips the checks of results, which take most of a
judgement's time. On a chip without a simulator, the device itself times one setting at a time. Screened latencies are
used only to choose a setting. The chosen setting is judged like any other candidate; on a device, by a paired benchmark
of fresh samples. So noise can mislead only this one attempt, however many settings are screened
(benchmarks/FALSE_ACCEPTS.md). A simulated time has no noise, but the simulator has an error, which probably favours the
fastest of many settings. So the more programs were looked at, the larger the gain that the verdict requires
(`judge/verdict/compare_simulated.py`).
"""

import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from harness.advice.kernel_changes import on_hypothesis
from harness.advice.simulated_rates import LIMIT, least_seconds
from harness.candidate import Candidate
from harness.errors import RatchetError
from harness.judge.key import key_digest
from harness.judge.verdict import compare_simulated, members, roofline
from harness.ledger import Ledger, history
from harness.ledger.table import scaled
from harness.loop import attempt as ratchet
from harness.loop import expected, guard, preconditions, screening, search_state
from harness.loop.bench import Bench, Say, say_all
from harness.loop.ledger_advice import attempt_of, set_constants
from harness.loop.options import Options
from harness.loop.screening import Places
from harness.loop.search import Search, SearchProgress
from harness.loop.search_space import Grid, Setting, words
from harness.records import (
    MAY_PASS_NEXT_TIME,
    Evidence,
    Key,
    MemberTimes,
    Policy,
    Row,
    ScreenedSetting,
    Sweep,
    SweepResult,
    Verdict,
)
from harness.records.report_words import threshold_words
from harness.units import change, seconds


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """The result of a sweep, and the attempt that judged its best setting (None if no setting was left to judge)."""

    swept: SweepResult
    judged: ratchet.AttemptResult | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Screening:
    """Settings of `parameters` to be screened in `places`, in the order of the search that `begin` makes."""

    parameters: Grid
    begin: Callable[[], Search]
    places: Places


def sweep(bench: Bench, hypothesis: str, wanted: Screening, options: Options, say: Say) -> Outcome:
    """Screens the `wanted` settings of the working tree's kernel.py; the best becomes an attempt.

    The search begins under the lock, so that it knows the results of all earlier searches of this contest.

    If the best fails its checks, the next best is judged in its place, as long as its screened time is below the
    champion's; the record of this attempt names each setting that failed. If all fail, the attempt records the best.

    While settings are screened, kernel.py is not written, and forbidden changes are detected. Raises the errors of an
    attempt, and RatchetError `unknown-constant` before anything is screened, `tampered` if a candidate changed files
    that are not its own.
    """
    began = time.monotonic()
    contest = bench.contest
    ledger = Ledger.open(contest.directory)
    with ledger.lock("sweep"):
        say_all(ledger.recover(), say)
        preconditions.refuse_unfit(ledger.place.repository, contest)
        if not options.rebaseline:
            preconditions.refuse_cpu_title(ledger.champion(), bench.source)
        original = contest.candidate()
        # This comes before all screening, so that an unknown name costs nothing.
        set_constants(original, tuple((name, values[0]) for name, values in wanted.parameters), contest.directory)
        first_remark = NO_CHAMPION if ledger.champion() is None else on_hypothesis(hypothesis)
        say_all(filter(None, (on_another_text(ledger, original), first_remark)), say)
        search = wanted.begin()
        watch = guard.begin(ledger, contest)
        result: tuple[ScreenedSetting, ...] | RatchetError
        try:
            champion = _comparable_champion(bench, ledger)
            if ledger.champion() is not None:
                say(threshold(bench, ledger, champion.row, search.total + len(search.earlier)))
            result = _screened(bench, original, search, wanted.places, champion)
        except RatchetError as error:
            # Tampering may have caused the error, so tampering is reported first.
            result = error
        finally:
            tampering = guard.end(ledger, watch, "sweep", is_confined=bench.policy.is_confined)
            say_all(tampering.sentences, say)
        if tampering.sentences:
            raise RatchetError(
                "tampered",
                f"files or refs changed while settings were screened: {tampering.sentences[0]}. Nothing was recorded; "
                "read kernel.py before you run it again",
            )
        if isinstance(result, RatchetError):
            raise result
        record = Sweep(
            parameters=wanted.parameters,
            source=bench.screening_source,
            chip=contest.chip.name,
            screened=result,
            looked_at=_looked_at(result, search),
            champion=champion.row.number if champion.row else None,
            champion_seconds=champion.row.seconds if champion.row else None,
        )
        swept = SweepResult(
            hypothesis=hypothesis,
            sweep=record,
            best=None,
            attempt=None,
            outcome=None,
            why_none=_why_none(result),
            seconds=time.monotonic() - began,
            least_gain=_least_gain(bench, ledger, champion.row, record.looked_at),
        )
        ranked = _ranked(result, again=options.again)
        if not ranked:
            return Outcome(swept=swept, judged=None)
        best, *others = ranked
        count = len(result)
        title = f"{hypothesis} [best of {count}: {words(best.settings)}]"
        alternatives = tuple(
            (f"{hypothesis} [of {count}, the best that does not fail: {words(setting.settings)}]", setting)
            for setting in others
        )
        options = replace(options, settings=best.settings, sweep=record, alternatives=alternatives)
        judged = ratchet.attempt_locked(ledger, bench, title, options, say)
    swept = replace(
        swept,
        hypothesis=judged.attempt.hypothesis,
        sweep=judged.attempt.sweep or record,
        best=judged.attempt.settings,
        attempt=judged.attempt.number if judged.recorded else None,
        outcome=judged.attempt.verdict.outcome,
        least_gain=_required(judged.attempt.verdict, bench.policy, swept.least_gain),
        why_none="" if judged.recorded else "the best setting is the champion's own, so nothing was recorded",
        seconds=time.monotonic() - began,
    )
    return Outcome(swept=swept, judged=judged)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Champion:
    """The contest's rows and present key; `row` is the champion's if its time is comparable with screened times."""

    rows: tuple[Row, ...]
    key: Key
    row: Row | None


NO_CHAMPION = (
    "there is no champion: the best setting becomes the first champion, and `results` shows no gain over the present "
    'kernel.py. To record the time of kernel.py, stop this search and make the first attempt: "experiment: baseline"'
)


def on_another_text(ledger: Ledger, original: Candidate) -> str:
    """A sentence if kernel.py is an earlier attempt's and not the champion's; "" otherwise."""
    champion, number = ledger.champion(), attempt_of(original, ledger.place)
    if champion is None or number is None or champion.kernel_sha256 == original.sha256:
        return ""
    return (
        f"kernel.py is that of attempt {number}: its best setting is recorded as an attempt whatever the verdict, and "
        f"becomes the champion only if it takes less time than attempt {champion.number}"
    )


def _comparable_champion(bench: Bench, ledger: Ledger) -> _Champion:
    source = bench.screening_source
    table = scaled(ledger)
    key = bench.contest.key(bench.source)
    title = search_state.title_row([row.row for row in table.rows], table.number)
    # Times of different hours on a device are not comparable.
    is_comparable = title is not None and title.source == source == "simulated" and title.key_digest == key_digest(key)
    return _Champion(rows=tuple(row.then for row in table.rows), key=key, row=title if is_comparable else None)


# The sentence is printed before the settings are compiled; the table after the judgement has the verdict's own number.
_MAY_CHANGE = "; less if settings give the same program, more for a setting that is more uncertain"


def threshold(bench: Bench, ledger: Ledger, champion: Row | None, count: int) -> str:
    """A sentence on the smallest gain with which the best of `count` settings can be accepted, if any gain suffices."""
    share = None if champion is None else _uncertainty(ledger, champion)
    if champion is None or champion.seconds is None or share is None:
        return (
            f"{threshold_words(bench.policy.minimum_effect)} than the champion. The uncertainty may "
            "require more; only the attempt shows this, because screened times are not comparable with the champion's"
        )
    most = champion.seconds * (1 - compare_simulated.least_gain(share, bench.policy, max(1, count)))
    problem, hopeless = bench.contest.problem.statement(), ""
    floor = roofline.floor_of(problem.work, bench.contest.chip, None)
    if most < floor.seconds:
        hopeless = f"; no setting can: the {floor.bound_by} floor is {seconds(floor.seconds)}"
    elif most < (least := least_seconds(problem, bench.contest.chip)):
        hopeless = f"; no setting can: {LIMIT} takes {seconds(least)}"
    return (
        f"{compare_simulated.threshold(share, bench.policy, max(1, count))}: at most {seconds(most)}, against "
        f"{seconds(champion.seconds)} of the champion (attempt {champion.number}){hopeless or _MAY_CHANGE}"
    )


def _uncertainty(ledger: Ledger, champion: Row) -> float | None:
    """The uncertainty in the champion's record; None if it is not known."""
    return compare_simulated.uncertainty_of(history.attempt(ledger.place, champion.number).evidence)


def _least_gain(bench: Bench, ledger: Ledger, champion: Row | None, looked_at: int) -> float | None:
    """The share of the champion's time that the best of `looked_at` settings must save; None if it is not known."""
    share = None if champion is None else _uncertainty(ledger, champion)
    return None if share is None else compare_simulated.least_gain(share, bench.policy, max(1, looked_at))


def _required(verdict: Verdict, policy: Policy, least_gain: float | None) -> float | None:
    """The gain that the verdict required, by the interval of its ratio; `least_gain` if the verdict has no interval.

    The interval is wider than the champion's uncertainty alone if the judged setting is more uncertain.
    """
    ratio, high = verdict.time_ratio, verdict.time_ratio_high
    if least_gain is None or not ratio or not high or math.isinf(high):
        return least_gain
    return max(policy.minimum_effect, 1 - ratio / high)


def _screened(
    bench: Bench, original: Candidate, search: Search, places: Places, champion: _Champion
) -> tuple[ScreenedSetting, ...]:
    is_simulated = bench.screening_source == "simulated"
    # Settings in the order in which the search asks for them; different settings give different candidates.
    asked: dict[Candidate, tuple[Setting, ...]] = {}
    results: dict[Candidate, ScreenedSetting] = {}
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
        results[candidate] = result = _as_value(settings, evidence, champion)
        if result.failure_kind in MAY_PASS_NEXT_TIME:
            search.forget(settings)
        else:
            search.tell(settings, result.seconds)
        state = search_progress.after(roofline.latency_seconds(evidence), screening.why_no_latency(evidence)[0])
        bench.progress(words(settings), state, sum(stage.seconds for stage in evidence.stages))

    began = time.monotonic()
    bench.progress("screening", "start", 0.0)
    # A device times one setting at a time.
    at = places if is_simulated else screening.local(1)
    screening.screen(replace(bench, on="simulated") if is_simulated else bench, ask, tell, at)
    bench.progress("screening", "done", time.monotonic() - began)
    expected.keep_screening(bench.contest, time.monotonic() - began, len(asked), at.count)
    return tuple(results[candidate] for candidate in asked)


def _as_value(settings: tuple[Setting, ...], evidence: Evidence, champion: _Champion) -> ScreenedSetting:
    """The result of one setting: its latency, with the members that lose too much, or the reason why it has none."""
    fingerprint = evidence.trace.fingerprint if evidence.trace else ""
    judged = (row for row in reversed(champion.rows) if _is_judged(row, fingerprint, evidence.schedule, champion.key))
    same = next((row.number for row in judged), None)
    latency = roofline.latency_seconds(evidence)
    kind = message = ""
    if evidence.failure is not None or latency is None:
        kind, message = screening.why_no_latency(evidence)
    elif champion.row is not None and champion.row.members:
        message = _losses(evidence, dict(champion.row.members))
    return ScreenedSetting(
        settings=settings,
        seconds=None if kind else latency,
        failure_kind=kind,
        message=message,
        same_as=same,
        fingerprint=fingerprint,
    )


def _losses(evidence: Evidence, champion_seconds: Mapping[str, float | None]) -> str:
    """A sentence on the members of a suite that lose more than allowed against these times; "" if there are none."""
    pairs = (
        MemberTimes(
            name=member.name,
            champion_seconds=champion_seconds.get(member.name),
            candidate_seconds=roofline.latency_seconds(program),
        )
        for member, program in evidence.named_members
    )
    losers = members.losing(evidence.problem, pairs)
    named = (f"{times.name} {'unknown' if times.time_ratio is None else change(times.time_ratio)}" for times in losers)
    return f"loses too much at {', '.join(named)}" if losers else ""


def _is_judged(row: Row, fingerprint: str, schedule: str, key: Key) -> bool:
    is_same_schedule = bool(schedule) and row.schedule == schedule and row.outcome != "failed"
    is_same = is_same_schedule or (bool(fingerprint) and row.fingerprint == fingerprint)
    is_same = is_same and row.key is not None and row.key.counts_for(key)
    return is_same and row.failure_kind not in MAY_PASS_NEXT_TIME


def _ranked(screened: Sequence[ScreenedSetting], *, again: bool) -> list[ScreenedSetting]:
    """The settings with a latency, fastest first; without `again`, only those that were not judged before.

    Settings at which a member of a suite loses too much come last.
    """
    left = [setting for setting in screened if setting.seconds is not None and (again or setting.same_as is None)]
    return sorted(left, key=lambda setting: (bool(setting.message), setting.seconds or 0.0))


def _looked_at(screened: Sequence[ScreenedSetting], search: Search) -> int:
    programs = {
        setting.fingerprint
        for setting in screened
        if setting.seconds is not None and setting.settings not in search.earlier
    }
    return max(1, len(programs) + len(search.earlier))


def _why_none(screened: Sequence[ScreenedSetting]) -> str:
    if any(setting.seconds is not None for setting in screened):
        numbers = sorted({setting.same_as for setting in screened if setting.same_as is not None})
        return (
            f"every setting with a latency was judged before (attempt{'s' if len(numbers) > 1 else ''} "
            f"{', '.join(map(str, numbers))}); nothing was recorded. To judge the best again, add --again"
        )
    if not screened:
        return "no setting was screened: there was no time, or nothing is left to try; nothing was recorded"
    kinds = sorted({setting.failure_kind for setting in screened})
    return f"no setting has a latency ({', '.join(kinds)}); nothing was recorded"
