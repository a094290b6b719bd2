"""The state of a contest: champion, key, kernel.py, and whether the log is pushed."""

from collections.abc import Iterator, Sequence

from harness.contest import Contest
from harness.judge.key import key_digest
from harness.ledger import Ledger, git, history, scale
from harness.ledger import notes as note_files
from harness.ledger.git.refs import ref_on_remotes
from harness.ledger.notes import outcome_of_checks
from harness.loop import preconditions, search_state
from harness.records import TITLE_MOVES, Key, LogState, Note, Row, Status
from harness.units import quantity


def status(contest: Contest, recovered: Sequence[str] = ()) -> Status:
    """The state of `contest`; its messages begin with `recovered`, sentences on an attempt that did not end."""
    ledger = Ledger.open(contest.directory)
    messages = list(recovered)
    rows, skipped = history.rows(ledger.place)
    messages += skipped
    # A GPU has no simulator.
    key = contest.key("simulated" if contest.chip.platform == "tpu" else "measured")
    pushed = ref_on_remotes(ledger.place.repository, ledger.place.log_ref)
    local = git.commit_of(ledger.place.repository, ledger.place.log_ref)
    messages += [f"remote {remote.remote}: {remote.complaint}" for remote in pushed if remote.complaint]
    champion = ledger.champion()
    row_of_champion = search_state.title_row(rows, champion.number if champion else None)
    notes, unread = note_files.read(ledger.place)
    messages += unread
    messages += _on_keys(contest, rows, notes, row_of_champion, key)
    if champion and ledger.kernel_changed_since(champion):
        messages.append(
            "kernel.py at HEAD is not the champion's: an ordinary commit changed it (--rebaseline makes it the "
            "champion if it passes)"
        )
    messages += _lost_titles(rows)
    return Status(
        contest=ledger.place.name,
        branch=(git.branch_or_none(ledger.place.repository) or "detached HEAD").removeprefix("refs/heads/"),
        champion=row_of_champion,
        won_by=search_state.winner(rows, row_of_champion) if row_of_champion else None,
        next_number=ledger.next_number(),
        key=key,
        key_digest=key_digest(key),
        kernel_state=_kernel_state(ledger, contest, rows),
        dirty_judge_files=preconditions.dirty_judge_files(contest),
        log=_log_state(local, tuple(remote.commit for remote in pushed)),
        messages=tuple(messages),
    )


def _on_keys(
    contest: Contest, rows: Sequence[Row], notes: Sequence[Note], champion: Row | None, key: Key
) -> Iterator[str]:
    """Sentences on what the next attempt checks again, and on accepted kernels without a time under today's key."""
    if champion is None or champion.source != key.source:
        return
    passes = outcome_of_checks(notes, champion.number, champion.kernel_sha256, key)
    if passes is False:
        yield "a note says that the champion fails under today's keys: ./ratchet.sh revoke judges it again"
    elif passes is None and not (champion.key and champion.key.counts_for(key)):
        yield "the champion was not checked under today's keys: the next attempt checks it again first"
    of_chip = [row for row in rows if (row.source, row.chip) == ("simulated", contest.chip.name)]
    count = len(tuple(scale.untimed(of_chip, notes, key_digest(key), only_accepted=True)))
    if count:
        yield (
            f"{quantity(count, 'accepted kernel has', 'accepted kernels have')} no time under today's keys: the next "
            f"attempt times {'it' if count == 1 else 'them'} after its report, or ./ratchet.sh rescale does"
        )


def _lost_titles(rows: Sequence[Row]) -> list[str]:
    """The sentence on the last move of the title, if that was a revoke."""
    moved = [row for row in rows if (row.is_title or row.kind in TITLE_MOVES) and row.is_on_branch is not False]
    return [search_state.revoked_by(rows, number) for number in moved[-1].revokes[:1]] if moved else []


def _log_state(local: str | None, remote: tuple[str | None, ...]) -> LogState:
    if local is None:
        return "not fetched" if any(remote) else "none"
    if not remote:
        return "no remote"
    return "pushed" if local in remote else "not pushed"


def _kernel_state(ledger: Ledger, contest: Contest, rows: tuple[Row, ...]) -> str:
    """The state of kernel.py in the working tree, in words."""
    candidate = contest.candidate()
    champion = ledger.champion()
    if champion is None:
        return "no champion yet: the first attempt is the baseline"
    if candidate == ledger.champion_candidate():
        return f"the champion's (attempt {champion.number})"
    sha256 = candidate.sha256
    number = next((row.number for row in reversed(rows) if row.kernel_sha256 == sha256), None)
    changed = ", after an ordinary commit" if ledger.kernel_changed_since(champion) else ""
    return f"that of attempt {number}" if number else f"changed: a candidate{changed}"
