"""PNG pictures: attempts under one key (progress, roofline, time), and contests' shares of the chip's limit."""

import io
import math
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any, TypeAlias

from matplotlib.axes import Axes
from matplotlib.axis import Axis
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.colors import to_rgb
from matplotlib.figure import Figure
from matplotlib.ticker import EngFormatter, FixedLocator, MaxNLocator, NullLocator, PercentFormatter, StrMethodFormatter

from harness.records import Outcome
from harness.render.colours import DARK, LIGHT
from harness.render.contests import ContestRow
from harness.render.layout import cut
from harness.render.series import Entry, Group, Piece, PieceKind, pieces
from harness.units import decimal, percent, seconds

# Colours by their names (colours.py).
Palette: TypeAlias = Mapping[str, str]

_INCHES_WIDE, _DOTS_PER_INCH = 10.0, 130
GALLERY = "gallery.png"
_INCHES_A_ROW, _INCHES_BESIDE = 0.28, 1.3
_LONGEST = 44
# Shapes distinguish the verdicts for readers who cannot distinguish the colours.
_SHAPES: dict[Outcome, tuple[str, str, bool]] = {
    "accept": ("o", "accepted", True),
    "reject": ("D", "rejected", False),
    "inconclusive": ("o", "inconclusive", False),
    "failed": ("x", "failed", True),
}
_HATCHES: dict[PieceKind, str] = {
    "work": "",
    "bubble": "...",
    "stall": "///",
    "dma": "\\\\\\",
    "edge": "--",
    "other": "||",
}
# Several pieces of one kind share its colour: each piece after the first is paler and has one more hatch mark.
_MARKS = ("", "..", "++", "oo", "xx", "**")
_PALER, _PALEST = 0.14, 0.56
# Pieces below this share of every run are merged by kind: they would be too small to tell apart.
_SMALL_SHARE = 0.04
_SMALL_NAMES: dict[PieceKind, str] = {"stall": "unit stalls", "dma": "operand waits", "edge": "fill and drain"}
# With more than this many points, numbers next to them would cover the points.
_MOST_NUMBERS = 40
_MOST_TICKS = 9
# The score at the floor is drawn on the same axis if it is at most this many times the best score.
_FAR_ABOVE = 8


class _Units(EngFormatter):
    """Engineering units, with `us` for microseconds, as in the ratchet's texts."""

    ENG_PREFIXES = {**EngFormatter.ENG_PREFIXES, -6: "u"}  # noqa: RUF012


def pictures(group: Group, *, dark: bool = False) -> tuple[tuple[str, bytes], ...]:
    """File names and PNG bytes of the figures that the group has data for."""
    palette = DARK if dark else LIGHT
    return tuple((name, _png(draw(group, palette))) for name, data, draw, _ in _PICTURES if data(group))


def left_out(group: Group) -> tuple[str, ...]:
    """A sentence on each figure that is not drawn, with the reason."""
    return tuple(f"no {name}: {why_not}" for name, data, _, why_not in _PICTURES if not data(group))


def _shape(entry: Entry) -> tuple[str, str, bool]:
    """Marker, words, and True if it is filled; attempts that lost or moved a title have their own markers."""
    if entry.is_revoked:
        return "X", "revoked: it fails", False
    if entry.row.kind == "revoke":
        return "s", "revoke", False
    if entry.is_undone or entry.row.kind == "undo":
        return "s", "undone or undo", False
    return _SHAPES[entry.row.outcome]


def _timed(group: Group) -> list[Entry]:
    return [entry for entry in group.shown if entry.has_time]


def _placed(group: Group) -> list[tuple[Entry, float, float]]:
    """The entries with a known intensity (FLOP/B) and rate (FLOP/s), which the roofline shows."""
    return [
        (entry, report.intensity, rate)
        for entry in _timed(group)
        if (report := entry.report) and report.intensity is not None and (rate := entry.flops_per_second) is not None
    ]


