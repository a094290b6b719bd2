"""Suggestions: the first few (SHOWN) for the end of a report or of `next`, or all with the rule behind each."""

from collections.abc import Iterator, Sequence

from harness.advice.rules.rule import SIMULATED_EDIT
from harness.advice.simulated_rates import above_limit
from harness.records import Failure, Hint, Report
from harness.render.layout import clean
from harness.render.report_sections import failure, label
from harness.render.sections import GAP, Block, Line, Words
from harness.units import percent, seconds

SHOWN = 3
_WITHOUT_KIND = "no change of the kernel"


def hints(advice: Sequence[Hint], *, full: bool) -> Iterator[Block]:
    """Each observation with its change and gain; all if `full`, else the first few. `diagnose` prints the rules."""
    if advice:
        yield Line("What to try next:", style="strong", is_whole=True)
    yield from numbered(advice if full else advice[:SHOWN])


def numbered(advice: Sequence[Hint]) -> Iterator[Block]:
    """Each observation under its number, with its change and gain."""
    for number, hint in enumerate(advice, 1):
        # Advice on a failure and advice without a rule have no gain.
        gain = f"{gain_text(hint)}: " if hint.because else ""
        # Advice is never cut, because readers of a report look for it.
        yield Words(hint.observation, lead=f"  {number}. ", rest="     ")
        yield Words(f"{gain}{hint.suggestion}", lead="     -> ")


def gain_text(hint: Hint) -> str:
    """The gain: `at most 13.1% less time (simulated schedule)`, without `at most` if the edit was simulated."""
    if hint.gain is None:
        return "gain unknown"
    bound = "" if hint.gain_source.startswith(SIMULATED_EDIT) else "at most "
    return f"{bound}{percent(hint.gain)} less time ({clean(hint.gain_source)})"


def diagnosis_blocks(
    name: str,
    report: Report,
    advice: Sequence[Hint],
    notes: Sequence[str],
    failed: Failure | None = None,
    least_seconds: float = 0.0,
) -> Iterator[Block]:
    """All findings about `name`, the most promising first, then the basis of the gains; `failed` is shown above.

    `least_seconds` is the least simulated time of the problem, with which the gap is compared.
    """
    latency = "latency unknown" if report.seconds is None else seconds(report.seconds)
    gap = "" if report.gap_fraction is None else f", gap {percent(report.gap_fraction)}"
    room = max(0.0, 1 - least_seconds / report.seconds) if report.seconds and least_seconds else 1.0
    if words := above_limit(report.gap_fraction, room):
        gap += f" ({words})"
    if failed is None:
        yield Words(f"{name}: {latency}, {report.regime or 'regime unknown'}{gap} [{label(report)}]")
    else:
        yield from failure(failed, full=False, lead=f"{name} failed: ")
    for number, hint in enumerate(advice, 1):
        # A failure's next step belongs to no rule and has no gain.
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
    if notes:
        yield GAP
        yield from map(Words, notes)
