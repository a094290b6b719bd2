"""A thin kernel.py around a function that exists: its options become constants for `--set`."""

import ast
import importlib.metadata
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from harness.candidate import KERNEL, Candidate, rewrite
from harness.candidate import names as names_in
from harness.errors import RatchetError
from harness.loop.find_function import ExistingFunction
from harness.records import Failure, Statement
from harness.records.problem import Parameter

_WRAPPERS = Path(__file__).parents[1] / "operators"
_WRAPS = re.compile(r"^Wraps: (\S+)$", re.M)
# Other names of a problem's parameters in published kernels.
_ALSO_CALLED = {
    "sm_scale": "scale",
    "softmax_scale": "scale",
    "is_causal": "causal",
    "epsilon": "eps",
    "num_heads": "heads",
}
# Options for debugging, or for a machine that is not judged.
_LEFT_OUT = ("interpret", "debug", "mesh", "cost_estimate", "name")
_LACKING = re.compile(r"No module named '([\w.]+)'")
_PINNED = re.compile(r"jax *(==|~=) *([\d.]+)")


@dataclass(frozen=True, slots=True, kw_only=True)
class Variant:
    """One kernel.py, and its way of passing the problem's arrays, in words.

    `departures` are the options that differ from the function's defaults, in words.
    """

    candidate: Candidate
    words: str
    departures: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class _Option:
    """One option of the function: texts of its value and default (None: no default); `is_by_name`: from the problem."""

    name: str
    value: str
    default: str | None
    is_by_name: bool = False


def variants(
    wanted: ExistingFunction, statement: Statement, settings: tuple[tuple[str, str], ...]
) -> Iterator[Variant]:
    """The kernels that call `wanted` for this problem, the likeliest first; `settings` are the user's constants.

    Raises RatchetError `missing-option` if the function needs a value that nobody gave.
    """
    for path in sorted(_WRAPPERS.glob("*/existing/*.py")):
        source = path.read_bytes()
        if wanted.name in _WRAPS.findall(ast.get_docstring(ast.parse(source)) or ""):
            yield _of_wrapper(source, statement)
            return
    options = _options(wanted, statement, dict(settings))
    # A parameter of the same name may mean something else here; then the package's default is right.
    left = tuple(option for option in options if not option.is_by_name or option.default is None)
    for some in (options, left) if left != options else (options,):
        departures = tuple(
            f"{option.name} = {option.value} ({'problem' if option.is_by_name else '--set'}; default: {option.default})"
            for option in some
            if option.default is not None and option.value != option.default
        )
        for body, words in _bodies(statement):
            yield Variant(candidate=_candidate(wanted, statement, some, body), words=words, departures=departures)


def missing_package(failure: Failure) -> str:
    """The imported package that is not installed, if the failure names one, else ""."""
    match = _LACKING.search(failure.message)
    return match[1].partition(".")[0] if match else ""


def other_jax_pinned(wanted: ExistingFunction) -> str:
    """`; tpu-inference 0.32.0 asks for jax==0.11.2, here is 0.10.2` if the package pins another JAX, else ""."""
    top = wanted.module.partition(".")[0]
    here = importlib.metadata.version("jax")
    for name in importlib.metadata.packages_distributions().get(top, ()):
        for asked in importlib.metadata.requires(name) or ():
            text, _, condition = asked.partition(";")
            pinned = _PINNED.fullmatch(text.strip())
            if pinned is None or "extra" in condition:
                continue
            how, version = pinned.groups()
            parts = version.split(".")[: 2 if how == "~=" else None]
            if here.split(".")[: len(parts)] != parts:
                return f"; {name} {importlib.metadata.version(name)} asks for jax{how}{version}, here is {here}"
    return ""


def _of_wrapper(source: bytes, statement: Statement) -> Variant:
    """One of our wrappers, with the constants named like the problem's parameters set to their values."""
    left = dict(Candidate(text=source).tunable)
    for name, value in statement.parameters:
        if name.upper() in left:
            source = rewrite(source, name.upper(), repr(value), "kernel.py")
            del left[name.upper()]
    # None in a wrapper leaves the choice to the package.
    departures = tuple(f"{name} = {value}" for name, value in left.items() if value != "None")
    return Variant(candidate=Candidate(text=source), words="as its own wrapper does", departures=departures)


