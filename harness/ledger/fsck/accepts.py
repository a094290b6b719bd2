"""Every record of an accept has the commit on a branch that accepted it, and the champion has a log that says so."""

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
    """Every record of an accept that no commit on a branch accepted; of some it is not known, which is said.

    Of a log's accept that is no fault: the branch moved before it could be committed, or was thrown away. An accept
    whose record came in an ordinary commit is one of a squashed branch if that commit brought the kernel.py of this
    record too, or that of a later accept. In a shallow clone the commits may lie before its beginning.
    """
    on_branch = {(one.number, one.kernel_digits) for one in accepted}
    in_log = {(known.row.number, known.attempt.kernel_sha256) for known in logged}
    is_shallow = git.is_shallow(place.repository)
    for known in (*logged, *filed):
        number, digits = known.row.number, known.attempt.kernel_sha256
        outcomes = {known.row.outcome, known.attempt.verdict.outcome}
        if "accept" not in outcomes or (number, digits[: messages.KERNEL_DIGITS]) in on_branch:
            continue
        if (number, digits) in in_log:
            notes.append(f"attempt {number} was accepted, but no branch here has its commit")
        elif is_shallow:
            notes.append(f"{known.where} is an accept, and this shallow clone may lack its commit")
        elif squashed := _squashing_commit(place, known, filed):
            notes.append(f"attempt {number} was accepted on a branch that commit {squashed[:12]} stands for")
        else:
            yield finding(
                "accept-without-commit",
                known.where,
                f"it says that attempt {number} was accepted, and no commit on a branch here accepted it",
                "the record was edited or made by hand, or comes from a branch that is not here: fetch that branch, or "
                f"take the record of a clone that you trust. {fetch(place)}",
            )


def _squashing_commit(place: Place, known: HeldAttempt, filed: Sequence[HeldAttempt]) -> str | None:
    """The commit that brought this record to HEAD together with the kernel.py of it or of a later accept, or None."""
    commit = _bringing_commit(place, known)
    if commit is None:
        return None
    brought = {
        path
        for folder in (place.experiments, place.packed)
        for path in git.paths_changed_in(place.repository, commit, folder)
    }
    candidate = history.candidate_at(place, commit)
    later = {
        one.attempt.kernel_sha256
        for one in filed
        if one.row.number >= known.row.number
        and one.attempt.verdict.outcome == "accept"
        and (one.path in brought or (one.is_packed and place.packed in brought))
    }
    return commit if candidate is not None and candidate.sha256 in later else None


def _bringing_commit(place: Place, known: HeldAttempt) -> str | None:
    """The commit that brought this record to HEAD, as a file of its own or, where it is packed, as a line."""
    commit = git.last_commit_of(place.repository, known.path)
    data = git.file_at(place.repository, commit, known.path) if commit is not None else None
    if data is not None and holds(data, known):
        return commit
    if not known.is_packed:
        return None
    return git.last_commit_of(place.repository, place.packed, f'{{"number":{known.row.number},')


def champion(
    place: Place, logged: Sequence[HeldAttempt], filed: Sequence[HeldAttempt], present: Key | None, notes: list[str]
) -> Iterator[Finding]:
    """The champion is in the log, if there is a log; what there is to check its record against is said."""
    holder = champions.holder(place)
    if filed and not logged:
        notes.append(
            f"there is no log here to check against ({place.log_ref}; a clone does not fetch it): whoever wrote the "
            f"branch could have written these records. git fetch REMOTE {place.log_ref}:{place.log_ref} takes the log, "
            "fsck --replay judges the champion again"
        )
    if holder is None:
        return
    number = holder.attempt.number
    of_log = [known.row.number for known in logged]
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
            "time is that of then, and the next attempt evaluates it again"
        )
