"""The rows, attempts and kernels of a contest, from the union of its log, branch, experiments/ and attempts.jsonl."""

import itertools
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

from harness.candidate import Candidate
from harness.errors import RatchetError
from harness.ledger import diff, experiments, git, messages, notes, packed
from harness.ledger.codec import RecordError, decode_attempt, decode_attempt_row, identity
from harness.ledger.paths import KERNEL_NAME, RECORD_NAME, Place
from harness.records import Attempt, Row

# The most digits of an attempt's number: every number of 18 digits fits 64 bits.
_DIGITS = 18


@dataclass(frozen=True, slots=True, kw_only=True)
class Accepted:
    """A branch commit that accepted an attempt of this contest, or that moved the title.

    If the commit is an undo, `undoes` is the attempt that was taken back. If it is a revoke, `revokes` are the attempts
    that lost the title.
    """

    number: int
    message: str
    commit: str
    kernel_digits: str
    undoes: int | None
    revokes: tuple[int, ...] = ()

    @property
    def takes_back(self) -> tuple[int, ...]:
        """The attempts that this commit took the title from."""
        return self.revokes if self.undoes is None else (self.undoes,)


# --- rows --------------------------------------------------------------------------------------


def rows(place: Place, limit: int | None = None) -> tuple[tuple[Row, ...], tuple[str, ...]]:
    """The rows of the newest `limit` attempts (None: all), newest last, and sentences about skipped or doubtful rows.

    The rows are the union of the log and of experiments/ and attempts.jsonl in the working tree and at HEAD. A row's
    `commit` is the branch commit of an accept, if a branch has it, or else the log commit, or else empty.
    """
    try:
        logged, skipped = log_rows(place, limit)
    except RatchetError as error:
        # An object of the log is damaged or missing. The attempts in experiments/ are shown nevertheless.
        logged, skipped = [], [f"skipped: the log {place.log_ref}: {error}; `fsck` says what to do"]
    seen = {identity(row) for row in logged}
    filed, complaints = file_rows(place, limit)
    extra = [row for row in filed if identity(row) not in seen]
    ordered = sorted([*logged, *extra], key=lambda row: row.number)
    chosen = ordered if limit is None else ordered[max(0, len(ordered) - limit) :]
    accepted = accepted_anywhere(place) if any(map(_has_branch_commit, chosen)) else ()
    commits = {(accept.number, accept.kernel_digits): accept.commit for accept in reversed(accepted)}
    located = []
    for row in chosen:
        key = (row.number, row.kernel_sha256[: messages.KERNEL_DIGITS])
        if _has_branch_commit(row):
            # An attempt without a log commit comes from a file. If no branch has its accept, it is unknown whether one
            # had it, because a shallow clone or a squashed branch may lack the accept.
            on_branch = True if key in commits else False if row.commit else None
            row = replace(row, commit=commits.get(key, row.commit), is_on_branch=on_branch)
        located.append(row)
    doubled = [row.number for row, following in itertools.pairwise(located) if row.number == following.number]
    notes = [
        f"attempt {number} exists more than once: two clones used this number; both are shown" for number in doubled
    ]
    notes += [
        f"attempt {row.number}: its outcome and its figures cannot all be true, so its record was edited; run fsck"
        for row in located
        if _is_impossible(row)
    ]
    return tuple(located), (*skipped, *complaints, *notes)


def _is_impossible(row: Row) -> bool:
    """True for impossible figures: an accept that is not faster than its champion, or a time beyond the chip's peak."""
    is_gain = row.outcome == "accept" and row.kind == "experiment"
    return (
        (is_gain and row.time_ratio is not None and row.time_ratio >= 1)
        or (row.util is not None and row.util > 1)
        or (row.gap_fraction is not None and row.gap_fraction < 0)
    )


def _has_branch_commit(row: Row) -> bool:
    """True for an accepted attempt, and for a revoke, even if it left the contest without a champion."""
    return row.outcome == "accept" or row.kind == "revoke"


def log_rows(place: Place, limit: int | None = None) -> tuple[list[Row], list[str]]:
    """The rows in the log, newest first, each with its log commit, and sentences about skipped commits."""
    logged, skipped = [], []
    for commit in log_commits(place, limit):
        where = f"log commit {commit.id[:12]}"
        try:
            logged.append(replace(messages.row_of(commit.message, where), commit=commit.id))
        except RecordError as error:
            skipped.append(f"skipped: {error}")
    return logged, skipped


