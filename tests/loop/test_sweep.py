"""A grid of settings: stated, screened, shown, and judged as one attempt that names it."""

import json
import os
import re
import signal
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from loop_fixtures import PROJECT, committed_contest, copy_of, git, ratchet
from rich.cells import cell_len

from harness import contest as contests
from harness.errors import UsageError
from harness.judge.verdict import compare_simulated
from harness.judge.verdict.compare_simulated import deviations
from harness.judge.verdict.roofline import floor_of
from harness.ledger import Ledger
from harness.ledger.table import scaled
from harness.loop.bench import Bench
from harness.loop.search_space import space
from harness.loop.sweep import _required, threshold
from harness.records import Failure, Policy, RefusedSetting, ScreenedSetting, Sweep, SweepResult, Verdict
from harness.records.report_words import threshold_words
from harness.render.layout import UNBOUNDED
from harness.render.sections import screen
from harness.render.sweep import sweep_blocks
from harness.units import seconds

pytestmark = pytest.mark.long


def test_a_grid_is_stated_by_values_in_a_row() -> None:
    assert space(["BQ=512,1024", "BKV=256"]) == (("BQ", ("512", "1024")), ("BKV", ("256",)))
    assert space(["SHAPE=(8, 128),(16, 128)", "NAME='a,b',None"]) == (
        ("SHAPE", ("(8, 128)", "(16, 128)")),
        ("NAME", ("'a,b'", "None")),
    )
    assert space(["BQ=512,512,10"]) == (("BQ", ("512", "10")),), "the same value twice is one setting"


def test_a_threshold_below_the_floor_says_that_no_setting_can_be_accepted(judged_contest: Path) -> None:
    contest, ledger = contests.load(judged_contest), Ledger.open(judged_contest)
    bench, floor = Bench(contest=contest), floor_of(contest.problem.statement().work, contest.chip, None).seconds
    champion = scaled(ledger).rows[-1].row
    reachable = threshold(bench, ledger, replace(champion, seconds=2 * floor), 4)
    assert "no setting can" not in reachable
    assert reachable.endswith("; less if settings give the same program, more for a setting that is more uncertain")
    said_at_the_floor = threshold(bench, ledger, replace(champion, seconds=1.001 * floor), 4)
    assert said_at_the_floor.endswith(f"; no setting can: the memory floor is {seconds(floor)}")


@pytest.mark.parametrize(("mine", "theirs", "looked_at"), [(0.05, 0.03, 1), (0.03, 0.05, 7), (0.001, 0.001, 1)])
def test_the_threshold_after_the_judgement_is_the_verdicts(mine: float, theirs: float, looked_at: int) -> None:
    policy, uncertainty = Policy(), max(mine, theirs)
    ruling = compare_simulated.rule(2e-3, 1.9e-3, uncertainty, policy, looked_at)
    verdict = Verdict(
        outcome=ruling.outcome,
        reasons=(),
        time_ratio=ruling.ratio,
        time_ratio_low=ruling.low,
        time_ratio_high=ruling.high,
    )
    least = compare_simulated.least_gain(uncertainty, policy, looked_at)
    before = compare_simulated.least_gain(theirs, policy, looked_at)
    assert _required(verdict, policy, before) == pytest.approx(least)
    assert threshold_words(_required(verdict, policy, before)) in ruling.reason
    # A verdict without an interval leaves the champion's threshold; without one, no times were comparable.
    assert _required(replace(verdict, time_ratio_high=None), policy, before) == before
    assert _required(verdict, policy, None) is None


@pytest.mark.parametrize("texts", [[], ["BQ"], ["BQ=1,,2"], ["BQ=1", "BQ=2"], ["BQ=f()"]])
def test_a_bad_grid_is_named(texts: list[str]) -> None:
    with pytest.raises(UsageError, match="--set"):
        space(texts)


@pytest.mark.parametrize(
    ("text", "values"),
    [
        ("BQ=128..1024:pow2", "128 256 512 1024"),
        ("BQ=100..1000:pow2", "128 256 512"),
        ("BQ=8..64:8", "8 16 24 32 40 48 56 64"),
        ("BQ=-1..1", "-1 0 1"),
        ("BQ=1,4..6,1024..4096:pow2,5", "1 4 5 6 1024 2048 4096"),
    ],
)
def test_a_range_is_all_of_its_values(text: str, values: str) -> None:
    assert space([text]) == (("BQ", tuple(values.split())),)


@pytest.mark.parametrize("text", ["BQ=4..1", "BQ=3..3:pow2", "BQ=1..9:0", "BQ=-8..-1:pow2", "BQ=0..999999999"])
def test_a_range_of_nothing_is_named(text: str) -> None:
    with pytest.raises(UsageError, match="expected a rising range"):
        space([text])


