"""What must hold of notes: whole lines, about kernels that the ledger has, with figures that follow from each other."""

import math
from collections.abc import Iterator, Sequence

from harness.errors import RatchetError
from harness.hardware import chip
from harness.judge.key import checks_digest, key_digest, problem_digest
from harness.judge.verdict import roofline
from harness.ledger import notes
from harness.ledger.fsck.inventory import HeldAttempt, fetch, finding
from harness.ledger.paths import Place
from harness.records import Finding, Note

# Doubles that went through JSON and back are equal; products may be taken in another order.
_RELATIVE_TOLERANCE = 1e-9
_REMEDY = "the line was edited: take it out of the file, and ./ratchet.sh rescale finds the time again"


def notes_hold(place: Place, everything: Sequence[HeldAttempt]) -> Iterator[Finding]:
    """Every note that cannot be read, speaks of a kernel that is not here, or contradicts itself or another."""
    found, skipped = notes.read(place)
    for sentence in skipped:
        yield finding("bad-note", place.experiments, sentence.removeprefix("skipped: "), f"{_REMEDY}; {fetch(place)}")
    last = max((known.attempt.number for known in everything), default=0)
    kernels = {(known.attempt.number, known.attempt.kernel_sha256): known for known in everything}
    times = {
        (known.row.kernel_sha256, known.row.key_digest): (known.row.seconds, known.where)
        for known in everything
        if known.row.source == "simulated" and known.row.seconds is not None and known.row.outcome != "failed"
    }
    checked: dict[tuple[str, str, str], bool] = {}
    for note in found:
        where = f"note on attempt {note.attempt} of {note.when}"
        known = kernels.get((note.attempt, note.kernel_sha256))
        if known is None:
            yield finding("note-kernel", where, "no attempt of that number recorded that kernel.py", fetch(place))
            continue
        for said in (*_wrong_keys(note), *_wrong_checks(note, last), *_wrong_figures(note, known)):
            yield finding("note-edited", where, said, _REMEDY)
        if note.key.source == "simulated" and note.seconds is not None:
            seconds, other = times.setdefault((note.kernel_sha256, note.key_digest), (note.seconds, where))
            if not _equal(seconds, note.seconds):
                said = f"it says {note.seconds} s, under the same key {other} says {seconds} s"
                yield finding("note-edited", where, said, _REMEDY)
        if note.kind == "checked":
            under = (note.kernel_sha256, note.key_digest, note.checks_digest)
            if checked.setdefault(under, note.passes) != note.passes:
                said = "the champion both passed and failed under these keys: the next attempt checks it again"
                yield finding("note-disagrees", where, said, f"./ratchet.sh revoke judges attempt {note.attempt} again")


def _wrong_keys(note: Note) -> Iterator[str]:
    if note.key_digest != key_digest(note.key):
        yield f"its timing key is {key_digest(note.key)}, it says {note.key_digest}"
    if note.checks_digest not in ("", checks_digest(note.key)):
        yield f"its checks key is {checks_digest(note.key)}, it says {note.checks_digest}"


def _wrong_checks(note: Note, last: int) -> Iterator[str]:
    if note.after > last:
        yield f"it was taken after attempt {note.after}, and there are {last}"
    if note.kind == "checked" and not note.failure_kind and not note.passes:
        yield f"it says that nothing failed, and {note.checks_passed} of {note.checks} checks passed"


def _wrong_figures(note: Note, known: HeldAttempt) -> Iterator[str]:
    """Figures that do not follow from the time, where the problem is still the one that the attempt recorded."""
    statement = known.attempt.evidence.problem
    if (note.util or 0.0) > 1 or (note.gap_fraction or 0.0) < 0:
        yield f"its time is impossible: util {note.util}, gap {note.gap_fraction}"
    if note.seconds is None or statement.members or problem_digest(statement) != note.key.problem:
        return
    try:
        machine = chip(note.key.chip)
    except RatchetError:
        yield f"there is no chip {note.key.chip}"
        return
    for said in roofline.impossibilities(statement.work, note.seconds, machine):
        yield f"its time is impossible: {said}"
    util = roofline.utilisation(statement.work.flops, note.seconds, roofline.peak(statement.work, machine))
    if not _equal(util, note.util) or not _equal(roofline.score(util, note.seconds), note.score):
        yield f"its util and score do not follow from its {note.seconds} s"


def _equal(one: float | None, other: float | None) -> bool:
    if one is None or other is None:
        return one is other
    return math.isclose(one, other, rel_tol=_RELATIVE_TOLERANCE)
