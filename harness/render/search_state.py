"""The state of the search on about one screen: advice, champion, floor, past attempts, hints."""

from collections.abc import Iterator, Sequence

from harness.advice.simulated_rates import above_limit
from harness.records import Recheck
from harness.records.report_words import champion_words, less_time, source_label
from harness.records.search_state import Constant, KindTried, PastAttempt, SearchState
from harness.render.hints import SHOWN, numbered
from harness.render.layout import clean
from harness.render.results import recheck_words
from harness.render.sections import GAP, SHORT_FIELD, Block, Line, Words, named, named_items
from harness.units import change, percent, quantity, seconds

_SHOWN = 8


def search_state_blocks(
    state: SearchState, checks: Sequence[Recheck] = (), *, least_seconds: float | None = None, has_products: bool = True
) -> Iterator[Block]:
    """The search state; `checks` of the champion are listed among the attempts.

    `least_seconds` is the least simulated time of the problem, if the champion's time is simulated. Without products,
    no time is shown for the arithmetic, because it would be that of the matrix units.
    """
    yield from (Words(state.advice.sentence, rest="  "), GAP)
    counts = f"{quantity(state.attempts, 'attempt')}, {state.attempts_since_win} since the last win"
    for name, text in (
        ("Contest", f"{state.contest}, {state.problem}"),
        ("Champion", _champion(state)),
        ("Floor", _floor(state, least_seconds, has_products=has_products)),
        ("Tried", counts),
    ):
        yield named(name, text, SHORT_FIELD)
    yield from (Words(_kind(kind), lead="  ", rest="    ") for kind in state.kinds)
    for refused in state.refused[-_SHOWN:]:
        yield Words(f"refused, {refused.kind}: {clean(refused.hypothesis)}", lead="  ", rest="    ")
    if state.tried:
        yield from (GAP, *_attempts(state, checks))
        if len(state.tried) > _SHOWN:
            yield Line(f"  (earlier: {len(state.tried) - _SHOWN}; `results` lists all)")
    if state.constants:
        yield from (GAP, named_items("Constants", list(map(_constant, state.constants)), room=SHORT_FIELD))
    is_over = state.advice.do == "stop"
    # A hint that advises no change repeats the advice.
    hints = [hint for hint in state.hints if hint.kind or not is_over]
    if hints:
        yield from (GAP, Line("If you go on all the same:" if is_over else "What to try next:"))
        yield from numbered(hints[:SHOWN])
    yield from (Words(text, lead="note: ") for text in state.messages)


def _champion(state: SearchState) -> str:
    champion = state.champion
    if champion is None:
        return "none yet"
    time = "latency unknown" if champion.seconds is None else seconds(champion.seconds)
    if champion.seconds is not None and champion.plus_minus_seconds is not None:
        time += f" ± {seconds(champion.plus_minus_seconds)}"
    score = "score unknown" if champion.score is None else f"score {champion.score:.1f}"
    label = source_label(champion.source, champion.chip)
    return f"{champion_words(champion.won_by, champion.attempt)}, {time} [{label}], {score}, {champion.hypothesis}"


def _floor(state: SearchState, least_seconds: float | None, *, has_products: bool) -> str:
    floor = state.floor
    is_of_products = has_products or floor.bound_by == "compute"
    compute = seconds(floor.compute_seconds) if is_of_products else "- (no matmuls)"
    parts = f"compute {compute}, least memory traffic {seconds(floor.memory_seconds)}"
    if floor.link_seconds is not None:
        parts += f", links {seconds(floor.link_seconds)}"
    if floor.gap_seconds is None or floor.gap_fraction is None:
        return f"{parts}; {floor.bound_by} decides"
    above = f"{seconds(floor.gap_seconds)} above the floor, {percent(floor.gap_fraction)} of its time"
    latency = state.champion.seconds if state.champion else None
    if (
        latency
        and least_seconds
        and (passing := above_limit(floor.gap_fraction, max(0.0, 1 - least_seconds / latency)))
    ):
        above += f" ({passing}, {seconds(least_seconds)})"
    return f"{parts}; {floor.bound_by} decides, and the champion is {above}"


def _kind(kind: KindTried) -> str:
    best = "" if kind.best_time_ratio is None else f", best: {less_time(kind.best_time_ratio)}"
    return f"{kind.kind}: {len(kind.attempts)} tried, {kind.accepted} accepted{best}"


def _attempts(state: SearchState, checks: Sequence[Recheck]) -> Iterator[Block]:
    """The newest attempts in order, each followed by a line for each run of checks after it."""
    shown = state.tried[-_SHOWN:]
    champion = state.champion.attempt if state.champion else None
    for attempt, following in zip(shown, (*shown[1:], None), strict=True):
        yield Line(_attempt(attempt))
        for run in checks:
            if attempt.attempt <= run.first and (following is None or run.first < following.attempt):
                yield Words(recheck_words(run, champion), lead="     ", rest="       ")


def _attempt(attempt: PastAttempt) -> str:
    came = attempt.failure_kind or attempt.taken_back or attempt.outcome
    moved = "" if attempt.time_ratio is None else f" {change(attempt.time_ratio)}"
    kinds = "+".join(attempt.kinds) if attempt.kinds else "-"
    return f"  {attempt.attempt:>4} {came}{moved}  {kinds}  {clean(attempt.hypothesis)}"


def _constant(constant: Constant) -> str:
    others = ", ".join(value for value in constant.tried if value != constant.value)
    return f"{constant.name}={constant.value}" + (f" (also tried: {others})" if others else "")
