"""Where the search stands, in at most a screen: the advice first, then champion, floor, what was tried, hints."""

from collections.abc import Iterator, Sequence

from harness.records import Recheck
from harness.records.report_words import source_label
from harness.records.search_state import Constant, KindTried, SearchState, Tried
from harness.render.layout import clean, cut, flow, joined, wrap
from harness.render.results import recheck_words
from harness.units import change, milliseconds, percent, quantity

_SHOWN = 8


def search_state_text(found: SearchState, width: int, checks: Sequence[Recheck] = ()) -> str:
    """The search state as lines of at most `width` columns; `checks` of the champion stand among the attempts."""
    return joined(_lines(found, width, checks))


def _lines(found: SearchState, width: int, checks: Sequence[Recheck]) -> Iterator[str]:
    yield from wrap(clean(found.advice.sentence), width, "", "  ")
    yield ""
    yield from wrap(f"{clean(found.contest)}, {found.problem}", width, "Contest:      ")
    yield from wrap(_champion(found), width, "Champion:     ")
    yield from wrap(_floor(found), width, "Floor:        ")
    tried = f"{quantity(found.attempts, 'attempt')}, {found.attempts_since_win} since the last win"
    yield from wrap(tried, width, "Tried:        ")
    for kind in found.kinds:
        yield from wrap(_kind(kind), width, "  ", "    ")
    if found.tried:
        yield ""
        yield from _attempts(found, width, checks)
        if len(found.tried) > _SHOWN:
            yield f"  ({len(found.tried) - _SHOWN} before them: results)"
    if found.constants:
        yield ""
        yield from _constants(found.constants, width)
    if found.hints:
        yield ""
        yield "What to try next:"
        for number, hint in enumerate(found.hints[:3], 1):
            yield from wrap(clean(hint.observation), width, f"  {number}. ", "     ")
            yield from wrap(clean(hint.suggestion), width, "     -> ", "        ")
    for text in found.messages:
        yield from wrap(clean(text), width, "note: ")


def _champion(found: SearchState) -> str:
    standing = found.champion
    if standing is None:
        return "none yet"
    time = "latency unknown" if standing.seconds is None else milliseconds(standing.seconds, " ")
    if standing.seconds is not None and standing.plus_minus_seconds is not None:
        time += f" ± {milliseconds(standing.plus_minus_seconds, ' ')}"
    score = "score unknown" if standing.score is None else f"score {standing.score:.1f}"
    label = source_label(standing.source, standing.chip)
    return f"attempt {standing.attempt}, {time} [{label}], {score}, {clean(standing.hypothesis)}"


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


def _attempts(found: SearchState, width: int, checks: Sequence[Recheck]) -> Iterator[str]:
    """The newest attempts in their order, with a line for each run of checks that came after one of them."""
    shown = found.tried[-_SHOWN:]
    for one, following in zip(shown, (*shown[1:], None), strict=True):
        yield cut(_attempt(one), width)
        for run in checks:
            if one.attempt <= run.first and (following is None or run.first < following.attempt):
                champion = found.champion.attempt if found.champion else None
                yield from wrap(recheck_words(run, champion), width, "     ", "       ")


def _attempt(one: Tried) -> str:
    came = one.failure_kind or one.taken_back or one.outcome
    moved = "" if one.time_ratio is None else f" {change(one.time_ratio)}"
    kinds = "+".join(one.kinds) if one.kinds else "-"
    return f"  {one.attempt:>4} {came}{moved}  {kinds}  {clean(one.hypothesis)}"


def _constants(constants: Sequence[Constant], width: int) -> Iterator[str]:
    texts = []
    for constant in constants:
        others = [value for value in constant.tried if value != constant.value]
        texts.append(f"{constant.name}={constant.value}" + (f" (also tried: {', '.join(others)})" if others else ""))
    yield from flow(texts, width, "Constants:    ")