def _bars(group: Group) -> list[tuple[str, tuple[Piece, ...]]]:
    """The first and the last accepted attempt with their parts of time, if known."""
    accepted = [entry for entry in group.entries if entry.is_accepted and entry.has_time]
    ends = dict.fromkeys((accepted[0].id, accepted[-1].id)) if accepted else {}
    bars = []
    for entry in accepted:
        if entry.id in ends and entry.attempt is not None:
            parts = pieces(entry.report, entry.attempt.evidence.simulation, entry.attempt)
            if parts:
                bars.append((f"attempt {entry.row.number}", parts))
    return _joined(bars)


def _joined(bars: list[tuple[str, tuple[Piece, ...]]]) -> list[tuple[str, tuple[Piece, ...]]]:
    """The bars; pieces that are small in every bar are merged by kind, at the place of the last merged piece."""
    large = {part.name for _, parts in bars for part in parts if part.fraction >= _SMALL_SHARE}
    of_large = {part.kind for _, parts in bars for part in parts if part.name in large}
    made = []
    for label, parts in bars:
        sums: dict[str, Piece] = {}
        for part in parts:
            name = part.name
            if name not in large and part.kind in _SMALL_NAMES:
                name = ("other " if part.kind in of_large else "") + _SMALL_NAMES[part.kind]
            before = sums.pop(name, None)
            sums[name] = replace(
                part,
                name=name,
                seconds=part.seconds + (before.seconds if before else 0),
                fraction=part.fraction + (before.fraction if before else 0),
            )
        made.append((label, tuple(sums.values())))
    return made


