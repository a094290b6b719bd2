"""The contract of a kernel.py: loads it, checks the names that it must define, and reads its claims."""

import ast
import functools
import inspect
import linecache
import math
import numbers
import sys
import traceback
import types
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder
from types import TracebackType
from typing import Any

import jax
import jax.numpy as jnp

from harness.judge.evaluate.trace import imports, jaxprs, packages
from harness.records import KERNEL, Claims, Stage, Statement, TilingClaim
from harness.sandbox.messages import Rejected, description, traceback_text

FILE = "kernel.py"
# A copy, because kernel.py may change sys.path while it runs.
_PATHS = tuple(sys.path)


class CandidateCode:
    """A context for the candidate's code. Turns an exception into a Rejected that names the line of the exception."""

    def __init__(self, stage: Stage, kind: str, doing: str) -> None:
        self._stage = stage
        self._kind = kind
        self._doing = doing

    def __enter__(self) -> None:
        return None

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error is None or isinstance(error, (Rejected, MemoryError)):
            return
        frames = [(at.filename, at.lineno or 0) for at in reversed(traceback.extract_tb(trace))]
        own_frame = next((number for number, (file, _) in enumerate(frames) if jaxprs.is_own(file)), len(frames))
        places = [f"{file} line {line}" for file, line in frames[own_frame : own_frame + 1]]
        where = ", in ".join(filter(None, (*places, packages.place(frames[:own_frame]))))
        where += ": " * bool(where)
        message = f"{self._doing} failed: {where}{description(error).splitlines()[0]}"
        raise Rejected(self._stage, self._kind, message, traceback_text(error)) from error


def load(sources: Mapping[str, bytes]) -> tuple[types.ModuleType, tuple[str, ...]]:
    """The module that kernel.py defines, and sentences on unusual names in the candidate's sources.

    `sources` are the candidate's files by name: kernel.py, and helper modules that it can import. Tracebacks and dumps
    show these names without a folder. Raises Rejected `syntax-error`, `forbidden-import` or `helper-name` before any of
    the code runs, or `import-error`.
    """
    names = {file.removesuffix(".py"): file for file in sources if file != FILE}
    _refuse_names(names)
    flags: list[str] = []
    codes = {}
    for file, source in sources.items():
        try:
            flags += imports.flags(ast.parse(source, file), file, names)
            codes[file] = compile(source, file, "exec", dont_inherit=True)
        except SyntaxError as error:
            line = (error.text or "").rstrip()
            raise Rejected("contract", "syntax-error", f"{file} line {error.lineno}: {error.msg}", line) from error
        except (ValueError, RecursionError) as error:
            raise Rejected("contract", "syntax-error", f"{file} is not Python: {error}") from error
        linecache.checkcache(file)
    module = types.ModuleType("kernel")
    module.__file__ = FILE
    # A dataclass with string annotations looks up its module by name.
    sys.modules[module.__name__] = module
    # Removes the finder of a previously loaded candidate.
    sys.meta_path[:] = [finder for finder in sys.meta_path if not isinstance(finder, _Helpers)]
    if names:
        for name in names:
            sys.modules.pop(name, None)
        sys.meta_path.insert(0, _Helpers({name: codes[file] for name, file in names.items()}))
    with CandidateCode("contract", "import-error", f"importing {FILE}"):
        exec(codes[FILE], module.__dict__)
    return module, tuple(flags)


def _refuse_names(names: Mapping[str, str]) -> None:
    """Raises Rejected `helper-name` if a helper has the name of another module that can be imported."""
    for name, file in names.items():
        is_loaded = name in sys.modules and getattr(sys.modules[name], "__file__", None) != file
        is_of_python = name in sys.builtin_module_names or name in sys.stdlib_module_names
        if is_of_python or is_loaded or PathFinder.find_spec(name, _PATHS) is not None:
            message = (
                f"expected a name that no installed module has, got {file}: other code imports {name}; rename the file"
            )
            raise Rejected("contract", "helper-name", message)


class _Helpers(MetaPathFinder, Loader):
    """Imports the candidate's helper modules from their compiled code. No other file of the folder can be imported."""

    def __init__(self, codes: Mapping[str, types.CodeType]) -> None:
        self._codes = codes

    def find_spec(self, fullname: str, path: object, target: object = None) -> ModuleSpec | None:
        """The spec of the helper module of that name; None if there is no such helper."""
        return ModuleSpec(fullname, self, origin=f"{fullname}.py") if fullname in self._codes else None

    def exec_module(self, module: types.ModuleType) -> None:
        """Runs the module's code."""
        module.__file__ = f"{module.__name__}.py"
        exec(self._codes[module.__name__], module.__dict__)


def bind(module: types.ModuleType, statement: Statement, name: str) -> Callable[..., Any]:
    """A function that calls the module's `name` with the inputs, in order; by keyword if the names match.

    Raises Rejected `missing-kernel-fn` or `wrong-signature`.
    """
    names = [array.name for array in statement.inputs]
    expected = f"{name}({', '.join(names)})"
    function: Callable[..., Any] | None = getattr(module, name, None)
    if function is None:
        others = sorted(other for other, value in vars(module).items() if inspect.isfunction(value))
        message = f"expected {FILE} to define {expected}; its functions: {', '.join(others) or 'none'}"
        raise Rejected("contract", "missing-kernel-fn", message)
    if not callable(function):
        message = f"expected {name} to be a function, got {type(function).__name__}"
        raise Rejected("contract", "missing-kernel-fn", message)
    try:
        signature = inspect.signature(function)
    except (TypeError, ValueError):
        return function
    with suppress(TypeError):
        signature.bind(**dict.fromkeys(names))
        return functools.partial(_called_by_name, function, signature, names)
    with suppress(TypeError):
        signature.bind(*names)
        return function
    where = f"{FILE} line {function.__code__.co_firstlineno}: " if inspect.isfunction(function) else ""
    raise Rejected("contract", "wrong-signature", f"{where}expected {expected}, got {name}{signature}")


