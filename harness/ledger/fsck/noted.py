"""What must hold of notes: whole lines, about kernels that the ledger has, with figures that follow from each other."""

import math
from collections.abc import Iterator, Sequence

from harness.errors import RatchetError
from harness.hardware import chip
from harness.judge.key import checks_digest, key_digest, problem_digest
from harness.judge.verdict import roofline
from harness.ledger import notes
from harness.ledger.fsck.inventory import Known, fetch, finding
from harness.ledger.paths import Place
from harness.records import Finding, Note

# Doubles that went through JSON and back are equal; products may be taken in another order.
_RELATIVE_TOLERANCE = 1e-9
_REMEDY = "the line was edited: take it out of the file, and ./ratchet.sh rescale finds the time again"


def notes_hold(place: Place, everything: Sequence[Known]) -> Iterator[Finding]:
    """Every note that cannot be read, speaks of a kernel that is not here, or contradicts itself or another."""
    found, skipped = notes.read(place)
    for sentence in skipped:
        yield finding("bad-note", place.experiments, sentence.removeprefix("skipped: "), f"{_REMEDY}; {fetch(place)}")
    kernels = {(known.attempt.number, known.attempt.kernel_sha256): known for known in everything}
    times: dict[tuple[str, str], Note] = {}
    for note in found:
        where = f"note on attempt {note.attempt} of {note.when}"
        known = kernels.get((note.attempt, note.kernel_sha256))
        if known is None:
            yield finding("note-kernel", where, "no attempt of that number recorded that kernel.py", fetch(place))
            continue
        for said in (*_wrong_keys(note), *_wrong_figures(note, known)):
            yield finding("note-edited", where, said, _REMEDY)
        before = times.setdefault((note.kernel_sha256, note.key_digest), note) if note.seconds is not None else note
        if note.key.source == "simulated" and not _equal(before.seconds, note.seconds):
            said = f"it says {note.seconds} s, another of {before.when} under the same key {before.seconds} s"
            yield finding("note-edited", where, said, _REMEDY)


def _wrong_keys(note: Note) -> Iterator[str]:
    if note.key_digest != key_digest(note.key):
        yield f"its timing key is {key_digest(note.key)}, it says {note.key_digest}"
    if note.checks_digest not in ("", checks_digest(note.key)):
        yield f"its checks key is {checks_digest(note.key)}, it says {note.checks_digest}"


def _wrong_figures(note: Note, known: Known) -> Iterator[str]:
    """Figures that do not follow from the time, where the problem is still the one that the attempt recorded."""
    statement = known.attempt.evidence.problem
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
