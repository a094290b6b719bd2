"""Before any code of kernel.py runs, finds names in its source that do not belong in a kernel.

A kernel needs JAX, arithmetic and the standard library's pure parts; these names pass. Names are refused if they serve
only to leave the process, to access its memory or to avoid this check. All other imports have honest uses (a package of
helpers), so they are allowed, and the report names them. The check of names is no barrier (`confinement` is one), but a
diff shows attempts to avoid it.
"""

import ast
import re
import sys
import types
from collections.abc import Container, Iterable, Iterator

from harness.operators import prepare_module
from harness.sandbox.messages import Rejected

_PLAIN = frozenset((
    "__future__", "abc", "bisect", "collections", "contextlib", "copy", "dataclasses", "decimal", "enum", "fractions",
    "functools", "heapq", "itertools", "jax", "math", "ml_dtypes", "numbers", "numpy", "operator", "random", "re",
    "statistics", "string", "textwrap", "types", "typing", "typing_extensions", "warnings",
))  # fmt: skip
# Modules for other processes and programs, the network, foreign memory, the interpreter's internals, delayed calls,
# other ways to import, and code from data; and the judge itself.
_REFUSED = frozenset((
    "_ctypes", "_frozen_importlib", "_imp", "_posixsubprocess", "_socket", "_thread", "asyncio", "atexit", "builtins",
    "cffi", "cloudpickle", "code", "codecs", "codeop", "concurrent", "copyreg", "ctypes", "dill", "faulthandler",
    "fcntl", "ftplib", "gc", "harness", "http", "imp", "importlib", "marshal", "mmap", "msgspec", "multiprocessing",
    "pickle", "pkgutil", "posix", "ptrace", "pty", "requests", "resource", "runpy", "select", "selectors", "shelve",
    "signal", "site", "socket", "socketserver", "ssl", "subprocess", "sysconfig", "threading", "urllib", "urllib3",
    "weakref", "zipimport",
))  # fmt: skip
_UNUSUAL = "which few kernels need; check its use"
_REFUSED_NAMES = frozenset(("__builtins__", "__import__", "__loader__", "__spec__", "compile", "eval", "exec"))
_REFUSED_ATTRIBUTES = frozenset((
    "__builtins__", "__closure__", "__code__", "__globals__", "__loader__", "__self__", "__subclasses__", "_getframe",
    "_current_frames", "currentframe", "f_back", "f_builtins", "f_globals", "f_locals", "gi_frame", "setprofile",
    "settrace", "tb_frame",
    # Foreign memory and libraries, which can be accessed through numpy's arrays and modules.
    "CDLL", "LibraryLoader", "PyDLL", "_ctypes", "_dlopen", "cdll", "ctypes", "ctypeslib", "dlopen", "f2py",
    "pythonapi",
    # Modules that are attributes of other modules: a kernel that needs one of these modules imports it by name.
    "_frozen_importlib", "_imp", "_io", "_os", "_posixsubprocess", "_socket", "_sys", "_thread", "bltns", "builtins",
    "gc", "importlib", "multiprocessing", "os", "posix", "socket", "subprocess", "sys", "threading",
    # Ways to register a function that JAX calls during tracing and compilation, or that Python calls at certain events.
    "__breakpointhook__", "addaudithook", "breakpointhook", "displayhook", "meta_path", "monitoring",
    "path_hooks", "register_at_fork", "set_asyncgen_hooks", "set_coroutine_origin_tracking_depth",
    # Ways to have typing evaluate a text.
    "ForwardRef", "_eval_type", "_evaluate", "get_type_hints",
))  # fmt: skip
# Refused attributes that are also ordinary words. A text that equals such a word is allowed.
_WORDS = frozenset(("gc", "os", "sys", "posix", "socket", "builtins", "multiprocessing", "threading"))
# Ways to access an attribute or module without its name. Only a person can find out which object is accessed.
_UNUSUAL_ATTRIBUTES = frozenset(("__dict__", "__getattribute__", "_src", "attrgetter", "modules"))
_UNUSUAL_NAMES = frozenset(("globals", "vars"))
_DOTTED = re.compile(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)*")


def flags(tree: ast.AST, file: str = "kernel.py", helpers: Container[str] = ()) -> tuple[str, ...]:
    """Sentences on names that are unusual but allowed. Raises Rejected `forbidden-import` for forbidden names.

    `file` is the name of the tree's source. `helpers` are the modules next to kernel.py that belong to the candidate.
    """
    try:
        return tuple(f"{file} {flag}" for flag in _flags(tree, helpers))
    except _Refused as refused:
        message = f"{file} {refused}: expected only names for JAX and arithmetic; remove it"
        raise Rejected("static", "forbidden-import", message) from refused


