"""The ledger on real repositories: what an accept and a reject change, what they leave alone, what a clone shows."""

import json
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
from ledger_fixtures import (
    KEY,
    NAIVE,
    PREPARE,
    attempt,
    candidate,
    git,
    identify,
    new_repository,
    ready,
    row,
    run_attempt,
    users_state,
)

from harness import codec, experiments
from harness.errors import RatchetError
from harness.ledger import Ledger
from harness.place import contest_name
from harness.records import Row

LOG = "refs/ratchet/root/log"


@pytest.fixture
def contest(tmp_path: Path) -> Path:
    return new_repository(tmp_path / "user")


@pytest.fixture
def ledger(contest: Path) -> Ledger:
    return Ledger.open(contest)


def numbers(ledger: Ledger, limit: int | None = None) -> list[int]:
    found, skipped = ledger.rows(limit)
    assert skipped == ()
    return [one.number for one in found]


def four_attempts(ledger: Ledger) -> None:
    """Baseline, a win, a loss, a win."""
    contest = ledger.kernel_path.parent
    run_attempt(ledger)
    candidate(contest, 512)
    run_attempt(ledger)
    candidate(contest, 64)
    run_attempt(ledger, "reject")
    candidate(contest, 1024)
    run_attempt(ledger)


def plain_clone(contest: Path, to: Path, *options: str) -> Ledger:
    git(to.parent, "clone", "-q", *options, f"file://{contest}", to.name)
    identify(to)
    return Ledger.open(to)


# --- names -------------------------------------------------------------------------------------


def test_contests_have_names_that_refs_can_hold(contest: Path) -> None:
    folders = [
        "",
        "root",
        "examples/root",
        "examples+root",
        "a b",
        "a.lock",
        "..x",
        "ünïcode",
        "%72oot",
        "a~^:?*[\\",
        "-x",
    ]
    names = [contest_name(folder) for folder in folders]
    assert names[:3] == ["root", "%72oot", "examples+root"]
    assert len(set(names)) == len(folders)
    for name in names:
        git(contest, "check-ref-format", f"refs/ratchet/{name}/log")


def test_contests_of_one_repository_have_ledgers_of_their_own(tmp_path: Path) -> None:
    top = new_repository(tmp_path / "user")
    inner = top / "examples" / "a b"
    inner.mkdir(parents=True)
    (inner / "kernel.py").write_bytes(NAIVE)
    git(top, "add", "-A")
    git(top, "commit", "-qm", "another contest")
    first, second = Ledger.open(top), Ledger.open(inner)
    assert (second.name, second.directory) == ("examples+a%20b", "examples/a b")
    run_attempt(first)
    candidate(inner, 512)
    run_attempt(second)
    assert (numbers(first), numbers(second)) == ([1], [1])
    assert git(top, "show", "--format=", "--name-only", "HEAD").split("\n")[:2] == [
        "examples/a b/experiments/0001-idea-1.json",
        "examples/a b/kernel.py",
    ]
    assert (top / "kernel.py").read_bytes() == NAIVE
    assert second.champion() != first.champion()


# --- accept and reject -------------------------------------------------------------------------


def test_an_empty_ledger(ledger: Ledger) -> None:
    assert ledger.rows() == ((), ())
    assert ledger.champion() is None
    assert ledger.champion_commit() is None
    assert ledger.next_number() == 1
    for question in (lambda: ledger.attempt(1), lambda: ledger.kernel(1)):
        with pytest.raises(RatchetError) as caught:
            question()
        assert caught.value.kind == "unknown-attempt"
    with pytest.raises(RatchetError, match="has been accepted"):
        ledger.champion_kernel()


