"""The function that each prepare.py imports; the command line is in harness/shell, its verbs are in harness/verbs."""

import sys
from pathlib import Path

from harness.shell.main import main, prepare_output


def judge_contest(prepare_path: str) -> int:
    """The exit code of `python prepare.py`, which judges the kernel.py next to `prepare_path` and records nothing."""
    prepare_output()
    return main(["judge", "-C", str(Path(prepare_path).resolve().parent), *sys.argv[1:]])
