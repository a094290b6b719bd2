"""A timeline in the JSON trace-event format, which ui.perfetto.dev opens."""

import json
from collections.abc import Iterator

from harness.records import Span, Timeline
from harness.workbench.traces.rows import rows

# In the viewer, where spans of a kind share a row with others.
_WORDS = {"wait": "wait for ", "stall": "stall on "}


def trace_json(timeline: Timeline, title: str) -> bytes:
    """The trace of `timeline`, gzip not applied; every core is a process named `title`, every row one of its threads.

    Times are microseconds of the simulated run, in whole nanoseconds, because Perfetto counts in
    those; a cycle is shorter, so some bundles shrink to a mark, and the exact `start_cycle` and
    `cycles` are arguments of every slice.
    Format: "Trace Event Format" of the Chromium project, complete (X) and metadata (M) events.
    """
    document = {
        "displayTimeUnit": "ns",
        "otherData": {
            "source": "simulated, no device ran this",
            "chip": timeline.chip,
            "title": title,
            "clock_hz": timeline.clock_hz,
            "cycles": timeline.cycles,
            "window_cycles": timeline.window,
            "left_out_spans": dict(timeline.left_out),
        },
        "traceEvents": list(_events(timeline, title)),
    }
    return json.dumps(document, ensure_ascii=False, separators=(",", ":")).encode("utf-8", "replace")


def _events(timeline: Timeline, title: str) -> Iterator[dict[str, object]]:
    nanoseconds = 1e9 / timeline.clock_hz
    cores = set()
    for number, row in enumerate(rows(timeline), 1):
        # Process 0 is the idle process of an operating system to a viewer.
        where = {"pid": row.core + 1, "tid": number}
        if row.core not in cores:
            cores.add(row.core)
            yield {"ph": "M", "name": "process_name", **where, "args": {"name": f"{title}, core {row.core}"}}
        yield {"ph": "M", "name": "thread_name", **where, "args": {"name": row.name}}
        yield {"ph": "M", "name": "thread_sort_index", **where, "args": {"sort_index": number}}
        for span in row.spans:
            # The ends are rounded, not the length: neighbours stay neighbours and none overlaps the next.
            start, end = round(span.start * nanoseconds), round(span.end * nanoseconds)
            yield {
                "ph": "X",
                "name": shown_name(span),
                "cat": span.kind,
                **where,
                "ts": start / 1000,
                "dur": (end - start) / 1000,
                "args": figures(span),
            }


def shown_name(span: Span) -> str:
    """What a slice is called."""
    return f"{_WORDS.get(span.kind, '')}{span.name}" or span.kind


def figures(span: Span) -> dict[str, int]:
    """The numbers of a span that say something, by name."""
    always = {"start_cycle": span.start, "cycles": span.end - span.start}
    return always | {name: n for name in ("hbm_bytes", "flops", "line") if (n := getattr(span, name))}
