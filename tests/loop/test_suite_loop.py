"""A suite in a real repository with the real compiler: a win, a loss at one member, and the verbs that look at them."""

import base64
import gzip
import json
import re
from pathlib import Path
from typing import Any

import pytest
from loop_fixtures import copied, git, identify, ratchet
from narrowing import present

pytest.importorskip("libtpu", reason="the TPU compiler exists for x86-64 Linux only")
# A suite is judged five times before the first test; tests/judge/test_suite.py tests the judge on suites.
pytestmark = pytest.mark.slow

SETTINGS = ("SEQUENCES=(512, 1024)", "WEIGHTS=(1, 3)", "HEADS=2", "KV_HEADS=1", "BQ=128", "BKV=128")
BLOCKS = "    (batch, heads, sequence, d), kv_heads = q.shape, k.shape[1]\n"

BODY = "def attend(q_ref, k_ref, v_ref, o_ref, m_ref, l_ref, acc_ref, *, scale):\n"
SIZES = f"{BODY}    BQ, BKV = q_ref.shape[0], k_ref.shape[0]\n"


def run(contest: Path, *words: str, expect: int = 0) -> str:
    done = ratchet(contest, *words, "-C", str(contest), expect=expect)
    return done.stdout if expect in (0, 1) else done.stderr


