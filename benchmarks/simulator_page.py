"""Draws docs/timeline.png: the start of a simulated run of the contest's kernel, and some of its steps by bundle.

    .venv/bin/pip install -e '.[bench]' && .venv/bin/python benchmarks/simulator_page.py DUMP_DIR --chip v5e

DUMP_DIR is `profile_data/judge/dumps` after `ratchet.sh judge`.
"""

import argparse
from pathlib import Path

import matplotlib as mpl
import matplotlib.pyplot as plt
from matplotlib.axes import Axes

from harness.advice.dump_directory import read
from harness.hardware import chip
from harness.judge.simulate.timeline import timeline
from harness.records import Span, Timeline

mpl.use("Agg")

PICTURE = Path(__file__).parent.parent / "docs" / "timeline.png"
_COLOURS = {
    "op": "#9aa5b1",
    "step": "#4c78a8",
    "transfer": "#f58518",
    "wait": "#e45756",
    "stall": "#e45756",
    "issue": "#54a24b",
}
_OVERVIEW = ("ops", "steps", "DMA in", "DMA out", "waits")
# The number of first steps that are shown.
_FIRST_STEPS = 12


def _row(span: Span) -> str:
    return span.row.removeprefix("core 0 ")


def _draw(axes: Axes, spans: list[Span], rows: list[str], clock_hz: float, between: tuple[int, int]) -> None:
    first, last = between
    for span in spans:
        if span.end <= first or span.start >= last or _row(span) not in rows:
            continue
        start, end = max(span.start, first), min(span.end, last)
        axes.barh(
            rows.index(_row(span)),
            (end - start) / clock_hz * 1e6,
            left=start / clock_hz * 1e6,
            height=0.8,
            color=_COLOURS[span.kind],
            edgecolor="white" if span.kind in ("step", "transfer", "op") else "none",
            linewidth=0.4,
        )
    axes.set_yticks(range(len(rows)), rows)
    axes.invert_yaxis()
    axes.set_xlim(first / clock_hz * 1e6, last / clock_hz * 1e6)
    axes.set_xlabel("microseconds, simulated")


def draw(drawn_timeline: Timeline, picture: Path) -> None:
    """Writes the picture: the first steps at the top, and at the bottom the window that is known bundle by bundle."""
    core_spans = [span for span in drawn_timeline.spans if span.row.startswith("core 0 ")]
    steps = [span for span in core_spans if _row(span) == "steps" and span.name.startswith("step")]
    end = steps[min(_FIRST_STEPS, len(steps)) - 1].end if steps else drawn_timeline.cycles
    figure, (above, below) = plt.subplots(2, 1, figsize=(11, 7), height_ratios=[2, 3], constrained_layout=True)
    present = {_row(span) for span in core_spans}
    _draw(above, core_spans, [name for name in _OVERVIEW if name in present], drawn_timeline.clock_hz, (0, end))
    above.set_title(
        f"the first {min(_FIRST_STEPS, len(steps))} grid steps, simulated {drawn_timeline.chip}", loc="left"
    )
    if drawn_timeline.window is not None:
        units = sorted(present - set(_OVERVIEW))
        _draw(below, core_spans, ["steps", "DMA in", *units], drawn_timeline.clock_hz, drawn_timeline.window)
        below.set_title("steps in the middle of the run, bundle by bundle", loc="left")
    figure.savefig(picture, dpi=110)


def main() -> None:
    """Reads the dumps, simulates, draws."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("dumps", type=Path)
    parser.add_argument("--chip", required=True)
    parser.add_argument("--steps", type=int, default=2)
    options = parser.parse_args()
    target = chip(options.chip)
    draw(timeline(read(options.dumps, target), target, steps_shown=options.steps), PICTURE)
    print(PICTURE)


if __name__ == "__main__":
    main()
