"""Recovery in the cases that need a person, another git command, or a small disk: sentences and effects."""

import fcntl
import json
import os
import shutil
import subprocess
from pathlib import Path

import pytest
from fault_fixtures import Server
from fault_server import attempt
from ledger_fixtures import (
    LOG,
    NAIVE,
    SETTING,
    candidate,
    git,
    identify,
    recovered,
    repository_after,
    run_attempt,
    users_state,
)
from loop_fixtures import ratchet
from refusals import refused

from harness import files
from harness.candidate import Candidate
from harness.errors import RatchetError
from harness.ledger import Ledger, history
from harness.ledger.fsck import audit
from harness.ledger.git import write
from harness.ledger.paths import place_of
from harness.records.stored import SCHEMA

pytestmark = pytest.mark.long


@pytest.fixture
def contest(tmp_path: Path) -> Path:
    """A contest with a champion, and with work of the user's beside it."""
    folder = repository_after(1, tmp_path / "user")
    (folder / "README").write_text("staged\n")
    git(folder, "add", "README")
    (folder / "README").write_text("edited\n")
    (folder / "untracked").write_text("untracked\n")
    return folder


def check(contest: Path, outcome: str, *, recorded: bool = True) -> None:
    """Attempt 2 is recorded once, or not at all with kernel.py as it was; nothing of the user's has moved."""
    ledger = Ledger.open(contest)
    assert audit(ledger).findings == ()
    assert [row.number for row in history.rows(ledger.place)[0]] == ([1, 2] if recorded else [1])
    accepted = recorded and outcome == "accept"
    assert (contest / "kernel.py").read_bytes() == (SETTING if accepted else NAIVE)
    rejected = "?? experiments/0002-idea-2.json\n" if recorded and not accepted else ""
    assert git(contest, "status", "--porcelain") == f"MM README\n{rejected}?? untracked\n"
    assert git(contest, "show", ":README") == "staged\n"


def test_a_kernel_edited_after_a_kill_is_kept_and_so_is_the_one_before(server: Server, contest: Path) -> None:
    mine = candidate(contest, 300)
    assert server.obey(contest, "accept", "kill", before="hash-object")["status"] == -9
    later = candidate(contest, 301)
    (sentence,) = recovered(contest)
    assert (contest / "kernel.py").read_bytes() == later
    command = sentence.split("`")[1].split()
    assert git(contest, *command[1:]).encode() == mine


@pytest.mark.parametrize("verb", [("results",), ("show", "1")])
def test_the_next_command_finishes_and_says_so(server: Server, contest: Path, verb: tuple[str, ...]) -> None:
    server.obey(contest, "reject", "kill", before="update-ref")
    assert "attempt 2" in ratchet(contest, "fsck", expect=1).stdout
    done = ratchet(contest, *verb, expect=0)
    assert "attempt 2" in done.stderr
    assert "now it is, in the log" in done.stderr
    check(contest, "reject")


def test_giving_up_puts_the_users_kernel_back(contest: Path) -> None:
    ledger = Ledger.open(contest)
    mine = candidate(contest, 300)
    before = users_state(contest)
    with ledger.lock():
        ledger.begin(Candidate(text=mine), "attempt 2")
        ledger.restore(Candidate(text=SETTING))
        ledger.abandon()
        assert ledger.recover() == ()
    assert users_state(contest) == before
    with ledger.lock():
        ledger.begin(Candidate(text=mine), "attempt 2")
        with refused("unfinished"):
            ledger.begin(Candidate(text=mine), "attempt 2")
        ledger.restore(Candidate(text=SETTING))
        # The process that gives up says why itself.
        assert ledger.recover() == ()
    assert users_state(contest) == before
    assert [row.number for row in history.rows(ledger.place)[0]] == [1]


def test_a_plain_clone_is_killed_before_its_first_log_commit(server: Server, contest: Path) -> None:
    git(contest.parent, "clone", "-q", f"file://{contest}", "clone")
    clone = contest.parent / "clone"
    identify(clone)
    assert server.obey(clone, "reject", "kill", before="update-ref")["status"] == -9
    recovered(clone)
    ledger = Ledger.open(clone)
    assert [row.number for row in history.rows(ledger.place)[0]] == [1, 2]
    assert git(clone, "rev-list", "--first-parent", "--count", ledger.place.log_ref).strip() == "2"


