"""The profile of a program's second call: dispatched operations, and the time without dispatch or execution."""

import re
from collections import defaultdict
from dataclasses import replace
from pathlib import Path

from harness.errors import RatchetError
from harness.records import Capture, Period
from harness.records.doctor import Dispatched, ProgramRun
from harness.workbench.capture.messages import SECOND_CALL
from harness.workbench.profiles import reading
from harness.workbench.profiles.database import Database
from harness.workbench.profiles.spans import length, spans, within

# The events of JAX's dispatch in a profile (0.10 and 0.12): one for each call of a jitted function, also of those that
# JAX makes for single operations.
_DISPATCH = re.compile(r"PjitFunction\((.*)\)")


def second_call(run: ProgramRun, profile: Path) -> ProgramRun:
    """`run` with the dispatches that the profile of its second call shows; `unread` says if it is unreadable."""
    try:
        capture = reading.read((profile,))
    except RatchetError as error:
        return replace(run, unread=(*run.unread, f"the profile of the second call could not be read: {error}"))
    window = next((period for period in capture.host_periods if period.name == SECOND_CALL), None)
    if window is None:
        return replace(run, unread=(*run.unread, "the profile of the second call does not show that call"))
    calls: dict[str, list[Period]] = defaultdict(list)
    for period in capture.host_periods:
        if (match := _DISPATCH.fullmatch(period.name)) and window.start <= period.start < window.end:
            calls[match[1]].append(period)
    # The profile shows a call twice, one event inside the other.
    merged = {name: spans((call.start, call.end) for call in periods) for name, periods in calls.items()}
    dispatched = [
        Dispatched(name=name, count=len(periods[0]), seconds=length(periods)) for name, periods in merged.items()
    ]
    return replace(
        run,
        dispatched=tuple(sorted(dispatched, key=lambda operation: -operation.seconds)),
        own_seconds=_own_seconds(capture, window, [call for periods in calls.values() for call in periods]),
    )


def _own_seconds(capture: Capture, window: Period, handed_over: list[Period]) -> float:
    """Seconds of the call in which nothing of XLA ran and JAX dispatched nothing."""
    query = (
        "select start_seconds, end_seconds from busy join devices using (device) where is_main and of = 'everything'"
    )
    at_work = [(call.start, call.end) for call in handed_over]
    at_work += [(start, end) for start, end in Database(capture).rows(query)]
    return window.seconds - within(spans(at_work), window.start, window.end)
