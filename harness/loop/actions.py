"""What a person does beside attempts: look where one stands, check a kernel out, undo, make a contest."""

import shlex
from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

from git import Repo

from harness import contest as contests
from harness.advice import report as reporting
from harness.contest import Contest
from harness.errors import RatchetError
from harness.hardware import chip
from harness.judge.key import key_digest
from harness.ledger import Ledger, diff, git
from harness.ledger.git import write
from harness.ledger.git.refs import ref_on_remotes
from harness.loop import attempt as ratchet
from harness.loop import preconditions, scaffold, search_state
from harness.records import TITLE_MOVES, Champion, LogState, Policy, Row, Statement, Status, Verdict


def status(contest: Contest) -> Status:
    """Where one stands in `contest`. An attempt that did not end is finished or undone first, if nobody is at it."""
    ledger = Ledger.open(contest.directory)
    messages = list(recovered(ledger))
    rows, skipped = ledger.rows()
    messages += skipped
    # A GPU has no simulator.
    key = contest.key("simulated" if contest.chip.platform == "tpu" else "measured")
    pushed = ref_on_remotes(ledger.repository, ledger.log_ref)
    local = git.commit_of(ledger.repository, ledger.log_ref)
    messages += [f"remote {remote.remote}: {remote.complaint}" for remote in pushed if remote.complaint]
    champion = ledger.champion()
    standing = search_state.title_row(rows, champion.number if champion else None)
    if standing and standing.key_digest != key_digest(key):
        messages.append("the champion was judged under another key: the next attempt evaluates it again first")
    if champion and ledger.kernel_changed_since(champion):
        messages.append(
            "kernel.py at HEAD is not the champion's: an ordinary commit changed it (--rebaseline adopts it)"
        )
    messages += _lost_titles(rows)
    return Status(
        contest=ledger.name,
        branch=(git.branch_or_none(ledger.repository) or "detached HEAD").removeprefix("refs/heads/"),
        champion=standing,
        next_number=ledger.next_number(),
        key=key,
        key_digest=key_digest(key),
        kernel_state=_kernel_state(ledger, contest, rows),
        dirty_judge_files=preconditions.dirty_judge_files(contest),
        log=_log_state(local, tuple(remote.commit for remote in pushed)),
        messages=tuple(messages),
    )


def _lost_titles(rows: Sequence[Row]) -> list[str]:
    """What happened to the title last, if that was a revoke."""
    moved = [row for row in rows if (row.is_title or row.kind in TITLE_MOVES) and row.is_on_branch is not False]
    return [search_state.revoked_by(rows, number) for number in moved[-1].revokes[:1]] if moved else []


def checkout(directory: Path, number: int, *, force: bool) -> tuple[str, ...]:
    """Puts the kernel.py of attempt `number` into the working tree and says so; the index stays as it is.

    Raises RatchetError `unknown-attempt`, `no-kernel`, or `unsaved-kernel` where kernel.py holds
    what neither an attempt nor a commit has, unless `force`.
    """
    ledger = Ledger.open(directory)
    with ledger.lock(f"checkout {number}"):
        messages = ledger.recover()
        kernel = ledger.kernel(number)
        if not force and not _is_saved(ledger):
            raise RatchetError(
                "unsaved-kernel",
                f"{ledger.kernel_path} holds a change that no attempt and no commit has; it would be lost. "
                "Try it as an experiment first, commit it, or say --force",
            )
        ledger.restore_kernel(kernel)
    return (*messages, f"kernel.py is now that of attempt {number}")


def undo(contest: Contest, policy: Policy) -> tuple[str, ...]:
    """Takes the last accept back: a new commit with the kernel.py of the champion before, and an attempt that says so.

    Raises RatchetError `nothing-to-undo`, `unsaved-kernel`, or as an attempt does where it cannot be recorded.
    """
    ledger = Ledger.open(contest.directory)
    with ledger.lock("undo"):
        messages = ledger.recover()
        preconditions.refuse_unfit(ledger.repository, contest)
        champion = ledger.champion()
        before = ledger.champion_before(champion.number) if champion else None
        if champion is None or before is None:
            raise RatchetError(
                "nothing-to-undo", "expected an accepted attempt after the baseline, found none on this branch"
            )
        original = ledger.kernel_path.read_bytes()
        if original != ledger.champion_kernel():
            raise RatchetError(
                "unsaved-kernel",
                f"{ledger.kernel_path} is not the champion's (attempt {champion.number}): undo would overwrite your "
                "change. Try it as an experiment first, or commit it; to throw it away: "
                f"ratchet.sh checkout --force {champion.number}",
            )
        kernel = ledger.kernel(before.number)
        reason = f"takes attempt {champion.number} back: kernel.py is that of attempt {before.number} again"
        now = datetime.now(UTC).isoformat(timespec="seconds")
        report = reporting.report(before.evidence, chip(before.evidence.chip))
        attempt = replace(
            before,
            number=ledger.next_number(),
            hypothesis=f"undo attempt {champion.number}: {champion.hypothesis}",
            started=now,
            finished=now,
            judged_against=git.head_commit(ledger.repository),
            policy=policy,
            verdict=Verdict(outcome="accept", reasons=(reason,)),
            champion=Champion(
                attempt=champion.number,
                commit=ledger.champion_commit() or "",
                score=None,
                seconds=None,
            ),
            champion_evidence=None,
            duel=None,
            expected_time_ratio=None,
            settings=(),
            sweep=None,
            revocation=None,
            diff=diff.unified(original, kernel),
            kind="undo",
        )
        ledger.begin(original, f"undo of attempt {champion.number}")
        try:
            ledger.restore_kernel(kernel)
            row = reporting.row(attempt, report, key_digest(attempt.key))
            recorded = ledger.record(attempt, row, kernel, new_branch_commit=True)
        except BaseException:
            ledger.recover()
            raise
    return (*messages, f"attempt {attempt.number} {reason}", *recorded.messages)


