"""Real repositories and real records for the tests of git and the ledger; no mock of either."""

import hashlib
import os
import shutil
import subprocess
from dataclasses import replace
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from evidence_examples import KEY, V5E, evidence, resimulated, statement

from harness.advice import report as reporting
from harness.candidate import Candidate
from harness.judge.key import key_digest, problem_digest
from harness.judge.verdict import decision, roofline
from harness.ledger import Ledger, diff, history
from harness.ledger.recording import Recorded
from harness.loop import revoke as revoking
from harness.records import (
    Attempt,
    Champion,
    Evidence,
    Failure,
    Key,
    Note,
    Policy,
    RejudgedAttempt,
    Revocation,
    Row,
    Verdict,
)

NAIVE = b"BQ = 128\nBKV = 256\n\n\ndef kernel_fn(q, k, v):\n    return q\n"
# The text after `--set BQ=512`.
SETTING = NAIVE.replace(b"BQ = 128", b"BQ = 512")
PREPARE = b'CHIP = "v5e"\n'
# The log of a contest in the top folder.
LOG = "refs/ratchet/root/log"
OWN_KEY = replace(KEY, problem=problem_digest(statement()), timing="0" * 16, checks="0" * 16)
# The time of an attempt with that outcome, divided by the champion's: each gain exceeds the simulator's uncertainty.
_TIME_RATIO = {"accept": 0.95, "reject": 1.05}


def attempt(number: int = 1, kernel: bytes = NAIVE, old: bytes = b"", **changes: Any) -> Attempt:
    """A real record of an attempt with `kernel`, its diff taken against `old`."""
    made = Attempt(
        number=number,
        contest="root",
        hypothesis=f"idea {number}",
        started="2026-01-01T00:00:00+00:00",
        finished="2026-01-01T00:00:09+00:00",
        judged_against="",
        kernel_sha256=hashlib.sha256(kernel).hexdigest(),
        key=OWN_KEY,
        policy=Policy(),
        evidence=evidence(),
        verdict=Verdict(outcome="accept", reasons=("1.2 % less time",)),
        diff=diff.unified(old, kernel),
    )
    return replace(made, **changes)


def row(of: Attempt) -> Row:
    """The row of an attempt as the judge makes it."""
    return reporting.row(of, reporting.report(of.evidence, V5E), key_digest(of.key))


# A timing key of today: the judge that simulates has changed, the problem and the chip have not.
LATER_KEY = replace(OWN_KEY, timing="1" * 16, checks="2" * 16)


def note(of: Attempt, seconds: float | None, key: Key = LATER_KEY, **changes: Any) -> Note:
    """A note on the kernel of an attempt as `rescale` makes it, under a key of its own for each time."""
    key = replace(key, timing=f"{key.timing[:8]}{int(1e9 * (seconds or 0)):08x}")
    made = Note(
        kind="timed",
        attempt=of.number,
        kernel_sha256=of.kernel_sha256,
        after=of.number,
        when="2026-01-02T00:00:00+00:00",
        key=key,
        key_digest=key_digest(key),
    )
    if seconds is not None:
        work = of.evidence.problem.work
        util = roofline.utilisation(work.flops, seconds, roofline.peak(work, V5E))
        made = replace(made, seconds=seconds, util=util, score=roofline.score(util, seconds))
    return replace(made, **changes)


def git(repository: Path, *arguments: str, stdin: bytes = b"", **environment: str) -> str:
    """The output of a git command that must succeed."""
    done = subprocess.run(
        ["git", *arguments],
        cwd=repository,
        input=stdin,
        capture_output=True,
        timeout=60,
        env={**os.environ, **environment},
    )
    assert done.returncode == 0, f"git {arguments}: {done.stderr.decode()}"
    return done.stdout.decode("utf-8", "surrogateescape")


def new_repository(folder: Path, *, contest: str = "") -> Path:
    """A repository with one commit that holds a contest; returns the contest's folder."""
    folder.mkdir(parents=True, exist_ok=True)
    place = folder / contest
    place.mkdir(parents=True, exist_ok=True)
    (place / "kernel.py").write_bytes(NAIVE)
    (place / "prepare.py").write_bytes(PREPARE)
    (folder / "README").write_text("the user's own\n")
    into_repository(folder, "the user's own work")
    return place


def identify(repository: Path) -> None:
    """Sets the author of the repository's commits."""
    git(repository, "config", "user.name", "A User")
    git(repository, "config", "user.email", "user@example.org")


def into_repository(folder: Path, subject: str) -> Path:
    """Makes a repository of the folder, with one commit of all its files."""
    git(folder, "init", "-q", "-b", "main")
    identify(folder)
    commit_all(folder, subject)
    return folder


def commit_all(folder: Path, subject: str) -> None:
    """Commits all files of a repository as they are."""
    git(folder, "add", "-A")
    git(folder, "commit", "-qm", subject)


