"""Whole attempts, from the command line to the last write, killed at drawn moments; the next command repairs it."""

import fcntl
import os
import random
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from ledger_fixtures import hashes
from loop_fixtures import PROJECT, copied, git

from harness.ledger import Ledger, history
from harness.ledger.fsck import audit
from harness.ledger.paths import place_of

pytestmark = pytest.mark.long

pytest.importorskip("libtpu", reason="the TPU compiler exists for x86-64 Linux only")


@pytest.fixture(scope="module")
def contest(judged_contest: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A contest with a champion, and files of the user's beside it."""
    folder = copied(judged_contest, tmp_path_factory.mktemp("moments") / "mine")
    (folder / "untracked").write_text("untracked\n")
    (folder / "staged").write_text("staged\n")
    git(folder, "add", "staged")
    return folder


def orphans_end(contest: Path) -> None:
    """Waits until no child of a killed command holds its lock: a child about to start a program may live on."""
    lock = contest / ".git" / "ratchet" / "lock"
    if lock.exists():
        with lock.open() as file:
            fcntl.flock(file, fcntl.LOCK_EX)


def users(contest: Path) -> tuple[dict[str, str], str]:
    """Every file and index entry that is not the ratchet's business."""
    ours = ("kernel.py", "experiments/", "profile_data/", ".git/")
    files = {path: digest for path, digest in hashes(contest).items() if not path.startswith(ours)}
    return files, git(contest, "ls-files", "-s", "--", ".", ":!kernel.py", ":!experiments")


@pytest.mark.parametrize(
    ("moments", "candidate"),
    [
        # This kernel fails when it is traced: a whole attempt in a fraction of the time.
        (7, "raise RuntimeError({number})\n"),
        pytest.param(200, "# Attempt {number}, the champion's program.\n", marks=pytest.mark.slow),
    ],
)
def test_killed_at_drawn_moments(contest: Path, moments: int, candidate: str) -> None:
    dice = random.Random(moments)
    champion = (contest / "kernel.py").read_bytes()
    before, longest, recorded = users(contest), 60.0, 0
    for number in range(moments + 1):
        mine = champion + candidate.format(number=number).encode()
        (contest / "kernel.py").write_bytes(mine)
        last = Ledger.open(contest).next_number() - 1
        process = subprocess.Popen(
            [sys.executable, "-m", "harness", f"experiment: moment {number}", "--again", "-C", str(contest)],
            env={**os.environ, "PYTHONPATH": PROJECT},
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
        started = os.times().elapsed
        try:
            process.wait(1.5 * longest * dice.random() if number else longest)
        except subprocess.TimeoutExpired:
            # The process is killed alone, as by `kill -9`, or with all its children, as when a container ends.
            os.kill(process.pid, signal.SIGKILL) if dice.random() < 0.5 else os.killpg(process.pid, signal.SIGKILL)
            process.wait()
        if number == 0:
            # The first run is not killed: its duration is the range from which moments are drawn.
            longest = os.times().elapsed - started
        orphans_end(contest)
        ledger = Ledger.open(contest)
        with ledger.lock("the next command"):
            ledger.recover()
        report = audit(ledger)
        assert report.findings == (), (number, report.findings)
        now = ledger.next_number() - 1
        assert now - last in (0, 1)
        recorded += now - last
        assert (contest / "kernel.py").read_bytes() == (champion if now > last else mine)
        assert users(contest) == before
        assert list((contest / ".git").rglob("*.lock")) == []
    rows, skipped = history.rows(place_of(contest))
    assert skipped == ()
    assert [row.number for row in rows] == list(range(1, len(rows) + 1))
    # The number of kills in time depends on the machine, but there must be some.
    assert recorded < moments
