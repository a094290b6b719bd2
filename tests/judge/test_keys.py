"""Comparisons of times: other chips, other sources, kernels changed by hand, and what records nothing."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from loop_fixtures import PROJECT, copied, git, ratchet

pytestmark = pytest.mark.long

pytest.importorskip("libtpu", reason="the TPU compiler exists for x86-64 Linux only")

# Python reads a sitecustomize.py at its start: this file makes libtpu look as if it were not installed.
WITHOUT_LIBTPU = """
import importlib.metadata as metadata
installed = metadata.version
def version(name):
    if name == "libtpu":
        raise metadata.PackageNotFoundError(name)
    return installed(name)
metadata.version = version
"""


@pytest.fixture
def contest(judged_contest: Path, tmp_path: Path) -> Path:
    """A contest with a baseline for v5e."""
    return copied(judged_contest, tmp_path / "a contest")


def record(contest: Path, number: int) -> dict[str, Any]:
    document: dict[str, Any] = json.loads(ratchet(contest, "show", str(number), "--json", expect=0).stdout)["attempt"]
    return document


def test_judge_and_prepare_record_nothing(contest: Path) -> None:
    refs = git(contest, "for-each-ref")
    # Constants given by --set are judged, and not written into the file.
    judged = ratchet(contest, "judge", "--set", "BR=32", "--json", expect=0)
    assert json.loads(judged.stdout)["evidence"]["trace"]["pallas_calls"][0]["grid"] == [512 // 32]
    by_hand = subprocess.run(
        [sys.executable, "prepare.py", "--quiet"],
        cwd=contest,
        capture_output=True,
        text=True,
        timeout=120,
        env={**os.environ, "PYTHONPATH": PROJECT},
    )
    assert json.loads(judged.stdout)["evidence"]["latency"]["source"] == "simulated"
    assert by_hand.returncode == 0, by_hand.stderr
    assert "[simulated v5e]" in by_hand.stdout
    assert by_hand.stderr == ""
    assert git(contest, "for-each-ref") == refs
    assert git(contest, "status", "--porcelain") == ""
    # A judged kernel leaves a capture of its simulated run.
    (capture,) = contest.glob("profile_data/plugins/profile/kernel.py-simulated-v5e/*.xplane.pb")
    assert "beside compute" in ratchet(contest, "xprof", "gaps", capture.parent.name, expect=0).stdout


@pytest.mark.slow
def test_another_chip_judges_the_champion_first_and_keeps_what_it_found(contest: Path) -> None:
    done = ratchet(contest, "experiment: smaller blocks --deep", "--chip", "v6e", "--set", "BR=8", expect=1)
    attempt = record(contest, 2)
    assert "chip v5e -> v6e" in done.stderr
    assert "evaluated again first" in done.stderr
    assert attempt["hypothesis"] == "smaller blocks"
    assert attempt["champion_evidence"]["chip"] == "v6e"
    assert attempt["champion"]["seconds"] == attempt["champion_evidence"]["latency"]["seconds"]

    # The champion is not evaluated again if its evidence is known.
    done = ratchet(contest, "experiment: larger blocks", "--chip", "v6e", "--set", "BR=32", expect=0)
    assert "ACCEPTED" in done.stdout
    assert "evaluated again first" not in done.stderr
    assert record(contest, 3)["champion_evidence"] is None
    assert record(contest, 3)["verdict"]["time_ratio"] < 1

    # After an undo the champion has its own time again.
    ratchet(contest, "undo", expect=0)
    unchanged = ratchet(contest, "experiment: nothing", "--chip", "v6e", "--json", expect=0)
    time = json.loads(unchanged.stdout)["attempt"]["evidence"]["latency"]["seconds"]
    assert time == attempt["champion"]["seconds"]
    ratchet(contest, "experiment: tiny again", "--chip", "v6e", "--set", "BR=8", "--again", expect=1)
    assert record(contest, 5)["champion"]["seconds"] == time


def test_a_kernel_changed_by_hand_is_said_and_can_be_made_the_champion(contest: Path) -> None:
    kernel = contest / "kernel.py"
    kernel.write_text(kernel.read_text().replace("BR = 16", "BR = 32"))
    git(contest, "commit", "-qam", "By hand")
    judged = ratchet(contest, "experiment: by hand", "--rebaseline", expect=0)
    assert "rebaseline" in judged.stdout
    assert "BR = 32" in git(contest, "show", "HEAD:kernel.py")
    assert "the champion's" in ratchet(contest, "status", expect=0).stdout


def test_a_cpu_takes_no_title_from_a_simulated_champion(contest: Path) -> None:
    kernel = (contest / "kernel.py").read_text()
    rows = ratchet(contest, "results", "--json", expect=0).stdout
    refused = ratchet(contest, "experiment: on this machine", "--on", "cpu", "--set", "BR=32", expect=4)
    assert "[cpu-champion]" in refused.stderr
    assert "judge --on cpu" in refused.stderr
    swept = ratchet(contest, "sweep", "experiment: blocks", "--on", "cpu", "--set", "BR=16,32", expect=4)
    assert "[cpu-champion]" in swept.stderr
    assert "threshold: " not in swept.stderr
    assert "best so far" not in swept.stderr
    assert (contest / "kernel.py").read_text() == kernel
    assert ratchet(contest, "results", "--json", expect=0).stdout == rows


@pytest.mark.slow
def test_a_measured_latency_is_only_compared_with_a_measured_one(contest: Path) -> None:
    ratchet(contest, "experiment: this clock", "--on", "cpu", "--set", "BR=32", "--rebaseline", expect=0)
    kernel = (contest / "kernel.py").read_text()
    done = ratchet(contest, "experiment: on this machine", "--on", "cpu", "--set", "BR=64", "--json")
    assert done.returncode in (0, 1, 3), done.stderr
    attempt = json.loads(done.stdout)["attempt"]
    paired, latency = attempt["paired"], attempt["evidence"]["latency"]
    assert attempt["key"]["source"] == latency["source"] == "measured cpu"
    pairs = len(paired["candidate_seconds"])
    assert len(paired["champion_seconds"]) == len(paired["control_seconds"]) == pairs
    assert pairs == attempt["policy"]["looks"][paired["looks"] - 1]
    assert attempt["verdict"]["attempts_since_accept"] == 1
    assert latency["seconds"] == pytest.approx(sorted(paired["candidate_seconds"])[pairs // 2], rel=0.5)
    if done.returncode:
        assert (contest / "kernel.py").read_text() == kernel


def test_without_the_compiler_one_sentence_says_what_to_do(contest: Path, tmp_path: Path) -> None:
    (tmp_path / "sitecustomize.py").write_text(WITHOUT_LIBTPU)
    path = os.pathsep.join([str(tmp_path), PROJECT])
    kernel = (contest / "kernel.py").read_bytes()
    done = ratchet(contest, "experiment: x", "--set", "BR=32", environment={"PYTHONPATH": path})
    assert done.returncode == 4, done.stderr
    assert "[no-libtpu]" in done.stderr
    assert (contest / "kernel.py").read_bytes() == kernel