def _options(wanted: ExistingFunction, statement: Statement, settings: Mapping[str, str]) -> tuple[_Option, ...]:
    """The function's options beside the problem's arrays, with the text of each value."""
    if wanted.node is None:
        return ()
    arguments = wanted.node.args
    positional = [*arguments.posonlyargs, *arguments.args]
    count = len(statement.inputs)
    if len(positional) < count and arguments.vararg is None:
        raise RatchetError(
            "missing-option",
            f"expected {wanted.function} to take the problem's {count} arrays "
            f"({', '.join(array.name for array in statement.inputs)}), it takes {len(positional)}",
        )
    absent: list[ast.expr | None] = [None] * (len(positional) - len(arguments.defaults))
    pairs = [*zip(positional, (*absent, *arguments.defaults), strict=True)][count:]
    pairs += zip(arguments.kwonlyargs, arguments.kw_defaults, strict=True)
    parameters: dict[str, Parameter] = dict(statement.parameters)
    options: list[_Option] = []
    missing = []
    for argument, default in pairs:
        name = argument.arg
        meant = _ALSO_CALLED.get(name, name)
        if name in _LEFT_OUT:
            continue
        default_text = None if default is None else ast.unparse(default)
        if name.upper() in settings:
            by_name = meant in parameters
            options.append(_Option(name=name, value=settings[name.upper()], default=default_text, is_by_name=by_name))
        elif meant in parameters:
            options.append(_Option(name=name, value=repr(parameters[meant]), default=default_text, is_by_name=True))
        elif default_text is None:
            missing.append(name.upper())
        elif default is not None and _is_literal(default):
            options.append(_Option(name=name, value=default_text, default=default_text))
    if missing:
        raise RatchetError(
            "missing-option",
            f"{wanted.function} needs {', '.join(missing)}, which the problem does not say: give each with --set "
            "NAME=VALUE, or write kernel.py by hand",
        )
    return tuple(options)


def _is_literal(value: ast.expr) -> bool:
    try:
        ast.literal_eval(value)
    except ValueError:
        return False
    return True


def _bodies(statement: Statement) -> Iterator[tuple[str, str]]:
    """The bodies of kernel_fn to try, which use `call` (the function with its options), each with a description."""
    names = ", ".join(array.name for array in statement.inputs)
    yield f"    return call({names})", "with the arrays as they are"
    if len(statement.results) > 1:
        return
    axes = max(len(array.shape) for array in statement.inputs)
    dtype = statement.outputs[0].dtype
    yield f'    return call({names}).astype("{dtype}")', f"with the output converted to {dtype}"
    for more in range(1, 5 - axes):
        new = ", ".join(["None"] * more)
        old = ", ".join(["0"] * more)
        yield (
            f"    return call(*(x[{new}] for x in ({names},)))[{old}]",
            f"with {more} more leading {'axes' if more > 1 else 'axis'}",
        )
        whole = [array.name for array in statement.inputs if len(array.shape) == axes]
        if len(whole) < len(statement.inputs):
            mixed = ", ".join(
                f"{array.name}[{new}]" if array.name in whole else array.name for array in statement.inputs
            )
            description = f"with {more} more leading {'axes' if more > 1 else 'axis'} of {' and '.join(whole)}"
            yield f"    return call({mixed})[{old}]", description
    for less in range(1, axes - 1):
        yield f"    return {'jax.vmap(' * less}call{')' * less}({names})", f"mapped over {less} leading axes"
    # Heads after the sequence, as in many published functions.
    turned = {
        2: (f"    return call(*(x[None, :, None] for x in ({names},)))[0, :, 0]"),
        3: (f"    return call(*(x.swapaxes(0, 1)[None] for x in ({names},)))[0].swapaxes(0, 1)"),
        4: (f"    return call(*(x.swapaxes(1, 2) for x in ({names},))).swapaxes(1, 2)"),
    }
    if axes in turned and all(len(array.shape) == axes for array in statement.inputs):
        yield turned[axes], "with the heads behind the sequence"


def _candidate(wanted: ExistingFunction, statement: Statement, options: tuple[_Option, ...], body: str) -> Candidate:
    names = ", ".join(array.name for array in statement.inputs)
    # `--set` finds a constant by its name alone, in whichever file.
    of_helpers = frozenset[str]().union(*(names_in(data) for data in wanted.helpers.values()))
    named = {
        option: f"{wanted.function.upper()}_{name}" if (name := option.name.upper()) in of_helpers else name
        for option in options
    }
    constants = "".join(f"{name} = {option.value}\n" for option, name in named.items())
    handed = ", ".join(f"{option.name}={name}" for option, name in named.items())
    jax = "import jax\n" if "jax." in body else ""
    home = wanted.name.partition(":")[0]
    text = (
        f'"""{statement.operation} by {wanted.function} of {home}: what an experiment changes."""\n\n'
        f"import functools\n\n{jax}from {wanted.module} import {wanted.function} as existing\n\n"
        f'KERNEL_NAME = "{wanted.function}"\nPROBLEM_DESCRIPTION = "{statement.operation}"\n\n'
        f"{constants}{chr(10) if constants else ''}\n"
        f"def kernel_fn({names}):\n    call = functools.partial(existing{', ' + handed if handed else ''})\n{body}\n"
    )
    return Candidate.of_files({**wanted.helpers, KERNEL: text.encode()})
