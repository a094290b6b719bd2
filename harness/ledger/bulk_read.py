"""Reads all attempts of a contest, with records and kernels, in a few git calls instead of several per attempt."""

from collections.abc import Iterator, Sequence, Set
from dataclasses import dataclass

from harness.candidate import Candidate, may_have_helpers
from harness.errors import RatchetError
from harness.ledger import diff, experiments, git, history, messages
from harness.ledger.codec import RecordError, decode_attempt, decode_attempt_row, decode_head_row, identity
from harness.ledger.paths import KERNEL_NAME, RECORD_NAME, Place
from harness.records import Attempt, Row

# The number of commits to read in one process, which holds their records and kernels in memory.
_BATCH = 200


@dataclass(frozen=True, slots=True, kw_only=True)
class Held:
    """A row with its record and candidate, each None if it is missing; `complaint` says why the record is missing."""

    row: Row
    attempt: Attempt | None
    candidate: Candidate | None
    complaint: str = ""


def read_all(place: Place, rows: Sequence[Row]) -> tuple[Held, ...]:
    """The record and the kernel of each of `rows`, in their order, as git stores them.

    They are read from the log. Attempts that the log lacks are read from experiments/ or attempts.jsonl, in the working
    tree or at HEAD. A kernel that neither log nor branch has is rebuilt from its diff, and used only if its hash is
    right.
    """
    held_by_identity = {identity(stored.row): stored for stored in _logged(place)}
    elsewhere = {row.number for row in rows if identity(row) not in held_by_identity}
    held_by_identity |= {identity(stored.row): stored for stored in _filed(place, elsewhere)} if elsewhere else {}
    candidates: dict[str, Candidate] = {
        stored.attempt.kernel_sha256: stored.candidate
        for stored in held_by_identity.values()
        if stored.attempt is not None and stored.candidate is not None
    }
    candidates |= _accepted(place, [row for row in rows if row.kernel_sha256 not in candidates])
    result = []
    for row in rows:
        stored = held_by_identity.get(identity(row))
        if stored is None:
            result.append(Held(row=row, attempt=None, candidate=None, complaint="its record is not in this clone"))
            continue
        candidate = candidates.get(row.kernel_sha256)
        if candidate is None and stored.attempt is not None:
            candidate = _rebuilt(stored.attempt, result, candidates)
        if candidate is not None:
            candidates[row.kernel_sha256] = candidate
        result.append(Held(row=row, attempt=stored.attempt, candidate=candidate, complaint=stored.complaint))
    return tuple(result)


def _logged(place: Place) -> Iterator[Held]:
    try:
        commits = history.log_commits(place)
    except RatchetError:
        # The log is damaged. `history.rows` has reported this, and the attempts in files are still shown.
        return
    for start in range(0, len(commits), _BATCH):
        batch = commits[start : start + _BATCH]
        names = [f"{commit.id}:{name}" for commit in batch for name in (RECORD_NAME, KERNEL_NAME)]
        blobs = git.readable_blobs(place.repository, names)
        for commit, data, kernel in zip(batch, blobs[::2], blobs[1::2], strict=True):
            where = f"{RECORD_NAME} in log commit {commit.id[:12]}"
            try:
                row = messages.row_of(commit.message, where)
            except RecordError:
                continue
            yield _decode(row, data, kernel, where)


def _filed(place: Place, numbers: Set[int]) -> Iterator[Held]:
    """The attempts with these numbers in files; files of the working tree come last and so replace files at HEAD."""
    files, _ = history.packed_files(place)
    for record in (record for file in reversed(files) for record in file.records if record.number in numbers):
        try:
            row, document = record.row(), record.document()
        except RecordError:
            continue
        yield _decode(row, document, None, record.where)
    committed = {
        name: entry for name, entry in history.committed_names(place).items() if experiments.number_of(name) in numbers
    }
    blobs = zip(
        committed, git.readable_blobs(place.repository, [entry.blob for entry in committed.values()]), strict=True
    )
    here = (
        name for name in experiments.names_in(place.experiments_directory) if experiments.number_of(name) in numbers
    )
    for name, data in (*blobs, *((name, None) for name in here)):
        where = f"{place.experiments}/{name}"
        try:
            # `history.rows` has already named the files that cannot be read.
            data = data or experiments.bytes_of(place.experiments_directory / name)
            row = decode_head_row(data or b"", where) or decode_attempt_row(data or b"", where)
        except RecordError:
            continue
        yield _decode(row, data, None, where)


def _decode(row: Row, data: bytes | None, text: bytes | None, where: str) -> Held:
    attempt, complaint = None, f"{where} cannot be read; `fsck` says what to do"
    if data is not None:
        try:
            attempt, complaint = decode_attempt(data, where), ""
        except RecordError as error:
            complaint = str(error)
    candidate = None if text is None else Candidate(text=text)
    return Held(row=row, attempt=attempt, candidate=candidate, complaint=complaint)


def _accepted(place: Place, rows: Sequence[Row]) -> dict[str, Candidate]:
    """The candidates in the branch's accepting commits, by hash."""
    commits = [row.commit for row in rows if row.is_on_branch]
    blobs = git.readable_blobs(place.repository, [f"{commit}:{place.kernel}" for commit in commits])
    candidates = (
        history.candidate_at(place, commit) if may_have_helpers(blob) else Candidate(text=blob)
        for commit, blob in zip(commits, blobs, strict=True)
        if blob is not None
    )
    return {candidate.sha256: candidate for candidate in candidates if candidate is not None}


def _rebuilt(attempt: Attempt, before: Sequence[Held], candidates: dict[str, Candidate]) -> Candidate | None:
    """The champion's candidate with the attempt's diff applied; None unless the result has the judged text's hash."""
    old: Candidate | None = Candidate(text=b"")
    if attempt.champion is not None:
        number = attempt.champion.attempt
        hashes = [stored.row.kernel_sha256 for stored in before if stored.row.number == number]
        old = next((candidates[digest] for digest in hashes if digest in candidates), None)
    if old is None:
        return None
    try:
        new = Candidate(text=diff.applied(old.text, attempt.diff))
    except RatchetError:
        return None
    return new if new.sha256 == attempt.kernel_sha256 else None
