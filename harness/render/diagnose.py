"""What to try next, in full: every finding with its gain, the observation, the change, and the rule behind it."""

from collections.abc import Sequence

from harness.records import Report
from harness.render.hints import gain_text
from harness.render.layout import clean, joined, paint, wrap
from harness.render.report_sections import label
from harness.units import percent, seconds

_WITHOUT_KIND = "no change of the kernel"


def diagnosis_text(name: str, report: Report, notes: Sequence[str], width: int, colour: bool) -> str:
    """All findings about `name`, the most promising first, then what the gains rest on."""
    latency = "latency unknown" if report.seconds is None else seconds(report.seconds)
    gap = "" if report.gap_fraction is None else f", gap {percent(report.gap_fraction)}"
    head = f"{clean(name)}: {latency}, {report.regime or 'regime unknown'}{gap} [{label(report)}]"
    lines = wrap(head, width)
    for number, hint in enumerate(report.hints, 1):
        # A failure's next step is no rule's, and gains nothing that could be said.
        title = hint.rule
        if hint.because:
            title += f": {gain_text(hint)}; kind of change: {hint.kind or _WITHOUT_KIND}"
        lines += ["", *(paint(line, "strong", colour) for line in wrap(clean(title), width, f"{number}. ", "   "))]
        lines += wrap(clean(hint.observation), width, "   ", "   ")
        lines += wrap(clean(hint.suggestion), width, "   -> ", "      ")
        if hint.because:
            lines += wrap(f"{clean(hint.because)} ({clean(hint.rule_source)})", width, "   rule: ", "         ")
    if not report.hints:
        lines += ["", "no rule finds anything here"]
    return joined([*lines, "", *(line for note in notes for line in wrap(clean(note), width))])
