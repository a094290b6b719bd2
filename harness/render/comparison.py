"""Two kernels held against each other, as text."""

from collections.abc import Iterator

from harness.records.comparison import Comparison, LinePair, Pair, ProgramPair
from harness.records.report_words import with_chip
from harness.render.grid import grid, shrunk, widths_of
from harness.render.layout import clean, cut, diff_text, wrap
from harness.units import change, count, decimal, kibibytes, quantity, seconds

_LINES_SHOWN = 12
_LEAST_NAME = 12
# A line whose cycles moved by less than this share of the run explains nothing.
_NOTABLE_SHARE = 0.001


def comparison_text(found: Comparison, width: int, *, full: bool, colour: bool = False) -> str:
    """The whole, then each member of a suite; last the diff of the texts."""
    lines = wrap(f"{clean(found.before)} -> {clean(found.after)}", width)
    if found.differing:
        lines += wrap(f"times are not comparable: {clean(found.differing)}", width, "  ", "  ")
    for program in found.programs:
        lines += ["", *_program(program, heading(program, found), width, full=full)]
    lines += ["", diff_text(found.diff, colour) or "The texts are the same."]
    return "\n".join(line.rstrip() for line in lines)


def time_words(program: ProgramPair) -> str:
    """`1.042 ms -> 0.812 ms, -22.1% [simulated v5e]`, or what is known of it."""
    times = [
        f"fails ({clean(failure.partition(':')[0])})" if failure else "unknown" if taken is None else seconds(taken)
        for taken, failure in (
            (program.before_seconds, program.before_failure), (program.after_seconds, program.after_failure),
        )
    ]  # fmt: skip
    ratio = f", {change(program.time_ratio)}" if program.time_ratio is not None else ""
    source = f" [{with_chip(program.source, program.chip)}]" if program.source else ""
    return f"{times[0]} -> {times[1]}{ratio}{source}"


def heading(program: ProgramPair, found: Comparison) -> str:
    """What is put before the figures of a program: the name of a member, `mean of the suite: `, or nothing."""
    if program.name:
        return f"{clean(program.name)}: "
    return "mean of the suite: " if len(found.programs) > 1 else ""


def notable(program: ProgramPair) -> list[LinePair]:
    """The lines whose cycles moved by enough to explain something, those that moved most first."""
    least = _NOTABLE_SHARE * sum(pair.after or 0.0 for pair in program.parts)
    return [line for line in program.lines if abs(line.difference) > least]


def _program(program: ProgramPair, name: str, width: int, *, full: bool) -> Iterator[str]:
    yield from wrap(f"{name}time {time_words(program)}", width)
    for failure in (program.before_failure, program.after_failure):
        if failure:
            yield from wrap(clean(failure), width, "  ", "  ")
    if program.is_same_program:
        yield "  both are traced to the same program"
    moved = [pair for pair in program.figures if full or pair.difference]
    if moved:
        yield from _table(moved, "figure", width)
    parts = [pair for pair in program.parts if full or pair.difference]
    if parts:
        yield ""
        yield from _table(parts, "cycles of", width)
    lines = list(program.lines) if full else notable(program)
    if lines:
        yield ""
        yield from _lines(lines if full else lines[:_LINES_SHOWN], width)
    if len(lines) > _LINES_SHOWN and not full:
        yield f"  {quantity(len(lines) - _LINES_SHOWN, 'more line')}: --full"


def _table(pairs: list[Pair], head: str, width: int) -> list[str]:
    body = [
        [clean(pair.name), amount(pair, pair.before), amount(pair, pair.after), relative(pair)]
        for pair in sorted(pairs, key=lambda pair: -abs(pair.difference) if head == "cycles of" else 0)
    ]
    return _grid(body, [head, "before", "after", "change"], "lrrr", width)


def _lines(lines: list[LinePair], width: int) -> list[str]:
    body = [
        [where(line), count(line.before_cycles), count(line.after_cycles), f"{line.difference:+,.0f}", clean(line.text)]
        for line in lines
    ]
    return _grid(body, ["line", "cycles before", "after", "change", "source"], "lrrrl", width)


def _grid(body: list[list[str]], heads: list[str], sides: str, width: int) -> list[str]:
    last = {len(heads) - 1: _LEAST_NAME} if sides.endswith("l") else {0: _LEAST_NAME}
    widths = shrunk(widths_of(heads, body), last, width - 2)
    return [cut(f"  {line}", width) for line in grid(heads, body, sides, widths)]


def where(line: LinePair) -> str:
    """`kernel.py:41`, `kernel.py:41 -> 43`, or that it is new or gone."""
    if not line.file:
        return "-"
    if line.before_line == line.after_line:
        number = str(line.after_line)
    elif line.before_line is None:
        number = f"{line.after_line} new"
    elif line.after_line is None:
        number = f"{line.before_line} gone"
    else:
        number = f"{line.before_line} -> {line.after_line}"
    return f"{clean(line.file)}:{number}"


def amount(pair: Pair, value: float | None) -> str:
    """The value with its unit."""
    if value is None:
        return "-"
    if pair.name == "VMEM":
        return kibibytes(value)
    return decimal(value, "B", 2) if pair.unit == "B" else count(value)


def relative(pair: Pair) -> str:
    """The change of what both know, if there is something to divide by."""
    return change(pair.after / pair.before) if pair.before and pair.after is not None else ""
