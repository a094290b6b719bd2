"""The change that made a kernel worse, found in planted histories and in this repository's own ledgers."""

import json
import shlex
from dataclasses import replace
from math import ceil, log2
from pathlib import Path
from typing import Any

import pytest
from evidence_examples import KEY, evidence
from ledger_fixtures import commit_all, run_attempt
from loop_fixtures import committed_contest, copy_of, git, into_repository
from refusals import refused
from screen_examples import taken_apart

from harness import contest as contests
from harness.errors import RatchetError, UsageError
from harness.ledger import Ledger, history
from harness.ledger import lock as locking
from harness.loop import bisect, scaffold
from harness.records import Key, Verdict
from harness.shell.main import main

pytestmark = pytest.mark.long

RMSNORM = Path(__file__).parents[2] / "examples" / "rmsnorm"
COMMITS = 9


def committed_steps(top: Path, guilty: int = 4, old: str = "BK = 512", new: str = "BK = 128") -> Path:
    """A contest with a commit for each step; one of them changes more than a comment."""
    folder = top / "matmul"
    scaffold.scaffold(folder, "matmul", (("M", "512"), ("N", "512"), ("K", "512")))
    into_repository(top, "base")
    for step in range(1, COMMITS + 1):
        text = (folder / "kernel.py").read_text(encoding="utf-8")
        if step == guilty:
            assert old in text
            text = text.replace(old, new, 1)
        (folder / "kernel.py").write_text(f"{text}# step {step}\n", encoding="utf-8")
        (top / "notes.md").write_text(f"step {step}")
        commit_all(top, f"step {step}")
        # A commit that does not change the kernel.
        git(top, "commit", "--quiet", "--allow-empty", "-m", f"after step {step}")
    return folder


def commit_line(folder: Path, line: str) -> None:
    """Commits kernel.py with one more line."""
    with (folder / "kernel.py").open("a", encoding="utf-8") as kernel:
        kernel.write(f"{line}\n")
    git(folder, "commit", "--quiet", "--all", "-m", line)


@pytest.fixture
def committed(tmp_path: Path) -> Path:
    return copy_of(committed_steps, tmp_path / "top")


def test_only_commits_that_change_the_candidate_are_steps(committed: Path) -> None:
    ledger = Ledger.open(committed)
    steps = bisect.commits(ledger, "HEAD~18", "HEAD")
    assert [step.title for step in steps] == ["base", *(f"step {step}" for step in range(1, COMMITS + 1))]
    with pytest.raises(UsageError, match="ancestor"):
        bisect.commits(ledger, "HEAD", "HEAD~3")
    with pytest.raises(UsageError, match="'v9'"):
        bisect.commits(ledger, "v9", "HEAD")


def test_commits_that_do_not_contain_the_first_are_no_steps(committed: Path) -> None:
    git(committed, "switch", "--quiet", "--create", "side", "main~18")
    for step in range(2):
        commit_line(committed, f"# side {step}")
    git(committed, "switch", "--quiet", "main")
    git(committed, "merge", "--quiet", "-m", "merge", "-X", "theirs", "side")
    commit_line(committed, "# last")
    ledger = Ledger.open(committed)
    for first, title in (("side", "# side 1"), ("side~1", "# side 0")):
        assert [step.title for step in bisect.commits(ledger, first, "main")] == [title, "merge", "# last"]


def test_an_end_without_a_kernel_of_the_contest_is_refused_and_the_nearest_with_one_is_named(committed: Path) -> None:
    top = committed.parent
    git(top, "mv", "matmul", "moved")
    git(top, "commit", "--quiet", "-m", "move the contest")
    moved = git(top, "rev-parse", "HEAD").strip()[:10]
    (top / "moved" / "kernel.py").unlink()
    git(top, "commit", "--quiet", "--all", "-m", "lose it")
    ledger = Ledger.open(top / "moved")
    for first, last, option in (("HEAD~5", "HEAD~1", "--from"), ("HEAD~1", "HEAD", "--to")):
        with refused("nothing-to-find", rf"{option} to have moved/kernel\.py, got HEAD.* one is {moved}$"):
            bisect.commits(ledger, first, last)


