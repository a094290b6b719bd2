"""Completion: a real shell evaluates what `completion` prints, and asks the real command."""

import json
import os
import shlex
import shutil
import subprocess
import sys
from functools import cache
from pathlib import Path

import pytest
from ledger_fixtures import into_repository
from loop_fixtures import ratchet

from harness import contest as contests
from harness.operators import Suite

pytestmark = pytest.mark.long

PROJECT = Path(__file__).parents[2]
RMSNORM = PROJECT / "examples" / "rmsnorm"


@cache
def printed(shell: str, **environment: str) -> str:
    """The code for a shell."""
    return ratchet(PROJECT, "completion", shell, expect=0, environment=environment).stdout


def completed(line: str, folder: Path = RMSNORM, name: str = "ratchet", **environment: str) -> list[str]:
    """The words that bash's completion function of the program `name` offers at the end of `line`."""
    script = f"""
        ratchet() {{ {shlex.quote(sys.executable)} -m harness "$@"; }}
        eval {shlex.quote(printed("bash", **environment))}
        COMP_LINE={line!r} COMP_POINT={len(line)} COMP_TYPE=9 COMP_WORDS=({line}) COMP_WORDBREAKS=$' \\t\\n="'
        COMP_CWORD={len(line.split(" ")) - 1} COMPREPLY=()
        words=($(complete -p {name}))
        ${{words[-2]}} {line.partition(" ")[0]}
        printf '%s\\n' "${{COMPREPLY[@]}}"
    """
    variables = {**os.environ, "PYTHONPATH": str(PROJECT), **environment}
    done = subprocess.run(["bash", "-c", script], cwd=folder, env=variables, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return [word.strip() for word in done.stdout.splitlines() if word.strip()]


@pytest.mark.parametrize(
    ("line", "offered"),
    [
        ("ratchet bis", ["bisect"]),
        ("ratchet sweep --set B", ["BR="]),
        ("ratchet ci --fail-on regress,wr", ["regress,wrong"]),
        ("ratchet lines --member ", []),
    ],
)
def test_bash_offers_verbs_constants_and_values(line: str, offered: list[str]) -> None:
    assert completed(line) == offered


def asked(folder: Path, line: str, answer: Path, shell: str = "zsh") -> str:
    """The program's own answer, in the file `answer`, to a shell; zsh shows descriptions too."""
    question = {
        "_ARGCOMPLETE": "1",
        "_ARGCOMPLETE_SHELL": shell,
        "_ARGCOMPLETE_IFS": "\v",
        "COMP_LINE": line,
        "COMP_POINT": str(len(line)),
        "_ARGCOMPLETE_STDOUT_FILENAME": str(answer),
    }
    done = ratchet(folder, environment=question, expect=0)
    assert done.stderr == ""
    return answer.read_text(encoding="utf-8")


@pytest.mark.parametrize(
    ("line", "offered"),
    [
        ("ratchet ci --fail", ["--fail-on"]),
        ("ratchet xprof memory dia", ["diagnose"]),
        ("ratchet xprof overlap --mes", ["--mesh"]),
        ("ratchet completion f", ["fish"]),
        ("ratchet show nonsense", []),
        ("ratchet new there --like swi", ["swiglu"]),
        ("ratchet judge --chip v6", ["v6e"]),
        ("ratchet ci --fail-on re", ["regress", "removed"]),
    ],
)
def test_verbs_options_and_values_are_offered(line: str, offered: list[str], tmp_path: Path) -> None:
    assert asked(RMSNORM, line, tmp_path / "answer", "bash").replace("\v", " ").split() == offered


def test_the_members_of_a_suite_are_offered() -> None:
    suite = PROJECT / "examples" / "attention-suite"
    names = completed("ratchet lines --member ", suite)
    problem = contests.load(suite).problem
    assert isinstance(problem, Suite)
    assert names == [member.name for member in problem.members]


def test_attempts_are_offered_also_of_another_folder(tmp_path: Path) -> None:
    numbers = completed(f"ratchet -C {shlex.quote(str(RMSNORM))} show 1", tmp_path)
    assert {"1", "10", "11"} <= set(numbers)
    assert all(number.startswith("1") for number in numbers)
    assert completed("ratchet show 1", tmp_path) == []


def test_a_strangers_folder_neither_keeps_a_shell_waiting_nor_prints_to_it(tmp_path: Path) -> None:
    folder, answer = tmp_path / "examples" / "rmsnorm", tmp_path / "answer"
    shutil.copytree(RMSNORM, folder, ignore=shutil.ignore_patterns("profile_data"))
    kernel = folder / "kernel.py"
    for text in ("A = 1\nX = 1" + "+1" * 100_000, f"A = 1\nX = 0x{'f' * 10_000}\n"):
        kernel.write_text(text)
        assert asked(folder, "ratchet sweep --set ", answer) == ""
    kernel.write_text("A = '\\x1b[31m'\n")
    assert "\x1b" not in asked(folder, "ratchet sweep --set ", answer)
    kernel.unlink()
    os.mkfifo(kernel)
    assert asked(folder, "ratchet sweep --set ", answer) == ""
    kernel.unlink()
    kernel.symlink_to("/dev/zero")
    assert asked(folder, "ratchet sweep --set ", answer) == ""
    kernel.unlink()
    shutil.copy(RMSNORM / "kernel.py", kernel)
    record = folder / "attempts.jsonl"
    # Its kind, outcome and failure, then its hypothesis.
    data, row = record.read_text(encoding="utf-8"), '1,"baseline","accept","",'
    assert f'{row}"baseline"' in data
    hostile = json.dumps("\x1b[31m\v$(id)\v\u202e")
    record.write_text(data.replace(f'{row}"baseline"', row + hostile), encoding="utf-8")
    into_repository(tmp_path, "records")
    attempts = asked(folder, "ratchet show ", answer)
    assert "$(id)" in attempts
    assert not {"\x1b", "\u202e"} & {*attempts}
    assert "$(id)" not in [word.split(":")[0] for word in attempts.split("\v")]


def test_a_shell_asks_this_program_whatever_is_typed(tmp_path: Path) -> None:
    stranger = tmp_path / "ratchet.sh"
    stranger.write_text("#!/bin/sh\ntouch ran\n")
    stranger.chmod(0o755)
    place = tmp_path / "environment"
    place.symlink_to(sys.prefix)
    stamp = Path(sys.prefix) / ".ratchet-stamp"
    if not stamp.is_file():
        pytest.skip("the environment was not set up by ratchet.sh")
    assert completed("./ratchet.sh bis", tmp_path, "ratchet.sh", RATCHET_ENVIRONMENT=str(place)) == ["bisect"]
    assert not (tmp_path / "ran").exists()


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_the_code_is_a_shells(shell: str) -> None:
    for name in ("ratchet", "kernel-ratchet"):
        assert name in printed(shell)
    if shutil.which(shell):
        subprocess.run([shell, "-n"], input=printed(shell), text=True, check=True)


def test_a_shell_that_completes_is_not_kept_waiting_for_an_installation(tmp_path: Path) -> None:
    for name in ("ratchet.sh", "requirements.lock"):
        shutil.copy(PROJECT / name, tmp_path)
    done = subprocess.run(
        [tmp_path / "ratchet.sh"], env=os.environ | {"_ARGCOMPLETE": "1"}, capture_output=True, text=True, timeout=60
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    assert not (tmp_path / ".venv").exists()
