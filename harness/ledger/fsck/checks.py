"""What must hold between the places of a ledger; whatever does not is a finding."""

import hashlib
import math
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence, Set

from harness.advice import report as reporting
from harness.errors import RatchetError
from harness.hardware import chip
from harness.judge.key import key_digest
from harness.ledger import cleanup, experiments, git, history, journal, messages
from harness.ledger import lock as locking
from harness.ledger.codec import RecordError, decode_attempt, decode_attempt_row, encode_attempt, encode_row, value_text
from harness.ledger.fsck.inventory import HeldAttempt, choose, fetch, finding, read
from harness.ledger.git import locks
from harness.ledger.paths import KERNEL_NAME, RECORD_NAME, Place
from harness.records import Finding, Key, Row

# Doubles that went through JSON and back are equal; the sums behind them may be added in another order.
_RELATIVE_TOLERANCE = 1e-9
# What comes of numbers that nobody's ratchet wrote: too large for a double, a share of nothing.
NOT_COMPUTED = (RatchetError, ValueError, ArithmeticError, LookupError)
# Formulas of the report that a later judge may state differently; the score's is published and stays.
_OPINIONS = ("util", "regime", "gap_fraction")


def numbers(
    place: Place, logged: Sequence[HeldAttempt], filed: Sequence[HeldAttempt], *, all_read: bool
) -> Iterator[Finding]:
    """The log's numbers go up by one, each is there once, and together with the files none is missing."""
    times = Counter(known.row.number for known in logged)
    before: HeldAttempt | None = None
    for known in logged:
        number = known.row.number
        if times[number] > 1:
            yield finding(
                "number-twice",
                known.where,
                f"attempt {number} is in the log {times[number]} times",
                f"the ratchet never does that: somebody else wrote to {place.log_ref}. {fetch(place)}",
            )
        elif before is not None and all_read and number != before.row.number + 1:
            yield finding(
                "number-order",
                known.where,
                f"expected attempt {before.row.number + 1} after {before.row.number}, got {number}",
                f"nothing to do if a record in experiments/ was unreadable then; else {fetch(place)}",
            )
        parents = known.commit.parents if known.commit else ()
        if len(parents) == 2 and parents[1] != known.attempt.judged_against:
            yield finding(
                "judged-against",
                known.where,
                f"it was judged against {known.attempt.judged_against[:12]}, its parent is {parents[1][:12]}",
                f"the record decides. {fetch(place)}",
            )
        before = known
    missing = _ranges_missing({known.row.number for known in (*logged, *filed)})
    if missing and all_read:
        yield finding(
            "missing-attempt", place.name, f"attempts {_listed(missing)} are neither logged nor filed", fetch(place)
        )


def derived(place: Place, known: HeldAttempt, notes: list[str]) -> Iterator[Finding]:
    """The row is what record and evidence come to, computed anew."""
    attempt, row = known.attempt, known.row
    if attempt.contest != place.name:
        yield finding(
            "other-contest",
            known.where,
            f"it is an attempt of contest {attempt.contest}",
            f"it does not belong in the ledger of {place.name}: move the file to its own contest",
        )
    try:
        report = reporting.report(attempt.evidence, chip(attempt.evidence.chip))
        anew = reporting.row(attempt, report, key_digest(attempt.key))
    except NOT_COMPUTED as error:
        yield finding(
            "unknown-chip" if isinstance(error, RatchetError) else "corrupt-record",
            known.where,
            f"its numbers cannot be derived again: {error}",
            "update the ratchet; if that does not help, its record was edited",
        )
        return
    for name in Row.__dataclass_fields__:
        old, new = getattr(row, name), getattr(anew, name)
        if name in ("commit", "is_on_branch") or _equal(old, new):
            continue
        if name == "looked_at" and old is None:
            # Rows before schema 12 do not say.
            continue
        if name in _OPINIONS:
            notes.append(f"{known.where}: the judge of then derived {name} differently")
            continue
        yield finding(
            f"row-{name.replace('_', '-')}",
            known.where,
            f"the row of attempt {row.number} says {name} {old}, its record gives {new}",
            f"one of them was edited: the evidence decides. {fetch(place)}",
        )


