"""The folder of a contest's captures and dumps: git passes over it, and what is old in it goes.

Kept are the newest runs, those of champions, and all that the ratchet did not write; within a size in all.
"""

import contextlib
import re
import shutil
from collections.abc import Collection, Iterator
from pathlib import Path

from harness.errors import RatchetError
from harness.files import make_directory, refusals_in_words
from harness.units import decimal
from harness.workbench.profiles.places import Place, runs

# So many of the ratchet's own runs stay beside those of champions; one of three calls is 10 KB to some MB.
KEPT_RUNS = 20
# A hundred attempts whose compiler dumps take 30 MB, as those of the root contest do.
KEPT_BYTES = 3_000_000_000
RULE = (
    f"the newest {KEPT_RUNS} runs, all runs of attempts that were accepted, and whatever the ratchet did not write are "
    f"kept; older runs are removed, and where runs and compiler dumps of attempts take more than "
    f"{decimal(KEPT_BYTES, 'B')} the oldest of them, those of accepted attempts last"
)
# What the ratchet's own runs end with: the eight digits of a session, or the name of a simulated chip.
_OWN = re.compile(r"(\d{4,}|kernel|judge|snapshot)-([\w.]+-)*([0-9a-f]{8}(-\d+)?|simulated-\w+)")
# The compiler's dumps of an attempt, and what else was found out about it.
_FILES = re.compile(r"\d{4,}")


def made(profile_data: Path) -> Path:
    """The folder, made where it is not there, with an ignore file of its own: a contest may have none.

    Raises RatchetError `read-only` or `io`.
    """
    with refusals_in_words(f"writing {profile_data}"):
        make_directory(profile_data)
        # Several processes may begin at a time: the first writes it.
        with contextlib.suppress(FileExistsError), open(profile_data / ".gitignore", "xb") as stream:
            stream.write(b"*\n")
    return profile_data


def prune(profile_data: Path, champions: Collection[int], kept_bytes: int = KEPT_BYTES) -> tuple[str, ...]:
    """Removes old runs and dumps of the ratchet by RULE from a contest's folder, and returns their names.

    `champions` are the numbers of accepted attempts. The newest of all stays, whatever its size. Raises RatchetError
    `read-only` or `io`.
    """
    own = [place for place in runs(profile_data) if _OWN.fullmatch(place.name)]
    surplus = [place for place in own if place.attempt not in champions][KEPT_RUNS:]
    gone = {_folder(place): place.name for place in surplus}
    # Whether it is a champion's, how old it is, and what it is called.
    rest = [(place.attempt in champions, place.modified, _folder(place)) for place in own if place not in surplus]
    with refusals_in_words(f"reading {profile_data}"):
        rest += [
            (int(folder.name) in champions, folder.stat().st_mtime, folder)
            for folder in (profile_data.iterdir() if profile_data.is_dir() else ())
            if _FILES.fullmatch(folder.name) and folder.is_dir()
        ]
        newest = max((written for _, written, _ in rest), default=0.0)
        total = 0
        for _, written, folder in sorted(rest, reverse=True):
            total += sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())
            if total > kept_bytes and written < newest:
                gone[folder] = folder.name
    for folder in gone:
        with refusals_in_words(f"removing {folder}"):
            shutil.rmtree(folder)
    return tuple(gone.values())


def tidy(profile_data: Path, champions: Collection[int]) -> Iterator[str]:
    """The same for a command whose business is another: what was removed, or why it was not, in sentences."""
    try:
        gone = prune(profile_data, champions)
    except RatchetError as error:
        yield f"old captures stay: {error}"
    else:
        if gone:
            yield f"removed {len(gone)} old captures and dumps: {', '.join(gone)}"


def _folder(place: Place) -> Path:
    return place.files[0].parent
