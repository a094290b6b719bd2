"""Events in the JSON trace-event format, which ui.perfetto.dev opens, and a simulated run's timeline in this format.

The format is the Chromium project's "Trace Event Format"; complete (X) and metadata (M) events are written.
"""

import json
from collections.abc import Iterable, Iterator, Mapping

from harness.records import Span, Timeline
from harness.workbench.traces.rows import rows

Where = Mapping[str, int]
# Prefixes of a span's name in the viewer, for kinds that share a row with others.
_WORDS = {"wait": "wait for ", "stall": "stall on "}


def document(about: Mapping[str, object], events: Iterable[Mapping[str, object]]) -> Iterator[bytes]:
    """The document with these events, in pieces, so that the text of millions of events need not fit into memory."""
    yield b'{"displayTimeUnit":"ns","otherData":' + _json(about) + b',"traceEvents":[\n'
    separator = b""
    for event in events:
        yield separator + _json(event)
        separator = b",\n"
    yield b"\n]}\n"


def _json(value: object) -> bytes:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode("utf-8", "replace")


def label(what: str, where: Where, name: str, index: int | None = None) -> Iterator[dict[str, object]]:
    """The events that name a process or thread (`what`) and, if `index` is given, set its position in the viewer."""
    yield {"ph": "M", "name": f"{what}_name", **where, "args": {"name": name}}
    if index is not None:
        yield {"ph": "M", "name": f"{what}_sort_index", **where, "args": {"sort_index": index}}


def slice_of(
    name: str, where: Where, start: int, end: int, arguments: Mapping[str, object], category: str = ""
) -> dict[str, object]:
    """A complete event from `start` to `end`, both in whole nanoseconds, Perfetto's unit.

    The caller rounds both ends, not the length, so that adjacent events still touch and never overlap.
    """
    times = {"ts": start / 1000, "dur": (end - start) / 1000}
    return {"ph": "X", "name": name, **({"cat": category} if category else {}), **where, **times, "args": arguments}


def trace_json(timeline: Timeline, title: str) -> bytes:
    """The uncompressed trace of `timeline`: every core or chip is a process, and every row one of its threads.

    Times are microseconds of the simulated run. A cycle is shorter than a nanosecond, so some bundles have zero length
    in the viewer; the arguments of every slice give the exact `start_cycle` and `cycles`.
    """
    about = {
        "source": "simulated, no device ran this",
        "chip": timeline.chip,
        "title": title,
        "clock_hz": timeline.clock_hz,
        "cycles": timeline.cycles,
        "window_cycles": timeline.window,
        "left_out_spans": dict(timeline.left_out),
    }
    return b"".join(document(about, _events(timeline, title)))


def _events(timeline: Timeline, title: str) -> Iterator[dict[str, object]]:
    nanoseconds = 1e9 / timeline.clock_hz
    places = set()
    for number, row in enumerate(rows(timeline), 1):
        # A viewer takes process 0 for the idle process of an operating system.
        where = {"pid": row.number + 1, "tid": number}
        if row.place not in places:
            places.add(row.place)
            yield from label("process", where, f"{title}, {row.place}")
        yield from label("thread", where, row.name, number)
        for span in row.spans:
            ends = round(span.start * nanoseconds), round(span.end * nanoseconds)
            yield slice_of(shown_name(span), where, *ends, figures(span), span.kind)


def shown_name(span: Span) -> str:
    """The name of a span in the viewer, or its kind if it has none."""
    return f"{_WORDS.get(span.kind, '')}{span.name}" or span.kind


def figures(span: Span) -> dict[str, int]:
    """Start and length of a span in cycles, and its other figures that are not 0, by name."""
    always = {"start_cycle": span.start, "cycles": span.end - span.start}
    return always | {name: n for name in ("hbm_bytes", "link_bytes", "flops", "line") if (n := getattr(span, name))}
