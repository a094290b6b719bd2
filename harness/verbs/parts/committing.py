"""The notes of contests, and a page about them, as one commit that holds nothing else."""

from collections.abc import Iterator
from pathlib import Path

from harness.ledger import Ledger, experiments, packing
from harness.ledger.git import write
from harness.ledger.notes import FILES
from harness.records import CheckedChampion
from harness.units import quantity

_MESSAGE = """\
Check every champion again and time accepted kernels anew

{passing} of {all} champions pass. Times are on the scale of the judge as it is
committed here; the notes in each contest's ledger hold them.
"""


def committed(top: Path, folders: list[str], page: Path | None, champions: tuple[CheckedChampion, ...]) -> str:
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

    A file that packing removes is included, so that its removal is committed too.
    """
    place = ledger.place
    paths = [place.experiments_directory / name for name in FILES]
    present = [path for path in paths if path.is_file() and not path.is_symlink()]
    if place.packed_path.is_file() and not experiments.names_in(place.experiments_directory):
        with ledger.lock("pack"):
            packing.pack(place)
        yield place.packed_path
    yield from present