def _called_by_name(
    function: Callable[..., Any], signature: inspect.Signature, names: Sequence[str], *arrays: Any
) -> Any:
    """The function's result for arrays with these names. Some jitted functions take arguments only by position."""
    call = signature.bind(**dict(zip(names, arrays, strict=True)))
    return function(*call.args, **call.kwargs)


def claims(module: types.ModuleType, statement: Statement, function: str) -> Claims:
    """The kernel's claims about itself; None for each missing claim. Raises Rejected `bad-claim`.

    A kernel without a name gets the function's name. A kernel without a description gets the problem's title.
    compute_flops() and get_tiling_meta() describe only kernel_fn, not the other functions that a suite judges.
    """
    flops = tiling = None
    if hasattr(module, "compute_flops") and function == KERNEL:
        with CandidateCode("contract", "bad-claim", "compute_flops()"):
            flops = _integer(_claim(module.compute_flops, statement), "compute_flops()")
    if hasattr(module, "get_tiling_meta") and function == KERNEL:
        with CandidateCode("contract", "bad-claim", "get_tiling_meta()"):
            tiling = _tiling(_claim(module.get_tiling_meta, statement))
    return Claims(
        kernel_name=_words(module, "KERNEL_NAME", function),
        problem_description=_words(module, "PROBLEM_DESCRIPTION", statement.title),
        flops=flops,
        tiling=tiling,
    )


def _words(module: types.ModuleType, name: str, default: str) -> str:
    value = getattr(module, name, default)
    if not isinstance(value, str) or not value.strip():
        raise Rejected(
            "contract", "bad-claim", f"expected {name} of {FILE} to be a non-empty string, got {value!r}; correct it"
        )
    return value


def _claim(function: Callable[..., Any], statement: Statement) -> Any:
    """The result of `function`, called with those parameters of the problem that its signature names."""
    named = inspect.signature(function).parameters
    return function(**{name: value for name, value in statement.parameters if name in named})


def _tiling(meta: object) -> TilingClaim:
    """The claim in a comparable form. `buffers` of `meta` maps the name of each buffer to its shape and dtype."""
    where = "get_tiling_meta()"
    if not isinstance(meta, Mapping):
        raise Rejected("contract", "bad-claim", f"expected {where} to return a dict, got {type(meta).__name__}")
    grid = meta.get("grid")
    if grid is not None:
        grid = tuple(_integer(extent, f"{where}['grid']") for extent in grid)
    buffers = meta.get("buffers")
    return TilingClaim(
        grid=grid,
        input_bytes=_total(meta, "inputs"),
        output_bytes=_total(meta, "outputs"),
        buffer_bytes=None if buffers is None else sum(_buffer_bytes(name, buffer) for name, buffer in buffers.items()),
        vregs=None if meta.get("vregs") is None else _integer(meta["vregs"], f"{where}['vregs']"),
    )


def _total(meta: Mapping[str, Any], name: str) -> int | None:
    parts = meta.get(name)
    return None if parts is None else sum(_integer(n, f"get_tiling_meta()['{name}']") for n in parts.values())


def _buffer_bytes(name: str, buffer: Any) -> int:
    shape, dtype = buffer
    extents = (_integer(extent, f"get_tiling_meta()['buffers']['{name}']") for extent in shape)
    return int(jnp.dtype(dtype).itemsize) * math.prod(extents)


def _integer(value: object, what: str) -> int:
    """The number as an int; `what` says in the message of a Rejected where the number is from."""
    if isinstance(value, numbers.Real) and not isinstance(value, bool) and value == math.floor(value):
        return math.floor(value)  # type: ignore[return-value]  # math.floor of a real number is an int
    raise Rejected("contract", "bad-claim", f"expected {what} to give whole numbers, got {value!r}; correct it")


def refuse_outputs(out: Any, statement: Statement) -> None:
    """Raises Rejected `wrong-structure`, `wrong-shape` or `wrong-dtype` if `out` does not match the stated results."""
    expected = statement.results
    words = ", ".join(f"{a.name}: {a.dtype}{list(a.shape)}" for a in expected)
    single = len(expected) == 1
    leaves = [out] if single else list(out) if isinstance(out, (tuple, list)) else []
    if len(leaves) != len(expected) or not all(isinstance(leaf, jax.ShapeDtypeStruct) for leaf in leaves):
        got = type(out).__name__
        if isinstance(out, (tuple, list, dict)):
            got += f" of {len(out)}"
        raise Rejected("contract", "wrong-structure", f"expected kernel_fn to return {words}, got {got}")
    for want, leaf in zip(expected, leaves, strict=True):
        if tuple(leaf.shape) != want.shape:
            message = f"expected {want.name} of shape {list(want.shape)}, got {list(leaf.shape)}"
            raise Rejected("contract", "wrong-shape", message)
        if str(leaf.dtype) != want.dtype:
            raise Rejected("contract", "wrong-dtype", f"expected {want.name} of dtype {want.dtype}, got {leaf.dtype}")
