"""Commits an accepted attempt on the user's branch, and updates the user's index to match."""

import os
from pathlib import Path

from git import Repo

from harness.candidate import Candidate
from harness.errors import RatchetError
from harness.ledger import codec, experiments, git, history, journal, messages, notes
from harness.ledger.git import index, write
from harness.ledger.journal import Recording
from harness.ledger.paths import RECORD_NAME, Place

# The most tries to move the branch. A try fails only if somebody else commits at that very moment.
_RACES = 5


def private_index(place: Place) -> Path:
    """The path of this process's private index. A git command that outlived a killed process has another path."""
    return place.state_directory / f"index.{os.getpid()}"


def commit(place: Place, recording: Recording) -> tuple[str, list[str]]:
    """The attempt's branch commit (made now unless it exists), and sentences on the files that it leaves out.

    Raises RatchetError
    - `branch-moved` if the branch changed so that the accept cannot be committed on it. The journal is cleared.
    - `ref-moved` if other commits reached the branch first in each of several tries.
    """
    repository = place.repository
    for _ in range(_RACES):
        done = _accepting_commit(place, recording)
        if done is not None:
            return done, []
        head = git.commit_of(repository, "HEAD") or ""
        obstacle = _obstacle(place, recording, head)
        if obstacle:
            journal.clear(place)
            raise RatchetError(
                "branch-moved",
                f"attempt {recording.number} belongs on the branch, but {obstacle}, so the branch was left alone. The "
                f"attempt is kept in the log and in {place.experiments}/{recording.file_name}; "
                f"`checkout {recording.number}` brings its kernel.py back, and a new attempt then judges it against "
                "the branch as it is now",
            )
        changes, sentences = _changes(place, recording, head)
        tree = write.write_tree(repository, head, changes, private_index(place))
        data = git.file_at(repository, recording.log_commit, RECORD_NAME) or b""
        where = f"log commit {recording.log_commit[:12]}"
        attempt, row = codec.decode_attempt(data, where), codec.decode_attempt_row(data, where)
        new = write.write_commit(repository, tree, (head,), messages.accept_message(attempt, row))
        if write.moves_ref(repository, recording.branch, new, head, f"ratchet: accept attempt {recording.number}"):
            return new, sentences
    raise RatchetError(
        "ref-moved",
        f"{recording.branch} moved {_RACES} times while attempt {recording.number} was committed; the next command "
        "tries again",
    )


def _accepting_commit(place: Place, recording: Recording) -> str | None:
    branch = git.commit_of(place.repository, recording.branch)
    if branch is None:
        return None
    digits = recording.candidate_sha256[: messages.KERNEL_DIGITS]
    accepted = history.accepted_at_head(place, (branch,), (recording.judged_against,))
    return next(
        (accept.commit for accept in accepted if (accept.number, accept.kernel_digits) == (recording.number, digits)),
        None,
    )


def _obstacle(place: Place, recording: Recording, head: str) -> str | None:
    """The reason why the accept cannot be committed on top of HEAD, or None."""
    repository = place.repository
    branch = git.branch_or_none(repository)
    if branch is None:
        return "HEAD was detached meanwhile"
    if branch != recording.branch:
        return f"{branch} was checked out meanwhile (the attempt was judged on {recording.branch or 'no branch'})"
    unfinished = git.operation_in_progress(repository)
    if unfinished:
        return f"{unfinished[0]} was begun meanwhile"
    if head == recording.judged_against:
        return None
    if not git.is_ancestor(repository, recording.judged_against, head):
        return f"{branch} no longer contains {recording.judged_against[:12]}, which the attempt was judged against"
    touched = git.differing_paths(repository, recording.judged_against, head, recording.guarded)
    return f"{', '.join(touched)} changed on {branch} meanwhile" if touched else None