@pytest.fixture(scope="module")
def contest(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A suite after a baseline, a win at both members, and a candidate that wins at one and loses at the other."""
    root = tmp_path_factory.mktemp("suite")
    git(root, "init", "-q", "-b", "main")
    identify(root)
    sets = [word for text in SETTINGS for word in ("--set", text)]
    made = ratchet(root, "new", "mine", "--like", "attention-suite", *sets, expect=0).stdout
    for length in (512, 1024):
        array = f"[2, {length}, 128] bfloat16"
        assert f"kernel_fn(q {array}, k {array}, v {array}) -> o {array} at prefill-{length}\n" in made
    folder = root / "mine"
    run(folder, "experiment: baseline")
    run(folder, "experiment: larger blocks, fewer steps", "--set", "BQ=256", "--set", "BKV=256")
    kernel = (folder / "kernel.py").read_text()
    assert BLOCKS in kernel
    assert BODY in kernel
    # The kernel is better at the heavy member, and far worse at the light one.
    text = f"{BLOCKS}    BQ, BKV = (512, 512) if sequence == 1024 else (128, 128)\n"
    (folder / "kernel.py").write_text(kernel.replace(BLOCKS, text).replace(BODY, SIZES))
    printed = " ".join(run(folder, "experiment: blocks for the long prompts", expect=1).split())
    assert "prefill-512 takes " in printed
    assert "no member may lose more than 1.0%" in printed
    assert (folder / "kernel.py").read_text() == kernel
    return folder


def test_the_win_is_on_the_branch_and_shows_each_member(contest: Path) -> None:
    shown = run(contest, "show", "2")
    assert "weighted geometric means over the suite" in " ".join(shown.split())
    table = {line.split()[0]: line.split() for line in shown.splitlines() if line.startswith("prefill-")}
    assert (table["prefill-512"][1], table["prefill-1024"][1]) == ("25.0%", "75.0%")
    record = json.loads(run(contest, "show", "2", "--json"))["attempt"]
    ratios = {
        member["name"]: member["candidate_seconds"] / member["champion_seconds"]
        for member in record["verdict"]["members"]
    }
    mean = ratios["prefill-512"] ** 0.25 * ratios["prefill-1024"] ** 0.75
    assert record["verdict"]["time_ratio"] == pytest.approx(mean)
    assert all(run["members"] for run in record["verdict"]["resimulated"])
    assert [each["problem"]["title"] for each in record["evidence"]["members"]]
    assert "Ratchet-Attempt: 2" in git(contest, "log", "-1", "--format=%B", "--grep", "Ratchet-Attempt: 2")


def test_the_loss_is_rejected_without_the_full_shape(contest: Path) -> None:
    record: dict[str, Any] = json.loads(run(contest, "show", "3", "--json"))["attempt"]
    assert record["verdict"]["time_ratio"] < 1
    assert record["verdict"]["outcome"] == "reject"
    assert record["evidence"]["unchecked"]
    rows = [entry["row"] for entry in json.loads(run(contest, "results", "--json"))["rows"]]
    assert [row["outcome"] for row in rows] == ["accept", "accept", "reject"]
    assert [name for name, _ in rows[0]["members"]] == ["prefill-512", "prefill-1024"]


def test_what_looks_into_one_program_takes_a_member(contest: Path) -> None:
    assert "kernel.py of attempt 2 at prefill-1024" in run(contest, "lines", "2", "--member", "prefill-1024")
    assert "attempt 2 at prefill-512" in run(contest, "whatif", "2", "--member", "prefill-512")
    assert "attempt 2 at prefill-512" in run(contest, "diagnose", "2", "--member", "prefill-512")
    assert "Simulated cycles:" in run(contest, "show", "2", "--member", "prefill-512")
    for verb in ("lines", "whatif", "timeline", "diagnose"):
        printed = run(contest, verb, "2", expect=2)
        assert "expected --member, one of prefill-512, prefill-1024 of this suite, got none [which-member]" in printed
    assert "got 'none-such'" in run(contest, "lines", "2", "--member", "none-such", expect=2)
    # Each program leaves its own capture.
    printed = run(contest, "xprof", "gaps", "2", expect=2)
    assert "name one, 0002-prefill-1024-simulated-v5e, 0002-prefill-512-simulated-v5e [which-member]" in printed
    assert "beside compute" in run(contest, "xprof", "gaps", "0002-prefill-512-simulated-v5e")


def test_a_device_does_not_time_a_suite(contest: Path) -> None:
    assert "suite-not-timed" in run(contest, "judge", "--on", "cpu", expect=4)


def test_a_search_for_bad_inputs_takes_a_member(contest: Path) -> None:
    document = json.loads(run(contest, "attack", "--member", "prefill-512", "--minutes", "0.2", "--json"))
    assert document["tried"] > 0
    assert "sequence 512" in document["problem"]
    assert "which-member" in run(contest, "attack", "--minutes", "0.2", expect=2)


def test_the_page_and_the_search_state_hold_a_suite(contest: Path) -> None:
    run(contest, "report")
    page = (contest / "profile_data" / "report.html").read_text()
    chunk = present(re.search(r'id="chunk-0"[^>]*>([^<]*)<', page))
    attempts = json.loads(gzip.decompress(base64.b64decode(chunk[1])))["attempts"]
    assert all("latency at prefill-1024" in [figure[0] for figure in attempt["figures"]] for attempt in attempts)
    assert "suite of 2: prefill-512 (25%), prefill-1024 (75%)" in run(contest, "next")


def test_an_attempt_is_judged_again_on_the_inputs_of_each_member(contest: Path) -> None:
    again = json.loads(run(contest, "replay", "2", "--json"))
    assert again["now"]["outcome"] == "accept"
    assert again["drift"] == 1
    repeated = [check for check in again["redrawn"] if check["now"] is not None or check["passes_now"]]
    shapes = {tuple(check["draw"]["shape"]) for check in repeated if check["draw"]["mode"] == "full"}
    assert shapes == {(2, 512, 128), (2, 1024, 128)}
    assert all(check["passes_now"] is not False for check in again["redrawn"])


def test_a_sweep_judges_the_best_setting_at_which_no_member_loses_too_much(contest: Path, tmp_path: Path) -> None:
    copy = copied(contest.parent, tmp_path / "copy") / contest.name
    kernel = (copy / "kernel.py").read_text()
    # The shorter member has its own block sizes, and the champion keeps them.
    (copy / "kernel.py").write_text(
        kernel.replace(BODY, SIZES)
        .replace(BLOCKS, f"{BLOCKS}    BQ, BKV = (LONG, LONG) if sequence == 1024 else (SHORT, SHORT)\n")
        .replace("BQ = 256\n", "BQ = 256\nLONG = 256\nSHORT = 256\n")
    )
    swept = json.loads(
        run(copy, "sweep", "experiment: blocks by length", "--set", "LONG=256,512", "--set", "SHORT=128,256", "--json")
    )
    messages = {
        tuple(value for _, value in trial["settings"]): trial["message"] for trial in swept["sweep"]["screened"]
    }
    assert messages["512", "128"].startswith("loses too much at prefill-512 +")
    assert not messages["512", "256"]
    assert swept["best"] == [["LONG", "512"], ["SHORT", "256"]]
    assert swept["outcome"] == "accept"


def test_the_champion_of_a_suite_keeps_its_title_where_it_passes(contest: Path) -> None:
    assert "passes" in run(contest, "revoke", "because it is tried")
