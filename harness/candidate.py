"""A candidate: kernel.py and, behind it, the helper modules next to it that it imports, in one text.

A kernel.py without helpers is its own text. A helper follows under a line with its name, so that one hash, one diff
and one blob stand for all files of a candidate.
"""

import ast
import hashlib
import re
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from harness.constants import Settings, constants, refuse_text, rewrite
from harness.errors import RatchetError

KERNEL = "kernel.py"
# The judge's file, which no kernel imports.
_JUDGES = frozenset(("kernel", "prepare"))
# Most kernels import these and nothing else: no file of such a name is looked for.
_INSTALLED = frozenset((*sys.stdlib_module_names, "harness", "jax", "jaxlib", "ml_dtypes", "numpy"))
_MARK = "\n# ---- beside kernel.py: {} ----\n"
_MARKED = re.compile(rb"\n# ---- beside kernel\.py: ([A-Za-z_]\w*\.py) ----\n")
# Constants that are words for people.
_WORDS = ("KERNEL_NAME", "PROBLEM_DESCRIPTION")

Read = Callable[[str], bytes | None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Candidate:
    """The files of a candidate as one text; candidates with the same text are equal."""

    text: bytes

    @classmethod
    def of_kernel(cls, kernel: bytes, read: Read) -> "Candidate":
        """The candidate whose kernel.py is `kernel`; `read` gives the file of a name next to it, or None.

        Raises RatchetError `reserved-line` where a file holds a line that only a text of several files has.
        """
        files = {KERNEL: kernel}
        todo = [kernel]
        while todo:
            for name in sorted(_imported(todo.pop())):
                helper = None if f"{name}.py" in files else read(f"{name}.py")
                if helper is not None:
                    files[f"{name}.py"] = helper
                    todo.append(helper)
        return cls.of_files(files)

    @classmethod
    def of_files(cls, files: Mapping[str, bytes]) -> "Candidate":
        """The candidate of these files, kernel.py among them. Raises RatchetError `reserved-line`."""
        for name, data in files.items():
            if _MARKED.search(b"\n" + data + b"\n"):
                raise RatchetError(
                    "reserved-line", f"expected no line `{_MARK.format('NAME.py').strip()}` in {name}; remove it"
                )
        helpers = sorted(name for name in files if name != KERNEL)
        return cls(text=files[KERNEL] + b"".join(_MARK.format(name).encode() + files[name] for name in helpers))

    @classmethod
    def of_file(cls, path: Path) -> "Candidate":
        """The candidate whose kernel.py is the file `path`. Raises OSError where there is none, and as `of_kernel`."""
        return cls.of_kernel(path.read_bytes(), lambda name: read_file(path.with_name(name)))

    @classmethod
    def in_folder(cls, folder: Path) -> "Candidate":
        """The candidate in `folder`. Raises OSError where there is no kernel.py, and as `of_kernel`."""
        return cls.of_file(folder / KERNEL)

    @property
    def files(self) -> dict[str, bytes]:
        """Its files by name, kernel.py last: when it is written, the helpers that it imports are there."""
        kernel, *rest = _MARKED.split(self.text)
        helpers = {name.decode(): data for name, data in zip(rest[::2], rest[1::2], strict=True)}
        return {**helpers, KERNEL: kernel}

    @property
    def source(self) -> str:
        """Its text for people and parsers; what is no UTF-8 is replaced."""
        return self.text.decode("utf-8", "replace")

    @property
    def lines(self) -> dict[str, list[str]]:
        """The lines of its files, by the file's name."""
        return {name: data.decode("utf-8", "replace").splitlines() for name, data in self.files.items()}

    @property
    def sha256(self) -> str:
        """The hash by which records know it."""
        return hashlib.sha256(self.text).hexdigest()

    @property
    def constants(self) -> Settings:
        """The constants that `set` can change and their literals, in their order; empty if it is not Python."""
        return constants(self.text)

    @property
    def tunable(self) -> Settings:
        """The constants without words for people, which change nothing of the program."""
        return tuple((name, value) for name, value in self.constants if name not in _WORDS)

    def set(self, settings: Settings) -> "Candidate":
        """The candidate with these constants rewritten, all else byte for byte.

        Raises RatchetError `unknown-constant` and `syntax-error` as `rewrite` does, UsageError `bad-setting`.
        """
        text = self.text
        for name, value in settings:
            refuse_text(text, name, value)
            text = rewrite(text, name, value, KERNEL)
        return Candidate(text=text)


def read_file(path: Path) -> bytes | None:
    """The bytes of a file, None where there is none: a link is somebody else's file."""
    return path.read_bytes() if path.is_file() and not path.is_symlink() else None


def may_have_helpers(kernel: bytes) -> bool:
    """Whether a kernel.py imports what may be a file next to it."""
    return bool(_imported(kernel))


def _imported(source: bytes) -> set[str]:
    """The modules that a file imports and that may lie next to it; none of what is no Python."""
    try:
        tree = ast.parse(source)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return set()
    names: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            names.update(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            names.add(node.module)
    return {name.partition(".")[0] for name in names} - _INSTALLED - _JUDGES
