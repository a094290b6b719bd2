"""Writes and reads the messages of the ledger's commits: a log commit carries its row, an accept its trailers."""

from harness import units
from harness.ledger.codec import RecordError, decode_row, encode_row
from harness.records import Attempt, Row

SUBJECT_LENGTH = 72
_ROW = "Ratchet-Row: "
ATTEMPT, CONTEST, KERNEL, UNDOES = "Ratchet-Attempt", "Ratchet-Contest", "Ratchet-Kernel", "Ratchet-Undoes"
REVOKES, HOLDER = "Ratchet-Revokes", "Ratchet-Holder"
# The number of hexadecimal digits of a SHA-256 that identify a kernel: enough to tell kernels apart, but short enough
# for a line that people read.
KERNEL_DIGITS = 16


def subject(text: str, fallback: str) -> str:
    """The first non-empty line of `text`, cut to at most 72 characters, or `fallback` if all lines are empty."""
    line = next((" ".join(line.split()) for line in text.splitlines() if line.strip()), fallback)
    line = line.replace("\0", "\N{REPLACEMENT CHARACTER}")
    return line if len(line) <= SUBJECT_LENGTH else f"{line[: SUBJECT_LENGTH - 1].rstrip()}\N{HORIZONTAL ELLIPSIS}"


def log_message(row: Row) -> str:
    """The message of a log commit: outcome, whole hypothesis, the row as one line of JSON."""
    title = subject(f"attempt {row.number}: {row.outcome}: {row.hypothesis}", "")
    return f"{title}\n\n{_body(row.hypothesis)}{_ROW}{encode_row(row)}\n"


def row_of(message: str, where: str) -> Row:
    """The row in a log commit's message. Raises RecordError that names `where` if none can be read."""
    # The last such line counts, because the hypothesis above it may quote such a line.
    for line in reversed(message.split("\n")):
        if line.startswith(_ROW):
            return decode_row(line.removeprefix(_ROW), where)
    raise RecordError(
        "foreign-record", f"{where} is not a commit of the ratchet: its message has no line `{_ROW.strip()}`"
    )


def accept_message(attempt: Attempt, row: Row) -> str:
    """The message of a branch commit: the hypothesis, and trailers for `git log` and for `trailers`.

    The champion of an `undo` is the attempt that it takes back. A `revoke` names every attempt that lost its
    title, and the attempt that holds the title now, if any.
    """
    trailers = [(ATTEMPT, str(attempt.number)), (CONTEST, attempt.contest)]
    if row.score is not None:
        trailers.append(("Ratchet-Score", f"{row.score:.6g}"))
    if row.seconds is not None:
        trailers.append(("Ratchet-Latency", units.seconds(row.seconds, 6)))
    trailers += [("Ratchet-Source", row.source), ("Ratchet-Chip", row.chip), ("Ratchet-Key", row.key_digest)]
    trailers.append((KERNEL, attempt.kernel_sha256[:KERNEL_DIGITS]))
    if attempt.kind == "undo" and attempt.champion is not None:
        trailers.append((UNDOES, str(attempt.champion.attempt)))
    if attempt.revocation is not None:
        trailers.append((REVOKES, " ".join(map(str, attempt.revocation.revoked))))
        if attempt.revocation.holder is not None:
            trailers.append((HOLDER, str(attempt.revocation.holder)))
    lines = "".join(f"{name}: {value}\n" for name, value in trailers)
    return f"{subject(attempt.hypothesis, f'attempt {attempt.number}')}\n\n{_body(attempt.hypothesis)}{lines}"


def trailers(message: str) -> dict[str, str]:
    """The trailers in the last paragraph of a message; if a name occurs twice, the last trailer counts."""
    paragraph = message.rstrip("\n").rpartition("\n\n")[2]
    pairs = (line.partition(": ") for line in paragraph.split("\n"))
    return {name: value.strip() for name, separator, value in pairs if separator}


def _body(hypothesis: str) -> str:
    text = hypothesis.strip()
    return f"{text}\n\n" if text and text != subject(text, "") else ""
