"""Finds and removes leftovers of a killed process: half-written files, private indexes, git's locks."""

import contextlib
from pathlib import Path

from harness import files
from harness.ledger import experiments, journal, notes
from harness.ledger.git import locks
from harness.ledger.journal import Recording
from harness.ledger.paths import Place


def remove_leftovers(place: Place) -> None:
    """Removes the private indexes and the half-written files of a process that was killed."""
    for leftover in leftovers(place):
        with contextlib.suppress(OSError):
            leftover.unlink(missing_ok=True)


def leftovers(place: Place) -> tuple[Path, ...]:
    """Files that a killed process may have left, by names that only the ratchet gives; all may be removed."""
    written = (journal.path(place), place.kernel_path, place.packed_path, place.packed_path.with_name(".gitattributes"))
    half_written = [files.temporary_of(path) for path in written]
    half_written += [files.temporary_of(place.experiments_directory / name) for name in notes.FILES]
    # Helpers of the candidate.
    half_written += place.kernel_path.parent.glob(f".*.py{files.TEMPORARY_SUFFIX}")
    for path in place.experiments_directory.glob(f".*.json{files.TEMPORARY_SUFFIX}"):
        if experiments.number_of(path.name[1:].removesuffix(files.TEMPORARY_SUFFIX)) is not None:
            half_written.append(path)
    return (*place.state_directory.glob("index.*"), *(path for path in half_written if path.exists()))


def remove_dead_locks(place: Place, decided: Recording) -> tuple[str, ...]:
    """Removes git's locks on the refs that `decided` writes, if their git commands are dead; returns sentences.

    Only locks made since the decision was journalled are removed: earlier ones cannot be the ratchet's.
    """
    since = journal.path(place).stat().st_mtime
    removed = locks.remove_dead(place.repository, (place.log_ref, decided.branch), since)
    return tuple(f"removed {lock}: the git command that made it for attempt {decided.number} died" for lock in removed)
