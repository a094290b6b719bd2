"""The text of a candidate: kernel.py and, behind it, the helper modules beside it that it imports, in one.

A kernel.py without helpers is its own text. A helper follows under a line with its name, so that one hash, one diff
and one blob stand for all files of a candidate.
"""

import ast
import re
import sys
from collections.abc import Callable, Mapping
from pathlib import Path

from harness.errors import RatchetError

KERNEL = "kernel.py"
# The judge's file, which no kernel imports.
_JUDGES = frozenset(("kernel", "prepare"))
# Most kernels import these and nothing else: no file of such a name is looked for.
_INSTALLED = frozenset((*sys.stdlib_module_names, "harness", "jax", "jaxlib", "ml_dtypes", "numpy"))
_MARK = "\n# ---- beside kernel.py: {} ----\n"
_MARKED = re.compile(rb"\n# ---- beside kernel\.py: ([A-Za-z_]\w*\.py) ----\n")

Read = Callable[[str], bytes | None]


def gathered(kernel: bytes, read: Read) -> bytes:
    """The text of the candidate whose kernel.py is `kernel`; `read` gives the file of a name beside it, or None.

    Raises RatchetError `reserved-line` where a file holds a line that only a text of several files has.
    """
    files = {KERNEL: kernel}
    todo = [kernel]
    while todo:
        for name in sorted(_imported(todo.pop())):
            found = None if f"{name}.py" in files else read(f"{name}.py")
            if found is not None:
                files[f"{name}.py"] = found
                todo.append(found)
    return text_of(files)


def text_of(files: Mapping[str, bytes]) -> bytes:
    """The text that holds these files. Raises RatchetError `reserved-line`."""
    for name, data in files.items():
        if _MARKED.search(b"\n" + data + b"\n"):
            raise RatchetError(
                "reserved-line", f"expected no line `{_MARK.format('NAME.py').strip()}` in {name}; remove it"
            )
    helpers = sorted(name for name in files if name != KERNEL)
    return files[KERNEL] + b"".join(_MARK.format(name).encode() + files[name] for name in helpers)


def files_of(text: bytes) -> dict[str, bytes]:
    """The files that a text holds, kernel.py last: what it imports is there when it is."""
    kernel, *rest = _MARKED.split(text)
    helpers = {name.decode(): data for name, data in zip(rest[::2], rest[1::2], strict=True)}
    return {**helpers, KERNEL: kernel}


def in_folder(folder: Path) -> bytes:
    """The text of the candidate in `folder`. Raises OSError where there is no kernel.py, and as `gathered`."""
    return gathered((folder / KERNEL).read_bytes(), lambda name: read_file(folder / name))


def read_file(path: Path) -> bytes | None:
    """The bytes of a file, None where there is none: a link is somebody else's file."""
    return path.read_bytes() if path.is_file() and not path.is_symlink() else None


def may_have_helpers(kernel: bytes) -> bool:
    """Whether a kernel.py imports what may be a file beside it."""
    return bool(_imported(kernel))


def _imported(source: bytes) -> set[str]:
    """The modules that a file imports and that may lie beside it; none of what is no Python."""
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