def test_an_accept_is_a_commit_of_kernel_and_record(ledger: Ledger, contest: Path) -> None:
    start = git(contest, "rev-parse", "HEAD").strip()
    done = run_attempt(ledger)
    assert done.branch_commit == git(contest, "rev-parse", "HEAD").strip()
    assert git(contest, "show", "--format=", "--name-only", "HEAD").split() == ["experiments/0001-idea-1.json"]
    kernel = candidate(contest, 512)
    done = run_attempt(ledger, hypothesis='BQ 128 -> 512: "größer"\n提高')
    assert git(contest, "rev-list", "--count", f"{start}..HEAD").strip() == "2"
    assert git(contest, "show", "--format=", "--name-only", "HEAD").split() == [
        "experiments/0002-bq-128-512-groer.json",
        "kernel.py",
    ]
    assert git(contest, "status", "--porcelain") == ""
    assert git(contest, "show", "HEAD:kernel.py").encode() == kernel
    message = git(contest, "log", "-1", "--format=%B")
    assert message.startswith('BQ 128 -> 512: "größer"\n\nBQ 128 -> 512: "größer"\n提高\n\nRatchet-Attempt: 2\n')
    said = git(contest, "log", "-1", "--format=%(trailers:only,unfold)").split("\n")
    assert {line.partition(": ")[0] for line in said if line} == {
        f"Ratchet-{name}" for name in ("Attempt", "Contest", "Score", "Latency", "Source", "Chip", "Key", "Kernel")
    }
    assert "Ratchet-Latency: 2.160000 ms" in said
    champion = ledger.champion()
    assert champion is not None
    assert (champion.number, champion.key) == (2, KEY)
    assert ledger.champion_kernel() == kernel
    assert ledger.champion_commit() == done.branch_commit


def test_the_log_holds_everything_in_order(ledger: Ledger, contest: Path) -> None:
    four_attempts(ledger)
    assert numbers(ledger) == [1, 2, 3, 4]
    commits = git(contest, "rev-list", "--first-parent", LOG).split()
    assert len(commits) == 4
    assert git(contest, "ls-tree", "--name-only", commits[0]).split() == ["attempt.json", "counters.txt", "kernel.py"]
    third = ledger.attempt(3)
    parents = git(contest, "rev-list", "--parents", "-1", commits[1]).split()[1:]
    assert parents == [commits[2], third.judged_against]
    found, _ = ledger.rows()
    assert [one.outcome for one in found] == ["accept", "accept", "reject", "accept"]
    assert found[2].commit == commits[1]
    assert found[3].commit == git(contest, "rev-parse", "HEAD").strip()
    assert ledger.kernel(3) == NAIVE.replace(b"128", b"64")
    assert ledger.kernel(1) == NAIVE
    assert ledger.evidence_files(3) == {"counters.txt": b"mxu 1\n"}
    assert numbers(ledger, 2) == [3, 4]
    assert numbers(ledger, 0) == []
    assert ledger.next_number() == 5
    record = git(contest, "show", f"{commits[1]}:attempt.json").encode()
    assert record == (contest / "experiments" / "0003-idea-3.json").read_bytes()


def test_a_loser_gives_way_to_the_champion_and_rides_along(ledger: Ledger, contest: Path) -> None:
    run_attempt(ledger)
    candidate(contest, 64)
    head = git(contest, "rev-parse", "HEAD")
    done = run_attempt(ledger, "reject")
    assert done.branch_commit is None
    assert done.messages == ()
    assert (contest / "kernel.py").read_bytes() == NAIVE
    assert git(contest, "rev-parse", "HEAD") == head
    assert git(contest, "status", "--porcelain") == "?? experiments/0002-idea-2.json\n"
    candidate(contest, 32)
    run_attempt(ledger, "inconclusive")
    (contest / "experiments" / "0099-broken.json").write_text('{"schema": 1, "row"')
    (contest / "experiments" / "notes.txt").write_text("mine")
    candidate(contest, 512)
    done = run_attempt(ledger, number=4, hypothesis="idea 4")
    assert git(contest, "show", "--format=", "--name-only", "HEAD").split() == [
        "experiments/0002-idea-2.json",
        "experiments/0003-idea-3.json",
        "experiments/0004-idea-4.json",
        "kernel.py",
    ]
    assert "0099-broken.json" in done.messages[0]
    assert git(contest, "status", "--porcelain").split("\n")[:2] == [
        "?? experiments/0099-broken.json",
        "?? experiments/notes.txt",
    ]


def test_a_failed_baseline_leaves_the_kernel_alone(ledger: Ledger, contest: Path) -> None:
    kernel = candidate(contest, 3)
    run_attempt(ledger, "failed")
    assert (contest / "kernel.py").read_bytes() == kernel
    assert ledger.champion() is None
    assert numbers(ledger) == [1]


