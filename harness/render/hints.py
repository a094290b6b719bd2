"""What to try next: at the end of a report three times, whole; and in full, with the rule behind each finding."""

from collections.abc import Iterator, Sequence

from harness.advice.rules.rule import SIMULATED_EDIT
from harness.records import Hint, Report
from harness.render.layout import clean
from harness.render.report_sections import label
from harness.render.sections import GAP, Block, Line, Words, screen
from harness.units import percent, seconds

SHOWN = 3
_WITHOUT_KIND = "no change of the kernel"


def hints(found: Sequence[Hint], *, full: bool) -> Iterator[Block]:
    """What was observed, and the change with its gain; at a glance the first few. `diagnose` has the rules."""
    if found:
        yield Line("What to try next:", style="strong", is_whole=True)
    for number, hint in enumerate(found if full else found[:SHOWN], 1):
        # After a failure there is nothing to gain, and advice of no rule promises nothing.
        gain = f"{gain_text(hint)}: " if hint.because else ""
        # What to do is what the report is read for: never cut.
        yield Words(hint.observation, lead=f"  {number}. ", rest="     ")
        yield Words(f"{gain}{hint.suggestion}", lead="     -> ")


def gain_text(hint: Hint) -> str:
    """`at most 13.1% less time (simulated schedule)`, without `at most` where the very edit was simulated."""
    if hint.gain is None:
        return "gain unknown"
    bound = "" if hint.gain_source.startswith(SIMULATED_EDIT) else "at most "
    return f"{bound}{percent(hint.gain)} less time ({clean(hint.gain_source)})"


def diagnosis_text(
    name: str, report: Report, advice: Sequence[Hint], notes: Sequence[str], width: int, colour: bool
) -> str:
    """All findings about `name`, the most promising first, then what the gains rest on."""
    return screen(_diagnosis(name, report, advice, notes), width, colour=colour)


def _diagnosis(name: str, report: Report, advice: Sequence[Hint], notes: Sequence[str]) -> Iterator[Block]:
    latency = "latency unknown" if report.seconds is None else seconds(report.seconds)
    gap = "" if report.gap_fraction is None else f", gap {percent(report.gap_fraction)}"
    yield Words(f"{name}: {latency}, {report.regime or 'regime unknown'}{gap} [{label(report)}]")
    for number, hint in enumerate(advice, 1):
        # A failure's next step is no rule's, and gains nothing that could be said.
        title = hint.rule
        if hint.because:
            title += f": {gain_text(hint)}; kind of change: {hint.kind or _WITHOUT_KIND}"
        yield from (GAP, Words(title, lead=f"{number}. ", rest="   ", style="strong"))
        yield Words(hint.observation, lead="   ")
        yield Words(hint.suggestion, lead="   -> ")
        if hint.because:
            yield Words(f"{hint.because} ({hint.rule_source})", lead="   rule: ")
    if not advice:
        yield from (GAP, Line("no rule finds anything here", is_whole=True))
    yield GAP
    yield from map(Words, notes)
