"""A judge that changes: times on one scale by notes, a champion checked again as a note, and no commit for either."""

import json
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from forked_commands import serving
from harness_copies import copy_harness
from loop_fixtures import copied, git, ratchet

from harness.ledger import Ledger
from harness.ledger import notes as note_files
from harness.ledger.fsck import audit
from harness.ledger.paths import place_of
from harness.loop import rescale
from harness.records import Note

pytestmark = pytest.mark.long

pytest.importorskip("libtpu", reason="the TPU compiler exists for x86-64 Linux only")

# A change in the simulator, and a change in the checks.
SLOWER_WAITS = ("judge/simulate/machine.py", "calibrated.wait_seconds *", "20 * calibrated.wait_seconds *")
WIDER = ("operators/tolerance.py", "RMS_FACTOR = 1.5", "RMS_FACTOR = 1.6")


@pytest.fixture(scope="module")
def template(judged_contest: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A contest with a baseline and an accepted attempt."""
    folder = copied(judged_contest, tmp_path_factory.mktemp("rescale") / "a contest")
    ratchet(folder, "experiment: larger blocks", "--set", "BR=64", expect=0)
    return folder


@pytest.fixture
def contest(template: Path, tmp_path: Path) -> Path:
    return copied(template, tmp_path / "a contest")


@contextmanager
def changed(folder: Path, change: tuple[str, str, str]) -> Iterator[dict[str, str]]:
    """The environment of a command under a copy of the harness with this change, as in its next version."""
    name, old, new = change
    path = copy_harness(folder) / name
    text = path.read_text()
    assert old in text
    path.write_text(text.replace(old, new))
    with serving(folder):
        yield {"PYTHONPATH": str(folder)}
    shutil.rmtree(folder)


@pytest.fixture(scope="module")
def slower(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, str]]:
    with changed(tmp_path_factory.mktemp("slower"), SLOWER_WAITS) as environment:
        yield environment


@pytest.fixture(scope="module")
def wider(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, str]]:
    with changed(tmp_path_factory.mktemp("wider"), WIDER) as environment:
        yield environment


def notes(contest: Path) -> tuple[Note, ...]:
    kept, skipped = note_files.read(place_of(contest))
    assert skipped == ()
    return kept


def record(contest: Path, number: int) -> dict[str, Any]:
    document: dict[str, Any] = json.loads(ratchet(contest, "show", str(number), "--json", expect=0).stdout)["attempt"]
    return document


def test_recorded_kernels_are_timed_again_where_the_timing_key_changes(contest: Path, slower: dict[str, str]) -> None:
    head, files = git(contest, "rev-parse", "HEAD"), sorted((contest / "experiments").glob("*.json"))
    recorded = {path: path.read_bytes() for path in files}
    done = ratchet(contest, "rescale", "--json", expect=0, environment=slower)
    kept = notes(contest)
    assert {(note.kind, note.attempt) for note in kept} == {("timed", 1), ("timed", 2)}
    assert json.loads(done.stdout)["key_digest"] == kept[0].key_digest
    # Waits take longer there, and both kernels wait.
    for note in kept:
        before = record(contest, note.attempt)["evidence"]["latency"]["seconds"]
        assert note.seconds is not None
        assert note.seconds > before
    assert git(contest, "rev-parse", "HEAD") == head
    assert {path: path.read_bytes() for path in files} == recorded
    assert git(contest, "log", "-1", "--format=%s", "refs/ratchet/root/log").startswith("notes: ")
    assert audit(Ledger.open(contest)).findings == ()
    # There is nothing left to do, and under the old judge there never was.
    again = ratchet(contest, "rescale", expect=0, environment=slower)
    assert again.stdout.startswith("nothing to do: no time is missing under key ")
    assert ratchet(contest, "rescale", expect=0).stdout.startswith("nothing to do: ")
    assert notes(contest) == kept


@pytest.mark.slow
def test_an_attempt_checks_the_champion_again_and_rescales_after_its_report(
    contest: Path, slower: dict[str, str]
) -> None:
    head = git(contest, "rev-parse", "HEAD")
    arguments = ("experiment: small blocks again", "--set", "BR=32")
    done = ratchet(contest, *arguments, expect=1, environment=slower)
    assert "another timing key" in done.stderr
    assert "REJECTED" in done.stdout
    assert done.stderr.index("under the new timing key, so that the table has one scale") > 0
    by_attempt = {note.attempt: note for note in notes(contest)}
    assert {number: note.kind for number, note in by_attempt.items()} == {1: "timed", 2: "checked"}
    assert by_attempt[2].passes
    assert git(contest, "rev-parse", "HEAD") == head
    assert record(contest, 3)["champion"]["seconds"] == by_attempt[2].seconds
    assert audit(Ledger.open(contest)).findings == ()


def test_a_checks_key_alone_leaves_times_and_makes_one_check(contest: Path, wider: dict[str, str]) -> None:
    before = ratchet(contest, "status", expect=0, environment=wider).stdout
    assert "not checked under today's keys" in before
    assert "no time under today's keys" not in before
    done = ratchet(contest, "experiment: it stands", "--record", expect=0, environment=wider)
    assert "kept as a note on attempt 2" in done.stdout
    assert "no attempt is recorded" in done.stdout
    assert "attempt 3" not in done.stdout
    (note,) = notes(contest)
    assert note.passes
    assert note.checks == note.checks_passed > 0
    assert note.seconds == record(contest, 2)["evidence"]["latency"]["seconds"]
    # It was no attempt and made no commit, and the next attempt need not check the champion again.
    assert Ledger.open(contest).next_number() == 3
    assert git(contest, "log", "--format=%s", "-1").strip() == "larger blocks"
    done = ratchet(contest, "experiment: blocks that do not divide it", "--set", "BR=48", expect=1, environment=wider)
    assert "evaluated again first" not in done.stderr
    assert len(notes(contest)) == 1
    assert audit(Ledger.open(contest)).findings == ()


def test_a_kernel_that_cannot_be_timed_says_why_and_the_others_are_timed(contest: Path, slower: dict[str, str]) -> None:
    # Today's contest is another: the blocks of attempt 1 divide its rows, those of attempt 2 do not.
    prepare = contest / "prepare.py"
    prepare.write_text(prepare.read_text().replace("ROWS = 512", "ROWS = 528"))
    git(contest, "commit", "-qam", "Another problem")
    done = ratchet(contest, "rescale", expect=0, environment=slower)
    kept = notes(contest)
    assert {note.attempt for note in kept} == {1, 2}
    for note in kept:
        assert (note.seconds is None) == (note.attempt == 2) == bool(note.failure_kind and note.reason)
        if note.seconds is None:
            assert f"attempt {note.attempt} has no time: {note.failure_kind}" in " ".join(done.stdout.split())


def test_a_champion_whose_attempt_ran_all_checks_under_these_keys_is_not_checked_again(contest: Path) -> None:
    done = ratchet(contest, "champions", "--json", expect=0)
    (champion,) = json.loads(done.stdout)["champions"]
    accepted = record(contest, 2)
    assert champion["note"]["when"] == accepted["finished"]
    assert champion["note"]["checks_passed"] == champion["note"]["checks"] == len(accepted["evidence"]["checks"])
    assert notes(contest) == ()


def test_every_champion_is_checked_with_one_command_and_one_commit(contest: Path) -> None:
    before = git(contest, "rev-parse", "HEAD").strip()
    page = contest / "CHAMPIONS.md"
    (contest / "mine").write_text("the user's own\n")
    git(contest, "add", "mine")
    done = ratchet(contest, "champions", "--page", str(page), "--commit", "--again", expect=0)
    assert "1 of 1 champions pass" in done.stdout
    assert "| `.` | rmsnorm, 512 rows of 256" in page.read_text()
    assert git(contest, "rev-parse", "HEAD^").strip() == before
    changed_files = git(contest, "diff", "--name-only", "HEAD^", "HEAD").split()
    assert changed_files == ["CHAMPIONS.md", "experiments/.gitattributes", "experiments/notes.jsonl"]
    assert git(contest, "status", "--porcelain").split() == ["A", "mine"]
    # The results are known under these keys: a repeated command checks nothing and commits nothing.
    again = ratchet(contest, "champions", "--page", str(page), "--commit", expect=0)
    assert "nothing to commit" in again.stderr
    assert len(notes(contest)) == 1


def test_a_lost_kernel_is_said_and_the_others_are_timed(contest: Path, slower: dict[str, str]) -> None:
    # A clone that has neither the log nor the record of attempt 1.
    git(contest, "update-ref", "-d", "refs/ratchet/root/log")
    (first,) = (contest / "experiments").glob("0001-*.json")
    git(contest, "rm", "-q", str(first))
    git(contest, "commit", "-qm", "Lose an attempt")
    done = ratchet(contest, "rescale", expect=0, environment=slower)
    assert [note.attempt for note in notes(contest)] == [2]
    assert "1 recorded kernel timed again" in done.stdout


def test_the_words_for_a_rescale_that_leaves_attempts() -> None:
    result = rescale.RescaleResult(key_digest="0123456789ab", notes=(), skipped=("attempt 3 was not timed: why",))
    assert rescale.sentences(result) == (
        "0 recorded kernels timed again under key 0123456789ab",
        "attempt 3 was not timed: why",
    )
    nothing = rescale.RescaleResult(key_digest="0123456789ab", notes=(), skipped=())
    sentence = "nothing to do: no time is missing under key 0123456789ab (3 attempts)"
    assert rescale.sentences(nothing, attempts="3 attempts") == (sentence,)
    assert rescale.sentences(nothing, attempts="") == ("nothing to do: no attempts yet",)
