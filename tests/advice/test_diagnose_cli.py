"""The verb that says what to try next: recorded attempts, with and without their schedules, and refusals."""

import json
import shutil
from dataclasses import replace
from pathlib import Path

import pytest
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
from harness.shell.main import main
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


def test_findings_in_words(contest: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "100")
    assert main(["diagnose", "2", "-C", str(contest)]) == 0
    shown = capsys.readouterr().out
    assert shown.startswith("attempt 2: 885.103 us, compute-bound, gap 20.4% [simulated v5e]\n")
    assert "1. scale outside: at most 13.1% less time (simulated schedule); kind of change: body" in shown
    assert "(published protocol, levers)" in shown
    assert "the schedule is not on this machine" in " ".join(shown.split())
    assert "\x1b" not in shown


def test_findings_for_programs(contest: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["diagnose", "2", "--json", "-C", str(contest)]) == 0
    table, edits = json.loads(capsys.readouterr().out)["tables"]
    assert edits["name"] == "edits"
    assert not edits["rows"], "an attempt that was judged under another key is compared with nothing"
    assert table["units"]["gain_fraction"] == "fraction"
    first = table["rows"][0]
    assert (first["rule"], first["kind"], first["gain_source"]) == ("scale outside", "body", "simulated schedule")
    assert first["gain_fraction"] == pytest.approx(0.1313, abs=1e-4)


@pytest.mark.long
@pytest.mark.parametrize("number", ["1", "2"])
def test_what_ranks_the_findings_is_shown_where_their_gains_do_not(
    number: str, contest: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["diagnose", number, "--json", "-C", str(contest)]) == 0
    rows = json.loads(capsys.readouterr().out)["tables"][0]["rows"]
    ranks = [row["ranked_by_fraction"] for row in rows if row["ranked_by_fraction"] is not None]
    assert len(ranks) > 1
    assert ranks == sorted(ranks, reverse=True)
    gains = [row["gain_fraction"] or 0.0 for row in rows]
    assert main(["diagnose", number, "-C", str(contest)]) == 0
    shown = " ".join(capsys.readouterr().out.split())
    assert (gains == sorted(gains, reverse=True)) != (f"the expected gain: 1. {percent(ranks[0])}, 2. " in shown)


@pytest.mark.long
def test_a_schedule_at_hand_bounds_the_gains(contest: Path, capsys: pytest.CaptureFixture[str]) -> None:
    dumps = unpack(NEWEST, "v5e-1024x512-2048", contest / "profile_data" / "2" / "dumps")
    try:
        assert main(["diagnose", "2", "-C", str(contest)]) == 0
    finally:
        shutil.rmtree(dumps.parents[1])
    assert "simulated what-ifs that bound gains: transfers that take no time: " in capsys.readouterr().out


def test_a_failure_is_told_its_next_step(contest: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["diagnose", "3", "-C", str(contest)]) == 0
    shown = capsys.readouterr().out
    assert shown.startswith("attempt 3: failed\n  compile, vmem-exceeded: the kernel needs 18.2 MiB of VMEM")
    assert "compile failed: vmem-exceeded" in shown
    assert "-> make blocks smaller" in shown
    assert "at most" not in shown, "a failure has no gain"
    assert main(["diagnose", "3", "--json", "-C", str(contest)]) == 0
    (note,) = json.loads(capsys.readouterr().out)["tables"][0]["notes"]
    assert note.startswith("compile, vmem-exceeded: the kernel needs 18.2 MiB of VMEM")


@pytest.mark.parametrize(
    ("words", "kind", "code"),
    [
        (("diagnose", "999"), "unknown-attempt", 4),
        (("diagnose", "1", "--chip", "v6e"), "usage", 2),
        (("diagnose", "one"), "usage", 2),
    ],
)
def test_bad_requests(
    contest: Path, words: tuple[str, ...], kind: str, code: int, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([*words, "-C", str(contest)]) == code
    assert f"[{kind}]" in capsys.readouterr().err


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
def test_a_kernel_that_was_not_judged_is_only_timed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = committed_contest(tmp_path / "contest", 256)
    assert main(["diagnose", "--no-edits", "--quiet", "-C", str(folder)]) == 0
    assert "its results were not checked: `judge` checks them" in " ".join(capsys.readouterr().out.split())
    contest = contests.load(folder)
    assert bench.kept_evidence(contest) is None
    assert bench.kept_evidence(contest, checked=False, with_lines=True) is not None