def test_a_grid_of_thousands_is_a_slip(tmp_path: Path) -> None:
    committed_contest(tmp_path)
    done = ratchet(tmp_path, "sweep", "experiment: x", "--set", "BQ=1..20", "--set", "BKV=1..20")
    assert done.returncode == 2
    assert "at most 256 settings in a grid, got 400" in done.stderr


def swept(*times: float | None, **changes: Any) -> SweepResult:
    """A sweep of BQ x BKV, 2 x 2, with these times; None: failed."""
    values = [("128", "256"), ("128", "512"), ("1024", "256"), ("1024", "512")]
    screened = tuple(
        ScreenedSetting(
            settings=(("BQ", bq), ("BKV", bkv)),
            seconds=time,
            failure_kind="" if time is not None else "vmem-exceeded",
            message="" if time is not None else "too large by 3 MB",
        )
        for (bq, bkv), time in zip(values, times, strict=True)
    )
    parameters = (("BQ", ("128", "1024")), ("BKV", ("256", "512")))
    sweep = Sweep(parameters=parameters, source="simulated", chip="v5e", screened=screened)
    words: dict[str, Any] = {
        "hypothesis": "larger",
        "sweep": sweep,
        "best": (("BQ", "1024"), ("BKV", "256")),
        "attempt": 3,
        "outcome": "accept",
        "why_none": "",
        "seconds": 12.0,
    }
    return SweepResult(**{**words, **changes})


def test_the_grid_is_a_table_and_a_heat_map_that_needs_no_colour() -> None:
    lines = screen(sweep_blocks(swept(4e-6, 2e-6, 1e-6, None)), 100).splitlines()
    rows = [line.split() for line in lines if "us" in line.split()]
    assert [row[:3] for row in rows] == [["1024", "256", "1.000"], ["128", "512", "2.000"], ["128", "256", "4.000"]]
    start = lines.index("BQ        256     512  BKV")
    assert lines[start + 1 : start + 3] == [" 128  · 4.00x ▒ 2.00x", "1024  █ 1.00x       x"]
    coloured = screen(sweep_blocks(swept(4e-6, 2e-6, 1e-6, None)), 100, colour=True)
    assert "\x1b[32m" in coloured
    assert "\x1b[31m" in coloured


@pytest.mark.parametrize(
    ("least_gain", "words"),
    [(0.4, "40.00% less time, at most 1.200 us (reached)"), (0.6, "60.00% less time, at most 800.000 ns (not")],
)
def test_the_fastest_stands_beside_the_threshold(least_gain: float, words: str) -> None:
    result = swept(4e-6, 2e-6, 1e-6, None, least_gain=least_gain)
    text = screen(sweep_blocks(replace(result, sweep=replace(result.sweep, champion=2, champion_seconds=2e-6))), 200)
    assert f"the fastest takes 1.000 us, -50.0% against the champion; threshold: at least {words}" in text


def test_a_reason_that_is_cut_is_shown_in_full_once() -> None:
    result = swept(4e-6, None, 1e-6, None)
    why = "tracing kernel_fn failed: kernel.py line 43: ValueError: expected BM to divide 2048, got BM=1000; " * 2
    failing = tuple(
        trial if trial.seconds else replace(trial, failure_kind="trace-error", message=why)
        for trial in result.sweep.screened
    )
    text = screen(sweep_blocks(replace(result, sweep=replace(result.sweep, screened=failing))), 80)
    assert f"BQ=128 BKV=512 and 1 other: trace-error: {why.strip()}" in " ".join(text.split())
    assert all(cell_len(line) <= 80 for line in text.splitlines())
    # In a pipe, where nothing has to be cut, a long reason is below the table too.
    piped = screen(sweep_blocks(replace(result, sweep=replace(result.sweep, screened=failing))), UNBOUNDED)
    assert piped.count(why.strip()) == 1
    assert piped.count("trace-error: tracing kernel_fn failed: kernel.py line 43: V…") == 2


def test_settings_that_were_judged_and_fail_are_said() -> None:
    wrong = Failure(stage="correctness", kind="wrong-result", message="2.0 times the tolerance")
    result = swept(4e-6, 2e-6, 1e-6, None, best=(("BQ", "128"), ("BKV", "512")))
    refused = (RefusedSetting(settings=(("BQ", "1024"), ("BKV", "256")), failure=wrong),)
    text = screen(sweep_blocks(replace(result, sweep=replace(result.sweep, refused=refused))), 120)
    (line,) = [line for line in text.splitlines() if line.split()[:2] == ["1024", "256"]]
    assert "judged now, fails: wrong-result: 2.0 times the tolerance" in line
    assert text.splitlines()[-1] == "judged as attempt 3: BQ=128 BKV=512, after 1 faster one failed"
    all_fail = replace(result, sweep=replace(result.sweep, refused=refused * 2), outcome="failed")
    assert "it fails, and so does each of the next best (1)" in screen(sweep_blocks(all_fail), 120)


