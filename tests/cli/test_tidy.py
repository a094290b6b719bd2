"""Files that commands remove from a contest's profile_data when they end: the ledger names the champion."""

import os
from pathlib import Path

import pytest
from ledger_fixtures import candidate, new_repository, run_attempt

from harness.ledger import Ledger
from harness.loop import kept_captures
from harness.verbs.parts.context import tidy
from harness.workbench.profiles.places import PROFILE_DATA


def left(contest: Path, work: str, age_seconds: int, size: int = 10) -> Path:
    """A dump of so many bytes, all of them a hole in the file."""
    path = contest / PROFILE_DATA / work / "dumps" / "x.txt"
    path.parent.mkdir(parents=True)
    path.touch()
    os.truncate(path, size)
    os.utime(path, (1_700_000_000 - age_seconds,) * 2)
    return path


@pytest.mark.long
def test_the_dumps_of_the_ledgers_champion_stay(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    contest = new_repository(tmp_path / "repository")
    ledger = Ledger.open(contest)
    run_attempt(ledger)
    candidate(contest, 512)
    run_attempt(ledger, "reject")
    champions = left(contest, "0001", 1000, kept_captures.KEPT_BYTES + 1)
    old, newest = left(contest, "bisect/0123456789", 100), left(contest, "0002", 0)
    tidy(contest)
    assert (champions.exists(), old.exists(), newest.exists()) == (True, False, True)
    assert "removed old captures and dumps (1): bisect/0123456789" in capsys.readouterr().err