def log_commits(place: Place, limit: int | None = None, containing: str = "") -> tuple[git.Commit, ...]:
    """The log's commits, newest first, without the commits that hold notes; none if there is no log here."""
    tip = git.commit_of(place.repository, place.log_ref)
    asked = limit
    while tip is not None:
        commits = git.log(place.repository, (tip,), limit=asked, first_parent=True, containing=containing)
        attempts = tuple(commit for commit in commits if not notes.is_notes(commit.message))
        if limit is None or asked is None or len(attempts) >= limit or len(commits) < asked:
            return attempts[:limit]
        asked *= 2
    return ()


def file_rows(place: Place, limit: int | None = None) -> tuple[list[Row], list[str]]:
    """The rows in experiments/ and attempts.jsonl, of the working tree or else of HEAD, newest first, and complaints.

    With a limit, there are at least that many rows, if they exist.
    """
    filed: list[Row] = []
    skipped: list[str] = []
    committed = committed_names(place)
    names = _all_names(place, committed)
    chunk = limit or len(names) or 1
    for start in range(0, len(names), chunk):
        for row in _rows_of(place, names[start : start + chunk], committed):
            if isinstance(row, Row):
                filed.append(row)
            else:
                skipped.append(f"skipped: {row}")
        if limit is not None and len(filed) >= limit:
            break
    seen = set(map(identity, filed))
    for row in _packed_rows(place, limit):
        if not isinstance(row, Row):
            skipped.append(f"skipped: {row}")
        elif (row_identity := identity(row)) not in seen:
            seen.add(row_identity)
            filed.append(row)
    return sorted(filed, key=lambda row: -row.number), skipped


def packed_files(place: Place) -> tuple[tuple[packed.Packed, ...], tuple[RecordError, ...]]:
    """attempts.jsonl of the working tree, then of HEAD where it differs, and complaints about unreadable lines."""
    try:
        files = packed.files(place)
    except RecordError as error:
        at_head = packed.at_head(place)
        return () if at_head is None else (at_head,), (error,)
    return files, tuple(complaint for file in files for complaint in file.complaints)


def _packed_rows(place: Place, limit: int | None) -> Iterator[Row | RecordError]:
    """The newest `limit` rows in attempts.jsonl of the working tree, then of HEAD; a row in both files comes twice."""
    files, complaints = packed_files(place)
    yield from complaints
    for file in files:
        read = 0
        for record in sorted(file.records, key=lambda record: -record.number):
            if read == limit:
                break
            try:
                yield record.row()
                read += 1
            except RecordError as error:
                yield error


def _rows_of(place: Place, names: Iterable[str], committed: dict[str, git.TreeEntry]) -> Iterable[Row | RecordError]:
    """A row or a complaint for each file. If the working tree's file is missing or damaged, HEAD's is used."""
    failures: dict[str, RecordError] = {}
    for name in names:
        where = f"{place.experiments}/{name}"
        path = place.experiments_directory / name
        try:
            if name in committed and not path.exists():
                raise RecordError("missing-record", f"{where} is not in the working tree")
            yield _numbered(experiments.row_in(path, where), name, where)
        except RecordError as error:
            failures[name] = error
    standby = [name for name in failures if name in committed]
    for name, data in zip(
        standby, git.read_blobs(place.repository, [committed[name].blob for name in standby]), strict=True
    ):
        where = f"{place.experiments}/{name} at HEAD"
        try:
            yield _numbered(decode_attempt_row(data or b"", where), name, where)
        except RecordError as error:
            failures[f"{name} at HEAD"] = error
        if failures[name].kind == "missing-record":
            del failures[name]
    yield from failures.values()


def _all_names(place: Place, committed: Iterable[str]) -> tuple[str, ...]:
    return tuple(experiments.newest_first({*experiments.names_in(place.experiments_directory), *committed}))


def _numbered(row: Row, name: str, where: str) -> Row:
    if row.number != experiments.number_of(name):
        raise RecordError("foreign-record", f"{where} holds attempt {row.number}: the name and the record disagree")
    return row


