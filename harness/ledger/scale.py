"""The rows of a ledger on one scale: each with the time that its kernel has under one timing key."""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

from harness.records import NOT_YET, Note, Row, Scale, ScaledRow

# Figures of a row that depend on its time.
_FIGURES = ("score", "seconds", "util", "regime", "gap_fraction")


def scale_of(rows: Sequence[Row], notes: Sequence[Note], champion: int | None) -> Scale | None:
    """The newest timing key under which the champion's kernel has a time from the champion's source and chip.

    A note that was taken after the champion's last row is newer than all rows. Of several notes, the note that was
    taken last is the newest.

    None if no attempt was accepted. If the champion is not among the rows, the newest accepted attempt is used instead.
    """
    titles = [row for row in rows if row.is_title]
    title = next((row for row in titles if row.number == champion), titles[-1] if titles else None)
    if title is None:
        return None
    place, digest, key = title.number, title.key_digest, title.key
    timed = (title.kernel_sha256, title.source, title.chip)
    for row in rows:
        is_same = (row.kernel_sha256, row.source, row.chip) == timed
        if is_same and row.seconds is not None and row.outcome == "accept" and row.number >= place:
            place, digest, key = row.number, row.key_digest, row.key
    for note in sorted(notes, key=lambda note: note.when):
        is_same = (note.kernel_sha256, note.key.source, note.key.chip) == timed
        if is_same and note.seconds is not None and note.after >= place:
            digest, key = note.key_digest, note.key
    accepted = {row.kernel_sha256 for row in titles if (row.source, row.chip) == (title.source, title.chip)}
    return Scale(
        key_digest=digest,
        key=key,
        source=title.source,
        chip=title.chip,
        accepted=len(accepted),
        timed=len(accepted & _times(rows, notes, digest).keys()),
    )


def on_scale(rows: Sequence[Row], notes: Sequence[Note], scale: Scale) -> tuple[ScaledRow, ...]:
    """Every row with its time on the scale; failed attempts, and attempts of other chips or sources, are unchanged."""
    times = _times(rows, notes, scale.key_digest)
    why = {
        note.kernel_sha256: f"{note.failure_kind}: {note.reason}"
        for note in notes
        if note.key_digest == scale.key_digest and note.seconds is None and note.failure_kind
    }
    champion: str | None = None
    scaled_rows = []
    for row in rows:
        scaled_rows.append(_scaled(row, times, why, scale, champion))
        if row.outcome == "accept" and row.is_on_branch is not False:
            champion = row.kernel_sha256
    return tuple(scaled_rows)


def untimed(rows: Sequence[Row], notes: Sequence[Note], key_digest: str, *, only_accepted: bool) -> Iterator[Row]:
    """One row for each kernel with neither a time under the key nor a note on its failure, the newest first."""
    settled = set(_times(rows, notes, key_digest))
    settled |= {note.kernel_sha256 for note in notes if note.key_digest == key_digest}
    for row in reversed(rows):
        is_wanted = row.is_title if only_accepted else row.outcome in ("accept", "reject", "inconclusive")
        if is_wanted and row.kernel_sha256 not in settled:
            settled.add(row.kernel_sha256)
            yield row


def _times(rows: Sequence[Row], notes: Sequence[Note], key_digest: str) -> dict[str, Row | Note]:
    """The figures of each kernel under a timing key, by the hash of kernel.py; a note is preferred to a row."""
    times: dict[str, Row | Note] = {
        row.kernel_sha256: row for row in rows if row.key_digest == key_digest and row.seconds is not None
    }
    times |= {note.kernel_sha256: note for note in notes if note.key_digest == key_digest and note.seconds is not None}
    return times


def _scaled(
    row: Row, times: dict[str, Row | Note], why: dict[str, str], scale: Scale, champion: str | None
) -> ScaledRow:
    if (row.source, row.chip) != (scale.source, scale.chip):
        return ScaledRow(row=row, then=row)
    scaled = replace(row, key_digest=scale.key_digest, key=scale.key)
    if row.outcome == "failed":
        # The time of a kernel that failed does not count as a time for this problem.
        return ScaledRow(row=scaled, then=row)
    timed = times.get(row.kernel_sha256)
    if timed is None:
        nothing: dict[str, Any] = dict.fromkeys(_FIGURES)
        empty = replace(scaled, members=tuple((name, None) for name, _ in row.members), **nothing)
        return ScaledRow(row=empty, then=row, why_unknown=why.get(row.kernel_sha256, NOT_YET))
    against = times.get(champion) if champion is not None else None
    ratio = row.time_ratio
    if row.kind == "experiment" and against is not None and against.seconds and timed.seconds is not None:
        ratio = timed.seconds / against.seconds
    figures = {name: getattr(timed, name) for name in (*_FIGURES, "copies", "spills", "members")}
    return ScaledRow(row=replace(scaled, time_ratio=ratio, **figures), then=row)
