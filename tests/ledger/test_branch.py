"""The branch is moved, switched, merged, squashed, amended: the champion is still the right one."""

from pathlib import Path
from typing import Any

import pytest
from ledger_fixtures import LOG, NAIVE, candidate, git, make_attempts, numbers, plain_clone, ready, run_attempt
from narrowing import present
from refusals import refused

from harness.candidate import Candidate
from harness.errors import RatchetError
from harness.ledger import Ledger, history

pytestmark = pytest.mark.long


def record_while(ledger: Ledger, kernel: bytes, meanwhile: Any) -> Any:
    with ledger.lock():
        ledger.begin(Candidate(text=kernel), "a test")
        made, of, _ = ready(ledger)
        meanwhile()
        return ledger.record(made, of, Candidate(text=kernel), new_branch_commit=True, guarded=("harness",))


def test_an_ordinary_commit_meanwhile_is_built_upon(ledger: Ledger, contest: Path) -> None:
    make_attempts(ledger, 1)
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
    make_attempts(ledger, 1)
    kernel = candidate(contest, 512)

    def meanwhile() -> None:
        (contest / path).parent.mkdir(exist_ok=True)
        (contest / path).write_text("# another\n")
        git(contest, "add", path)
        git(contest, "commit", "-qm", "meddle", path)

    with refused("branch-moved", "is kept in the log"):
        record_while(ledger, kernel, meanwhile)
    assert git(contest, "log", "-1", "--format=%s").strip() == "meddle"
    assert numbers(ledger) == [1, 2]
    assert history.candidate(ledger.place, 2).text == kernel
    assert (contest / "experiments" / "0002-idea-2.json").exists()
    with ledger.lock():
        assert ledger.recover() == ()
    rows, _ = history.rows(ledger.place)
    assert rows[1].commit == git(contest, "rev-parse", LOG).strip()
    assert present(ledger.champion()).number == 1


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
    make_attempts(ledger, 1)
    kernel = candidate(contest, 512)

    def meanwhile() -> None:
        for command in commands:
            git(contest, *command)

    with pytest.raises(RatchetError, match=words):
        record_while(ledger, kernel, meanwhile)
    assert numbers(ledger) == [1, 2]
    assert history.candidate(ledger.place, 2).text == kernel


def test_the_champion_follows_the_branch(ledger: Ledger, contest: Path) -> None:
    make_attempts(ledger, 1)
    git(contest, "checkout", "-qb", "other")
    faster = candidate(contest, 512)
    run_attempt(ledger)
    git(contest, "checkout", "-q", "main")
    assert ledger.champion_candidate().text == NAIVE
    rows, _ = history.rows(ledger.place)
    assert rows[1].commit == git(contest, "rev-parse", "other").strip()
    (contest / "README").write_text("meanwhile\n")
    git(contest, "commit", "-qam", "on main")
    git(contest, "merge", "-q", "--no-edit", "other")
    champion = present(ledger.champion())
    assert champion.number == 2
    assert ledger.champion_candidate().text == faster
    assert not ledger.kernel_changed_since(champion)


def test_a_squashed_branch_keeps_its_champion(ledger: Ledger, contest: Path) -> None:
    make_attempts(ledger, 1)
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
    assert ledger.kernel_changed_since(history.attempt(ledger.place, 1))
    shallow = plain_clone(contest, contest.parent / "shallow", "--depth=1")
    assert present(shallow.champion()).number == 3
    assert shallow.champion_candidate().text == faster
    assert shallow.champion_commit() is None
    candidate(shallow.place.kernel_path.parent, 64)
    run_attempt(shallow, "reject")
    assert shallow.place.kernel_path.read_bytes() == faster
    assert numbers(shallow) == [1, 2, 3, 4]


def test_an_amended_accept_is_found_where_it_is_now(ledger: Ledger, contest: Path) -> None:
    make_attempts(ledger, 1)
    git(contest, "commit", "-q", "--amend", "--only", "-m", git(contest, "log", "-1", "--format=reworded%n%n%b"))
    rows, _ = history.rows(ledger.place)
    assert rows[0].commit == git(contest, "rev-parse", "HEAD").strip() == ledger.champion_commit()


def test_a_kernel_changed_by_an_ordinary_commit_is_noticed(ledger: Ledger, contest: Path) -> None:
    make_attempts(ledger, 1)
    champion = present(ledger.champion())
    candidate(contest, 256)
    assert not ledger.kernel_changed_since(champion)
    git(contest, "commit", "-qam", "by hand")
    assert ledger.kernel_changed_since(champion)
    assert ledger.champion() == champion
    run_attempt(ledger, kind="rebaseline")
    champion = present(ledger.champion())
    assert champion.number == 2
    assert not ledger.kernel_changed_since(champion)


def test_going_back_by_hand_does_not_make_an_older_attempt_the_champion(ledger: Ledger, contest: Path) -> None:
    make_attempts(ledger, 2)
    (contest / "kernel.py").write_bytes(NAIVE)
    git(contest, "commit", "-qam", "back to the naive kernel")
    champion = present(ledger.champion())
    assert champion.number == 2
    assert ledger.kernel_changed_since(champion)


def test_an_undo_takes_the_last_accept_back(ledger: Ledger, contest: Path) -> None:
    make_attempts(ledger, 2)
    with ledger.lock():
        ledger.begin(Candidate(text=ledger.place.kernel_path.read_bytes()), "undo")
        ledger.restore(history.candidate(ledger.place, 1))
        made, of, kernel = ready(ledger, kind="undo", hypothesis="undo attempt 2")
        ledger.record(made, of, kernel, new_branch_commit=True)
    assert "Ratchet-Undoes: 2" in git(contest, "log", "-1", "--format=%b")
    champion = present(ledger.champion())
    assert champion.number == 1
    assert ledger.champion_candidate().text == NAIVE == (contest / "kernel.py").read_bytes()
    clone = plain_clone(contest, contest.parent / "clone", "--depth=1")
    assert present(clone.champion()).number == 1
    candidate(contest, 2048)
    run_attempt(ledger)
    assert ledger.champion_candidate().text == NAIVE.replace(b"128", b"2048")
