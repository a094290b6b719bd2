"""The text about a timeline's files: their contents, and how to open them."""

import shlex
from collections.abc import Callable
from pathlib import Path

from harness.records import Timeline
from harness.records.report_words import simulated
from harness.units import count, decimal, seconds


def summary(timeline: Timeline, perfetto: Path, profile: Path, command: Callable[[str], str]) -> str:
    """The run, the shown part, the two files and how to open each; `command` turns words into a line to copy."""
    time = f"{seconds(timeline.cycles / timeline.clock_hz)} [{simulated(timeline.chip)}]"
    lines = [f"{time}: {count(timeline.cycles)} cycles at {decimal(timeline.clock_hz, 'Hz', 2)}"]
    shown = f"{count(len(timeline.spans))} spans"
    if timeline.window is not None:
        first, last = timeline.window
        at = f"{seconds(first / timeline.clock_hz)} to {seconds(last / timeline.clock_hz)}"
        shown += f"; bundle by bundle from {at} (cycles {count(first)} to {count(last)})"
    lines.append(f"  {shown}")
    lines += [f"  left out to keep the files small: {count(spans)} of {row}" for row, spans in timeline.left_out]
    # LOGDIR/plugins/profile/RUN/HOST.xplane.pb
    logdir, run = profile.parents[3], profile.parent.name
    return "\n".join(
        [
            *lines,
            f"Perfetto:  {perfetto}",
            "  open https://ui.perfetto.dev and choose `Open trace file`; the file stays on your machine",
            f"XProf:     {profile}",
            f"  without a browser: {command(f'xprof overview {shlex.quote(run)}')}",
            f"  {command(f'serve {shlex.quote(str(logdir))}')}",
            f"  serves it on http://127.0.0.1:8791/ as the run {run}; nothing in it was measured",
        ]
    )
