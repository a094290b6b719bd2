"""The state of the search for a faster kernel, computed from attempts and kernels without reading files.

loop/stop_advice.py decides whether the advice is to go on or to stop.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from harness.advice.kernel_changes import PROGRAM_KINDS, kinds_of_change
from harness.advice.simulated_rates import least_seconds
from harness.candidate import Candidate, Settings
from harness.hardware import Chip
from harness.judge.verdict import roofline
from harness.loop.stop_advice import PLATEAU_ATTEMPTS, go_on_or_stop, last_hint
from harness.loop.untried_advice import TimedSettings, untried
from harness.records import TITLE_MOVES, Hint, Report, Row, Statement
from harness.records.search_state import (
    ChangeKind,
    Constant,
    KindTried,
    PastAttempt,
    Refusal,
    SearchChampion,
    SearchState,
)
from harness.records.titles import is_check, taken_back, titles


@dataclass(frozen=True, slots=True, kw_only=True)
class SearchInputs:
    """The inputs of a search state: all rows, oldest first, and the candidates of attempts, by number.

    - `candidate` is the candidate in the working tree.
    - `report` is the champion's report; without a champion, the last attempt's.
    - `screened` are the settings that sweeps have screened, each with the attempt of its sweep.
    - `timed` are the times of sets of constants in attempts and sweeps, and those that `diagnose` simulated.
    - `least_gain` is the gain below which no change of the champion is accepted; 0 if it is unknown.
    """

    contest: str
    problem: Statement
    chip: Chip
    rows: Sequence[Row]
    candidates: Mapping[int, Candidate]
    candidate: Candidate
    champion: Row | None
    is_present_key: bool
    report: Report | None
    advice: Sequence[Hint]
    messages: tuple[str, ...] = ()
    screened: tuple[tuple[int, Settings], ...] = ()
    timed: tuple[TimedSettings, ...] = ()
    least_gain: float = 0.0
    refused: tuple[Refusal, ...] = ()


def search_state(seen: SearchInputs, *, plateau: int = PLATEAU_ATTEMPTS, limit: int | None = None) -> SearchState:
    """The state of the search, with the newest `limit` attempts.

    Its advice is to stop after `plateau` attempts without a win.
    """
    champion_now = _standing(seen)
    # A CPU's time says nothing about the distance to the chip's floor.
    on_chip = champion_now.seconds if champion_now and champion_now.source != "measured cpu" else None
    floor = roofline.floor_of(seen.problem.work, seen.chip, on_chip)
    every = _past_attempts(seen)
    past = every[-(limit or len(every)) :]
    since = since_win(seen.rows)
    champion = seen.candidates.get(seen.champion.number, seen.candidate) if seen.champion else seen.candidate
    # The hint on a plateau is left out: the advice below counts the attempts itself.
    advice = [hint for hint in seen.advice if hint.rule != "plateau"]
    kinds = _by_kind(past)
    done = {kind.kind for kind in kinds}
    untried_kinds = tuple(kind for kind in PROGRAM_KINDS if kind not in done)
    room = None
    if champion_now and champion_now.seconds and champion_now.source == "simulated":
        room = max(0.0, 1 - least_seconds(seen.problem, seen.chip, seen.report) / champion_now.seconds)
    onwards = go_on_or_stop(champion_now, floor, since, past, plateau, last_hint(seen.problem, advice), room)
    if onwards.do == "change the kind of idea":
        advice.sort(key=lambda hint: hint.kind not in untried_kinds)
    hints, left_out = untried(advice, champion, seen.candidates, seen.screened, seen.timed, seen.least_gain)
    hints = put_refused_last(hints, seen.refused)
    return SearchState(
        contest=seen.contest,
        problem=seen.problem.title,
        champion=champion_now,
        floor=floor,
        attempts=len(every),
        attempts_since_win=len(since),
        advice=onwards,
        hints=hints,
        kinds=kinds,
        constants=_constants(seen.candidate, past, seen.screened),
        tried=past,
        messages=(*seen.messages, *_taken_back(seen.rows), *left_out),
        untried_kinds=untried_kinds,
        refused=seen.refused,
    )


def put_refused_last(hints: Sequence[Hint], refused: Sequence[Refusal]) -> tuple[Hint, ...]:
    """The hints; a hint comes last, with a remark, if a change of its lines gave a schedule that was judged before.

    The judged change may differ from the change that the hint suggests, so the hint is not left out.
    """
    first, last = [], []
    for hint in hints:
        named = set(re.findall(r"[\w./-]+\.py:\d+", hint.observation))
        again = [each for each in refused if each.kind == "same-schedule" and named & {*each.lines}]
        if not again:
            first.append(hint)
            continue
        where = ", ".join(sorted(named & {*again[-1].lines}))
        words = f"; a change of {where} compiled to a schedule that was judged before ({again[-1].hypothesis})"
        last.append(replace(hint, suggestion=hint.suggestion + words))
    return (*first, *last)


def since_win(rows: Sequence[Row]) -> tuple[Row, ...]:
    """The attempts after the last one that was accepted and still counts.

    Undos, revokes and rebaselines do not count as attempts. Attempts before a revoke do not count, because they were
    judged against a kernel that fails. Attempts before a rebaseline that adopted another program do not count either.
    """
    begins = 0
    for place, (row, title, how) in enumerate(zip(rows, titles(rows), taken_back(rows), strict=False)):
        is_win = row.is_title and how is None and not is_check(row, title)
        begins = place + 1 if is_win or row.kind == "revoke" else begins
    return tuple(row for row in rows[begins:] if is_attempt(row))


def is_attempt(row: Row) -> bool:
    """True for a real attempt: neither a rebaseline nor an undo or a revoke."""
    return row.kind not in (*TITLE_MOVES, "rebaseline")


def revoked_by(rows: Sequence[Row], number: int) -> str:
    """The sentence on the revoke that took the title of attempt `number`; "" if none did."""
    for row in reversed(rows):
        if row.is_on_branch is not False and number in row.revokes:
            again = f"attempt {row.holder} holds the title again" if row.holder else "no accepted attempt passes"
            return f"attempt {number} lost its title in attempt {row.number} ({row.hypothesis}): {again}"
    return ""


def title_row(rows: Sequence[Row], champion: int | None) -> Row | None:
    """The champion's row; if a revoke gave it the title, with the newer figures of that revoke."""
    row_ = next((row for row in rows if row.number == champion), None)
    revoke = next((row for row in reversed(rows) if row.holder is not None and row.holder == champion), None)
    if row_ is None or revoke is None or revoke.is_on_branch is False:
        return row_
    return replace(
        revoke,
        number=row_.number,
        kind=row_.kind,
        hypothesis=row_.hypothesis,
        commit=row_.commit,
        revokes=(),
        holder=None,
    )


