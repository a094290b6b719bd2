"""Advises to go on, to change the kind of idea, or to stop, from the gap to the floor and the attempts without a win.

`next` prints the advice. advice/rules/stopping.py has a rule on the same attempts for `diagnose`.
"""

from collections.abc import Sequence

from harness.advice.simulated_rates import LIMIT, differ, room_words
from harness.records import Hint, Row, Statement
from harness.records.report_words import source_label
from harness.records.search_state import Advice, Floor, PastAttempt, SearchChampion
from harness.units import percent, quantity, seconds

# The gap at which the floor counts as reached. The best published matmul on v5e reaches 92 % of peak (JAX's Pallas
# documentation), and a kernel that does more than multiply reaches less. Below this gap, no change of kernel.py that we
# observed gained anything.
FLOOR_REACHED = 0.08
# After five attempts without a win the advice is to change the kind of idea, after ten to stop.
SAME_IDEA_ATTEMPTS, PLATEAU_ATTEMPTS = 5, 10


def go_on_or_stop(
    champion: SearchChampion | None,
    floor: Floor,
    since: Sequence[Row],
    past: Sequence[PastAttempt],
    plateau: int,
    last: Hint | None,
    room: float | None = None,
) -> Advice:
    """The advice: to stop if the floor is reached, if `last` says so, or after `plateau` attempts without a win.

    `since` are the rows of the attempts since the last win, `past` the attempts with the kinds of their changes. `room`
    is the share of the time above what the simulator lets pass, if this is a simulated time; it decides then instead of
    the share above the floor.
    """
    if champion is None:
        sentence = "no champion yet: the first attempt that passes becomes the champion"
        return Advice(do="baseline", why="no champion", sentence=sentence)
    is_on_cpu = champion.source == "measured cpu"
    label = champion.source if is_on_cpu else source_label(champion.source, champion.chip)
    if floor.gap_fraction is None:
        sentence = f"the champion's latency is unknown: ./ratchet.sh show {champion.attempt} says why; mend that first"
        if champion.seconds is not None:
            sentence = f"the champion was timed on a CPU, which says nothing about the floor of a {champion.chip}"
        return Advice(do="go on", why="no latency", sentence=sentence)
    room = floor.gap_fraction if room is None else min(room, floor.gap_fraction)
    left = room_words(floor.gap_fraction, room, f"{floor.bound_by} floor")
    if room <= FLOOR_REACHED:
        is_above = f"{percent(room)} of the time is left above {LIMIT}, {percent(floor.gap_fraction)} above the"
        if not differ(floor.gap_fraction, room):
            is_above = f"only {percent(floor.gap_fraction)} of the time is left above the"
        sentence = (
            f"stop: {is_above} {floor.bound_by} floor of {seconds(floor.seconds)} [{label}]; the best published "
            f"kernels leave about {percent(FLOOR_REACHED, 0)}"
        )
        return Advice(do="stop", why="floor reached", sentence=sentence)
    if last is not None:
        return Advice(do="stop", why="floor reached", sentence=f"stop: {last.observation}; {last.suggestion}")
    left = f"up to {left} [{label}]"
    if len(since) >= plateau:
        sentence = f"stop: {quantity(len(since), 'attempt')} in a row brought nothing, though {left}"
        return Advice(do="stop", why="plateau", sentence=sentence)
    if len(since) >= SAME_IDEA_ATTEMPTS:
        numbers = {row.number for row in since}
        kinds = sorted({kind for attempt in past if attempt.attempt in numbers for kind in attempt.kinds or ()})
        spent = f", with changes of {' and '.join(kinds)}" if kinds else ""
        sentence = f"change the kind of idea: {len(since)} attempts in a row brought nothing{spent}; {left}"
        return Advice(do="change the kind of idea", why="same kinds", sentence=sentence)
    return Advice(do="go on", why="room left", sentence=f"go on: {left}")


def last_hint(problem: Statement, advice: Sequence[Hint]) -> Hint | None:
    """The hint that makes all others pointless, None if there is none. In a suite each member must have one."""
    last = [hint for hint in advice if hint.because and not hint.kind and hint.ranked_by is None]
    return last[0] if last and (len(last) == len(advice) or not problem.members) else None
