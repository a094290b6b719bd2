"""Files that may not change during an attempt are put back, a person's own changes are left; both are named."""

import os
import subprocess
from pathlib import Path

import pytest
from ledger_fixtures import commit_all
from loop_fixtures import committed_contest, copy_of, git
from narrowing import present
from planted import naive
from refusals import refused

from harness import contest as contests
from harness.ledger import Ledger
from harness.ledger.git import open_repository
from harness.loop import attempt as ratchet
from harness.loop import guard, screening
from harness.loop.bench import Bench
from harness.loop.guard import Tampering, Watch
from harness.loop.options import Options
from harness.loop.search import WholeGrid
from harness.loop.sweep import Screening, sweep
from harness.records import Policy
from harness.sandbox import confinement

pytestmark = pytest.mark.long

LOG = "refs/ratchet/root/log"


def with_an_attempt(folder: Path) -> Path:
    committed_contest(folder)
    (folder / "experiments").mkdir()
    (folder / "experiments" / "0001-baseline.json").write_text("{}\n")
    git(folder, "update-ref", LOG, "HEAD")
    return folder


@pytest.fixture
def contest(tmp_path: Path) -> Path:
    return copy_of(with_an_attempt, tmp_path / "contest")


def watched(folder: Path) -> Watch:
    return guard.watch(open_repository(folder), (folder / "prepare.py",), ((folder / "experiments", "*.json"),), LOG)


def put_right(folder: Path, before: Watch, *, were_confined: bool = False) -> Tampering:
    return guard.put_right(before, folder / ".git" / "ratchet" / "set-aside", were_confined=were_confined)


def commit(folder: Path, message: str) -> str:
    commit_all(folder, message)
    return git(folder, "rev-parse", "HEAD").strip()


def test_where_nothing_was_touched_nothing_is_said(contest: Path) -> None:
    before = watched(contest)
    (contest / "kernel.py").write_text("edited = True\n")
    (contest / "notes.txt").write_text("a person's own\n")
    assert put_right(contest, before).failure() is None
    assert (contest / "kernel.py").read_text() == "edited = True\n"


@pytest.mark.parametrize("were_confined", [True, False])
def test_an_edited_judge_and_ledger_are_put_back_and_what_was_there_is_kept(contest: Path, were_confined: bool) -> None:
    judge, record = contest / "prepare.py", contest / "experiments" / "0001-baseline.json"
    before, honest = watched(contest), judge.read_bytes()
    judge.write_text("SEQUENCE = 1\n")
    record.unlink()
    (contest / "experiments" / "0009-forged.json").write_text("forged")
    changes = put_right(contest, before, were_confined=were_confined)
    assert judge.read_bytes() == honest
    assert record.read_text() == "{}\n"
    assert not (contest / "experiments" / "0009-forged.json").exists()
    failure = present(changes.failure())
    assert failure.kind == "tampered"
    for name in ("prepare.py was changed", "0001-baseline.json was removed", "0009-forged.json was added"):
        assert name in failure.detail
    kept = {path.read_text() for path in (contest / ".git" / "ratchet" / "set-aside").iterdir()}
    assert kept == {"SEQUENCE = 1\n", "forged"}
    assert put_right(contest, before).failure() is None


def test_a_packed_ledger_is_put_back(contest: Path) -> None:
    packed = contest / "attempts.jsonl"
    packed.write_text("honest")
    before = guard.begin(Ledger.open(contest), contests.load(contest))
    packed.write_text("forged")
    assert "attempts.jsonl was changed" in put_right(contest, before).sentences[0]
    assert packed.read_text() == "honest"


def test_what_makes_git_run_programs_is_put_back_before_git_is_asked(contest: Path) -> None:
    before = watched(contest)
    proof = contest / "it-ran"
    git(contest, "config", "core.fsmonitor", f"touch {proof}; false")
    hook = contest / ".git" / "hooks" / "reference-transaction"
    hook.write_text(f"#!/bin/sh\ntouch {proof}\n")
    hook.chmod(0o755)
    git(contest, "update-ref", "--no-deref", "refs/heads/warning", "HEAD")
    assert proof.exists(), "the hook that the candidate planted does not work: this test shows nothing"
    git(contest, "update-ref", "-d", "refs/heads/warning")
    proof.unlink()
    changes = put_right(contest, before)
    assert not hook.exists()
    assert "fsmonitor" not in (contest / ".git" / "config").read_text()
    assert not proof.exists()
    assert len(changes.undone) == 2


@pytest.mark.parametrize(
    ("command", "words"),
    [
        (("git", "update-ref", LOG, "HEAD^{tree}"), "named no commit"),
        (("git", "update-ref", "-d", LOG), "was moved from"),
        (("sh", "-c", f"echo junk > .git/{LOG}"), "named no commit"),
    ],
)
def test_the_log_is_moved_back(contest: Path, command: tuple[str, ...], words: str) -> None:
    tip = git(contest, "rev-parse", LOG)
    before = watched(contest)
    subprocess.run(command, cwd=contest, check=True)
    changes = put_right(contest, before, were_confined=True)
    assert git(contest, "rev-parse", LOG) == tip
    assert f"{LOG} {words}" in changes.undone[0]


def test_a_log_that_was_not_there_is_taken_away_again(contest: Path) -> None:
    git(contest, "update-ref", "-d", LOG)
    before = watched(contest)
    git(contest, "update-ref", LOG, "HEAD")
    assert put_right(contest, before).undone
    assert git(contest, "for-each-ref", LOG) == ""


