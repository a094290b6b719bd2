"""Attempts judged again under a judge that has changed since: what drifted, what differs, and nothing recorded."""

import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from loop_fixtures import copied, git, ratchet

from harness.advice import report as reporting
from harness.hardware import chip
from harness.judge.key import key_digest
from harness.judge.verdict import decision
from harness.ledger import codec, messages

pytestmark = pytest.mark.long

pytest.importorskip("libtpu", reason="the TPU compiler exists for x86-64 Linux only")


@pytest.fixture(scope="module")
def template(judged_contest: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Attempt 1 is the baseline, attempt 2 fails."""
    folder = copied(judged_contest, tmp_path_factory.mktemp("replay") / "mine")
    kernel = (folder / "kernel.py").read_text()
    (folder / "kernel.py").write_text(f"{kernel}\nraise RuntimeError('not today')\n")
    ratchet(folder, "experiment: raise at import", expect=1)
    assert (folder / "kernel.py").read_text() == kernel
    return folder


@pytest.fixture
def contest(template: Path, tmp_path: Path) -> Path:
    return copied(template, tmp_path / "mine")


def state(contest: Path) -> tuple[str, str, bytes]:
    """The refs, the files that differ from HEAD, and kernel.py."""
    return git(contest, "for-each-ref"), git(contest, "status", "--porcelain"), (contest / "kernel.py").read_bytes()


def test_a_failed_attempt_fails_again(contest: Path) -> None:
    before = state(contest)
    document = json.loads(ratchet(contest, "replay", "2", "--json", expect=1).stdout)
    assert document["then"]["failure_kind"] == document["now"]["failure_kind"] != ""
    assert (document["then"]["seconds"], document["now"]["seconds"], document["drift"]) == (None, None, None)
    assert state(contest) == before


def test_the_draw_that_failed_is_checked_first_also_under_a_judge_that_changed(contest: Path) -> None:
    kernel = contest / "kernel.py"
    text = kernel.read_text()
    # The result of one of many blocks is doubled.
    wrong = text.replace("+ EPS)\n", "+ EPS) * jnp.where(pl.program_id(0) == 1, 2.0, 1.0)\n")
    assert wrong != text
    kernel.write_text(wrong)
    ratchet(contest, "experiment: twice one block", expect=1)
    (failed,) = [
        check
        for check in json.loads(ratchet(contest, "show", "--json", expect=0).stdout)["attempt"]["evidence"]["checks"]
        if not check["passed"]
    ]
    # The judge has changed, and the user is at work.
    prepare = contest / "prepare.py"
    prepare.write_text(f"{prepare.read_text()}\nANOTHER_JUDGE = True\n")
    git(contest, "commit", "-qm", "another judge", "--", "prepare.py")
    kernel.write_text("the user is in the middle of something\n")
    before = state(contest)
    now = json.loads(ratchet(contest, "replay", "3", "--json", expect=1).stdout)
    assert state(contest) == before
    assert now["now"]["failure_kind"] == now["then"]["failure_kind"] == "wrong-result"
    assert f"(inputs: {failed['family']}, seed {failed['seed']})" in now["now"]["reasons"][0]
    assert now["are_same_draws"] is False
    assert any(difference.startswith("judge ") for difference in now["differences"])
    assert now["scratch"] == "profile_data/replay/0003"
    assert (contest / now["scratch"]).is_dir()


def test_a_loser_loses_again_against_its_champion_also_under_a_judge_that_changed(contest: Path) -> None:
    ratchet(contest, "experiment: half the block", "--set", "BR=8", "--quiet", expect=1)
    # The champion's recorded evidence is of another key, so the champion is judged again too.
    prepare = contest / "prepare.py"
    prepare.write_text(f"{prepare.read_text()}\nANOTHER_JUDGE = True\n")
    git(contest, "commit", "-qm", "another judge", "--", "prepare.py")
    before = state(contest)
    document = json.loads(ratchet(contest, "replay", "3", "--json", expect=1).stdout)
    assert state(contest) == before
    then, now = document["then"], document["now"]
    assert any(difference.startswith("judge ") for difference in document["differences"])
    assert then["outcome"] == now["outcome"] == "reject"
    assert then["failure_kind"] == now["failure_kind"] == ""
    assert then["time_ratio"] > 1
    assert now["time_ratio"] == pytest.approx(then["time_ratio"])
    assert document["drift"] == 1.0


def test_the_recorded_draws_are_repeated(contest: Path) -> None:
    before = state(contest)
    done = json.loads(ratchet(contest, "replay", "1", "--json", expect=0).stdout)
    assert state(contest) == before
    assert (done["differences"], done["drift"], done["changes"]) == ([], 1.0, [])
    assert done["then"]["outcome"] == done["now"]["outcome"] == "accept"
    assert done["then"]["fingerprint"] == done["now"]["fingerprint"]
    record = json.loads(ratchet(contest, "show", "1", "--json", expect=0).stdout)["attempt"]
    assert done["are_same_draws"] is True
    assert len(done["redrawn"]) == len(record["evidence"]["checks"]) > 10
    assert {check["draw"]["mode"] for check in done["redrawn"]} == {"full", "reduced", "interpret"}
    repeated = [check for check in done["redrawn"] if not check["why_not"]]
    assert {check["draw"]["mode"] for check in repeated} == {"full", "reduced", "interpret"}
    at_full = max(check["draw"]["shape"][0] for check in repeated)
    for check in repeated:
        assert check["passes_now"] is True, check
        # Inputs of the interpreter at the contest's own shape go to the CPU reference program now.
        is_moved = (check["draw"]["mode"], check["draw"]["shape"][0]) == ("interpret", at_full)
        assert is_moved or check["now"] == check["then"], "the same inputs, bit for bit"
    others = [check for check in done["redrawn"] if check["why_not"]]
    assert not others, others
    assert done["now"]["checks"] == done["then"]["checks"] + len(repeated), "and fresh ones beside them"
    assert {check["draw"]["seed"] for check in done["redrawn"]} == {
        check["seed"] for check in record["evidence"]["checks"]
    }


def test_an_attempt_that_is_not_there_is_named(contest: Path) -> None:
    missing = ratchet(contest, "replay", "9", expect=4)
    assert "[unknown-attempt]" in missing.stderr


@pytest.mark.slow
def test_fsck_judges_the_champion_again_and_finds_one_that_was_forged(contest: Path) -> None:
    """A tenth of its time is removed from its record and its commit alike: nothing in them disagrees."""
    whole = ratchet(contest, "fsck", "--replay", "--quiet", expect=0)
    assert "attempt 1, the champion, judged again: accept, 0.00% off the recorded time" in " ".join(
        whole.stdout.split()
    )
    forged = copied(contest, contest.parent / "forged")
    (record,) = (forged / "experiments").glob("0001-*.json")
    document = json.loads(record.read_text())
    document["attempt"]["evidence"] = faster(document["attempt"]["evidence"])
    read = codec.decode_attempt(json.dumps(document).encode(), "forged")
    on = chip(read.evidence.chip)
    forged_record = replace(read, verdict=decision.decide(read.evidence, None, None, read.policy, on))
    row = reporting.row(forged_record, reporting.report(forged_record.evidence, on), key_digest(forged_record.key))
    record.write_bytes(codec.encode_attempt(forged_record, row))
    git(forged, "update-ref", "-d", "refs/ratchet/root/log")
    git(forged, "commit", "-q", "--amend", "-m", messages.accept_message(forged_record, row), "--", str(record))
    printed = " ".join(ratchet(forged, "fsck", expect=0).stdout.split())
    assert "there is no log here to check against" in printed
    printed = " ".join(ratchet(forged, "fsck", "--replay", "--quiet", expect=1).stdout.split())
    assert re.search(
        r"attempt 1, the champion, judged again: it takes (4|5|6|7|8|9|10|11)\.\d\d% more than .* \[replay\]", printed
    )


def faster(evidence: dict[str, Any]) -> dict[str, Any]:
    """The evidence with a tenth of its cycles taken away where the core waits, and what follows from that."""
    run = evidence["simulation"]
    part = max(("dma_wait_cycles", "unit_stall_cycles"), key=run.get)
    saved = min(run[part], run["cycles"] / 10)
    run[part] -= saved
    run["cycles"] -= saved
    run["seconds"] = evidence["latency"]["seconds"] = run["cycles"] / run["clock_hz"]
    return evidence