def winner(rows: Sequence[Row], champion: Row) -> Row:
    """The row of the attempt that won the title with the champion's program; later rebaselines only checked it."""
    *_, title = titles(rows)
    holder = title.holder if title is not None and title.row.number == champion.number else champion.number
    return next((row for row in rows if row.number == holder), champion)


def _taken_back(rows: Sequence[Row]) -> tuple[str, ...]:
    words = {"undone": "accepted and undone later", "revoked": "accepted, and revoked later for a failure"}
    sentences = []
    for how, fate in words.items():
        numbers = [str(row.number) for row, loss in zip(rows, taken_back(rows), strict=True) if loss == how]
        if numbers:
            sentences.append(f"{fate}: attempt{'s' if len(numbers) > 1 else ''} {', '.join(numbers)}")
    return tuple(sentences)


def _standing(seen: SearchInputs) -> SearchChampion | None:
    row = seen.champion
    if row is None:
        return None
    won = winner(seen.rows, row)
    return SearchChampion(
        attempt=row.number,
        won_by=won.number,
        hypothesis=won.hypothesis,
        source=row.source,
        chip=row.chip,
        seconds=row.seconds,
        plus_minus_seconds=seen.report.plus_minus_seconds if seen.report else None,
        score=row.score,
        is_present_key=seen.is_present_key,
    )


def _past_attempts(seen: SearchInputs) -> tuple[PastAttempt, ...]:
    past = []
    champion: int | None = None
    for row, how in zip(seen.rows, taken_back(seen.rows), strict=True):
        if not is_attempt(row):
            # From here on, this row's kernel.py is the champion's, with which later attempts are compared.
            if row.is_on_branch is not False and (row.outcome == "accept" or row.kind == "revoke"):
                champion = row.number if row.outcome == "accept" else None
            continue
        candidate = seen.candidates.get(row.number)
        kinds = constants_then = None
        if candidate is not None:
            constants_then = candidate.tunable
            before = seen.candidates.get(champion) if champion is not None else None
            kinds = kinds_of_change(before.source, candidate.source) if before is not None else None
        if champion is None:
            kinds = ()
        past.append(
            PastAttempt(
                attempt=row.number,
                hypothesis=row.hypothesis,
                kinds=kinds,
                constants=constants_then,
                outcome=row.outcome,
                failure_kind=row.failure_kind,
                time_ratio=row.time_ratio,
                expected_time_ratio=row.expected_time_ratio,
                seconds=row.seconds,
                source=row.source,
                chip=row.chip,
                taken_back=how,
            )
        )
        if row.outcome == "accept" and row.is_on_branch is not False:
            champion = row.number
    return tuple(past)


def _by_kind(past: Sequence[PastAttempt]) -> tuple[KindTried, ...]:
    """The attempts grouped by kind, in order of first use; an attempt of two kinds is in both."""
    groups: dict[ChangeKind, list[PastAttempt]] = {}
    for attempt in past:
        for kind in attempt.kinds or ():
            groups.setdefault(kind, []).append(attempt)
    return tuple(
        KindTried(
            kind=kind,
            attempts=tuple(attempt.attempt for attempt in group),
            accepted=sum(attempt.outcome == "accept" and attempt.taken_back is None for attempt in group),
            best_time_ratio=min(
                (attempt.time_ratio for attempt in group if attempt.time_ratio is not None), default=None
            ),
        )
        for kind, group in groups.items()
    )


def _constants(
    candidate: Candidate, past: Sequence[PastAttempt], screened: Sequence[tuple[int, Settings]]
) -> tuple[Constant, ...]:
    had: dict[str, dict[str, None]] = {}
    for settings in (*(attempt.constants or () for attempt in past), *(settings for _, settings in screened)):
        for name, value in settings:
            had.setdefault(name, {})[value] = None
    return tuple(Constant(name=name, value=value, tried=tuple(had.get(name, ()))) for name, value in candidate.tunable)
