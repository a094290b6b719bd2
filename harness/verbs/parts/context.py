"""Functions that several verbs share: the contest, ledger and progress of their arguments; evidence; candidates."""

import hashlib
import sysconfig
from argparse import Namespace
from dataclasses import dataclass
from pathlib import Path

from harness import contest as contests
from harness.advice.source_names import shown_name
from harness.candidate import Candidate, read_file
from harness.contest import Contest
from harness.errors import RatchetError, UsageError
from harness.hardware import Chip, chip, with_mesh
from harness.ledger import Ledger, history
from harness.ledger.paths import place_of
from harness.loop import kept_captures
from harness.loop.ledger_advice import candidate_of
from harness.loop.suite_member import evidence_of
from harness.records import Evidence, Row
from harness.render.layout import Files
from harness.render.progress import Progress
from harness.shell.arguments import directory, say
from harness.workbench.profiles.places import PROFILE_DATA


def contest_of(arguments: Namespace, chip: str | None = None) -> Contest:
    """The contest that `-C` names, for the chip if one is named. Raises RatchetError."""
    return contests.load(directory(arguments.directory), chip)


def progress_of(arguments: Namespace) -> Progress:
    """Progress on stderr. It is silent with --quiet, and with --json unless --for-server is given too."""
    return Progress(quiet=arguments.quiet or (arguments.json and not arguments.for_server))


def open_ledger(folder: Path) -> Ledger:
    """The ledger of the contest in a folder, even if only the ledger is left.

    Raises RatchetError `no-contest` if the folder has neither a contest nor attempts.
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


def recovered_ledger(arguments: Namespace) -> Ledger:
    """The ledger of the contest that `-C` names; a killed attempt is finished or undone first, with a message.

    With `only_reads`, the ledger is left as it is.
    """
    ledger = open_ledger(directory(arguments.directory))
    for sentence in repaired(ledger, arguments):
        say(sentence)
    return ledger


def repaired(ledger: Ledger, arguments: Namespace) -> tuple[str, ...]:
    """The sentences on a killed attempt, which is finished or undone; () if there is none, or with `only_reads`."""
    return ledger.recovered() if ledger.is_unfinished() and not arguments.only_reads else ()


def present_evidence(
    contest: Contest, arguments: Namespace, *, checked: bool = True, with_lines: bool = False
) -> Evidence:
    """The evidence about kernel.py as it stands; kernel.py is judged now unless its evidence has been kept.

    Without `checked`, kernel.py is only compiled and simulated, which takes a fifth of the time; `with_lines` adds the
    cycles of each line. Raises RatchetError `not-judged` if there is no evidence and the caller only reads.
    """
    from harness.loop import bench

    if arguments.only_reads:
        evidence = bench.kept_evidence(contest, checked=checked, with_lines=with_lines)
        if evidence is None:
            raise RatchetError(
                "not-judged",
                "kernel.py as it stands was not judged yet, and this tool only reads: judge it first (evaluate, "
                "`ratchet.sh judge`), or name an attempt",
            )
        return evidence
    with progress_of(arguments) as progress:
        asked = bench.Bench(contest=contest, progress=progress, checked=checked, with_lines=with_lines)
        return bench.evidence_here(asked)


@dataclass(frozen=True, slots=True, kw_only=True)
class JudgedKernel:
    """A kernel with its evidence and chip; `name` is `kernel.py`, or names the attempt that recorded it."""

    name: str
    candidate: Candidate
    evidence: Evidence
    chip: Chip


def judged_kernel(
    arguments: Namespace, number: int | None, chip_name: str | None, *, checked: bool = True, with_lines: bool = False
) -> JudgedKernel:
    """The kernel of an attempt, or kernel.py as it stands (None); for a suite, with the evidence of the named member.

    `present_evidence` describes `checked` and `with_lines`. Raises RatchetError `unknown-attempt`; UsageError `usage`,
    `which-member`.
    """
    if number is not None and chip_name is not None:
        raise UsageError("usage", "expected an attempt or --chip, got both: an attempt has its own chip")
    if number is None:
        contest = contest_of(arguments, chip_name)
        contest.member(arguments.member)
        evidence = present_evidence(contest, arguments, checked=checked, with_lines=with_lines)
        name, target, candidate = "kernel.py", contest.chip, contest.candidate()
    else:
        ledger = open_ledger(directory(arguments.directory))
        evidence = history.attempt(ledger.place, number).evidence
        name, candidate = f"attempt {number}", candidate_of(ledger.place, number) or Candidate(text=b"")
        target = with_mesh(chip(evidence.chip), evidence.problem.mesh)
    evidence = evidence_of(evidence, arguments.member)
    return JudgedKernel(name=name, candidate=candidate, evidence=evidence, chip=target)


def with_package_files(candidate: Candidate, evidence: Evidence) -> Files:
    """The files of a candidate, and the unchanged files of installed packages that its operations came from.

    A file that has changed since it was judged is left out, so that no line is shown with another text.
    """
    files, home = {}, Path(sysconfig.get_path("purelib")).resolve()
    for source in evidence.trace.sources if evidence.trace else ():
        path = (home / source.name).resolve()
        # The name comes from the traced program and is not trusted, so only modules of installed packages are read.
        data = read_file(path) if path.suffix == ".py" and path.is_relative_to(home) else None
        if data is not None and hashlib.sha256(data).hexdigest() == source.sha256:
            files[shown_name(source.name)] = data.decode("utf-8", "replace").splitlines()
    return {**files, **candidate.lines}


def rows_of(contest: Path) -> tuple[Row, ...]:
    """The attempts of the contest in a folder; () if the folder has no ledger."""
    try:
        return history.rows(place_of(contest))[0]
    except RatchetError:
        return ()


def tidy(contest: Path) -> None:
    """Removes old captures and dumps of the contest in a folder, with a message."""
    try:
        champion = Ledger.open(contest).champion()
    except RatchetError:
        champion = None
    accepted = {row.number for row in rows_of(contest) if row.outcome == "accept"}
    for sentence in kept_captures.tidy(contest / PROFILE_DATA, accepted, champion):
        say(sentence)
