"""A change's effect on a repository's contests: as text, as Markdown, and as annotations of GitHub's workflows."""

import re
from collections.abc import Iterator

from harness.records.comparison import LinePair, ProgramPair
from harness.records.gate import Gate, GatedContest
from harness.records.report_words import simulated
from harness.render.comparison import amount, heading, notable, pairs_grid, relative, time_words, where
from harness.render.layout import clean
from harness.render.sections import GAP, Block, Column, Grid, Line, Words, printed, screen
from harness.render.sections import markdown as markdown_table
from harness.units import change, count, percent, seconds

# The number of annotations of one kind that GitHub shows for a step.
_ANNOTATIONS = 10
_LINES = 8
_SHOWN = ("static bundles", "spills executed", "VMEM", "HBM traffic")
_MARKUP = re.compile(r"[\\`*_{}\[\]<>()#!|~@&:]")
# The annotation of each outcome that fails.
_FAILS = {"wrong": "error", "slower": "warning", "inconclusive": "warning"}
_MOVED = (*_FAILS, "fixed", "faster")

_COLUMNS = (Column("contest", least=12), Column("outcome"), Column("time"), Column("why", least=12))


def gate_blocks(gate: Gate) -> Iterator[Block]:
    """A line for each contest, then the figures and lines that changed in each contest."""
    head = f"{gate.base[:12]} -> {gate.head[:12]}, {clean(gate.compiler)}; threshold {percent(gate.threshold)}"
    yield from (Line(head, is_whole=True), GAP)
    if not gate.contests:
        yield Line("No contest differs between the two commits.", is_whole=True)
        return
    yield Grid(
        _COLUMNS, [(_name(contest), contest.outcome, _time(contest), contest.reason) for contest in gate.contests]
    )
    for contest in gate.contests:
        if contest.outcome in _MOVED:
            yield from (GAP, *_moved(contest))
        if contest.prepare == "touched":
            yield from (GAP, Words(f"{_name(contest)}: {_TOUCHED}"))
    if gate.other is not None:
        yield from (GAP, Line("The same comparison under the other compiler:"), GAP, *gate_blocks(gate.other), GAP)
        yield from map(Words, compilers(gate))


def workflow_text(gate: Gate, width: int) -> str:
    """The screen of `gate_blocks` for the log of a GitHub workflow, then the annotations."""
    return "\n".join([unobeyed(screen(gate_blocks(gate), width)), *annotations(gate)])


def unobeyed(text: str) -> str:
    """`text` for the log of a GitHub workflow, without workflow commands.

    A runner executes every line that begins like a command, and the author of a change could write such a line.
    """
    return text.replace("::", ": :").replace("##[", "## [")


_TOUCHED = "the change touches prepare.py; both sides were judged under the base's prepare.py"


def markdown(gate: Gate) -> str:
    """The summary for a pull request: a table, then the figures and lines of each contest with an outcome in _MOVED."""
    lines = [
        "### Kernels",
        "",
        f"`{gate.base[:12]}` → `{gate.head[:12]}`, {_escaped(gate.compiler)}; times are simulated",
        "",
    ]
    if not gate.contests:
        return "\n".join([*lines, "No contest differs between the two commits.", ""])
    lines += markdown_table(
        _COLUMNS,
        (
            (
                _escaped(_name(contest)),
                f"**{contest.outcome}**" if contest.outcome in _FAILS else contest.outcome,
                _escaped(_time(contest)),
                _escaped(contest.reason),
            )
            for contest in gate.contests
        ),
    )
    for contest in gate.contests:
        if contest.prepare == "touched":
            lines += ["", f"**{_escaped(_name(contest))}**: {_TOUCHED}."]
        if contest.outcome in _MOVED:
            lines += ["", *_details(contest)]
    if gate.other is not None:
        lines += ["", markdown(gate.other), *(f"- {_escaped(sentence)}" for sentence in compilers(gate))]
    return "\n".join([*lines, ""])


def compilers(gate: Gate) -> Iterator[str]:
    """Sentences that compare the compilers' times of each changed kernel."""
    if gate.other is None:
        return
    for contest in gate.contests:
        other = next((each for each in gate.other.contests if each.contest == contest.contest), None)
        if other is not None and contest.seconds is not None and other.seconds is not None:
            yield (
                f"{_name(contest)}: {seconds(contest.seconds)} by {clean(gate.compiler)}, {seconds(other.seconds)} by "
                f"{clean(gate.other.compiler)}, {change(other.seconds / contest.seconds)} "
                f"[{clean(simulated(contest.chip))}]"
            )


