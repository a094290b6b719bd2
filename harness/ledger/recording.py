"""Records a decided attempt in the ledger, in steps that can each be killed, repeated and finished."""

import os
from collections.abc import Mapping
from dataclasses import dataclass, replace

from harness import files
from harness.candidate import Candidate, read_file
from harness.errors import RatchetError
from harness.ledger import accepting, codec, experiments, git, history, journal, messages
from harness.ledger.git import index, write
from harness.ledger.journal import Journal, Recording
from harness.ledger.paths import KERNEL_NAME, RECORD_NAME, Place
from harness.records import Attempt, Row


@dataclass(frozen=True, slots=True, kw_only=True)
class Recorded:
    """The commits of an attempt; `branch_commit` is None unless it was accepted and committed."""

    number: int
    log_commit: str
    branch_commit: str | None
    messages: tuple[str, ...]


def prepare(
    place: Place,
    attempt: Attempt,
    row: Row,
    candidate: Candidate,
    *,
    accept: bool,
    branch: str,
    guarded: tuple[str, ...],
) -> Recording:
    """Stores an attempt's objects, and returns the remaining steps; no ref, index or file of the user changes."""
    repository = place.repository
    log_before = git.commit_of(repository, place.log_ref)
    log_tip = log_before or _first_log_commit(place)
    blob = write.write_blob(repository, candidate.text, place.kernel)
    log_commit = _log_commit(place, attempt, row, {KERNEL_NAME: blob}, log_tip)
    return Recording(
        number=attempt.number,
        accept=accept,
        branch=branch,
        judged_against=attempt.judged_against,
        guarded=tuple(dict.fromkeys((*map(place.inside, candidate.files), place.inside("prepare.py"), *guarded))),
        log_before=log_before,
        log_commit=log_commit,
        file_name=experiments.file_name(attempt.number, attempt.hypothesis),
        kernel_mode=_kernel_mode(place),
        candidate_blob=blob,
        candidate_sha256=candidate.sha256,
    )


def finish(place: Place, begun: Journal) -> Recorded:
    """Does the remaining steps of a journalled recording, in order, and clears the journal.

    Raises RatchetError
    - `ref-moved` if the log has moved on without this attempt. Nothing is recorded, and kernel.py is as the user left
      it.
    - `branch-moved` if the attempt is in the log but cannot be committed on the branch. kernel.py stays the
      candidate's.

    Both errors clear the journal. After any other error the journal stays, and the next call continues.
    """
    recording = begun.recording
    assert recording is not None
    _move_log(place, begun, recording)
    reports = _write_file(place, recording)
    commit = None
    if recording.accept:
        commit, sentences = accepting.commit(place, recording)
        reports += sentences
        reports += accepting.refresh_index(place, recording, commit)
    else:
        reports += _restore_champion(place, begun, recording)
    journal.clear(place)
    return Recorded(
        number=recording.number, log_commit=recording.log_commit, branch_commit=commit, messages=tuple(reports)
    )


# --- the log -----------------------------------------------------------------------------------


def _log_commit(place: Place, attempt: Attempt, row: Row, blobs: Mapping[str, str], before: str | None) -> str:
    record = write.write_blob(place.repository, codec.encode_attempt(attempt, row))
    entries = {name: git.TreeEntry(blob=blob) for name, blob in {**blobs, RECORD_NAME: record}.items()}
    tree = write.write_tree(place.repository, None, entries, accepting.private_index(place))
    judged = git.commit_of(place.repository, attempt.judged_against)
    # The first commit has no parents, so that first parents lead through the log and never into the branch.
    parents = () if before is None else (before,) if judged is None else (before, judged)
    return write.write_commit(place.repository, tree, parents, messages.log_message(row))


def _first_log_commit(place: Place) -> str | None:
    """The first commit of a new log, made from the last attempt of a clone that has experiments/ but no log."""
    rows, _ = history.file_rows(place, 1)
    if not rows:
        return None
    last = history.attempt(place, rows[0].number)
    try:
        candidate = history.candidate(place, last.number)
    except RatchetError:
        # A log without this kernel.py is better than no log. `history.candidate` reports that the kernel.py is missing.
        return _log_commit(place, last, rows[0], {}, None)
    blob = write.write_blob(place.repository, candidate.text, place.kernel)
    return _log_commit(place, last, rows[0], {KERNEL_NAME: blob}, None)


def _move_log(place: Place, begun: Journal, recording: Recording) -> None:
    reason = f"ratchet: attempt {recording.number}"
    if not (
        _is_logged(place, recording)
        or write.moves_ref(place.repository, place.log_ref, recording.log_commit, recording.log_before, reason)
        # The log may have moved because the git command of a killed ratchet ended only now.
        or _is_logged(place, recording)
    ):
        undo(place, begun)
        raise RatchetError(
            "ref-moved",
            f"attempt {recording.number} was not recorded: the log {place.log_ref} moved meanwhile (another worktree, "
            "or a fetch). kernel.py is as you left it; run again",
        )


def _is_logged(place: Place, recording: Recording) -> bool:
    return git.is_ancestor(place.repository, recording.log_commit, place.log_ref)