def mess(contest: Path) -> None:
    """The user's own half-done work in every state git knows."""
    (contest / ".gitignore").write_text("*.ignored\n")
    for name in ("staged", "edited", "removed", "renamed", "stashed", "assumed", "gone", "mode"):
        (contest / name).write_text(f"{name}\n" * 5)
    git(contest, "add", "-A")
    git(contest, "commit", "-qm", "more of the user's own")
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


def test_the_users_own_work_is_byte_for_byte_the_same(ledger: Ledger, contest: Path) -> None:
    mess(contest)
    run_attempt(ledger)
    before = without_ours(users_state(contest))
    assert len([record for record in before["status"] if record]) >= 9
    candidate(contest, 64)
    run_attempt(ledger, "reject")
    assert without_ours(users_state(contest)) == before
    candidate(contest, 512)
    run_attempt(ledger)
    assert without_ours(users_state(contest)) == before
    assert git(contest, "show", "--format=", "--name-only", "HEAD").split() == [
        "experiments/0002-idea-2.json",
        "experiments/0003-idea-3.json",
        "kernel.py",
    ]
    assert "kernel.py" not in git(contest, "status", "--porcelain")


def test_nothing_of_the_users_is_committed_by_an_accept(ledger: Ledger, contest: Path) -> None:
    mess(contest)
    base = git(contest, "rev-parse", "HEAD").strip()
    candidate(contest, 512)
    git(contest, "add", "kernel.py")
    run_attempt(ledger)
    assert git(contest, "diff", "--name-only", base, "HEAD").split() == ["experiments/0001-idea-1.json", "kernel.py"]
    assert git(contest, "diff", "--cached", "--no-renames", "--name-only", "-z").split("\0")[:-1] == [
        "moved", "removed", "renamed", "staged",
    ]  # fmt: skip


def test_a_staged_loser_is_not_left_staged(ledger: Ledger, contest: Path) -> None:
    run_attempt(ledger)
    candidate(contest, 64)
    git(contest, "add", "kernel.py")
    run_attempt(ledger, "reject")
    assert git(contest, "diff", "--cached", "--name-only") == ""
    assert git(contest, "diff-files", "--name-only") == ""


def test_another_kernel_staged_meanwhile_stays_staged(ledger: Ledger, contest: Path) -> None:
    run_attempt(ledger)
    kernel = candidate(contest, 512)
    with ledger.lock():
        ledger.begin(kernel, "a test")
        made, of, _ = ready(ledger)
        candidate(contest, 999)
        git(contest, "add", "kernel.py")
        staged = git(contest, "ls-files", "-s", "kernel.py")
        done = ledger.record(made, of, kernel, {}, new_branch_commit=True)
    assert git(contest, "ls-files", "-s", "kernel.py") == staged
    assert (contest / "kernel.py").read_bytes() == NAIVE.replace(b"128", b"999")
    assert git(contest, "show", "HEAD:kernel.py").encode() == kernel
    assert any("stays staged" in sentence for sentence in done.messages)


def test_a_kernel_edited_meanwhile_is_left_alone(ledger: Ledger, contest: Path) -> None:
    run_attempt(ledger)
    kernel = candidate(contest, 64)
    with ledger.lock():
        ledger.begin(kernel, "a test")
        made, of, _ = ready(ledger, "reject")
        edited = candidate(contest, 65)
        done = ledger.record(made, of, kernel, {}, new_branch_commit=False)
    assert (contest / "kernel.py").read_bytes() == edited
    assert "edited while" in done.messages[0]
    assert ledger.kernel(2) == kernel


def test_the_executable_bit_is_kept(ledger: Ledger, contest: Path) -> None:
    (contest / "kernel.py").chmod(0o755)
    candidate(contest, 512)
    run_attempt(ledger)
    assert git(contest, "ls-tree", "HEAD", "kernel.py").startswith("100755")
    assert git(contest, "ls-files", "-s", "kernel.py").startswith("100755")
    candidate(contest, 64)
    run_attempt(ledger, "reject")
    assert (contest / "kernel.py").stat().st_mode & 0o777 == 0o755
    git(contest, "config", "core.fileMode", "false")
    (contest / "kernel.py").chmod(0o644)
    candidate(contest, 1024)
    run_attempt(ledger)
    assert git(contest, "ls-tree", "HEAD", "kernel.py").startswith("100755")


