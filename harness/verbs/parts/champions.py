"""The work of `champions`: every champion checked, the page, and one commit with only the notes and the page."""

from argparse import Namespace
from collections.abc import Iterator
from pathlib import Path

from harness.errors import RatchetError, UsageError
from harness.files import write_atomically
from harness.ledger import Ledger, experiments, git, packing
from harness.ledger.git import write
from harness.ledger.notes import FILES
from harness.loop import champions as checking
from harness.records import CheckedChampion
from harness.render.champions import champions_blocks, champions_page
from harness.shell.arguments import directory, say
from harness.shell.verb import Outcome
from harness.units import quantity
from harness.verbs.champions import ChampionsDocument
from harness.verbs.parts.contests_page import contest_folders
from harness.verbs.parts.context import progress_of

_MESSAGE = """\
Check every champion again and time accepted kernels anew

{passing} of {all} champions pass. Times are on the scale of the judge as it is
committed here; the notes in each contest's ledger hold them.
"""


def run(arguments: Namespace) -> Outcome:
    folder = directory(arguments.directory).resolve()
    repository = git.open_repository(folder)
    top = git.root(repository)
    page = arguments.page.resolve() if arguments.page else None
    if page is not None and not page.is_relative_to(top):
        raise UsageError(
            "outside",
            f"expected --page to be a file in the repository of the contests, {top}, got {arguments.page}; name one "
            f"there, and copy it afterwards. The page has the contests in {folder} and below it",
        )
    if page is not None and (page.suffix != ".md" or page.is_relative_to(git.git_directory(repository))):
        raise UsageError("usage", f"expected --page to be a page in Markdown (.md), got {arguments.page}")
    if arguments.commit:
        git.require_committable(repository)
    folders = [(name or ".", top / name) for name in contest_folders(repository, folder)]
    with progress_of(arguments) as progress:
        checked = checking.check(folders, progress, say, everything=arguments.all, again=arguments.again)
    checked = tuple(champion for champion in checked if champion.is_due)
    if not checked:
        raise RatchetError("no-attempts", f"expected TPU contests with a champion in {folder} or below it, found none")
    messages = []
    if page is not None:
        write_atomically(page, champions_page(checked).encode())
        messages.append(f"wrote {page}")
    if arguments.commit:
        messages.append(_committed(top, [champion.folder for champion in checked], page, checked))
    return Outcome(
        document=ChampionsDocument(champions=checked),
        text=lambda: champions_blocks(checked),
        exit_code=0 if all(champion.passes for champion in checked) else 1,
        messages=tuple(messages),
    )


def _committed(top: Path, folders: list[str], page: Path | None, champions: tuple[CheckedChampion, ...]) -> str:
    """Commits the notes of these contests and the page, and nothing else; returns a sentence on the commit."""
    ledgers = [Ledger.open(top / name) for name in folders]
    paths = [path for ledger in ledgers for path in _files_of_notes(ledger)]
    paths += [page] if page is not None else []
    place = ledgers[0].place
    passing = sum(champion.passes for champion in champions)
    message = _MESSAGE.format(passing=passing, all=len(champions))
    contents = {path.relative_to(top).as_posix(): path.read_bytes() if path.is_file() else None for path in paths}
    made = write.commit_files(place.repository, contents, message, place.state_directory / "index.champions")
    if made is None:
        return "nothing to commit: notes and page are as they were"
    return f"committed {quantity(made[1], 'file')}: {made[0][:7]}"


def _files_of_notes(ledger: Ledger) -> Iterator[Path]:
    """The files of a contest's ledger that hold notes. If all attempts are packed, the notes are packed first.

    Files that packing removes are included, so that their removal is committed too.
    """
    place = ledger.place
    paths = [place.experiments_directory / name for name in FILES]
    present = [path for path in paths if path.is_file() and not path.is_symlink()]
    if place.packed_path.is_file() and not experiments.names_in(place.experiments_directory):
        with ledger.lock("pack"):
            packing.pack(place)
        yield place.packed_path
    yield from present
