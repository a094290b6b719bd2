"""PEERS.md as it stands, with errors and titles brought up to date: a part of peers.py that compiles nothing.

The times stay those that were simulated when the page was made; the configurations are read from its tables.
"""

import dataclasses
import re
from collections.abc import Iterator, Mapping

import peers_problems
from peers_entries import NAMES, NOT_RUN, failure
from peers_errors import Error, Errors
from peers_errors import text as error_text
from peers_page import ERROR, FOUND, table
from peers_plan import Plan
from peers_problems import OURS, PROBLEMS, Configuration
from peers_tasks import Task
from peers_titles import Title

_BLOCKS = {
    "flash": ("block_q", "block_k_major", "block_k"),
    "splash": ("block_q", "block_kv", "block_kv_compute"),
    "tokamax": ("block_q", "block_kv", "block_kv_compute"),
}
_CONTENDERS = {name: contender for contender, name in NAMES.items()}
_PROBLEMS = {problem.title: problem for problem in PROBLEMS.values()}
_HEADING = re.compile(r"### (\w+), (.+)")
_SO_FAR = ", so far"


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class _Table:
    """The lines `start` to `end` of the page: a head and rows of cells."""

    start: int
    end: int
    head: list[str]
    rows: list[list[str]]


def configuration(contender: str, words: str) -> Configuration:
    """What `peers_page.words` made these words of."""
    words = re.sub(r" \(\d+ not understood\)", "", words)
    found: list[tuple[str, str]] = []
    for part in words.split(", "):
        if "/" in part:
            found += zip(_BLOCKS[contender], part.split("/"), strict=True)
        else:
            name, _, value = part.partition(" ")
            found.append((name, value))
    return tuple(found)


def tasks(text: str, plan: Plan, titles: Mapping[str, Title]) -> Iterator[Task]:
    """The best configuration of every contender in the tables of the page, of ours only where it keeps its title."""
    for chip, problem, found in _measured(text):
        for row in found.rows:
            task = _task(chip, problem, row, found.head, plan, titles)
            if task is not None:
                yield task


def rewritten(text: str, plan: Plan, errors: Errors, titles: Mapping[str, Title]) -> str:
    """The page with a column of errors, and without the figures of kernels of ours that fail."""
    lines = text.split("\n")
    changed: list[tuple[_Table, list[str], list[list[str]]]] = []
    fails: dict[tuple[str, str], str] = {}
    for chip, problem, found in _measured(text):
        head = [*found.head]
        if ERROR not in head:
            head.insert(head.index("+/-") + 1, ERROR)
        rows = []
        for row in found.rows:
            cells = dict(zip(found.head, row, strict=True))
            task = _task(chip, problem, row, found.head, plan, titles)
            error = errors(task) if task is not None else None
            cells[ERROR] = error_text(error, NOT_RUN)
            if _contender(row) == OURS:
                why = _why(chip, problem, error, titles)
                if why:
                    fails[chip, problem] = why
                    cells = dict.fromkeys(head, "") | {
                        "contender": row[0], "best configuration": why, "time": NOT_RUN, ERROR: cells[ERROR],
                    }  # fmt: skip
            rows.append([cells[name] for name in head])
        changed.append((found, head, rows))
    for found in _tables(lines):
        if "verdict" in found.head:
            changed.append((found, found.head, [_aim(row, found.head, fails) for row in found.rows]))
        elif "preps do not wait" in found.head:
            kept = [row for row in found.rows if (row[0], _PROBLEMS[row[1]].name) not in fails]
            changed.append((found, found.head, kept))
    for found, head, rows in sorted(changed, key=lambda one: -one[0].start):
        lines[found.start : found.end] = table(rows, head).split("\n")
    page = "\n".join(lines)
    return page if FOUND in page else page.replace("\n\n## Against the aims", f"\n\n{FOUND}\n\n## Against the aims", 1)


def _why(chip: str, problem: str, error: Error | None, titles: Mapping[str, Title]) -> str:
    title = titles.get(peers_problems.our_kernel(PROBLEMS[problem], chip))
    return (title.words if title else "") or failure(error)


def _aim(row: list[str], head: list[str], fails: Mapping[tuple[str, str], str]) -> list[str]:
    cells = dict(zip(head, row, strict=True))
    why = fails.get((cells["chip"], _PROBLEMS[cells["problem"]].name))
    if why is None:
        return row
    gone = {name: NOT_RUN for name in head if name == "ours" or name.startswith(("ours / best", "ratio"))}
    return [({**cells, **gone, "verdict": why})[name] for name in head]


def _task(
    chip: str, problem: str, row: list[str], head: list[str], plan: Plan, titles: Mapping[str, Title]
) -> Task | None:
    cells = dict(zip(head, row, strict=True))
    contender = _contender(row)
    if cells["time"] == NOT_RUN or chip not in plan.chips or contender not in plan.contenders:
        return None
    if problem not in plan.problems:
        return None
    if contender == OURS:
        title = titles.get(peers_problems.our_kernel(PROBLEMS[problem], chip))
        # The figures are those of a kernel that is no champion any more.
        if title is not None and title.words:
            return None
    return Task(
        compiler=plan.compiler,
        chip=chip,
        problem=PROBLEMS[problem],
        contender=contender,
        configuration=configuration(contender, cells["best configuration"]),
    )


def _contender(row: list[str]) -> str:
    return _CONTENDERS[row[0].removesuffix(_SO_FAR)]


def _measured(text: str) -> Iterator[tuple[str, str, _Table]]:
    """Chip, problem and table of each section that compares contenders."""
    lines = text.split("\n")
    tables = list(_tables(lines))
    for number, line in enumerate(lines):
        match = _HEADING.fullmatch(line)
        if match and match[2] in _PROBLEMS:
            yield match[1], _PROBLEMS[match[2]].name, next(one for one in tables if one.start > number)


def _tables(lines: list[str]) -> Iterator[_Table]:
    start = 0
    while start < len(lines):
        end = start
        while end < len(lines) and lines[end].startswith("|"):
            end += 1
        if end > start + 1:
            cells = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines[start:end]]
            yield _Table(start=start, end=end, head=cells[0], rows=cells[2:])
        start = end + 1