def test_a_grid_where_nothing_compiles_says_so() -> None:
    nothing = swept(None, None, None, None, best=None, attempt=None, why_none="no setting has a latency")
    text = screen(sweep_blocks(nothing), 80)
    assert text.splitlines()[-1] == "nothing judged: no setting has a latency"
    assert all(cell_len(line) <= 80 for line in text.splitlines())


@pytest.fixture
def contest(tmp_path: Path) -> Path:
    pytest.importorskip("libtpu", reason="the TPU compiler exists for x86-64 Linux only")
    return committed_contest(tmp_path / "contest", 512)


def test_an_unknown_constant_is_named_before_anything_is_screened(contest: Path) -> None:
    done = ratchet(contest, "sweep", "experiment: x", "--set", "BLOCK=1,2", expect=4)
    assert "[unknown-constant]" in done.stderr
    assert not (contest / "profile_data" / "sweep").exists()


def test_interrupting_a_sweep_leaves_kernel_and_ledger_as_they_were(contest: Path) -> None:
    before = ((contest / "kernel.py").read_bytes(), git(contest, "for-each-ref"), git(contest, "status", "--porcelain"))
    process = subprocess.Popen(
        [sys.executable, "-m", "harness", "sweep", "experiment: x", "--set", "BQ=128,256,512"],
        cwd=contest,
        env={**os.environ, "PYTHONPATH": PROJECT},
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stderr is not None
    lines = iter(process.stderr.readline, "")
    assert any("there is no champion: the best setting becomes the first champion" in line for line in lines)
    # Screening has begun once its first result is told.
    first = next(lines)
    process.send_signal(signal.SIGINT)
    _, rest = process.communicate(timeout=60)
    assert process.returncode == 130, first + rest
    assert "kernel.py is as it was" in rest
    after = ((contest / "kernel.py").read_bytes(), git(contest, "for-each-ref"), git(contest, "status", "--porcelain"))
    assert after == before


@pytest.mark.slow
def test_the_best_of_a_grid_is_one_attempt_that_names_the_grid(contest: Path) -> None:
    ratchet(contest, "experiment: baseline", expect=0)
    first = json.loads(ratchet(contest, "show", "1", "--json", expect=0).stdout)["attempt"]
    naive = (contest / "kernel.py").read_text()
    grid_words = ("--set", "BQ=128,300,512", "--set", "BKV=256,512")
    run = ratchet(contest, "sweep", "experiment: blocks", *grid_words, "--json", expect=0)
    assert "for the fastest of 6 candidates): at most " in run.stderr.partition("threshold: at least ")[2]
    done = json.loads(run.stdout)
    judged = json.loads(ratchet(contest, "show", "2", "--json", expect=0).stdout)["attempt"]
    both = [attempt["evidence"]["simulation"]["relative_uncertainty"] for attempt in (first, judged)]
    assert done["least_gain"] == pytest.approx(1 - 1 / (1 + deviations(4) * max(both)))
    assert (done["attempt"], done["outcome"], len(done["sweep"]["screened"])) == (2, "accept", 6)
    failed = [trial for trial in done["sweep"]["screened"] if trial["seconds"] is None]
    assert {dict(trial["settings"])["BQ"] for trial in failed} == {"300"}
    assert all(trial["failure_kind"] and trial["message"] for trial in failed)
    (repeated,) = [trial for trial in done["sweep"]["screened"] if trial["same_as"]]
    assert (repeated["same_as"], dict(repeated["settings"])) == (1, {"BQ": "128", "BKV": "256"})
    record = json.loads(ratchet(contest, "show", "2", "--json", expect=0).stdout)["attempt"]
    assert record["sweep"] == done["sweep"]
    assert record["sweep"]["looked_at"] == 4
    assert any("the fastest of 4 candidates" in reason for reason in record["verdict"]["reasons"])
    assert record["settings"] == done["best"]
    assert record["hypothesis"].startswith("blocks [best of 6: BQ=")
    assert len(record["evidence"]["checks"]) > 0, "the attempt was judged in full"
    best = min(trial["seconds"] for trial in done["sweep"]["screened"] if trial["seconds"])
    assert record["evidence"]["latency"]["seconds"] == pytest.approx(best), "what was screened is what was judged"
    assert (contest / "kernel.py").read_text() != naive
    again = ratchet(contest, "sweep", "experiment: the same", "--set", "BQ=128,512", "--set", "BKV=512", expect=1)
    assert "judged" in again.stdout


def judged_forgetful(folder: Path) -> Path:
    """A contest whose kernel can leave the exponential and the rescaling out: it is faster then, and wrong."""
    committed_contest(folder, 1024)
    kernel = folder / "kernel.py"
    text = kernel.read_text().replace("BQ = 128", "BQ = 128\nRESCALE = 1").replace("BKV = 256", "BKV = 128")
    text = text.replace(
        "weights = jnp.exp(scores - new_max)", "weights = jnp.exp(scores - new_max) if RESCALE else scores"
    )
    kernel.write_text(text.replace("acc_ref[...] * rescale", "acc_ref[...] * (rescale if RESCALE else 1)"))
    git(folder, "commit", "-qam", "a constant more")
    ratchet(folder, "experiment: baseline", expect=0)
    return folder


@pytest.fixture
def forgetful(tmp_path: Path) -> Path:
    pytest.importorskip("libtpu", reason="the TPU compiler exists for x86-64 Linux only")
    return copy_of(judged_forgetful, tmp_path / "contest")


@pytest.mark.slow
def test_a_best_setting_that_fails_gives_way_to_the_next(forgetful: Path) -> None:
    words = ("--set", "RESCALE=1,0", "--set", "BQ=256,512")
    done = json.loads(ratchet(forgetful, "sweep", "experiment: fewer steps", *words, "--json", expect=0).stdout)
    assert (done["attempt"], done["outcome"]) == (2, "accept")
    assert dict(done["best"])["RESCALE"] == "1"
    assert {dict(refusal["settings"])["RESCALE"] for refusal in done["sweep"]["refused"]} == {"0"}
    assert all(refusal["failure"]["kind"] and refusal["failure"]["message"] for refusal in done["sweep"]["refused"])
    times = {json.dumps(trial["settings"]): trial["seconds"] for trial in done["sweep"]["screened"]}
    passed = times[json.dumps(done["best"])]
    assert len(done["sweep"]["refused"]) == sum(time < passed for time in times.values())
    record = json.loads(ratchet(forgetful, "show", "2", "--json", expect=0).stdout)["attempt"]
    assert record["sweep"] == done["sweep"]
    assert record["sweep"]["looked_at"] == 4
    assert any("the fastest of 4 candidates" in reason for reason in record["verdict"]["reasons"])
    assert record["settings"] == done["best"]
    assert "that does not fail: RESCALE=1" in record["hypothesis"]
    assert "RESCALE = 1" in (forgetful / "kernel.py").read_text()
    assert (forgetful / "profile_data" / "0002" / "dumps").is_dir()
    assert not (forgetful / "profile_data" / "0002-failed").exists()
    assert "clean" in ratchet(forgetful, "fsck", expect=0).stdout


@pytest.mark.slow
def test_where_every_setting_faster_than_the_champion_fails_the_best_of_them_is_the_attempt(forgetful: Path) -> None:
    champion = (forgetful / "kernel.py").read_text()
    words = ("--set", "RESCALE=0", "--set", "BKV=128,256", "--set", "BQ=64,512")
    done = ratchet(forgetful, "sweep", "experiment: forget more", *words, expect=1)
    before, _, rest = done.stderr.partition("threshold: ")
    assert "names no observation" in before
    assert "names no observation" not in rest + done.stdout
    again = "kernel.py is the champion's again (attempt 1); to get your version back: ./ratchet.sh checkout 2"
    assert again in done.stdout
    assert re.search(r"  expected .* screening .*, from the last attempt on a machine like this", before)
    record = json.loads(ratchet(forgetful, "show", "2", "--json", expect=0).stdout)["attempt"]
    assert record["verdict"]["outcome"] == "failed"
    refused = record["sweep"]["refused"]
    assert refused[0]["settings"] == record["settings"]
    theirs = json.loads(ratchet(forgetful, "results", "--json", expect=0).stdout)["rows"][0]["row"]["seconds"]
    faster = [
        trial for trial in record["sweep"]["screened"] if trial["seconds"] is not None and trial["seconds"] < theirs
    ]
    assert 2 <= len(refused) == len(faster)
    assert f"so does each of the next best ({len(refused) - 1})" in " ".join(done.stdout.split())
    assert f"{refused[0]['failure']['kind']}: " in done.stderr
    assert (forgetful / "kernel.py").read_text() == champion
    assert (forgetful / "profile_data" / "0002" / "dumps").is_dir()
    assert "clean" in ratchet(forgetful, "fsck", expect=0).stdout
