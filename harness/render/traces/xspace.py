"""A timeline as an XSpace in text form, laid out as captures of a real TPU are, so that XProf's tools read it."""

import json
import re
from bisect import bisect_left
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import accumulate

from harness.hardware import Chip
from harness.records import CycleBreakdown, Span, Timeline
from harness.records.report_words import part_words
from harness.render.traces.perfetto import figures, shown_name
from harness.render.traces.rows import Row, rows

# Names that XProf looks for (seen in a capture of a v6e and in what xprof 2.24 accepts): the lines of a device plane,
# and the statistics of planes and instructions.
_MODULES, _OPS, _STEPS = "XLA Modules", "XLA Ops", "Steps"
_PICOSECONDS = 1e12
# Any number will do: it only ties instructions to their module.
_PROGRAM = 1
# How the statistics that say where cycles went begin, see workbench/profiles/inside.py.
CYCLES = "simulated cycles: "
# The layouts in the shape before it have parentheses too, but no blank in front of a word.
_OPCODE = re.compile(r" ([a-z][a-z0-9-]*)\(")

Stats = Mapping[str, int | float | str]


def xspace_text(
    timeline: Timeline,
    chip: Chip,
    title: str,
    instructions: Mapping[str, str],
    parts: Sequence[CycleBreakdown] = (),
) -> str:
    """The XSpace: a plane `/device:TPU:n` for every core, with its ops where XProf's tools look and all other rows.

    XProf shows device planes only, and knows them by a name that has room for nothing else: so
    `title` (which says `simulated`) names the module, and the device type and the other rows say
    `simulated`. `instructions` are HLO texts by the op's name; an op without one is called by
    its name. `parts` say of each core where its cycles went, which the run of its module then bears as statistics.
    Peaks are those of one core. Offsets and durations are whole picoseconds.
    """
    found = rows(timeline)
    planes = []
    for number, core in enumerate(sorted({row.core for row in found}), 1):
        plane = _Plane(timeline.clock_hz)
        whole = Span(kind="op", row=_MODULES, name=title, start=0, end=timeline.cycles)
        plane.line(_STEPS, [plane.event(whole, plane.metadata("0", "", {}), {"group_id": 0})])
        module = plane.metadata(f"{title}({_PROGRAM})", "", {"program_id": _PROGRAM})
        cycles = {
            f"{CYCLES}{part_words(part)}": round(part.cycles)
            for part in (parts[core].parts if core < len(parts) else ())
        }
        plane.line(_MODULES, [plane.event(whole, module, {"run_id": 1, **cycles})])
        moved = _Traffic(timeline, core)
        for row in found:
            if row.core == core and row.name == "ops":
                ops = (replace(op, hbm_bytes=moved.during(op)) for op in row.spans)
                plane.line(_OPS, [plane.event(op, plane.instruction(op, instructions), {}) for op in ops])
            elif row.core == core:
                plane.row(row)
        device: Stats = {
            "device_type_string": f"{chip.device_kinds[0]} (simulated)",
            "peak_teraflops_per_second": chip.peak_bf16_flops_per_second / 1e12 / chip.cores,
            "peak_hbm_bw_gigabytes_per_second": chip.hbm_bytes_per_second / 1e9 / chip.cores,
        }
        planes.append(plane.text(number, f"/device:TPU:{core}", device))
    return "\n".join(planes)


class _Traffic:
    """How much one core's transfers move: nothing is said where some of them were left out of the timeline."""

    def __init__(self, timeline: Timeline, core: int) -> None:
        rows_ = (f"core {core} DMA in", f"core {core} DMA out")
        is_whole = not any(row in rows_ for row, _ in timeline.left_out)
        spans = [span for span in timeline.spans if span.kind == "transfer" and span.row in rows_ and is_whole]
        spans.sort(key=lambda span: span.start)
        self._starts = [span.start for span in spans]
        self._before = [0, *accumulate(span.hbm_bytes for span in spans)]

    def during(self, op: Span) -> int:
        """Bytes of the transfers that begin while `op` runs."""
        first, last = bisect_left(self._starts, op.start), bisect_left(self._starts, op.end)
        return self._before[last] - self._before[first]


