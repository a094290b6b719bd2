"""The function that the prepare.py of contests imports; the command line is harness/shell, its verbs harness/verbs."""

import sys
from pathlib import Path

from harness.shell.main import main, prepare_output


def judge_contest(prepare_path: str) -> int:
    """Judges the kernel.py next to `prepare_path`, as `python prepare.py` does, and records nothing."""
    prepare_output()
    return main(["judge", "-C", str(Path(prepare_path).resolve().parent), *sys.argv[1:]])
