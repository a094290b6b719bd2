"""The champion: the accepted attempt that holds the title on the branch that is checked out."""

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass

from harness.ledger import experiments, git, packed
from harness.ledger.codec import RecordError, decode_attempt
from harness.ledger.history import Accepted, accepted_at_head, attempt, candidate_at, committed_names
from harness.ledger.paths import Place
from harness.records import TITLE_MOVES, Attempt


@dataclass(frozen=True, slots=True, kw_only=True)
class TitleHolder:
    """The champion: its attempt, its accepting commit (None if only files show the accept), and its kernel's blob."""

    attempt: Attempt
    commit: str | None
    blob: str | None


def holder(place: Place) -> TitleHolder | None:
    """The champion on this branch, or None if no accept holds a title.

    The champion is the newest accept in HEAD's history that did not lose the title in an undo or revoke. If several
    merged branches have such an accept, the accept with HEAD's kernel.py counts. If the history lacks the accepts (a
    shallow clone, a squashed branch), the accepted attempts in files at HEAD are used.
    """
    candidates, undone = _candidates(place)
    head_blob, *blobs = git.blob_ids(
        place.repository, [f"{commit}:{place.kernel}" for commit in ("HEAD", *(accept.commit for accept in candidates))]
    )
    pairs = list(zip(candidates, blobs, strict=True))
    if pairs:
        newest = pairs[0][0]
        merged_accepts = (
            (accept, blob)
            for accept, blob in pairs[1:]
            if blob == head_blob != pairs[0][1] and not git.is_ancestor(place.repository, accept.commit, newest.commit)
        )
        accept, blob = next(merged_accepts, pairs[0])
        return TitleHolder(attempt=_accepted_attempt(place, accept), commit=accept.commit, blob=blob)
    return _holder_by_files(place, head_blob, undone)


def before(place: Place, number: int) -> Attempt | None:
    """The champion that attempt `number` replaced: the newest accept before it that still counts, or None."""
    candidates, _ = _candidates(place)
    return next((_accepted_attempt(place, accept) for accept in candidates if accept.number < number), None)


def all_before(place: Place, number: int) -> Iterator[Attempt]:
    """Every accepted attempt before `number` that still counts, the newest first.

    They come from HEAD's history. Accepts that the history lacks (a shallow clone, a squashed branch) come from files
    at HEAD.
    """
    candidates, undone = _candidates(place)
    oldest = number
    for accept in candidates:
        if accept.number < number:
            oldest = min(oldest, accept.number)
            yield _accepted_attempt(place, accept)
    yield from (filed for filed in _filed(place, undone) if filed.number < oldest)


def _candidates(place: Place) -> tuple[list[Accepted], set[int]]:
    """The accepts in HEAD's history that still count, newest first, and the numbers that were taken back."""
    accepted = accepted_at_head(place)
    undone = {number for accept in accepted for number in accept.takes_back}
    return [accept for accept in accepted if not accept.takes_back and accept.number not in undone], undone


def _accepted_attempt(place: Place, accept: Accepted) -> Attempt:
    """The attempt as its accepting commit stores it, because two clones may have used its number."""
    for name, entry in git.entries(place.repository, accept.commit, place.experiments).items():
        if experiments.number_of(name) == accept.number:
            where = f"{place.experiments}/{name} at {accept.commit[:12]}"
            try:
                decoded = decode_attempt(git.read_blobs(place.repository, (entry.blob,))[0] or b"", where)
            except RecordError:
                continue
            if decoded.kernel_sha256.startswith(accept.kernel_digits):
                return decoded
    return attempt(place, accept.number)


def _holder_by_files(place: Place, head_blob: str | None, undone: set[int]) -> TitleHolder | None:
    if head_blob is None:
        return None
    filed = _filed(place, undone)
    head = candidate_at(place, "HEAD")
    for attempt_ in filed:
        if head is not None and attempt_.kernel_sha256 == head.sha256:
            return TitleHolder(attempt=attempt_, commit=None, blob=head_blob)
    return TitleHolder(attempt=filed[0], commit=None, blob=None) if filed else None


def _filed(place: Place, undone: set[int]) -> list[Attempt]:
    """The accepted attempts in files at HEAD that still count and are not in `undone`, the newest first."""
    attempts = [attempt_ for attempt_ in _attempts_at_head(place) if attempt_.contest == place.name]
    accepted = [attempt_ for attempt_ in attempts if attempt_.verdict.outcome == "accept"]
    displaced = undone | {
        attempt_.champion.attempt for attempt_ in accepted if attempt_.kind == "undo" and attempt_.champion is not None
    }
    displaced = displaced.union(*(attempt_.revocation.revoked for attempt_ in attempts if attempt_.revocation))
    titles = (each for each in accepted if each.kind not in TITLE_MOVES and each.number not in displaced)
    return sorted(titles, key=lambda title: -title.number)


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