def _looks(bars: list[tuple[str, tuple[Piece, ...]]], palette: Palette) -> dict[str, tuple[tuple[float, ...], str]]:
    """Colour and hatch of every piece by its name; no two pieces look the same."""
    looks: dict[str, tuple[tuple[float, ...], str]] = {}
    counted: Counter[PieceKind] = Counter()
    for part in (part for _, parts in bars for part in parts):
        if part.name in looks:
            continue
        place = counted[part.kind]
        counted[part.kind] += 1
        share = min(place * _PALER, _PALEST)
        pair = zip(to_rgb(palette[f"piece-{part.kind}"]), to_rgb(palette["picture"]), strict=True)
        colour = tuple((1 - share) * ink + share * paper for ink, paper in pair)
        marks = _MARKS[place % len(_MARKS)] * (1 + place // len(_MARKS))
        looks[part.name] = colour, _HATCHES[part.kind] + marks
    return looks


def _progress(group: Group, palette: Palette) -> Figure:
    figure = _new_figure(6.2, palette)
    above, below = figure.subplots(2, 1, sharex=True, height_ratios=(3, 2))
    first, last = group.entries[0].row.number, group.entries[-1].row.number
    timed = _timed(group)
    if group.steps:
        # A champion from another key stands before the first attempt under this key.
        numbers = [*(step.number - 0.5 * step.was_before for step in group.steps), last]
        for axes, values in (
            (above, [step.seconds for step in group.steps]),
            (below, [math.nan if step.score is None else step.score for step in group.steps]),
        ):
            line = palette["accept"]
            axes.step(numbers, [*values, values[-1]], where="post", color=line, lw=1.4, alpha=0.7, label="champion")
    _scatter(above, timed, palette, lambda entry: entry.row.seconds, _time_range)
    _scatter(below, timed, palette, lambda entry: entry.row.score, lambda entry: entry.score_range)
    above.set_yscale("log")
    above.set_ylabel("latency")
    below.set_ylabel("score")
    below.set_ylim(bottom=0)
    below.yaxis.set_major_formatter(StrMethodFormatter("{x:,.0f}"))
    below.set_xlabel("attempt")
    below.set_xlim(first - 0.6, last + 0.6)
    below.xaxis.set_major_locator(MaxNLocator(integer=True))
    if group.bound is not None:
        _floor(above, group.bound.seconds, f"{group.bound.name} {seconds(group.bound.seconds, 1)}", palette)
        above.set_ylim(bottom=min(above.get_ylim()[0], group.bound.seconds * 0.8))
        highest = max((entry.row.score or 0.0 for entry in timed), default=0.0)
        # A line far above all points would flatten their plot: then words state its score instead.
        words = f"score at the floor {group.bound.score:,.0f}"
        if group.bound.score < _FAR_ABOVE * highest:
            _floor(below, group.bound.score, words, palette)
            below.set_ylim(top=max(below.get_ylim()[1], group.bound.score * 1.06))
        else:
            below.set_title(f"{words}, above this chart", loc="left", fontsize=9, color=palette["floor"])
    low, high = above.get_ylim()
    _ticks(above.yaxis, low, high, unit="s")
    without = [entry for entry in group.shown if not entry.has_time]
    for entry in without:
        shape, _, _ = _SHAPES[entry.row.outcome]
        above.plot(
            entry.row.number,
            0.97,
            shape,
            transform=above.get_xaxis_transform(),
            ms=7,
            mew=1.8,
            fillstyle="none",
            color=palette[entry.row.outcome],
            label=f"{_SHAPES[entry.row.outcome][1]}, no latency",
        )
    _legend(above, palette)
    _finish(figure, (above, below), f"{group.title}: latency and score by attempt", palette)
    return figure


def _time_range(entry: Entry) -> tuple[float, float] | None:
    off, value = entry.plus_minus_seconds, entry.row.seconds
    return None if off is None or value is None else (value - off, value + off)


def _scatter(
    axes: Axes,
    entries: Sequence[Entry],
    palette: Palette,
    value: Callable[[Entry], float | None],
    interval: Callable[[Entry], tuple[float, float] | None],
) -> None:
    """Draws points with their bars of uncertainty, by verdict."""
    for entry in entries:
        at, ends = value(entry), interval(entry)
        if at is None:
            continue
        shape, word, is_filled = _shape(entry)
        colour = palette["failed" if entry.is_revoked else entry.row.outcome]
        bars = None if ends is None else [[at - ends[0]], [ends[1] - at]]
        axes.errorbar(
            entry.row.number,
            at,
            yerr=bars,
            fmt=shape,
            ms=6.5,
            mew=1.6,
            color=colour,
            ecolor=palette["faint"],
            elinewidth=1,
            capsize=2,
            markerfacecolor=colour if is_filled else palette["picture"],
            label=word,
            zorder=3,
        )


def _roofline(group: Group, palette: Palette) -> Figure:
    figure = _new_figure(5.6, palette)
    axes = figure.subplots()
    placed, roof = _placed(group), group.roof
    intensities = [intensity for _, intensity, _ in placed] + [roof.ridge]
    intensities += [group.minimum_intensity] if group.minimum_intensity else []
    left, right = min(intensities) / 4, max(intensities) * 3
    bottom, top = min(roof.at(left), *(rate for _, _, rate in placed)) / 2, roof.flops_per_second * 1.6
    _roofs(axes, group, left, right, bottom, palette)
    for entry, intensity, rate in placed:
        shape, word, is_filled = _shape(entry)
        colour = palette["failed" if entry.is_revoked else entry.row.outcome]
        axes.plot(
            intensity,
            rate,
            shape,
            ms=7,
            mew=1.6,
            color=colour,
            markerfacecolor=colour if is_filled else "none",
            label=word,
            ls="none",
        )
        if entry.is_accepted and len(placed) <= _MOST_NUMBERS:
            _write(axes, str(entry.row.number), (intensity, rate), (7, -11), palette["ink"])
    axes.set_xscale("log")
    axes.set_yscale("log")
    axes.set_xlim(left, right)
    axes.set_ylim(bottom, top)
    axes.set_xlabel("useful FLOP per byte of HBM traffic")
    axes.set_ylabel("useful FLOP/s")
    _ticks(axes.xaxis, left, right)
    _ticks(axes.yaxis, bottom, top)
    _legend(axes, palette)
    _finish(figure, (axes,), f"{group.title}: roofline", palette)
    return figure


def _roofs(axes: Axes, group: Group, left: float, right: float, bottom: float, palette: Palette) -> None:
    """Draws the two roofs between two intensities, the ridge where they meet, and the intensity of perfect reuse."""
    roof = group.roof
    ends = (left, roof.ridge, right)
    axes.plot(ends, [roof.at(intensity) for intensity in ends], color=palette["ink"], lw=1.7)
    # About a third of the way up, where the label does not overlap the axes.
    along = left * (roof.ridge / left) ** 0.35
    for words, at, offset, side in (
        (f"compute roof {decimal(roof.flops_per_second, 'FLOP/s', 0)}", right, (-4, 5), "right"),
        (f"memory roof\n{decimal(roof.bytes_per_second, 'B/s', 0)}", along, (10, -22), "left"),
    ):
        _write(axes, words, (at, roof.at(at)), offset, palette["ink"], ha=side)
    verticals = [(roof.ridge, ":", f"ridge {roof.ridge:.0f} FLOP/B", "left")]
    verticals += [(group.minimum_intensity, "--", "every array once", "right")] if group.minimum_intensity else []
    for intensity, style, words, side in verticals:
        axes.axvline(intensity, ls=style, lw=1, color=palette["faint"])
        _write(axes, words, (intensity, bottom), (4 if side == "left" else -4, 5), palette["faint"], ha=side)


def _time(group: Group, palette: Palette) -> Figure:
    bars = _bars(group)
    figure = _new_figure(1.9 + 0.75 * len(bars), palette)
    axes = figure.subplots()
    named: set[str] = set()
    looks = _looks(bars, palette)
    longest = max(sum(part.seconds for part in parts) for _, parts in bars)
    for place, (_, parts) in enumerate(bars):
        start = 0.0
        for part in parts:
            label = part.name if part.name not in named else None
            named.add(part.name)
            colour, hatch = looks[part.name]
            axes.barh(
                place,
                part.seconds,
                left=start,
                height=0.62,
                color=colour,
                edgecolor=palette["picture"],
                hatch=hatch,
                linewidth=0.8,
                label=label,
            )
            if part.seconds > 0.04 * longest:
                axes.text(
                    start + part.seconds / 2,
                    place,
                    f" {percent(part.fraction, 0)} ",
                    ha="center",
                    va="center",
                    fontsize=9,
                    color=palette["ink"],
                    bbox={"boxstyle": "round,pad=0.15", "facecolor": palette["picture"], "edgecolor": "none"},
                )
            start += part.seconds
    totals = [seconds(sum(part.seconds for part in parts)) for _, parts in bars]
    names = [f"{name}\n{total}" for (name, _), total in zip(bars, totals, strict=True)]
    axes.set_yticks(range(len(bars)), names)
    axes.invert_yaxis()
    axes.xaxis.set_major_formatter(_Units(unit="s"))
    axes.set_xlabel("time of one call, as recorded")
    figure.legend(loc="outside lower left", ncols=4, frameon=False, fontsize=9, labelcolor=palette["ink"])
    _finish(figure, (axes,), f"{group.title}: where the time goes", palette)
    return figure


# The file of each figure, the data that it needs, its drawing, and the reason if there are no data.
_PICTURES: tuple[tuple[str, Callable[[Group], object], Callable[[Group, Palette], Figure], str], ...] = (
    ("progress.png", _timed, _progress, "no attempt under this key has a latency"),
    ("roofline.png", _placed, _roofline, "no attempt under this key has both a latency and known traffic"),
    ("time.png", _bars, _time, "no accepted attempt under this key has a simulated run"),
)


def _floor(axes: Axes, value: float, words: str, palette: Palette) -> None:
    """Draws a dotted line across, with words below its left end."""
    axes.axhline(value, ls=":", lw=1.3, color=palette["floor"])
    _write(axes, words, (0.005, value), (0, -12), palette["floor"], xycoords=("axes fraction", "data"))


def _write(
    axes: Axes, words: str, at: tuple[float, float], offset: tuple[float, float], colour: str, **how: Any
) -> None:
    """Writes words next to a place, `offset` points away."""
    axes.annotate(words, at, xytext=offset, textcoords="offset points", fontsize=9, color=colour, **how)


def _ticks(axis: Axis, low: float, high: float, unit: str = "") -> None:
    """Sets the ticks of a logarithmic axis: 1, 2 and 5 in every decade, or only 1 if that would be too many ticks."""
    decades = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
    every = [factor * 10.0**power for power in decades for factor in (1, 2, 5)]
    inside = [value for value in every if low <= value <= high]
    if len(inside) > _MOST_TICKS:
        inside = [10.0**power for power in decades if low <= 10.0**power <= high]
    axis.set_major_locator(FixedLocator(inside))
    axis.set_major_formatter(_Units(unit=unit))
    axis.set_minor_locator(NullLocator())


def gallery(rows: Sequence[ContestRow], *, dark: bool = False) -> bytes | None:
    """A picture of the contests whose share of the limit is known, the largest on top; None without such contests."""
    palette = DARK if dark else LIGHT
    shown = [(share, row) for row in rows if (share := row.limit_share(-1)) is not None]
    if not shown:
        return None
    shown.sort(key=lambda pair: pair[0])
    figure = _new_figure(_INCHES_BESIDE + _INCHES_A_ROW * len(shown), palette)
    axes = figure.subplots()
    win = palette["accept"]
    for place, (last, row) in enumerate(shown):
        first = row.limit_share(0)
        if first is not None:
            axes.plot([first, last], [place, place], color=win, lw=2, alpha=0.5)
            axes.plot(first, place, "o", mfc=palette["picture"], mec=palette["faint"], ms=6, label="first champion")
        axes.plot(last, place, "o", color=win, ms=7, label="champion")
        gain = f"{row.gain:.2f}x" if row.gain is not None else ""
        for words, x in ((percent(last), 1.09), (gain, 1.18)):
            axes.text(x, place, words, ha="right", va="center", fontsize=9, color=palette["ink"])
    axes.set_yticks(range(len(shown)), [cut(f"{row.short_name}, {row.group.label}", _LONGEST) for _, row in shown])
    axes.set_ylim(-0.7, len(shown) - 0.3)
    axes.set_xlim(0, 1.19)
    axes.set_xticks([0, 0.2, 0.4, 0.6, 0.8, 1.0])
    axes.xaxis.set_major_formatter(PercentFormatter(1.0))
    axes.set_xlabel("share of the chip's limit (least time for the useful work / time)")
    axes.axvline(1, ls=":", lw=1.3, color=palette["floor"])
    _legend(axes, palette)
    _finish(
        figure, (axes,), "What the attempts made of each kernel: share of the chip's limit, and gain in time", palette
    )
    return _png(figure)


def _new_figure(inches_high: float, palette: Palette) -> Figure:
    """An empty figure on the palette's paper."""
    figure = Figure(figsize=(_INCHES_WIDE, inches_high), dpi=_DOTS_PER_INCH, layout="constrained")
    figure.patch.set_facecolor(palette["picture"])
    FigureCanvasAgg(figure)
    return figure


def _legend(axes: Axes, palette: Palette) -> None:
    """Draws a legend with one line for each kind of point; each point was drawn with a label of its own."""
    handles, labels = axes.get_legend_handles_labels()
    unique = dict(zip(labels, handles, strict=True))
    axes.legend(
        unique.values(),
        unique.keys(),
        frameon=False,
        fontsize=9,
        labelcolor=palette["ink"],
        loc="lower left",
        bbox_to_anchor=(0, 1.0),
        ncols=6,
        borderaxespad=0.2,
        handletextpad=0.4,
    )


def _finish(figure: Figure, all_axes: Iterable[Axes], title: str, palette: Palette) -> None:
    """Sets title, grid, spines and labels in the palette's colours."""
    figure.suptitle(title, x=0.01, ha="left", color=palette["ink"], fontsize=11)
    for axes in all_axes:
        axes.set_facecolor(palette["picture"])
        axes.grid(color=palette["grid"], lw=0.8)
        axes.set_axisbelow(True)
        axes.tick_params(which="both", colors=palette["faint"], labelsize=9)
        for side, spine in axes.spines.items():
            spine.set_visible(side in ("left", "bottom"))
            spine.set_color(palette["faint"])
        axes.xaxis.label.set_color(palette["ink"])
        axes.yaxis.label.set_color(palette["ink"])


def _png(figure: Figure) -> bytes:
    """The figure as PNG."""
    stream = io.BytesIO()
    # The file has no version and no date, so that the same ledger gives the same bytes.
    figure.savefig(stream, format="png", metadata={"Software": None})
    return stream.getvalue()
