"""Where the search stands, in at most a screen: the advice first, then champion, floor, what was tried, hints."""

from collections.abc import Iterator, Sequence

from harness.records import Recheck
from harness.records.report_words import champion_words, source_label
from harness.records.search_state import Constant, KindTried, PastAttempt, SearchState
from harness.render.hints import SHOWN
from harness.render.layout import clean
from harness.render.results import recheck_words
from harness.render.sections import GAP, SHORT_FIELD, Block, Line, Words, named, named_items, screen
from harness.units import change, milliseconds, percent, quantity

_SHOWN = 8


def search_state_text(found: SearchState, width: int, checks: Sequence[Recheck] = ()) -> str:
    """The search state as lines of at most `width` columns; `checks` of the champion stand among the attempts."""
    return screen(_blocks(found, checks), width)


def _blocks(found: SearchState, checks: Sequence[Recheck]) -> Iterator[Block]:
    yield from (Words(found.advice.sentence, rest="  "), GAP)
    tried = f"{quantity(found.attempts, 'attempt')}, {found.attempts_since_win} since the last win"
    for name, text in (
        ("Contest", f"{found.contest}, {found.problem}"),
        ("Champion", _champion(found)),
        ("Floor", _floor(found)),
        ("Tried", tried),
    ):
        yield named(name, text, SHORT_FIELD)
    yield from (Words(_kind(kind), lead="  ", rest="    ") for kind in found.kinds)
    if found.tried:
        yield from (GAP, *_attempts(found, checks))
        if len(found.tried) > _SHOWN:
            yield Line(f"  ({len(found.tried) - _SHOWN} before them: results)")
    if found.constants:
        yield from (GAP, named_items("Constants", list(map(_constant, found.constants)), room=SHORT_FIELD))
    if found.hints:
        yield from (GAP, Line("What to try next:"))
        for number, hint in enumerate(found.hints[:SHOWN], 1):
            yield Words(hint.observation, lead=f"  {number}. ")
            yield Words(hint.suggestion, lead="     -> ")
    yield from (Words(text, lead="note: ") for text in found.messages)


def _champion(found: SearchState) -> str:
    standing = found.champion
    if standing is None:
        return "none yet"
    time = "latency unknown" if standing.seconds is None else milliseconds(standing.seconds, " ")
    if standing.seconds is not None and standing.plus_minus_seconds is not None:
        time += f" ± {milliseconds(standing.plus_minus_seconds, ' ')}"
    score = "score unknown" if standing.score is None else f"score {standing.score:.1f}"
    label = source_label(standing.source, standing.chip)
    return f"{champion_words(standing.won_by, standing.attempt)}, {time} [{label}], {score}, {standing.hypothesis}"


def _floor(found: SearchState) -> str:
    floor = found.floor
    both = f"compute {milliseconds(floor.compute_seconds, ' ')}, memory {milliseconds(floor.memory_seconds, ' ')}"
    if floor.gap_seconds is None or floor.gap_fraction is None:
        return f"{both}: bound by {floor.bound_by}"
    above = f"{milliseconds(floor.gap_seconds, ' ')} above it, {percent(floor.gap_fraction)} of the time"
    return f"{both}: bound by {floor.bound_by}, the champion is {above}"


def _kind(kind: KindTried) -> str:
    best = "" if kind.best_time_ratio is None else f", at best {change(kind.best_time_ratio)} of time"
    return f"{kind.kind}: {len(kind.attempts)} tried, {kind.accepted} accepted{best}"


def _attempts(found: SearchState, checks: Sequence[Recheck]) -> Iterator[Block]:
    """The newest attempts in their order, with a line for each run of checks that came after one of them."""
    shown = found.tried[-_SHOWN:]
    champion = found.champion.attempt if found.champion else None
    for one, following in zip(shown, (*shown[1:], None), strict=True):
        yield Line(_attempt(one))
        for run in checks:
            if one.attempt <= run.first and (following is None or run.first < following.attempt):
                yield Words(recheck_words(run, champion), lead="     ", rest="       ")


def _attempt(one: PastAttempt) -> str:
    came = one.failure_kind or one.taken_back or one.outcome
    moved = "" if one.time_ratio is None else f" {change(one.time_ratio)}"
    kinds = "+".join(one.kinds) if one.kinds else "-"
    return f"  {one.attempt:>4} {came}{moved}  {kinds}  {clean(one.hypothesis)}"


def _constant(constant: Constant) -> str:
    others = ", ".join(value for value in constant.tried if value != constant.value)
    return f"{constant.name}={constant.value}" + (f" (also tried: {others})" if others else "")
