"""The verb `champions`: every contest's champion checked again, one page about all, one commit."""

from argparse import Namespace
from collections.abc import Iterator
from pathlib import Path

from harness.cli.arguments import directory, say
from harness.cli.contests_page import contest_folders
from harness.cli.documents import ChampionsDocument
from harness.cli.verb import Outcome
from harness.errors import RatchetError, UsageError
from harness.files import write_atomically
from harness.ledger import Ledger, experiments, git, packing
from harness.ledger.git import write
from harness.ledger.notes import FILES
from harness.loop import champions as checking
from harness.records import CheckedChampion
from harness.render.champions import champions_page, champions_text
from harness.render.progress import Progress
from harness.units import quantity

_MESSAGE = """\
Check every champion again and time accepted kernels anew

{passing} of {all} champions pass. Times are on the scale of the judge as it is
committed here; the notes in each contest's ledger hold them.
"""


def champions(given: Namespace) -> Outcome:
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
    with Progress(quiet=given.quiet or given.json) as progress:
        found = checking.check(folders, progress, say, everything=given.all, again=given.again)
    found = tuple(one for one in found if one.is_due)
    if not found:
        raise RatchetError("no-attempts", f"expected contests with a champion in {folder} or below it, found none")
    messages = []
    if page is not None:
        write_atomically(page, champions_page(found).encode())
        messages.append(f"wrote {page}")
    if given.commit:
        messages.append(_committed(top, [one.folder for one in found], page, found))
    return Outcome(
        document=ChampionsDocument(champions=found),
        text=lambda: champions_text(found),
        exit_code=0 if all(one.passes for one in found) else 1,
        messages=tuple(messages),
    )


def _committed(top: Path, folders: list[str], page: Path | None, found: tuple[CheckedChampion, ...]) -> str:
    """Commits the notes of these contests and the page, and nothing else; says what it did."""
    ledgers = [Ledger.open(top / name) for name in folders]
    paths = [path for ledger in ledgers for path in _files_of_notes(ledger)]
    paths += [page] if page is not None else []
    place = ledgers[0].place
    passing = sum(one.passes for one in found)
    message = _MESSAGE.format(passing=passing, all=len(found))
    contents = {path.relative_to(top).as_posix(): path.read_bytes() for path in paths}
    made = write.commit_files(place.repository, contents, message, place.state_directory / "index.champions")
    if made is None:
        return "nothing to commit: notes and page are as they were"
    return f"committed {quantity(made[1], 'file')}: {made[0][:7]}"


def _files_of_notes(ledger: Ledger) -> Iterator[Path]:
    """The files of a contest's ledger that hold notes. Where all attempts are packed, the notes are packed too."""
    place = ledger.place
    if place.packed_path.is_file() and not experiments.names_in(place.experiments_directory):
        with ledger.lock("pack"):
            packing.pack(place)
        yield place.packed_path
    for name in FILES:
        path = place.experiments_directory / name
        if path.is_file() and not path.is_symlink():
            yield path
