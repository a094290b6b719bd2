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
from narrowing import present

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
    return [entry["row"] for entry in json.loads(ratchet(contest, "results", "--json", expect=0).stdout)["rows"]]


def loaded() -> ModuleType:
    spec = present(importlib.util.spec_from_file_location("drive", SCRIPT))
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def state(now: dict[str, str], *attempts: tuple[dict[str, str], str]) -> dict[str, Any]:
    """A state of the search; an outcome other than accept and reject is a kind of failure."""
    verdicts = ("accept", "reject")
    return {
        "constants": [{"name": name, "value": value, "tried": []} for name, value in now.items()],
        "tried": [
            {
                "attempt": number,
                "constants": list(constants.items()),
                "outcome": outcome if outcome in verdicts else "failed",
                "failure_kind": "" if outcome in verdicts else outcome,
            }
            for number, (constants, outcome) in enumerate(attempts, 1)
        ],
    }


SMALL = {"BQ": "128", "BKV": "256", "SCALE": "0.5", "VMEM_LIMIT": "None"}


def test_moves_begin_with_what_won_last_and_repeat_nothing() -> None:
    moves = loaded().moves
    larger = {**SMALL, "BKV": "512"}
    assert list(moves(state(SMALL, (SMALL, "accept")), []))[:2] == [{"BQ": "256"}, {"BKV": "512"}]
    assert next(moves(state(larger, (SMALL, "accept"), (larger, "accept")), [])) == {"BKV": "1024"}
    screened = [({**larger, "BKV": "1024"}, ""), ({**larger, "BQ": "64"}, "unsupported")]
    left = list(moves(state(larger, (SMALL, "accept"), (larger, "accept")), screened))
    assert left[:4] == [{"BQ": "256"}, {"BKV": "2048"}, {"BQ": "512"}, {"BKV": "128"}]
    assert {"BKV": "256"} not in left, "judged before"
    assert {"BKV": "1024"} not in left, "timed before"
    assert {"BQ": "64"} not in left, "it failed"
    assert {"BKV": "1024", "BQ": "64"} in left, "larger than what failed, but not because of its size"
    assert list(moves(state({"VMEM_LIMIT": "None"}), [])) == [], "no whole number"
    assert [int(value) for move in moves(state({"N": "1"}), []) for value in move.values()] == [2, 4]


def test_flags_are_turned_over() -> None:
    driver = loaded()
    now = {"FUSED": "False", "EXACT": "True"}
    assert list(driver.moves(state(now, (now, "accept")), [])) == [{"FUSED": "True"}, {"EXACT": "False"}]
    assert driver.first_search(now)[-4:] == ["--set", "FUSED=False,True", "--set", "EXACT=False,True"]


def test_what_did_not_fit_is_tried_with_more_vmem() -> None:
    moves = loaded().moves
    too_large = {**SMALL, "BQ": "256"}
    attempts = ((SMALL, "accept"), (too_large, "vmem-exceeded"))
    left = list(moves(state(SMALL, *attempts), []))
    assert left[:2] == [{"BQ": "256", "VMEM_LIMIT": "67108864"}, {"BKV": "512"}]
    assert {"BQ": "256", "BKV": "128"} in left, "smaller in one constant: it may fit"
    screened = [({**too_large, "VMEM_LIMIT": "67108864"}, "vmem-exceeded")]
    assert next(moves(state(SMALL, *attempts), screened)) == {"BQ": "256", "VMEM_LIMIT": "104857600"}
    screened += [({**too_large, "VMEM_LIMIT": "104857600"}, "vmem-exceeded")]
    left = list(moves(state(SMALL, *attempts), screened))
    assert left[0] == {"BKV": "512"}, "no limit is large enough"
    assert not any(move.get("BQ") in ("256", "512") and "BKV" not in move for move in left)
    wrong = [({**SMALL, "BKV": "512", "VMEM_LIMIT": "67108864"}, "wrong-result")]
    assert {"BKV": "512"} not in list(moves(state(SMALL, *attempts), wrong)), "wrong under any limit"


def test_the_first_search_goes_far_and_has_vmem() -> None:
    words = loaded().first_search({"BQ": "2", "SCALE": "0.5", "VMEM_LIMIT": "None"})
    assert words == ["tune", "experiment: a search over BQ", "--set", "BQ=1,2,4,8,16", "--set", "VMEM_LIMIT=67108864"]
    words = loaded().first_search({"BQ": "128", "VMEM_LIMIT": "100 * 2**20"})
    assert words[2:] == ["--set", "BQ=32,64,128,256,512,1024"]


@pytest.mark.slow
def test_two_attempts_on_a_tiny_shape(tmp_path: Path) -> None:
    pytest.importorskip("libtpu", reason="the TPU compiler exists for x86-64 Linux only")
    contest = committed_contest(tmp_path / "contest", 512)
    printed = drive(contest, 2)
    table = rows(contest)
    assert [row["number"] for row in table] == [1, 2]
    assert table[1]["hypothesis"].startswith("a search over BQ, BKV [best")
    assert "2 attempts: " in printed.splitlines()[-1]


@pytest.mark.slow
def test_a_few_attempts_improve_the_naive_kernel(tmp_path: Path) -> None:
    pytest.importorskip("libtpu", reason="the TPU compiler exists for x86-64 Linux only")
    contest = committed_contest(tmp_path / "contest", 1024)
    drive(contest, 4)
    table = rows(contest)
    assert [row["number"] for row in table] == list(range(1, len(table) + 1))
    accepted = [row["seconds"] for row in table if row["outcome"] == "accept"]
    assert accepted == sorted(accepted, reverse=True), "each win is faster than the one before"
    assert accepted[-1] < 0.5 * accepted[0]
    assert "clean" in ratchet(contest, "fsck", expect=0).stdout
