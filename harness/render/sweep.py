"""A screened grid as a table, and as a heat map where it has two constants."""

import math
from collections.abc import Iterator, Sequence

from harness.records import Screened, Sweep, Swept
from harness.records.report_words import source_label
from harness.render.grid import grid
from harness.render.layout import Style, clean, cut, joined, pad, paint, wrap
from harness.units import change, column, quantity, seconds

# From least to most time: full to empty blocks, so that it reads without colour too.
_SHADES = "█▓▒░·"
_COLOURS: tuple[Style, ...] = ("good", "good", "doubt", "doubt", "bad")
_FAILED = "x"
_NOT_TRIED = "-"
_MOST_REASONS = 8


def sweep_text(swept: Swept, width: int, colour: bool) -> str:
    """The table, the heat map and the sentence on what was judged."""
    return joined(_lines(swept, width, colour))


def _lines(swept: Swept, width: int, colour: bool) -> Iterator[str]:
    sweep = swept.sweep
    total = len(sweep.screened)
    failed = sum(one.seconds is None for one in sweep.screened)
    label = source_label(sweep.source, sweep.chip)
    yield from wrap(
        f"{quantity(total, 'setting')} screened [{label}], {failed} without a latency, "
        f"{seconds(swept.seconds, 1)} in all. "
        "Screened is compiled and timed, not checked; only what was judged is known to be right.",
        width,
    )
    yield ""
    yield from _table(sweep, swept.best, width)
    if len(sweep.parameters) == 2:
        yield ""
        yield from _map(sweep, width, colour)
    yield ""
    if swept.best is None or swept.attempt is None:
        yield from wrap(clean(swept.why_none), width, "nothing judged: " if swept.best is None else "")
    else:
        best = " ".join(f"{name}={value}" for name, value in swept.best)
        failed = len(sweep.refused)
        after = f", after {failed} faster that fail" if failed and swept.outcome != "failed" else ""
        if failed > 1 and swept.outcome == "failed":
            after = f"; it fails, as do the {failed - 1} next best that would be faster than the champion"
        yield from wrap(f"judged as attempt {swept.attempt}: {best}{after}", width)


def remark(sweep: Sweep, one: Screened, best: Sequence[tuple[str, str]] | None, judged: str, came: str = "") -> str:
    """Why a setting has no latency, or what else is known of it: `judged` says that it was, `came` what of the best."""
    refused = next((other.failure for other in sweep.refused if other.settings == one.settings), None)
    if refused is not None:
        return f"{judged}, fails: {refused.kind}: {clean(refused.message)}"
    if one.settings == best:
        return f"{judged}{came}"
    if one.same_as is not None:
        return f"judged before: attempt {one.same_as}"
    return ": ".join(filter(None, (one.failure_kind, clean(one.message))))


def _table(sweep: Sweep, best: Sequence[tuple[str, str]] | None, width: int) -> Iterator[str]:
    """All settings and the champion, the fastest first; then each remark that is too long for a line, once."""
    least = min((one.seconds for one in sweep.screened if one.seconds is not None), default=None)
    champion = sweep.champion_seconds
    base, title = (least, "against\nfastest") if champion is None else (champion, "against\nchampion")
    rows = [
        (one.seconds, [value for _, value in one.settings], remark(sweep, one, best, "judged now"))
        for one in sweep.screened
    ]
    if champion is not None:
        rows.append((champion, ["" for _ in sweep.parameters], f"champion: attempt {sweep.champion}"))
    rows.sort(key=lambda row: math.inf if row[0] is None else row[0])
    times = column([row[0] for row in rows])
    body = [
        [*cells, time, "-" if taken is None or base is None else change(taken / base), said]
        for (taken, cells, said), time in zip(rows, times, strict=True)
    ]
    titles = [*(name for name, _ in sweep.parameters), "time", title, "remark"]
    whole = grid(titles, body, "r" * (len(titles) - 1) + "l")
    shown = [cut(line, width) for line in whole]
    yield from shown
    reasons: dict[str, list[str]] = {}
    for (_, cells, said), line, short in zip(rows, whole[-len(rows) :], shown[-len(rows) :], strict=True):
        if line != short:
            settings = zip((name for name, _ in sweep.parameters), cells, strict=True)
            reasons.setdefault(said, []).append(" ".join(f"{name}={value}" for name, value in settings))
    for said, (first, *others) in list(reasons.items())[:_MOST_REASONS]:
        more = f" and {quantity(len(others), 'other')}" if others else ""
        yield from ("", *wrap(f"{first}{more}: {said}", width, "", "  "))
    if len(reasons) > _MOST_REASONS:
        yield from ("", f"{len(reasons) - _MOST_REASONS} more reasons: --json")


def _map(sweep: Sweep, width: int, colour: bool) -> Iterator[str]:
    """Rows: values of the first constant. Columns: those of the second. Figures are times over the least."""
    (down, rows), (across, columns) = sweep.parameters
    by_values = {tuple(value for _, value in one.settings): one for one in sweep.screened}
    known = [one.seconds for one in sweep.screened if one.seconds is not None]
    least, most = min(known, default=None), max(known, default=None)
    lead = max(len(down), *(len(value) for value in rows))
    room = max(8, *(len(value) + 1 for value in columns))
    if lead + 1 + room * len(columns) + 2 + len(across) > width:
        yield f"the heat map of {down} and {across} is wider than {width} columns: --json has its figures"
        return
    yield f"{pad(down, lead)} {''.join(value.rjust(room) for value in columns)}  {across}"
    for value in rows:
        cells = (_cell(by_values.get((value, other)), least, most, room, colour) for other in columns)
        yield f"{value.rjust(lead)} {''.join(cells)}"
    missing = "" if len(by_values) == len(rows) * len(columns) else f", {_NOT_TRIED} not tried"
    yield f"time over the least: {_SHADES[0]} least to {_SHADES[-1]} most, {_FAILED} no latency{missing}"


def _cell(one: Screened | None, least: float | None, most: float | None, room: int, colour: bool) -> str:
    if one is None:
        return paint(_NOT_TRIED.rjust(room), "faint", colour)
    if one.seconds is None or least is None or most is None:
        return paint(_FAILED.rjust(room), "faint", colour)
    # Times differ by factors, so shades are even steps of a logarithm.
    span = math.log(most / least)
    place = 0 if span == 0 else min(len(_SHADES) - 1, int(len(_SHADES) * math.log(one.seconds / least) / span))
    return paint(f"{_SHADES[place]} {one.seconds / least:.2f}x".rjust(room), _COLOURS[place], colour)
