"""The records in each place of a ledger; records that cannot be read become findings."""

from collections.abc import Sequence
from dataclasses import dataclass

from harness.errors import RatchetError
from harness.ledger import experiments, git, history, messages
from harness.ledger.codec import RecordError, decode_attempt, decode_attempt_row, encode_row, value_text
from harness.ledger.git.refs import refs
from harness.ledger.paths import RECORD_NAME, Place
from harness.records import Attempt, Finding, Row


@dataclass(frozen=True, slots=True, kw_only=True)
class HeldAttempt:
    """One attempt in a place of the ledger; `is_packed`: it is a line of attempts.jsonl.

    `path` is the attempt's file in experiments/. For a packed attempt, it is the former file; for an attempt from the
    log, it is "".
    """

    where: str
    data: bytes
    row: Row
    attempt: Attempt
    commit: git.Commit | None = None
    is_packed: bool = False
    path: str = ""


def log(place: Place, findings: list[Finding]) -> tuple[git.Commit, ...]:
    """The log's commits, oldest first; () and a finding if git cannot read them."""
    try:
        return history.log_commits(place)[::-1]
    except RatchetError as error:
        findings.append(finding("broken-log", place.log_ref, str(error), fetch(place)))
        return ()


def logged(place: Place, commits: Sequence[git.Commit], findings: list[Finding]) -> list[HeldAttempt]:
    records = []
    blobs = git.readable_blobs(place.repository, [f"{commit.id}:{RECORD_NAME}" for commit in commits])
    for commit, data in zip(commits, blobs, strict=True):
        where = f"log commit {commit.id[:12]}"
        try:
            row = messages.row_of(commit.message, where)
            if data is None:
                raise RecordError("missing-record", f"{where} has no readable {RECORD_NAME}")
            inside = f"{RECORD_NAME} in {where}"
            row_inside = decode_attempt_row(data, inside)
            record = HeldAttempt(where=where, data=data, row=row, attempt=decode_attempt(data, inside), commit=commit)
        except RecordError as error:
            findings.append(_unreadable(error, where, fetch(place)))
            continue
        records.append(record)
        if encode_row(row) != encode_row(row_inside):
            findings.append(
                finding(
                    "row-differs",
                    where,
                    f"the row in its message is not the row in its {RECORD_NAME}",
                    f"the record is valid, the message is not: the ratchet did not make this commit; {fetch(place)}",
                )
            )
    return records


def filed(place: Place, findings: list[Finding]) -> list[HeldAttempt]:
    """The attempts in experiments/ and attempts.jsonl: in the working tree and, if different, at HEAD."""
    lines = _packed(place, findings)
    # A packed attempt may have a file too, for one of two reasons: a killed `pack` left the file, or the file was
    # removed only from the working tree and is still at HEAD.
    return [
        *(record for record in _single_files(place, findings) if value_text(record.data) not in lines),
        *lines.values(),
    ]


def _packed(place: Place, findings: list[Finding]) -> dict[str, HeldAttempt]:
    """The attempts in attempts.jsonl by `value_text`: the working tree's, then those that only HEAD's file has."""
    by_text: dict[str, HeldAttempt] = {}
    remedy = (
        "take the line from a clone that has it; "
        f"{git.shell_command(place.repository)} log -p -- '{place.packed}' shows it as it was"
    )
    files, complaints = history.packed_files(place)
    findings += [_unreadable(error, place.packed, remedy) for error in complaints]
    for record in (record for file in files for record in file.records):
        try:
            row, data = record.row(), record.document()
            attempt = decode_attempt(data, record.where)
            if attempt.number != row.number:
                raise RecordError("foreign-record", f"{record.where} holds attempt {attempt.number}")
        except RecordError as error:
            findings.append(_unreadable(error, record.where, remedy))
            continue
        path = f"{place.experiments}/{experiments.file_name(row.number, row.hypothesis)}"
        stored = HeldAttempt(where=record.where, data=data, row=row, attempt=attempt, is_packed=True, path=path)
        by_text.setdefault(value_text(data), stored)
    return by_text