def test_another_worktree_that_went_on_meanwhile(server: Server, contest: Path) -> None:
    assert server.obey(contest, "accept", "kill", before="update-ref")["status"] == -9
    git(contest, "worktree", "add", "-q", str(contest.parent / "tree"), "-b", "other")
    tree = Ledger.open(contest.parent / "tree")
    candidate(tree.place.root, 64)
    run_attempt(tree, "reject", hypothesis="in the other tree")
    ledger = Ledger.open(contest)
    (sentence,) = recovered(contest)
    assert "not recorded" in sentence
    assert (contest / "kernel.py").read_bytes() == NAIVE
    assert [row.hypothesis for row in history.rows(ledger.place)[0]] == ["idea 1", "in the other tree"]


def test_a_commit_between_kill_and_recovery(server: Server, contest: Path) -> None:
    assert server.obey(contest, "accept", "kill", before="ratchet: accept")["status"] == -9
    git(contest, "commit", "-qm", "the user goes on")
    ledger = Ledger.open(contest)
    (sentence,) = recovered(contest)
    assert "on refs/heads/main" in sentence
    assert git(contest, "log", "-2", "--format=%s").split("\n")[:2] == ["idea 2", "the user goes on"]
    assert ledger.champion_candidate().text == SETTING


def test_another_branch_between_kill_and_recovery(server: Server, contest: Path) -> None:
    assert server.obey(contest, "accept", "kill", before="ratchet: accept")["status"] == -9
    git(contest, "checkout", "-qb", "other")
    ledger = Ledger.open(contest)
    (sentence,) = recovered(contest)
    assert "refs/heads/other was checked out" in sentence
    assert git(contest, "rev-parse", "main") == git(contest, "rev-parse", "other")
    assert [row.number for row in history.rows(ledger.place)[0]] == [1, 2]
    assert history.candidate(ledger.place, 2).text == SETTING


def test_a_second_ratchet_is_told_who_is_at_work(contest: Path) -> None:
    first, second = Ledger.open(contest), Ledger.open(contest)
    with first.lock("attempt 7"), refused("busy", "attempt 7, contest root") as caught, second.lock():
        pytest.fail("two at once")
    assert str(os.getpid()) in str(caught.value)
    with first.lock("attempt 7"):
        # Verbs that only read continue, and name what they do not show.
        (sentence,) = second.recovered()
    assert sentence.startswith("an attempt is under way and not recorded yet: process ")
    with second.lock():
        assert second.recover() == ()


def test_a_holder_that_has_not_named_itself(contest: Path) -> None:
    with open(contest / ".git" / "ratchet" / "lock", "w") as stream:
        fcntl.flock(stream, fcntl.LOCK_EX)
        with pytest.raises(RatchetError, match="has not recorded its name yet"), Ledger.open(contest).lock():
            pytest.fail("two at once")


def test_the_ledger_is_not_written_without_its_lock(contest: Path) -> None:
    ledger = Ledger.open(contest)
    for writes in (ledger.recover, ledger.abandon, lambda: ledger.begin(Candidate(text=NAIVE), "x")):
        with pytest.raises(RuntimeError, match="lock"):
            writes()


def test_a_branch_that_moves_at_the_last_moment(server: Server, contest: Path) -> None:
    assert server.obey(contest, "accept", "race", 2, before="ratchet: accept")["status"] == 0
    assert git(contest, "log", "-3", "--format=%s").split("\n")[:3] == ["idea 2", "race", "race"]
    assert git(contest, "status", "--porcelain") == "MM README\n?? untracked\n"


def test_a_log_that_moves_at_the_last_moment(server: Server, contest: Path) -> None:
    mine = candidate(contest, 300)
    other = git(contest, "commit-tree", "HEAD^{tree}", "-p", LOG, "-m", "attempt 2: x").strip()
    answer = server.obey(contest, "accept", "race", before="update-ref", command=("update-ref", LOG, other))
    assert answer["events"][-1][1] == "ref-moved"
    assert (contest / "kernel.py").read_bytes() == mine
    assert git(contest, "rev-parse", LOG).strip() == other
    assert recovered(contest) == ()


def test_a_branch_that_never_holds_still_ends_in_words(server: Server, contest: Path) -> None:
    answer = server.obey(contest, "accept", "race", 99, before="ratchet: accept")
    assert "moved 5 times" in answer["events"][-1][-1]
    recovered(contest)
    assert [row.number for row in history.rows(place_of(contest))[0]] == [1, 2]
    assert Ledger.open(contest).champion_candidate().text == SETTING


