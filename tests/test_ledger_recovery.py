"""The ledger is killed at every step, starved and raced; afterwards every attempt is recorded once or not at all."""

import fcntl
import json
import os
import resource
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from ledger_fixtures import NAIVE, candidate, git, identify, new_repository, ready, run_attempt, users_state

from harness import files
from harness.errors import RatchetError
from harness.git import write
from harness.ledger import Ledger, recording

BEGUN = ("begun", "kernel-noted", "kernel-written")
DECIDED = ("objects-written", "journal-written", "log-moved", "file-written")
ACCEPTED = ("branch-commit-written", "branch-moved", "index-refreshed", "journal-cleared")
REJECTED = ("kernel-restored", "journal-cleared")
# At these the attempt is not in the journal yet: it is undone, not finished.
UNDECIDED = {*BEGUN, "objects-written"}
SETTING = NAIVE.replace(b"BQ = 128", b"BQ = 512")


class Killed(BaseException):
    """Stands in for a process that ends at this point: nothing of the ledger's own code catches it."""


def stop_at(wanted: str) -> Callable[[str], None]:
    def checkpoint(name: str) -> None:
        if name == wanted:
            raise Killed(name)

    return checkpoint


def attempt_with_setting(ledger: Ledger, outcome: str) -> None:
    """One attempt as `--set BQ=512` runs it: kernel.py is rewritten, judged, recorded."""
    with ledger.lock():
        ledger.begin(ledger.kernel_path.read_bytes(), "attempt 2")
        ledger.restore_kernel(SETTING)
        made, of, kernel = ready(ledger, outcome)
        ledger.record(made, of, kernel, {"counters.txt": b"x"}, new_branch_commit=outcome == "accept")


@pytest.fixture
def contest(tmp_path: Path) -> Path:
    """A contest with a champion, and with work of the user's beside it."""
    folder = new_repository(tmp_path / "user")
    run_attempt(Ledger.open(folder))
    (folder / "README").write_text("staged\n")
    git(folder, "add", "README")
    (folder / "README").write_text("edited\n")
    (folder / "untracked").write_text("untracked\n")
    return folder


def check_invariants(contest: Path, outcome: str, *, finished: bool) -> None:
    """Attempt 2 is recorded exactly once, or not at all with kernel.py as the user had it; nothing else has moved."""
    ledger = Ledger.open(contest)
    found, notes = ledger.rows()
    assert notes == ()
    assert [one.number for one in found] == ([1, 2] if finished else [1])
    assert not (contest / ".git" / "ratchet" / "root" / "journal.json").exists()
    assert [path.name for path in contest.rglob("*") if path.name.endswith((".lock", files.TEMPORARY_SUFFIX))] == []
    champion = ledger.champion()
    assert champion is not None
    accepted = finished and outcome == "accept"
    assert champion.number == (2 if accepted else 1)
    assert (contest / "kernel.py").read_bytes() == (SETTING if accepted else NAIVE)
    assert git(contest, "rev-list", "--count", "HEAD").strip() == ("3" if accepted else "2")
    assert git(contest, "rev-list", "--first-parent", "--count", ledger.log_ref).strip() == ("2" if finished else "1")
    if finished:
        assert ledger.attempt(2).verdict.outcome == outcome
        assert ledger.kernel(2) == SETTING
    status = git(contest, "status", "--porcelain")
    losers = "?? experiments/0002-idea-2.json\n" if finished and not accepted else ""
    assert status == f"MM README\n{losers}?? untracked\n"
    assert git(contest, "show", ":README") == "staged\n"
    assert subprocess.run(["git", "fsck", "--strict"], cwd=contest, capture_output=True).returncode == 0


def test_the_steps_are_those_that_are_tested(contest: Path) -> None:
    for outcome, own in (("accept", ACCEPTED), ("reject", REJECTED)):
        seen: list[str] = []
        git(contest, "checkout", "-q", "--", "kernel.py")
        attempt_with_setting(Ledger.open(contest, seen.append), outcome)
        assert tuple(seen) == (*BEGUN, *DECIDED, *own)


CASES = [("accept", step) for step in (*BEGUN, *DECIDED, *ACCEPTED)]
CASES += [("reject", step) for step in (*BEGUN, *DECIDED, *REJECTED)]


@pytest.mark.parametrize(("outcome", "step"), CASES)
def test_an_end_at_any_step_is_finished_or_undone(contest: Path, outcome: str, step: str) -> None:
    with pytest.raises(Killed):
        attempt_with_setting(Ledger.open(contest, stop_at(step)), outcome)
    ledger = Ledger.open(contest)
    with ledger.lock():
        said = ledger.recover()
        assert ledger.recover() == ()
    assert len(said) == (0 if step == "journal-cleared" else 1)
    check_invariants(contest, outcome, finished=step not in UNDECIDED)


