"""What every picture is made of: an empty figure, a legend, axes in the page's colours, and PNG bytes."""

import io
from collections.abc import Iterable

from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

from harness.render.palette import Palette

_INCHES_WIDE, _DOTS_PER_INCH = 10.0, 130


def new_figure(inches_high: float, palette: Palette) -> Figure:
    """An empty figure on the palette's paper."""
    figure = Figure(figsize=(_INCHES_WIDE, inches_high), dpi=_DOTS_PER_INCH, layout="constrained")
    figure.patch.set_facecolor(palette.paper)
    FigureCanvasAgg(figure)
    return figure


def legend(axes: Axes, palette: Palette) -> None:
    """One line for each kind of point, though each point was drawn by itself."""
    handles, labels = axes.get_legend_handles_labels()
    unique = dict(zip(labels, handles, strict=True))
    axes.legend(
        unique.values(), unique.keys(), frameon=False, fontsize=9, labelcolor=palette.ink, loc="lower left",
        bbox_to_anchor=(0, 1.0), ncols=6, borderaxespad=0.2, handletextpad=0.4,
    )  # fmt: skip


def finish(figure: Figure, all_axes: Iterable[Axes], title: str, palette: Palette) -> None:
    """Title, grid, spines and labels, in the palette's colours."""
    figure.suptitle(title, x=0.01, ha="left", color=palette.ink, fontsize=11)
    for axes in all_axes:
        axes.set_facecolor(palette.paper)
        axes.grid(color=palette.grid, lw=0.8)
        axes.set_axisbelow(True)
        axes.tick_params(which="both", colors=palette.faint, labelsize=9)
        for side, spine in axes.spines.items():
            spine.set_visible(side in ("left", "bottom"))
            spine.set_color(palette.faint)
        axes.xaxis.label.set_color(palette.ink)
        axes.yaxis.label.set_color(palette.ink)


def png(figure: Figure) -> bytes:
    """The figure as it is stored."""
    stream = io.BytesIO()
    # No version or date in the file: the same ledger makes the same bytes.
    figure.savefig(stream, format="png", metadata={"Software": None})
    return stream.getvalue()
