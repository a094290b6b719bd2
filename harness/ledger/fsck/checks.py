"""Checks that the places of a ledger agree with each other; each disagreement is a finding."""

import hashlib
import math
import shlex
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence, Set

from harness.advice import report as reporting
from harness.candidate import Candidate
from harness.errors import RatchetError
from harness.hardware import chip
from harness.judge.key import key_digest
from harness.ledger import experiments, git, history, journal, messages, recovery
from harness.ledger import lock as locking
from harness.ledger.codec import RecordError, decode_attempt, decode_attempt_row, encode_attempt, encode_row, value_text
from harness.ledger.fsck.inventory import HeldAttempt, choose, fetch, finding
from harness.ledger.git import locks
from harness.ledger.paths import KERNEL_NAME, RECORD_NAME, Place
from harness.records import Finding, Key, Row

# JSON keeps doubles exactly, but another version may add the terms of a sum in another order.
_RELATIVE_TOLERANCE = 1e-9
# Errors from numbers that no ratchet wrote: too large for a double, or a division by zero.
NOT_COMPUTED = (RatchetError, ValueError, ArithmeticError, LookupError)
# Figures of the report whose formulas a later judge may change. The score is missing here, because its formula is
# published and does not change.
_OPINIONS = ("util", "regime", "gap_fraction")


def numbers(
    place: Place, logged: Sequence[HeldAttempt], filed: Sequence[HeldAttempt], *, all_read: bool
) -> Iterator[Finding]:
    """Findings if the log's numbers repeat or do not rise by one, or if a number is in neither the log nor the files.

    A log commit whose second parent is not the commit that its record names is a finding, too.
    """
    times = Counter(record.row.number for record in logged)
    before: HeldAttempt | None = None
    for record in logged:
        number = record.row.number
        if times[number] > 1:
            yield finding(
                "number-twice",
                record.where,
                f"attempt {number} is in the log {times[number]} times",
                f"the ratchet never does that: somebody else wrote to {place.log_ref}; {fetch(place)}",
            )
        elif before is not None and all_read and number != before.row.number + 1:
            yield finding(
                "number-order",
                record.where,
                f"expected attempt {before.row.number + 1} after {before.row.number}, got {number}",
                f"if a record in experiments/ was unreadable when attempt {number} began, nothing is wrong; otherwise "
                f"{fetch(place)}",
            )
        parents = record.commit.parents if record.commit else ()
        if len(parents) == 2 and parents[1] != record.attempt.judged_against:
            yield finding(
                "judged-against",
                record.where,
                f"it was judged against {record.attempt.judged_against[:12]}, but its parent is {parents[1][:12]}",
                f"the record is valid, the commit's parent is not; {fetch(place)}",
            )
        before = record
    missing = _ranges_missing({record.row.number for record in (*logged, *filed)})
    if missing and all_read:
        yield finding(
            "missing-attempt",
            place.name,
            f"attempt numbers that neither the log nor a file has: {_listed(missing)}",
            fetch(place),
        )


def derived(place: Place, record: HeldAttempt, notes: list[str]) -> Iterator[Finding]:
    """Findings if the attempt is of another contest, or its row differs from the one computed anew from the record."""
    attempt, row = record.attempt, record.row
    if attempt.contest != place.name:
        yield finding(
            "other-contest",
            record.where,
            f"it is an attempt of contest {attempt.contest}",
            f"it does not belong in the ledger of {place.name}: move the file to its own contest",
        )
    try:
        report = reporting.report(attempt.evidence, chip(attempt.evidence.chip))
        anew = reporting.row(attempt, report, key_digest(attempt.key))
    except NOT_COMPUTED as error:
        yield finding(
            "unknown-chip" if isinstance(error, RatchetError) else "corrupt-record",
            record.where,
            f"its numbers cannot be derived again: {error}",
            "update the ratchet; if that does not help, its record was edited",
        )
        return
    for name in Row.__dataclass_fields__:
        old, new = getattr(row, name), getattr(anew, name)
        if name in ("commit", "is_on_branch") or equal(old, new):
            continue
        if name == "looked_at" and old is None:
            # Rows before schema 12 have none.
            continue
        if name in _OPINIONS:
            notes.append(f"{record.where}: an earlier judge derived {name} differently")
            continue
        yield finding(
            f"row-{name.replace('_', '-')}",
            record.where,
            f"the row of attempt {row.number} says {name} {old}, its record gives {new}",
            f"one of them was edited: trust the evidence in the record; {fetch(place)}",
        )


