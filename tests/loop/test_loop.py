"""The whole loop on a real repository with the real compiler: baseline, win, loss, and things that must not change."""

import hashlib
import json
import re
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from ledger_fixtures import commit_all
from loop_fixtures import NORM, copied, git, identify
from loop_fixtures import ratchet as run

pytestmark = pytest.mark.long

pytest.importorskip("libtpu", reason="the TPU compiler exists for x86-64 Linux only")


LOSER = 'experiment: small blocks again: "klein", 小さい\nzweite Zeile'


def ratchet(contest: Path, *arguments: str, expect: int = 0) -> "subprocess.CompletedProcess[str]":
    return run(contest, *arguments, "-C", str(contest), expect=expect)


def rows(contest: Path) -> list[dict[str, Any]]:
    return [entry["row"] for entry in json.loads(ratchet(contest, "results", "--json").stdout)["rows"]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Judged:
    """A repository with the user's own work and a contest in `mine`, after a baseline, a win and a loss.

    `start`, `before` and `naive` are the commit, the user's files and the kernel before the first attempt.
    """

    repository: Path
    start: str
    before: dict[str, str]
    naive: str
    words: tuple[str, str, str]


def messy(root: Path) -> Path:
    """A repository with one commit, a contest, and the user's own half-done work in every state git knows."""
    git(root, "init", "-q", "-b", "main")
    identify(root)
    (root / ".gitignore").write_text("*.ignored\n")
    for name in ("kept.txt", "staged.txt", "edited.txt", "removed.txt", "renamed.txt", "stashed.txt"):
        (root / name).write_text(f"{name}\n" * 5)
    commit_all(root, "The user's own work")
    run(root, "new", "mine", *NORM, expect=0)
    (root / "stashed.txt").write_text("stashed\n")
    git(root, "stash", "-q")
    (root / "staged.txt").write_text("staged\n")
    (root / "intended.txt").write_text("intended\n")
    git(root, "add", "staged.txt")
    git(root, "add", "--intent-to-add", "intended.txt")
    git(root, "rm", "-q", "removed.txt")
    git(root, "mv", "renamed.txt", "moved.txt")
    (root / "staged.txt").write_text("staged, then edited\n")
    (root / "edited.txt").write_text("edited\n")
    (root / "untracked.txt").write_text("untracked\n")
    (root / "cache.ignored").write_text("ignored\n")
    return root


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


@pytest.fixture(scope="module")
def judged(tmp_path_factory: pytest.TempPathFactory) -> Judged:
    repository = messy(tmp_path_factory.mktemp("user"))
    contest = repository / "mine"
    before, start = users_state(repository), git(repository, "rev-parse", "HEAD").strip()
    naive = (contest / "kernel.py").read_text()
    baseline = ratchet(contest, "experiment: baseline").stdout
    assert (contest / "kernel.py").read_text() == naive

    won = ratchet(contest, "experiment: BR 16 -> 64", "--set", "BR=64", "--expect", "40%").stdout
    faster = (contest / "kernel.py").read_text()
    assert faster == naive.replace("BR = 16", "BR = 64")

    rejected = ratchet(contest, LOSER, "--set", "BR=32", expect=1).stdout
    assert (contest / "kernel.py").read_text() == faster
    return Judged(repository=repository, start=start, before=before, naive=naive, words=(baseline, won, rejected))


@pytest.fixture
def repository(judged: Judged, tmp_path: Path) -> Path:
    return copied(judged.repository, tmp_path / "user")


@pytest.fixture
def contest(repository: Path) -> Path:
    return repository / "mine"


def test_a_slower_kernel_is_rejected_before_the_full_shape_and_never_counts_as_checked(contest: Path) -> None:
    def shown(*arguments: str) -> dict[str, Any]:
        document: dict[str, Any] = json.loads(ratchet(contest, *arguments, "--json").stdout)["attempt"]
        return document

    rejected = shown("show", "3")
    run, missing = len(rejected["evidence"]["checks"]), len(rejected["evidence"]["unchecked"])
    assert run
    assert missing
    assert f"slower, so only {run} of {run + missing} checks were run" in rejected["verdict"]["reasons"][-1]
    # The winner, and the first attempt, got all checks.
    for number in ("1", "2"):
        assert shown("show", number)["evidence"]["unchecked"] == []
    done = ratchet(contest, "checkout", "3")
    assert f"{missing} of its checks left out" in done.stdout + done.stderr


def test_the_loop(judged: Judged, repository: Path, contest: Path) -> None:
    baseline, _, rejected = judged.words
    assert re.search(
        r"^RESULT: score=[\d.]+ +latency=[\d.]+ms +util=[\d.]+% +tflops=[\d.]+ +\[simulated v5e\]$", baseline, re.M
    )
    assert re.search(r"^REGIME: [A-Z-]+-BOUND ", baseline, re.M)
    assert "reject" in rejected.lower()

    table = rows(contest)
    assert [(row["number"], row["kind"], row["outcome"]) for row in table] == [
        (1, "baseline", "accept"),
        (2, "experiment", "accept"),
        (3, "experiment", "reject"),
    ]
    assert table[1]["seconds"] < 0.99 * table[0]["seconds"]
    assert table[1]["expected_time_ratio"] == pytest.approx(0.6)
    assert f"experiment: {table[2]['hypothesis']}" == LOSER
    assert all(git(repository, "cat-file", "-t", row["commit"]).strip() == "commit" for row in table)

    commits = git(repository, "log", "--format=%s", f"{judged.start}..HEAD").splitlines()
    assert len(commits) == 2
    changed = set(git(repository, "diff", "--name-only", judged.start, "HEAD").split())
    assert changed == {"mine/kernel.py", "mine/experiments/0001-baseline.json", "mine/experiments/0002-br-16-64.json"}
    assert users_state(judged.repository) == judged.before


def test_any_attempt_is_shown_and_checked_out(judged: Judged, contest: Path) -> None:
    faster = (contest / "kernel.py").read_text()
    shown = ratchet(contest, "show", "3").stdout
    assert "+BR = 32" in shown
    newest = json.loads(ratchet(contest, "results", "--json").stdout)["rows"][-1]["row"]["number"]
    assert ratchet(contest, "show").stdout == ratchet(contest, "show", str(newest)).stdout
    ratchet(contest, "checkout", "3")
    assert (contest / "kernel.py").read_text() == judged.naive.replace("BR = 16", "BR = 32")
    ratchet(contest, "checkout", "2")
    assert (contest / "kernel.py").read_text() == faster


def test_an_identical_candidate_is_not_judged_twice(contest: Path) -> None:
    kernel = contest / "kernel.py"
    accepted = kernel.read_text()
    kernel.write_text(accepted.replace("BR = 64", "BR = 32  # once more"))
    refused = ratchet(contest, "experiment: small blocks, differently spelled", expect=4)
    assert "attempt 3" in refused.stderr
    assert "[identical-candidate]" in refused.stderr
    assert kernel.read_text() == accepted.replace("BR = 64", "BR = 32  # once more")
    assert len(rows(contest)) == 3


def test_a_kernel_that_was_wrong_at_smaller_shapes_alone_is_judged_when_mended(
    judged_contest: Path, tmp_path: Path
) -> None:
    contest = copied(judged_contest, tmp_path / "contest")
    kernel = contest / "kernel.py"
    right = kernel.read_text().replace("BR = 16", "BR = 8")
    added = "weights = w.reshape(1, columns)"
    assert right.count(added) == 1
    kernel.write_text(right.replace(added, f"{added} if rows == 512 else 2 * w.reshape(1, columns)"))
    assert "wrong-result" in ratchet(contest, "experiment: wrong elsewhere", expect=1).stdout
    ratchet(contest, "checkout", "2")
    kernel.write_text(f"{kernel.read_text()}# No other code, and no other draw of the inputs.\n")
    assert "[identical-candidate]" in ratchet(contest, "experiment: a comment", expect=4).stderr
    kernel.write_text(right)
    assert "REJECTED" in ratchet(contest, "experiment: right everywhere", expect=1).stdout


def test_an_edit_that_compiles_to_the_same_schedule_takes_no_number(contest: Path) -> None:
    kernel = contest / "kernel.py"
    accepted, before = kernel.read_text(), rows(contest)
    turned = accepted.replace("(h * scale * w_ref", "(scale * h * w_ref")
    assert turned != accepted
    kernel.write_text(turned)
    refused = ratchet(contest, "experiment: factors the other way round", expect=4)
    assert "the same schedule as attempt 2" in refused.stderr
    assert "[same-schedule]" in refused.stderr
    assert kernel.read_text() == turned
    assert rows(contest) == before
    kernel.write_text(accepted)
    (remembered,) = json.loads(ratchet(contest, "next", "--json").stdout)["refused"]
    assert (remembered["hypothesis"], remembered["kind"]) == ("factors the other way round", "same-schedule")
    number = next(at for at, line in enumerate(accepted.splitlines(), 1) if "(h * scale * w_ref" in line)
    assert remembered["lines"] == [f"kernel.py:{number}"]


def test_an_unchanged_kernel_is_evaluated_but_not_recorded(contest: Path) -> None:
    done = json.loads(ratchet(contest, "experiment: nothing at all", "--json").stdout)
    assert (done["recorded"], done["noted"], done["attempt"]["number"], done["row"]) == (False, False, None, None)
    assert "judged again, and the result is not recorded" in " ".join(done["messages"])
    assert len(rows(contest)) == 3


def test_a_wrong_kernel_fails_and_is_recorded(contest: Path) -> None:
    kernel = contest / "kernel.py"
    accepted = kernel.read_text()
    wrong = accepted.replace("jnp.mean(h * h,", "jnp.mean(jnp.abs(h),", 1)
    assert wrong != accepted
    kernel.write_text(wrong)
    done = json.loads(ratchet(contest, "experiment: drop the square", "--json", expect=1).stdout)
    assert (done["recorded"], done["attempt"]["number"]) == (True, 4)
    assert done["row"]["commit"] == rows(contest)[-1]["commit"] != ""
    assert any("names no observation" in sentence for sentence in done["messages"])
    assert done["attempt"]["verdict"]["outcome"] == "failed"
    assert done["attempt"]["verdict"]["failure"]["kind"] == "wrong-result"
    assert kernel.read_text() == accepted


def test_a_plain_clone_shows_everything_committed_and_goes_on(repository: Path, contest: Path, tmp_path: Path) -> None:
    ratchet(contest, "undo")
    clone = tmp_path / "clone"
    subprocess.run(["git", "clone", "-q", f"file://{repository}", str(clone)], check=True, timeout=60)
    identify(clone)
    assert [row["number"] for row in rows(clone / "mine")] == [1, 2, 3, 4]
    ratchet(clone / "mine", "experiment: smaller blocks", "--set", "BR=8", expect=1)
    assert rows(clone / "mine")[-1]["number"] == 5


def test_undo_takes_the_last_accept_back(repository: Path, contest: Path) -> None:
    before = (contest / "kernel.py").read_text()
    ratchet(contest, "undo")
    after = (contest / "kernel.py").read_text()
    assert "BR = 64" in before
    assert "BR = 16" in after
    assert git(repository, "show", "HEAD:mine/kernel.py") == after
    assert rows(contest)[-1]["kind"] == "undo"
    assert "clean" in ratchet(contest, "fsck").stdout


def test_every_attempt_leaves_a_small_capture_of_its_own_simulated_run(contest: Path) -> None:
    runs = contest / "profile_data" / "plugins" / "profile"
    seconds = {entry["number"]: entry["seconds"] for entry in rows(contest)}
    for number in (1, 2, 3):
        (file,) = (runs / f"{number:04d}-simulated-v5e").iterdir()
        assert file.stat().st_size < 300_000
        units = json.loads(ratchet(contest, "xprof", "utilization", str(number), "--json").stdout)["tables"][0]["rows"]
        assert units[0]["seconds"] == pytest.approx(seconds[number], rel=1e-6)
        assert 0 < units[0]["hbm_fraction"] < 1
    tables = json.loads(ratchet(contest, "xprof", "gaps", "3:simulated", "--json").stdout)["tables"]
    (beside,) = next(table["rows"] for table in tables if table["name"] == "transfers_beside_compute")
    assert 0 < beside["waited_cycles"] < beside["flight_cycles"]
    assert beside["beside_share"] == pytest.approx(1 - beside["waited_cycles"] / beside["flight_cycles"])
    # A capture of another kind does not stand in for a measured one.
    assert "no measured capture" in ratchet(contest, "xprof", "gaps", "3:measured", expect=4).stderr
    assert "attempt 9 has no capture" in ratchet(contest, "xprof", "gaps", "9", expect=4).stderr
