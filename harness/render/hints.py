"""What to try next, at the end of a report: what was observed and the change to make, three times, whole."""

from collections.abc import Sequence

from harness.records import Hint
from harness.render.layout import clean, paint, wrap
from harness.units import percent

_SHOWN = 3


def hints(found: Sequence[Hint], width: int, colour: bool, *, full: bool) -> list[str]:
    """What was observed, and the change with its gain; at a glance the first few. `diagnose` has the rules."""
    if not found:
        return []
    lines = [paint("What to try next:", "strong", colour)]
    for number, hint in enumerate(found if full else found[:_SHOWN], 1):
        gain = "" if hint.gain is None else f"{gain_text(hint)}: "
        observed, change = clean(hint.observation), clean(f"{gain}{hint.suggestion}")
        # What to do is what the report is read for: never cut.
        lines += [*wrap(observed, width, f"  {number}. ", "     "), *wrap(change, width, "     -> ", "        ")]
    return lines


def gain_text(hint: Hint) -> str:
    """`at most 13.1% less time (simulated schedule)`; says so where the gain is not known."""
    if hint.gain is None:
        return "gain unknown"
    return f"at most {percent(hint.gain)} less time ({clean(hint.gain_source)})"
