"""Two kernels compared, and the result of `bisect`, as text."""

from collections.abc import Iterator, Sequence

from harness.records.bisection import Bisection
from harness.records.comparison import Comparison, LinePair, Pair, ProgramPair
from harness.records.report_words import simulated, with_chip
from harness.render.layout import clean
from harness.render.sections import GAP, Block, Column, Diff, Grid, Line, Words
from harness.units import change, count, decimal, kibibytes, percent, quantity, seconds

_LINES_SHOWN = 12
_LEAST_NAME = 12
# Lines whose cycles changed by less than this share of the run are not shown.
_NOTABLE_SHARE = 0.001


def comparison_blocks(comparison: Comparison, *, full: bool) -> Iterator[Block]:
    """The comparison of the program (for a suite, of the mean and each member), then the diff of the texts."""
    yield Words(f"{comparison.before} -> {comparison.after}")
    if comparison.differing:
        yield Words(f"times are not comparable: {comparison.differing}", lead="  ")
    for program in comparison.programs:
        yield from (GAP, *_program(program, heading(program, comparison), full=full))
    yield from (GAP, Diff(comparison.diff) if comparison.diff else Line("The texts are the same."))


def time_words(program: ProgramPair) -> str:
    """Both times, such as `1.042 ms -> 0.812 ms, -22.1% [simulated v5e]`, with words for unknown times."""
    times = [
        f"fails ({clean(failure.partition(':')[0])})" if failure else "unknown" if latency is None else seconds(latency)
        for latency, failure in (
            (program.before_seconds, program.before_failure),
            (program.after_seconds, program.after_failure),
        )
    ]
    ratio = f", {change(program.time_ratio)}" if program.time_ratio is not None else ""
    source = f" [{with_chip(program.source, program.chip)}]" if program.source else ""
    return f"{times[0]} -> {times[1]}{ratio}{source}"


def heading(program: ProgramPair, comparison: Comparison) -> str:
    """The prefix of a program's figures: the member's name, `mean of the suite: `, or ""."""
    if program.name:
        return f"{clean(program.name)}: "
    return "mean of the suite: " if len(comparison.programs) > 1 else ""


def notable(program: ProgramPair) -> list[LinePair]:
    """The lines whose cycles changed by more than _NOTABLE_SHARE of the later run, the largest changes first."""
    least = _NOTABLE_SHARE * sum(pair.after or 0.0 for pair in program.parts)
    return [line for line in program.lines if abs(line.difference) > least]


def _program(program: ProgramPair, name: str, *, full: bool) -> Iterator[Block]:
    yield Words(f"{name}time {time_words(program)}")
    yield from (Words(text, lead="  ") for text in (program.before_failure, program.after_failure) if text)
    if program.is_same_program:
        yield Line("  both are traced to the same program")
    moved = [pair for pair in program.figures if full or pair.difference]
    if moved:
        yield pairs_grid(moved, "figure")
    parts = [pair for pair in program.parts if full or pair.difference]
    if parts:
        yield from (GAP, pairs_grid(sorted(parts, key=lambda pair: -abs(pair.difference)), "cycles of"))
    lines = list(program.lines) if full else notable(program)
    if lines:
        yield from (GAP, _lines(lines if full else lines[:_LINES_SHOWN]))
    if len(lines) > _LINES_SHOWN and not full:
        yield Line(f"  {quantity(len(lines) - _LINES_SHOWN, 'more line')}: --full")


def pairs_grid(pairs: Sequence[Pair], head: str) -> Grid:
    """The table of figures or parts under the title `head`: both values and the change."""
    columns = Column(head, least=_LEAST_NAME), *(Column(title, side="r") for title in ("before", "after", "change"))
    rows = [(pair.name, amount(pair, pair.before), amount(pair, pair.after), relative(pair)) for pair in pairs]
    return Grid(columns, rows, indent="  ")


def _lines(lines: Sequence[LinePair]) -> Grid:
    columns = (
        Column("line"),
        Column("cycles before", "count"),
        Column("after", "count"),
        Column("change", side="r"),
        Column("source", least=_LEAST_NAME),
    )
    rows = [
        (where(line), line.before_cycles, line.after_cycles, f"{line.difference:+,.0f}", line.text) for line in lines
    ]
    return Grid(columns, rows, indent="  ")


def where(line: LinePair) -> str:
    """The line: `kernel.py:41`, `kernel.py:41 -> 43`, `kernel.py:41 new` or `kernel.py:41 gone`."""
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
    """The relative change, if both values are known and the first is not 0."""
    return change(pair.after / pair.before) if pair.before and pair.after is not None else ""


_BISECTED = (
    Column("kernel"),
    Column("time", "s"),
    Column("spills", "count"),
    Column(""),
    Column("what was changed", least=12),
)
_BAD = {True: "bad", False: "good", None: "unknown"}


def bisection_blocks(bisection: Bisection, *, full: bool) -> Iterator[Block]:
    """The change that made the kernel worse, each judged kernel, and the last good kernel against the first bad one."""
    names = ", ".join(map(clean, bisection.suspects))
    since = names if len(bisection.suspects) == 1 else f"one of {names}"
    first = clean(bisection.judged[0].name)
    what = {
        "time": f"takes over {percent(bisection.threshold)} more time than {first}",
        "spills": f"spills over {percent(bisection.threshold)} more than {first}",
        "correctness": "is wrong",
    }[bisection.metric]
    judged = f"{len(bisection.judged)} of {bisection.kernels} kernels judged [{simulated(bisection.chip)}]"
    yield from (Words(f"from {since} on, the kernel {what}: {judged}"), GAP)
    yield Grid(
        _BISECTED,
        [
            (
                judged_kernel.name,
                judged_kernel.seconds,
                judged_kernel.spills,
                _BAD[judged_kernel.is_bad],
                judged_kernel.failure or judged_kernel.title,
            )
            for judged_kernel in bisection.judged
        ],
    )
    if bisection.comparison is not None:
        yield from (GAP, *comparison_blocks(bisection.comparison, full=full))