def committed_names(place: Place) -> dict[str, git.TreeEntry]:
    """The attempts' files in experiments/ at HEAD, by name."""
    head = git.commit_of(place.repository, "HEAD")
    files = git.entries(place.repository, head, place.experiments) if head else {}
    return {name: entry for name, entry in files.items() if experiments.number_of(name) is not None}


def last_number(place: Place) -> int:
    """The highest attempt number in use: in the log, or in a file of the ratchet, even in an unreadable one."""
    logged, _ = log_rows(place, 1)
    highest = logged[0].number if logged else 0
    committed = committed_names(place)
    for name in _all_names(place, committed):
        number = experiments.number_of(name) or 0
        if number <= highest:
            break
        # A file that the ratchet did not write must not make the numbers jump, even if its name is that of an attempt's
        # file.
        if any(isinstance(row, Row) or row.kind != "foreign-record" for row in _rows_of(place, (name,), committed)):
            highest = number
            break
    return max(highest, _last_packed_number(place), notes.last_number(place))


def _last_packed_number(place: Place) -> int:
    """The highest number in attempts.jsonl, including lines of the ratchet that can no longer be read."""
    files, _ = packed_files(place)
    highest = max((number for file in files for number in file.damaged), default=0)
    records = (record for file in files for record in file.records if record.number > highest)
    for record in sorted(records, key=lambda record: -record.number):
        try:
            return record.row().number
        except RecordError as error:
            if error.kind != "foreign-record":
                return record.number
    return highest


# --- the branch --------------------------------------------------------------------------------


def accepted_at_head(place: Place, tips: Iterable[str] = ("HEAD",), hidden: Iterable[str] = ()) -> tuple[Accepted, ...]:
    """The accepts of this contest in the history of `tips`, newest first, from the trailers of the commits.

    () in a repository without a commit.
    """
    if git.commit_of(place.repository, "HEAD") is None:
        return ()
    accepts = []
    line = f"{messages.CONTEST}: {place.name}"
    for commit in git.log(place.repository, tuple(tips), hidden=tuple(hidden), containing=line):
        trailers = messages.trailers(commit.message)
        number = _number(trailers.get(messages.ATTEMPT, ""))
        if trailers.get(messages.CONTEST) == place.name and number is not None:
            accepts.append(
                Accepted(
                    number=number,
                    message=commit.message,
                    commit=commit.id,
                    kernel_digits=trailers.get(messages.KERNEL, ""),
                    undoes=_number(trailers.get(messages.UNDOES, "")),
                    revokes=tuple(
                        revoked
                        for word in trailers.get(messages.REVOKES, "").split()
                        if (revoked := _number(word)) is not None
                    ),
                )
            )
    return tuple(accepts)


def _number(word: str) -> int | None:
    """The attempt's number in a word of a message; None for a word that no ratchet wrote."""
    return int(word) if word.isascii() and word.isdigit() and len(word) <= _DIGITS else None


def accepted_anywhere(place: Place) -> tuple[Accepted, ...]:
    """The accepts in HEAD's history, then the accepts that only other branches have."""
    return accepted_at_head(place) + accepted_at_head(place, ("--branches",), ("HEAD",))


# --- one attempt -------------------------------------------------------------------------------


def log_commit_of(place: Place, number: int) -> str | None:
    """The log commit of an attempt, or None."""
    for commit in log_commits(place, containing=f'"number": {number},'):
        try:
            if messages.row_of(commit.message, commit.id).number == number:
                return commit.id
        except RecordError:
            continue
    return None


def attempt(place: Place, number: int) -> Attempt:
    """The record of one attempt: from the log, else from experiments/ or attempts.jsonl.

    Raises RatchetError `unknown-attempt`, or RecordError if none of its documents can be read.
    """
    complaint: RecordError | None = None
    for data, where in _records(place, number):
        try:
            if isinstance(data, RecordError):
                raise data
            record = decode_attempt(data, where)
        except RecordError as error:
            complaint = complaint or error
            continue
        if record.number == number:
            return record
    if complaint is not None:
        raise complaint
    last = last_number(place)
    range_in_words = f"1 to {last}" if last else "which has none yet"
    remedy = "./ratchet.sh results lists them" if last else './ratchet.sh "experiment: baseline" makes the first'
    raise RatchetError(
        "unknown-attempt",
        f"expected an attempt of contest {place.name}, {range_in_words}, got {number}: there is no attempt "
        f"{number}; {remedy}",
    )


