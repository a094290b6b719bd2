"""A kernel.py as a line profiler shows it: beside each line its cycles and what they were spent on."""

from collections.abc import Iterator, Sequence

from rich.cells import cell_len

from harness.records import CycleBreakdown, LineTime, Simulation
from harness.records.report_words import simulated
from harness.render.layout import Files, Style, clean, cut, paint, wrap
from harness.units import count, decimal, kibibytes, percent, seconds

KERNEL = "kernel.py"
_COLUMNS = ("cycles", "share", "issue", "stall", "wait", "spill/step")
_HEADER = "{:>5} {:>11} {:>6} {:>6} {:>6} {:>6} {:>10}  {:<17}".format("line", *_COLUMNS, "units")
# More lines than this without a cycle, docstrings for instance, are folded into one.
_FOLDED = 3
_UNITS_SHOWN = 3
# Shares from which a line is marked: a fifth is where one looks first, a twentieth what one looks at.
_MARKED: tuple[tuple[float, Style], ...] = ((0.2, "bad"), (0.05, "doubt"))


def listing(
    run: Simulation, breakdown: CycleBreakdown, files: Files, title: str, width: int, *, colour: bool = False
) -> str:
    """Every line of kernel.py between the first and the last that costs anything, then what belongs to no line of it.

    `files` are the candidate's and those of packages: lines of other files than kernel.py are shown with what
    stands there.

    `issue`, `stall` and `wait` are shares of the line's own cycles; `spill/step` is what it saves
    to and restores from VMEM in a grid step, on average (in the whole run, where the steps are
    not known); `units` those that it used most, by operations. All is of one core: of several,
    the one that ends last.
    """
    own = {line.line: line for line in breakdown.lines if _is_of_kernel(line)}
    others = [line for line in breakdown.lines if line.line and not _is_of_kernel(line)]
    nowhere = [line for line in breakdown.lines if not line.line]
    source = simulated(run.chip)
    time = f"{decimal(breakdown.cycles, 'cycles', 3)} at {decimal(run.clock_hz, 'Hz', 2)}"
    text = [
        *wrap(f"{clean(title)}: {time}, {seconds(breakdown.cycles / run.clock_hz)} [{source}]", width),
        "",
        cut(f"{_HEADER}  source", width),
        *_source_lines(own, files.get(KERNEL, ()), breakdown, width, colour),
        "",
    ]
    rows = [
        ("lines of kernel.py", list(own.values())),
        *((f"{clean(line.file)}:{line.line}  {_code(files.get(line.file, ()), line.line)}", [line]) for line in others),
        ("no line: launch, other HLO ops, what the compiler adds", nowhere),
        ("sum", list(breakdown.lines)),
    ]
    text += [cut(f"{'':6}{_figures(lines, breakdown)}  {name}", width) for name, lines in rows if lines]
    if not own and not others:
        text.append("The compiler's dump names no line of kernel.py: it was made without source annotations.")
    return "\n".join(line.rstrip() for line in text)


def _is_of_kernel(line: LineTime) -> bool:
    return bool(line.line) and line.file == KERNEL


def _source_lines(
    own: dict[int, LineTime], texts: Sequence[str], breakdown: CycleBreakdown, width: int, colour: bool
) -> Iterator[str]:
    before = min(own, default=1)
    for number in sorted(own):
        gap = range(before, number)
        if len(gap) > _FOLDED:
            yield f"{'...':>5}"
        else:
            yield from (cut(f"{between:>5} {'':{len(_HEADER) - 6}}  {_code(texts, between)}", width) for between in gap)
        line = own[number]
        text = cut(f"{number:>5} {_figures([line], breakdown)}  {_code(texts, number)}", width)
        style = next((style for share, style in _MARKED if line.cycles >= share * breakdown.cycles), None)
        yield paint(text, style, colour) if style else text
        before = number + 1


def _figures(lines: Sequence[LineTime], breakdown: CycleBreakdown) -> str:
    """The columns of these lines taken together, without the line's number."""
    cycles = sum(line.cycles for line in lines)
    split = [sum(getattr(line, f"{kind}_cycles") for line in lines) for kind in ("issue", "stall", "wait")]
    moved = sum(line.spilled_bytes + line.filled_bytes for line in lines) / (breakdown.steps or 1)
    shares = " ".join(f"{percent(part / cycles, 0) if part else '-':>6}" for part in split) if cycles else f"{'':20}"
    spilled = kibibytes(moved) if moved else "-"
    return f"{count(cycles):>11} {percent(cycles / breakdown.cycles):>6} {shares} {spilled:>10}  {_units(lines):<17}"


def _units(lines: Sequence[LineTime]) -> str:
    used: dict[str, int] = {}
    for line in lines:
        for unit, operations in line.units.items():
            used[unit] = used.get(unit, 0) + operations
    return " ".join(sorted(used, key=lambda unit: used[unit], reverse=True)[:_UNITS_SHOWN])


def _code(texts: Sequence[str], number: int) -> str:
    """Line `number` with its indentation, and nothing in it that steers a terminal."""
    raw = texts[number - 1].expandtabs(4) if number <= len(texts) else ""
    return " " * (len(raw) - len(raw.lstrip())) + clean(raw)


def narrowest(files: Files) -> int:
    """Columns that show every line of kernel.py whole."""
    return len(_HEADER) + 2 + max((cell_len(text.expandtabs(4)) for text in files.get(KERNEL, ())), default=0)
