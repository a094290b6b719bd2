"""The verb `champions`: check every contest's champion again, in one commit."""

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
    """The champion of each contest, checked again."""

    champions: tuple[CheckedChampion, ...]


class Champions(Verb):
    place = "machine", 90
    line = "check every contest's champion again, in one commit"
    example = "champions --page CHAMPIONS.md --commit"
    description = (
        "Checks the champion of each contest in a folder and below it wholly, as the judge is now, and times accepted "
        "kernels on today's scale. What comes of it are notes in the ledgers; no attempt's number is taken. A champion "
        "that passed under both keys of now is not checked again."
    )
    document = Document(1, ChampionsDocument)

    def configure(self, parser: Parser) -> None:
        parser.option("--page FILE", "write a page in Markdown about all champions", type=Path)
        parser.flag("--commit", "commit notes and page, and nothing else")
        parser.flag("--all", "time rejected and undecided attempts too")
        parser.flag("--again", "check champions again that passed under these keys")
        parser.json("what came of each as JSON")
        parser.quiet()

    def run(self, given: Namespace) -> Outcome:
        from harness.files import write_atomically
        from harness.ledger import git
        from harness.loop import champions as checking
        from harness.render.champions import champions_page, champions_text
        from harness.verbs.parts.committing import committed
        from harness.verbs.parts.contests_page import contest_folders
        from harness.verbs.parts.given import progress_of

        folder = directory(given.directory).resolve()
        repository = git.open_repository(folder)
        top = git.root(repository)
        page = given.page.resolve() if given.page else None
        if page is not None and not page.is_relative_to(top):
            raise UsageError("outside", f"expected --page in the repository {top}, got {given.page}")
        if page is not None and (page.suffix != ".md" or page.is_relative_to(git.git_directory(repository))):
            raise UsageError("usage", f"expected --page to be a page in Markdown (.md), got {given.page}")
        if given.commit:
            git.require_committable(repository)
        folders = [(name or ".", top / name) for name in contest_folders(repository, folder)]
        with progress_of(given) as progress:
            found = checking.check(folders, progress, say, everything=given.all, again=given.again)
        found = tuple(one for one in found if one.is_due)
        if not found:
            raise RatchetError("no-attempts", f"expected contests with a champion in {folder} or below it, found none")
        messages = []
        if page is not None:
            write_atomically(page, champions_page(found).encode())
            messages.append(f"wrote {page}")
        if given.commit:
            messages.append(committed(top, [one.folder for one in found], page, found))
        return Outcome(
            document=ChampionsDocument(champions=found),
            text=lambda: champions_text(found),
            exit_code=0 if all(one.passes for one in found) else 1,
            messages=tuple(messages),
        )
