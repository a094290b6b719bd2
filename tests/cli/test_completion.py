"""Completion: a real shell evaluates what `completion` prints, and asks the real command."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

PROJECT = Path(__file__).parents[2]
RMSNORM = PROJECT / "examples" / "rmsnorm"


def completed(line: str, folder: Path = RMSNORM) -> list[str]:
    """What the function that bash got offers for the word at the end of `line`."""
    script = f"""
        ratchet() {{ {sys.executable} -m harness "$@"; }}
        eval "$(ratchet completion bash)"
        COMP_LINE={line!r} COMP_POINT={len(line)} COMP_TYPE=9 COMP_WORDS=({line}) COMP_WORDBREAKS=$' \\t\\n="'
        COMP_CWORD={len(line.split(" ")) - 1} COMPREPLY=()
        _python_argcomplete ratchet
        printf '%s\\n' "${{COMPREPLY[@]}}"
    """
    done = subprocess.run(
        ["bash", "-c", script],
        cwd=folder,
        env=os.environ | {"PYTHONPATH": str(PROJECT)},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    return [word.strip() for word in done.stdout.splitlines() if word.strip()]


@pytest.mark.parametrize(
    ("line", "offered"),
    [
        ("ratchet bis", ["bisect"]),
        ("ratchet ci --fail", ["--fail-on"]),
        ("ratchet xprof memory dia", ["diagnose"]),
        ("ratchet xprof overlap --mes", ["--mesh"]),
        ("ratchet completion f", ["fish"]),
        ("ratchet sweep --set B", ["BR="]),
        ("ratchet show nonsense", []),
    ],
)
def test_verbs_options_and_constants_are_offered(line: str, offered: list[str]) -> None:
    assert completed(line) == offered


def test_attempts_are_offered_also_of_another_folder(tmp_path: Path) -> None:
    numbers = completed(f"ratchet -C {RMSNORM} show 1", tmp_path)
    assert {"1", "10", "11"} <= set(numbers)
    assert all(number.startswith("1") for number in numbers)
    assert completed("ratchet show 1", tmp_path) == []


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_the_code_is_a_shells(shell: str) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "harness", "completion", shell], cwd=PROJECT, capture_output=True, text=True, check=True
    )
    for name in ("ratchet", "kernel-ratchet", "ratchet.sh"):
        assert name in done.stdout
    if shutil.which(shell):
        subprocess.run([shell, "-n"], input=done.stdout, text=True, check=True)


def test_a_shell_that_completes_is_not_kept_waiting_for_an_installation(tmp_path: Path) -> None:
    for name in ("ratchet.sh", "requirements.lock"):
        shutil.copy(PROJECT / name, tmp_path)
    done = subprocess.run(
        [tmp_path / "ratchet.sh"], env=os.environ | {"_ARGCOMPLETE": "1"}, capture_output=True, text=True, timeout=60
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    assert not (tmp_path / ".venv").exists()