def test_a_commit_between_whose_text_no_attempt_could_record_is_no_step(committed: Path) -> None:
    text = (committed / "kernel.py").read_text(encoding="utf-8")
    commit_line(committed, "# ---- beside kernel.py: other.py ----")
    (committed / "kernel.py").write_text(text, encoding="utf-8")
    commit_line(committed, "# last")
    ledger = Ledger.open(committed)
    assert [step.title for step in bisect.commits(ledger, "HEAD~3", "HEAD")] == ["step 9", "# last"]
    expected = r"--to to have matmul/kernel\.py, got HEAD~1, which has none that can be judged"
    with pytest.raises(RatchetError, match=expected):
        bisect.commits(ledger, "HEAD~3", "HEAD~1")


def test_between_two_attempts_are_those_that_became_champion() -> None:
    ledger = Ledger.open(RMSNORM)
    assert [step.name for step in bisect.attempts(ledger, 1, 5)] == [f"attempt {number}" for number in (1, 2, 3, 4, 5)]
    # 5 and 6 were rejected, 7 to 15 have the champion's text.
    assert [step.name for step in bisect.attempts(ledger, 2, 15)] == ["attempt 2", "attempt 3", "attempt 4"]
    with pytest.raises(RatchetError, match="got 99: there is no attempt 99"):
        bisect.attempts(ledger, 1, 99)
    with pytest.raises(UsageError, match="before"):
        bisect.attempts(ledger, 4, 3)


def test_a_number_of_many_digits_is_no_attempt(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["bisect", "-C", str(RMSNORM), "--from", "9" * 5000, "--to", "3"]) == 2
    assert "[unknown-commit]" in capsys.readouterr().err


def recorded(top: Path, problem_key: Key | None = None) -> Path:
    """A contest with three attempts under the present key (or that one); the third took longer than the second."""
    folder = committed_contest(top / "mine")
    ledger, contest = Ledger.open(folder), contests.load(folder)
    key = problem_key or contest.key("simulated")
    for number, latency in enumerate((2e-3, 1e-3, 3e-3), 1):
        ledger.place.kernel_path.write_text(f"{ledger.place.kernel_path.read_text()}# {number}\n")
        simulated = replace(taken_apart(), latency=evidence(latency).latency)
        run_attempt(ledger, key=key, evidence=simulated, verdict=Verdict(outcome="accept", reasons=("less",)))
    return folder


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return copy_of(recorded, tmp_path / "top")


def test_an_attempt_and_a_commit_are_no_two_ends(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["bisect", "-C", str(folder), "--from", "1", "--to", "HEAD"]) == 2
    assert "which is not a commit here; name two attempts, or two commits [unknown-commit]" in capsys.readouterr().err


