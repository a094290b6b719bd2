"""The text about a timeline's files: their contents, and how to open them."""

import shlex
from collections.abc import Callable
from pathlib import Path

from harness.records import Timeline
from harness.records.report_words import simulated
from harness.units import count, decimal, seconds

# The number of a chip's longest waits that are named.
_WAITS = 2


def summary(timeline: Timeline, perfetto: Path, profile: Path, command: Callable[[str], str]) -> str:
    """The run, the shown part, the two files and how to open each; `command` turns words into a line to copy."""
    time = f"{seconds(timeline.cycles / timeline.clock_hz)} [{simulated(timeline.chip)}]"
    lines = [f"{time}: {count(timeline.cycles)} cycles at {decimal(timeline.clock_hz, 'Hz', 2)}"]
    lines += _chips(timeline)
    shown = f"{count(len(timeline.spans))} spans"
    if timeline.window is not None:
        first, last = timeline.window
        at = f"{seconds(first / timeline.clock_hz)} to {seconds(last / timeline.clock_hz)}"
        shown += f"; bundle by bundle from {at} (cycles {count(first)} to {count(last)})"
    lines.append(f"  {shown}")
    lines += [f"  spans left out to keep the files small: {count(spans)} of {row}" for row, spans in timeline.left_out]
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
            f"  serves the file on http://127.0.0.1:8791/ as the run {run}; nothing in it was measured",
        ]
    )


def _chips(timeline: Timeline) -> list[str]:
    """Lines on when each of several chips ends and what it waits for; chips that do the same share a line."""
    if not any(span.row.startswith("chip ") for span in timeline.spans):
        return []
    alike: dict[str, list[int]] = {}
    for chip, run in enumerate(timeline.parts):
        waits = sorted(((part.cycles, part.name) for part in run.parts if part.kind == "operand wait"), reverse=True)
        words = [f"{seconds(cycles / timeline.clock_hz)} for {name}" for cycles, name in waits[:_WAITS]]
        text = f"at {seconds(timeline.end(chip) / timeline.clock_hz)}"
        alike.setdefault(f"{text}, after waiting {' and '.join(words)}" if words else text, []).append(chip)
    return [
        f"  chips {', '.join(map(str, chips))} end {text}" if len(chips) > 1 else f"  chip {chips[0]} ends {text}"
        for text, chips in alike.items()
    ]