def undo(place: Place, begun: Journal) -> bool:
    """Puts the user's kernel.py back if the file is still what the ratchet wrote, and clears the journal.

    Returns True if it was put back.
    """
    restored = False
    if begun.original is not None and sha256_here(place) in begun.written_sha256:
        write_files(place, Candidate(text=begun.original))
        restored = True
    journal.clear(place)
    return restored


# --- the working tree --------------------------------------------------------------------------


def sha256_here(place: Place) -> str | None:
    """The SHA-256 of the candidate in the working tree, or None if there is no kernel.py."""
    with files.refusals_in_words(f"reading {place.kernel_path}"):
        if not place.kernel_path.is_file():
            return None
        return Candidate.in_folder(place.kernel_path.parent).sha256


def write_files(place: Place, candidate: Candidate) -> None:
    """Writes the files of a candidate atomically, kernel.py last; files that it does not import are left alone."""
    for name, data in candidate.files.items():
        files.write_atomically(place.kernel_path.with_name(name), data)


def would_lose(place: Place, candidate: Candidate) -> tuple[str, ...]:
    """The helpers of `candidate` that would overwrite a file that HEAD lacks or has with other contents.

    Files that the working tree's candidate imports do not count: the caller decides about them.
    """
    folder = place.kernel_path.parent
    here = Candidate.in_folder(folder).files if place.kernel_path.is_file() else {}
    overwritten = []
    for name, data in candidate.files.items():
        present = read_file(folder / name)
        if name == KERNEL_NAME or present in (None, data, here.get(name)):
            continue
        assert present is not None
        head = git.entry_at(place.repository, "HEAD", place.inside(name))
        if head is None or head.blob != git.hash_of(place.repository, present, place.inside(name)):
            overwritten.append(name)
    return tuple(overwritten)


def _kernel_mode(place: Place) -> str:
    """The mode that kernel.py gets in a commit: by its executable bit if git tracks that bit, otherwise HEAD's mode."""
    if git.is_set(place.repository, "core.fileMode", True) and place.kernel_path.exists():
        return (
            "100755" if os.access(place.kernel_path, os.X_OK) and place.kernel_path.stat().st_mode & 0o100 else "100644"
        )
    entry = git.entry_at(place.repository, "HEAD", place.kernel)
    return entry.mode if entry else "100644"


def _write_file(place: Place, recording: Recording) -> list[str]:
    """Writes the attempt's file into experiments/; a file of that name with other content stays."""
    path = place.experiments_directory / recording.file_name
    data = git.file_at(place.repository, recording.log_commit, RECORD_NAME) or b""
    if path.exists() and path.read_bytes() != data:
        return [
            f"{place.experiments}/{recording.file_name} exists with other contents and stays; the attempt is in "
            f"{place.log_ref}"
        ]
    if not path.exists():
        files.write_atomically(path, data)
    return []


def _restore_champion(place: Place, begun: Journal, recording: Recording) -> list[str]:
    """Puts the champion's files in place of the candidate's, unless an edited text would be lost; returns sentences."""
    if recording.restore_blob is None:
        return []
    champion = Candidate(text=git.in_working_tree_form(place.repository, recording.restore_blob, place.kernel))
    here = sha256_here(place)
    if here == champion.sha256:
        return []
    if here not in (recording.candidate_sha256, *begun.written_sha256):
        return [
            "kernel.py was edited while its earlier text was judged. Your edit stays, and the champion's text was not "
            f"put back; attempt {recording.number} holds the text that was judged"
        ]
    overwritten = would_lose(place, champion)
    if overwritten:
        return [
            f"{', '.join(overwritten)} of the champion would overwrite a text that HEAD does not have, so kernel.py "
            f"stays the candidate's; attempt {recording.number} holds the text that was judged"
        ]
    write_files(place, champion)
    _unstage_candidate(place, recording)
    return []


def _unstage_candidate(place: Place, recording: Recording) -> None:
    """Replaces a staged candidate by HEAD's file, so that the next `git commit` does not contain a rejected kernel."""
    champion = accepting.blobs(place, recording.restore_blob or "")
    for path, blob in accepting.blobs(place, recording.candidate_blob).items():
        staged = index.index_entries(place.repository, (path,)).get(path)
        head = git.entry_at(place.repository, "HEAD", path)
        is_candidate = staged is not None and staged.stages == ("0",) and staged.entry.blob == blob
        if head is not None and is_candidate and head.blob == champion.get(path):
            write.set_index_entries(place.repository, {path: head})
        else:
            write.refresh_index(place.repository, (path,))


def with_written(place: Place, begun: Journal, candidate: Candidate) -> Journal:
    """The journal with the hash of each state that arises while the files of `candidate` are written one by one."""
    folder = place.kernel_path.parent
    written: dict[str, bytes] = {}
    states = [candidate]
    for name, data in candidate.files.items():
        written[name] = data
        before = written.get(KERNEL_NAME) or read_file(place.kernel_path)
        if before is not None:
            states.append(Candidate.of_kernel(before, lambda name: written.get(name) or read_file(folder / name)))
    digests = [state.sha256 for state in states]
    return replace(begun, written_sha256=tuple(dict.fromkeys((*begun.written_sha256, *digests))))