def test_windows_line_endings_survive(ledger: Ledger, contest: Path) -> None:
    git(contest, "config", "core.autocrlf", "true")
    windows = NAIVE.replace(b"\n", b"\r\n")
    (contest / "kernel.py").write_bytes(windows)
    run_attempt(ledger)
    assert git(contest, "show", "HEAD:kernel.py").encode() == NAIVE
    assert git(contest, "status", "--porcelain") == ""
    (contest / "kernel.py").write_bytes(windows.replace(b"128", b"64"))
    run_attempt(ledger, "reject")
    assert (contest / "kernel.py").read_bytes() == windows
    assert ledger.kernel(2) == windows.replace(b"128", b"64")
    champion = ledger.champion()
    assert champion is not None
    assert not ledger.kernel_changed_since(champion)
    assert numbers(ledger) == [1, 2]


def test_a_kernel_that_git_ignores_or_does_not_know_is_committed_all_the_same(ledger: Ledger, contest: Path) -> None:
    git(contest, "rm", "-q", "--cached", "kernel.py")
    (contest / ".gitignore").write_text("kernel.py\n*.json\n")
    git(contest, "add", ".gitignore")
    git(contest, "commit", "-qm", "ignore the kernel")
    run_attempt(ledger)
    assert git(contest, "show", "HEAD:kernel.py").encode() == NAIVE
    candidate(contest, 64)
    run_attempt(ledger, "reject")
    assert (contest / "kernel.py").read_bytes() == NAIVE
    assert git(contest, "status", "--porcelain") == ""
    assert numbers(ledger) == [1, 2]


def test_a_symbolic_link_is_refused(ledger: Ledger, contest: Path) -> None:
    (contest / "kernel.py").rename(contest / "real.py")
    (contest / "kernel.py").symlink_to("real.py")
    with ledger.lock(), pytest.raises(RatchetError) as caught:
        ledger.begin(NAIVE, "a test")
    assert caught.value.kind == "not-a-file"


def test_intent_to_add_of_the_kernel_becomes_the_accept(ledger: Ledger, contest: Path) -> None:
    git(contest, "rm", "-q", "--cached", "kernel.py")
    git(contest, "commit", "-qm", "forget the kernel")
    git(contest, "add", "--intent-to-add", "kernel.py")
    run_attempt(ledger)
    assert git(contest, "status", "--porcelain") == ""


def test_commit_hooks_do_not_run_and_a_reference_hook_may_refuse(ledger: Ledger, contest: Path) -> None:
    for name in ("pre-commit", "commit-msg", "prepare-commit-msg", "post-commit"):
        hook = contest / ".git" / "hooks" / name
        hook.parent.mkdir(exist_ok=True)
        hook.write_text("#!/bin/sh\nexit 1\n")
        hook.chmod(0o755)
    run_attempt(ledger)
    assert numbers(ledger) == [1]
    hook = contest / ".git" / "hooks" / "reference-transaction"
    hook.write_text("#!/bin/sh\necho 'not on my branch' >&2\nexit 1\n")
    hook.chmod(0o755)
    candidate(contest, 512)
    with pytest.raises(RatchetError, match="not on my branch"):
        run_attempt(ledger)
    hook.unlink()
    with ledger.lock():
        ledger.recover()
    assert numbers(ledger) == [1, 2]
    assert ledger.champion_kernel() == NAIVE.replace(b"128", b"512")


# --- the branch moves --------------------------------------------------------------------------


def record_while(ledger: Ledger, kernel: bytes, meanwhile: Any) -> Any:
    with ledger.lock():
        ledger.begin(kernel, "a test")
        made, of, _ = ready(ledger)
        meanwhile()
        return ledger.record(made, of, kernel, {}, new_branch_commit=True, guarded=("harness",))


