"""Symbolic links in a contest's folder, which come with a clone: none may lead out of its repository."""

import os
from pathlib import Path

from harness.errors import RatchetError

# What a kernel.py is read from is recorded, and the folders are written to.
OF_A_CONTEST = ("*.py", "experiments", "attempts.jsonl", "profile_data")


def refuse(directory: Path) -> None:
    """Raises RatchetError `outside` where what verbs read or write of the contest lies outside its repository."""
    folder = directory.resolve()
    root = next((above for above in (folder, *folder.parents) if (above / ".git").exists()), folder)
    for path in (path for pattern in OF_A_CONTEST for path in folder.glob(pattern)):
        # Of a link that goes round in circles this is the link itself, which no verb can open.
        target = Path(os.path.realpath(path))
        if path.is_symlink() and not target.is_relative_to(root):
            raise RatchetError(
                "outside",
                f"{path} is a symbolic link to {target}, which lies outside the repository {root}: put the "
                "file itself there, if you trust where the link comes from",
            )