def new(directory: Path, like: str, settings: tuple[tuple[str, str], ...]) -> tuple[str, ...]:
    """Makes a contest in `directory` like the template called `like` and commits exactly its files.

    Raises RatchetError as `scaffold.scaffold` does, and where a commit could not be made; nothing is written then.
    """
    existing = next(folder for folder in (directory, *directory.resolve().parents) if folder.is_dir())
    repository = git.open_repository(existing)
    git.require_committable(repository)
    written = scaffold.scaffold(directory, like, settings)
    try:
        commit = _commit(repository, written, f"Add the contest {directory.name}, like {like}")
    except BaseException:
        for path in written:
            path.unlink(missing_ok=True)
        raise
    shown = directory if not directory.is_absolute() else directory.resolve()
    return (
        f"made {', '.join(path.name for path in written)} in {shown} and committed them ({commit[:10]})",
        _signature(contests.load(directory).problem.statement()),
        f'next: ./ratchet.sh -C {shlex.quote(str(shown))} "experiment: baseline"',
    )


def _signature(statement: Statement) -> str:
    """What kernel.py has to define, in one sentence."""
    outputs = ", ".join(f"{array.name} {list(array.shape)} {array.dtype}" for array in statement.outputs)
    names = ", ".join(array.name for array in statement.inputs)
    return f"kernel_fn({names}) -> {outputs}; compute_flops() must return {statement.work.flops:,}"


def _commit(repository: Repo, paths: tuple[Path, ...], message: str) -> str:
    """One commit on the branch that adds exactly these files; other staged entries stay as they are."""
    head = git.head_commit(repository)
    names = {git.relative_path(repository, path): path for path in paths}
    changes = {
        name: git.Entry(mode="100644", blob=write.write_blob(repository, path.read_bytes(), name))
        for name, path in names.items()
    }
    private_index = git.git_directory(repository) / "ratchet" / "new.index"
    tree = write.write_tree(repository, head, changes, private_index)
    sign = git.is_set(repository, "commit.gpgsign", False)
    commit = write.write_commit(repository, tree, (head,), f"{message}\n", sign=sign)
    write.move_ref(repository, git.branch(repository), commit, head, "ratchet: new contest")
    write.set_index_entries(repository, changes)
    return commit


def _log_state(local: str | None, remote: tuple[str | None, ...]) -> LogState:
    if local is None:
        return "not fetched" if any(remote) else "none"
    if not remote:
        return "no remote"
    return "pushed" if local in remote else "not pushed"


def recovered(ledger: Ledger) -> tuple[str, ...]:
    """Finishes or undoes an attempt that did not end, unless somebody is at it, and says what was done or why not."""
    try:
        with ledger.lock("recovery"):
            return ledger.recover()
    except RatchetError as error:
        return (str(error),)


def _is_saved(ledger: Ledger) -> bool:
    """True if the bytes of kernel.py are those of HEAD or of some attempt."""
    path = ledger.kernel_path
    if not path.exists():
        return True
    data = path.read_bytes()
    name = git.relative_path(ledger.repository, path)
    head = git.entry_at(ledger.repository, "HEAD", name)
    if head is not None and head.blob == git.hash_of(ledger.repository, data, name):
        return True
    return ratchet.sha256(data) in {row.kernel_sha256 for row in ledger.rows()[0]}


def _kernel_state(ledger: Ledger, contest: Contest, rows: tuple[Row, ...]) -> str:
    """What kernel.py in the working tree is, in words."""
    data = contest.kernel_path.read_bytes()
    champion = ledger.champion()
    if champion is None:
        return "no champion yet: the first attempt is the baseline"
    if data == ledger.champion_kernel():
        return f"the champion's (attempt {champion.number})"
    known = next((row.number for row in reversed(rows) if row.kernel_sha256 == ratchet.sha256(data)), None)
    changed = ", after an ordinary commit" if ledger.kernel_changed_since(champion) else ""
    return f"that of attempt {known}" if known else f"changed: a candidate{changed}"
