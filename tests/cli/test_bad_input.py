"""Bad input gets a clear sentence with a stable kind, and loses nothing."""

import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from io import RawIOBase
from pathlib import Path

import pytest
from command_line import Shell
from loop_fixtures import PROJECT, committed_contest, git, ratchet

from harness import contest as contests
from harness.ledger import Ledger
from harness.loop.preconditions import judge_put_back

pytestmark = pytest.mark.long


def refused(done: subprocess.CompletedProcess[str], kind: str, code: int, *words: str) -> None:
    assert done.returncode == code, done.stderr
    assert f"[{kind}]" in done.stderr
    for word in words:
        assert word in done.stderr
    assert "Traceback" not in done.stderr


@pytest.fixture
def contest(tmp_path: Path) -> Iterator[Path]:
    """A committed contest, small enough to be judged quickly."""
    folder = committed_contest(tmp_path / "contest")
    kernel = (folder / "kernel.py").read_bytes()
    yield folder
    if folder.exists():
        assert (folder / "kernel.py").read_bytes() == kernel, "kernel.py was not left as it was"


@pytest.mark.parametrize(
    ("words", "kind", "code", "named"),
    [
        ("", "no-message", 2, ("experiment:",)),
        ("'experiment:  '", "no-message", 2, ("hypothesis",)),
        ("resluts", "unknown-verb", 2, ("did you mean `results`?",)),
        ("'expriment: faster'", "unknown-verb", 2, ("experiment:",)),
        ("results --limt 3", "usage", 2, ("--limt",)),
        ("'experiment: x' --set BQ", "bad-setting", 2, ("NAME=VALUE",)),
        ("'experiment: x' --expect fast", "bad-expectation", 2, ("5%",)),
        ("'experiment: x' --set BLOCK=3", "unknown-constant", 4, ("BQ",)),
        ("judge --set BLOCK=3", "unknown-constant", 4, ("BQ",)),
        ("'experiment: x' --chip v9", "unknown-chip", 2, ("v5e", "v6e")),
        ("show", "no-attempts", 4, ("experiment: baseline",)),
        ("show 7", "unknown-attempt", 4, ("7",)),
        ("checkout 7", "unknown-attempt", 4, ("7",)),
        ("undo", "nothing-to-undo", 4, ()),
        ("new third --like attenton", "unknown-template", 4, ("attention",)),
    ],
)
def test_words_that_cannot_be_obeyed(contest: Path, words: str, kind: str, code: int, named: tuple[str, ...]) -> None:
    refused(ratchet(contest, *shlex.split(words)), kind, code, *named)


def test_text_for_a_number_costs_no_attempt(contest: Path) -> None:
    for words in (("experiment: x", "--set", "BQ=abc"), ("sweep", "experiment: x", "--set", "BQ=64,abc")):
        refused(ratchet(contest, *words), "bad-setting", 2, "expected a number, because BQ = ", "got 'abc'")
    assert "no attempts yet" in ratchet(contest, "results").stdout


@pytest.mark.parametrize("verb", ["status", "next", "results", "show", "report", "fsck", "lines", "checkout 1"])
def test_a_folder_that_does_not_exist_is_named_as_it_was_given(verb: str, tmp_path: Path, shell: Shell) -> None:
    missing = tmp_path / "missing" / "folder"
    sentence = f"expected a contest's folder, got {missing}, which does not exist [no-contest]"
    assert sentence in shell.complaint("-C", missing, *verb.split(), code=4)


def test_not_a_git_repository(contest: Path) -> None:
    shutil.rmtree(contest / ".git")
    refused(ratchet(contest, "experiment: x"), "not-a-repository", 4, "git init")


def test_no_commit_yet(contest: Path) -> None:
    shutil.rmtree(contest / ".git")
    git(contest, "init", "-q")
    refused(ratchet(contest, "experiment: x"), "no-commit", 4, "commit")


def test_detached_head(contest: Path) -> None:
    git(contest, "checkout", "-q", "--detach")
    refused(ratchet(contest, "experiment: x"), "detached-head", 4, "switch BRANCH")


def test_what_costs_little_to_find_is_refused_before_the_problem_is_evaluated(contest: Path) -> None:
    """The problem of this prepare.py cannot be evaluated, so whatever comes after that would be `bad-prepare`."""
    prepare = contest / "prepare.py"
    before = prepare.read_text()
    prepare.write_text("CHIP = 5\n")
    refused(ratchet(contest, "experiment: x"), "dirty-judge", 4, "prepare.py")
    refused(ratchet(contest, "sweep", "experiment: x", "--set", "BQ=1,2"), "dirty-judge", 4, "prepare.py")
    git(contest, "commit", "-qam", "A problem that cannot be evaluated")
    refused(ratchet(contest, "experiment: x", "--set", "NONE=1"), "unknown-constant", 4, "NONE")
    refused(ratchet(contest, "sweep", "experiment: x", "--set", "NONE=1,2"), "unknown-constant", 4, "NONE")
    with Ledger.open(contest).lock():
        refused(ratchet(contest, "experiment: x"), "busy", 4)
    refused(ratchet(contest, "experiment: x"), "bad-prepare", 4)
    prepare.write_text(before)


