"""Screening on a real Ray cluster of three machines on the loopback, and the failures that it survives."""

import json
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path

import pytest
from loop_fixtures import PROJECT, committed_contest
from ray_fixtures import ENVIRONMENT, Nodes, befall, below, is_gone, listening, named, nodes
from refusals import refused

from harness import contest as contests
from harness.candidate import Candidate
from harness.contest import Contest
from harness.judge.verdict.roofline import latency_seconds
from harness.loop import ray_cluster, screening
from harness.loop.bench import Bench
from harness.loop.screening import Places
from harness.records import Evidence
from harness.shell.main import main

SHAPES = [{"name": "tiny", "heads": 1, "kv_heads": 1, "sequence": 512, "head_dim": 128, "causal": True}]


@pytest.fixture(scope="module")
def contest(tmp_path_factory: pytest.TempPathFactory) -> Contest:
    pytest.importorskip("libtpu", reason="the TPU compiler exists for x86-64 Linux only")
    return contests.load(committed_contest(tmp_path_factory.mktemp("ray") / "contest", 1024))


@pytest.fixture
def cluster() -> Iterator[Nodes]:
    with nodes(4) as cluster:
        yield cluster


def kernels(contest: Contest) -> list[Candidate]:
    sizes = [str(128 << place) for place in range(4)]
    text = contest.candidate()
    return [text.set((("BQ", size), ("BKV", other))) for size in sizes for other in sizes]


def screened(contest: Contest, texts: list[Candidate], places: Places) -> list[tuple[Candidate, Evidence]]:
    left, results = list(reversed(texts)), []
    screening.screen(
        Bench(contest=contest, on="simulated"),
        lambda: left.pop() if left else None,
        lambda kernel, evidence: results.append((kernel, evidence)),
        places,
    )
    return results


def latencies(results: list[tuple[Candidate, Evidence]]) -> dict[tuple[tuple[str, str], ...], object]:
    """The latency of each setting, or why it has none."""
    assert len(results) == len(dict(results)), "each is told of once"
    return {
        tuple(constant for constant in kernel.constants if constant[0] in ("BQ", "BKV")): latency_seconds(evidence)
        or screening.why_no_latency(evidence)
        for kernel, evidence in results
    }


@pytest.mark.slow
def test_twenty_blows_lose_nothing(contest: Contest, cluster: Nodes, monkeypatch: pytest.MonkeyPatch) -> None:
    """Actors and processes killed and stopped, machines lost: the same times as in one process of this machine."""
    monkeypatch.setattr(ray_cluster, "_PULSE_SECONDS", 5.0)
    texts = kernels(contest)
    wanted = latencies(screened(contest, texts, screening.local(1)))
    # Results of earlier screenings would be reused.
    shutil.rmtree(Path(os.environ["XDG_CACHE_HOME"]) / "kernel-ratchet", ignore_errors=True)
    sentences: list[str] = []
    rounds: list[dict[tuple[tuple[str, str], ...], object]] = []
    is_enough = threading.Event()

    def search(places: Places) -> None:
        while not is_enough.is_set():
            shutil.rmtree(Path(os.environ["XDG_CACHE_HOME"]) / "kernel-ratchet", ignore_errors=True)
            rounds.append(latencies(screened(contest, texts, places)))

    with ray_cluster.connected(cluster.address, 3, sentences.append) as places, ThreadPoolExecutor() as pool:
        searching = pool.submit(search, places)
        try:
            struck = befall(cluster, 20, seed=int(os.environ.get("RATCHET_SEED", "1")))
        finally:
            is_enough.set()
        searching.result()
    assert len(struck) == 20
    for results in rounds:
        assert results == wanted, f"{len(rounds)} rounds, {struck}"
    assert sentences == []


