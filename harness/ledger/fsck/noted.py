"""Checks the notes: each is a whole line about a kernel of the ledger, and its figures follow from each other."""

from collections.abc import Iterator, Sequence

from harness.errors import RatchetError
from harness.hardware import chip
from harness.judge.key import checks_digest, key_digest, problem_digests
from harness.judge.verdict import roofline
from harness.ledger import notes
from harness.ledger.fsck.checks import equal
from harness.ledger.fsck.inventory import HeldAttempt, fetch, finding
from harness.ledger.paths import Place
from harness.records import Finding, Note

_EDITED = "the line was edited: remove it from the file; then "
_TIMED = f"{_EDITED}./ratchet.sh rescale takes the time again"
_CHECKED = f"{_EDITED}./ratchet.sh champions checks the champion again"


def notes_hold(place: Place, everything: Sequence[HeldAttempt]) -> Iterator[Finding]:
    """Findings for notes that cannot be read, are about an unknown kernel, or contradict themselves or each other."""
    all_notes, skipped = notes.read(place)
    for sentence in skipped:
        is_newer = "newer version" in sentence
        remedy = "update the ratchet; the note itself is not at fault" if is_newer else f"{_TIMED}; {fetch(place)}"
        yield finding("bad-note", place.experiments, sentence.removeprefix("skipped: "), remedy)
    last = max((record.attempt.number for record in everything), default=0)
    kernels = {(record.attempt.number, record.attempt.kernel_sha256): record for record in everything}
    times = {
        (record.row.kernel_sha256, record.row.key_digest): (record.row.seconds, record.where)
        for record in everything
        if record.row.source == "simulated" and record.row.seconds is not None and record.row.outcome != "failed"
    }
    checked: dict[tuple[str, str, str], bool] = {}
    for note in all_notes:
        where = f"note on attempt {note.attempt} of {note.when}"
        record = kernels.get((note.attempt, note.kernel_sha256))
        if record is None:
            yield finding("note-kernel", where, "no attempt of that number recorded that kernel.py", fetch(place))
            continue
        for complaint in (*_wrong_keys(note), *_wrong_checks(note, last), *_wrong_figures(note, record)):
            yield finding("note-edited", where, complaint, _CHECKED if note.kind == "checked" else _TIMED)
        if note.key.source == "simulated" and note.seconds is not None:
            seconds, other = times.setdefault((note.kernel_sha256, note.key_digest), (note.seconds, where))
            if not equal(seconds, note.seconds):
                complaint = f"it says {note.seconds} s, but under the same key {other} says {seconds} s"
                yield finding("note-edited", where, complaint, _CHECKED if note.kind == "checked" else _TIMED)
        if note.kind == "checked":
            under = (note.kernel_sha256, note.key_digest, note.checks_digest)
            if checked.setdefault(under, note.passes) != note.passes:
                complaint = "the champion both passed and failed under the same keys: the next attempt checks it again"
                yield finding(
                    "note-disagrees", where, complaint, f"./ratchet.sh revoke judges attempt {note.attempt} again"
                )


def _wrong_keys(note: Note) -> Iterator[str]:
    if note.key_digest != key_digest(note.key):
        yield f"the digest of its timing key is {key_digest(note.key)}, but it says {note.key_digest}"
    if note.checks_digest not in ("", checks_digest(note.key)):
        yield f"the digest of its checks key is {checks_digest(note.key)}, but it says {note.checks_digest}"


def _wrong_checks(note: Note, last: int) -> Iterator[str]:
    if note.after > last:
        yield f"it was taken after attempt {note.after}, but the last attempt is {last}"
    if note.kind == "checked" and not note.failure_kind and not note.passes:
        yield f"it says that nothing failed, but only {note.checks_passed} of {note.checks} checks passed"


def _wrong_figures(note: Note, record: HeldAttempt) -> Iterator[str]:
    """Sentences on impossible figures, and on figures at odds with the time if the problem is the recorded one."""
    statement = record.attempt.evidence.problem
    if (note.util or 0.0) > 1 or (note.gap_fraction or 0.0) < 0:
        yield f"its time is impossible: util {note.util}, gap {note.gap_fraction}"
    if note.seconds is None or statement.members or note.key.problem not in problem_digests(statement, is_timed=True):
        return
    try:
        machine = chip(note.key.chip)
    except RatchetError:
        yield f"there is no chip {note.key.chip}"
        return
    for complaint in roofline.impossibilities(statement.work, note.seconds, machine):
        yield f"its time is impossible: {complaint}"
    util = roofline.utilisation(statement.work.flops, note.seconds, roofline.peak(statement.work, machine))
    if not equal(util, note.util) or not equal(roofline.score(util, note.seconds), note.score):
        yield f"its util and score do not follow from its {note.seconds} s"