class _Plane:
    """One plane under construction: names are stored once and referred to by number."""

    def __init__(self, clock_hz: float) -> None:
        self._picoseconds = _PICOSECONDS / clock_hz
        self._stat_names: dict[str, int] = {}
        self._metadata: dict[tuple[str, str], tuple[int, str]] = {}
        self._lines: list[str] = []

    def stat_texts(self, stats: Stats) -> str:
        """The statistics, each a field of whatever they stand in."""
        return " ".join(
            f"stats {{ metadata_id: {self._stat_names.setdefault(name, len(self._stat_names) + 1)} {_value(value)} }}"
            for name, value in stats.items()
        )

    def metadata(self, name: str, shown: str, stats: Stats) -> int:
        """The number of what is the same for all events called so."""
        if (name, shown) not in self._metadata:
            number = len(self._metadata) + 1
            display = f"display_name: {_quoted(shown)} " if shown else ""
            text = f"id: {number} name: {_quoted(name)} {display}{self.stat_texts(stats)}"
            self._metadata[name, shown] = (number, text)
        return self._metadata[name, shown][0]

    def instruction(self, op: Span, instructions: Mapping[str, str]) -> int:
        """The number of an HLO instruction, with what XProf's tools want to know about it."""
        text = instructions.get(op.name, op.name)
        stats: dict[str, int | float | str] = {
            "program_id": _PROGRAM,
            "symbol_id": len(self._metadata) + 1,
            "hlo_category": _category(text),
        }
        known = {"flops": op.flops, "model_flops": op.flops, "bytes_accessed": op.hbm_bytes}
        return self.metadata(text, op.name, stats | {name: value for name, value in known.items() if value})

    def event(self, span: Span, metadata: int, stats: Stats) -> str:
        """One event; its end is rounded, not its length, so that neighbours stay neighbours."""
        start, end = (round(cycle * self._picoseconds) for cycle in (span.start, span.end))
        place = f"metadata_id: {metadata} offset_ps: {start} duration_ps: {end - start}"
        return f"events {{ {place} {self.stat_texts(stats)} }}"

    def row(self, row: Row) -> None:
        """A row of the timeline as it is."""
        self.line(
            f"{row.name} (simulated)",
            (self.event(s, self.metadata(shown_name(s), "", {}), figures(s)) for s in row.spans),
        )

    def line(self, name: str, events: Iterable[str]) -> None:
        """One more line."""
        number = len(self._lines) + 1
        self._lines.append("\n".join([f"lines {{ id: {number} name: {_quoted(name)} timestamp_ns: 0", *events, "}"]))

    def text(self, number: int, name: str, stats: Stats) -> str:
        """The whole plane."""
        head = f"planes {{ id: {number} name: {_quoted(name)} {self.stat_texts(stats)}"
        return "\n".join([head, *self._body(), "}"])

    def _body(self) -> Iterator[str]:
        for name, number in self._stat_names.items():
            yield f"stat_metadata {{ key: {number} value {{ id: {number} name: {_quoted(name)} }} }}"
        for number, text in self._metadata.values():
            yield f"event_metadata {{ key: {number} value {{ {text} }} }}"
        yield from self._lines


def _category(instruction: str) -> str:
    """The opcode of an HLO instruction, or `unknown` where only its name is there."""
    match = _OPCODE.search(instruction)
    return match[1] if match else "unknown"


def _value(value: int | float | str) -> str:
    if isinstance(value, str):
        return f"str_value: {_quoted(value)}"
    return f"uint64_value: {value}" if isinstance(value, int) else f"double_value: {value}"


def _quoted(text: str) -> str:
    # ASCII only: the text format reads \u escapes, but not lone surrogates.
    return json.dumps(text.encode("utf-8", "replace").decode())