@pytest.mark.slow
def test_a_machine_with_another_compiler_is_left_out(contest: Contest, cluster: Nodes, tmp_path: Path) -> None:
    other = tmp_path / "packages" / "libtpu-0.0.1.dist-info"
    other.mkdir(parents=True)
    (other / "METADATA").write_text("Metadata-Version: 2.1\nName: libtpu\nVersion: 0.0.1\n")
    cluster.begin(PYTHONPATH=str(other.parent))
    sentences: list[str] = []
    with ray_cluster.connected(cluster.address, None, sentences.append) as places:
        assert places.count == 4
        results = screened(contest, kernels(contest)[:12], places)
    assert len(latencies(results)) == 12
    assert len(sentences) == 1
    assert "one of 4 screening workers is left out: it screens under another timing key (libtpu" in sentences[0]
    assert "-> 0.0.1)" in sentences[0]


@pytest.mark.parametrize("address", ["127.0.0.1:9", "ray://127.0.0.1:9", "nobody", "127.0.0.1:none", "::1:99999"])
def test_a_cluster_that_does_not_answer_is_named(address: str) -> None:
    why = f"of a Ray cluster, got '{address}'"
    with refused("no-cluster", why), ray_cluster.connected(address, None, print):
        raise AssertionError("it is not there")


@pytest.mark.parametrize(
    ("example", "words", "message"),
    [
        ("attention-gpu", ("--workers", "2"), "need the simulator, which simulates TPUs; settings for"),
        (
            "attention-v6e",
            ("--workers", "2", "--jobs", "2"),
            "expected --jobs (processes of this machine) or --workers",
        ),
    ],
)
def test_what_ray_cannot_serve_is_refused(
    example: str, words: tuple[str, ...], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = Path(PROJECT) / "examples" / example
    assert main(["-C", str(folder), "sweep", "experiment: x", "--set", "BQ=64", *words]) == 2
    assert message in capsys.readouterr().err


def table(tmp_path: Path, *words: str) -> "subprocess.Popen[str]":
    shapes = tmp_path / "shapes.json"
    shapes.write_text(json.dumps(SHAPES))
    of_table = ("--kernel", "jax:flash", "--shapes", str(shapes), "--trials", "9", "--out", str(tmp_path / "out"))
    return subprocess.Popen(
        [sys.executable, "-m", "harness", "table", *of_table, "--workers", "2", *words],
        cwd=tmp_path,
        text=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env={**os.environ, **ENVIRONMENT, "PYTHONPATH": PROJECT, "NO_COLOR": "1"},
    )


@pytest.mark.slow
def test_a_coordinator_that_is_killed_leaves_nothing_and_loses_nothing(tmp_path: Path) -> None:
    first = table(tmp_path)
    until = time.monotonic() + 240
    journal: list[Path] = []
    while time.monotonic() < until and sum(path.read_text().count('"values"') for path in journal) < 2:
        time.sleep(0.2)
        journal = list((tmp_path / "out").rglob("tune.journal"))
    started = below(first.pid)
    assert named(started, "harness.loop.screening")
    loopback = {"0100007F", "0000000000000000FFFF00000100007F", "00000000000000000000000001000000"}
    assert listening(started)
    assert listening(started) <= loopback
    first.kill()
    first.communicate()
    assert all(is_gone(pid, 60) for pid in named(started, "harness.loop.screening"))
    done = sum('"values"' in line for path in journal for line in path.read_text().splitlines())
    with suppress(ProcessLookupError):
        for pid in started:
            os.kill(pid, signal.SIGKILL)
    second = table(tmp_path, "--json")
    out, err = second.communicate(timeout=300)
    assert second.returncode == 0, err
    assert "9 of" in json.dumps(json.loads(out)["tables"][0]["rows"][0]), "those of the first run count"
    settings = {line.split("  ")[0] for line in err.splitlines() if "BLOCK_Q=" in line}
    # The three fastest are looked at once more.
    assert 2 <= done <= 9
    assert len(settings) <= 9 - done + 3, err
