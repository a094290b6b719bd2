"""What a change does to a repository's contests: as text, as Markdown, and as annotations of GitHub's workflows."""

import re
from collections.abc import Iterator

from harness.records.comparison import LinePair, ProgramPair
from harness.records.gate import Gate, GatedContest
from harness.records.report_words import simulated
from harness.render.comparison import amount, heading, notable, relative, time_words, where
from harness.render.layout import clean
from harness.render.sections import GAP, Block, Column, Grid, Line, Words, screen
from harness.render.sections import markdown as markdown_table
from harness.units import change, count, percent, seconds

# As many annotations of one kind as GitHub shows of a step.
_ANNOTATIONS = 10
_LINES = 8
_SHOWN = ("static bundles", "spills executed", "VMEM", "HBM traffic")
_MARKUP = re.compile(r"[\\`*_{}\[\]<>()#!|~@&:]")
_FAILS = ("wrong", "slower", "inconclusive")
_MOVED = (*_FAILS, "fixed", "faster")


_COLUMNS = (Column("contest", least=12), Column("outcome"), Column("time"), Column("why", least=12))


def gate_text(found: Gate, width: int) -> str:
    """A line for each contest, then what moved in each."""
    return screen(_blocks(found), width)


def _blocks(found: Gate) -> Iterator[Block]:
    head = f"{found.base[:12]} -> {found.head[:12]}, {clean(found.compiler)}; threshold {percent(found.threshold)}"
    yield from (Line(head, is_whole=True), GAP)
    if not found.contests:
        yield Line("No contest differs between the two.", is_whole=True)
        return
    yield Grid(_COLUMNS, [(_name(one), one.outcome, _time(one), one.reason) for one in found.contests])
    for one in found.contests:
        if one.outcome in _MOVED:
            yield from (GAP, *_moved(one))
        if one.prepare == "touched":
            yield from (GAP, Words(f"{_name(one)}: {_TOUCHED}"))
    if found.other is not None:
        yield from (GAP, Line("The same under the other compiler:"), GAP, *_blocks(found.other), GAP)
        yield from map(Words, compilers(found))


def workflow_text(found: Gate, width: int) -> str:
    """The same for the log of a GitHub workflow, then its annotations."""
    return "\n".join([unobeyed(gate_text(found, width)), *annotations(found)])


def unobeyed(text: str) -> str:
    """`text` for the log of a GitHub workflow.

    A runner obeys every line that begins as a command does, and words of whoever proposes a change may be wrapped so.
    """
    return text.replace("::", ": :").replace("##[", "## [")


_TOUCHED = "the change touches prepare.py; both sides were judged under the base's"


def markdown(found: Gate) -> str:
    """The summary of a pull request: a table, and for each contest that moved its figures and lines."""
    lines = [
        "### Kernels",
        "",
        f"`{found.base[:12]}` → `{found.head[:12]}`, {_escaped(found.compiler)}; times are simulated",
        "",
    ]
    if not found.contests:
        return "\n".join([*lines, "No contest differs between the two.", ""])
    lines += markdown_table(
        _COLUMNS,
        (
            (_escaped(_name(one)), _bold(one.outcome), _escaped(_time(one)), _escaped(one.reason))
            for one in found.contests
        ),
    )
    for one in found.contests:
        if one.prepare == "touched":
            lines += ["", f"**{_escaped(_name(one))}**: {_TOUCHED}."]
        if one.outcome in _MOVED:
            lines += ["", *_details(one)]
    if found.other is not None:
        lines += ["", markdown(found.other), *(f"- {_escaped(one)}" for one in compilers(found))]
    return "\n".join([*lines, ""])


def compilers(found: Gate) -> Iterator[str]:
    """What the other compiler makes of each changed kernel."""
    for one in found.contests:
        other = (
            next((each for each in found.other.contests if each.contest == one.contest), None) if found.other else None
        )
        if other is None or one.seconds is None or other.seconds is None:
            continue
        yield (
            f"{_name(one)}: {seconds(one.seconds)} by {clean(found.compiler)}, {seconds(other.seconds)} by "
            f"{clean(found.other.compiler if found.other else '')}, {change(other.seconds / one.seconds)} "
            f"[{clean(simulated(one.chip))}]"
        )


