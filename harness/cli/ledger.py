"""What results does, and what is asked of a ledger by other verbs too; imports nothing of the judge."""

import hashlib
import sysconfig
from argparse import Namespace
from pathlib import Path

from harness import candidate_text
from harness.advice.source_names import shown_name
from harness.cli.arguments import BASELINE, command, directory, say
from harness.cli.documents import ResultsDocument
from harness.cli.verb import Outcome
from harness.errors import RatchetError
from harness.ledger import Ledger
from harness.loop.expectations import calibration
from harness.records import Evidence, Row
from harness.render.layout import Files, source_lines
from harness.render.results import results_table
from harness.workbench.profiles import pruning
from harness.workbench.profiles.places import PROFILE_DATA


def results(given: Namespace) -> Outcome:
    ledger = settled(given)
    rows, skipped = ledger.rows(given.limit)
    for sentence in skipped:
        say(sentence)
    champion = ledger.champion()
    number = champion.number if champion else None

    def text() -> str:
        if not rows:
            return f"no attempts yet: {command(BASELINE, given.directory)} makes the first"
        return results_table(rows, number, calibration=calibration(rows))

    return Outcome(document=ResultsDocument(rows=rows, champion=number, skipped=skipped), text=text)


def settled(given: Namespace) -> Ledger:
    """The ledger of the contest meant; an attempt that was killed is finished or undone first, and that is said."""
    ledger = Ledger.open(directory(given.directory))
    for sentence in ledger.recovered() if ledger.is_unfinished() and not given.only_reads else ():
        say(sentence)
    return ledger


def with_packages(kernel: str, evidence: Evidence) -> Files:
    """The files of a candidate with those files of installed packages that its operations came from, as they are still.

    What is shown beside a line must be what was judged: a file with another hash is left out.
    """
    files, home = {}, Path(sysconfig.get_path("purelib")).resolve()
    for source in evidence.trace.sources if evidence.trace else ():
        path = (home / source.name).resolve()
        # Who traces names the file: nothing but a module of a package is read for it.
        data = candidate_text.read_file(path) if path.suffix == ".py" and path.is_relative_to(home) else None
        if data is not None and hashlib.sha256(data).hexdigest() == source.sha256:
            files[shown_name(source.name)] = data.decode("utf-8", "replace").splitlines()
    return {**files, **source_lines(kernel)}


def kernel_text(ledger: Ledger, number: int) -> str:
    """The kernel.py of an attempt, or "" where only its record and diff are known here."""
    try:
        return ledger.kernel(number).decode("utf-8", "replace")
    except RatchetError:
        return ""


def rows_of(contest: Path) -> tuple[Row, ...]:
    """The attempts of the contest in a folder; none where it has no ledger."""
    try:
        return Ledger.open(contest).rows()[0]
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
