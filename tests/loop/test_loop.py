"""The whole loop on a real repository with the real compiler: baseline, win, loss, and what must not change."""

import hashlib
import json
import re
import subprocess
from pathlib import Path
from typing import Any

import pytest
from loop_fixtures import git, identify
from loop_fixtures import ratchet as run

pytest.importorskip("libtpu", reason="the TPU compiler exists for x86-64 Linux only")


def ratchet(contest: Path, *arguments: str, expect: int = 0) -> "subprocess.CompletedProcess[str]":
    return run(contest, *arguments, "-C", str(contest), expect=expect)


def rows(contest: Path) -> list[dict[str, Any]]:
    return json.loads(ratchet(contest, "results", "--json").stdout)["rows"]


@pytest.fixture(scope="module")
def repository(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A repository with one commit, and the user's own half-done work in every state git knows."""
    root = tmp_path_factory.mktemp("user")
    git(root, "init", "-q", "-b", "main")
    identify(root)
    (root / ".gitignore").write_text("*.ignored\n")
    for name in ("kept.txt", "staged.txt", "edited.txt", "removed.txt", "renamed.txt", "stashed.txt"):
        (root / name).write_text(f"{name}\n" * 5)
    git(root, "add", "-A")
    git(root, "commit", "-qm", "The user's own work")
    return root


@pytest.fixture(scope="module")
def contest(repository: Path) -> Path:
    folder = repository / "mine"
    run(repository, "new", "mine", "--like", "attention", "--set", "SEQUENCE=2048", expect=0)
    (repository / "stashed.txt").write_text("stashed\n")
    git(repository, "stash", "-q")
    (repository / "staged.txt").write_text("staged\n")
    (repository / "intended.txt").write_text("intended\n")
    git(repository, "add", "staged.txt")
    git(repository, "add", "--intent-to-add", "intended.txt")
    git(repository, "rm", "-q", "removed.txt")
    git(repository, "mv", "renamed.txt", "moved.txt")
    (repository / "staged.txt").write_text("staged, then edited\n")
    (repository / "edited.txt").write_text("edited\n")
    (repository / "untracked.txt").write_text("untracked\n")
    (repository / "cache.ignored").write_text("ignored\n")
    return folder


def users_state(repository: Path) -> dict[str, str]:
    """Everything of the user's, outside the contest: index entries, stash, and the bytes of every file."""
    files = [path for path in sorted(repository.rglob("*")) if path.is_file() and ".git" not in path.parts]
    state = {
        str(path.relative_to(repository)): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in files
        if "mine" not in path.relative_to(repository).parts
    }
    state["status"] = git(repository, "status", "--porcelain=v2", "--", ".", ":!mine")
    state["index"] = git(repository, "ls-files", "--stage", "--", ".", ":!mine")
    state["stash"] = git(repository, "stash", "list", "-p")
    return state


def test_the_loop(repository: Path, contest: Path) -> None:
    before = users_state(repository)
    start = git(repository, "rev-parse", "HEAD").strip()

    baseline = ratchet(contest, "experiment: baseline")
    assert re.search(
        r"^RESULT: score=[\d.]+ +latency=[\d.]+ms +util=[\d.]+% +tflops=[\d.]+ +\[simulated v5e\]$",
        baseline.stdout,
        re.M,
    )
    assert re.search(r"^REGIME: [A-Z-]+-BOUND ", baseline.stdout, re.M)
    naive = (contest / "kernel.py").read_text()

    ratchet(contest, "experiment: BQ 128 -> 1024", "--set", "BQ=1024", "--expect", "40%")
    faster = (contest / "kernel.py").read_text()
    assert faster == naive.replace("BQ = 128", "BQ = 1024")

    rejected = ratchet(
        contest, 'experiment: small blocks again: "klein", 小さい\nzweite Zeile', "--set", "BQ=256", expect=1
    )
    assert "reject" in rejected.stdout.lower()
    assert (contest / "kernel.py").read_text() == faster

    table = rows(contest)
    assert [(row["number"], row["kind"], row["outcome"]) for row in table] == [
        (1, "baseline", "accept"),
        (2, "experiment", "accept"),
        (3, "experiment", "reject"),
    ]
    assert table[1]["seconds"] < 0.99 * table[0]["seconds"]
    assert table[1]["expected_time_ratio"] == pytest.approx(0.6)
    assert table[2]["hypothesis"] == 'small blocks again: "klein", 小さい\nzweite Zeile'
    assert all(git(repository, "cat-file", "-t", row["commit"]).strip() == "commit" for row in table)

    commits = git(repository, "log", "--format=%s", f"{start}..HEAD").splitlines()
    assert len(commits) == 2
    changed = set(git(repository, "diff", "--name-only", start, "HEAD").split())
    assert changed == {
        "mine/kernel.py",
        "mine/experiments/0001-baseline.json",
        "mine/experiments/0002-bq-128-1024.json",
    }
    assert users_state(repository) == before

    shown = ratchet(contest, "show", "3").stdout
    assert "+BQ = 256" in shown
    ratchet(contest, "checkout", "3")
    assert (contest / "kernel.py").read_text() == naive.replace("BQ = 128", "BQ = 256")
    ratchet(contest, "checkout", "2")
    assert (contest / "kernel.py").read_text() == faster


def test_a_loser_is_judged_again_without_touching_anything(repository: Path, contest: Path) -> None:
    before = (users_state(repository), (contest / "kernel.py").read_bytes(), git(repository, "for-each-ref"))
    found = json.loads(ratchet(contest, "replay", "3", "--json", expect=1).stdout)
    assert (found["differences"], found["drift"], found["changes"]) == ([], 1.0, [])
    assert found["then"]["outcome"] == found["now"]["outcome"] == "reject"
    assert found["then"]["time_ratio"] == found["now"]["time_ratio"] > 1
    assert found["then"]["fingerprint"] == found["now"]["fingerprint"]
    after = (users_state(repository), (contest / "kernel.py").read_bytes(), git(repository, "for-each-ref"))
    assert after == before
    assert "clean" in ratchet(contest, "fsck").stdout


def test_an_identical_candidate_is_not_judged_twice(repository: Path, contest: Path) -> None:
    kernel = contest / "kernel.py"
    accepted = kernel.read_text()
    kernel.write_text(accepted.replace("BQ = 1024", "BQ = 256  # once more"))
    refused = ratchet(contest, "experiment: small blocks, differently spelled", expect=4)
    assert "attempt 3" in refused.stderr
    assert "[identical-candidate]" in refused.stderr
    assert kernel.read_text() == accepted.replace("BQ = 1024", "BQ = 256  # once more")
    kernel.write_text(accepted)
    assert len(rows(contest)) == 3


def test_an_unchanged_kernel_is_evaluated_but_not_recorded(contest: Path) -> None:
    done = ratchet(contest, "experiment: nothing at all")
    assert "nothing was recorded" in done.stdout
    assert len(rows(contest)) == 3


def test_a_wrong_kernel_fails_and_is_recorded(contest: Path) -> None:
    kernel = contest / "kernel.py"
    accepted = kernel.read_text()
    wrong = accepted.replace("acc_ref[...] * rescale", "acc_ref[...]", 1)
    assert wrong != accepted
    kernel.write_text(wrong)
    done = json.loads(ratchet(contest, "experiment: drop the rescale", "--json", expect=1).stdout)
    assert done["attempt"]["verdict"]["outcome"] == "failed"
    assert done["attempt"]["verdict"]["failure"]["kind"] == "wrong-result"
    assert kernel.read_text() == accepted


def test_a_plain_clone_shows_everything_committed_and_goes_on(repository: Path, contest: Path, tmp_path: Path) -> None:
    ratchet(contest, "experiment: wider key blocks", "--set", "BKV=512")
    assert rows(contest)[-1]["outcome"] == "accept"
    clone = tmp_path / "clone"
    subprocess.run(["git", "clone", "-q", f"file://{repository}", str(clone)], check=True, timeout=60)
    identify(clone)
    assert [row["number"] for row in rows(clone / "mine")] == [1, 2, 3, 4, 5]
    ratchet(clone / "mine", "experiment: back to 256 keys", "--set", "BKV=256", "--again", expect=1)
    assert rows(clone / "mine")[-1]["number"] == 6


def test_undo_takes_the_last_accept_back(repository: Path, contest: Path) -> None:
    before = (contest / "kernel.py").read_text()
    ratchet(contest, "undo")
    after = (contest / "kernel.py").read_text()
    assert "BKV = 512" in before
    assert "BKV = 256" in after
    assert git(repository, "show", "HEAD:mine/kernel.py") == after
    assert rows(contest)[-1]["kind"] == "undo"
    assert "clean" in ratchet(contest, "fsck").stdout