def fingerprints(everything: Sequence[HeldAttempt]) -> Iterator[Finding]:
    """Findings if the same kernel.py under the same key was traced to different programs."""
    first: dict[tuple[str, Key], HeldAttempt] = {}
    for record in everything:
        if not record.row.fingerprint:
            continue
        other = first.setdefault((record.attempt.kernel_sha256, record.attempt.key), record)
        if other.row.fingerprint != record.row.fingerprint:
            yield finding(
                "fingerprint",
                record.where,
                f"the same kernel.py as in {other.where} was traced to another program under the same key",
                "kernel.py depends on something outside it, or a record was edited: "
                f"`replay {record.row.number}` traces it again",
            )


def kernels(
    place: Place,
    accepted: Sequence[history.Accepted],
    logged: Sequence[HeldAttempt],
    filed: Sequence[HeldAttempt],
    findings: list[Finding],
    notes: list[str],
) -> int:
    """Checks the hash of each attempt's kernel.py, from its log commit or rebuilt; returns the number of hashes."""
    blobs = git.readable_blobs(
        place.repository, [f"{record.commit.id}:{KERNEL_NAME}" for record in logged if record.commit]
    )
    hashed = 0
    for record, data in zip(logged, blobs, strict=True):
        assert record.commit is not None
        hashed += data is not None
        if data is None and not record.commit.parents:
            number = record.row.number
            notes.append(f"{record.where} started this log in a clone that lacked the kernel.py of attempt {number}")
        elif not _is_kernel(place, data, f"{record.commit.id}:{KERNEL_NAME}", record.attempt.kernel_sha256):
            findings.append(
                finding(
                    "kernel",
                    record.where,
                    f"its {KERNEL_NAME} is {'not readable' if data is None else 'not the one that was judged'}",
                    fetch(place),
                )
            )
    have = {record.row.number for record in logged}
    rebuilt: dict[int, Candidate] = {}
    for record in filed:
        if record.row.number in have:
            continue
        try:
            candidate = history.candidate(place, record.row.number, accepted, rebuilt)
            hashed += candidate.sha256 == record.attempt.kernel_sha256
        except RatchetError as error:
            notes.append(f"{record.where}: {error}")
    return hashed


def _is_accepted(place: Place, accept: history.Accepted) -> bool:
    """True if the commit's kernel.py and its helpers are the candidate that it accepts."""
    candidate = history.candidate_at(place, accept.commit)
    return candidate is not None and candidate.sha256.startswith(accept.kernel_digits)


def branch(
    place: Place, accepted: Sequence[history.Accepted], logged: Sequence[HeldAttempt], filed: Sequence[HeldAttempt]
) -> Iterator[Finding]:
    """Findings if an accept on a branch is not logged, lacks its record, or contradicts it (kernel.py, trailers)."""
    in_log = {record.row.number for record in logged}
    by_number = {record.row.number: record for record in (*filed, *logged)}
    names = [f"{accept.commit}:{place.kernel}" for accept in accepted]
    for accept, name, kernel in zip(accepted, names, git.readable_blobs(place.repository, names), strict=True):
        where = f"commit {accept.commit[:12]} (accept of attempt {accept.number})"
        if not _is_kernel(place, kernel, name, accept.kernel_digits) and not _is_accepted(place, accept):
            yield finding(
                "branch-kernel",
                where,
                f"its {place.kernel} is not the kernel that its message names",
                f"`checkout {accept.number}` brings back the accepted kernel",
            )
        if logged and accept.number > logged[0].row.number and accept.number not in in_log:
            yield finding("accept-not-logged", where, f"{place.log_ref} does not have the attempt", fetch(place))
        record = by_number.get(accept.number)
        if record is None:
            continue
        if not record.attempt.kernel_sha256.startswith(accept.kernel_digits):
            what = f"{record.where} is another attempt {accept.number}: two clones used this number"
            yield finding("numbered-apart", where, what, choose(place))
            continue
        expected = messages.trailers(messages.accept_message(record.attempt, record.row))
        stated = messages.trailers(accept.message)
        wrong = [
            f"{name}: {stated.get(name)} instead of {value}"
            for name, value in expected.items()
            if stated.get(name) != value
        ]
        if wrong:
            yield finding(
                "trailers",
                where,
                f"its trailers say {'; '.join(wrong)}",
                "nothing to do: the record is valid, and the commit's message was edited",
            )
        committed = git.entries(place.repository, accept.commit, place.experiments)
        blobs = [entry.blob for name, entry in committed.items() if experiments.number_of(name) == accept.number]
        if not any(_is_same(data, record) for data in git.readable_blobs(place.repository, blobs)):
            yield finding(
                "accept-without-record",
                where,
                f"it does not hold the record of attempt {accept.number}",
                f"`show {accept.number}` reads it from {record.where}; nothing is lost",
            )


