"""Lock files that a killed git command leaves behind, and a test whether anybody still holds them."""

import os
import time
from collections.abc import Sequence
from pathlib import Path

from git import Repo

from harness.files import refusals_in_words
from harness.ledger import git

# A git command that outlived a killed ratchet ends within milliseconds. A git command that runs longer was started by
# somebody else.
_PATIENCE_SECONDS = 3.0
_PAUSE_SECONDS = 0.02
_PROCESSES = Path("/proc")


def locks_on(repository: Repo, refs: Sequence[str]) -> tuple[Path, ...]:
    """The lock files that are there now on the index, HEAD, the packed refs and `refs`."""
    directory, common = git.git_directory(repository), git.common_directory(repository)
    names = (directory / "index", directory / "HEAD", common / "packed-refs", *(common / ref for ref in refs))
    locks = (path.with_name(f"{path.name}.lock") for path in names)
    return tuple(lock for lock in locks if lock.exists())


def remove_dead(repository: Repo, refs: Sequence[str], since: float) -> tuple[Path, ...]:
    """Removes the locks of `locks_on` that were made after `since` (seconds of the epoch) and that nobody holds.

    Nobody holds a lock if no git process works in the repository and no process has the file open. If this cannot be
    determined (not on Linux, or for a process of another user), the lock stays. The function first waits up to
    _PATIENCE_SECONDS for a git command that is still at work. Returns the removed files.
    """
    deadline = time.monotonic() + _PATIENCE_SECONDS
    while (locks := locks_on(repository, refs)) and _may_be_held(repository, locks):
        if time.monotonic() > deadline:
            return ()
        time.sleep(_PAUSE_SECONDS)
    removed = []
    for lock in locks:
        with refusals_in_words(f"removing {lock}"):
            if lock.exists() and lock.stat().st_mtime >= since:
                lock.unlink()
                removed.append(lock)
    return tuple(removed)


def _may_be_held(repository: Repo, locks: Sequence[Path]) -> bool:
    if not _PROCESSES.joinpath("self", "fd").is_dir():
        return True
    top = git.root(repository)
    wanted = {str(lock) for lock in locks}
    for process in (path for path in _PROCESSES.iterdir() if path.name.isdigit()):
        try:
            if (process / "comm").read_text().startswith("git"):
                place = Path(os.readlink(process / "cwd"))
                if place.is_relative_to(top) or place.is_relative_to(git.common_directory(repository)):
                    return True
            # Readable only for our own processes; for other users' processes the lock's owner is compared below.
            if any(os.readlink(link) in wanted for link in (process / "fd").iterdir()):
                return True
        except FileNotFoundError:
            # The process ended meanwhile.
            continue
        except PermissionError:
            if any(lock.stat().st_uid != os.getuid() for lock in locks if lock.exists()):
                return True
    return False
