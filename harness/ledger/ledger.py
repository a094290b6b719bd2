"""The ledger in git: it names the champion, and records attempts so that nothing is lost whatever happens."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path

from harness.candidate import Candidate
from harness.errors import RatchetError
from harness.ledger import champion as champions
from harness.ledger import git, history, journal, recording, recovery
from harness.ledger import lock as locking
from harness.ledger import notes as note_files
from harness.ledger.git import write
from harness.ledger.journal import Journal
from harness.ledger.paths import Place, place_of
from harness.ledger.recording import Recorded
from harness.records import Attempt, Note, Row


@dataclass(slots=True)
class Ledger:
    """The attempts of one contest. Everything that writes needs `with ledger.lock():`.

    To read attempts, call the functions of `history`, `notes` and `bulk_read` with its `place`.
    """

    place: Place
    _is_locked: bool = field(default=False, init=False)
    _has_begun: bool = field(default=False, init=False)

    @classmethod
    def open(cls, contest_directory: Path) -> "Ledger":
        """The ledger of the contest in a folder. Raises RatchetError if there is no usable repository."""
        return cls(place=place_of(contest_directory))

    # --- reading ---

    def champion(self) -> Attempt | None:
        """The attempt whose kernel is the champion on this branch, or None if there is no champion."""
        holder = champions.holder(self.place)
        return holder.attempt if holder else None

    def champion_candidate(self) -> Candidate:
        """The champion's files, as a checkout writes them. Raises RatchetError `no-champion`."""
        holder = champions.holder(self.place)
        if holder is None:
            raise RatchetError(
                "no-champion", f"expected a champion of contest {self.place.name} on this branch, got none"
            )
        if holder.blob is None:
            return history.candidate(self.place, holder.attempt.number)
        return history.candidate_at(self.place, holder.commit or "HEAD") or Candidate(text=b"")

    def candidate_here(self) -> Candidate:
        """The candidate in the working tree. Raises OSError if there is no kernel.py."""
        return Candidate.in_folder(self.place.kernel_path.parent)

    def champion_commit(self) -> str | None:
        """The branch commit that accepted the champion; None if the history lacks it (a shallow or squashed branch)."""
        holder = champions.holder(self.place)
        return holder.commit if holder else None

    def kernel_changed_since(self, champion: Attempt) -> bool:
        """True unless the `champion` holds the title at HEAD and its kernel.py is there, unchanged by other commits."""
        holder = champions.holder(self.place)
        if holder is None or holder.attempt.number != champion.number or holder.blob is None:
            return True
        return history.candidate_at(self.place, "HEAD") != self.champion_candidate()

    def is_unfinished(self) -> bool:
        """True while an attempt is unfinished, because it is still being judged or because it was killed."""
        return journal.path(self.place).exists()

    def next_number(self) -> int:
        """The number that the next attempt gets."""
        return history.last_number(self.place) + 1

    # --- writing ---

    @contextmanager
    def lock(self, purpose: str = "an attempt") -> Iterator[None]:
        """Locks the repository for one attempt. Raises RatchetError `busy` at once if another process has the lock."""
        otherwise = "; meanwhile, another clone of the repository can work on another contest (docs/LOOP.md)"
        with locking.hold(self._lock_path, f"{purpose}, contest {self.place.name}", otherwise=otherwise):
            self._is_locked = True
            try:
                yield
            finally:
                self._is_locked = False

    @property
    def _lock_path(self) -> Path:
        return git.common_directory(self.place.repository) / "ratchet" / "lock"

    def begin(self, original: Candidate, purpose: str) -> None:
        """Records the user's candidate before an attempt, so that `recover` can put it back.

        Raises RatchetError `unfinished` if an earlier attempt has not been recovered, and `not-a-file` if kernel.py is
        a symbolic link, because git would record the link instead of the file's contents.
        """
        self._require_lock()
        if self.place.kernel_path.is_symlink():
            raise RatchetError(
                "not-a-file",
                f"expected {self.place.kernel_path} to be a file, got a symbolic link: replace the link by a copy of "
                "the file",
            )
        if journal.read(self.place) is not None:
            raise RatchetError("unfinished", "an earlier attempt is unfinished; ./ratchet.sh status recovers it")
        branch = git.branch_or_none(self.place.repository) or ""
        journal.write(self.place, Journal(purpose=purpose, branch=branch, original=original.text))
        self._has_begun = True

    def restore(self, candidate: Candidate) -> None:
        """Writes each file of `candidate` atomically, with its old permissions; the candidate's hash is journalled."""
        begun = journal.read(self.place) if self._is_locked else None
        if begun is not None:
            journal.write(self.place, recording.with_written(self.place, begun, candidate))
        recording.write_files(self.place, candidate)

    def abandon(self) -> None:
        """Ends an unrecorded attempt: kernel.py is the user's again, the journal is removed."""
        self._require_lock()
        begun = journal.read(self.place)
        if begun is not None and begun.recording is None:
            recording.undo(self.place, begun)

    def record(
        self, attempt: Attempt, row: Row, candidate: Candidate, new_branch_commit: bool, guarded: tuple[str, ...] = ()
    ) -> Recorded:
        """Puts one decided attempt into the ledger and returns its commits.

        Effects: one commit on the log, and the attempt's file in experiments/. With `new_branch_commit`, there is also
        one commit on the branch, and the index is updated at its paths. Without it, kernel.py becomes the champion's
        again, if there is a champion and the file still is the one that was judged. `guarded` are further files (from
        the top) that must not have changed on the branch since `attempt.judged_against`; the candidate's files and
        prepare.py are always guarded.

        Raises RatchetError `branch-moved` and `ref-moved` as `recording.finish` does. After any other error, `recover`
        finishes the attempt if it is journalled as decided; otherwise nothing was recorded.
        """
        self._require_lock()
        branch = git.branch_or_none(self.place.repository) or ""
        begun = journal.read(self.place) or Journal(purpose=f"attempt {attempt.number}", branch=branch)
        prepared = recording.prepare(
            self.place, attempt, row, candidate, accept=new_branch_commit, branch=begun.branch, guarded=guarded
        )
        if not new_branch_commit and champions.holder(self.place):
            champion = self.champion_candidate()
            blob = write.write_blob(self.place.repository, champion.text, self.place.kernel)
            prepared = replace(prepared, restore_blob=blob)
        decided = replace(begun, recording=prepared)
        journal.write(self.place, decided)
        return recording.finish(self.place, decided)

    def keep_notes(self, notes: Sequence[Note]) -> None:
        """Adds notes to experiments/notes.jsonl; `log_notes` puts them into the log as well.

        If the process is killed between the two calls, the notes are in the file, where the next `log_notes` finds
        them.
        """
        self._require_lock()
        note_files.keep(self.place, notes)

    def log_notes(self) -> None:
        """Puts the notes that only experiments/notes.jsonl or attempts.jsonl has into the log, in one commit."""
        self._require_lock()
        note_files.log_pending(self.place)

    def recovered(self) -> tuple[str, ...]:
        """The sentences of `recover`, or its error if it fails, or a note if another process is at work."""
        try:
            with self.lock("recovery"):
                return self.recover()
        except RatchetError as error:
            if error.kind != "busy":
                return (str(error),)
            holder = locking.holder(self._lock_path)
            return (f"an attempt is under way and not recorded yet: {holder}",) if holder else ()

    def recover(self) -> tuple[str, ...]:
        """The sentences of `recovery.recover`, which finishes or undoes an unfinished attempt. Raises RatchetError."""
        self._require_lock()
        return recovery.recover(self.place, is_own_attempt=self._has_begun)

    def _require_lock(self) -> None:
        if not self._is_locked:
            raise RuntimeError("the ledger is written without its lock: use `with ledger.lock():`")
