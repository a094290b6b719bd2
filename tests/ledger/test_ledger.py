"""Accepts and rejects in a real repository: what they change, and what they leave byte for byte as it was."""

from pathlib import Path

import pytest
from ledger_fixtures import (
    LOG,
    NAIVE,
    OWN_KEY,
    candidate,
    commit_all,
    four_attempts,
    git,
    make_attempts,
    mess,
    new_repository,
    numbers,
    ready,
    run_attempt,
    users_state,
    without_ours,
)
from narrowing import present
from refusals import refused

from harness.candidate import Candidate
from harness.errors import RatchetError
from harness.ledger import Ledger, history
from harness.ledger.paths import contest_name

pytestmark = pytest.mark.long


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
    commit_all(top, "another contest")
    first, second = Ledger.open(top), Ledger.open(inner)
    assert (second.place.name, second.place.directory) == ("examples+a%20b", "examples/a b")
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


def test_an_empty_ledger(ledger: Ledger) -> None:
    assert history.rows(ledger.place) == ((), ())
    assert ledger.champion() is None
    assert ledger.champion_commit() is None
    assert ledger.next_number() == 1
    for question in (lambda: history.attempt(ledger.place, 1), lambda: history.candidate(ledger.place, 1)):
        with refused("unknown-attempt"):
            question()
    with pytest.raises(RatchetError, match="expected a champion of contest"):
        ledger.champion_candidate()


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
    trailers = git(contest, "log", "-1", "--format=%(trailers:only,unfold)").split("\n")
    assert {line.partition(": ")[0] for line in trailers if line} == {
        f"Ratchet-{name}" for name in ("Attempt", "Contest", "Score", "Latency", "Source", "Chip", "Key", "Kernel")
    }
    assert "Ratchet-Latency: 2.052000 ms" in trailers
    champion = present(ledger.champion())
    assert (champion.number, champion.key) == (2, OWN_KEY)
    assert ledger.champion_candidate().text == kernel
    assert ledger.champion_commit() == done.branch_commit


def test_the_log_holds_everything_in_order(ledger: Ledger, contest: Path) -> None:
    four_attempts(ledger)
    assert numbers(ledger) == [1, 2, 3, 4]
    commits = git(contest, "rev-list", "--first-parent", LOG).split()
    assert len(commits) == 4
    assert git(contest, "ls-tree", "--name-only", commits[0]).split() == ["attempt.json", "kernel.py"]
    third = history.attempt(ledger.place, 3)
    parents = git(contest, "rev-list", "--parents", "-1", commits[1]).split()[1:]
    assert parents == [commits[2], third.judged_against]
    rows, _ = history.rows(ledger.place)
    assert [entry.outcome for entry in rows] == ["accept", "accept", "reject", "accept"]
    assert rows[2].commit == commits[1]
    assert rows[3].commit == git(contest, "rev-parse", "HEAD").strip()
    assert history.candidate(ledger.place, 3).text == NAIVE.replace(b"128", b"64")
    assert history.candidate(ledger.place, 1).text == NAIVE
    assert numbers(ledger, 2) == [3, 4]
    assert numbers(ledger, 0) == []
    assert ledger.next_number() == 5
    record = git(contest, "show", f"{commits[1]}:attempt.json").encode()
    assert record == (contest / "experiments" / "0003-idea-3.json").read_bytes()


def test_a_loser_gives_way_to_the_champion_and_rides_along(ledger: Ledger, contest: Path) -> None:
    make_attempts(ledger, 1)
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
        "moved",
        "removed",
        "renamed",
        "staged",
    ]


def test_a_staged_loser_is_not_left_staged(ledger: Ledger, contest: Path) -> None:
    make_attempts(ledger, 1)
    git(contest, "update-index", "--refresh")
    candidate(contest, 64)
    git(contest, "add", "kernel.py")
    run_attempt(ledger, "reject")
    assert git(contest, "diff", "--cached", "--name-only") == ""
    assert git(contest, "diff-files", "--name-only") == ""


def test_another_kernel_staged_meanwhile_stays_staged(ledger: Ledger, contest: Path) -> None:
    make_attempts(ledger, 1)
    kernel = candidate(contest, 512)
    with ledger.lock():
        ledger.begin(Candidate(text=kernel), "a test")
        made, of, _ = ready(ledger)
        candidate(contest, 999)
        git(contest, "add", "kernel.py")
        staged = git(contest, "ls-files", "-s", "kernel.py")
        done = ledger.record(made, of, Candidate(text=kernel), new_branch_commit=True)
    assert git(contest, "ls-files", "-s", "kernel.py") == staged
    assert (contest / "kernel.py").read_bytes() == NAIVE.replace(b"128", b"999")
    assert git(contest, "show", "HEAD:kernel.py").encode() == kernel
    assert any("stays as you staged it" in sentence for sentence in done.messages)


def test_a_kernel_edited_meanwhile_is_left_alone(ledger: Ledger, contest: Path) -> None:
    make_attempts(ledger, 1)
    kernel = candidate(contest, 64)
    with ledger.lock():
        ledger.begin(Candidate(text=kernel), "a test")
        made, of, _ = ready(ledger, "reject")
        edited = candidate(contest, 65)
        done = ledger.record(made, of, Candidate(text=kernel), new_branch_commit=False)
    assert (contest / "kernel.py").read_bytes() == edited
    assert "edited while" in done.messages[0]
    assert history.candidate(ledger.place, 2).text == kernel


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
    assert history.candidate(ledger.place, 2).text == windows.replace(b"128", b"64")
    assert not ledger.kernel_changed_since(present(ledger.champion()))
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
    with ledger.lock(), refused("not-a-file"):
        ledger.begin(Candidate(text=NAIVE), "a test")


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
    assert ledger.champion_candidate().text == NAIVE.replace(b"128", b"512")