def test_objects_that_were_collected_between_kill_and_recovery(server: Server, contest: Path) -> None:
    mine = candidate(contest, 300)
    server.obey(contest, "accept", "kill", before="update-ref")
    git(contest, "gc", "-q", "--prune=now")
    (sentence,) = recovered(contest)
    assert "objects are gone" in sentence
    assert (contest / "kernel.py").read_bytes() == mine
    assert audit(Ledger.open(contest)).findings == ()


def test_a_journal_that_cannot_be_read_is_left_alone(contest: Path) -> None:
    path = contest / ".git" / "ratchet" / "root" / "journal.json"
    for content in ("{", json.dumps({"schema": SCHEMA, "purpose": "x", "branch": ""})):
        path.write_text(content)
        ledger = Ledger.open(contest)
        with ledger.lock(), refused("bad-journal"):
            ledger.recover()
        assert path.read_text() == content


def test_a_signature_that_fails_is_made_up_for_later(contest: Path) -> None:
    # The key signs the log's commit, and is gone when the branch's commit is to be signed.
    program = contest.parent / "gpg"
    program.write_text(
        "#!/bin/sh\n[ -e $0.used ] && exit 1\ntouch $0.used\ncat > /dev/null\n"
        "echo '[GNUPG:] SIG_CREATED D 1 2 00 0 0' >&2\necho '-----BEGIN PGP SIGNATURE-----'\n"
    )
    program.chmod(0o755)
    git(contest, "config", "commit.gpgsign", "true")
    git(contest, "config", "gpg.program", str(program))
    with refused("signing"):
        attempt(contest, "accept")
    ledger = Ledger.open(contest)
    assert [row.number for row in history.rows(ledger.place)[0]] == [1, 2]
    with pytest.raises(RatchetError):
        recovered(contest)
    git(contest, "config", "commit.gpgsign", "false")
    recovered(contest)
    check(contest, "accept")


def test_a_locked_index_is_made_up_for_later(contest: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(write, "_INDEX_PATIENCE_SECONDS", 0.0)
    (contest / ".git" / "index.lock").write_text("")
    with refused("index-locked"):
        attempt(contest, "accept")
    (contest / ".git" / "index.lock").unlink()
    recovered(contest)
    check(contest, "accept")


@pytest.mark.parametrize("outcome", ["accept", "reject"])
def test_a_full_file_system_loses_nothing(contest: Path, tmp_path: Path, outcome: str) -> None:
    small = tmp_path / "small"
    small.mkdir()
    if subprocess.run(["mount", "-t", "tmpfs", "-o", "size=4m", "none", str(small)], capture_output=True).returncode:
        pytest.skip("a small file system needs mount, which this user may not")
    try:
        kinds = []
        # The disk gets ever more blocks until the attempt fits, so it is full at one step after the other.
        for blocks in range(1, 60, 3):
            shutil.copytree(contest, small / "user", symlinks=True)
            room = os.statvfs(small)
            (small / "ballast").write_bytes(b"x" * (room.f_bavail - blocks) * room.f_frsize)
            try:
                attempt(small / "user", outcome)
                break
            except RatchetError as error:
                kinds.append(error.kind)
            (small / "ballast").unlink()
            recovered(small / "user")
            check(small / "user", outcome, recorded=len(history.rows(place_of(small / "user"))[0]) == 2)
            shutil.rmtree(small / "user")
        assert set(kinds) == {"no-space"}
        assert len(kinds) >= 3
        check(small / "user", outcome)
    finally:
        subprocess.run(["umount", str(small)], check=True)


def test_refusals_of_the_system_have_kinds(tmp_path: Path) -> None:
    for number, kind in ((28, "no-space"), (122, "no-space"), (30, "read-only"), (13, "read-only"), (5, "io")):
        with refused(kind), files.refusals_in_words("writing x"):
            raise OSError(number, os.strerror(number))
    with refused("io"):
        files.write_atomically(tmp_path / ("x" * 300), b"")
    assert list(tmp_path.iterdir()) == []


def test_an_interrupted_write_leaves_the_old_bytes(tmp_path: Path) -> None:
    path = tmp_path / "kernel.py"
    path.write_bytes(b"old")
    path.chmod(0o751)
    files.write_atomically(path, b"new")
    assert (path.read_bytes(), path.stat().st_mode & 0o777) == (b"new", 0o751)
    assert list(tmp_path.iterdir()) == [path]
