"""The verb `champions`: check the champions of all contests again."""

from dataclasses import dataclass
from pathlib import Path

from harness.records import CheckedChampion
from harness.shell.parser import Parser
from harness.shell.verb import Document, Verb


@dataclass(frozen=True, slots=True, kw_only=True)
class ChampionsDocument:
    """The champion of each contest, and its result under today's keys."""

    champions: tuple[CheckedChampion, ...]


class Champions(Verb):
    place = "machine", 90
    line = "check the champions of all contests again"
    example = "champions --page CHAMPIONS.md --commit"
    description = (
        "Runs all checks of today's judge on the champion of every TPU contest in a folder and below it, and times "
        "accepted kernels under today's timing key. The results are recorded as notes in the ledgers, not as attempts. "
        "A champion that passed under today's timing key and checks key, in its attempt or since, is not checked again."
    )
    document = Document(1, ChampionsDocument)

    def configure(self, parser: Parser) -> None:
        parser.option("--page FILE", "write a page in Markdown about all champions", type=Path)
        parser.flag("--commit", "commit the notes and the page, and nothing else")
        parser.flag("--all", "time rejected and undecided attempts too")
        parser.flag("--again", "also check champions that passed under today's keys")
        parser.json("the results as JSON")
        parser.quiet()