def files(
    place: Place, logged: Sequence[HeldAttempt], filed: Sequence[HeldAttempt], apart: set[str]
) -> Iterator[Finding]:
    """Findings if an attempt's file differs from the log's record, or a logged attempt has no file."""
    by_number = {record.row.number: record for record in logged}
    for record in filed:
        in_log = by_number.get(record.row.number)
        if in_log is None or _is_same(record.data, in_log) or encode_row(record.row) in apart:
            continue
        same = (in_log.attempt.kernel_sha256, in_log.attempt.started) == (
            record.attempt.kernel_sha256,
            record.attempt.started,
        )
        commit = in_log.commit.id if in_log.commit else ""
        remove = "remove that line, then " if record.is_packed else ""
        yield finding(
            "file-differs" if same else "numbered-apart",
            record.where,
            f"it is not the record in {in_log.where}"
            if same
            else f"{in_log.where} is another attempt {record.row.number}: two clones used this number",
            remove + _write_record(place, commit, record.path) if same else choose(place),
        )
    have = {record.row.number for record in filed}
    for record in logged:
        if record.row.number not in have and record.commit is not None:
            name = experiments.file_name(record.row.number, record.row.hypothesis)
            yield finding(
                "missing-file",
                f"{place.experiments}/{name}",
                f"it should hold the record of {record.where}",
                _write_record(place, record.commit.id, f"{place.experiments}/{name}"),
            )


def state(place: Place, notes: list[str]) -> Iterator[Finding]:
    """Findings for unfinished attempts, half-written files and git's locks, unless a process is at work right now."""
    holder = locking.holder(git.common_directory(place.repository) / "ratchet" / "lock")
    if holder:
        notes.append(f"at work right now: {holder}; the attempt that it has begun was not checked")
        return
    path = journal.path(place)
    try:
        begun = journal.read(place)
        if begun is not None:
            yield finding(
                "journal",
                str(path),
                f"{begun.purpose}, begun {begun.begun}, did not end",
                "./ratchet.sh status finishes or undoes it",
            )
    except RatchetError as error:
        yield finding("journal", str(path), "it cannot be read", str(error))
    for leftover in recovery.leftovers(place):
        yield finding(
            "temporary-file", str(leftover), "a process that was killed left it", "./ratchet.sh status removes it"
        )
    branch = git.branch_or_none(place.repository)
    for lock in locks.locks_on(place.repository, (place.log_ref, *([branch] if branch else []))):
        yield finding(
            "git-lock",
            str(lock),
            "it is git's lock on a file or ref that attempts write",
            "wait for the git command that holds it; if no git command is running, remove the file",
        )


# --- small parts -------


def _write_record(place: Place, commit: str, path: str) -> str:
    """A command, for use in any folder, that writes a log commit's record to `path` (from the repository's top)."""
    file = shlex.quote(str(place.root / path))
    return f"{git.shell_command(place.repository)} cat-file -p {commit[:12]}:{RECORD_NAME} > {file}"


def _is_same(data: bytes | None, record: HeldAttempt) -> bool:
    """True if the bytes are this record, in any layout (line endings, an older writer)."""
    if data is None or data == record.data:
        return data is not None
    try:
        row, attempt = decode_attempt_row(data, ""), decode_attempt(data, "")
    except RecordError:
        return False
    return encode_attempt(attempt, row) == encode_attempt(record.attempt, record.row)


def _is_kernel(place: Place, data: bytes | None, name: str, digits: str) -> bool:
    """True if the SHA-256 of the blob, as stored or as a checkout would write it, begins with these `digits`."""
    if data is None:
        return False
    if hashlib.sha256(data).hexdigest().startswith(digits):
        return True
    blob = git.blob_ids(place.repository, (name,))[0]
    written = git.in_working_tree_form(place.repository, blob, place.kernel) if blob else b""
    return hashlib.sha256(written).hexdigest().startswith(digits)


def distinct(everything: Iterable[HeldAttempt]) -> Iterable[HeldAttempt]:
    """Each record once: a file that repeats a record of the log is left out."""
    by_text: dict[str, HeldAttempt] = {}
    for record in everything:
        by_text.setdefault(value_text(record.data), record)
    return by_text.values()


def equal(old: object, new: object) -> bool:
    """True if the two values are equal; numbers may differ by the rounding of sums added in another order."""
    if isinstance(old, float) and isinstance(new, float):
        return math.isclose(old, new, rel_tol=_RELATIVE_TOLERANCE)
    return old == new


def _ranges_missing(have: Set[int]) -> list[str]:
    """The missing numbers between 1 and the highest, as ranges."""
    ranges = []
    before = 0
    for number in sorted(number for number in have if number > 0):
        if number > before + 1:
            ranges.append(str(before + 1) if number == before + 2 else f"{before + 1} to {number - 1}")
        before = number
    return ranges


def _listed(missing: Sequence[str]) -> str:
    shown = ", ".join(missing[:10])
    return f"{shown} and {len(missing) - 10} more gaps" if len(missing) > 10 else shown
