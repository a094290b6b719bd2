"""A kept trace as lanes for a page: the rows of a run with their spans; short neighbouring spans are joined."""

import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby
from operator import itemgetter

import msgspec

from harness.render.layout import clean

# Larger files are not read. The timelines of the largest kernels are far smaller.
_MOST_PACKED, _MOST_BYTES = 8 << 20, 128 << 20
_GZIP = 16 + zlib.MAX_WBITS
# The width of a run on a page, in pixels: spans shorter than one pixel are joined with their neighbour.
_PIXELS = 1000
_MOST_SPANS, _MOST_LANES = 400, 64
_LONGEST_NAME = 80


@dataclass(frozen=True, slots=True, kw_only=True)
class Lane:
    """One row of a timeline; `kind` is the kind of its first span.

    A span is (start in seconds, duration in seconds, name).
    """

    name: str
    kind: str
    spans: tuple[tuple[float, float, str], ...]


class _Event(msgspec.Struct):
    ph: str
    pid: int = 0
    tid: int = 0
    name: str = ""
    cat: str = ""
    ts: float = 0.0
    dur: float = 0.0
    args: dict[str, msgspec.Raw] = {}


class _Trace(msgspec.Struct):
    traceEvents: list[_Event]


def lanes_of(packed: bytes) -> tuple[Lane, ...]:
    """The lanes of a trace in the JSON trace-event format, gzipped; () for anything else, or if it is too large."""
    if len(packed) > _MOST_PACKED:
        return ()
    unpacker = zlib.decompressobj(_GZIP)
    try:
        data = unpacker.decompress(packed, _MOST_BYTES)
        if unpacker.unconsumed_tail or not unpacker.eof:
            return ()
        events = msgspec.json.decode(data, type=_Trace).traceEvents
        names = {
            (event.name, event.pid, event.tid if event.name == "thread_name" else 0): msgspec.json.decode(
                event.args["name"], type=str
            )
            for event in events
            if event.ph == "M" and event.name in ("process_name", "thread_name")
        }
    except (zlib.error, msgspec.MsgspecError, UnicodeDecodeError, KeyError):
        return ()
    spans = sorted(
        ((event.pid, event.tid, event.ts, event.dur, event.name, event.cat) for event in events if event.ph == "X"),
        key=itemgetter(0, 1, 2),
    )
    # If there are several cores or chips, the name of a lane begins with the end of its process's name.
    places = {pid: names.get(("process_name", pid, 0), "").rpartition(", ")[2] for pid, *_ in spans}
    end = max((ts + dur for _, _, ts, dur, _, _ in spans), default=0.0)
    lanes = []
    for (pid, tid), group in groupby(spans, key=itemgetter(0, 1)):
        events_of_lane = list(group)
        joined = _joined([(ts, dur, name) for _, _, ts, dur, name, _ in events_of_lane], end / _PIXELS)
        lane = tuple((ts / 1e6, dur / 1e6, clean(name)[:_LONGEST_NAME]) for ts, dur, name in joined)
        name = " ".join([places[pid]] * (len(places) > 1) + [names.get(("thread_name", pid, tid), "")])
        lanes.append(Lane(name=clean(name)[:_LONGEST_NAME], kind=clean(events_of_lane[0][5]), spans=lane))
    return tuple(lanes[:_MOST_LANES])


def _joined(spans: Sequence[tuple[float, float, str]], least: float) -> list[tuple[float, float, str]]:
    """The spans, with neighbours shorter than `least` joined; `least` doubles until at most _MOST_SPANS are left."""
    joined: list[tuple[float, float, str]] = []
    counts: list[int] = []
    for start, length, name in spans:
        is_short = length < least and joined and (counts[-1] > 1 or joined[-1][1] < least)
        if is_short and start - sum(joined[-1][:2]) < least:
            first, before, _ = joined[-1]
            counts[-1] += 1
            joined[-1] = first, max(before, start + length - first), f"{counts[-1]} spans"
        else:
            joined.append((start, length, name))
            counts.append(1)
    return joined[:_MOST_SPANS] if len(joined) <= _MOST_SPANS or least <= 0 else _joined(spans, 2 * least)
