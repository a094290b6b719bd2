"""The folders that a program may name: a path outside of them, directly or through a symbolic link, is refused."""

import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from harness.errors import UsageError
from harness.files import LINKS_OF_A_CONTEST
from harness.shell.arguments import FUNCTION

# The most entries of a folder that are examined, which takes a second. A folder of captures has some hundred entries.
_ENTRIES = 100_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Roots:
    """Absolute folders without symbolic links in them."""

    folders: tuple[Path, ...]

    def contest(self, folder: Path) -> Path:
        """The contest's folder, if it and the targets of its links lie below a root. Raises UsageError `outside`."""
        resolved = self._resolved(str(folder))
        for path in (path for pattern in LINKS_OF_A_CONTEST for path in resolved.glob(pattern)):
            self.path(str(path))
        return resolved

    def text(self, text: str) -> None:
        """Raises UsageError `outside` if `text`, or the value of `NAME=` in it, names a path outside of the roots.

        A function of a file, `step.py:main`, is refused too (`runs-a-program`), because it would run unconfined.
        """
        if FUNCTION.fullmatch(text):
            raise UsageError(
                "runs-a-program",
                f"expected no function of a program, which would run unconfined, got {text!r}: "
                "run it with ratchet.sh on a terminal",
            )
        if text.startswith("gs://"):
            raise self._outside(text)
        for word in {text, text.partition("=")[2]}:
            if _is_there(word) or _is_there(os.path.expanduser(word)):
                self.path(word)

    def path(self, text: str) -> Path:
        """The path without symbolic links; everything in a folder must also stay below the roots.

        Raises UsageError `outside`, or `too-many-files` for a folder with too many entries.
        """
        resolved = self._resolved(text)
        for link in _links(resolved):
            if not self._holds(Path(os.path.realpath(link))):
                raise self._outside(f"{text}, in which {link.relative_to(resolved)} is a symbolic link")
        return resolved

    def _resolved(self, text: str) -> Path:
        try:
            resolved = Path(os.path.realpath(os.path.expanduser(text)))
        except ValueError as error:
            raise UsageError("usage", f"expected a path, got {text!r}: {error}") from error
        if not self._holds(resolved):
            raise self._outside(text)
        return resolved

    def _holds(self, path: Path) -> bool:
        return any(path.is_relative_to(folder) for folder in self.folders)

    def _outside(self, what: str) -> UsageError:
        below = " or ".join(map(str, self.folders))
        return UsageError(
            "outside", f"expected a path below {below}, got {what}: `ratchet.sh mcp --root DIR` opens other folders"
        )


def _is_there(text: str) -> bool:
    try:
        return os.path.lexists(text)
    except ValueError:
        return False


def _links(folder: Path) -> Iterator[Path]:
    """The symbolic links in `folder`, except those in .git and .venv, which no verb reads as captures.

    Raises UsageError `too-many-files`.
    """
    seen = 0
    for above, folders, files in os.walk(folder):
        folders[:] = [name for name in folders if name not in (".git", ".venv")]
        for name in (*folders, *files):
            seen += 1
            if seen > _ENTRIES:
                raise UsageError(
                    "too-many-files",
                    f"expected a folder of captures, got {folder}: over {_ENTRIES:,} files and folders",
                )
            path = Path(above) / name
            if path.is_symlink():
                yield path