def test_a_dirty_judge_is_named(contest: Path) -> None:
    with (contest / "prepare.py").open("a") as prepare:
        prepare.write("# easier\n")
    refused(ratchet(contest, "experiment: x"), "dirty-judge", 4, "prepare.py")
    git(contest, "add", "prepare.py")
    done = ratchet(contest, "experiment: x")
    refused(done, "dirty-judge", 4, "prepare.py")
    (command,) = re.findall(r"\((git -C [^)]*)\)", done.stderr)
    # `judge` names the same command if the champion fails under this prepare.py.
    assert judge_put_back(contests.load(contest)) == command
    # It works from any folder, and for a file that is staged.
    subprocess.run(shlex.split(command), cwd="/", check=True)
    assert "easier" not in (contest / "prepare.py").read_text()
    assert judge_put_back(contests.load(contest)) == ""


def test_a_prepare_that_does_not_load(contest: Path) -> None:
    (contest / "prepare.py").write_text("CHIP = 'v5e'\n")
    refused(ratchet(contest, "judge"), "bad-prepare", 4, "problem()")
    git(contest, "commit", "-qam", "A prepare.py without a problem")
    refused(ratchet(contest, "experiment: x"), "bad-prepare", 4, "problem()")


def test_identity_missing(contest: Path) -> None:
    git(contest, "config", "--unset", "user.name")
    git(contest, "config", "--unset", "user.email")
    nobody = {
        "HOME": str(contest),
        "GIT_CONFIG_GLOBAL": os.devnull,
        "GIT_CONFIG_SYSTEM": os.devnull,
        "GIT_CONFIG_COUNT": "1",
        "GIT_CONFIG_KEY_0": "user.useConfigOnly",
        "GIT_CONFIG_VALUE_0": "true",
    }
    done = ratchet(contest, "experiment: x", environment=nobody)
    refused(done, "identity", 4, "user.email")


def test_new_writes_over_nothing(contest: Path) -> None:
    (contest / "other").mkdir()
    (contest / "other" / "kernel.py").write_text("mine\n")
    refused(ratchet(contest, "new", "other"), "exists", 4, "kernel.py")
    assert (contest / "other" / "kernel.py").read_text() == "mine\n"
    assert not (contest / "other" / "prepare.py").exists()


def started(contest: Path) -> "subprocess.Popen[str]":
    """A real attempt, up to the moment when it says that it traces the kernel."""
    process = subprocess.Popen(
        [sys.executable, "-m", "harness", "experiment: slow", "--set", "BQ=256"],
        cwd=contest,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": PROJECT},
        start_new_session=True,
    )
    assert process.stderr is not None
    for line in process.stderr:
        if re.search(r"\btrace\b", line):
            return process
    raise AssertionError("the attempt ended before it began to trace")


def test_two_at_once_and_ctrl_c(contest: Path) -> None:
    pytest.importorskip("libtpu", reason="the TPU compiler exists for x86-64 Linux only")
    first = started(contest)
    try:
        refused(ratchet(contest, "experiment: second"), "busy", 4, str(first.pid))
    finally:
        first.send_signal(signal.SIGINT)
        _, errors = first.communicate(timeout=60)
    assert first.returncode == 130, errors
    assert "interrupted" in errors
    assert git(contest, "for-each-ref", "refs/ratchet").strip() == ""
    assert git(contest, "status", "--porcelain").strip() == ""


def test_kill_9_leaves_the_file_as_it_was(contest: Path) -> None:
    pytest.importorskip("libtpu", reason="the TPU compiler exists for x86-64 Linux only")
    kernel = (contest / "kernel.py").read_bytes()
    process = started(contest)
    process.kill()
    process.communicate(timeout=60)
    assert (contest / "kernel.py").read_bytes() != kernel, "the setting was written: the kill came in time"
    done = ratchet(contest, "status")
    assert done.returncode == 0, done.stderr
    assert (contest / "kernel.py").read_bytes() == kernel


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of 2 MiB, where the machine lets us mount one."""
    mount = tmp_path / "small"
    mount.mkdir()
    made = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=2m", "tmpfs", str(mount)], capture_output=True, text=True
    )
    if made.returncode != 0:
        pytest.skip(f"cannot mount a small file system here: {made.stderr.strip()}")
    yield mount
    subprocess.run(["umount", str(mount)], check=True)


def fill(file: RawIOBase) -> None:
    while True:
        file.write(b"x" * 65536)


def test_no_space_left(small_disk: Path) -> None:
    folder = committed_contest(small_disk / "contest")
    kernel = (folder / "kernel.py").read_bytes()
    with (small_disk / "filler").open("wb", buffering=0) as filler, pytest.raises(OSError, match="No space"):
        fill(filler)
    done = ratchet(folder, "experiment: x", "--set", "BQ=256")
    refused(done, "no-space", 4, "space")
    (small_disk / "filler").unlink()
    assert (folder / "kernel.py").read_bytes() == kernel
    assert git(folder, "fsck").strip() == ""
    assert ratchet(folder, "status").returncode == 0
