"""Records as other clones and worktrees see them; those that cannot be read are named and skipped."""

import json
import shutil
import subprocess
from pathlib import Path

import pytest
from ledger_fixtures import (
    LOG,
    NAIVE,
    PREPARE,
    attempt,
    candidate,
    four_attempts,
    git,
    make_attempts,
    numbers,
    plain_clone,
    row,
    run_attempt,
)
from narrowing import present
from refusals import refused

from harness.errors import RatchetError
from harness.ledger import Ledger, codec, experiments, history
from harness.records import Row
from harness.records.stored import SCHEMA

pytestmark = pytest.mark.long


def test_a_plain_clone_shows_all_and_goes_on_numbering(ledger: Ledger, contest: Path) -> None:
    four_attempts(ledger)
    clone = plain_clone(contest, contest.parent / "clone")
    assert git(clone.place.root, "for-each-ref", "refs/ratchet") == ""
    ours, theirs = history.rows(ledger.place)[0], history.rows(clone.place)[0]
    assert [codec.encode_row(entry) for entry in ours] == [codec.encode_row(entry) for entry in theirs]
    assert [entry.commit for entry in theirs] == [ours[0].commit, ours[1].commit, "", ours[3].commit]
    assert numbers(clone, 2) == [3, 4]
    assert [history.candidate(clone.place, number) for number in (1, 2, 3, 4)] == [
        history.candidate(ledger.place, number) for number in (1, 2, 3, 4)
    ]
    assert history.attempt(clone.place, 3) == history.attempt(ledger.place, 3)
    assert clone.champion() == ledger.champion()
    candidate(clone.place.root, 64)
    run_attempt(clone, "reject")
    assert numbers(clone) == [1, 2, 3, 4, 5]
    commits = git(clone.place.root, "rev-list", "--first-parent", clone.place.log_ref).split()
    assert git(clone.place.root, "log", "--first-parent", "--format=%s", clone.place.log_ref).split("\n")[:2] == [
        "attempt 5: reject: idea 5",
        "attempt 4: accept: idea 4",
    ]
    assert len([commit for commit in commits if git(clone.place.root, "ls-tree", commit, "attempt.json")]) == 2
    assert git(clone.place.root, "show", f"{commits[1]}:kernel.py").encode() == history.candidate(ledger.place, 4).text


def test_a_clone_with_the_log_has_everything(ledger: Ledger, contest: Path) -> None:
    four_attempts(ledger)
    candidate(contest, 16)
    run_attempt(ledger, "reject")
    clone = plain_clone(contest, contest.parent / "clone")
    assert numbers(clone) == [1, 2, 3, 4]
    git(clone.place.root, "fetch", "-q", "origin", "refs/ratchet/*:refs/ratchet/*")
    assert history.rows(clone.place) == history.rows(ledger.place)
    shutil.rmtree(clone.place.root / "experiments")
    assert history.rows(clone.place) == history.rows(ledger.place)


def test_a_clone_that_cannot_rebuild_a_loser_says_so(ledger: Ledger, contest: Path) -> None:
    four_attempts(ledger)
    clone = plain_clone(contest, contest.parent / "clone")
    path = clone.place.experiments_directory / "0003-idea-3.json"
    path.write_bytes(path.read_bytes().replace(b"+BQ = 64", b"+BQ = 65"))
    with refused("no-kernel", r"git -C .* fetch REMOTE"):
        history.candidate(clone.place, 3)
    path.write_bytes(path.read_bytes().replace(b"-BQ = 512", b"-BQ = 77"))
    with pytest.raises(RatchetError, match="does not fit"):
        history.candidate(clone.place, 3)


