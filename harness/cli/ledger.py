"""The verb results, and questions about a ledger that other verbs ask too."""

import hashlib
import shlex
import sysconfig
from argparse import Namespace
from dataclasses import replace
from pathlib import Path

from harness import contest as contests
from harness.advice.source_names import shown_name
from harness.candidate import Candidate, read_file
from harness.cli.arguments import BASELINE, command, directory, say
from harness.cli.documents import ResultsDocument
from harness.cli.verb import Outcome
from harness.errors import RatchetError, UsageError
from harness.ledger import Ledger, bulk_read, history, table
from harness.ledger.paths import place_of
from harness.loop.expectations import calibration
from harness.loop.gain import gain
from harness.records import Evidence, Note, Row, ScaledRow
from harness.render.layout import Files
from harness.render.results import Shown, results_table
from harness.render.results_csv import results_csv
from harness.units import quantity
from harness.workbench.profiles import pruning
from harness.workbench.profiles.places import PROFILE_DATA

# So many lines has a screen, with the table's head and the sentences below it.
_SCREEN = 30


def results(given: Namespace) -> Outcome:
    if given.json and given.csv:
        raise UsageError("usage", "expected --json or --csv, got both")
    ledger = settled(given)
    found = table.scaled(ledger)
    for sentence in found.skipped:
        say(sentence)
    wanted = table.Wanted(
        is_accepted=given.accepted, is_best=given.best, since=_since(given.since, ledger, found), text=given.grep
    )
    lines = table.newest(table.chosen(found, table.lines(found, unfolded=given.all), wanted), given.limit)
    progress = gain(found)
    rows = tuple(one for one in found.rows if any(one is other for line in lines for other in _rows(line)))
    document = ResultsDocument(
        scale=found.scale,
        rows=rows[-given.limit :] if given.limit else rows,
        champion=found.number,
        gain=progress,
        notes=found.notes,
        skipped=found.skipped,
    )

    def text() -> str:
        if given.csv:
            return results_csv(document.rows, found.notes, found.number)
        if not found.rows:
            return f"no attempts yet: {command(BASELINE, given.directory)} makes the first"
        shown = Shown(
            rows=found.rows,
            lines=lines,
            champion=found.number,
            gain=progress,
            calibration=calibration([one.then for one in found.rows]),
            has_then=given.then or (found.scale is not None and found.scale.timed < found.scale.accepted),
            has_all=given.all,
            again=command("rescale --all", given.directory),
        )
        none = "" if lines else f"none of {quantity(len(found.rows), 'attempt')} matches {_filters(given)}\n"
        return none + (results_table(shown) if wanted.is_narrow or given.all or given.limit else _on_a_screen(shown))

    return Outcome(document=document, text=text)


def _on_a_screen(shown: Shown) -> str:
    """The table with attempts in a row that were not accepted as one line each, where it would be too long."""
    printed, most = results_table(shown), len(shown.lines)
    while (surplus := len(printed.splitlines()) - _SCREEN) > 0 and most > 0:
        most -= surplus
        printed = results_table(replace(shown, lines=table.shortened(shown.lines, most)))
    return printed


def _since(text: str | None, ledger: Ledger, found: table.ScaledTable) -> int | None:
    """The attempt that is meant by a number, or by a day: the first that began then or later. Raises UsageError."""
    if text is None or not found.rows:
        return None
    numbers = [one.row.number for one in found.rows]
    if text.isdecimal():
        if int(text) not in numbers:
            known = f"one of the attempts {min(numbers)} to {max(numbers)}"
            raise UsageError("unknown-attempt", f"expected --since to name {known}, got {text}")
        return int(text)
    begun = bulk_read.read_all(ledger.place, [one.then for one in found.rows])
    days = [(held.attempt.started[:10], held.row.number) for held in begun if held.attempt is not None]
    # After the last attempt: none matches.
    return next((number for day, number in days if day >= text), max(numbers) + 1)


def _rows(line: table.Line) -> tuple[ScaledRow, ...]:
    if isinstance(line, ScaledRow):
        return (line,)
    return () if isinstance(line, Note) else line.rows


def _filters(given: Namespace) -> str:
    """The filters as they were typed, for a sentence."""
    told = ["--accepted"] * given.accepted + ["--best"] * given.best
    told += [f"--since {given.since}"] if given.since else []
    told += [f"--grep {shlex.quote(given.grep)}"] if given.grep else []
    return " and ".join(told)


def opened(folder: Path) -> Ledger:
    """The ledger of the contest in a folder, also of one of which only the ledger is left.

    Raises RatchetError `no-contest` where the folder has neither a contest nor attempts.
    """
    try:
        contests.require(folder)
    except RatchetError as no_contest:
        try:
            ledger = Ledger.open(folder)
        except RatchetError as error:
            raise (no_contest if error.kind == "not-a-repository" else error) from error
        if not history.rows(ledger.place, 1)[0]:
            raise
        return ledger
    return Ledger.open(folder)


def settled(given: Namespace) -> Ledger:
    """The ledger of the contest meant; an attempt that was killed is finished or undone first, and that is said."""
    ledger = opened(directory(given.directory))
    for sentence in ledger.recovered() if ledger.is_unfinished() and not given.only_reads else ():
        say(sentence)
    return ledger


def with_packages(candidate: Candidate, evidence: Evidence) -> Files:
    """The files of a candidate with those files of installed packages that its operations came from, as they are still.

    What is shown beside a line must be what was judged: a file with another hash is left out.
    """
    files, home = {}, Path(sysconfig.get_path("purelib")).resolve()
    for source in evidence.trace.sources if evidence.trace else ():
        path = (home / source.name).resolve()
        # Who traces names the file: nothing but a module of a package is read for it.
        data = read_file(path) if path.suffix == ".py" and path.is_relative_to(home) else None
        if data is not None and hashlib.sha256(data).hexdigest() == source.sha256:
            files[shown_name(source.name)] = data.decode("utf-8", "replace").splitlines()
    return {**files, **candidate.lines}


def known_candidate(ledger: Ledger, number: int) -> Candidate:
    """The candidate of an attempt, an empty one where only its record and diff are known here."""
    try:
        return history.candidate(ledger.place, number)
    except RatchetError:
        return Candidate(text=b"")


def rows_of(contest: Path) -> tuple[Row, ...]:
    """The attempts of the contest in a folder; none where it has no ledger."""
    try:
        return history.rows(place_of(contest))[0]
    except RatchetError:
        return ()


def tidy(contest: Path) -> None:
    """Removes old captures and dumps of the contest in a folder, and says so."""
    try:
        champion = Ledger.open(contest).champion()
    except RatchetError:
        champion = None
    accepted = {row.number for row in rows_of(contest) if row.outcome == "accept"}
    for sentence in pruning.tidy(contest / PROFILE_DATA, accepted, champion):
        say(sentence)
