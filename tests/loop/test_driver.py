"""The scripted driver: attempts unattended, from `next --json` and `--set` alone, on a real contest."""

import importlib.util
import json
import subprocess
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from loop_fixtures import PROJECT, committed_contest, ratchet

pytestmark = pytest.mark.long

SCRIPT = Path(PROJECT) / "examples" / "driver" / "drive.py"


def drive(contest: Path, attempts: int) -> str:
    done = subprocess.run(
        [sys.executable, str(SCRIPT), str(contest), "--attempts", str(attempts)],
        capture_output=True,
        text=True,
        timeout=1200,
    )
    assert done.returncode == 0, f"{done.stdout}\n{done.stderr}"
    return done.stdout


def rows(contest: Path) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = json.loads(ratchet(contest, "results", "--json", expect=0).stdout)["rows"]
    return rows


def loaded() -> ModuleType:
    spec = importlib.util.spec_from_file_location("drive", SCRIPT)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def state(now: dict[str, str], *attempts: tuple[dict[str, str], str]) -> dict[str, Any]:
    return {
        "constants": [{"name": name, "value": value, "tried": []} for name, value in now.items()],
        "tried": [
            {"attempt": number, "constants": list(constants.items()), "outcome": outcome}
            for number, (constants, outcome) in enumerate(attempts, 1)
        ],
    }


def test_moves_begin_with_what_won_last_and_repeat_nothing() -> None:
    moves = loaded().moves
    small, larger = {"BQ": "128", "BKV": "256", "LIMIT": "None"}, {"BQ": "128", "BKV": "512", "LIMIT": "None"}
    assert list(moves(state(small, (small, "accept"))))[:2] == [{"BQ": "256"}, {"BKV": "512"}]
    assert next(moves(state(larger, (small, "accept"), (larger, "accept")))) == {"BKV": "1024"}
    beyond = {**larger, "BKV": "1024"}
    left = list(moves(state(larger, (small, "accept"), (larger, "accept"), (beyond, "failed"))))
    assert left[:4] == [{"BQ": "256"}, {"BQ": "512"}, {"BQ": "64"}, {"BKV": "128"}]
    # Smaller than the failure in one constant: it may fit, though it is larger in the other.
    assert {"BKV": "256", "BQ": "256"} in left
    assert {"BKV": "1024", "BQ": "64"} in left
    assert {"BKV": "1024"} not in left, "it failed"
    assert {"BKV": "2048"} not in left, "larger than what failed"
    assert {"BKV": "256"} not in left, "judged before"


@pytest.mark.slow
def test_two_attempts_on_a_tiny_shape(tmp_path: Path) -> None:
    pytest.importorskip("libtpu", reason="the TPU compiler exists for x86-64 Linux only")
    contest = committed_contest(tmp_path / "contest", 512)
    printed = drive(contest, 2)
    table = rows(contest)
    assert [row["hypothesis"] for row in table] == ["baseline", "BQ 128 -> 256"]
    assert "2 attempts: " in printed.splitlines()[-1]


@pytest.mark.slow
def test_ten_attempts_improve_the_naive_kernel(tmp_path: Path) -> None:
    pytest.importorskip("libtpu", reason="the TPU compiler exists for x86-64 Linux only")
    contest = committed_contest(tmp_path / "contest", 1024)
    drive(contest, 10)
    table = rows(contest)
    assert [row["number"] for row in table] == list(range(1, 11))
    accepted = [row["seconds"] for row in table if row["outcome"] == "accept"]
    assert accepted == sorted(accepted, reverse=True), "each win is faster than the one before"
    assert accepted[-1] < 0.5 * accepted[0]
    assert "clean" in ratchet(contest, "fsck", expect=0).stdout