def test_an_ordinary_commit_meanwhile_is_built_upon(ledger: Ledger, contest: Path) -> None:
    run_attempt(ledger)
    kernel = candidate(contest, 512)

    def meanwhile() -> None:
        (contest / "README").write_text("edited\n")
        git(contest, "commit", "-qm", "a word", "README")

    done = record_while(ledger, kernel, meanwhile)
    assert git(contest, "log", "-2", "--format=%s").split("\n")[:2] == ["idea 2", "a word"]
    assert git(contest, "show", "HEAD:README") == "edited\n"
    assert git(contest, "status", "--porcelain") == ""
    assert ledger.champion_commit() == done.branch_commit


@pytest.mark.parametrize("path", ["kernel.py", "prepare.py", "harness/judge.py"])
def test_a_commit_that_touches_judge_or_kernel_refuses_the_accept(ledger: Ledger, contest: Path, path: str) -> None:
    run_attempt(ledger)
    kernel = candidate(contest, 512)

    def meanwhile() -> None:
        (contest / path).parent.mkdir(exist_ok=True)
        (contest / path).write_text("# another\n")
        git(contest, "add", path)
        git(contest, "commit", "-qm", "meddle", path)

    with pytest.raises(RatchetError, match="is kept in the log") as caught:
        record_while(ledger, kernel, meanwhile)
    assert caught.value.kind == "branch-moved"
    assert git(contest, "log", "-1", "--format=%s").strip() == "meddle"
    assert numbers(ledger) == [1, 2]
    assert ledger.kernel(2) == kernel
    assert (contest / "experiments" / "0002-idea-2.json").exists()
    with ledger.lock():
        assert ledger.recover() == ()
    found, _ = ledger.rows()
    assert found[1].commit == git(contest, "rev-parse", LOG).strip()
    champion = ledger.champion()
    assert champion is not None
    assert champion.number == 1


@pytest.mark.parametrize(
    ("commands", "words"),
    [
        ([("checkout", "-q", "--detach")], "detached"),
        ([("checkout", "-q", "-b", "other")], "checked out"),
        ([("commit", "-q", "--amend", "--allow-empty", "-m", "amended", "--only")], "no longer contains"),
    ],
)
def test_a_branch_that_is_no_longer_there_refuses_the_accept(
    ledger: Ledger, contest: Path, commands: list[tuple[str, ...]], words: str
) -> None:
    run_attempt(ledger)
    kernel = candidate(contest, 512)

    def meanwhile() -> None:
        for command in commands:
            git(contest, *command)

    with pytest.raises(RatchetError, match=words):
        record_while(ledger, kernel, meanwhile)
    assert numbers(ledger) == [1, 2]
    assert ledger.kernel(2) == kernel


def test_a_log_that_moved_loses_nothing_of_the_users(ledger: Ledger, contest: Path) -> None:
    run_attempt(ledger)
    kernel = candidate(contest, 512)
    other = git(contest, "commit-tree", "HEAD^{tree}", "-p", LOG, "-m", "attempt 2: x").strip()
    stop = Ledger.open(
        contest, lambda name: git(contest, "update-ref", LOG, other) if name == "journal-written" else None
    )
    with pytest.raises(RatchetError) as caught:
        run_attempt(stop)
    assert caught.value.kind == "ref-moved"
    assert (contest / "kernel.py").read_bytes() == kernel
    assert git(contest, "rev-parse", LOG).strip() == other
    with ledger.lock():
        assert ledger.recover() == ()


def test_the_champion_follows_the_branch(ledger: Ledger, contest: Path) -> None:
    run_attempt(ledger)
    git(contest, "checkout", "-qb", "other")
    faster = candidate(contest, 512)
    run_attempt(ledger)
    git(contest, "checkout", "-q", "main")
    assert ledger.champion_kernel() == NAIVE
    found, _ = ledger.rows()
    assert found[1].commit == git(contest, "rev-parse", "other").strip()
    (contest / "README").write_text("meanwhile\n")
    git(contest, "commit", "-qam", "on main")
    git(contest, "merge", "-q", "--no-edit", "other")
    champion = ledger.champion()
    assert champion is not None
    assert champion.number == 2
    assert ledger.champion_kernel() == faster
    assert not ledger.kernel_changed_since(champion)


