"""The rows in which a timeline is drawn: grouped by core or chip, in a fixed order, without overlap inside a row."""

import re
from collections.abc import Iterable
from dataclasses import dataclass

from harness.records import Span, Timeline

# Rows that people compare are adjacent: first the program, then its waits, the transfers, the units.
_ORDER = ("ops", "steps", "waits", "stalls", "DMA in", "DMA out", "DMA to chips", "link to")
_ROW = re.compile(r"(core|chip) (\d+) (.+)")


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """Spans of core or chip `number`, sorted by start, without overlap.

    `place` names the core or chip (`core 0`, `chip 3`); `name` is the row's name without it.
    """

    place: str
    number: int
    name: str
    spans: tuple[Span, ...]


def rows(timeline: Timeline) -> tuple[Row, ...]:
    """All rows of `timeline`; the rows of one core or chip follow each other.

    A row with overlapping spans, such as transfers, is split into several: `DMA in`, `DMA in 2`.
    """
    named: dict[tuple[int, str, str], list[Span]] = {}
    for span in timeline.spans:
        match = _ROW.fullmatch(span.row)
        number, kind, name = (int(match[2]), match[1], match[3]) if match else (0, "core", span.row)
        named.setdefault((number, f"{kind} {number}", name), []).append(span)
    drawn = []
    for (number, place, name), spans in sorted(named.items(), key=lambda item: (item[0][0], _rank(item[0][2]))):
        for lane, part in enumerate(_lanes(spans), 1):
            shown = name if lane == 1 else f"{name} {lane}"
            drawn.append(Row(place=place, number=number, name=shown, spans=tuple(part)))
    return tuple(drawn)


def _rank(name: str) -> tuple[int, str]:
    # Units keep the order of the timeline, because sorting is stable.
    rank = next((place for place, row in enumerate(_ORDER) if name.startswith(row)), len(_ORDER))
    return rank, name if rank < len(_ORDER) else ""


def _lanes(spans: Iterable[Span]) -> list[list[Span]]:
    """The spans, divided into as few lists as possible without overlap inside a list."""
    lanes: list[list[Span]] = []
    for span in sorted(spans, key=lambda span: (span.start, span.end)):
        free = next((lane for lane in lanes if lane[-1].end <= span.start), None)
        if free is None:
            lanes.append([span])
        else:
            free.append(span)
    return lanes