def test_two_clones_that_went_apart_show_both_attempts(ledger: Ledger, contest: Path) -> None:
    make_attempts(ledger, 1)
    clone = plain_clone(contest, contest.parent / "clone")
    candidate(contest, 512)
    run_attempt(ledger, hypothesis="ours")
    candidate(clone.place.root, 64)
    run_attempt(clone, "reject", hypothesis="theirs")
    git(clone.place.root, "pull", "-q", "--ff-only")
    rows, notes = history.rows(clone.place)
    assert [(entry.number, entry.hypothesis) for entry in rows] == [(1, "idea 1"), (2, "theirs"), (2, "ours")]
    assert [entry.commit for entry in rows[1:]] == [
        git(clone.place.root, "rev-parse", clone.place.log_ref).strip(),
        git(clone.place.root, "rev-parse", "HEAD").strip(),
    ]
    assert "attempt 2 exists more than once" in notes[0]
    assert present(clone.champion()).hypothesis == "ours"
    assert clone.next_number() == 3


def test_worktrees_share_the_log(ledger: Ledger, contest: Path) -> None:
    make_attempts(ledger, 1)
    git(contest, "worktree", "add", "-q", str(contest.parent / "tree"), "-b", "other")
    tree = Ledger.open(contest.parent / "tree")
    candidate(tree.place.root, 512)
    run_attempt(tree)
    assert numbers(ledger) == [1, 2]
    assert ledger.next_number() == 3
    assert ledger.champion_candidate().text == NAIVE
    candidate(contest, 64)
    run_attempt(ledger, "reject")
    assert numbers(tree) == [1, 2, 3]
    with ledger.lock(), refused("busy"), tree.lock():
        pytest.fail("two at once")


def test_bad_records_are_named_and_skipped(ledger: Ledger, contest: Path) -> None:
    four_attempts(ledger)
    clone = plain_clone(contest, contest.parent / "clone")
    folder = clone.place.experiments_directory
    good = (folder / "0003-idea-3.json").read_bytes()
    (folder / "0005-cut.json").write_bytes(good[:-20])
    newer = good.replace(b'"schema": %d' % SCHEMA, b'"schema": %d' % (SCHEMA + 1), 1)
    (folder / "0006-newer.json").write_bytes(newer)
    (folder / "0007-moved.json").write_bytes(good)
    (folder / "2026-foreign.json").write_text('{"hello": 1}')
    (folder / "0008-folder.json").mkdir()
    (folder / "0001-idea-1.json").write_text("spoiled")
    rows, notes = history.rows(clone.place)
    assert [entry.number for entry in rows] == [1, 2, 3, 4]
    for name in ("0005-cut", "0006-newer", "0007-moved", "2026-foreign", "0008-folder", "0001-idea-1"):
        assert any(f"experiments/{name}.json" in note for note in notes), name
    assert history.attempt(clone.place, 1) == history.attempt(ledger.place, 1)
    with refused("newer-record", f"schema {SCHEMA + 1}"):
        history.attempt(clone.place, 6)
    # A foreign file does not make the numbers jump; a spoiled file of ours keeps its number.
    assert clone.next_number() == 9
    rows, _ = history.rows(clone.place, 2)
    assert [entry.number for entry in rows] == [3, 4]


def test_a_strange_commit_in_the_log_is_named_and_skipped(ledger: Ledger, contest: Path) -> None:
    make_attempts(ledger, 1)
    strange = git(contest, "commit-tree", "HEAD^{tree}", "-p", LOG, "-m", "Ratchet-Row: {nonsense").strip()
    git(contest, "update-ref", LOG, strange)
    rows, notes = history.rows(ledger.place)
    assert [entry.number for entry in rows] == [1]
    assert strange[:12] in notes[0]
    candidate(contest, 64)
    run_attempt(ledger, "reject")
    assert [entry.number for entry in history.rows(ledger.place)[0]] == [1, 2]


def test_a_file_of_that_name_is_not_overwritten(ledger: Ledger, contest: Path) -> None:
    (contest / "experiments").mkdir()
    (contest / "experiments" / "0001-idea-1.json").write_text("[]")
    done = run_attempt(ledger)
    assert (contest / "experiments" / "0001-idea-1.json").read_text() == "[]"
    assert "exists with other contents" in done.messages[0]
    assert [entry.number for entry in history.rows(ledger.place)[0]] == [1]


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
    assert [entry.hypothesis for entry in history.rows(ledger.place)[0]] == hypotheses
    clone = plain_clone(contest, contest.parent / "clone")
    assert [entry.hypothesis for entry in history.rows(clone.place)[0]] == hypotheses
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
