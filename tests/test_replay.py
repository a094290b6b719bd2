"""Attempts judged again under a judge that has changed since: what drifted, what differs, and nothing recorded."""

import json
from pathlib import Path

import pytest
from loop_fixtures import committed_contest, git, ratchet

pytest.importorskip("libtpu", reason="the TPU compiler exists for x86-64 Linux only")


@pytest.fixture(scope="module")
def contest(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Attempt 1 is the baseline, attempt 2 fails; then prepare.py changes, so that the key is another."""
    folder = committed_contest(tmp_path_factory.mktemp("replay") / "mine", sequence=512)
    ratchet(folder, "experiment: baseline", expect=0)
    kernel = (folder / "kernel.py").read_text()
    (folder / "kernel.py").write_text(f"{kernel}\nraise RuntimeError('not today')\n")
    ratchet(folder, "experiment: raise at import", expect=1)
    assert (folder / "kernel.py").read_text() == kernel
    return folder


def state(contest: Path) -> tuple[str, str, bytes]:
    return git(contest, "for-each-ref"), git(contest, "status", "--porcelain"), (contest / "kernel.py").read_bytes()


def test_a_failed_attempt_fails_again(contest: Path) -> None:
    before = state(contest)
    found = json.loads(ratchet(contest, "replay", "2", "--json", expect=1).stdout)
    assert found["then"]["failure_kind"] == found["now"]["failure_kind"] != ""
    assert (found["then"]["seconds"], found["now"]["seconds"], found["drift"]) == (None, None, None)
    assert state(contest) == before


def test_an_attempt_of_another_key_says_what_differs(contest: Path) -> None:
    prepare = contest / "prepare.py"
    prepare.write_text(f"{prepare.read_text()}\n# A comment that makes this judge another one.\n")
    git(contest, "commit", "-qam", "another judge")
    (contest / "kernel.py").write_text("the user is in the middle of something\n")
    before = state(contest)
    done = ratchet(contest, "replay", "1", "--quiet", expect=0)
    assert "drift 0.00% of the time of then" in done.stdout
    assert "the same verdict" in done.stdout
    assert "judge " in done.stdout.partition("what differs since:")[2]
    assert "nothing was recorded; files are in profile_data/replay/0001" in done.stdout
    assert (contest / "profile_data" / "replay" / "0001").is_dir()
    assert state(contest) == before
    missing = ratchet(contest, "replay", "9", expect=4)
    assert "[unknown-attempt]" in missing.stderr
