"""What the prepare.py of contests imports; the command line itself is harness/shell, its verbs harness/verbs."""

import sys
from pathlib import Path

from harness.shell.main import main, prepare_output


def judge_contest(prepare_path: str) -> int:
    """What `python prepare.py` does: judges the kernel.py beside `prepare_path` and records nothing."""
    prepare_output()
    return main(["judge", "-C", str(Path(prepare_path).resolve().parent), *sys.argv[1:]])
