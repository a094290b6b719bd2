"""Writes docs/PROTOCOL.md and docs/PROFILING.md anew: runs each command that they show, and puts its output below it.

    .venv/bin/python tests/support/protocol_page.py [PAGE.md]

The commands of a page run one after the other in a copy of the project, with the captures that PROTOCOL.md describes.
A fence called `real` shows the capture of real TPUs beside the project; without that capture it stays as it is.
"""

import itertools
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

from capture_examples import experts_run, four_devices_run, one_device_run
from documented import project_copy
from loop_fixtures import PROJECT
from memory_examples import levels, memory_run

PAGE = Path(PROJECT) / "docs" / "PROTOCOL.md"
PAGES = (PAGE, PAGE.with_name("PROFILING.md"))
REAL = Path(PROJECT).parent / "shared" / "captures" / "v6e_host_offload.xplane.pb"
COLUMNS = "120"
# The lowest exit code of a bug or a signal; lower codes are results of a command that worked.
_BROKEN = 5

# Programs and a launch script with faults.
_TRAIN = """\
import jax
import jax.numpy as jnp
import numpy as np


@jax.jit
def layer(x, w):
    return jnp.tanh(x @ w)


def step():
    x = np.ones((64, 128), np.float32)
    for length in (32, 48, 64):
        out = layer(x[:length], jnp.ones((128, 128)))
    return float(out.sum())
"""
_BRANCH = """\
import jax
import jax.numpy as jnp


@jax.jit
def relu(x):
    return x if x > 0 else 0.0


def step():
    return relu(jnp.float32(1.0))
"""
_LAUNCH = """\
export LIBTPU_INIT_ARGS="--xla_tpu_enable_async_collective_fusion=true \\
  --xla_tpu_enable_async_collective_fusion_fuse_all_gather=true \\
  --xla_tpu_enable_sparse_core_collective_offload_all_gather=true"
"""

# A call with a misspelt argument, after the messages that open a session.
_CALLS = """\
{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-06-18","capabilities":{},"clientInfo":{"name":"page","version":"1"}}}
{"jsonrpc":"2.0","method":"notifications/initialized"}
{"jsonrpc":"2.0","id":2,"method":"tools/list"}
{"jsonrpc":"2.0","id":3,"method":"tools/call","params":{"name":"xprof_overlap","arguments":{"rum":"four-devices"}}}
"""


def stand(folder: Path) -> Path:
    """The project with the files that the page describes: synthetic captures, programs and a launch script."""
    project_copy(folder)
    captures = folder / "profile_data"
    one_device_run(captures)
    four_devices_run(captures)
    experts_run(captures)
    # A file that people mistake for a capture.
    (memory_run(captures).parent / "memory_viewer.json").write_text("{}")
    memory_run(captures, "growing", levels(10, 12, 14, 16, 18, 20, fragmentation=0.25))
    memory_run(captures, "spiking", levels(10, 10, 10, 30, 10, fragmentation=0.6))
    (folder / "train.py").write_text(_TRAIN)
    (folder / "branch.py").write_text(_BRANCH)
    (folder / "launch.sh").write_text(_LAUNCH)
    (folder / "calls.jsonl").write_text(_CALLS)
    if REAL.is_file():
        (folder / "theirs").mkdir()
        shutil.copy2(REAL, folder / "theirs" / REAL.name)
    return folder


def answered(page: str, answer: Callable[[str], str | None]) -> str:
    """The page, its items numbered, with the answer of `answer` to each command below it.

    If an answer is None, the old output stays.
    """
    number = itertools.count(1)
    numbered = re.sub(r"^\*\*\d*\.\*\*", lambda _: f"**{next(number)}.**", page, flags=re.MULTILINE)
    return "\n".join(_answered(numbered, answer)) + "\n"


def _answered(page: str, answer: Callable[[str], str | None]) -> Iterator[str]:
    # A block without a prompt shows commands without output, or no commands.
    is_inside = keeps = False
    for line in page.splitlines():
        if line.startswith("```"):
            is_inside, keeps = not is_inside, True
        if not is_inside or keeps or line.startswith("$ "):
            yield line
        if is_inside and line.startswith("$ "):
            printed = answer(line.removeprefix("$ "))
            keeps = printed is None
            yield from (printed or "").splitlines()


def commands(page: str) -> list[str]:
    """The commands of a page, in order."""
    listed: list[str] = []

    def note(command: str) -> None:
        listed.append(command)

    answered(page, note)
    return listed


def outputs(page: str) -> Iterator[tuple[str, bool, list[str]]]:
    """Each command of the page, True if its output has measured times, and the lines of its output."""
    for fence, block in re.findall(r"^```(\w*)\n(.*?)^```$", page, re.MULTILINE | re.DOTALL):
        for command in re.split(r"^\$ ", block, flags=re.MULTILINE)[1:]:
            text, _, printed = command.partition("\n")
            yield text, fence == "measured", printed.splitlines()


class Shell:
    """Runs commands in a folder; the part before the first bar runs only once."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._printed: dict[str, str] = {}

    def __call__(self, command: str) -> str | None:
        """The output of the command; None if it needs a capture that is not here.

        Raises AssertionError if it breaks, or if a filter finds nothing.
        """
        first, _, filters = command.partition(" | ")
        if "theirs" in first.split() and not REAL.is_file():
            return None
        if first not in self._printed:
            self._printed[first] = self._run(first, "", _BROKEN)
        printed = self._printed[first]
        return (self._run(filters, printed, 1) if filters else printed).rstrip()

    def _run(self, command: str, input_text: str, broken: int) -> str:
        environment = {**os.environ, "NO_COLOR": "1", "COLUMNS": COLUMNS, "PYTHONPATH": str(self._folder)}
        done = subprocess.run(
            ["bash", "-c", command],
            cwd=self._folder,
            env=environment,
            input=input_text,
            capture_output=True,
            text=True,
            timeout=1200,
        )
        assert 0 <= done.returncode < broken, f"{command}: exit {done.returncode}\n{done.stdout}\n{done.stderr}"
        return done.stdout.replace(f"{self._folder}/", "")


def main() -> None:
    """Writes the pages. If a command breaks, or its filter finds nothing, its old output stays.

    Exits with the errors of these commands, or with the names of pages that do not exist.
    """
    wanted = sys.argv[1:] or [path.name for path in PAGES]
    if unknown := set(wanted) - {path.name for path in PAGES}:
        sys.exit(f"expected {' or '.join(path.name for path in PAGES)}, got {', '.join(sorted(unknown))}")
    errors: list[str] = []
    for path in PAGES:
        if path.name in wanted:
            with tempfile.TemporaryDirectory() as scratch:
                shell = Shell(stand(Path(scratch) / "project"))

                def answer(command: str, shell: Shell = shell) -> str | None:
                    try:
                        return shell(command)
                    except AssertionError as error:
                        errors.append(f"{command}: {error}")
                        return None

                page = answered(path.read_text(encoding="utf-8"), answer)
            path.write_text(page, encoding="utf-8")
    if errors:
        sys.exit("\n".join(errors))


if __name__ == "__main__":
    main()