def fingerprints(everything: Sequence[HeldAttempt]) -> Iterator[Finding]:
    """The same kernel.py under the same key was traced to the same program."""
    first: dict[tuple[str, Key], HeldAttempt] = {}
    for known in everything:
        if not known.row.fingerprint:
            continue
        other = first.setdefault((known.attempt.kernel_sha256, known.attempt.key), known)
        if other.row.fingerprint != known.row.fingerprint:
            yield finding(
                "fingerprint",
                known.where,
                f"the same kernel.py as in {other.where} was traced to another program under the same key",
                f"kernel.py depends on something outside it, or a record was edited: replay {known.row.number}",
            )


def kernels(
    place: Place, logged: Sequence[HeldAttempt], filed: Sequence[HeldAttempt], findings: list[Finding], notes: list[str]
) -> int:
    """Each log commit's kernel.py, and what is rebuilt without one, was judged; returns how many were hashed."""
    blobs = read(place, [f"{known.commit.id}:{KERNEL_NAME}" for known in logged if known.commit])
    hashed = 0
    for known, data in zip(logged, blobs, strict=True):
        assert known.commit is not None
        hashed += data is not None
        if data is None and not known.commit.parents:
            notes.append(f"{known.where} started this log in a clone that lacked the kernel.py of {known.row.number}")
        elif not _is_kernel(place, data, f"{known.commit.id}:{KERNEL_NAME}", known.attempt.kernel_sha256):
            findings.append(
                finding(
                    "kernel",
                    known.where,
                    f"its {KERNEL_NAME} is {'not readable' if data is None else 'not the one that was judged'}",
                    fetch(place),
                )
            )
    have = {known.row.number for known in logged}
    for known in filed:
        if known.row.number in have:
            continue
        try:
            hashed += history.candidate(place, known.row.number).sha256 == known.attempt.kernel_sha256
        except RatchetError as error:
            notes.append(f"{known.where}: {error}")
    return hashed


def branch(
    place: Place, accepted: Sequence[history.Accepted], logged: Sequence[HeldAttempt], filed: Sequence[HeldAttempt]
) -> Iterator[Finding]:
    """Every accept on a branch is in the log, carries its record, and says the same in its trailers."""
    in_log = {known.row.number for known in logged}
    by_number = {known.row.number: known for known in (*filed, *logged)}
    for one in accepted:
        where = f"commit {one.commit[:12]} (accept of attempt {one.number})"
        names = (f"{one.commit}:{place.kernel}",)
        kernel = read(place, names)[0]
        candidate = history.candidate_at(place, one.commit)
        is_accepted = candidate is not None and candidate.sha256.startswith(one.kernel_digits)
        if not is_accepted and not _is_kernel(place, kernel, names[0], one.kernel_digits):
            yield finding(
                "branch-kernel",
                where,
                f"its {place.kernel} is not the kernel that it says it accepts",
                f"checkout {one.number} brings back what was accepted",
            )
        if logged and one.number > logged[0].row.number and one.number not in in_log:
            yield finding("accept-not-logged", where, f"{place.log_ref} does not have the attempt", fetch(place))
        known = by_number.get(one.number)
        if known is None:
            continue
        if not known.attempt.kernel_sha256.startswith(one.kernel_digits):
            what = f"{known.where} is another attempt {one.number}: two clones numbered apart"
            yield finding("numbered-apart", where, what, choose(place))
            continue
        expected = messages.trailers(messages.accept_message(known.attempt, known.row))
        said = messages.trailers(one.message)
        wrong = [
            f"{name}: {said.get(name)} instead of {value}"
            for name, value in expected.items()
            if said.get(name) != value
        ]
        if wrong:
            yield finding(
                "trailers",
                where,
                f"its trailers say {'; '.join(wrong)}",
                "the record decides; the commit's message was edited",
            )
        held = git.entries(place.repository, one.commit, place.experiments)
        blobs = [entry.blob for name, entry in held.items() if experiments.number_of(name) == one.number]
        if not any(_is_same(data, known) for data in read(place, blobs)):
            yield finding(
                "accept-without-record",
                where,
                f"it does not hold the record of attempt {one.number}",
                f"`show {one.number}` reads it from {known.where}; nothing is lost",
            )


