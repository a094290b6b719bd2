"""A new contest: in a repository or where there is none, with constants that make a problem or leave nothing behind."""

from pathlib import Path

import pytest
from git import Repo
from loop_fixtures import ratchet

from harness import contest as contests
from harness.loop.settings import constants

FILES = ["prepare.py", "kernel.py", ".gitignore"]


def committed(repository: Path) -> list[str]:
    """The paths that HEAD has; nothing else lies in the working tree."""
    repo = Repo(repository)
    assert not repo.is_dirty(untracked_files=True)
    return sorted(str(blob.path) for blob in repo.head.commit.tree.traverse() if blob.type == "blob")  # type: ignore[union-attr]


def test_a_folder_in_no_repository_becomes_one(tmp_path: Path) -> None:
    done = ratchet(tmp_path, "new", "deep/mine", "--like", "attention", "--chip", "v6e", "--set", "HEADS=4")
    assert "made a git repository" in done.stdout
    folder = tmp_path / "deep" / "mine"
    assert committed(folder) == sorted(FILES)
    assert contests.load(folder).chip.name == "v6e"
    # Key/value heads follow the heads where nothing else is said.
    assert dict(contests.load(folder).problem.statement().parameters)["kv_heads"] == 4


def test_a_repository_without_a_commit_gets_its_first(tmp_path: Path) -> None:
    Repo.init(tmp_path).close()
    done = ratchet(tmp_path, "new", "mine", "--like", "rmsnorm", "--set", "COLUMNS=4*2**8")
    assert "git repository" not in done.stdout
    assert committed(tmp_path) == sorted(f"mine/{name}" for name in FILES)
    assert ("COLUMNS", "4 * 2 ** 8") in constants((tmp_path / "mine" / "prepare.py").read_bytes())


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        (["--set", "HEADS=8", "--set", "KV_HEADS=3"], "expected kv_heads to divide heads, got heads=8, kv_heads=3"),
        (["--set", "CHIP=v9"], "v9"),
        (["--set", "NOTHING=1"], "NOTHING is not assigned"),
    ],
)
@pytest.mark.parametrize("is_repository", [True, False])
def test_constants_that_make_no_problem_leave_nothing(
    settings: list[str], expected: str, is_repository: bool, tmp_path: Path
) -> None:
    if is_repository:
        Repo.init(tmp_path).close()
    before = sorted(path.name for path in tmp_path.iterdir())
    refused = ratchet(tmp_path, "new", "deep/mine", "--like", "attention", *settings, expect=None)
    assert refused.returncode in (2, 4)
    assert expected in refused.stderr
    assert sorted(path.name for path in tmp_path.iterdir()) == before
