"""Compiles and simulates recorded kernels again under the present key, so that a table's times are comparable.

Records are not rewritten. Each time is a note (ledger/notes.py) that is kept as soon as the time is known. So an
interrupted or killed run loses only the time of one kernel.
"""

import shutil
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from harness.advice import report as reporting
from harness.candidate import Candidate
from harness.contest import Contest
from harness.errors import RatchetError
from harness.judge.evaluate.request import Progress
from harness.judge.key import checks_digest, key_digest
from harness.judge.verdict import roofline
from harness.ledger import Ledger, history, scale
from harness.ledger import notes as note_files
from harness.loop.bench import Bench, Say, now, say_all
from harness.records import Attempt, Evidence, Key, Note, Row
from harness.units import quantity

# The folder below profile_data for the dumps of the kernel that is being timed.
WORK = "rescale"


@dataclass(frozen=True, slots=True, kw_only=True)
class RescaleResult:
    """Notes on the kernels that were timed again, sentences on the others, and the digest of the timing key."""

    key_digest: str
    notes: tuple[Note, ...]
    skipped: tuple[str, ...]


def rescale(contest: Contest, progress: Progress, say: Say, *, everything: bool = False) -> RescaleResult:
    """Times the accepted attempts of a contest under today's timing key; with `everything`, all that did not fail.

    Kernels with a time under the key are not timed again; kernels that failed under it are tried once more. Effects:
    notes in experiments/ and, if there is a log, one commit on it. Raises RatchetError `busy`, `no-simulator` for a
    contest whose chip is not simulated, and the errors of reading the ledger.
    """
    if contest.chip.platform != "tpu":
        raise RatchetError(
            "no-simulator",
            f"expected a contest for a TPU, whose kernels are simulated, got one for {contest.chip.name}: measured "
            "times are taken in pairs on a device, and stay as recorded",
        )
    ledger = Ledger.open(contest.directory)
    with ledger.lock("rescale"):
        say_all(ledger.recover(), say)
        return rescale_locked(ledger, contest, progress, everything=everything, tries_again=True)


def rescale_locked(
    ledger: Ledger, contest: Contest, progress: Progress, *, everything: bool = False, tries_again: bool = False
) -> RescaleResult:
    """`rescale` for a caller that holds the lock; failures under the key are retried only if `tries_again`."""
    key = contest.key("simulated")
    todo = pending(ledger, contest, key, everything=everything, tries_again=tries_again)
    after = ledger.next_number() - 1
    before = [note for note in note_files.read(ledger.place)[0] if note.key_digest == key_digest(key)]
    notes, skipped = [], []
    try:
        for number, row in enumerate(todo, 1):
            label = f"attempt {row.number} ({number} of {len(todo)})"
            try:
                candidate = history.candidate(ledger.place, row.number)
            except RatchetError as error:
                skipped.append(f"attempt {row.number} was not timed: {error}")
                continue
            evidence = _timed(contest, candidate, row, label, progress)
            failure = evidence.failure
            if failure is not None and failure.may_pass_next_time:
                # This result is not kept, so that the next run tries the kernel again.
                skipped.append(f"attempt {row.number} was not timed: {failure.kind}: {failure.message}")
                continue
            note = note_of(evidence, contest, key, row, after)
            # A kernel that fails as before is reported, but not noted again.
            if not any(
                replace(note, when=earlier.when, after=earlier.after, key=earlier.key) == earlier for earlier in before
            ):
                ledger.keep_notes([note])
            notes.append(note)
    finally:
        # The notes kept so far are logged even after an interruption.
        ledger.log_notes()
    return RescaleResult(key_digest=key_digest(key), notes=tuple(notes), skipped=tuple(skipped))


def pending(
    ledger: Ledger, contest: Contest, key: Key, *, everything: bool = False, tries_again: bool = False
) -> tuple[Row, ...]:
    """The attempts to be timed under `key`, one for each kernel, the newest first."""
    rows, _ = history.rows(ledger.place)
    of_chip = [row for row in rows if (row.source, row.chip) == ("simulated", contest.chip.name)]
    settled = [note for note in note_files.read(ledger.place)[0] if note.seconds is not None or not tries_again]
    return tuple(scale.untimed(of_chip, settled, key_digest(key), only_accepted=not everything))


def note_of(
    evidence: Evidence, contest: Contest, key: Key, attempt: Attempt | Row, after: int, *, is_checked: bool = False
) -> Note:
    """The note about the recorded kernel of an attempt, from new evidence."""
    failure, latency = evidence.failure, evidence.latency
    report = reporting.report(evidence, contest.chip) if failure is None else None
    why = "; ".join(latency.reasons) if latency is not None and latency.seconds is None else ""
    run = roofline.finished_run(evidence)
    return Note(
        kind="checked" if is_checked else "timed",
        attempt=attempt.number,
        kernel_sha256=attempt.kernel_sha256,
        after=after,
        when=now(),
        key=key,
        key_digest=key_digest(key),
        checks_digest=checks_digest(key) if is_checked else "",
        checks=len(evidence.all_checks) if is_checked else 0,
        checks_passed=sum(check.passed for check in evidence.all_checks) if is_checked else 0,
        failure_kind=failure.kind if failure is not None else "no-latency" if report and report.seconds is None else "",
        reason=failure.message if failure is not None else why,
        score=report.score if report else None,
        seconds=report.seconds if report else None,
        util=report.util if report else None,
        regime=report.regime if report else None,
        gap_fraction=report.gap_fraction if report else None,
        copies=evidence.hlo.copy if evidence.hlo else None,
        spills=run.executed_spills if run else None,
        members=tuple((member.name, member.report.seconds) for member in report.members) if report else (),
    )


def _timed(contest: Contest, candidate: Candidate, row: Row, name: str, progress: Progress) -> Evidence:
    """The evidence about a candidate's time; its dumps are removed afterwards."""
    bench = Bench(contest=contest, progress=progress, on="simulated", checked=False)
    work = f"{WORK}/{row.number:04d}"
    try:
        return bench.judge(candidate, work, f"{name}:")
    finally:
        shutil.rmtree(bench.profile_data / work, ignore_errors=True)


def sentences(rescaled: RescaleResult, left: Sequence[Row] = (), attempts: str | None = None) -> tuple[str, ...]:
    """The result of a rescale in words.

    `attempts` names the attempts that may need a time, such as "8 accepted attempts"; it is "" if there are none, and
    None if their number is not to be named.
    """
    if not (rescaled.notes or rescaled.skipped) and attempts is not None:
        why = f"no time is missing under key {rescaled.key_digest} ({attempts})" if attempts else "no attempts yet"
        return (f"nothing to do: {why}", *_left(left))
    timed = [note for note in rescaled.notes if note.seconds is not None]
    failed = [note for note in rescaled.notes if note.seconds is None]
    words = [f"{quantity(len(timed), 'recorded kernel')} timed again under key {rescaled.key_digest}"]
    words += [f"attempt {note.attempt} has no time: {note.failure_kind}: {note.reason}" for note in failed]
    if rescaled.notes:
        words.append("the times are in experiments/notes.jsonl, which the next accepted attempt commits on the branch")
    return (*words, *_left(left), *rescaled.skipped)


def _left(left: Sequence[Row]) -> Iterator[str]:
    if left:
        without = quantity(len(left), "kernel that was not accepted has", "kernels that were not accepted have")
        yield f"{without} no time under this key: ./ratchet.sh rescale --all"
