"""Attempts refused because their program or schedule is known; a file in this working tree keeps them for `next`."""

import difflib

import msgspec

from harness import files
from harness.candidate import Candidate
from harness.errors import RatchetError
from harness.ledger.paths import Place
from harness.records.search_state import Refusal

KINDS = ("same-schedule", "identical-candidate")
_NAME = "refused.json"
_MOST = 50


def keep(place: Place, refusal: Refusal) -> None:
    """Adds the refusal to the file, which keeps the newest ones. Raises RatchetError as `files.write_atomically`."""
    others = (each for each in _read(place) if each != refusal)
    files.write_atomically(place.state_directory / _NAME, msgspec.json.encode((*others, refusal)[-_MOST:]))


def refusals(place: Place, champion: int | None) -> tuple[Refusal, ...]:
    """The refusals that were made while `champion` was the champion, newest last."""
    return tuple(refusal for refusal in _read(place) if refusal.champion == champion)


def refusal_of(error: RatchetError, hypothesis: str, champion: int, old: Candidate, new: Candidate) -> Refusal:
    """The refusal of the kernel `new`, with the lines of the champion's kernel `old` that it changed."""
    before, after = old.lines, new.lines
    changed = tuple(
        f"{name}:{number + 1}" for name in sorted(before) for number in _changed(before[name], after.get(name, []))
    )
    return Refusal(champion=champion, hypothesis=hypothesis, kind=error.kind, message=str(error), lines=changed)


def _changed(before: list[str], after: list[str]) -> list[int]:
    """The indices of the lines of `before` that `after` lacks."""
    codes = difflib.SequenceMatcher(None, before, after, autojunk=False).get_opcodes()
    return [at for kind, begin, end, _, _ in codes if kind in ("replace", "delete") for at in range(begin, end)]


def _read(place: Place) -> tuple[Refusal, ...]:
    """The refusals in the file; () if there is no file, or if another version wrote it."""
    try:
        return msgspec.json.decode((place.state_directory / _NAME).read_bytes(), type=tuple[Refusal, ...])
    except (OSError, msgspec.MsgspecError, ValueError):
        return ()
