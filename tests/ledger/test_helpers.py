"""Recovery of a candidate of several files: whichever of them were written at the kill."""

from pathlib import Path

import pytest
from ledger_fixtures import commit_all, new_repository, recovered

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


def test_a_line_that_only_a_text_of_several_files_has_is_refused(folder: Path) -> None:
    (folder / "tiles.py").write_bytes(b"BQ = 1\n# ---- beside kernel.py: deep.py ----\nQ = 7\n")
    with pytest.raises(RatchetError, match=r"expected tiles\.py without the line"):
        Ledger.open(folder).candidate_here()
