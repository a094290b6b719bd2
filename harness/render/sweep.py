"""A screened grid as a table, and as a heat map where it has two constants."""

import math
from collections.abc import Iterator, Sequence

from harness.records import ScreenedSetting, Sweep, SweepResult
from harness.records.report_words import source_label, threshold_words
from harness.render.layout import Style, clean, pad
from harness.render.sections import GAP, Block, Column, Drawing, Grid, Line, Words
from harness.units import change, quantity, seconds

# From least to most time: full to empty blocks, so that the map can be read without colour.
_SHADES = "█▓▒░·"
_COLOURS: tuple[Style, ...] = ("good", "good", "doubt", "doubt", "bad")
_FAILED = "x"
_NOT_TRIED = "-"
_MOST_REASONS = 8
# A longer remark is printed below the table, once for all its settings.
_LONGEST_REMARK = 60


def sweep_blocks(swept: SweepResult) -> Iterator[Block]:
    """The table, the heat map for two constants, and sentences on the gain and on the judged setting."""
    sweep = swept.sweep
    total = len(sweep.screened)
    failed = sum(setting.seconds is None for setting in sweep.screened)
    label = source_label(sweep.source, sweep.chip)
    yield Words(
        f"{quantity(total, 'setting')} screened [{label}], {failed} without a latency, {seconds(swept.seconds, 1)} in "
        "all. Screened settings are compiled and timed; correctness is checked only for settings that are judged."
    )
    yield from (GAP, _table(sweep, swept.best))
    if len(sweep.parameters) == 2:
        yield from (GAP, _map(sweep))
    yield GAP
    yield from _against_threshold(swept)
    yield _judged(swept)


def _against_threshold(swept: SweepResult) -> Iterator[Block]:
    """The fastest setting, compared with the smallest gain that is accepted."""
    champion, gain = swept.sweep.champion_seconds, swept.least_gain
    least = min((setting.seconds for setting in swept.sweep.screened if setting.seconds is not None), default=None)
    if champion is None or gain is None or least is None:
        return
    most = champion * (1 - gain)
    yield Words(
        f"the fastest takes {seconds(least)}, {change(least / champion)} against the champion; "
        f"{threshold_words(gain)}, at most {seconds(most)} ({'reached' if least <= most else 'not reached'})"
    )


def _judged(swept: SweepResult) -> Words:
    if swept.best is None or swept.attempt is None:
        return Words(swept.why_none, lead="nothing judged: " if swept.best is None else "", rest="")
    best = _settings(swept.best)
    failed = len(swept.sweep.refused)
    after = f", after {quantity(failed, 'faster one')} failed" if failed and swept.outcome != "failed" else ""
    if failed > 1 and swept.outcome == "failed":
        after = f"; it fails, and so does each of the next best ({failed - 1}) that would be faster than the champion"
    return Words(f"judged as attempt {swept.attempt}: {best}{after}")


def _settings(settings: Sequence[tuple[str, str]]) -> str:
    return " ".join(f"{name}={value}" for name, value in settings)


def remark(
    sweep: Sweep, setting: ScreenedSetting, best: Sequence[tuple[str, str]] | None, judged: str, came: str = ""
) -> str:
    """A remark on a setting: `judged` (for the best also `came`), the reason why it was not judged, or ""."""
    refused = next((other.failure for other in sweep.refused if other.settings == setting.settings), None)
    if refused is not None:
        return f"{judged}, fails: {refused.kind}: {clean(refused.message)}"
    if setting.settings == best:
        return f"{judged}{came}"
    if setting.same_as is not None:
        return f"judged before: attempt {setting.same_as}"
    return ": ".join(filter(None, (setting.failure_kind, clean(setting.message))))


def _table(sweep: Sweep, best: Sequence[tuple[str, str]] | None) -> Grid:
    """All settings and the champion, the fastest first; then each remark that is too long for a line, once."""
    least = min((setting.seconds for setting in sweep.screened if setting.seconds is not None), default=None)
    champion = sweep.champion_seconds
    base, title = (least, "against\nfastest") if champion is None else (champion, "against\nchampion")
    rows = [
        (setting.seconds, [value for _, value in setting.settings], remark(sweep, setting, best, "judged now"))
        for setting in sweep.screened
    ]
    if champion is not None:
        rows.append((champion, ["" for _ in sweep.parameters], f"champion: attempt {sweep.champion}"))
    rows.sort(key=lambda row: math.inf if row[0] is None else row[0])
    names = [name for name, _ in sweep.parameters]
    long = {number for number, (*_, reason) in enumerate(rows) if len(reason) > _LONGEST_REMARK}

    def note_loss(numbers: Sequence[int]) -> Iterator[Block]:
        reasons: dict[str, list[str]] = {}
        for _, values, reason in (rows[number] for number in sorted(long.union(numbers))):
            reasons.setdefault(reason, []).append(_settings(list(zip(names, values, strict=True))))
        for reason, (first, *others) in list(reasons.items())[:_MOST_REASONS]:
            more = f" and {quantity(len(others), 'other')}" if others else ""
            yield from (GAP, Words(f"{first}{more}: {reason}", rest="  "))
        if len(reasons) > _MOST_REASONS:
            yield from (GAP, Line(f"{quantity(len(reasons) - _MOST_REASONS, 'more reason')}: --json"))

    columns = [*(Column(name, side="r") for name in names), Column("time", "times"), Column(title, "change")]
    cells = [
        (*values, latency, latency / base if latency and base else None, reason) for latency, values, reason in rows
    ]
    return Grid([*columns, Column("remark", most=_LONGEST_REMARK)], cells, of_lost_columns=note_loss)


def _map(sweep: Sweep) -> Drawing:
    """A heat map: a row for each value of the first constant, a column for each of the second, time / least time."""
    (down, rows), (across, columns) = sweep.parameters
    by_values = {tuple(value for _, value in setting.settings): setting for setting in sweep.screened}
    times = [setting.seconds for setting in sweep.screened if setting.seconds is not None]
    least, most = min(times, default=None), max(times, default=None)
    lead = max(len(down), *(len(value) for value in rows))
    room = max(8, *(len(value) + 1 for value in columns))
    lines = [Line(f"{pad(down, lead)} {''.join(value.rjust(room) for value in columns)}  {across}")]
    for value in rows:
        cells = [_cell(by_values.get((value, other)), least, most, room) for other in columns]
        lines.append(Line([(f"{value.rjust(lead)} ", None), *cells]))
    missing = "" if len(by_values) == len(rows) * len(columns) else f", {_NOT_TRIED} not tried"
    legend = f"time over the least: {_SHADES[0]} least to {_SHADES[-1]} most, {_FAILED} no latency{missing}"
    return Drawing(lines, name=f"the heat map of {down} and {across}", legend=Line(legend, is_whole=True))


def _cell(setting: ScreenedSetting | None, least: float | None, most: float | None, room: int) -> tuple[str, Style]:
    if setting is None:
        return _NOT_TRIED.rjust(room), "faint"
    if setting.seconds is None or least is None or most is None:
        return _FAILED.rjust(room), "faint"
    # Times differ by factors, so the shades are equal steps on a logarithmic scale.
    span = math.log(most / least)
    place = 0 if span == 0 else min(len(_SHADES) - 1, int(len(_SHADES) * math.log(setting.seconds / least) / span))
    return f"{_SHADES[place]} {setting.seconds / least:.2f}x".rjust(room), _COLOURS[place]