def test_a_squashed_branch_keeps_its_champion(ledger: Ledger, contest: Path) -> None:
    run_attempt(ledger)
    git(contest, "checkout", "-qb", "other")
    candidate(contest, 512)
    run_attempt(ledger)
    faster = candidate(contest, 1024)
    run_attempt(ledger)
    git(contest, "checkout", "-q", "main")
    git(contest, "merge", "-q", "--squash", "other")
    git(contest, "commit", "-qm", "all at once")
    git(contest, "branch", "-qD", "other")
    git(contest, "update-ref", "-d", LOG)
    assert ledger.kernel_changed_since(ledger.attempt(1))
    shallow = plain_clone(contest, contest.parent / "shallow", "--depth=1")
    champion = shallow.champion()
    assert champion is not None
    assert champion.number == 3
    assert shallow.champion_kernel() == faster
    assert shallow.champion_commit() is None
    candidate(shallow.kernel_path.parent, 64)
    run_attempt(shallow, "reject")
    assert shallow.kernel_path.read_bytes() == faster
    assert numbers(shallow) == [1, 2, 3, 4]


def test_an_amended_accept_is_found_where_it_is_now(ledger: Ledger, contest: Path) -> None:
    run_attempt(ledger)
    git(contest, "commit", "-q", "--amend", "--only", "-m", git(contest, "log", "-1", "--format=reworded%n%n%b"))
    found, _ = ledger.rows()
    assert found[0].commit == git(contest, "rev-parse", "HEAD").strip() == ledger.champion_commit()


def test_a_kernel_changed_by_an_ordinary_commit_is_noticed(ledger: Ledger, contest: Path) -> None:
    run_attempt(ledger)
    champion = ledger.champion()
    assert champion is not None
    candidate(contest, 256)
    assert not ledger.kernel_changed_since(champion)
    git(contest, "commit", "-qam", "by hand")
    assert ledger.kernel_changed_since(champion)
    assert ledger.champion() == champion
    run_attempt(ledger, kind="rebaseline")
    champion = ledger.champion()
    assert champion is not None
    assert champion.number == 2
    assert not ledger.kernel_changed_since(champion)


def test_an_undo_takes_the_last_accept_back(ledger: Ledger, contest: Path) -> None:
    run_attempt(ledger)
    candidate(contest, 512)
    run_attempt(ledger)
    with ledger.lock():
        ledger.begin(ledger.kernel_path.read_bytes(), "undo")
        ledger.restore_kernel(ledger.kernel(1))
        made, of, kernel = ready(ledger, kind="undo", hypothesis="undo attempt 2")
        ledger.record(made, of, kernel, {}, new_branch_commit=True)
    assert "Ratchet-Undoes: 2" in git(contest, "log", "-1", "--format=%b")
    champion = ledger.champion()
    assert champion is not None
    assert champion.number == 1
    assert ledger.champion_kernel() == NAIVE == (contest / "kernel.py").read_bytes()
    clone = plain_clone(contest, contest.parent / "clone", "--depth=1")
    champion = clone.champion()
    assert champion is not None
    assert champion.number == 1
    candidate(contest, 2048)
    run_attempt(ledger)
    assert ledger.champion_kernel() == NAIVE.replace(b"128", b"2048")


# --- clones ------------------------------------------------------------------------------------


def test_a_plain_clone_shows_all_and_goes_on_numbering(ledger: Ledger, contest: Path) -> None:
    four_attempts(ledger)
    clone = plain_clone(contest, contest.parent / "clone")
    assert git(clone.root, "for-each-ref", "refs/ratchet") == ""
    ours, theirs = ledger.rows()[0], clone.rows()[0]
    assert [codec.encode_row(one) for one in ours] == [codec.encode_row(one) for one in theirs]
    assert [one.commit for one in theirs] == [ours[0].commit, ours[1].commit, "", ours[3].commit]
    assert numbers(clone, 2) == [3, 4]
    assert [clone.kernel(number) for number in (1, 2, 3, 4)] == [ledger.kernel(number) for number in (1, 2, 3, 4)]
    assert clone.attempt(3) == ledger.attempt(3)
    assert clone.evidence_files(3) == {}
    assert clone.champion() == ledger.champion()
    candidate(clone.root, 64)
    run_attempt(clone, "reject")
    assert numbers(clone) == [1, 2, 3, 4, 5]
    commits = git(clone.root, "rev-list", "--first-parent", clone.log_ref).split()
    assert git(clone.root, "log", "--first-parent", "--format=%s", clone.log_ref).split("\n")[:2] == [
        "attempt 5: reject: idea 5",
        "attempt 4: accept: idea 4",
    ]
    assert len([one for one in commits if git(clone.root, "ls-tree", one, "attempt.json")]) == 2
    assert git(clone.root, "show", f"{commits[1]}:kernel.py").encode() == ledger.kernel(4)


