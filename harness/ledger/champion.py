"""Which accepted attempt is the champion on the branch that is checked out."""

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass

from harness.ledger import experiments, git, packed
from harness.ledger.codec import RecordError, decode_attempt
from harness.ledger.history import Accepted, accepted_at_head, attempt, candidate_at, committed_names
from harness.ledger.paths import Place
from harness.records import TITLE_MOVES, Attempt, Kind


@dataclass(frozen=True, slots=True, kw_only=True)
class TitleHolder:
    """The champion: its attempt, the commit that accepted it (None: only files know), its kernel's blob."""

    attempt: Attempt
    commit: str | None
    blob: str | None


def holder(place: Place) -> TitleHolder | None:
    """The champion on this branch, or None before the first accept.

    It is the newest accept in HEAD's history that no undo and no revoke took the title from; where lines of
    history were merged that each accepted something, the one whose kernel.py HEAD has. Where the history does not
    say (a shallow clone, a squashed branch), the accepted attempts in files at HEAD do.
    """
    candidates, undone = _candidates(place)
    head_blob, *blobs = git.blob_ids(
        place.repository, [f"{commit}:{place.kernel}" for commit in ("HEAD", *(one.commit for one in candidates))]
    )
    pairs = list(zip(candidates, blobs, strict=True))
    if pairs:
        newest = pairs[0][0]
        beside = (
            (one, blob)
            for one, blob in pairs[1:]
            if blob == head_blob != pairs[0][1] and not git.is_ancestor(place.repository, one.commit, newest.commit)
        )
        one, blob = next(beside, pairs[0])
        return TitleHolder(attempt=_accepted_attempt(place, one), commit=one.commit, blob=blob)
    return _holder_by_files(place, head_blob, undone)


def before(place: Place, number: int) -> Attempt | None:
    """The champion that attempt `number` replaced: the newest accept before it that still stands, or None."""
    candidates, _ = _candidates(place)
    return next((_accepted_attempt(place, one) for one in candidates if one.number < number), None)


def all_before(place: Place, number: int) -> Iterator[Attempt]:
    """Every accepted attempt before `number` that still stands, the newest first.

    From HEAD's history; what lies before its beginning (a shallow clone, a squashed branch) from files at HEAD.
    """
    candidates, undone = _candidates(place)
    oldest = number
    for one in candidates:
        if one.number < number:
            oldest = min(oldest, one.number)
            yield _accepted_attempt(place, one)
    yield from (one for one in _filed(place, undone) if one.number < oldest)


def _candidates(place: Place) -> tuple[list[Accepted], set[int]]:
    """The accepts in HEAD's history that still stand, newest first, and the numbers that were taken back."""
    accepted = accepted_at_head(place)
    undone = {number for one in accepted for number in one.takes_back}
    return [one for one in accepted if not one.takes_back and one.number not in undone], undone


def _accepted_attempt(place: Place, one: Accepted) -> Attempt:
    """The attempt as the accepting commit holds it, so that a number used twice does not matter."""
    for name, entry in git.entries(place.repository, one.commit, place.experiments).items():
        if experiments.number_of(name) == one.number:
            where = f"{place.experiments}/{name} at {one.commit[:12]}"
            try:
                found = decode_attempt(git.read_blobs(place.repository, (entry.blob,))[0] or b"", where)
            except RecordError:
                continue
            if found.kernel_sha256.startswith(one.kernel_digits):
                return found
    return attempt(place, one.number)


def _holder_by_files(place: Place, head_blob: str | None, undone: set[int]) -> TitleHolder | None:
    if head_blob is None:
        return None
    found = _filed(place, undone)
    head = candidate_at(place, "HEAD")
    head_sha256 = None if head is None else head.sha256
    for one in found:
        if one.kernel_sha256 == head_sha256:
            return TitleHolder(attempt=one, commit=None, blob=head_blob)
    return TitleHolder(attempt=found[0], commit=None, blob=None) if found else None


def _filed(place: Place, undone: set[int]) -> list[Attempt]:
    """The accepted attempts in files at HEAD that still stand, the newest first; `undone` are known not to."""
    found = [one for one in _attempts_at_head(place) if one.contest == place.name]
    taken = {one.champion.attempt for one in found if _is_accepted(one, "undo") and one.champion is not None}
    taken |= {number for one in found if one.revocation is not None for number in one.revocation.revoked}
    standing_ = (one for one in found if one.verdict.outcome == "accept" and one.kind not in TITLE_MOVES)
    return sorted((one for one in standing_ if one.number not in undone | taken), key=lambda one: -one.number)


def _attempts_at_head(place: Place) -> Iterator[Attempt]:
    """The attempts in experiments/ and in attempts.jsonl at HEAD that can be read."""
    committed = committed_names(place)
    blobs = git.read_blobs(place.repository, [entry.blob for entry in committed.values()])
    for name, data in zip(committed, blobs, strict=True):
        with contextlib.suppress(RecordError):
            yield decode_attempt(data or b"", f"{place.experiments}/{name} at HEAD")
    file = packed.at_head(place)
    for record in file.records if file else ():
        with contextlib.suppress(RecordError):
            yield decode_attempt(record.document(), record.where)


def _is_accepted(attempt: Attempt, kind: Kind) -> bool:
    return attempt.verdict.outcome == "accept" and attempt.kind == kind
