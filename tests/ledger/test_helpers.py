"""Recovery of a candidate of several files: whichever of them were written at the kill."""

from pathlib import Path

import pytest
from ledger_fixtures import commit_all, git, new_repository, recovered, run_attempt

from harness.candidate import Candidate
from harness.errors import RatchetError
from harness.ledger import Ledger, history, recording

OLD = {"deep.py": b"Q = 1\n", "tiles.py": b"import deep\nBQ = 128\n", "kernel.py": b"import tiles\nX = 1\n"}
NEW = {"deep.py": b"Q = 2\n", "tiles.py": b"import deep\nBQ = 512\n", "kernel.py": b"import tiles\nX = 2\n"}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    made = new_repository(tmp_path / "user")
    for name, data in OLD.items():
        (made / name).write_bytes(data)
    commit_all(made, "Helpers")
    return made


def here(folder: Path) -> dict[str, bytes]:
    return {name: (folder / name).read_bytes() for name in OLD}


def begun(folder: Path) -> None:
    """Leaves the state of an attempt with other constants at the moment of a kill."""
    ledger = Ledger.open(folder)
    with ledger.lock():
        ledger.begin(ledger.candidate_here(), "attempt 1")
        ledger.restore(Candidate.of_files(NEW))
    assert here(folder) == NEW


@pytest.mark.parametrize("written", [3, 2, 1])
def test_what_was_begun_is_undone_in_every_file(folder: Path, written: int) -> None:
    begun(folder)
    for name in list(NEW)[written:]:
        (folder / name).write_bytes(OLD[name])
    (sentence,) = recovered(folder)
    assert "kernel.py has its earlier text again" in sentence
    assert here(folder) == OLD


def test_a_helper_that_was_edited_since_stays(folder: Path) -> None:
    begun(folder)
    (folder / "deep.py").write_bytes(b"Q = 3  # an idea\n")
    (sentence,) = recovered(folder)
    assert "was edited since, so it stays as it is" in sentence
    assert here(folder) == {**NEW, "deep.py": b"Q = 3  # an idea\n"}


def test_the_text_at_a_commit_is_what_a_checkout_writes(folder: Path) -> None:
    ledger = Ledger.open(folder)
    assert history.candidate_at(ledger.place, "HEAD") == Candidate.of_files(OLD) == ledger.candidate_here()
    (folder / "deep.py").write_bytes(b"Q = 9\n")
    assert history.candidate_at(ledger.place, "HEAD") == Candidate.of_files(OLD)
    assert recording.would_lose(ledger.place, Candidate.of_files(OLD)) == ()
    # Once nothing imports it, its text belongs to no candidate.
    (folder / "tiles.py").write_bytes(b"BQ = 128\n")
    assert recording.would_lose(ledger.place, Candidate.of_files(OLD)) == ("deep.py",)


def test_an_accept_deletes_the_helper_that_the_user_deleted(folder: Path) -> None:
    run_attempt(Ledger.open(folder))
    # `deep.py` and `tiles.py` are no longer imported. The user deletes one of them; the other one stays.
    (folder / "kernel.py").write_bytes(b"X = 3\n")
    (folder / "deep.py").unlink()
    accepted = run_attempt(Ledger.open(folder))
    assert any(sentence.startswith("deep.py: deleted on the branch too") for sentence in accepted.messages)
    assert git(folder, "diff", "--name-status", "HEAD^", "HEAD", "--", "*.py").split() == [
        "D",
        "deep.py",
        "M",
        "kernel.py",
    ]
    assert git(folder, "status", "--porcelain") == ""
    assert (folder / "tiles.py").read_bytes() == OLD["tiles.py"]


@pytest.mark.parametrize("how", ["sparse", "staged", "rejected"])
def test_a_helper_that_was_not_deleted_by_the_user_stays_on_the_branch(folder: Path, how: str) -> None:
    run_attempt(Ledger.open(folder))
    (folder / "kernel.py").write_bytes(b"X = 3\n")
    if how == "staged":
        (folder / "deep.py").write_bytes(b"Q = 7  # an idea\n")
        git(folder, "add", "deep.py")
    if how == "sparse":
        git(folder, "update-index", "--skip-worktree", "deep.py")
    (folder / "deep.py").unlink()
    before = git(folder, "ls-files", "--stage", "deep.py")
    run_attempt(Ledger.open(folder), "reject" if how == "rejected" else "accept")
    assert git(folder, "show", "HEAD:deep.py") == "Q = 1\n"
    assert git(folder, "ls-files", "--stage", "deep.py") == before
    if how == "rejected":
        assert (folder / "deep.py").read_bytes() == OLD["deep.py"]


def test_a_line_that_only_a_text_of_several_files_has_is_refused(folder: Path) -> None:
    (folder / "tiles.py").write_bytes(b"BQ = 1\n# ---- beside kernel.py: deep.py ----\nQ = 7\n")
    with pytest.raises(RatchetError, match=r"expected tiles\.py without the line"):
        Ledger.open(folder).candidate_here()
