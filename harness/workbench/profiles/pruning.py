"""Which captures of a contest are kept: the newest, those of champions, and all that the ratchet did not write."""

import re
import shutil
from collections.abc import Collection, Iterator
from pathlib import Path

from harness.errors import RatchetError
from harness.files import refusals_in_words
from harness.workbench.profiles.places import Place, runs

# So many of the ratchet's own runs stay beside those of champions; one of three calls is 10 KB to some MB.
KEPT_RUNS = 20
RULE = (
    f"the newest {KEPT_RUNS} runs, all runs of attempts that were accepted, and whatever the ratchet did not write are "
    "kept; older runs are removed"
)
# What the ratchet's own runs end with: the eight digits of a session, or the name of a simulated chip.
_OWN = re.compile(r"(\d{4,}|kernel|judge|snapshot)-([\w.]+-)*([0-9a-f]{8}(-\d+)?|simulated-\w+)")


def prune(profile_data: Path, champions: Collection[int]) -> tuple[str, ...]:
    """Removes old runs of the ratchet by RULE from a contest's captures, and returns their names.

    `champions` are the numbers of accepted attempts. Raises RatchetError `read-only` or `io`.
    """
    own = [place for place in runs(profile_data) if _OWN.fullmatch(place.name) and place.attempt not in champions]
    gone = own[KEPT_RUNS:]
    for place in gone:
        _remove(place)
    return tuple(place.name for place in gone)


def tidy(profile_data: Path, champions: Collection[int]) -> Iterator[str]:
    """The same for a command whose business is another: what was removed, or why it was not, in sentences."""
    try:
        gone = prune(profile_data, champions)
    except RatchetError as error:
        yield f"old captures stay: {error}"
    else:
        if gone:
            yield f"removed {len(gone)} old captures: {', '.join(gone)}"


def _remove(place: Place) -> None:
    folder = place.paths[0].parent
    with refusals_in_words(f"removing {folder}"):
        shutil.rmtree(folder)
