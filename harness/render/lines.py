"""kernel.py as a line profiler shows it: next to each line, its cycles and what they are spent on."""

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace

from harness.advice.kernel_ops import with_shown_names
from harness.advice.run_parts import sentences
from harness.records import CycleBreakdown, LineTime, Simulation
from harness.records.report_words import simulated
from harness.records.table import Cell
from harness.render.layout import Files, Style, clean, indented
from harness.render.sections import GAP, Block, Column, Grid, Row, Words
from harness.units import decimal, kibibytes, percent, seconds

KERNEL = "kernel.py"
_COLUMNS = (
    Column("line", side="r", width=5, unknown=""),
    Column("cycles", "count", width=11, unknown=""),
    Column("share", "fraction", width=6, unknown=""),
    Column("issue", side="r", width=6, unknown=""),
    Column("stall", side="r", width=6, unknown=""),
    Column("wait", side="r", width=6, unknown=""),
    Column("spill/step", side="r", width=10, unknown=""),
    Column(" units", width=18),
    Column(" source"),
)
_NOWHERE = LineTime(file="", line=0, issue_cycles=0, stall_cycles=0, wait_cycles=0)
_NOTHING: tuple[Cell, ...] = (None,) * 6 + ("",)
# Explains why a cheap line may be next to an expensive line that does the same.
_ATTRIBUTION = (
    "The compiler assigns operations to lines, and may assign several of one kind, such as two reductions, to one "
    "line: look also at the lines nearby that do the same."
)
# If more consecutive lines than this have no cycles, such as the lines of a docstring, they are shown as one line.
_FOLDED = 3
_UNITS_SHOWN = 3
# Lines are marked by their share of the cycles: those with a fifth or more, and those with a twentieth or more.
_MARKED: tuple[tuple[float, Style], ...] = ((0.2, "bad"), (0.05, "doubt"))


def listing(run: Simulation, breakdown: CycleBreakdown, files: Files, title: str) -> Iterator[Block]:
    """The lines of kernel.py from the first to the last with cycles, lines of other files, and cycles without a line.

    `files` are the candidate's files and files of packages, with the text of each line. The columns are:

    - `issue`, `stall` and `wait`: shares of the line's own cycles.
    - `spill/step`: the bytes that the line saves to VMEM and restores from there in an average grid step (in the whole
      run, if the number of steps is not known).
    - `units`: the units with most of the line's operations.

    All figures are of one core. If there are several cores, they are of the core that ends last.
    """
    of_kernel = {line.line: line for line in breakdown.lines if _is_of_kernel(line)}
    others = [line for line in breakdown.lines if line.line and not _is_of_kernel(line)]
    nowhere = [line for line in breakdown.lines if not line.line]
    waits = [replace(_NOWHERE, wait_cycles=line.wait_cycles) for line in nowhere]
    rest = [replace(line, wait_cycles=0.0) for line in nowhere]
    time = f"{decimal(breakdown.cycles, 'cycles', 3)} at {decimal(run.clock_hz, 'Hz', 2)}"
    source = simulated(run.chip)
    which = f" with timing input {run.runs[0].name}" if len(run.runs) > 1 else ""
    yield Words(f"{title}{which}: {time}, {seconds(breakdown.cycles / run.clock_hz)} [{source}]")
    yield from (Words(sentence, lead="  ", rest="    ") for sentence in sentences(with_shown_names(run, files)))
    sums = [
        ("lines of kernel.py", list(of_kernel.values())),
        *((f"{clean(line.file)}:{line.line}  {_code(files.get(line.file, ()), line.line)}", [line]) for line in others),
        ("no line: waits for transfers", [line for line in waits if line.cycles]),
        ("no line: launch, other HLO ops, what the compiler adds", [line for line in rest if line.cycles]),
        ("sum", list(breakdown.lines)),
    ]
    rows = [(None, *_figures(lines, breakdown), f" {name}") for name, lines in sums if lines]
    yield GAP
    yield Grid(
        _COLUMNS,
        [*_source_lines(of_kernel, files.get(KERNEL, ()), breakdown), GAP, *rows],
        gap=1,
        title_room=0,
        is_ruled=False,
    )
    if of_kernel or others:
        yield GAP
        yield Words(_ATTRIBUTION)
    else:
        yield Words("The compiler's dump names no line of kernel.py: it was made without source annotations.")


def _is_of_kernel(line: LineTime) -> bool:
    return bool(line.line) and line.file == KERNEL


def _source_lines(of_kernel: dict[int, LineTime], texts: Sequence[str], breakdown: CycleBreakdown) -> Iterator[Row]:
    before = min(of_kernel, default=1)
    for number in sorted(of_kernel):
        gap = range(before, number)
        if len(gap) > _FOLDED:
            yield Row(("...", *_NOTHING, ""))
        else:
            yield from (Row((str(between), *_NOTHING, f" {_code(texts, between)}")) for between in gap)
        line = of_kernel[number]
        style = next((style for share, style in _MARKED if line.cycles >= share * breakdown.cycles), None)
        yield Row((str(number), *_figures([line], breakdown), f" {_code(texts, number)}"), style=style)
        before = number + 1


def _figures(lines: Sequence[LineTime], breakdown: CycleBreakdown) -> tuple[Cell, ...]:
    """The cells for the sum of `lines`, without the column of the line's number."""
    cycles = sum(line.cycles for line in lines)
    split = [sum(getattr(line, f"{kind}_cycles") for line in lines) for kind in ("issue", "stall", "wait")]
    moved = sum(line.spilled_bytes + line.filled_bytes for line in lines) / (breakdown.steps or 1)
    shares = [percent(part / cycles, 0) if part else "-" for part in split] if cycles else [None] * 3
    used: Counter[str] = Counter()
    for line in lines:
        used.update(line.units)
    units = " ".join(unit for unit, _ in used.most_common(_UNITS_SHOWN))
    return cycles, cycles / breakdown.cycles, *shares, kibibytes(moved) if moved else "-", f" {units}"


def _code(texts: Sequence[str], number: int) -> str:
    return indented(texts[number - 1]) if number <= len(texts) else ""
