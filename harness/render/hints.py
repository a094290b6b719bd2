"""What to try next: at the end of a report three times, whole; and in full, with the rule behind each finding."""

from collections.abc import Sequence

from harness.records import Hint, Report
from harness.render.layout import clean, joined, paint, wrap
from harness.render.report_sections import label
from harness.units import percent, seconds

_SHOWN = 3
# What harness.advice.rules calls the gain of an edit that was simulated.
_NO_BOUND = "simulated edit"
_WITHOUT_KIND = "no change of the kernel"


def hints(found: Sequence[Hint], width: int, colour: bool, *, full: bool) -> list[str]:
    """What was observed, and the change with its gain; at a glance the first few. `diagnose` has the rules."""
    if not found:
        return []
    lines = [paint("What to try next:", "strong", colour)]
    for number, hint in enumerate(found if full else found[:_SHOWN], 1):
        # After a failure there is nothing to gain, and advice of no rule promises nothing.
        gain = f"{gain_text(hint)}: " if hint.because else ""
        observed, change = clean(hint.observation), clean(f"{gain}{hint.suggestion}")
        # What to do is what the report is read for: never cut.
        lines += [*wrap(observed, width, f"  {number}. ", "     "), *wrap(change, width, "     -> ", "        ")]
    return lines


def gain_text(hint: Hint) -> str:
    """`at most 13.1% less time (simulated schedule)`, without `at most` where the very edit was simulated."""
    if hint.gain is None:
        return "gain unknown"
    bound = "" if hint.gain_source.startswith(_NO_BOUND) else "at most "
    return f"{bound}{percent(hint.gain)} less time ({clean(hint.gain_source)})"


def diagnosis_text(
    name: str, report: Report, advice: Sequence[Hint], notes: Sequence[str], width: int, colour: bool
) -> str:
    """All findings about `name`, the most promising first, then what the gains rest on."""
    latency = "latency unknown" if report.seconds is None else seconds(report.seconds)
    gap = "" if report.gap_fraction is None else f", gap {percent(report.gap_fraction)}"
    head = f"{clean(name)}: {latency}, {report.regime or 'regime unknown'}{gap} [{label(report)}]"
    lines = wrap(head, width)
    for number, hint in enumerate(advice, 1):
        # A failure's next step is no rule's, and gains nothing that could be said.
        title = hint.rule
        if hint.because:
            title += f": {gain_text(hint)}; kind of change: {hint.kind or _WITHOUT_KIND}"
        lines += ["", *(paint(line, "strong", colour) for line in wrap(clean(title), width, f"{number}. ", "   "))]
        lines += wrap(clean(hint.observation), width, "   ", "   ")
        lines += wrap(clean(hint.suggestion), width, "   -> ", "      ")
        if hint.because:
            lines += wrap(f"{clean(hint.because)} ({clean(hint.rule_source)})", width, "   rule: ", "         ")
    if not advice:
        lines += ["", "no rule finds anything here"]
    return joined([*lines, "", *(line for note in notes for line in wrap(clean(note), width))])