@pytest.mark.parametrize(("outcome", "step"), [case for case in CASES if case[1] not in UNDECIDED][:-1])
def test_recovery_itself_may_end_at_any_step(contest: Path, outcome: str, step: str) -> None:
    with pytest.raises(Killed):
        attempt_with_setting(Ledger.open(contest, stop_at("journal-written")), outcome)
    interrupted = Ledger.open(contest, stop_at(step))
    if step != "journal-written":
        with interrupted.lock(), pytest.raises(Killed):
            interrupted.recover()
    ledger = Ledger.open(contest)
    with ledger.lock():
        ledger.recover()
    check_invariants(contest, outcome, finished=True)


SCRIPT = """
import os, signal, sys
from pathlib import Path
from harness.ledger import Ledger
from test_ledger_recovery import attempt_with_setting

def checkpoint(name):
    if name == sys.argv[3]:
        os.kill(os.getpid(), signal.SIGKILL)

attempt_with_setting(Ledger.open(Path(sys.argv[1]), checkpoint), sys.argv[2])
"""


def in_another_process(contest: Path, outcome: str, step: str, limit: int | None = None) -> tuple[int, str]:
    """Runs the attempt in a process of its own, killed for real at `step`, its files limited to `limit` bytes."""
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT, str(contest), outcome, step],
        env={**os.environ, "PYTHONPATH": os.pathsep.join([str(Path(__file__).parent), str(Path(__file__).parents[1])])},
        capture_output=True,
        text=True,
        timeout=120,
        preexec_fn=None if limit is None else lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit)),
    )
    return done.returncode, done.stderr


@pytest.mark.parametrize(
    ("outcome", "step"),
    [("accept", "kernel-written"), ("accept", "log-moved"), ("accept", "branch-moved"), ("reject", "file-written")],
)
def test_a_killed_process_leaves_no_lock_and_can_be_recovered(contest: Path, outcome: str, step: str) -> None:
    status, said = in_another_process(contest, outcome, step)
    assert status == -signal.SIGKILL, said
    ledger = Ledger.open(contest)
    with ledger.lock():
        (sentence,) = ledger.recover()
    assert "attempt 2" in sentence
    check_invariants(contest, outcome, finished=step not in UNDECIDED)


def test_a_kernel_edited_after_a_kill_is_kept_and_so_is_the_one_before(contest: Path) -> None:
    mine = candidate(contest, 300)
    with pytest.raises(Killed):
        attempt_with_setting(Ledger.open(contest, stop_at("kernel-written")), "accept")
    later = candidate(contest, 301)
    ledger = Ledger.open(contest)
    with ledger.lock():
        (sentence,) = ledger.recover()
    assert (contest / "kernel.py").read_bytes() == later
    command = sentence.split("`")[1].split()
    assert git(contest, *command[1:]).encode() == mine


def test_giving_up_puts_the_users_kernel_back(contest: Path) -> None:
    ledger = Ledger.open(contest)
    mine = candidate(contest, 300)
    before = users_state(contest)
    with ledger.lock():
        ledger.begin(mine, "attempt 2")
        ledger.restore_kernel(SETTING)
        ledger.abandon()
        assert ledger.recover() == ()
    assert users_state(contest) == before
    with ledger.lock():
        ledger.begin(mine, "attempt 2")
        with pytest.raises(RatchetError) as caught:
            ledger.begin(mine, "attempt 2")
        assert caught.value.kind == "unfinished"
        ledger.restore_kernel(SETTING)
        # The same process that gives up says why itself.
        assert ledger.recover() == ()
    assert users_state(contest) == before
    assert [one.number for one in ledger.rows()[0]] == [1]


def test_a_plain_clone_is_killed_before_its_first_log_commit(contest: Path) -> None:
    git(contest.parent, "clone", "-q", f"file://{contest}", "clone")
    clone = contest.parent / "clone"
    identify(clone)
    with pytest.raises(Killed):
        attempt_with_setting(Ledger.open(clone, stop_at("journal-written")), "reject")
    ledger = Ledger.open(clone)
    with ledger.lock():
        ledger.recover()
    assert [one.number for one in ledger.rows()[0]] == [1, 2]
    assert git(clone, "rev-list", "--first-parent", "--count", ledger.log_ref).strip() == "2"


