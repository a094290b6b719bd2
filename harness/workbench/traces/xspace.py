"""A timeline as an XSpace with the layout of a real TPU's capture, so that XProf's tools can read it."""

import re
from collections.abc import Iterable, Mapping
from typing import Any

from harness.hardware import Chip
from harness.records import Span, Timeline
from harness.records.report_words import part_words
from harness.workbench.traces.messages import Names, new_space, text
from harness.workbench.traces.perfetto import figures, shown_name
from harness.workbench.traces.rows import rows

# Names of lines in a device plane that XProf looks for (as in a capture of a v6e; xprof 2.24 accepts them).
_MODULES, _OPS, _STEPS = "XLA Modules", "XLA Ops", "Steps"
_PICOSECONDS = 1e12
# An arbitrary number that links instructions to their module.
_PROGRAM = 1
# Prefixes of the statistics of cycles and transfers, and the suffix of rows that only simulated timelines have.
CYCLES, TRANSFERS, DRAWN = "simulated cycles: ", "simulated transfers: ", " (simulated)"
# The layouts before the opcode also contain a word and a parenthesis, but without a blank before the word.
_OPCODE = re.compile(r" ([a-z][a-z0-9-]*)\(")

Stats = Mapping[str, int | float | str]


def xspace(timeline: Timeline, chip: Chip, title: str, host: str) -> bytes:
    """The XSpace: a plane `/device:TPU:n` for every core or chip, with its ops as XProf expects them, and other rows.

    XProf shows only planes named like a device, so the word `simulated` cannot be in a plane's name. Instead, it is in
    the module's name (`title`), in the device type and in names of other rows. An op without HLO text gets its own
    name. Statistics of the module's run give the core's cycles by cause. Peaks are those of one core. Offsets and
    durations are whole picoseconds.
    """
    drawn, space = rows(timeline), new_space(host)
    for number, core in enumerate(sorted({row.number for row in drawn}), 1):
        plane = _Plane(space.planes.add(id=number, name=text(f"/device:TPU:{core}")), timeline.clock_hz)
        device: Stats = {
            "device_type_string": f"{chip.device_kinds[0]}{DRAWN}",
            "peak_teraflops_per_second": chip.peak_bf16_flops_per_second / 1e12 / chip.cores,
            "peak_hbm_bw_gigabytes_per_second": chip.hbm_bytes_per_second / 1e9 / chip.cores,
        }
        plane.names.add(plane.message.stats, device)
        whole = Span(kind="op", row=_MODULES, name=title, start=0, end=timeline.end(core))
        plane.line(_STEPS, [(whole, plane.metadata("0", "", {}), {"group_id": 0})])
        module = plane.metadata(f"{title}({_PROGRAM})", "", {"program_id": _PROGRAM})
        plane.line(_MODULES, [(whole, module, {"run_id": 1, **_cycles(timeline, core)})])
        for row in drawn:
            if row.number == core and row.name == "ops":
                plane.line(_OPS, [(op, plane.instruction(op, timeline.instructions), {}) for op in row.spans])
            elif row.number == core:
                # Any other row of the timeline, unchanged.
                spans = ((span, plane.metadata(shown_name(span), "", {}), figures(span)) for span in row.spans)
                plane.line(f"{row.name}{DRAWN}", spans)
        plane.names.into(plane.message)
    return bytes(space.SerializeToString())


def _cycles(timeline: Timeline, core: int) -> dict[str, int]:
    """The cycles of a core by cause, its cycles with a transfer in flight, and its cycles waiting for a transfer."""
    parts = timeline.parts[core].parts if core < len(timeline.parts) else ()
    cycles = {f"{CYCLES}{part_words(part)}": round(part.cycles) for part in parts}
    for transfers in timeline.transfers[core : core + 1]:
        cycles |= {f"{TRANSFERS}in flight": transfers.in_flight, f"{TRANSFERS}waited for": transfers.waited}
    return cycles


class _Plane:
    """One plane under construction; each name is stored once and referred to by its number."""

    def __init__(self, message: Any, clock_hz: float) -> None:
        self.message, self.names = message, Names()
        self._picoseconds = _PICOSECONDS / clock_hz
        self._metadata: dict[tuple[str, str], int] = {}

    def metadata(self, name: str, shown: str, stats: Stats) -> int:
        """The number of the metadata that all events with this name share."""
        if (name, shown) not in self._metadata:
            number = self._metadata[name, shown] = len(self._metadata) + 1
            kind = self.message.event_metadata.add(key=number).value
            kind.id, kind.name, kind.display_name = number, text(name), text(shown)
            self.names.add(kind.stats, stats)
        return self._metadata[name, shown]

    def instruction(self, op: Span, instructions: Mapping[str, str]) -> int:
        """The number of an HLO instruction's metadata, with the statistics that XProf's tools read."""
        instruction = instructions.get(op.name, op.name)
        stats: dict[str, int | float | str] = {
            "program_id": _PROGRAM,
            "symbol_id": len(self._metadata) + 1,
            "hlo_category": _category(instruction),
        }
        counts = {"flops": op.flops, "model_flops": op.flops, "bytes_accessed": op.hbm_bytes}
        return self.metadata(instruction, op.name, stats | {name: value for name, value in counts.items() if value})

    def line(self, name: str, events: Iterable[tuple[Span, int, Stats]]) -> None:
        """Adds a line of events. Both ends of an event are rounded, not its length, so adjacent events still touch."""
        line = self.message.lines.add(id=len(self.message.lines) + 1, name=text(name))
        for span, metadata, stats in events:
            start, end = (round(cycle * self._picoseconds) for cycle in (span.start, span.end))
            event = line.events.add(metadata_id=metadata, offset_ps=start, duration_ps=end - start)
            self.names.add(event.stats, stats)


def _category(instruction: str) -> str:
    """The opcode of an HLO instruction, or `unknown` if `instruction` is only its name."""
    match = _OPCODE.search(instruction)
    return match[1] if match else "unknown"
