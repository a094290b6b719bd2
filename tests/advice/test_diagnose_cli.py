"""The verb that says what to try next: recorded attempts, with and without their schedules, and refusals."""

import shutil
from dataclasses import replace
from pathlib import Path

import pytest
from command_line import Shell
from evidence_examples import KEY, V5E, attempt, failed
from loop_fixtures import committed_contest, ratchet
from rule_examples import saved
from schedule_examples import NEWEST, unpack

from harness import contest as contests
from harness.advice import report as reporting
from harness.judge.key import key_digest
from harness.ledger.codec import encode_attempt
from harness.loop import bench
from harness.records import Verdict
from harness.units import percent


@pytest.fixture(scope="module")
def contest(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A contest whose three attempts are the naive kernel, the root contest's champion, and one that failed."""
    folder = committed_contest(tmp_path_factory.mktemp("diagnose") / "contest")
    (folder / "experiments").mkdir()
    accept = Verdict(outcome="accept", reasons=("faster",))
    kernels = (saved("naive-128x256-v5e"), saved("naive-2048x1024-v5e"), failed())
    for number, kernel in enumerate(kernels, 1):
        made = attempt(replace(kernel, dump_directory=f"profile_data/{number}/dumps"), accept, number=number)
        row = reporting.row(made, reporting.report(kernel, V5E), key_digest(KEY))
        (folder / "experiments" / f"{number:04d}-x.json").write_bytes(encode_attempt(made, row))
    return folder


def test_findings_in_words(contest: Path, shell: Shell, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "100")
    shown = shell.printed("diagnose", "2", "-C", contest)
    assert shown.startswith("attempt 2: 885.103 us, compute-bound, gap 20.4% [simulated v5e]\n")
    assert "1. scale outside: at most 13.1% less time (simulated schedule); kind of change: body" in shown
    assert "(published protocol, levers)" in shown
    assert "the schedule is not on this machine" in " ".join(shown.split())
    assert "\x1b" not in shown


def test_findings_for_programs(contest: Path, shell: Shell) -> None:
    table, edits = shell.document("diagnose", "2", "-C", contest)["tables"]
    assert edits["name"] == "edits"
    assert not edits["rows"], "an attempt that was judged under another key is compared with nothing"
    assert table["units"]["gain_fraction"] == "fraction"
    first = table["rows"][0]
    assert (first["rule"], first["kind"], first["gain_source"]) == ("scale outside", "body", "simulated schedule")
    assert first["gain_fraction"] == pytest.approx(0.1313, abs=1e-4)


@pytest.mark.long
@pytest.mark.parametrize("number", ["1", "2"])
def test_what_ranks_the_findings_is_shown_where_their_gains_do_not(number: str, contest: Path, shell: Shell) -> None:
    rows = shell.document("diagnose", number, "-C", contest)["tables"][0]["rows"]
    ranks = [row["ranked_by_fraction"] for row in rows if row["ranked_by_fraction"] is not None]
    assert len(ranks) > 1
    assert ranks == sorted(ranks, reverse=True)
    gains = [row["gain_fraction"] or 0.0 for row in rows]
    shown = " ".join(shell.printed("diagnose", number, "-C", contest).split())
    assert (gains == sorted(gains, reverse=True)) != (f"the expected gain: 1. {percent(ranks[0])}, 2. " in shown)


@pytest.mark.long
def test_a_schedule_at_hand_bounds_the_gains(contest: Path, shell: Shell) -> None:
    dumps = unpack(NEWEST, "v5e-1024x512-2048", contest / "profile_data" / "2" / "dumps")
    try:
        printed = shell.printed("diagnose", "2", "-C", contest)
    finally:
        shutil.rmtree(dumps.parents[1])
    assert "simulated what-ifs that bound gains: transfers that take no time: " in printed


def test_a_failure_is_told_its_next_step(contest: Path, shell: Shell) -> None:
    shown = shell.printed("diagnose", "3", "-C", contest)
    assert shown.startswith("attempt 3 failed: compile, vmem-exceeded: the kernel needs 18.2 MiB of VMEM")
    assert "compile failed: vmem-exceeded" in shown
    assert "-> make blocks smaller" in shown
    assert "at most" not in shown, "a failure has no gain"
    (note,) = shell.document("diagnose", "3", "-C", contest)["tables"][0]["notes"]
    assert note.startswith("compile, vmem-exceeded: the kernel needs 18.2 MiB of VMEM")


@pytest.mark.parametrize(
    ("words", "kind", "code"),
    [
        (("diagnose", "999"), "unknown-attempt", 4),
        (("diagnose", "1", "--chip", "v6e"), "usage", 2),
        (("diagnose", "one"), "usage", 2),
    ],
)
def test_bad_requests(contest: Path, words: tuple[str, ...], kind: str, code: int, shell: Shell) -> None:
    assert f"[{kind}]" in shell.complaint(*words, "-C", contest, code=code)


@pytest.mark.slow
def test_an_experiment_gets_friendly_words(tmp_path: Path) -> None:
    folder = committed_contest(tmp_path / "contest")
    first = ratchet(folder, "experiment: begin", expect=0)
    assert "names no observation" not in first.stderr, "a baseline is no experiment"
    kernel = folder / "kernel.py"
    kernel.write_text(kernel.read_text().replace("jnp.exp(", "jnp.exp2(").replace("BKV = 256", "BKV = 128"))
    done = ratchet(folder, "experiment: make it nicer", expect=None)
    # Before the run, so that it can be interrupted in time.
    before, _, _ = done.stderr.partition(" compile ")
    assert "names no observation" in before
    printed = " ".join(f"{done.stdout} {done.stderr}".split())
    for words in ("the hypothesis names no observation", "several kinds of change (constants and body)"):
        assert printed.count(words) == 1


@pytest.mark.long
def test_a_kernel_that_was_not_judged_is_only_timed(tmp_path: Path, shell: Shell) -> None:
    folder = committed_contest(tmp_path / "contest", 256)
    shown = shell.printed("diagnose", "--no-edits", "--quiet", "-C", folder)
    assert "its results were not checked: `judge` checks them" in " ".join(shown.split())
    contest = contests.load(folder)
    assert bench.kept_evidence(contest) is None
    assert bench.kept_evidence(contest, checked=False, with_lines=True) is not None