def candidate(contest: Path, bq: int) -> bytes:
    """Writes another kernel.py into a contest, as a person editing it, and returns its bytes."""
    data = NAIVE.replace(b"BQ = 128", b"BQ = %d" % bq)
    (contest / "kernel.py").write_bytes(data)
    return data


def ready(ledger: Ledger, outcome: Any = "accept", **changes: Any) -> tuple[Attempt, Row, Candidate]:
    """The attempt that judging kernel.py as it stands would give: evidence of that outcome, and the verdict on it."""
    kernel = ledger.candidate_here()
    number = ledger.next_number()
    champion = ledger.champion()
    old = ledger.champion_candidate().text if champion else b""
    theirs = champion.evidence if champion else None
    measured = changes.pop("evidence", None) or _of_outcome(outcome, theirs)
    against = (
        Champion(
            attempt=champion.number,
            commit=ledger.champion_commit() or "",
            score=0.3,
            seconds=theirs.latency.seconds if theirs and theirs.latency else None,
        )
        if champion
        else None
    )
    made = attempt(
        number,
        kernel.text,
        old,
        contest=ledger.place.name,
        judged_against=git(ledger.place.root, "rev-parse", "HEAD").strip(),
        champion=against,
        evidence=measured,
        verdict=Verdict(outcome=outcome, reasons=("a reason",)),
        kind="experiment" if champion else "baseline",
    )
    made = replace(made, **changes)
    if "verdict" not in changes and made.key == OWN_KEY and made.kind in ("baseline", "experiment"):
        pair = resimulated(measured, theirs) if theirs and outcome == "accept" else ()
        ruled = decision.decide(measured, theirs, None, made.policy, V5E, resimulated=pair)
        made = replace(made, verdict=ruled) if ruled.outcome == outcome else made
    return made, row(made), kernel


def _of_outcome(outcome: str, champion: Evidence | None) -> Evidence:
    """Evidence with this outcome against a champion with that evidence."""
    if outcome == "failed":
        return evidence(failure=WRONG)
    if outcome == "inconclusive":
        return evidence(None)
    before = champion.latency.seconds if champion and champion.latency else None
    return evidence(before * _TIME_RATIO[outcome]) if before else evidence()


def run_attempt(ledger: Ledger, outcome: Any = "accept", **changes: Any) -> Recorded:
    """One whole attempt with kernel.py as it lies there: lock, begin, record."""
    with ledger.lock():
        ledger.begin(ledger.candidate_here(), "a test")
        made, of, kernel = ready(ledger, outcome, **changes)
        return ledger.record(made, of, kernel, new_branch_commit=outcome == "accept")


WRONG = Failure(stage="correctness", kind="wrong-result", message="the worst error is 2.1 times the tolerance")


def revocation(ledger: Ledger, holder: int | None, *failing: int, **changes: Any) -> tuple[Attempt, Row, Candidate]:
    """The record of a revoke: the champion and the accepted attempts `failing` fail, `holder` passes (None: nobody)."""
    champion = ledger.champion()
    assert champion is not None
    failing_evidence = evidence(failure=WRONG)
    judged_again = [
        RejudgedAttempt(
            attempt=number, kernel_sha256=history.attempt(ledger.place, number).kernel_sha256, failure=WRONG
        )
        for number in (champion.number, *failing)
    ]
    kernel, verdict = ledger.champion_candidate(), Verdict(outcome="failed", reasons=("it fails",), failure=WRONG)
    if holder is not None:
        kernel = history.candidate(ledger.place, holder)
        judged_again.append(RejudgedAttempt(attempt=holder, kernel_sha256=kernel.sha256))
        verdict = Verdict(outcome="accept", reasons=("another holds the title",))
    made = attempt(
        ledger.next_number(),
        kernel.text,
        ledger.champion_candidate().text,
        contest=ledger.place.name,
        hypothesis=f"revoke attempt {champion.number}: wrong on sinks",
        judged_against=git(ledger.place.root, "rev-parse", "HEAD").strip(),
        champion=Champion(attempt=champion.number, commit=ledger.champion_commit() or "", score=None, seconds=None),
        champion_evidence=failing_evidence if holder else None,
        evidence=evidence() if holder else failing_evidence,
        verdict=verdict,
        kind="revoke",
        revocation=Revocation(
            champion=champion.number, reason="wrong on sinks", tried=tuple(judged_again), holder=holder
        ),
    )
    made = replace(made, **changes)
    return made, row(made), kernel


def run_revoke(ledger: Ledger, holder: int | None, *failing: int, **changes: Any) -> tuple[str, ...]:
    """A whole revoke with these outcomes, as the verb records it."""
    with ledger.lock():
        made, _, kernel = revocation(ledger, holder, *failing, **changes)
        return revoking.record(ledger, made, kernel, "revoke")


