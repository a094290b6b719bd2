"""A candidate: kernel.py and the helper modules that it imports from its folder, joined into one text.

Without helpers, the text is kernel.py itself. Each helper is appended under a line with its name, so that one hash, one
diff and one blob stand for all files of a candidate.
"""

import ast
import hashlib
import re
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from harness.errors import RatchetError, UsageError

KERNEL = "kernel.py"
# The contest's own files, which no kernel imports as helpers.
_JUDGES = frozenset(("kernel", "prepare"))
# Modules that are never helpers. Most kernels import only these, so most kernels need no search for helper files.
_INSTALLED = frozenset((*sys.stdlib_module_names, "harness", "jax", "jaxlib", "ml_dtypes", "numpy"))
_MARK = "\n# ---- beside kernel.py: {} ----\n"
_MARKED = re.compile(rb"\n# ---- beside kernel\.py: ([A-Za-z_]\w*\.py) ----\n")
# Constants that hold words for people; the suffix of constants that hold the name of an environment variable.
_WORDS = ("KERNEL_NAME", "PROBLEM_DESCRIPTION")
_VARIABLE = "_ENV"

Read = Callable[[str], bytes | None]
Settings = tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Candidate:
    """The files of a candidate as one text; candidates with the same text are equal."""

    text: bytes

    @classmethod
    def of_kernel(cls, kernel: bytes, read: Read) -> "Candidate":
        """The candidate whose kernel.py is `kernel`; `read(name)` returns the file next to it called `name`, or None.

        Raises RatchetError `reserved-line` if a file holds the line that separates the files of a candidate's text.
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
        """The candidate with these files, which include kernel.py. Raises RatchetError `reserved-line`."""
        for name, data in files.items():
            if _MARKED.search(b"\n" + data + b"\n"):
                mark = _MARK.format("NAME.py").strip()
                message = f"expected {name} without the line `{mark}`, which separates a candidate's files; remove it"
                raise RatchetError("reserved-line", message)
        helpers = sorted(name for name in files if name != KERNEL)
        return cls(text=files[KERNEL] + b"".join(_MARK.format(name).encode() + files[name] for name in helpers))

    @classmethod
    def of_file(cls, path: Path) -> "Candidate":
        """The candidate whose kernel.py is the file `path`.

        Raises OSError if there is no such file, and whatever `of_kernel` raises.
        """
        return cls.of_kernel(path.read_bytes(), lambda name: read_file(path.with_name(name)))

    @classmethod
    def in_folder(cls, folder: Path) -> "Candidate":
        """The candidate in `folder`. Raises OSError if there is no kernel.py, and the errors of `of_kernel`."""
        return cls.of_file(folder / KERNEL)

    @property
    def files(self) -> dict[str, bytes]:
        """The files by name, kernel.py last, so that its helpers exist when it is written."""
        kernel, *rest = _MARKED.split(self.text)
        helpers = {name.decode(): data for name, data in zip(rest[::2], rest[1::2], strict=True)}
        return {**helpers, KERNEL: kernel}

    @property
    def source(self) -> str:
        """The text as a str; bytes that are not UTF-8 are replaced."""
        return self.text.decode("utf-8", "replace")

    @property
    def lines(self) -> dict[str, list[str]]:
        """The lines of each file, by the file's name."""
        return {name: data.decode("utf-8", "replace").splitlines() for name, data in self.files.items()}

    @property
    def sha256(self) -> str:
        """The hash by which records identify the candidate."""
        return hashlib.sha256(self.text).hexdigest()

    @property
    def constants(self) -> Settings:
        """The constants of the text and their values, as the function `constants` returns them."""
        return constants(self.text)

    @property
    def tunable(self) -> Settings:
        """The constants, except those that hold words for people or names of environment variables."""
        return tuple(
            (name, value)
            for name, value in self.constants
            if name not in _WORDS and not name.upper().endswith(_VARIABLE)
        )

    def set(self, settings: Settings) -> "Candidate":
        """The candidate with these constants rewritten and everything else unchanged, byte for byte.

        Raises RatchetError `unknown-constant` and `syntax-error` as `rewrite` does, UsageError `bad-setting`.
        """
        text = self.text
        for name, value in settings:
            refuse_text(text, name, value)
            text = rewrite(text, name, value, KERNEL)
        return Candidate(text=text)