def test_another_worktree_that_went_on_meanwhile(contest: Path) -> None:
    with pytest.raises(Killed):
        attempt_with_setting(Ledger.open(contest, stop_at("journal-written")), "accept")
    git(contest, "worktree", "add", "-q", str(contest.parent / "tree"), "-b", "other")
    tree = Ledger.open(contest.parent / "tree")
    candidate(tree.root, 64)
    run_attempt(tree, "reject", hypothesis="in the other tree")
    ledger = Ledger.open(contest)
    with ledger.lock():
        (sentence,) = ledger.recover()
    assert "not recorded" in sentence
    assert (contest / "kernel.py").read_bytes() == NAIVE
    assert [one.hypothesis for one in ledger.rows()[0]] == ["idea 1", "in the other tree"]


def test_a_commit_between_kill_and_recovery(contest: Path) -> None:
    with pytest.raises(Killed):
        attempt_with_setting(Ledger.open(contest, stop_at("file-written")), "accept")
    git(contest, "commit", "-qm", "the user goes on")
    ledger = Ledger.open(contest)
    with ledger.lock():
        (sentence,) = ledger.recover()
    assert "on refs/heads/main" in sentence
    assert git(contest, "log", "-2", "--format=%s").split("\n")[:2] == ["idea 2", "the user goes on"]
    assert ledger.champion_kernel() == SETTING


def test_another_branch_between_kill_and_recovery(contest: Path) -> None:
    with pytest.raises(Killed):
        attempt_with_setting(Ledger.open(contest, stop_at("file-written")), "accept")
    git(contest, "checkout", "-qb", "other")
    ledger = Ledger.open(contest)
    with ledger.lock():
        (sentence,) = ledger.recover()
    assert "refs/heads/other was checked out" in sentence
    assert git(contest, "rev-parse", "main") == git(contest, "rev-parse", "other")
    assert [one.number for one in ledger.rows()[0]] == [1, 2]
    assert ledger.kernel(2) == SETTING


# --- races and locks ---------------------------------------------------------------------------


def test_a_second_ratchet_is_told_who_is_at_work(contest: Path) -> None:
    first, second = Ledger.open(contest), Ledger.open(contest)
    with first.lock("attempt 7"), pytest.raises(RatchetError, match="attempt 7, contest root") as caught, second.lock():
        pytest.fail("two at once")
    assert caught.value.kind == "busy"
    assert str(os.getpid()) in str(caught.value)
    with second.lock():
        assert second.recover() == ()


def test_a_holder_that_has_not_named_itself(contest: Path) -> None:
    with open(contest / ".git" / "ratchet" / "lock", "w") as stream:
        fcntl.flock(stream, fcntl.LOCK_EX)
        with pytest.raises(RatchetError, match="has not said which"), Ledger.open(contest).lock():
            pytest.fail("two at once")


def test_the_ledger_is_not_written_without_its_lock(contest: Path) -> None:
    ledger = Ledger.open(contest)
    for writes in (ledger.recover, ledger.abandon, lambda: ledger.begin(NAIVE, "x")):
        with pytest.raises(RuntimeError, match="lock"):
            writes()


def test_a_branch_that_moves_at_the_last_moment(contest: Path) -> None:
    moved: list[str] = []

    def race(name: str) -> None:
        if name == "branch-commit-written" and len(moved) < 2:
            git(contest, "commit", "-q", "--allow-empty", "--only", "-m", f"race {len(moved)}")
            moved.append(name)

    attempt_with_setting(Ledger.open(contest, race), "accept")
    assert git(contest, "log", "-3", "--format=%s").split("\n")[:3] == ["idea 2", "race 1", "race 0"]
    assert git(contest, "status", "--porcelain") == "MM README\n?? untracked\n"


def test_a_branch_that_never_holds_still_ends_in_words(contest: Path) -> None:
    def race(name: str) -> None:
        if name == "branch-commit-written":
            git(contest, "commit", "-q", "--allow-empty", "--only", "-m", "race")

    with pytest.raises(RatchetError, match="moved 5 times"):
        attempt_with_setting(Ledger.open(contest, race), "accept")
    ledger = Ledger.open(contest)
    with ledger.lock():
        ledger.recover()
    assert [one.number for one in ledger.rows()[0]] == [1, 2]
    assert ledger.champion_kernel() == SETTING


# --- what the machine refuses ------------------------------------------------------------------


def test_a_journal_that_cannot_be_read_is_left_alone(contest: Path) -> None:
    path = contest / ".git" / "ratchet" / "root" / "journal.json"
    for content in ("{", json.dumps({"schema": 2, "purpose": "x", "branch": ""})):
        path.write_text(content)
        ledger = Ledger.open(contest)
        with ledger.lock(), pytest.raises(RatchetError) as caught:
            ledger.recover()
        assert caught.value.kind == "bad-journal"
        assert path.read_text() == content