def test_a_moved_branch_stays_and_fails_the_attempt_only_if_a_child_can_have_done_it(contest: Path) -> None:
    before = watched(contest)
    tip = commit(contest, "An ordinary commit")
    assert put_right(contest, before, were_confined=True).failure() is None
    failure = present(put_right(contest, before, were_confined=False).failure())
    assert f"git update-ref refs/heads/main {before.places['refs/heads/main']}" in failure.detail
    assert git(contest, "rev-parse", "main").strip() == tip


def test_head_and_the_index_are_named_too(contest: Path) -> None:
    before = watched(contest)
    git(contest, "add", "experiments")
    assert "the index was changed" in put_right(contest, before).standing[0]
    git(contest, "switch", "-qc", "elsewhere")
    assert any("git symbolic-ref HEAD refs/heads/main" in sentence for sentence in put_right(contest, before).standing)


def test_what_a_commit_brought_meanwhile_is_not_undone(contest: Path) -> None:
    before = watched(contest)
    (contest / "experiments" / "0002-pulled.json").write_text("{}\n")
    commit(contest, "A pulled attempt")
    assert put_right(contest, before, were_confined=True).failure() is None
    (contest / "prepare.py").write_text("SEQUENCE = 2\n")
    commit(contest, "Another judge")
    changes = put_right(contest, before, were_confined=True)
    assert changes.undone == ()
    assert "prepare.py was changed by a commit" in changes.standing[0]
    assert (contest / "prepare.py").read_text() == "SEQUENCE = 2\n"


HOSTILE = """import math
import os
def attempt(name, text):
    try:
        with open(os.path.join({top!r}, name), "a") as file:
            file.write(text)
    except OSError as error:
        print("refused", name, error.strerror)
attempt("prepare.py", "SEQUENCE = 1")
attempt("experiments/0001-baseline.json", "forged")
attempt("experiments/0009-forged.json", "forged")
attempt(".git/refs/heads/planted", {commit!r})
attempt(".git/" + {log!r}, "forged")
attempt(".git/config", "[core] pager = false")
os._exit(0)
"""


def hostile_contest(folder: Path) -> Path:
    """A contest whose kernel.py attacks the judge, the ledger and git when it is imported."""
    pytest.importorskip("libtpu", reason="the TPU compiler exists for x86-64 Linux only")
    committed_contest(folder)
    (folder / "experiments").mkdir()
    (folder / ".git" / "refs" / "ratchet" / "root").mkdir(parents=True)
    hostile = HOSTILE.format(top=str(folder), commit=git(folder, "rev-parse", "HEAD"), log=LOG)
    (folder / "kernel.py").write_text(naive(("import math\n", hostile)))
    return folder


def test_a_hostile_kernel_in_a_sweep(tmp_path: Path) -> None:
    """Screening asks less of a kernel than an attempt does, and is guarded in the same way."""
    folder = hostile_contest(tmp_path / "contest")
    before = {name: (folder / name).read_bytes() for name in ("prepare.py", ".git/config", "kernel.py")}
    sentences: list[str] = []
    blocks = (("BQ", ("128", "256")),)
    wanted = Screening(parameters=blocks, begin=lambda: WholeGrid(blocks), places=screening.local(1))
    bench = Bench(contest=contests.load(folder), policy=Policy(is_confined=False))
    with refused("tampered", "while settings were screened"):
        sweep(bench, "hostile", wanted, Options(), sentences.append)
    assert any("prepare.py" in sentence for sentence in sentences)
    assert {name: (folder / name).read_bytes() for name in before} == before
    assert os.listdir(folder / "experiments") == []
    assert git(folder, "for-each-ref", "refs/ratchet") == ""


@pytest.mark.parametrize("is_confined", [True, False])
def test_a_hostile_kernel_in_a_whole_attempt(tmp_path: Path, is_confined: bool) -> None:
    """The attack fails, the record names it, and all is as it was; confined, and unconfined as on an old Linux."""
    if is_confined and confinement.landlock_version() is None:
        pytest.skip("this kernel has no Landlock")
    folder = hostile_contest(tmp_path / "contest")
    commit, kept = git(folder, "rev-parse", "HEAD"), ("prepare.py", ".git/config")
    before = {name: (folder / name).read_bytes() for name in kept}
    bench = Bench(contest=contests.load(folder), policy=Policy(is_confined=is_confined))
    judged = ratchet.attempt(bench, "hostile", Options(), lambda sentence: None)
    failure = present(judged.attempt.verdict.failure)
    assert (failure.kind, judged.attempt.number) == ("crash" if is_confined else "tampered", 1)
    for name in (*kept, "0009-forged.json"):
        assert name in failure.detail
    assert {name: (folder / name).read_bytes() for name in kept} == before
    assert os.listdir(folder / "experiments") == ["0001-hostile.json"]
    assert git(folder, "rev-parse", "HEAD") == commit
    assert len(git(folder, "log", "--format=%H", LOG).split()) == 1
    isolation = present(judged.attempt.evidence.isolation)
    assert (isolation.landlock is not None) == is_confined


def test_a_forged_note_is_taken_away_and_one_of_the_ratchet_itself_stays(contest: Path) -> None:
    ledger = Ledger.open(contest)
    notes = ledger.place.experiments_directory / "notes.jsonl"
    before = guard.begin(ledger, contests.load(contest))
    notes.write_text("forged\n")
    changes = guard.end(ledger, before, "0002", is_confined=True)
    assert not notes.exists()
    assert "notes.jsonl" in changes.sentences[0]
    notes.write_text("of the ratchet itself\n")
    before = guard.begin(ledger, contests.load(contest))
    notes.write_text("of the ratchet itself\nand one more\n")
    guard.accept_notes(ledger, before)
    assert guard.end(ledger, before, "0002", is_confined=True).sentences == ()
    assert notes.read_text().endswith("and one more\n")
