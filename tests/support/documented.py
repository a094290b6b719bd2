"""The commands that the documentation prints, and what a test needs to know to run them."""

import re
import shlex
import shutil
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from loop_fixtures import PROJECT, git, into_repository

PAGES = ("*.md", "docs/*.md", "examples/*/README.md")
# Beginnings of lines that are commands; shell blocks hold no other lines.
_BEGINS = ("./", ".venv/", "python", "git ", "pip ", "uv ", "docker ", "sudo ", "apt", "nice ", "export ")
_SHELL = ("sh", "bash", "console", "shell")

# Commands that cannot run here, by their beginnings, each with the reason.
NOT_RUN = {
    ".venv/bin/python -m pip install": "downloads packages: tests use no network",
    './ratchet.sh -C examples/attention-gpu "experiment: baseline" --on gpu': "needs an NVIDIA GPU",
    ".venv/bin/python examples/attention-gpu/peer.py": "needs an NVIDIA GPU",
    ".venv/bin/uv build": "builds with packages of an index; .ci/wheel does it",
    "pip install -r requirements.lock": "downloads packages; .ci/wheel installs what this installs",
    "export XPROF_URL": "needs an XProf server; tests/workbench/test_profile_remote.py starts one",
    "uv pip compile": "asks a package index: tests use no network",
    "docker run": "needs a container engine and an image",
    "./ratchet.sh serve": "a server; tests/workbench/test_profile_serve.py starts and stops it",
    "./ratchet.sh xprof serve": "a server, like serve",
    "./ratchet.sh profile --serve": "a server; tests/workbench/test_profile_capture.py starts and stops it",
    "./ratchet.sh profile --mode TRACE_EVERYTHING": "is shown to be refused",
    "./ratchet.sh profile --snapshots": "needs a TPU: a CPU's profiler keeps no history to take snapshots from",
    "./ratchet.sh report --table": "needs a filled table; tests/render/test_tuned_page.py makes its page",
    "./ratchet.sh selftest": "takes minutes, and tests/selftest/test_selftest.py runs it",
    "./ratchet.sh table": "takes minutes, and tests/loop/test_tuning_table.py runs it",
    "./ratchet.sh test": "is the tests themselves",
}
# By command that has a placeholder or would take minutes: the command that runs instead, in the same folder.
INSTEAD = {
    "new DIR --like attention [--set SEQUENCE=4096]": "new DIR --like attention --set SEQUENCE=512",
    "drive.py mine --attempts 10": "drive.py mine --attempts 2",
    "--like attention --set SEQUENCE=1024": "--like attention --set SEQUENCE=512",
    "new mine --like attention": "new mine --like attention --set SEQUENCE=512",
    "--set BKV=1024 --expect 60%": "--set BKV=512 --expect 60%",
    "simulate dumps --chip v6e": "simulate profile_data/0003/dumps --chip v5e",
    "hlo --op fusion.3": "hlo",
    # These name attempts and an operation that the small contest has.
    "xprof report 3 7": "xprof report 3 4",
    "xprof graph ./profile_data --op fusion.3 --dot | dot -Tsvg > fusion.svg": (
        "xprof graph 0003-simulated-v5e --op naive_attention.1 --dot > fusion.dot"
    ),
}


@dataclass(frozen=True, slots=True)
class Command:
    """A command line as `page` prints it, without the remark behind it; `is_shown`: the page also shows its output."""

    page: str
    line: int
    text: str
    is_shown: bool = False

    @property
    def why_not(self) -> str:
        """The reason why it cannot run here; empty if it can."""
        return next((reason for begin, reason in NOT_RUN.items() if self.text.startswith(begin)), "")

    @property
    def run_as(self) -> str:
        """The command that is run in its place."""
        for old, new in INSTEAD.items():
            if old in self.text:
                return self.text.replace(old, new)
        return self.text


def blocks() -> Iterator[tuple[Command, ...]]:
    """The commands of each fenced block of the documentation that has any; they are meant to run in their order."""
    root = Path(PROJECT)
    for page in sorted({path for pattern in PAGES for path in root.glob(pattern)}):
        yield from blocks_of(page.read_text(encoding="utf-8"), page.relative_to(root).as_posix())


def blocks_of(text: str, page: str) -> Iterator[tuple[Command, ...]]:
    """The commands of each fenced block of one page that has any."""
    commands: list[Command] = []
    # A block that begins with a prompt also shows output: only text behind prompts is a command.
    fence, in_shell, has_prompts = "", False, None
    for number, line in enumerate(text.splitlines(), 1):
        mark = re.match(r"\s*(```+|~~~+)\s*(\w*)", line)
        if mark and not fence:
            fence, in_shell, has_prompts = mark[1], mark[2] in _SHELL, None
        elif mark and mark[1].startswith(fence):
            if commands:
                yield tuple(commands)
            fence, commands = "", []
        elif fence and line.strip():
            bare = line.strip().removeprefix("$ ")
            has_prompts = line.startswith("$ ") if has_prompts is None else has_prompts
            if (in_shell or bare.startswith(_BEGINS)) and line.startswith("$ " if has_prompts else ""):
                commands.append(Command(page, number, re.sub(r"\s+#\s.*$", "", bare), has_prompts))


def project_copy(folder: Path, leave_out: str = "\0") -> None:
    """This project as it stands in a repository of its own; without the files whose path begins with `leave_out`."""
    listed = git(Path(PROJECT), "ls-files", "-co", "--exclude-standard", "-z").split("\0")
    for path in filter(None, listed):
        source = Path(PROJECT) / path
        # A missing file was deleted, and the deletion is not committed yet.
        if source.is_file() and not path.startswith(leave_out):
            (folder / path).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(source, folder / path)
    # Uses the environment of the tests, so that none is downloaded.
    (folder / "ratchet.sh").write_text('#!/bin/bash\nexec "$(dirname "$0")/.venv/bin/python" -m harness "$@"\n')
    python = folder / ".venv" / "bin" / "python"
    python.parent.mkdir(parents=True)
    python.write_text(f'#!/bin/bash\nexec {shlex.quote(sys.executable)} "$@"\n')
    python.chmod(0o755)
    into_repository(folder, "The project")