def test_a_clone_with_the_log_has_everything(ledger: Ledger, contest: Path) -> None:
    four_attempts(ledger)
    candidate(contest, 16)
    run_attempt(ledger, "reject")
    clone = plain_clone(contest, contest.parent / "clone")
    assert numbers(clone) == [1, 2, 3, 4]
    git(clone.root, "fetch", "-q", "origin", "refs/ratchet/*:refs/ratchet/*")
    assert clone.rows() == ledger.rows()
    shutil.rmtree(clone.root / "experiments")
    assert clone.rows() == ledger.rows()


def test_a_clone_that_cannot_rebuild_a_loser_says_so(ledger: Ledger, contest: Path) -> None:
    four_attempts(ledger)
    clone = plain_clone(contest, contest.parent / "clone")
    path = clone.experiments_directory / "0003-idea-3.json"
    path.write_bytes(path.read_bytes().replace(b"+BQ = 64", b"+BQ = 65"))
    with pytest.raises(RatchetError, match="git fetch") as caught:
        clone.kernel(3)
    assert caught.value.kind == "no-kernel"
    path.write_bytes(path.read_bytes().replace(b"-BQ = 512", b"-BQ = 77"))
    with pytest.raises(RatchetError, match="does not fit"):
        clone.kernel(3)


def test_two_clones_that_went_apart_show_both_attempts(ledger: Ledger, contest: Path) -> None:
    run_attempt(ledger)
    clone = plain_clone(contest, contest.parent / "clone")
    candidate(contest, 512)
    run_attempt(ledger, hypothesis="ours")
    candidate(clone.root, 64)
    run_attempt(clone, "reject", hypothesis="theirs")
    git(clone.root, "pull", "-q", "--ff-only")
    found, notes = clone.rows()
    assert [(one.number, one.hypothesis) for one in found] == [(1, "idea 1"), (2, "theirs"), (2, "ours")]
    assert [one.commit for one in found[1:]] == [
        git(clone.root, "rev-parse", clone.log_ref).strip(),
        git(clone.root, "rev-parse", "HEAD").strip(),
    ]
    assert "attempt 2 exists more than once" in notes[0]
    champion = clone.champion()
    assert champion is not None
    assert champion.hypothesis == "ours"
    assert clone.next_number() == 3


def test_worktrees_share_the_log(ledger: Ledger, contest: Path) -> None:
    run_attempt(ledger)
    git(contest, "worktree", "add", "-q", str(contest.parent / "tree"), "-b", "other")
    tree = Ledger.open(contest.parent / "tree")
    candidate(tree.root, 512)
    run_attempt(tree)
    assert numbers(ledger) == [1, 2]
    assert ledger.next_number() == 3
    assert ledger.champion_kernel() == NAIVE
    candidate(contest, 64)
    run_attempt(ledger, "reject")
    assert numbers(tree) == [1, 2, 3]
    with ledger.lock(), pytest.raises(RatchetError) as caught, tree.lock():
        pytest.fail("two at once")
    assert caught.value.kind == "busy"


# --- bad records -------------------------------------------------------------------------------