def annotations(gate: Gate) -> Iterator[str]:
    """Workflow commands: errors for wrong kernels; warnings for slower or inconclusive ones, and for costlier lines."""
    for contest in gate.contests:
        if contest.outcome not in _FAILS:
            continue
        folder = f"{contest.contest}/" if contest.contest else ""
        is_slower = contest.outcome == "slower"
        why = f"{contest.reason}: {_time(contest)}" if is_slower else contest.reason
        title = f"{_name(contest)} is {contest.outcome}"
        yield _command(_FAILS[contest.outcome], f"{folder}kernel.py", 1, title, why)
        for program, line in _costlier(contest)[: _ANNOTATIONS - 1] if is_slower else ():
            at = f" at {clean(program.name)} " if program.name else " "
            cycles = f"{count(line.before_cycles)} -> {count(line.after_cycles)} cycles"
            message = f"{cycles}{at}[{clean(simulated(program.chip))}]"
            yield _command("warning", f"{folder}{line.file}", line.after_line or 1, "more cycles", message)


def _costlier(contest: GatedContest) -> list[tuple[ProgramPair, LinePair]]:
    """The lines of the candidate's own files that cost notably more than before, the largest increase first."""
    costlier = [
        (program, line)
        for program in (contest.comparison.programs if contest.comparison else ())
        for line in notable(program)
        if line.after_line is not None and line.file and line.text and line.difference > 0
    ]
    return sorted(costlier, key=lambda pair: -pair[1].difference)


def _moved(contest: GatedContest) -> Iterator[Block]:
    yield Words(f"{_name(contest)}: {contest.outcome}, {contest.reason}")
    for program, name in _headed(contest):
        yield Words(f"{name}{time_words(program)}", lead="  ", rest="    ")
        for pair in program.figures:
            if pair.name in _SHOWN and pair.difference:
                moved = f"  {pair.name} {amount(pair, pair.before)} -> {amount(pair, pair.after)} {relative(pair)}"
                yield Line(moved, is_whole=True)
        for line in notable(program)[:_LINES]:
            yield Line(f"  {where(line)}  {line.difference:+,.0f} cycles  {clean(line.text)}")


_COSTS = (Column("line"), Column("cycles before", "count"), Column("after", "count"), Column("source"))


def _details(contest: GatedContest) -> Iterator[str]:
    yield f"<details><summary>{_escaped(_name(contest))}: {contest.outcome}, {_escaped(contest.reason)}</summary>"
    for program, name in _headed(contest):
        yield from ("", _escaped(f"{name}{time_words(program)}"), "")
        figures = pairs_grid([pair for pair in program.figures if pair.name in _SHOWN or pair.difference], "figure")
        yield from markdown_table(figures.columns, printed(figures))
        if lines := notable(program)[:_LINES]:
            yield ""
            yield from markdown_table(
                _COSTS,
                (
                    (
                        _escaped(where(line)),
                        count(line.before_cycles),
                        count(line.after_cycles),
                        f"<code>{_escaped(line.text)}</code>" if line.text else "",
                    )
                    for line in lines
                ),
            )
    yield from ("", "</details>")


def _headed(contest: GatedContest) -> list[tuple[ProgramPair, str]]:
    comparison = contest.comparison
    return [(program, heading(program, comparison)) for program in comparison.programs] if comparison else []


def _name(contest: GatedContest) -> str:
    return clean(contest.contest) or "."


def _time(contest: GatedContest) -> str:
    if contest.comparison is not None and contest.comparison.programs:
        return time_words(contest.comparison.programs[0])
    return "unknown" if contest.seconds is None else f"{seconds(contest.seconds)} [{clean(simulated(contest.chip))}]"


def _escaped(text: str) -> str:
    """`text` escaped, so that Markdown prints it as it is: the author of a change wrote some of it."""
    return _MARKUP.sub(lambda sign: f"&#{ord(sign[0])};", clean(text))


def _command(kind: str, file: str, line: int, title: str, message: str) -> str:
    """One workflow command, its values escaped as GitHub's toolkit does."""
    return f"::{kind} file={_property(file)},line={line},title={_property(title)}::{_data(clean(message))}"


def _data(text: str) -> str:
    return text.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")


def _property(text: str) -> str:
    return _data(clean(text)).replace(":", "%3A").replace(",", "%2C")
