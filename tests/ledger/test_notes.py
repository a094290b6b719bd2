"""Notes: kept in the file and in the log, read as their union, merged by git, and never in the way of attempts."""

import shutil
from dataclasses import replace
from pathlib import Path

import pytest
from ledger_fixtures import LATER_KEY, LOG, candidate, commit_all, git, note, repository_after, run_attempt

from harness.errors import RatchetError
from harness.ledger import Ledger, history, notes, packing
from harness.ledger.fsck import audit
from harness.records import CheckedChampion
from harness.records.stored import SCHEMA
from harness.verbs.parts.champions import _committed as committed

pytestmark = pytest.mark.long


@pytest.fixture(scope="module")
def template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A contest with a champion, attempt 1, and a rejected attempt 2."""
    contest = repository_after(1, tmp_path_factory.mktemp("notes") / "user")
    candidate(contest, 300)
    run_attempt(Ledger.open(contest), "reject")
    return contest


@pytest.fixture
def ledger(template: Path, tmp_path: Path) -> Ledger:
    return Ledger.open(Path(shutil.copytree(template, tmp_path / "user", symlinks=True)))


def keep(ledger: Ledger, *seconds: float, is_logged: bool = True) -> None:
    with ledger.lock():
        ledger.keep_notes([note(history.attempt(ledger.place, 1), second) for second in seconds])
        if is_logged:
            ledger.log_notes()


def times(ledger: Ledger) -> list[float | None]:
    read_notes, skipped = notes.read(ledger.place)
    assert skipped == ()
    return [note.seconds for note in read_notes]


def file_of(ledger: Ledger) -> Path:
    return ledger.place.experiments_directory / notes.FILE_NAME


def test_a_note_is_read_from_the_file_from_head_and_from_the_log(ledger: Ledger) -> None:
    keep(ledger, 2e-3)
    assert times(ledger) == [2e-3]
    file_of(ledger).unlink()
    assert times(ledger) == [2e-3], "the log alone"
    keep(ledger, 3e-3)
    commit_all(ledger.place.root, "by hand")
    git(ledger.place.root, "update-ref", "-d", LOG)
    file_of(ledger).unlink()
    assert times(ledger) == [3e-3], "HEAD alone"


def test_notes_are_no_attempts(ledger: Ledger) -> None:
    keep(ledger, 2e-3)
    rows, skipped = history.rows(ledger.place)
    assert ([row.number for row in rows], skipped) == ([1, 2], ())
    assert [row.number for row in history.rows(ledger.place, 1)[0]] == [2]
    assert ledger.next_number() == 3
    assert git(ledger.place.root, "log", "-1", "--format=%s", LOG).startswith("notes: ")
    candidate(ledger.place.root, 400)
    run_attempt(ledger, "reject")
    assert [row.number for row in history.rows(ledger.place)[0]] == [1, 2, 3]
    assert audit(ledger).findings == ()


def test_the_same_note_is_kept_once_and_logged_once(ledger: Ledger) -> None:
    keep(ledger, 2e-3)
    tip = git(ledger.place.root, "rev-parse", LOG)
    before = file_of(ledger).read_bytes()
    keep(ledger, 2e-3)
    assert (git(ledger.place.root, "rev-parse", LOG), file_of(ledger).read_bytes()) == (tip, before)


def test_a_clone_without_a_log_keeps_the_file_alone(ledger: Ledger) -> None:
    git(ledger.place.root, "update-ref", "-d", LOG)
    keep(ledger, 2e-3)
    assert times(ledger) == [2e-3]
    assert git(ledger.place.root, "for-each-ref", LOG) == ""


def test_an_accept_commits_the_notes(ledger: Ledger) -> None:
    keep(ledger, 2e-3)
    candidate(ledger.place.root, 500)
    run_attempt(ledger)
    committed = git(ledger.place.root, "show", f"HEAD:experiments/{notes.FILE_NAME}")
    assert committed == file_of(ledger).read_text()
    assert git(ledger.place.root, "status", "--porcelain", "experiments") == ""


def test_two_clones_that_rescaled_apart_are_merged_by_git(ledger: Ledger, tmp_path: Path) -> None:
    keep(ledger, 1e-3)
    commit_all(ledger.place.root, "notes")
    other = Ledger.open(Path(shutil.copytree(ledger.place.root, tmp_path / "other")))
    for clone, seconds in ((ledger, 2e-3), (other, 3e-3)):
        keep(clone, seconds)
        git(clone.place.root, "commit", "-qam", f"notes of {seconds}")
    git(ledger.place.root, "pull", "-q", "--no-rebase", "--no-edit", str(other.place.root), "main")
    assert sorted(filter(None, times(ledger))) == [1e-3, 2e-3, 3e-3]
    assert "<<<<" not in file_of(ledger).read_text()
    assert audit(ledger).findings == ()


def test_a_line_that_cannot_be_read_is_named_and_the_others_are_read(ledger: Ledger) -> None:
    keep(ledger, 2e-3, 3e-3)
    lines = file_of(ledger).read_text().splitlines()
    git(ledger.place.root, "update-ref", "-d", LOG)
    file_of(ledger).write_text(f"{lines[0]}\n<<<<<<< HEAD\n{lines[1][:-9]}\n{{}}\n")
    read_notes, skipped = notes.read(ledger.place)
    assert [entry.seconds for entry in read_notes] == [2e-3]
    assert [
        f"line {number} is not a note" in sentence for number, sentence in zip((2, 3, 4), skipped, strict=True)
    ] == [True] * 3
    # A line that cannot be read stays where it is, for a version that understands it.
    keep(ledger, 4e-3)
    assert "<<<<<<< HEAD" in file_of(ledger).read_text()
    assert {finding.kind for finding in audit(ledger).findings} == {"bad-note"}


def test_a_note_of_a_newer_version_is_said_to_be_one_and_stays(ledger: Ledger) -> None:
    keep(ledger, 2e-3)
    schema = f'"schema":{SCHEMA}'
    newer = file_of(ledger).read_text().replace('"kind":"timed"', '"kind":"dreamt"').replace(schema, '"schema":99')
    file_of(ledger).write_text(newer)
    git(ledger.place.root, "update-ref", "-d", LOG)
    read_notes, skipped = notes.read(ledger.place)
    assert read_notes == ()
    assert "newer version (schema 99" in skipped[0]
    keep(ledger, 3e-3)
    assert newer.strip() in file_of(ledger).read_text()
    assert times_of_readable(ledger) == [3e-3]


def times_of_readable(ledger: Ledger) -> list[float | None]:
    return [entry.seconds for entry in notes.read(ledger.place)[0]]


def test_writing_needs_the_lock(ledger: Ledger) -> None:
    with pytest.raises(RuntimeError, match="without its lock"):
        ledger.keep_notes([])
    with pytest.raises(RuntimeError, match="without its lock"):
        ledger.log_notes()


def test_a_hypothesis_with_the_trailer_of_notes_is_an_attempt(ledger: Ledger) -> None:
    candidate(ledger.place.root, 600)
    run_attempt(ledger, "reject", hypothesis="what if\n\nRatchet-Notes: 3")
    assert [row.number for row in history.rows(ledger.place)[0]] == [1, 2, 3]
    assert ledger.next_number() == 4
    assert audit(ledger).findings == ()


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"seconds": 1e-6}, "impossible"),
        ({"score": 1.0}, "do not follow"),
        ({"key_digest": "0" * 12}, "timing key is"),
        ({"checks_digest": "0" * 12}, "checks key is"),
        ({"kernel_sha256": "0" * 64}, "no attempt of that number"),
    ],
)
def test_fsck_finds_an_edited_note(ledger: Ledger, changes: dict[str, object], words: str) -> None:
    keep(ledger, 2e-3)
    assert audit(ledger).findings == ()
    with ledger.lock():
        ledger.keep_notes([replace(note(history.attempt(ledger.place, 1), 3e-3), **changes)])  # type: ignore[arg-type]
    assert any(words in finding.what for finding in audit(ledger).findings)


def test_fsck_finds_two_times_of_one_kernel_on_one_scale(ledger: Ledger) -> None:
    keep(ledger, 2e-3)
    made = note(history.attempt(ledger.place, 1), 2e-3)
    other = note(history.attempt(ledger.place, 1), 4e-3, when="2026-01-03T00:00:00+00:00", key=made.key)
    with ledger.lock():
        ledger.keep_notes([replace(other, key=made.key, key_digest=made.key_digest)])
    assert any("under the same key" in finding.what for finding in audit(ledger).findings)


def test_notes_that_nobody_can_log_are_said_to_lie_in_the_file(ledger: Ledger) -> None:
    hook = ledger.place.root / ".git/hooks/reference-transaction"
    hook.write_text('#!/bin/sh\ngrep -q ratchet && [ "$1" = prepared ] && exit 1\nexit 0\n')
    hook.chmod(0o755)
    with ledger.lock():
        ledger.keep_notes([note(history.attempt(ledger.place, 1), 2e-3)])
        with pytest.raises(RatchetError):
            ledger.log_notes()
    hook.unlink()
    assert times(ledger) == [2e-3]
    with ledger.lock():
        ledger.log_notes()
    assert git(ledger.place.root, "log", "-1", "--format=%s", LOG).startswith("notes: ")


def test_the_key_of_a_note_is_whole(ledger: Ledger) -> None:
    keep(ledger, 2e-3)
    (kept,) = notes.read(ledger.place)[0]
    assert (kept.key.timing[:8], kept.key.checks) == (LATER_KEY.timing[:8], LATER_KEY.checks)


def test_the_commit_of_champions_removes_the_notes_that_it_packs(ledger: Ledger) -> None:
    packing.pack(ledger.place)
    keep(ledger, 2e-3)
    commit_all(ledger.place.root, "Packed attempts, and a note beside them")
    keep(ledger, 3e-3)
    committed(ledger.place.root, ["."], None, (CheckedChampion(folder="."),))
    assert git(ledger.place.root, "status", "--porcelain") == ""
    assert not file_of(ledger).exists()
    assert times(ledger) == [2e-3, 3e-3]
    git(ledger.place.root, "update-ref", "-d", LOG)
    assert times(ledger) == [2e-3, 3e-3], "attempts.jsonl alone"