def read_file(path: Path) -> bytes | None:
    """The bytes of a file; None if there is no file or only a symbolic link."""
    return path.read_bytes() if path.is_file() and not path.is_symlink() else None


def may_have_helpers(kernel: bytes) -> bool:
    """True if a kernel.py imports a name that may be a file next to it."""
    return bool(_imported(kernel))


def _imported(source: bytes) -> set[str]:
    """The modules that a file imports and that may be files next to it; empty if the file is not valid Python."""
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


def constants(source: bytes) -> Settings:
    """The constants with their values; empty if `source` is not Python.

    A constant is a name that is assigned exactly once at the top level, to a plain value (`is_plain`).
    """
    try:
        tree = ast.parse(source)
    except (SyntaxError, ValueError):
        return ()
    single = {name: values[0] for name, values in _assigned(tree).items() if len(values) == 1}
    return tuple((name, ast.unparse(value)) for name, value in single.items() if is_plain(value))


def names(source: bytes) -> frozenset[str]:
    """The names that `name = ...` assigns at the top level; empty if `source` is not Python."""
    try:
        return frozenset(_assigned(ast.parse(source)))
    except (SyntaxError, ValueError):
        return frozenset()


def rewrite(source: bytes, name: str, value: str, where: str) -> bytes:
    """`source` with the value of its top-level assignment `name = ...` replaced by `value`, and all else unchanged.

    Raises RatchetError `unknown-constant`, which names the constants that exist, if there is not exactly one such
    assignment; `syntax-error` if `source` is not Python.
    """
    try:
        tree = ast.parse(source)
    except (SyntaxError, ValueError) as error:
        raise RatchetError("syntax-error", f"{where} is not valid Python: {error}") from None
    values = _assigned(tree)
    assigned = values.get(name, [])
    if len(assigned) != 1:
        constant_names = ", ".join(sorted(values)) or "none"
        problem = "is assigned more than once at the top level" if assigned else "is not assigned at the top level"
        raise RatchetError(
            "unknown-constant", f"--set {name}: {name} {problem} of {where}; constants there: {constant_names}"
        )
    old = assigned[0]
    lines = source.splitlines(keepends=True)
    assert old.end_lineno is not None
    assert old.end_col_offset is not None
    before = b"".join(lines[: old.lineno - 1]) + lines[old.lineno - 1][: old.col_offset]
    after = lines[old.end_lineno - 1][old.end_col_offset :] + b"".join(lines[old.end_lineno :])
    return before + value.encode() + after


def refuse_text(source: bytes, name: str, value: str) -> None:
    """Raises UsageError `bad-setting` if a string would replace a number: such a value is usually mistyped."""
    old = dict(constants(source)).get(name)
    if old is not None and _is_number(expression(old)) and isinstance(expression(value), ast.Constant):
        new = ast.literal_eval(value)
        if isinstance(new, str):
            raise UsageError(
                "bad-setting", f"--set {name}: expected a number, because {name} = {old} is a number, got {new!r}"
            )


def expression(text: str) -> ast.expr:
    """The syntax tree of an expression, such as a value that `constants` returns."""
    return ast.parse(text, mode="eval").body


def is_plain(value: ast.expr) -> bool:
    """True for a literal, and for arithmetic on numbers."""
    match value:
        case ast.BinOp(left, _, right):
            return _is_number(left) and _is_number(right)
        case ast.UnaryOp(ast.USub() | ast.UAdd(), operand) if isinstance(operand, ast.BinOp):
            return _is_number(operand)
    try:
        ast.literal_eval(value)
    except (ValueError, TypeError, MemoryError, RecursionError):
        return False
    return True


def _is_number(value: ast.expr) -> bool:
    match value:
        case ast.Constant(int() | float() as number):
            return not isinstance(number, bool)
        case ast.BinOp(left, _, right):
            return _is_number(left) and _is_number(right)
        case ast.UnaryOp(ast.USub() | ast.UAdd(), operand):
            return _is_number(operand)
    return False


def _assigned(tree: ast.Module) -> dict[str, list[ast.expr]]:
    """The values that `name = ...` assigns at the top level, by name."""
    values: dict[str, list[ast.expr]] = {}
    for node in tree.body:
        if isinstance(node, ast.Assign) and len(node.targets) == 1 and isinstance(node.targets[0], ast.Name):
            values.setdefault(node.targets[0].id, []).append(node.value)
        elif isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name) and node.value is not None:
            values.setdefault(node.target.id, []).append(node.value)
    return values
