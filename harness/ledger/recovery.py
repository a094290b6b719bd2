"""Recovers from a killed process: finishes or undoes its attempt, and removes its half-written files and git locks."""

import contextlib
from pathlib import Path

from harness import files
from harness.candidate import Candidate
from harness.errors import RatchetError
from harness.ledger import experiments, git, journal, notes, recording
from harness.ledger.git import locks, write
from harness.ledger.journal import Journal, Recording
from harness.ledger.paths import Place


def recover(place: Place, *, is_own_attempt: bool) -> tuple[str, ...]:
    """Finishes or undoes an unfinished attempt, and returns sentences about it; () if there was nothing to do.

    - A decided attempt is finished.
    - An attempt that was still being judged is undone: kernel.py gets its old text back if its present text was written
      by the ratchet. If this process began the attempt (`is_own_attempt`), an undo returns no sentence, because the
      process itself reports why it gave up.

    Requires the ledger's lock. Raises RatchetError if the attempt cannot be finished yet (no space, no signing key). In
    this case the journal stays.
    """
    for leftover in leftovers(place):
        with contextlib.suppress(OSError):
            leftover.unlink(missing_ok=True)
    begun = journal.read(place)
    if begun is None:
        return ()
    if begun.recording is not None:
        return _finish(place, begun, begun.recording)
    kept = None
    if begun.written_sha256 and begun.original is not None:
        expected = (Candidate(text=begun.original).sha256, *begun.written_sha256)
        if recording.sha256_here(place) not in expected:
            # The original kernel.py is stored as a blob, so that it is not lost.
            kept = write.write_blob(place.repository, begun.original)
    restored = recording.undo(place, begun)
    what = f"{begun.purpose}, begun {begun.begun}, did not end"
    if kept is not None:
        return (
            f"{what}, and kernel.py was edited since, so it stays as it is; "
            f"`{git.shell_command(place.repository)} cat-file -p {kept}` prints its text from before the attempt",
        )
    if is_own_attempt:
        return ()
    return (f"{what}: " + ("kernel.py has its earlier text again" if restored else "kernel.py was not changed"),)


def _finish(place: Place, begun: Journal, decided: Recording) -> tuple[str, ...]:
    """Finishes the decided attempt of the journal `begun`, and returns sentences about it."""
    if git.commit_of(place.repository, decided.log_commit) is None:
        recording.undo(place, begun)
        return (
            f"attempt {decided.number}, begun {begun.begun}, did not end and its objects are gone from git (a gc with "
            "--prune=now?): it is in no ledger, and kernel.py is as you left it; run it again",
        )
    unlocked = remove_dead_locks(place, decided)
    try:
        done = recording.finish(place, begun)
    except RatchetError as error:
        if error.kind in ("branch-moved", "ref-moved") and journal.read(place) is None:
            return (*unlocked, str(error))
        raise
    where = f"on {decided.branch}" if done.branch_commit else "in the log"
    return (
        *unlocked,
        f"attempt {decided.number}, begun {begun.begun}, was decided but not fully recorded; now it is, {where}",
        *done.messages,
    )


def leftovers(place: Place) -> tuple[Path, ...]:
    """Files that a killed process may have left, with names that only the ratchet gives; all may be removed."""
    written = (place.kernel_path, place.packed_path, place.packed_path.with_name(".gitattributes"))
    half_written = [files.temporary_of(path) for path in written]
    half_written += [files.temporary_of(place.experiments_directory / name) for name in notes.FILES]
    half_written += place.state_directory.glob(f".*{files.TEMPORARY_SUFFIX}")
    # Helper modules of the candidate.
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
