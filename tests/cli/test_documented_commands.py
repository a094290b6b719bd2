"""Every command that README, AGENTS and docs print is understood, and runs to its end in a copy of the project."""

import itertools
import os
import shlex
import shutil
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest
from capture_examples import four_devices_run
from documented import INSTEAD, NOT_RUN, Command, blocks, blocks_of, project_copy
from loop_fixtures import PROJECT, git, ratchet
from memory_examples import memory_run

from harness.candidate import rewrite
from harness.errors import RatchetError
from harness.loop import scaffold
from harness.shell.catalogue import EVERY
from harness.shell.main import place_of_verb

BLOCKS = tuple(blocks())
COMMANDS = tuple(command for block in BLOCKS for command in block)
# Pages that show what their commands print are run by test_protocol_page.py.
_SHOWN = {"docs/PROTOCOL.md", "docs/PROFILING.md"}
RUN_HERE = tuple(block for block in BLOCKS if not (block[0].page in _SHOWN and block[0].is_shown))
# A change may turn out slower, or too close to call. Verbs that judge, replay or check must find no fault.
_VERDICTS = {0, 1, 3}
_JUDGING = ("experiment:",)


def name(command: Command) -> str:
    return f"{command.page}:{command.line}"


def misunderstanding(command: Command) -> str:
    """Why a command cannot be run, found cheaply: the verb's own parser takes its words, and named files are there."""
    words = shlex.split(command.run_as)
    if words[0] == "./ratchet.sh":
        # The shell's own part of a line begins with one of these.
        rest = list(itertools.takewhile(lambda word: word not in {"<", ">", "2>&1", "|"}, words[1:]))
        place = place_of_verb(rest)
        if place is None:
            return "no verb"
        verb = EVERY.get(rest[place])
        try:
            (verb or EVERY["experiment"]).parse(rest[:place] + rest[place + 1 :] if verb else rest)
        except (RatchetError, SystemExit) as error:
            return f"not understood: {error}"
        return ""
    if words[0].endswith("python"):
        return "" if words[1].startswith("-") or (Path(PROJECT) / words[1]).is_file() else f"{words[1]} is not there"
    return "" if words[0] == "git" else "nobody knows how to run it: list it in documented.py"


def test_every_documented_command_is_understood() -> None:
    faults = {
        f"{name(command)}: {command.text}": why
        for command in COMMANDS
        if not command.why_not and (why := misunderstanding(command))
    }
    assert faults == {}


def test_what_is_not_understood_is_found() -> None:
    command = next(command for command in COMMANDS if command.run_as.startswith("./ratchet.sh results"))
    for text, why in (
        ("./ratchet.sh results --limt 3", "not understood: "),
        ("./ratchet.sh", "no verb"),
        ("python gone.py", "gone.py is not there"),
        ("make", "nobody knows"),
    ):
        assert misunderstanding(replace(command, text=text)).startswith(why)


def test_nothing_is_listed_that_is_printed_nowhere() -> None:
    texts = [command.text for command in COMMANDS]
    for begin in NOT_RUN:
        assert any(text.startswith(begin) for text in texts), f"NOT_RUN: {begin}"
    for old in INSTEAD:
        assert any(old in text for text in texts), f"INSTEAD: {old}"


def test_commands_are_found_in_blocks_and_nowhere_else() -> None:
    page = (
        "./no\n```\n./ratchet.sh status   # where you stand\noutput\n$ git log\n```\n./no\n```sh\nls -l\n```\n"
        "```\n$ ./ratchet.sh next\n./printed\n```\n"
    )
    listed = [tuple(command.text for command in block) for block in blocks_of(page, "page")]
    assert listed == [("./ratchet.sh status", "git log"), ("ls -l",), ("./ratchet.sh next",)]


@pytest.fixture(scope="module")
def stand(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """This project in a repository of its own, its contest made small, with four attempts and a remote."""
    pytest.importorskip("libtpu", reason="the TPU compiler exists for x86-64 Linux only")
    folder = tmp_path_factory.mktemp("documented") / "project"
    project_copy(folder, leave_out="experiments/")
    prepare = folder / "prepare.py"
    prepare.write_bytes(rewrite(prepare.read_bytes(), "SEQUENCE", "512", "prepare.py"))
    (folder / "kernel.py").write_bytes(scaffold.text("attention", "kernel.py"))
    git(folder, "commit", "-qam", "A small contest")
    bare = folder.parent / "remote.git"
    git(folder, "clone", "-q", "--bare", str(folder), str(bare))
    git(folder, "remote", "add", "origin", str(bare))
    home = {"PYTHONPATH": str(folder)}
    ratchet(folder, "experiment: baseline", expect=0, environment=home)
    ratchet(folder, "experiment: BQ 256", "--set", "BQ=256", expect=0, environment=home)
    ratchet(folder, "experiment: BKV 512", "--set", "BKV=512", expect=0, environment=home)
    ratchet(folder, "experiment: BQ 128 again", "--set", "BQ=128", expect=1, environment=home)
    # Captures to look into: of simulated runs, and of a run on this CPU.
    for number in ("3", "4"):
        ratchet(folder, "timeline", number, expect=0, environment=home)
    ratchet(folder, "profile", expect=0, environment=home)
    # Somebody else's files: a capture of four chips, a memory capture, a program and its launch script.
    four_devices_run(folder / "theirs")
    shutil.move(memory_run(folder / "memory"), folder / "host.xplane.pb")
    for program in ("train.py", "run.py"):
        (folder / program).write_text("import jax.numpy as jnp\n\n\ndef step():\n    return jnp.ones(8) * 2\n")
    for script in ("launch.sh", "run.sh"):
        (folder / script).write_text("export LIBTPU_INIT_ARGS=--xla_tpu_enable_async_collective_fusion=true\n")
    return folder


@pytest.mark.slow
@pytest.mark.parametrize("block", RUN_HERE, ids=lambda block: name(block[0]))
def test_documented_commands_run(block: tuple[Command, ...], stand: Path, tmp_path: Path) -> None:
    """Runs each block in its own copy of the project: its commands one after the other, as they are printed."""
    folder = tmp_path / "project"
    shutil.copytree(stand, folder, symlinks=True)
    environment = {**os.environ, "NO_COLOR": "1", "PYTHONPATH": str(folder)}
    for command in block:
        if command.why_not:
            continue
        done = subprocess.run(
            ["bash", "-c", command.run_as], cwd=folder, env=environment, capture_output=True, text=True, timeout=600
        )
        expected = _VERDICTS if any(word in command.text for word in _JUDGING) else {0}
        assert done.returncode in expected, (
            f"{name(command)}: {command.run_as}\nexit {done.returncode}\n{done.stdout[-2000:]}\n{done.stderr[-2000:]}"
        )
