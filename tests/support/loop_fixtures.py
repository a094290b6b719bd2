"""Real repositories, and the command line as a person runs it."""

import os
import shutil
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import forked_commands

import harness
from harness.loop.scaffold import scaffold

PROJECT = str(Path(harness.__file__).parent.parent)


def git(repository: Path, *arguments: str) -> str:
    """The output of a git command; raises if it fails."""
    return subprocess.run(
        ["git", "-C", str(repository), *arguments], check=True, capture_output=True, text=True, timeout=60
    ).stdout


def identify(repository: Path) -> None:
    """Gives the repository's commits an author."""
    git(repository, "config", "user.name", "A User")
    git(repository, "config", "user.email", "user@example.org")


def committed_contest(folder: Path, sequence: int = 1024) -> Path:
    """A contest in a repository of its own, small enough to be judged quickly."""
    scaffold(folder, "attention", (("SEQUENCE", str(sequence)),))
    git(folder, "init", "-q", "-b", "main")
    identify(folder)
    git(folder, "add", "-A")
    git(folder, "commit", "-qm", "A contest")
    return folder


def copied(folder: Path, to: Path) -> Path:
    """A repository of one test's own, as another one stands: the folder `to`."""
    return Path(shutil.copytree(folder, to, symlinks=True))


def ratchet(
    where: Path, *arguments: str, expect: int | None = None, environment: Mapping[str, str] | None = None
) -> "subprocess.CompletedProcess[str]":
    """Runs the command line in the folder `where`; checks the exit code where one is expected."""
    variables = {**os.environ, "NO_COLOR": "1", "PYTHONPATH": PROJECT, **(environment or {})}
    if forked_commands.can_fork(variables):
        done = forked_commands.run(where, arguments, variables, timeout=300)
    else:
        command = [sys.executable, "-m", "harness", *arguments]
        done = subprocess.run(command, capture_output=True, text=True, cwd=where, timeout=300, env=variables)
    if expect is not None:
        assert done.returncode == expect, f"{arguments}: exit {done.returncode}\n{done.stdout}\n{done.stderr}"
    return done
