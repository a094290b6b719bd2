"""Levels above and below HLO: a program's jaxpr and StableHLO, and the cycles inside a kernel by purpose."""

import re
from collections import defaultdict

from harness.records import CycleBreakdown, Table
from harness.records.report_words import simulated
from harness.workbench.tables import columns, table

# The tables of source locations that an HLO module lists before its computations.
_PLACES = re.compile(r"^(?:FileNames|FunctionNames|FileLocations|StackFrames)\n(?:\d.*\n)*\n?", re.MULTILINE)
# A text has this many lines for each row that `top` allows in a table.
_LINES = 10
_KERNEL = columns(
    "kind=for what!;operation_count=operations;issue_cycles=issued:count;stall_cycles=waited for:count;"
    "share=of the cycles"
)
MATMULS, EXPONENTIALS, REDUCTIONS = "matmuls", "exp", "reductions and other cross-lane work"
COPIES = "loads, stores, transfers (copies)"
_ELSE = "everything else"
# Purposes of operations by unit. A stall's name begins with the unit (judge/simulate/functional_units.py).
_UNITS = {
    "MXU": MATMULS,
    "XLU": REDUCTIONS,
    "VLOAD": COPIES,
    "VSTORE": COPIES,
    "DMA": COPIES,
    "VALU": "elementwise",
    "VPOP": "results taken from the units",
    "SALU": "scalar work",
}


def level_table(name: str, title: str, text: str, top: int) -> Table:
    """A table with the text of a program at one level, cut after ten times `top` lines."""
    lines = _PLACES.sub("", text).strip().splitlines()
    shown = lines[: _LINES * top]
    notes = [f"{len(shown)} of {len(lines)} lines are shown (--top)."] if len(shown) < len(lines) else []
    return table(name, title, "static", "line=text", [(line,) for line in shown], notes, "no text at this level")


def kernel_table(breakdown: CycleBreakdown, chip: str) -> Table:
    """A table of the cycles of a simulated kernel by the purpose of its operations.

    The issued cycles of a source line are divided among its operations. A stall counts for the unit on which the core
    waits. A wait for an operand counts for the transfers. Lines without operations count as everything else.
    """
    counts: defaultdict[str, float] = defaultdict(float)
    issued: defaultdict[str, float] = defaultdict(float)
    waited: defaultdict[str, float] = defaultdict(float)
    for line in breakdown.lines:
        exp, eup = line.exponentials, line.units.get("EUP", 0)
        kinds_of_line = [(_UNITS.get(unit, _ELSE), number) for unit, number in line.units.items() if unit != "EUP"]
        kinds_of_line += [(EXPONENTIALS, exp), ("other transcendentals", eup - exp)]
        whole = sum(number for _, number in kinds_of_line)
        for kind, number in kinds_of_line:
            counts[kind] += number
            issued[kind] += line.issue_cycles * number / whole if whole else 0.0
        issued[_ELSE] += 0.0 if whole else line.issue_cycles
    for part in breakdown.parts:
        if part.kind == "unit stall":
            unit = part.name.partition(" ")[0]
            waited[EXPONENTIALS if unit == "EUP" else _UNITS.get(unit, _ELSE)] += part.cycles
        elif part.kind in ("operand wait", "fill and drain"):
            waited[COPIES] += part.cycles
        elif part.kind == "barrier wait":
            waited[_ELSE] += part.cycles
    together = {kind: issued[kind] + waited[kind] for kind in counts.keys() | issued.keys() | waited.keys()}
    rows = [
        (kind, round(counts[kind]), round(issued[kind]), round(waited[kind]), cycles / breakdown.cycles)
        for kind, cycles in sorted(together.items(), key=lambda item: -item[1])
        if counts[kind] or cycles > 0
    ]
    notes = (
        f"Cycles of the executed schedule [{simulated(chip)}]: the cycles of a source line are divided among its "
        "operations; a stall counts for the unit on which the core waits.",
    )
    return table("kernel", "inside the kernel, by the schedule", "simulated", _KERNEL, rows, notes, "nothing ran")
