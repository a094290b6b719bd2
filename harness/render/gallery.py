"""The picture over several contests as PNG: how much of the chip's limit the first and the present champion reach."""

from collections.abc import Sequence

from matplotlib.ticker import PercentFormatter

from harness.render.contests import ContestRow
from harness.render.figures import finish, legend, new_figure, png
from harness.render.layout import cut
from harness.render.palette import DARK, LIGHT
from harness.units import percent

NAME = "gallery.png"
_INCHES_A_ROW, _INCHES_BESIDE = 0.28, 1.3
_LONGEST = 44


def gallery(rows: Sequence[ContestRow], *, dark: bool = False) -> bytes | None:
    """The contests whose champion has a share of the limit, the largest first; None where there is none."""
    palette = DARK if dark else LIGHT
    shown = sorted((row for row in rows if row.limit_share is not None), key=lambda row: row.limit_share or 0.0)
    if not shown:
        return None
    figure = new_figure(_INCHES_BESIDE + _INCHES_A_ROW * len(shown), palette)
    axes = figure.subplots()
    win = palette.outcomes["accept"]
    for place, row in enumerate(shown):
        last, first = row.limit_share, row.first_limit_share
        assert last is not None
        if first is not None:
            axes.plot([first, last], [place, place], color=win, lw=2, alpha=0.5)
            axes.plot(first, place, "o", mfc=palette.paper, mec=palette.faint, ms=6, label="first champion")
        axes.plot(last, place, "o", color=win, ms=7, label="champion")
        gain = f"{row.gain:.2f}x" if row.gain is not None else ""
        for words, x in ((percent(last), 1.09), (gain, 1.18)):
            axes.text(x, place, words, ha="right", va="center", fontsize=9, color=palette.ink)
    axes.set_yticks(range(len(shown)), [cut(f"{row.short_name}, {row.label}", _LONGEST) for row in shown])
    axes.set_ylim(-0.7, len(shown) - 0.3)
    axes.set_xlim(0, 1.19)
    axes.set_xticks([0, 0.2, 0.4, 0.6, 0.8, 1.0])
    axes.xaxis.set_major_formatter(PercentFormatter(1.0))
    axes.set_xlabel("share of the chip's limit (least time for the useful work / time)")
    axes.axvline(1, ls=":", lw=1.3, color=palette.floor)
    legend(axes, palette)
    finish(
        figure, (axes,), "What the attempts made of each kernel: share of the chip's limit, and gain in time", palette
    )
    return png(figure)