def annotations(found: Gate) -> Iterator[str]:
    """Workflow commands: an error where a kernel is wrong, warnings on the lines that cost more than before."""
    for one in found.contests:
        folder = f"{one.contest}/" if one.contest else ""
        if one.outcome == "wrong":
            yield _command("error", f"{folder}kernel.py", 1, f"{_name(one)} is wrong", one.reason)
        elif one.outcome == "inconclusive":
            yield _command("warning", f"{folder}kernel.py", 1, f"{_name(one)} is inconclusive", one.reason)
        elif one.outcome == "slower":
            yield _command("warning", f"{folder}kernel.py", 1, f"{_name(one)} is slower", f"{one.reason}: {_time(one)}")
            for program, line in _costlier(one)[: _ANNOTATIONS - 1]:
                at = f" at {clean(program.name)}" if program.name else ""
                said = (
                    f"{count(line.before_cycles)} -> {count(line.after_cycles)} cycles{at} "
                    f"[{clean(simulated(program.chip))}]"
                )
                yield _command("warning", f"{folder}{line.file}", line.after_line or 1, "more cycles", said)


def _costlier(one: GatedContest) -> list[tuple[ProgramPair, LinePair]]:
    """The lines of the candidate's own files that cost notably more, those that cost most first."""
    found = []
    for program in one.comparison.programs if one.comparison else ():
        for line in notable(program):
            if line.after_line is not None and line.file and line.text and line.difference > 0:
                found.append((program, line))
    return sorted(found, key=lambda pair: -pair[1].difference)


def _moved(one: GatedContest) -> Iterator[Block]:
    yield Words(f"{_name(one)}: {one.outcome}, {one.reason}")
    for program, name in _headed(one):
        yield Words(f"{name}{time_words(program)}", lead="  ", rest="    ")
        for pair in program.figures:
            if pair.name in _SHOWN and pair.difference:
                moved = f"  {pair.name} {amount(pair, pair.before)} -> {amount(pair, pair.after)} {relative(pair)}"
                yield Line(moved, is_whole=True)
        for line in notable(program)[:_LINES]:
            yield Line(f"  {where(line)}  {line.difference:+,.0f} cycles  {clean(line.text)}")


_FIGURES = (Column("figure"), Column("before", "count"), Column("after", "count"), Column("change", "change"))
_COSTS = (Column("line"), Column("cycles before", "count"), Column("after", "count"), Column("source"))


def _details(one: GatedContest) -> Iterator[str]:
    yield f"<details><summary>{_escaped(_name(one))}: {one.outcome}, {_escaped(one.reason)}</summary>"
    for program, name in _headed(one):
        yield from ("", _escaped(f"{name}{time_words(program)}"), "")
        figures = [pair for pair in program.figures if pair.name in _SHOWN or pair.difference]
        yield from markdown_table(
            _FIGURES,
            ((pair.name, amount(pair, pair.before), amount(pair, pair.after), relative(pair)) for pair in figures),
        )
        if lines := notable(program)[:_LINES]:
            yield ""
            yield from markdown_table(
                _COSTS,
                (
                    (_escaped(where(line)), count(line.before_cycles), count(line.after_cycles), _code(line.text))
                    for line in lines
                ),
            )
    yield from ("", "</details>")


def _headed(one: GatedContest) -> list[tuple[ProgramPair, str]]:
    found = one.comparison
    return [(program, heading(program, found)) for program in found.programs] if found else []


def _name(one: GatedContest) -> str:
    return clean(one.contest) or "."


def _time(one: GatedContest) -> str:
    if one.comparison is not None and one.comparison.programs:
        return time_words(one.comparison.programs[0])
    return "unknown" if one.seconds is None else f"{seconds(one.seconds)} [{clean(simulated(one.chip))}]"


def _bold(outcome: str) -> str:
    return f"**{outcome}**" if outcome in _FAILS else outcome


def _escaped(text: str) -> str:
    """`text` in Markdown as it is: whoever proposes a change wrote some of it."""
    return _MARKUP.sub(lambda sign: f"&#{ord(sign[0])};", clean(text))


def _code(text: str) -> str:
    """`text` as code in a cell of a table."""
    return f"<code>{_escaped(text)}</code>" if text else ""


def _command(kind: str, file: str, line: int, title: str, message: str) -> str:
    """One line that GitHub reads: values escaped as its toolkit does."""
    return f"::{kind} file={_property(file)},line={line},title={_property(title)}::{_data(clean(message))}"


def _data(text: str) -> str:
    return text.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")


def _property(text: str) -> str:
    return _data(clean(text)).replace(":", "%3A").replace(",", "%2C")
