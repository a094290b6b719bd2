"""The rows of a drawn timeline: by core, in a fixed order, without overlap inside a row."""

import re
from collections.abc import Iterable
from dataclasses import dataclass

from harness.records import Span, Timeline

# What the eye compares stands together: the program, what it waits for, what moves meanwhile, the units.
_ORDER = ("ops", "steps", "waits", "stalls", "DMA in", "DMA out")
_ROW = re.compile(r"core (\d+) (.+)")


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """Spans of one core that follow each other, sorted by their start; `name` is without the core."""

    core: int
    name: str
    spans: tuple[Span, ...]


def rows(timeline: Timeline) -> tuple[Row, ...]:
    """All rows of `timeline`, those of a core together.

    A row whose spans overlap, as transfers do, becomes several: `DMA in`, `DMA in 2`.
    """
    named: dict[tuple[int, str], list[Span]] = {}
    for span in timeline.spans:
        match = _ROW.fullmatch(span.row)
        named.setdefault((int(match[1]), match[2]) if match else (0, span.row), []).append(span)
    drawn = []
    for (core, name), spans in sorted(named.items(), key=lambda item: (item[0][0], _rank(item[0][1]))):
        for number, lane in enumerate(_lanes(spans), 1):
            drawn.append(Row(core=core, name=name if number == 1 else f"{name} {number}", spans=tuple(lane)))
    return tuple(drawn)


def _rank(name: str) -> int:
    # Units keep the order that the timeline has them in: sorting is stable.
    return _ORDER.index(name) if name in _ORDER else len(_ORDER)


def _lanes(spans: Iterable[Span]) -> list[list[Span]]:
    """The spans in as few lists as possible without overlap inside a list."""
    lanes: list[list[Span]] = []
    for span in sorted(spans, key=lambda span: (span.start, span.end)):
        free = next((lane for lane in lanes if lane[-1].end <= span.start), None)
        if free is None:
            lanes.append([span])
        else:
            free.append(span)
    return lanes
