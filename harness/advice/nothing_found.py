"""The hint if no rule finds a change to try: the time left above the roofline, and commands that show more."""

from harness.advice.diagnose import observe
from harness.advice.edits import NOTABLE_GAIN
from harness.advice.observed import Observed
from harness.advice.report import report
from harness.advice.run_parts import NOTABLE_SHARE
from harness.advice.simulated_rates import LIMIT
from harness.hardware import chip
from harness.records import Evidence, Hint
from harness.units import percent, seconds

_MOST_PARTS = 3


def nothing_found(evidence: Evidence, *, is_tried: bool = False) -> tuple[Hint, ...]:
    """The hint on the share of the time above the roofline and on the largest parts of the time; it has no gain.

    Empty for a failure, and for a latency that is unknown, impossible or measured on a CPU. The hint for a suite has
    the share of each member. `is_tried` is True if rules found changes and all of these were tried.
    """
    if evidence.failure is not None:
        return ()
    members = {name: case for name, program in evidence.programs if (case := _observed(program)) is not None}
    if not members:
        return ()
    start = "all changes that rules find were tried" if is_tried else "no rule finds a change to try"
    if len(members) == 1:
        (case,) = members.values()
        return (
            _hint(f"{start}; {_left(case)}{_largest(case)}{_outside(case)} {case.label}", case.room, _commands(case)),
        )
    lefts = [f"{name}: {_left(case)}" for name, case in members.items()]
    room = max(case.room for case in members.values())
    label = next(iter(members.values())).label
    return (_hint(f"{start}; {'; '.join(lefts)} {label}", room, "look into one member: `diagnose --member NAME`"),)


def _observed(evidence: Evidence) -> Observed | None:
    figures = report(evidence, chip(evidence.chip))
    if figures.seconds is None or figures.impossible or figures.source == "measured cpu":
        return None
    return observe(evidence, figures, figures.seconds)


def _hint(where: str, room: float, commands: str) -> Hint:
    suggestion = "stop: a larger gain needs less work or less traffic" if room < NOTABLE_GAIN else commands
    return Hint(observation=where, suggestion=suggestion, rule="nothing found")


def _left(seen: Observed) -> str:
    if seen.room < NOTABLE_GAIN:
        is_published = seen.published_room < NOTABLE_GAIN
        return f"nothing is left above {'the roofline' if is_published else LIMIT}"
    return f"up to {seen.room_words}"


def _largest(seen: Observed) -> str:
    """Words on the largest parts of the simulated cycles; "" if these are unknown."""
    shares = seen.report.cycle_shares
    parts = (
        [f"{seen.operand(part.name)} {percent(part.fraction)}" for part in shares.parts[:_MOST_PARTS]] if shares else []
    )
    return f"; largest parts of the simulated cycles: {', '.join(parts)}" if parts else ""


def _outside(seen: Observed) -> str:
    """Words on the operations outside the kernel that take a notable share of the time; "" without one."""
    ops = [op for op in seen.outside_ops or () if op.seconds >= NOTABLE_SHARE * seen.seconds]
    slowest = sorted(ops, key=lambda op: -op.seconds)[:_MOST_PARTS]
    words = [f"`{op.name}` {seconds(op.seconds)} ({percent(op.seconds / seen.seconds)})" for op in slowest]
    return f"; outside the kernel: {', '.join(words)}" if words else ""


def _commands(seen: Observed) -> str:
    if seen.chip.platform != "tpu":
        return "`show` has the whole report of an attempt, `results` the earlier attempts"
    return (
        "look where the time goes: `lines` has the cycles of each line, `whatif` the gain if a resource of the chip "
        "were faster"
    )
