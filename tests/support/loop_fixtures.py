"""Real repositories, and the command line as a person runs it."""

import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Mapping
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory

import forked_commands
from ledger_fixtures import git as git
from ledger_fixtures import identify as identify
from ledger_fixtures import into_repository as into_repository

import harness
from harness.loop.scaffold import scaffold

PROJECT = str(Path(harness.__file__).parent.parent)


def committed_contest(folder: Path, sequence: int = 1024) -> Path:
    """A contest in its own repository, small enough to be judged quickly."""
    scaffold(folder, "attention", (("SEQUENCE", str(sequence)),))
    return into_repository(folder, "A contest")


# A norm of 512 rows of 256, 16 at a time: its kernel is judged in half the time of attention's at 1024 positions.
NORM = ("--like", "rmsnorm", "--set", "ROWS=512", "--set", "COLUMNS=256", "--set", "RESIDUAL=False")


def norm_contest(folder: Path) -> Path:
    """A contest in its own repository, with the kernel that is judged fastest."""
    scaffold(folder, "rmsnorm", (("ROWS", "512"), ("COLUMNS", "256"), ("RESIDUAL", "False")))
    return into_repository(folder, "A contest")


def copied(folder: Path, to: Path) -> Path:
    """A copy of a repository in the folder `to`, which one test may change."""
    return Path(shutil.copytree(folder, to, symlinks=True))


def copy_of(make: Callable[[Path], Path], to: Path) -> Path:
    """The contest that `make` makes in an empty folder, in a copy of that folder at `to`; made once in a process."""
    folder, contest = _made(make)
    return copied(Path(folder.name), to) / contest


@cache
def _made(make: Callable[[Path], Path]) -> tuple[TemporaryDirectory[str], Path]:
    folder = TemporaryDirectory(prefix="made-")
    return folder, make(Path(folder.name)).relative_to(folder.name)


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