def test_a_signature_that_fails_is_made_up_for_later(contest: Path) -> None:
    git(contest, "config", "commit.gpgsign", "true")
    git(contest, "config", "gpg.program", "false")
    with pytest.raises(RatchetError) as caught:
        attempt_with_setting(Ledger.open(contest), "accept")
    assert caught.value.kind == "signing"
    ledger = Ledger.open(contest)
    assert [one.number for one in ledger.rows()[0]] == [1, 2]
    with ledger.lock(), pytest.raises(RatchetError):
        ledger.recover()
    git(contest, "config", "commit.gpgsign", "false")
    with ledger.lock():
        ledger.recover()
    check_invariants(contest, "accept", finished=True)


def test_a_locked_index_is_made_up_for_later(contest: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(write, "_INDEX_PATIENCE_SECONDS", 0.0)
    (contest / ".git" / "index.lock").write_text("")
    with pytest.raises(RatchetError) as caught:
        attempt_with_setting(Ledger.open(contest), "accept")
    assert caught.value.kind == "index-locked"
    (contest / ".git" / "index.lock").unlink()
    ledger = Ledger.open(contest)
    with ledger.lock():
        ledger.recover()
    check_invariants(contest, "accept", finished=True)


@pytest.mark.parametrize("limit", [0, 200, 1000, 3000, 6000, 20000])
@pytest.mark.parametrize("outcome", ["accept", "reject"])
def test_a_file_that_cannot_grow_loses_nothing(contest: Path, outcome: str, limit: int) -> None:
    status, said = in_another_process(contest, outcome, "never", limit)
    assert status == 1 or (status == 0 and limit > 3000), said
    assert status == 0 or "harness.errors.RatchetError" in said
    assert status == 0 or "no space" in said or "could not write" in said or "File too large" in said
    ledger = Ledger.open(contest)
    with ledger.lock():
        ledger.recover()
    found, _ = ledger.rows()
    assert [one.number for one in found] in ([1], [1, 2])
    check_invariants(contest, outcome, finished=len(found) == 2)


@pytest.mark.parametrize("outcome", ["accept", "reject"])
def test_a_full_file_system_loses_nothing(contest: Path, tmp_path: Path, outcome: str) -> None:
    small = tmp_path / "small"
    small.mkdir()
    if subprocess.run(["mount", "-t", "tmpfs", "-o", "size=4m", "none", str(small)], capture_output=True).returncode:
        pytest.skip("a small file system needs mount, which this user may not")
    try:
        kinds = []
        # Ever more room, in blocks, until the attempt fits: so the disk is full at one step after the other.
        for blocks in range(1, 60, 3):
            shutil.copytree(contest, small / "user", symlinks=True)
            room = os.statvfs(small)
            (small / "ballast").write_bytes(b"x" * (room.f_bavail - blocks) * room.f_frsize)
            try:
                attempt_with_setting(Ledger.open(small / "user"), outcome)
                break
            except RatchetError as error:
                kinds.append(error.kind)
            (small / "ballast").unlink()
            ledger = Ledger.open(small / "user")
            with ledger.lock():
                ledger.recover()
            check_invariants(small / "user", outcome, finished=len(ledger.rows()[0]) == 2)
            shutil.rmtree(small / "user")
        assert set(kinds) == {"no-space"}
        assert len(kinds) >= 4
        check_invariants(small / "user", outcome, finished=True)
    finally:
        subprocess.run(["umount", str(small)], check=True)


def test_refusals_of_the_system_have_kinds(tmp_path: Path) -> None:
    for number, kind in ((28, "no-space"), (122, "no-space"), (30, "read-only"), (13, "read-only"), (5, "io")):
        with pytest.raises(RatchetError) as caught, files.refusals_in_words("writing x"):
            raise OSError(number, os.strerror(number))
        assert caught.value.kind == kind
    with pytest.raises(RatchetError) as caught:
        files.write_atomically(tmp_path / ("x" * 300), b"")
    assert caught.value.kind == "io"
    assert list(tmp_path.iterdir()) == []


def test_an_interrupted_write_leaves_the_old_bytes(tmp_path: Path) -> None:
    path = tmp_path / "kernel.py"
    path.write_bytes(b"old")
    path.chmod(0o751)
    files.write_atomically(path, b"new")
    assert (path.read_bytes(), path.stat().st_mode & 0o777) == (b"new", 0o751)
    leftover = tmp_path / f".kernel.py{files.TEMPORARY_SUFFIX}"
    leftover.write_bytes(b"half")
    files.remove_temporary(path)
    assert list(tmp_path.iterdir()) == [path]
    assert recording.sha256_of(tmp_path / "nothing") is None