def files(
    place: Place, logged: Sequence[HeldAttempt], filed: Sequence[HeldAttempt], apart: set[str]
) -> Iterator[Finding]:
    """The attempts in files are the log's records; every logged attempt is in one."""
    by_number = {known.row.number: known for known in logged}
    for known in filed:
        own = by_number.get(known.row.number)
        if own is None or _is_same(known.data, own) or encode_row(known.row) in apart:
            continue
        same = (own.attempt.kernel_sha256, own.attempt.started) == (known.attempt.kernel_sha256, known.attempt.started)
        commit = own.commit.id if own.commit else ""
        remove = "remove that line, then " if known.is_packed else ""
        yield finding(
            "file-differs" if same else "numbered-apart",
            known.where,
            f"it is not the record in {own.where}"
            if same
            else f"{own.where} is another attempt {known.row.number}: two clones numbered apart",
            f"{remove}git cat-file -p {commit[:12]}:{RECORD_NAME} > '{known.path}'" if same else choose(place),
        )
    have = {known.row.number for known in filed}
    for known in logged:
        if known.row.number not in have and known.commit is not None:
            name = experiments.file_name(known.row.number, known.row.hypothesis)
            yield finding(
                "missing-file",
                f"{place.experiments}/{name}",
                f"it should hold {known.where}",
                f"git cat-file -p {known.commit.id[:12]}:{RECORD_NAME} > '{place.experiments}/{name}'",
            )


def state(place: Place, notes: list[str]) -> Iterator[Finding]:
    """No attempt is unfinished and nothing half-written lies about, unless somebody is at work right now."""
    holder = locking.holder(git.common_directory(place.repository) / "ratchet" / "lock")
    if holder:
        notes.append(f"at work right now: {holder}; what it has begun was not looked at")
        return
    path = journal.path(place)
    try:
        begun = journal.read(path)
        if begun is not None:
            yield finding(
                "journal",
                str(path),
                f"{begun.purpose}, begun {begun.begun}, did not end",
                "./ratchet.sh status finishes or undoes it",
            )
    except RatchetError as error:
        yield finding("journal", str(path), "it cannot be read", str(error))
    for leftover in cleanup.leftovers(place):
        yield finding(
            "temporary-file", str(leftover), "a process that was killed left it", "./ratchet.sh status removes it"
        )
    branch = git.branch_or_none(place.repository)
    for lock in locks.locks_on(place.repository, (place.log_ref, *([branch] if branch else []))):
        yield finding(
            "git-lock",
            str(lock),
            "git's lock on what attempts write",
            "a git command is at work, or one died: if none is, remove the file",
        )


# --- the small things ----------


def _is_same(data: bytes | None, known: HeldAttempt) -> bool:
    """True if the bytes are this record, in whatever layout (line endings, an older writer)."""
    if data is None or data == known.data:
        return data is not None
    try:
        row, attempt = decode_attempt_row(data, ""), decode_attempt(data, "")
    except RecordError:
        return False
    return encode_attempt(attempt, row) == encode_attempt(known.attempt, known.row)


def _is_kernel(place: Place, data: bytes | None, name: str, digits: str) -> bool:
    """True if the blob, as git has it or as a checkout would write it, has this SHA-256 (or first digits of it)."""
    if data is None:
        return False
    if hashlib.sha256(data).hexdigest().startswith(digits):
        return True
    blob = git.blob_ids(place.repository, (name,))[0]
    written = git.in_working_tree_form(place.repository, blob, place.kernel) if blob else b""
    return hashlib.sha256(written).hexdigest().startswith(digits)


def distinct(everything: Iterable[HeldAttempt]) -> Iterable[HeldAttempt]:
    """Each record once: a file that repeats the log's record is checked with it."""
    found: dict[str, HeldAttempt] = {}
    for known in everything:
        found.setdefault(value_text(known.data), known)
    return found.values()


def _equal(old: object, new: object) -> bool:
    if isinstance(old, float) and isinstance(new, float):
        return math.isclose(old, new, rel_tol=_RELATIVE_TOLERANCE)
    return old == new


def _ranges_missing(have: Set[int]) -> list[str]:
    """The numbers between 1 and the highest that are not there, as ranges: one record may have any number."""
    found = []
    before = 0
    for number in sorted(number for number in have if number > 0):
        if number > before + 1:
            found.append(str(before + 1) if number == before + 2 else f"{before + 1} to {number - 1}")
        before = number
    return found


def _listed(missing: Sequence[str]) -> str:
    shown = ", ".join(missing[:10])
    return f"{shown} and {len(missing) - 10} more gaps" if len(missing) > 10 else shown