def test_bad_records_are_named_and_skipped(ledger: Ledger, contest: Path) -> None:
    four_attempts(ledger)
    clone = plain_clone(contest, contest.parent / "clone")
    folder = clone.experiments_directory
    good = (folder / "0003-idea-3.json").read_bytes()
    (folder / "0005-cut.json").write_bytes(good[:-20])
    (folder / "0006-newer.json").write_bytes(good.replace(b'"schema": 1', b'"schema": 2', 1))
    (folder / "0007-moved.json").write_bytes(good)
    (folder / "2026-foreign.json").write_text('{"hello": 1}')
    (folder / "0008-folder.json").mkdir()
    (folder / "0001-idea-1.json").write_text("spoiled")
    found, notes = clone.rows()
    assert [one.number for one in found] == [1, 2, 3, 4]
    for name in ("0005-cut", "0006-newer", "0007-moved", "2026-foreign", "0008-folder", "0001-idea-1"):
        assert any(f"experiments/{name}.json" in note for note in notes), name
    assert clone.attempt(1) == ledger.attempt(1)
    with pytest.raises(RatchetError, match="schema 2") as caught:
        clone.attempt(6)
    assert caught.value.kind == "newer-record"
    # A foreign file does not make the numbers jump; one that is ours but spoiled keeps its number.
    assert clone.next_number() == 9
    found, _ = clone.rows(2)
    assert [one.number for one in found] == [3, 4]


def test_a_strange_commit_in_the_log_is_named_and_skipped(ledger: Ledger, contest: Path) -> None:
    run_attempt(ledger)
    strange = git(contest, "commit-tree", "HEAD^{tree}", "-p", LOG, "-m", "Ratchet-Row: {nonsense").strip()
    git(contest, "update-ref", LOG, strange)
    found, notes = ledger.rows()
    assert [one.number for one in found] == [1]
    assert strange[:12] in notes[0]
    candidate(contest, 64)
    run_attempt(ledger, "reject")
    assert [one.number for one in ledger.rows()[0]] == [1, 2]


def test_a_file_of_that_name_is_not_overwritten(ledger: Ledger, contest: Path) -> None:
    (contest / "experiments").mkdir()
    (contest / "experiments" / "0001-idea-1.json").write_text("[]")
    done = run_attempt(ledger)
    assert (contest / "experiments" / "0001-idea-1.json").read_text() == "[]"
    assert "is there already" in done.messages[0]
    assert [one.number for one in ledger.rows()[0]] == [1]


def test_evidence_files_cannot_leave_their_folder(ledger: Ledger) -> None:
    for name in ("../x", "/x", "kernel.py", "attempt.json", "a//b", ".git/hooks/x"):
        with ledger.lock(), pytest.raises(ValueError, match="evidence file"):
            ledger.record(*ready(ledger), {name: b""}, new_branch_commit=False)
    assert ledger.rows() == ((), ())


def test_rows_survive_whatever_the_message_says(ledger: Ledger, contest: Path) -> None:
    hypotheses = [
        "",
        "\n\n",
        "提高\n\"quotes\" and 'more'\\n",
        "\udce9 not UTF-8",
        "a\0b",
        "# not a comment",
        "x" * 500,
    ]
    for hypothesis in hypotheses:
        candidate(contest, len(hypothesis) + 1000)
        run_attempt(ledger, hypothesis=hypothesis)
    assert [one.hypothesis for one in ledger.rows()[0]] == hypotheses
    clone = plain_clone(contest, contest.parent / "clone")
    assert [one.hypothesis for one in clone.rows()[0]] == hypotheses
    assert all(len(line) <= 72 for line in git(contest, "log", "--format=%s").split("\n"))


def test_a_file_can_be_read_by_any_program(ledger: Ledger, contest: Path) -> None:
    run_attempt(ledger)
    document = json.loads((contest / "experiments" / "0001-idea-1.json").read_text())
    assert document["row"]["number"] == document["attempt"]["number"] == 1


def test_the_row_of_a_file_is_that_of_the_log(tmp_path: Path) -> None:
    made = attempt(7)
    path = tmp_path / experiments.file_name(7, made.hypothesis)
    path.write_bytes(codec.encode_attempt(made, row(made)))
    assert isinstance(experiments.row_in(path, "here"), Row)


def test_the_judge_is_untouched(ledger: Ledger, contest: Path) -> None:
    four_attempts(ledger)
    assert (contest / "prepare.py").read_bytes() == PREPARE
    assert subprocess.run(["git", "fsck", "--strict"], cwd=contest, capture_output=True).returncode == 0