def _records(place: Place, number: int) -> Iterator[tuple[bytes | RecordError, str]]:
    """Yields every document of an attempt, or the error if it cannot be read, and a description of its location."""
    commit = log_commit_of(place, number)
    if commit is not None:
        data = git.file_at(place.repository, commit, RECORD_NAME)
        if data is not None:
            yield data, f"{RECORD_NAME} in log commit {commit[:12]}"
    for name in experiments.names_in(place.experiments_directory):
        if experiments.number_of(name) == number:
            data = experiments.bytes_of(place.experiments_directory / name)
            if data is not None:
                yield data, f"{place.experiments}/{name}"
    for name, entry in committed_names(place).items():
        if experiments.number_of(name) == number:
            data = git.read_blobs(place.repository, (entry.blob,))[0]
            yield data or b"", f"{place.experiments}/{name} at HEAD"
    for record in (record for file in packed_files(place)[0] for record in file.records if record.number == number):
        try:
            yield record.document(), record.where
        except RecordError as error:
            yield error, record.where


def candidate(
    place: Place, number: int, accepted: Sequence[Accepted] | None = None, rebuilt: dict[int, Candidate] | None = None
) -> Candidate:
    """The candidate of an attempt, as a checkout would write it.

    It is read from the log or from the commit that accepted the attempt; otherwise it is rebuilt by applying the
    attempt's diff to the kernel of its champion. Callers that need many candidates pass `accepted`, the accepts, and
    `rebuilt`, a dictionary that keeps rebuilt candidates. Raises RatchetError `unknown-attempt` or `no-kernel`.
    """
    if rebuilt is None:
        rebuilt = {}
    if number in rebuilt:
        return rebuilt[number]
    commit = log_commit_of(place, number)
    blob = git.blob_ids(place.repository, (f"{commit}:{KERNEL_NAME}",))[0] if commit is not None else None
    if blob is not None:
        return Candidate(text=git.in_working_tree_form(place.repository, blob, place.kernel))
    if accepted is None:
        accepted = accepted_anywhere(place)
    for accept in accepted:
        at_accept = candidate_at(place, accept.commit) if accept.number == number else None
        if at_accept is not None:
            return at_accept
    rebuilt[number] = _rebuilt(place, attempt(place, number), accepted, rebuilt)
    return rebuilt[number]


def candidate_at(place: Place, commit: str) -> Candidate | None:
    """The candidate in a commit of a branch, as a checkout would write it; None if there is no kernel.py."""

    def read(name: str) -> bytes | None:
        path = place.inside(name)
        blob = git.blob_ids(place.repository, (f"{commit}:{path}",))[0]
        return None if blob is None else git.in_working_tree_form(place.repository, blob, path)

    kernel = read(KERNEL_NAME)
    return None if kernel is None else Candidate.of_kernel(kernel, read)


def _rebuilt(place: Place, attempt: Attempt, accepted: Sequence[Accepted], rebuilt: dict[int, Candidate]) -> Candidate:
    explained = f"the kernel.py of attempt {attempt.number} is not in this clone and cannot be rebuilt from its diff"
    fetch = f"{git.shell_command(place.repository)} fetch REMOTE {place.log_ref}:{place.log_ref}"
    remedy = f"fetch the log from the repository where it was made: {fetch}"
    old = b""
    if attempt.champion is not None:
        champion = candidate_at(place, attempt.champion.commit) if attempt.champion.commit else None
        if champion is not None:
            old = champion.text
        elif attempt.champion.attempt < attempt.number:
            old = candidate(place, attempt.champion.attempt, accepted, rebuilt).text
        else:
            # No ratchet wrote such a record, and following its references would not end.
            reason = f"its record names as champion attempt {attempt.champion.attempt}, which is not earlier"
            raise RatchetError("no-kernel", f"{explained}: {reason}; {remedy}")
    try:
        new = Candidate(text=diff.applied(old, attempt.diff))
    except RatchetError as error:
        raise RatchetError("no-kernel", f"{explained}: {error}; {remedy}") from error
    if new.sha256 != attempt.kernel_sha256:
        raise RatchetError("no-kernel", f"{explained}: the result is not the kernel that was judged; {remedy}")
    return new