def hashes(repository: Path) -> dict[str, str]:
    """The SHA-256 and mode of every file of the working tree, by path."""
    return {
        str(path.relative_to(repository)): f"{path.stat().st_mode:o} {hashlib.sha256(path.read_bytes()).hexdigest()}"
        for path in sorted(repository.rglob("*"))
        if path.is_file() and ".git" not in path.relative_to(repository).parts
    }


def users_state(repository: Path) -> dict[str, Any]:
    """Status, index, stash and every file, as git and the file system show them."""
    return {
        "status": git(repository, "status", "--porcelain=v2", "-z", "--ignored", "--untracked-files=all"),
        "index": git(repository, "ls-files", "-s", "-v", "-z"),
        "stash": git(repository, "stash", "list", "-p"),
        "files": hashes(repository),
    }


def mess(contest: Path) -> None:
    """The user's own half-done work in every state git knows."""
    (contest / ".gitignore").write_text("*.ignored\n")
    for name in ("staged", "edited", "removed", "renamed", "stashed", "assumed", "gone", "mode"):
        (contest / name).write_text(f"{name}\n" * 5)
    commit_all(contest, "more of the user's own")
    (contest / "stashed").write_text("stashed\n")
    git(contest, "stash", "-q")
    (contest / "staged").write_text("staged\n")
    (contest / "intended").write_text("intended\n")
    git(contest, "add", "staged")
    git(contest, "add", "--intent-to-add", "intended")
    git(contest, "rm", "-q", "removed")
    git(contest, "mv", "renamed", "moved")
    (contest / "staged").write_text("staged, then edited\n")
    (contest / "edited").write_text("edited\n")
    (contest / "gone").unlink()
    (contest / "mode").chmod(0o755)
    git(contest, "update-index", "--assume-unchanged", "assumed")
    (contest / "untracked").write_text("untracked\n")
    (contest / "cache.ignored").write_text("ignored\n")
    (contest / "odd\nname").write_text("odd\n")


def without_ours(state: dict[str, Any]) -> dict[str, Any]:
    """The state without kernel.py and experiments/, which an attempt may change."""

    def ours(text: str) -> bool:
        return text.endswith("kernel.py") or "experiments/" in text

    return {
        name: {path: digest for path, digest in value.items() if not ours(path)}
        if isinstance(value, dict)
        else [record for record in value.split("\0") if not ours(record)]
        for name, value in state.items()
    }


def recovered(contest: Path) -> tuple[str, ...]:
    """The sentences of the recovery with which the next command begins."""
    ledger = Ledger.open(contest)
    with ledger.lock():
        return ledger.recover()


def numbers(ledger: Ledger, limit: int | None = None) -> list[int]:
    """The attempt numbers in the table; fails if a row was skipped."""
    rows, skipped = history.rows(ledger.place, limit)
    assert skipped == ()
    return [row.number for row in rows]


def repository_after(attempts: int, folder: Path) -> Path:
    """A copy, in `folder`, of a new repository after so many of the attempts of `make_attempts`."""
    return Path(shutil.copytree(_recorded(attempts).name, folder, symlinks=True, dirs_exist_ok=True))


def make_attempts(ledger: Ledger, count: int) -> None:
    """Makes the first of a baseline, a win, a loss and a win: copied into a new repository, recorded in any other."""
    root = ledger.place.root
    if _beginning(root) == _beginning(Path(_recorded(0).name)):
        shutil.rmtree(root)
        repository_after(count, root)
    else:
        for number in range(count):
            _make_attempt(ledger, number)


def four_attempts(ledger: Ledger) -> None:
    """Makes all attempts of `make_attempts`."""
    make_attempts(ledger, 4)


def _beginning(repository: Path) -> tuple[dict[str, str], bytes, int]:
    """The files, settings and number of commits, which determine the result of attempts there."""
    git_folder = repository / ".git"
    commits = len((git_folder / "logs" / "HEAD").read_bytes().splitlines())
    return hashes(repository), (git_folder / "config").read_bytes(), commits


@cache
def _recorded(attempts: int) -> TemporaryDirectory[str]:
    """A folder with a new repository after so many attempts, each of which takes 0.2 CPU seconds of git."""
    folder = TemporaryDirectory(prefix="attempts-")
    if attempts:
        _make_attempt(Ledger.open(repository_after(attempts - 1, Path(folder.name))), attempts - 1)
    else:
        new_repository(Path(folder.name))
    return folder


def _make_attempt(ledger: Ledger, place: int) -> None:
    bq, outcome = ((128, "accept"), (512, "accept"), (64, "reject"), (1024, "accept"))[place]
    candidate(ledger.place.kernel_path.parent, bq)
    run_attempt(ledger, outcome)


def plain_clone(contest: Path, to: Path, *options: str) -> Ledger:
    """The ledger of a clone of the branch, without the log."""
    git(to.parent, "clone", "-q", *options, f"file://{contest}", to.name)
    identify(to)
    return Ledger.open(to)
