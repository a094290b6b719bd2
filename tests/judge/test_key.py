"""The comparability key changes with what a verdict can depend on, and with nothing else."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import harness

PACKAGE = Path(harness.__file__).parent
QUESTION = "import sys, pathlib; from harness.judge import key; print(key.judge_digest(pathlib.Path(sys.argv[1])))"
PREPARE = """\
\"\"\"The contest.\"\"\"

SIZE = 512  # rows
TITLE = f"{SIZE:>{4}} rows"


def problem():
    \"\"\"What is computed.\"\"\"
    return SIZE
"""


@pytest.fixture(scope="module")
def copy(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The harness as a package of its own, and a prepare.py beside it."""
    folder = tmp_path_factory.mktemp("key")
    shutil.copytree(PACKAGE, folder / "harness", ignore=shutil.ignore_patterns("candidates", "__pycache__"))
    (folder / "prepare.py").write_text(PREPARE)
    return folder


def digest(folder: Path) -> str:
    """What the harness in `folder` says of itself and of its prepare.py."""
    environment = {**os.environ, "PYTHONPATH": str(folder), "XDG_CACHE_HOME": str(folder / "cache")}
    command = [sys.executable, "-P", "-c", QUESTION, str(folder / "prepare.py")]
    return subprocess.run(command, env=environment, capture_output=True, text=True, check=True).stdout.strip()


def after(folder: Path, name: str, text: str) -> str:
    """The digest with the file `name` changed to `text`; the file is put back."""
    path = folder / name
    before = path.read_text()
    path.write_text(text)
    try:
        return digest(folder)
    finally:
        path.write_text(before)


@pytest.mark.parametrize(
    ("name", "old", "new"),
    [
        ("harness/judge/simulate/uncertainty.py", '"""\n', '"""\n# A comment.\n\n\n\n'),
        ("harness/judge/verdict/ruling.py", '"""What two times come to', '"""Two times, and what they come to'),
        ("harness/cli/arguments.py", "import", "UNUSED = 1\nimport"),
        ("harness/render/layout.py", '"""\n', '"""\nUNUSED = 1\n'),
        ("prepare.py", "512  # rows", "512"),
        ("prepare.py", "return SIZE", "return (SIZE)"),
        ("prepare.py", "What is computed", "Something"),
    ],
)
def test_what_no_verdict_depends_on_does_not_count(copy: Path, name: str, old: str, new: str) -> None:
    text = (copy / name).read_text()
    assert old in text
    assert after(copy, name, text.replace(old, new, 1)) == digest(copy)


@pytest.mark.parametrize(
    ("name", "old", "new"),
    [
        ("harness/judge/verdict/ruling.py", "ROUNDING = 1e-12", "ROUNDING = 1e-11"),
        ("harness/problems/tolerance.py", "RMS_FACTOR = 1.5", "RMS_FACTOR = 1.6"),
        ("harness/hardware.py", '"v5e"', '"v5f"'),
        # Reached by its name alone: the process that the simulator runs in.
        ("harness/judge/evaluate/timing/simulation.py", '"simulate":', '"simulated":'),
        ("prepare.py", "SIZE = 512", "SIZE = 513"),
        ("prepare.py", ":>{4}}", ":<{4}}"),
        ("prepare.py", "return SIZE", 'return ["", SIZE]'),
        ("prepare.py", "return SIZE", "return return"),
    ],
)
def test_what_a_verdict_can_depend_on_counts(copy: Path, name: str, old: str, new: str) -> None:
    text = (copy / name).read_text()
    assert old in text
    assert after(copy, name, text.replace(old, new, 1)) != digest(copy)


@pytest.mark.parametrize("text", ["{", "5", '["x"]', "[1, []]"])
def test_a_broken_cache_is_computed_anew(copy: Path, text: str) -> None:
    expected = digest(copy)
    kept = list((copy / "cache" / "kernel-ratchet").iterdir())
    assert kept
    for path in kept:
        path.write_text(text)
    assert digest(copy) == expected
