"""Checks that every accept has its commit on a branch, and that the log has the champion."""

from collections.abc import Iterator, Sequence

from harness.judge.key import key_difference
from harness.ledger import champion as champions
from harness.ledger import git, history, messages
from harness.ledger.fsck.inventory import HeldAttempt, fetch, finding, holds
from harness.ledger.paths import Place
from harness.records import Finding, Key


def without_commit(
    place: Place,
    accepted: Sequence[history.Accepted],
    logged: Sequence[HeldAttempt],
    filed: Sequence[HeldAttempt],
    notes: list[str],
) -> Iterator[Finding]:
    """A finding for every record of an accept without its commit on a branch; a note if the commit may have existed.

    A logged accept without a commit is not a fault: either the branch moved before the accept could be committed, or
    the branch was deleted. An ordinary commit that brought the record counts as a squashed branch if it also brought
    the kernel.py of this record or of a later accept. A shallow clone may lack the commits.
    """
    on_branch = {(accept.number, accept.kernel_digits) for accept in accepted}
    in_log = {(record.row.number, record.attempt.kernel_sha256) for record in logged}
    is_shallow = git.is_shallow(place.repository)
    for record in (*logged, *filed):
        number, digits = record.row.number, record.attempt.kernel_sha256
        outcomes = {record.row.outcome, record.attempt.verdict.outcome}
        if "accept" not in outcomes or (number, digits[: messages.KERNEL_DIGITS]) in on_branch:
            continue
        if (number, digits) in in_log:
            notes.append(f"attempt {number} was accepted, but no branch here has its commit")
        elif is_shallow:
            notes.append(f"{record.where} records an accept, whose commit this shallow clone may lack")
        elif squashed := _squashing_commit(place, record, filed):
            notes.append(f"attempt {number} was accepted on a branch that was squashed into commit {squashed[:12]}")
        else:
            yield finding(
                "accept-without-commit",
                record.where,
                f"it says that attempt {number} was accepted, but no commit on a branch here accepted it",
                "the record was edited or made by hand, or comes from a branch that is not here: fetch that branch, or "
                f"take the record from a clone that you trust; {fetch(place)}",
            )


def _squashing_commit(place: Place, record: HeldAttempt, filed: Sequence[HeldAttempt]) -> str | None:
    """The commit that brought this record to HEAD with its kernel.py, or with that of a later accept; or None."""
    commit = _bringing_commit(place, record)
    if commit is None:
        return None
    brought = {
        path
        for folder in (place.experiments, place.packed)
        for path in git.paths_changed_in(place.repository, commit, folder)
    }
    candidate = history.candidate_at(place, commit)
    later = {
        other.attempt.kernel_sha256
        for other in filed
        if other.row.number >= record.row.number
        and other.attempt.verdict.outcome == "accept"
        and (other.path in brought or (other.is_packed and place.packed in brought))
    }
    return commit if candidate is not None and candidate.sha256 in later else None


def _bringing_commit(place: Place, record: HeldAttempt) -> str | None:
    """The commit that brought this record to HEAD, as its own file or, if packed, as a line."""
    commit = git.last_commit_of(place.repository, record.path)
    data = git.file_at(place.repository, commit, record.path) if commit is not None else None
    if data is not None and holds(data, record):
        return commit
    if not record.is_packed:
        return None
    return git.last_commit_of(place.repository, place.packed, f'{{"number":{record.row.number},')


def champion(
    place: Place, logged: Sequence[HeldAttempt], filed: Sequence[HeldAttempt], present: Key | None, notes: list[str]
) -> Iterator[Finding]:
    """A finding if the log lacks the champion; notes if the champion's record cannot be checked or has another key."""
    holder = champions.holder(place)
    if filed and not logged:
        notes.append(
            f"there is no log here to check against ({place.log_ref}; a clone does not fetch it): whoever wrote the "
            "branch may have made these records up. "
            f"`{git.shell_command(place.repository)} fetch REMOTE {place.log_ref}:{place.log_ref}` fetches the log; "
            "`fsck --replay` judges the champion again"
        )
    if holder is None:
        return
    number = holder.attempt.number
    of_log = [record.row.number for record in logged]
    if logged and number not in of_log:
        if number > min(of_log) and holder.commit is None:
            yield finding(
                "champion-not-logged",
                f"attempt {number}, the champion",
                f"{place.log_ref} does not have it",
                fetch(place),
            )
        elif number < min(of_log):
            notes.append(f"the champion, attempt {number}, is older than the log here: nothing vouches for its record")
    if present is not None and not holder.attempt.key.counts_for(present):
        notes.append(
            f"the champion, attempt {number}, was judged under {key_difference(holder.attempt.key, present)}: its "
            "time belongs to that key, and the next attempt evaluates it again"
        )