def _single_files(place: Place, findings: list[Finding]) -> list[HeldAttempt]:
    """The attempts in experiments/: in the working tree and, if different, at HEAD."""
    records = []
    committed = history.committed_names(place)
    blobs = git.readable_blobs(place.repository, [entry.blob for entry in committed.values()])
    at_head = dict(zip(committed, blobs, strict=True))
    here: dict[str, bytes | None] = {}
    for name in experiments.names_in(place.experiments_directory):
        try:
            here[name] = experiments.bytes_of(place.experiments_directory / name)
        except RecordError as error:
            findings.append(_unreadable(error, f"{place.experiments}/{name}", "move it away: it is not a record"))
    both = [(name, data, "") for name, data in here.items()]
    both += [
        (name, data, " at HEAD")
        for name, data in at_head.items()
        if not _is_as_at_head(place, f"{place.experiments}/{name}", here.get(name), data, committed[name].blob)
    ]
    for name, data, suffix in both:
        where = f"{place.experiments}/{name}{suffix}"
        try:
            if data is None:
                raise RecordError("missing-record", f"{where} cannot be read")
            row, attempt = decode_attempt_row(data, where), decode_attempt(data, where)
            if experiments.number_of(name) != attempt.number:
                raise RecordError("foreign-record", f"{where} holds attempt {attempt.number}")
        except RecordError as error:
            command = git.shell_command(place.repository)
            remedy = fetch(place) if suffix else f"{command} checkout HEAD -- '{place.experiments}/{name}'"
            findings.append(_unreadable(error, where, remedy))
            continue
        records.append(
            HeldAttempt(where=where, data=data, row=row, attempt=attempt, path=f"{place.experiments}/{name}")
        )
    return records


def _is_as_at_head(place: Place, path: str, here: bytes | None, at_head: bytes | None, blob: str) -> bool:
    """True if the working tree's file equals HEAD's (`blob`), apart from line endings and filters."""
    if here is None or at_head is None:
        return False
    return here == at_head or git.hash_of(place.repository, here, path) == blob


def other_logs(place: Place, findings: list[Finding], notes: list[str]) -> set[str]:
    """The rows, as text, of the replaced logs that are still here; a diverged log becomes a finding."""
    kept: set[str] = set()
    for ref in refs(place.repository):
        is_own = ref.startswith(f"refs/ratchet/{place.name}/")
        if ref == place.log_ref or not (is_own or ref.endswith(f"/ratchet/{place.name}/log")):
            continue
        if is_own:
            for commit in git.log(place.repository, (ref,), first_parent=True):
                try:
                    kept.add(encode_row(messages.row_of(commit.message, ref)))
                except RecordError:
                    continue
            notes.append(f"{ref} keeps a log that {place.log_ref} has replaced")
        elif git.is_ancestor(place.repository, ref, place.log_ref):
            continue
        elif git.is_ancestor(place.repository, place.log_ref, ref):
            command = git.shell_command(place.repository)
            notes.append(f"{ref} is ahead of the log here: {command} fetch . {ref}:{place.log_ref}")
        else:
            what = f"it and {place.log_ref} diverge after the same attempt: two clones used the same numbers"
            findings.append(finding("numbered-apart", ref, what, choose(place)))
    return kept


# --- small parts -------


def holds(data: bytes, record: HeldAttempt) -> bool:
    """True if the bytes are this record, in any layout (line endings, an older writer, packed)."""
    if data == record.data:
        return True
    try:
        return value_text(data) == value_text(record.data)
    except RecordError:
        return False


def _unreadable(error: RecordError, where: str, remedy: str) -> Finding:
    advice = "update the ratchet; the record itself is not at fault" if error.kind == "newer-record" else remedy
    return finding(error.kind, where, str(error), advice)


def fetch(place: Place) -> str:
    command = git.shell_command(place.repository)
    return f"fetch the log from a clone that you trust: {command} fetch REMOTE +{place.log_ref}:{place.log_ref}"


def choose(place: Place) -> str:
    kept = f"refs/ratchet/{place.name}/apart"
    return (
        "git cannot merge two logs: choose the log to share. In the clone whose log is replaced, "
        f"`git update-ref {kept} {place.log_ref}` keeps that log and "
        f"`git fetch REMOTE +{place.log_ref}:{place.log_ref}` takes the shared log. "
        "Nothing is lost: `results` shows both logs, and you can run any of their attempts again"
    )


def finding(kind: str, where: str, what: str, remedy: str) -> Finding:
    """A finding of `kind` at `where`, with the fault (`what`) and its `remedy`."""
    return Finding(kind=kind, where=where, what=what, remedy=remedy)
