"""A stranger's folder, as it is cloned or unpacked: nothing in it runs because a verb was called there."""

import json
import os
import subprocess
import sys
import sysconfig
from pathlib import Path
from typing import Any

import pytest
from command_line import Shell
from ledger_fixtures import four_attempts, git, new_repository

import harness
from harness.ledger import Ledger
from harness.ledger import git as asked
from harness.ledger.git import index

pytestmark = pytest.mark.long

PROJECT = Path(harness.__file__).parents[1]


def test_modules_of_the_folder_that_it_is_called_in_are_not_imported(tmp_path: Path) -> None:
    """ratchet.sh as it is, beside a ready environment, called in a folder that has modules of the usual names."""
    here, folder, marker = tmp_path / "here", tmp_path / "folder", tmp_path / "ran"
    (here / ".venv" / "bin").mkdir(parents=True)
    (here / ".venv" / "bin" / "python").symlink_to(sys.executable)
    for name in ("ratchet.sh", "requirements.lock"):
        (here / name).write_bytes((PROJECT / name).read_bytes())
    lock = (here / "requirements.lock").read_bytes()
    checksum = subprocess.run(["cksum"], input=lock, capture_output=True, check=True).stdout
    (here / ".venv" / ".ratchet-stamp").write_bytes(checksum + b"\n")
    folder.mkdir()
    for name in ("harness", "msgspec", "git", "json", "argparse", "difflib"):
        (folder / f"{name}.py").write_text(f"open({str(marker)!r}, 'w')\n")
    done = subprocess.run(
        ["bash", str(here / "ratchet.sh"), "--version"],
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=60,
        env={**os.environ, "PYTHONPATH": f"{PROJECT}{os.pathsep}{sysconfig.get_path('purelib')}"},
    )
    assert (done.returncode, done.stdout.split()[0]) == (0, "kernel-ratchet"), done.stderr
    assert not marker.exists()


@pytest.fixture
def program(tmp_path: Path) -> Path:
    """A program that a repository names to be run; it leaves the file `ran` next to itself."""
    path = tmp_path / "program"
    path.write_text(f"#!/bin/sh\ntouch '{tmp_path}/ran'\n")
    path.chmod(0o755)
    return path


@pytest.mark.parametrize("worktree", [".", "..", ""])
def test_a_contest_that_is_laid_out_as_a_git_directory_is_refused(
    worktree: str, tmp_path: Path, program: Path, monkeypatch: pytest.MonkeyPatch, shell: Shell
) -> None:
    """Its HEAD, config and refs come with any clone, and git takes the folder that it is called in for a repository."""
    inside = new_repository(tmp_path / "made", contest="contest")
    (inside / "prepare.py").write_bytes((PROJECT / "prepare.py").read_bytes())
    (inside / "HEAD").write_text("ref: refs/heads/main\n")
    for name in ("objects", "refs/heads"):
        (inside / name).mkdir(parents=True)
        (inside / name / ".keep").touch()
    place = f"worktree = {worktree}\n" if worktree else ""
    (inside / "config").write_text(
        f"[core]\nrepositoryformatversion = 0\nbare = false\n{place}fsmonitor = {program}\n"
        f'[remote "origin"]\nurl = ext::{program}\n[protocol "ext"]\nallow = always\n'
    )
    git(tmp_path / "made", "add", "-A")
    git(tmp_path / "made", "commit", "-qm", "a contest that is a repository")
    git(tmp_path, "clone", "-q", "made", "clone")
    monkeypatch.chdir(tmp_path / "clone" / "contest")
    for verb in ("status", "results", "fsck", "next", "report", "show"):
        assert "is laid out as a git directory" in shell.complaint(verb, *(["1"] if verb == "show" else []), code=4)
    assert not (tmp_path / "ran").exists()


def test_no_program_is_asked_what_changed(tmp_path: Path, program: Path) -> None:
    folder = new_repository(tmp_path / "made")
    git(folder, "config", "core.fsmonitor", str(program))
    (folder / "kernel.py").write_text("changed")
    assert index.changed_paths(asked.open_repository(folder), [folder]) == ("kernel.py",)
    assert not (tmp_path / "ran").exists()
    git(folder, "status")
    assert (tmp_path / "ran").exists()


# Text that a terminal obeys (a title, colours, a bell, reversed letters), text that a page would run, and non-UTF-8.
HOSTILE = (
    "x\x1b]0;title\x07\x1b[2J\x1b[31m\x9b31m</script><script>alert(1)</script>[/red]$\\frac{"
    "\u202e\u2066\udcff\ud83d\0\r\n|`b`"
)


def with_hostile_words(value: Any, name: str = "") -> Any:
    """A record's JSON, every text of which that nothing is looked up by is hostile."""
    if isinstance(value, dict):
        return {name: with_hostile_words(item, name) for name, item in value.items()}
    if isinstance(value, list):
        return [with_hostile_words(item, name) for item in value]
    words = "hypothesis reasons title more fewer machine python platform kernel_name diff dump_directory"
    return HOSTILE if isinstance(value, str) and name in words.split() else value


def test_no_word_of_a_record_steers_the_terminal_or_is_a_bug(tmp_path: Path, shell: Shell) -> None:
    folder = new_repository(tmp_path / "made")
    four_attempts(Ledger.open(folder))
    git(folder, "update-ref", "-d", "refs/ratchet/root/log")
    for path in (folder / "experiments").glob("*.json"):
        document = with_hostile_words(json.loads(path.read_text()))
        lines = (f'  "{name}": {json.dumps(document[name])}' for name in ("schema", "row", "attempt"))
        path.write_text("{\n" + ",\n".join(lines) + "\n}\n")
    for words in ("results", "show 2", "diagnose 2", "fsck", "report", "plot", "whatif 2", "lines 2", "diff 1 2"):
        printed = shell.run(*words.split(), "-C", folder, code=(0, 1, 4))
        assert not set("\x1b\x07\x9b\u202e\u2066\udcff\ud83d\0\r") & {*printed.out, *printed.err}, words
        (printed.out + printed.err).encode()


@pytest.mark.parametrize("name", ["kernel.py", "prepare.py", "helper.py", "experiments", "profile_data"])
def test_a_link_that_leads_out_of_the_repository_is_refused(name: str, tmp_path: Path, shell: Shell) -> None:
    """The link's target would be recorded as a kernel.py, or written to."""
    folder = new_repository(tmp_path / "made", contest="contest")
    (folder / "prepare.py").write_bytes((PROJECT / "prepare.py").read_bytes())
    (folder / name).unlink(missing_ok=True)
    for target, code in ((tmp_path / "elsewhere", 4), (folder.parent / "beside", 0)):
        target.mkdir() if "." not in name else target.write_bytes((PROJECT / "prepare.py").read_bytes())
        (folder / name).unlink(missing_ok=True)
        (folder / name).symlink_to(target)
        for verb in ("status", "results"):
            complaint = shell.complaint(verb, "-C", folder, code=code)
            assert ("outside the repository" in complaint) is (code == 4)