def test_one_at_a_time(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Two commands that judge the same texts in the same folders would see each other's failures."""
    with locking.hold(folder / "profile_data" / "bench.lock", "bisect"):
        assert main(["bisect", "-C", str(folder), "--from", "1", "--to", "3"]) != 0
    assert "[busy]" in capsys.readouterr().err


def test_what_attempts_recorded_under_the_present_key_is_not_judged_again(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["bisect", "-C", str(folder), "--from", "1", "--to", "3", "--json"]) == 0
    printed = capsys.readouterr()
    document = json.loads(printed.out)
    assert document["suspects"] == ["attempt 3"]
    assert [kernel["seconds"] for kernel in document["judged"]] == [2e-3, 3e-3, 1e-3]
    assert "recorded under the present key, so not judged again: attempt 1, attempt 3, attempt 2" in printed.err
    assert not (folder / "profile_data" / "bisect").exists()
    # The same text, named by its commit, is not judged again either.
    assert main(["bisect", "-C", str(folder), "--from", "HEAD~1", "--to", "HEAD", "--json"]) == 0
    assert "(attempt 2)" in capsys.readouterr().err


def test_what_was_taken_back_since_is_not_what_is_worse_now(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    # Attempts 1 and 3 are slow; attempt 2 is fast, and its text stood again between them.
    ledger = Ledger.open(folder)
    for number, name in ((2, "good"), (1, "slow"), (2, "again"), (3, "slow again")):
        ledger.place.kernel_path.write_bytes(history.candidate(ledger.place, number).text)
        git(folder, "commit", "--quiet", "--all", "--allow-empty", "-m", name)
    assert main(["bisect", "-C", str(folder), "--from", "HEAD~3", "--to", "HEAD", "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert [kernel["title"] for kernel in document["judged"]] == ["good", "slow again"]
    assert document["suspects"] == [document["judged"][1]["name"]]


def test_what_another_branch_accepted_is_no_step_of_this_one(folder: Path) -> None:
    git(folder, "switch", "--quiet", "--create", "other", "HEAD~1")
    ledger = Ledger.open(folder)
    ledger.place.kernel_path.write_text(f"{ledger.place.kernel_path.read_text()}# other\n")
    run_attempt(ledger)
    assert [step.name for step in bisect.attempts(ledger, 1, 4)] == ["attempt 1", "attempt 2", "attempt 4"]


def test_records_of_another_key_or_without_the_figure_answer_nothing(tmp_path: Path) -> None:
    folder = recorded(tmp_path, KEY)
    ledger = Ledger.open(folder)
    records, candidate = bisect.Records(ledger, contests.load(folder)), history.candidate(ledger.place, 1)
    assert records.evidence("it", candidate, lambda _: True) is None
    simulated = taken_apart()
    assert bisect._answers("time", simulated, with_lines=True)
    assert not bisect._answers("time", replace(simulated, simulation=None), with_lines=True)
    assert not bisect._answers("spills", replace(simulated, simulation=None), with_lines=False)
    assert not bisect._answers("correctness", replace(simulated, unchecked=("far-values",)), with_lines=False)


@pytest.mark.parametrize(
    ("words", "kind", "message"),
    [
        ("bisect --from 1 --to 2", "nothing-to-find", "attempt 2 is no worse than attempt 1"),
        ("bisect --from 1 --to 99", "unknown-attempt", "1 to 3, got 99"),
        ("bisect --from HEAD~1 --to HEAD", "nothing-to-find", "two kernels or more from --from to --to"),
        ("ablate 999", "unknown-attempt", "1 to 3, got 999: there is no attempt 999; ./ratchet.sh -C {folder} results"),
        ("ablate 1", "not-accepted", "./ratchet.sh -C {folder} results"),
    ],
)
def test_refusals_say_what_was_expected_and_what_to_do(
    folder: Path, capsys: pytest.CaptureFixture[str], words: str, kind: str, message: str
) -> None:
    git(folder, "commit", "--quiet", "--allow-empty", "-m", "nothing")
    assert main(["-C", str(folder), *words.split()]) == 4
    refusal = capsys.readouterr().err
    assert f"[{kind}]" in refusal
    assert "expected" in refusal
    assert message.format(folder=shlex.quote(str(folder))) in refusal


def bisected(folder: Path, capsys: pytest.CaptureFixture[str], *words: str) -> dict[str, Any]:
    assert main(["bisect", "-C", str(folder), "--from", "HEAD~18", "--to", "HEAD", "--json", *words]) == 0
    document: dict[str, Any] = json.loads(capsys.readouterr().out)
    return document


@pytest.mark.slow
@pytest.mark.parametrize("guilty", [1, 6, 9])
def test_a_slower_commit_is_found(guilty: int, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    # 2.1 % more simulated time.
    document = bisected(committed_steps(tmp_path, guilty), capsys)
    (suspect,) = document["suspects"]
    (named,) = [kernel for kernel in document["judged"] if kernel["name"] == suspect]
    assert named["title"] == f"step {guilty}"
    assert len(document["judged"]) <= 2 + ceil(log2(COMMITS))
    assert "-BK = 512\n+BK = 128\n" in document["comparison"]["diff"]


@pytest.mark.slow
def test_a_wrong_commit_is_found_among_some_that_do_not_compile(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    right = "preferred_element_type=jnp.float32)"
    folder = committed_steps(tmp_path, 5, right, f"{right} * 1.01")
    document = bisected(folder, capsys, "--metric", "correctness")
    (suspect,) = document["suspects"]
    assert next(kernel["title"] for kernel in document["judged"] if kernel["name"] == suspect) == "step 5"
    assert len(document["judged"]) <= 2 + ceil(log2(COMMITS))


@pytest.mark.slow
def test_what_cannot_be_judged_is_passed_over_and_no_worse_is_said_to_be(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = committed_steps(tmp_path, new="BK = 512")
    assert main(["bisect", "-C", str(folder), "--from", "HEAD~18", "--to", "HEAD", "--quiet"]) == 4
    assert "is no worse than" in capsys.readouterr().err
    # The commit in the middle does not even trace.
    text = (folder / "kernel.py").read_text(encoding="utf-8")
    commit_line(folder, "1 / 0")
    (folder / "kernel.py").write_text(text.replace("BK = 512", "BK = 128"), encoding="utf-8")
    commit_line(folder, "# last")
    assert main(["bisect", "-C", str(folder), "--from", "HEAD~2", "--to", "HEAD", "--json", "--quiet"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert len(document["suspects"]) == 2
    assert document["comparison"] is None
