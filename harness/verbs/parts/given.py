"""What a verb is given: the contest meant, its ledger, progress on stderr; and what several verbs ask of them."""

import hashlib
import sysconfig
from argparse import Namespace
from pathlib import Path

from harness import contest as contests
from harness.advice.source_names import shown_name
from harness.candidate import Candidate, read_file
from harness.contest import Contest
from harness.errors import RatchetError
from harness.ledger import Ledger, history
from harness.ledger.paths import place_of
from harness.loop import kept_captures
from harness.records import Evidence, Row
from harness.render.layout import Files
from harness.render.progress import Progress
from harness.shell.arguments import directory, say
from harness.workbench.profiles.places import PROFILE_DATA


def contest_of(given: Namespace, chip: str | None = None) -> Contest:
    """The contest meant, for the chip if one is named. Raises RatchetError."""
    return contests.load(directory(given.directory), chip)


def progress_of(given: Namespace) -> Progress:
    """How far the verb is, said on stderr unless it is to be quiet or prints a document."""
    return Progress(quiet=given.quiet or given.json)


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
    for sentence in kept_captures.tidy(contest / PROFILE_DATA, accepted, champion):
        say(sentence)