class _Refused(Exception):
    """An import or name that does not belong in a kernel: its line, and a description."""


def _flags(tree: ast.AST, helpers: Container[str]) -> Iterable[str]:
    sentences: dict[str, str] = {}
    modules = _imported_modules(tree)
    for node in ast.walk(tree):
        line = f"line {int(getattr(node, 'lineno', 0))}"
        for name in _imported(node):
            _refuse_name(line, name, "imports")
            top = name.partition(".")[0]
            if top not in helpers and (top not in _PLAIN or name.startswith("jax._src")):
                sentences.setdefault(name, f"{line} imports {name}, {_UNUSUAL}")
        module = _reached(node, modules)
        if module is not None:
            _refuse_name(line, module, "reaches")
            if module.partition(".")[0] not in _PLAIN:
                sentences.setdefault(module, f"{line} reaches {module}, {_UNUSUAL}")
        if isinstance(node, ast.Name) and node.id in _REFUSED_NAMES:
            raise _Refused(f"{line} names {node.id}")
        for name in _attributes(node):
            if name in _REFUSED_ATTRIBUTES:
                raise _Refused(f"{line} names {name}{' in a string' if isinstance(node, ast.Constant) else ''}")
        unusual = _unusual(node)
        if unusual:
            sentences.setdefault(unusual, f"{line} {unusual}, {_UNUSUAL}")
    return sentences.values()


def _refuse_name(line: str, name: str, how: str) -> None:
    """Raises _Refused if the module's name or a part of the name is refused."""
    top, *parts = name.split(".")
    if top in _REFUSED or prepare_module.is_prepare(top) or not _REFUSED_ATTRIBUTES.isdisjoint(parts):
        raise _Refused(f"{line} {how} {name}")


def _imported(node: ast.AST) -> Iterator[str]:
    if isinstance(node, ast.Import):
        yield from (alias.name for alias in node.names)
    elif isinstance(node, ast.ImportFrom):
        yield from (f"{node.module or '.'}.{alias.name}" for alias in node.names)


def _imported_modules(tree: ast.AST) -> dict[str, types.ModuleType]:
    """The modules that the file's imports bind to names, if this process has imported them."""
    modules: dict[str, types.ModuleType] = {}
    for node in ast.walk(tree):
        if not isinstance(node, (ast.Import, ast.ImportFrom)):
            continue
        for alias, name in zip(node.names, _imported(node), strict=True):
            # `import a.b` binds `a`; the other forms bind the named module.
            is_whole = alias.asname or isinstance(node, ast.ImportFrom)
            module = sys.modules.get(name if is_whole else name.partition(".")[0])
            if module is not None:
                modules[alias.asname or (alias.name if is_whole else alias.name.partition(".")[0])] = module
    return modules


def _reached(node: ast.AST, modules: dict[str, types.ModuleType]) -> str | None:
    """The name of the module at the end of a chain of attributes of an imported module: `np.linalg`, `enum.bltns`.

    None for any other node. Attributes are looked up in the module's dictionary; attributes that a module creates on
    access are ignored.
    """
    parts: list[str] = []
    at = node
    while isinstance(at, ast.Attribute):
        parts.append(at.attr)
        at = at.value
    if not parts or not isinstance(at, ast.Name) or at.id not in modules:
        return None
    value: object = modules[at.id]
    for part in reversed(parts):
        value = vars(value).get(part) if isinstance(value, types.ModuleType) else None
    return value.__name__ if isinstance(value, types.ModuleType) else None


def _attributes(node: ast.AST) -> Iterable[str]:
    """The attributes that a node names: after a dot, in a pattern of `match`, or as a text for getattr."""
    if isinstance(node, ast.Attribute):
        return (node.attr,)
    if isinstance(node, ast.MatchClass):
        return node.kwd_attrs
    if isinstance(node, ast.Constant) and isinstance(node.value, str) and _DOTTED.fullmatch(node.value):
        return (part for part in node.value.split(".") if part not in _WORDS)
    return ()


def _unusual(node: ast.AST) -> str | None:
    """A description of a node that may read an attribute or module without naming it; None for other nodes."""
    if isinstance(node, ast.Attribute) and node.attr in _UNUSUAL_ATTRIBUTES:
        return f"names {node.attr}"
    if isinstance(node, ast.Name) and node.id in _UNUSUAL_NAMES:
        return f"names {node.id}"
    if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Name):
        return None
    if node.func.id in ("getattr", "setattr") and not any(isinstance(name, ast.Constant) for name in node.args[1:2]):
        return f"calls {node.func.id} with a computed name"
    return None