def _changes(place: Place, recording: Recording, head: str) -> tuple[dict[str, git.TreeEntry], list[str]]:
    """Tree entries: kernel.py, its helpers, the attempts' files that HEAD lacks, the notes; and sentences on files.

    The sentences name the files that are left out, and those that are deleted.
    """
    changes = {
        path: git.TreeEntry(mode=recording.kernel_mode if path == place.kernel else "100644", blob=blob)
        for path, blob in blobs(place, recording.candidate_blob).items()
    }
    sentences = []
    if dropped := _dropped(place, recording, head):
        changes |= dict.fromkeys(dropped, write.deletion(head))
        sentences.append(f"{', '.join(dropped)}: deleted on the branch too, because kernel.py no longer imports it")
    committed = git.entries(place.repository, head, place.experiments)
    for name in experiments.names_in(place.experiments_directory):
        path = place.experiments_directory / name
        if name in committed or path.is_symlink():
            continue
        data = path.read_bytes()
        try:
            codec.decode_attempt(data, f"{place.experiments}/{name}")
        except codec.RecordError as error:
            sentences.append(f"not committed: {error}")
            continue
        blob = write.write_blob(place.repository, data, f"{place.experiments}/{name}")
        changes[f"{place.experiments}/{name}"] = git.TreeEntry(blob=blob)
    for name in notes.FILES:
        path = place.experiments_directory / name
        if path.is_file() and not path.is_symlink():
            blob = write.write_blob(place.repository, path.read_bytes(), f"{place.experiments}/{name}")
            if name not in committed or committed[name].blob != blob:
                changes[f"{place.experiments}/{name}"] = git.TreeEntry(blob=blob)
    return changes, sentences


def _dropped(place: Place, recording: Recording, head: str) -> tuple[str, ...]:
    """The helpers of the candidate at `judged_against` that this one does not import and that the user deleted.

    A file that the index does not show as deleted (sparse checkout, another version staged) or that another commit
    changed meanwhile is not among them.
    """
    repository = place.repository
    before = history.candidate_at(place, recording.judged_against)
    kept = blobs(place, recording.candidate_blob)
    paths = [path for path in map(place.inside, before.files if before else ()) if path not in kept]
    staged = index.index_entries(repository, paths) if paths else {}

    def is_deleted(path: str) -> bool:
        old, mine = git.entry_at(repository, recording.judged_against, path), staged.get(path)
        is_as_committed = mine is None or ((mine.entry, mine.stages) == (old, ("0",)) and mine.tag.upper() != "S")
        return (
            is_as_committed and git.entry_at(repository, head, path) == old and not os.path.lexists(place.root / path)
        )

    return tuple(filter(is_deleted, paths))


def refresh_index(place: Place, recording: Recording, commit: str) -> list[str]:
    """Updates the user's index at the paths of the accept, except where something else is staged; returns sentences."""
    repository = place.repository
    if git.commit_of(repository, "HEAD") is None or git.branch_or_none(repository) != recording.branch:
        return []
    base = f"{commit}^"
    paths = tuple(
        dict.fromkeys((*blobs(place, recording.candidate_blob), *git.differing_paths(repository, base, commit, ())))
    )
    staged = index.index_entries(repository, paths)
    changes, sentences = {}, []
    for path in paths:
        new, old, mine = git.entry_at(repository, commit, path), git.entry_at(repository, base, path), staged.get(path)
        if new is None:
            if mine is not None and (mine.entry, mine.stages) == (old, ("0",)):
                changes[path] = write.deletion(commit)
        elif mine is None or (mine.stages == ("0",) and _is_ours(repository, mine.entry, old, new)):
            changes[path] = new
        else:
            sentences.append(f"{path} stays as you staged it; the accepted file differs")
    write.set_index_entries(repository, changes)
    return sentences


def _is_ours(repository: Repo, staged: git.TreeEntry, old: git.TreeEntry | None, new: git.TreeEntry) -> bool:
    """True if the index holds HEAD's old content, the accepted content, or the mark of `git add --intent-to-add`."""
    return (
        staged == old or staged.blob == new.blob or (old is None and staged.blob == git.hash_of(repository, b"", "x"))
    )


def blobs(place: Place, text: str) -> dict[str, str]:
    """The blobs of a candidate's files by path, from the blob of its whole text."""
    files = Candidate(text=git.in_working_tree_form(place.repository, text, place.kernel)).files
    if len(files) == 1:
        return {place.kernel: text}
    paths = {place.inside(name): data for name, data in files.items()}
    return {path: write.write_blob(place.repository, data, path) for path, data in paths.items()}
