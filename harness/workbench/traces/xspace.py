"""A timeline as an XSpace, laid out as captures of a real TPU are, so that XProf's tools read it."""

import re
import struct
from collections.abc import Iterable, Mapping

from harness.hardware import Chip
from harness.records import Span, Timeline
from harness.records.report_words import part_words
from harness.workbench.traces.perfetto import figures, shown_name
from harness.workbench.traces.rows import Row, rows

# Names that XProf looks for (seen in a capture of a v6e and in what xprof 2.24 accepts): the lines of a device plane,
# and the statistics of planes and instructions.
_MODULES, _OPS, _STEPS = "XLA Modules", "XLA Ops", "Steps"
_PICOSECONDS = 1e12
# Any number will do: it only ties instructions to their module.
_PROGRAM = 1
# How the statistics that say where cycles went begin, see workbench/profiles/inside.py.
CYCLES, TRANSFERS = "simulated cycles: ", "simulated transfers: "
# The layouts in the shape before it have parentheses too, but no blank in front of a word.
_OPCODE = re.compile(r" ([a-z][a-z0-9-]*)\(")

Stats = Mapping[str, int | float | str]


def xspace(timeline: Timeline, chip: Chip, title: str, host: str) -> bytes:
    """The XSpace: a plane `/device:TPU:n` for every core, with its ops where XProf's tools look and all other rows.

    XProf shows device planes only, and knows them by a name that has room for nothing else: so
    `title` (which says `simulated`) names the module, and the device type and the other rows say
    `simulated`. An op without an HLO text is called by its name. The run of the module bears as statistics where the
    core's cycles went. Peaks are those of one core. Offsets and durations are whole picoseconds.
    """
    found = rows(timeline)
    planes = []
    for number, core in enumerate(sorted({row.core for row in found}), 1):
        plane = _Plane(timeline.clock_hz)
        whole = Span(kind="op", row=_MODULES, name=title, start=0, end=timeline.cycles)
        plane.line(_STEPS, [plane.event(whole, plane.metadata("0", "", {}), {"group_id": 0})])
        module = plane.metadata(f"{title}({_PROGRAM})", "", {"program_id": _PROGRAM})
        plane.line(_MODULES, [plane.event(whole, module, {"run_id": 1, **_cycles(timeline, core)})])
        for row in found:
            if row.core == core and row.name == "ops":
                plane.line(
                    _OPS, [plane.event(op, plane.instruction(op, timeline.instructions), {}) for op in row.spans]
                )
            elif row.core == core:
                plane.row(row)
        device: Stats = {
            "device_type_string": f"{chip.device_kinds[0]} (simulated)",
            "peak_teraflops_per_second": chip.peak_bf16_flops_per_second / 1e12 / chip.cores,
            "peak_hbm_bw_gigabytes_per_second": chip.hbm_bytes_per_second / 1e9 / chip.cores,
        }
        planes.append(_text(1, plane.data(number, f"/device:TPU:{core}", device)))
    return b"".join([*planes, _text(4, host)])


def _cycles(timeline: Timeline, core: int) -> dict[str, int]:
    """Where a core's cycles went, and how many of them had a transfer under way."""
    parts = timeline.parts[core].parts if core < len(timeline.parts) else ()
    cycles = {f"{CYCLES}{part_words(part)}": round(part.cycles) for part in parts}
    for transfers in timeline.transfers[core : core + 1]:
        cycles |= {f"{TRANSFERS}in flight": transfers.in_flight, f"{TRANSFERS}waited for": transfers.waited}
    return cycles


class _Plane:
    """One plane under construction: names are stored once and referred to by number."""

    def __init__(self, clock_hz: float) -> None:
        self._picoseconds = _PICOSECONDS / clock_hz
        self._stat_names: dict[str, int] = {}
        self._metadata: dict[tuple[str, str], tuple[int, bytes]] = {}
        self._lines: list[bytes] = []

    def stats(self, field: int, stats: Stats) -> bytes:
        """The statistics, each a field of whatever they stand in."""
        return b"".join(
            _text(field, _number(1, self._stat_names.setdefault(name, len(self._stat_names) + 1)) + _value(value))
            for name, value in stats.items()
        )

    def metadata(self, name: str, shown: str, stats: Stats) -> int:
        """The number of what is the same for all events called so."""
        if (name, shown) not in self._metadata:
            number = len(self._metadata) + 1
            display = _text(4, shown) if shown else b""
            data = _number(1, number) + _text(2, name) + display + self.stats(5, stats)
            self._metadata[name, shown] = (number, data)
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

    def event(self, span: Span, metadata: int, stats: Stats) -> bytes:
        """One event; its end is rounded, not its length, so that neighbours stay neighbours."""
        start, end = (round(cycle * self._picoseconds) for cycle in (span.start, span.end))
        return _text(4, _number(1, metadata) + _number(2, start) + _number(3, end - start) + self.stats(4, stats))

    def row(self, row: Row) -> None:
        """A row of the timeline as it is."""
        self.line(
            f"{row.name} (simulated)",
            (self.event(s, self.metadata(shown_name(s), "", {}), figures(s)) for s in row.spans),
        )

    def line(self, name: str, events: Iterable[bytes]) -> None:
        """One more line."""
        self._lines.append(_text(3, _number(1, len(self._lines) + 1) + _text(2, name) + b"".join(events)))

    def data(self, number: int, name: str, stats: Stats) -> bytes:
        """The whole plane."""
        # First, as it may number names.
        own = self.stats(6, stats)
        named = (
            _text(5, _number(1, at) + _text(2, _number(1, at) + _text(2, stat)))
            for stat, at in self._stat_names.items()
        )
        described = (_text(4, _number(1, at) + _text(2, data)) for at, data in self._metadata.values())
        return b"".join([_number(1, number), _text(2, name), own, *named, *described, *self._lines])


def _category(instruction: str) -> str:
    """The opcode of an HLO instruction, or `unknown` where only its name is there."""
    match = _OPCODE.search(instruction)
    return match[1] if match else "unknown"


def _value(value: int | float | str) -> bytes:
    """The value of a statistic: `str_value`, `uint64_value` or `double_value`."""
    if isinstance(value, str):
        return _text(5, value)
    return _number(3, value) if isinstance(value, int) else b"\x11" + struct.pack("<d", value)


# The wire format of protobuf, with the numbers of the fields in xplane.proto.
def _number(field: int, value: int) -> bytes:
    return bytes((field << 3,)) + _varint(value)


def _text(field: int, value: str | bytes) -> bytes:
    """A string, or a message."""
    # Lone surrogates are no UTF-8.
    data = value.encode("utf-8", "replace") if isinstance(value, str) else value
    return bytes((field << 3 | 2,)) + _varint(len(data)) + data


def _varint(value: int) -> bytes:
    found = bytearray()
    while value > 127:
        found.append(value & 127 | 128)
        value >>= 7
    found.append(value)
    return bytes(found)
