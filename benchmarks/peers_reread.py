"""The configurations that PEERS.md names as the best ones, to be compiled and simulated anew: a part of peers.py."""

import dataclasses
import re
from collections.abc import Iterator, Mapping

from peers_entries import NAMES, NOT_RUN
from peers_plan import Look, Plan
from peers_problems import OURS, PROBLEMS, Configuration
from peers_tasks import Task

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
    """The configuration that `peers_page.words` writes as these words."""
    words = re.sub(r" \(\d+ not understood\)", "", words)
    pairs: list[tuple[str, str]] = []
    for part in words.split(", "):
        if "/" in part:
            pairs += zip(_BLOCKS[contender], part.split("/"), strict=True)
        else:
            name, _, value = part.partition(" ")
            pairs.append((name, value))
    return tuple(pairs)


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Again(Plan):
    """The best configuration of each peer at each problem, as the page names it, and our kernels as they stand.

    `best` are the peers', by chip, problem and contender.
    """

    best: Mapping[tuple[str, str, str], Configuration]

    def tasks(self, chip: str, problem: str, contender: str, look: Look) -> list[Task]:
        """The one task of a contender, if it has one."""
        chosen = () if contender == OURS else self.best.get((chip, problem, contender))
        if chosen is None:
            return []
        task = Task(
            compiler=self.compiler, chip=chip, problem=PROBLEMS[problem], contender=contender, configuration=chosen
        )
        return [task]

    @property
    def search(self) -> str:
        """Text for the page that says how the best was found."""
        return """The best configurations were found when this page was first made, with earlier constants of the
simulator. With one head and no mask, every configuration of a contender was tried on v6e, and 24 of them, including
the published winners, on each other chip. The best four, and some more that suit the problem, were tried with the
causal mask and with grouped heads; the best one was tried with 16 heads. The chosen configurations are simulated anew
here (`--again`); ours are the champions as they stand."""


def best(text: str) -> dict[tuple[str, str, str], Configuration]:
    """The best configuration of every peer in the tables of the page, by chip, problem and contender."""
    configurations = {}
    for chip, problem, table in _measured(text):
        for row in table.rows:
            cells = dict(zip(table.head, row, strict=True))
            contender = _contender(row)
            if contender != OURS and cells["time"] != NOT_RUN:
                configurations[chip, problem, contender] = configuration(contender, cells["best configuration"])
    return configurations


def _contender(row: list[str]) -> str:
    return _CONTENDERS[row[0].removesuffix(_SO_FAR)]


def _measured(text: str) -> Iterator[tuple[str, str, _Table]]:
    """Chip, problem and table of each section that compares contenders."""
    lines = text.split("\n")
    tables = list(_tables(lines))
    for number, line in enumerate(lines):
        match = _HEADING.fullmatch(line)
        if match and match[2] in _PROBLEMS:
            yield match[1], _PROBLEMS[match[2]].name, next(table for table in tables if table.start > number)


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
