"""What a kernel.py names that has no business in a kernel: found in its source, before any of it runs.

A kernel needs JAX, arithmetic and the standard library's pure parts. Three answers to the rest:
what serves only to get out of the process, into its memory, or round this check is refused; what
has honest uses (`os.environ`, a package of helpers) is allowed and named in the report, so that a
reader of a win sees it; everything else passes. A check of names is no wall - `confinement` is -
but it makes a way round it visible in the diff.
"""

import ast
from collections.abc import Iterator

from harness.measure.messages import Rejected
from harness.problems import defined

_PLAIN = frozenset((
    "__future__", "abc", "bisect", "collections", "contextlib", "copy", "dataclasses", "decimal", "enum", "fractions",
    "functools", "heapq", "itertools", "jax", "math", "ml_dtypes", "numbers", "numpy", "operator", "random", "re",
    "statistics", "string", "textwrap", "types", "typing", "typing_extensions", "warnings",
))  # fmt: skip
# Other processes and programs, the network, foreign memory, the interpreter's own insides, other
# ways to import, code from data - and the judge itself.
_REFUSED = frozenset((
    "_ctypes", "_frozen_importlib", "_imp", "_posixsubprocess", "_socket", "_thread", "asyncio", "atexit", "builtins",
    "cffi", "cloudpickle", "code", "codeop", "concurrent", "ctypes", "dill", "faulthandler", "fcntl", "ftplib", "gc",
    "harness", "http", "imp", "importlib", "marshal", "mmap", "msgspec", "multiprocessing", "pickle", "pkgutil",
    "posix", "ptrace", "pty", "requests", "resource", "runpy", "select", "selectors", "shelve", "signal", "site",
    "socket", "socketserver", "ssl", "subprocess", "sysconfig", "threading", "urllib", "urllib3", "zipimport",
))  # fmt: skip
_REFUSED_NAMES = frozenset(("__builtins__", "__import__", "__loader__", "__spec__", "compile", "eval", "exec"))
_REFUSED_ATTRIBUTES = frozenset((
    "__builtins__", "__closure__", "__code__", "__globals__", "__loader__", "__subclasses__", "_getframe",
    "_current_frames", "currentframe", "f_back", "f_builtins", "f_globals", "f_locals", "gi_frame", "setprofile",
    "settrace", "tb_frame",
))  # fmt: skip


def flags(tree: ast.AST) -> tuple[str, ...]:
    """What is unusual but allowed, in sentences. Raises Rejected `forbidden-import` at what is not allowed."""
    said: dict[str, str] = {}
    for node in ast.walk(tree):
        for name in _imported(node):
            top = name.partition(".")[0]
            if top in _REFUSED or defined.is_prepare(top):
                raise _refused(node, f"imports {name}")
            if top not in _PLAIN or name.startswith(("jax._src", "numpy.ctypeslib", "numpy.f2py")):
                said.setdefault(name, f"kernel.py line {_line(node)} imports {name}, which few kernels need: read why")
        if isinstance(node, ast.Name) and node.id in _REFUSED_NAMES:
            raise _refused(node, f"names {node.id}")
        if isinstance(node, ast.Attribute) and node.attr in _REFUSED_ATTRIBUTES:
            raise _refused(node, f"names {node.attr}")
        if isinstance(node, ast.Constant) and node.value in _REFUSED_ATTRIBUTES:
            raise _refused(node, f"names {node.value} in a text")
    return tuple(said.values())


def _imported(node: ast.AST) -> Iterator[str]:
    if isinstance(node, ast.Import):
        yield from (alias.name for alias in node.names)
    elif isinstance(node, ast.ImportFrom):
        yield from (f"{node.module or '.'}.{alias.name}" for alias in node.names)


def _refused(node: ast.AST, what: str) -> Rejected:
    said = f"kernel.py line {_line(node)} {what}: expected a kernel to need JAX and arithmetic only; remove it"
    return Rejected("static", "forbidden-import", said)


def _line(node: ast.AST) -> int:
    return int(getattr(node, "lineno", 0))
