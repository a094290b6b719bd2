"""The verb `champions`: check the champions of all contests again."""

from argparse import Namespace
from dataclasses import dataclass
from pathlib import Path

from harness.errors import RatchetError, UsageError
from harness.records import CheckedChampion
from harness.shell.arguments import directory, say
from harness.shell.parser import Parser
from harness.shell.verb import Document, Outcome, Verb


@dataclass(frozen=True, slots=True, kw_only=True)
class ChampionsDocument:
    """The champion of each contest, and how it fares under today's keys."""

    champions: tuple[CheckedChampion, ...]


class Champions(Verb):
    place = "machine", 90
    line = "check the champions of all contests again"
    example = "champions --page CHAMPIONS.md --commit"
    description = (
        "Runs all checks of today's judge on the champion of every TPU contest in a folder and below it, and times "
        "accepted kernels under today's timing key. The results are recorded as notes in the ledgers, not as attempts. "
        "A champion that passed under today's timing key and checks key is not checked again."
    )
    document = Document(1, ChampionsDocument)

    def configure(self, parser: Parser) -> None:
        parser.option("--page FILE", "write a page in Markdown about all champions", type=Path)
        parser.flag("--commit", "commit the notes and the page, and nothing else")
        parser.flag("--all", "time rejected and undecided attempts too")
        parser.flag("--again", "also check champions that passed under today's keys")
        parser.json("the results as JSON")
        parser.quiet()

    def run(self, arguments: Namespace) -> Outcome:
        from harness.files import write_atomically
        from harness.ledger import git
        from harness.loop import champions as checking
        from harness.render.champions import champions_blocks, champions_page
        from harness.verbs.parts.committing import committed
        from harness.verbs.parts.contests_page import contest_folders
        from harness.verbs.parts.context import progress_of

        folder = directory(arguments.directory).resolve()
        repository = git.open_repository(folder)
        top = git.root(repository)
        page = arguments.page.resolve() if arguments.page else None
        if page is not None and not page.is_relative_to(top):
            raise UsageError("outside", f"expected --page to lie in the repository {top}, got {arguments.page}")
        if page is not None and (page.suffix != ".md" or page.is_relative_to(git.git_directory(repository))):
            raise UsageError("usage", f"expected --page to be a page in Markdown (.md), got {arguments.page}")
        if arguments.commit:
            git.require_committable(repository)
        folders = [(name or ".", top / name) for name in contest_folders(repository, folder)]
        with progress_of(arguments) as progress:
            checked = checking.check(folders, progress, say, everything=arguments.all, again=arguments.again)
        checked = tuple(champion for champion in checked if champion.is_due)
        if not checked:
            raise RatchetError(
                "no-attempts", f"expected TPU contests with a champion in {folder} or below it, found none"
            )
        messages = []
        if page is not None:
            write_atomically(page, champions_page(checked).encode())
            messages.append(f"wrote {page}")
        if arguments.commit:
            messages.append(committed(top, [champion.folder for champion in checked], page, checked))
        return Outcome(
            document=ChampionsDocument(champions=checked),
            text=lambda: champions_blocks(checked),
            exit_code=0 if all(champion.passes for champion in checked) else 1,
            messages=tuple(messages),
        )
