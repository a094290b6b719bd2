"""Makes a thin kernel.py that calls an existing function; the function's options become constants for `--set`."""

import ast
import importlib.metadata
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from harness.advice import jax_names
from harness.candidate import KERNEL, Candidate, rewrite
from harness.candidate import names as names_in
from harness.errors import RatchetError
from harness.loop import option_types
from harness.loop.find_function import ExistingFunction
from harness.records import Failure, Statement
from harness.records.problem import Parameter
from harness.units import quantity

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
# Options that keep their defaults: they serve debugging, labels or several devices.
_LEFT_OUT = ("interpret", "debug", "mesh", "cost_estimate", "name")
_LACKING = re.compile(r"No module named '([\w.]+)'")
# The innermost file of an installed package, before the exception (`trace/contract.py`).
_RAISED_IN = re.compile(r"\bin (\w+)(?:/[\w/.-]+)?(?:\.py)? line \d+: ")
# Kinds of failures before the call of kernel_fn: no other way of calling the function helps.
BEFORE_THE_CALL = ("syntax-error", "forbidden-import", "foreign-import", "helper-name", "import-error")
# Messages about the output of a problem with a single output (`trace/traced.py`).
_SEVERAL = re.compile(r"to return \w+: \w+\[[\d, ]*\], got (?:tuple|list) of ([1-9]\d*)$")
_DTYPES = re.compile(r" of dtype (\w+), got \w+$")
_SHAPES = re.compile(r" of shape \[([\d, ]*)\], got \[([\d, ]*)\]$")
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
    """One option of the function: its value and default as texts (None: no default).

    `is_by_name`: the option has the name of a parameter of the problem.
    """

    name: str
    value: str
    default: str | None
    is_by_name: bool = False


def variants(
    wanted: ExistingFunction, statement: Statement, settings: tuple[tuple[str, str], ...]
) -> Iterator[Variant]:
    """The kernels that call `wanted` for this problem, the likeliest first; `settings` are the user's constants.

    Raises RatchetError `missing-option` if neither the problem nor `settings` states a value that the function needs,
    or if the function takes too few arrays.
    """
    for path in sorted(_WRAPPERS.glob("*/existing/*.py")):
        source = path.read_bytes()
        if wanted.name in _WRAPS.findall(ast.get_docstring(ast.parse(source)) or ""):
            yield _of_wrapper(source, statement)
            return
    names = tuple(array.name for array in statement.inputs)
    is_by_name = _takes_by_name(wanted, names)
    options = _options(wanted, statement, dict(settings), names if is_by_name else ())
    # A parameter of the same name may mean something else here, so the package's default is tried too.
    left = tuple(option for option in options if not option.is_by_name or option.default is None)
    for some in (options, left) if left != options else (options,):
        departures = tuple(
            f"{option.name} = {option.value} ({'problem' if option.is_by_name else '--set'}; default: {option.default})"
            for option in some
            if option.default is not None and option.value != option.default
        )
        for body, words in _bodies(statement):
            candidate = _candidate(wanted, statement, some, body, is_by_name)
            shown = f"{words}, by name" if is_by_name else words
            yield Variant(candidate=candidate, words=shown, departures=departures)


def missing_package(failure: Failure) -> str:
    """The package that the failure names as not installed or as failing when imported; "" if it names none."""
    match = _LACKING.search(failure.message)
    if match is None and failure.kind == "import-error":
        match = _RAISED_IN.search(failure.message)
    return match[1].partition(".")[0] if match else ""


def is_not_installed(failure: Failure) -> bool:
    """True if the import of a module failed because there is no such module."""
    return _LACKING.search(failure.message) is not None


def is_of_every_way(failure: Failure) -> bool:
    """True if every other way of calling the function would fail in the same way."""
    return failure.kind in (*BEFORE_THE_CALL, "known-jax-bug") or jax_names.lacks(failure.message)


def with_stated_output(variant: Variant, failure: Failure) -> Variant | None:
    """`variant` with its output converted to the form that the problem states; None if that does not mend `failure`.

    The first of several outputs is taken, axes of one element are added or removed, or the dtype is converted.
    """
    before, _, output = variant.candidate.files[KERNEL].decode().rstrip().rpartition("\n    return ")
    # The ratchet's own wrappers return other expressions, which are left as they are.
    change = _change_of_output(failure) if output.startswith(("call(", "jax.vmap(")) else None
    # A conversion that did not help is not repeated.
    if change is None or output.endswith(change[0]):
        return None
    code, words = change
    text = f"{before}\n    return {output}{code}\n".encode()
    candidate = Candidate.of_files({**variant.candidate.files, KERNEL: text})
    return replace(variant, candidate=candidate, words=f"{variant.words}, {words}")


def _change_of_output(failure: Failure) -> tuple[str, str] | None:
    """The code to append to a call to bring its output into the stated form, and a description of it."""
    if match := _SEVERAL.search(failure.message) if failure.kind == "wrong-structure" else None:
        return "[0]", f"the first of its {match[1]} outputs"
    if match := _DTYPES.search(failure.message) if failure.kind == "wrong-dtype" else None:
        return f'.astype("{match[1]}")', f"the output converted to {match[1]}"
    if match := _SHAPES.search(failure.message) if failure.kind == "wrong-shape" else None:
        stated, returned = ([int(extent) for extent in text.split(",") if extent.strip()] for text in match.groups())
        if [extent for extent in stated if extent != 1] == [extent for extent in returned if extent != 1]:
            code = _index(returned, "0") + _index(stated, "None")
            return code, f"the output reshaped from {returned} to {stated}"
    return None


def other_jax_pinned(wanted: ExistingFunction) -> str:
    """`; NAME 0.32.0 requires jax==0.11.2, but jax 0.10.2 is installed` if the package pins another JAX, else ""."""
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
                needs = f"{name} {importlib.metadata.version(name)} requires jax{how}{version}"
                return f"; {needs}, but jax {here} is installed"
    return ""


def _of_wrapper(source: bytes, statement: Statement) -> Variant:
    """One of the ratchet's wrappers; constants named like a parameter of the problem have the parameter's value."""
    left = dict(Candidate(text=source).tunable)
    for name, value in statement.parameters:
        if name.upper() in left:
            source = rewrite(source, name.upper(), repr(value), "kernel.py")
            del left[name.upper()]
    # For an option that a wrapper passes as None, the package chooses the value.
    departures = tuple(f"{name} = {value}" for name, value in left.items() if value != "None")
    return Variant(
        candidate=Candidate(text=source), words="as the ratchet's wrapper for it does", departures=departures
    )


def _takes_by_name(wanted: ExistingFunction, names: tuple[str, ...]) -> bool:
    """True if the arrays must be passed by name.

    This is the case if each array has a parameter of its name, but these parameters are not the first, or are in
    another order.
    """
    if wanted.node is None:
        return False
    arguments = wanted.node.args
    first = [argument.arg for argument in (*arguments.posonlyargs, *arguments.args)][: len(names)]
    return tuple(first) != names and {each.arg for each in (*arguments.args, *arguments.kwonlyargs)}.issuperset(names)


def _options(
    wanted: ExistingFunction, statement: Statement, settings: Mapping[str, str], by_name: tuple[str, ...]
) -> tuple[_Option, ...]:
    """The function's options (its parameters other than the problem's arrays), each with the text of its value.

    `by_name` are the parameters that take the arrays; if it is empty, the first parameters do.
    """
    if wanted.node is None:
        return ()
    arguments = wanted.node.args
    positional = [*arguments.posonlyargs, *arguments.args]
    count = 0 if by_name else len(statement.inputs)
    if len(positional) < count and arguments.vararg is None:
        raise RatchetError(
            "missing-option",
            f"expected {wanted.function} to take the problem's {count} arrays "
            f"({', '.join(array.name for array in statement.inputs)}), got a function with "
            f"{len(positional)} positional parameters; write kernel.py by hand",
        )
    absent: list[ast.expr | None] = [None] * (len(positional) - len(arguments.defaults))
    pairs = [*zip(positional, (*absent, *arguments.defaults), strict=True)][count:]
    pairs += zip(arguments.kwonlyargs, arguments.kw_defaults, strict=True)
    parameters: dict[str, Parameter] = dict(statement.parameters)
    options: list[_Option] = []
    missing: list[ast.arg] = []
    for argument, default in pairs:
        name = argument.arg
        meant = _ALSO_CALLED.get(name, name)
        if name in _LEFT_OUT or name in by_name:
            continue
        default_text = None if default is None else ast.unparse(default)
        if name.upper() in settings:
            is_known = meant in parameters
            options.append(_Option(name=name, value=settings[name.upper()], default=default_text, is_by_name=is_known))
        elif meant in parameters:
            options.append(_Option(name=name, value=repr(parameters[meant]), default=default_text, is_by_name=True))
        elif default_text is None:
            missing.append(argument)
        elif default is not None and option_types.is_literal(default):
            options.append(_Option(name=name, value=default_text, default=default_text))
    if missing:
        arrays = by_name or tuple(argument.arg for argument in positional[:count])
        raise _missing(wanted, missing, arrays, is_by_name=bool(by_name))
    return tuple(options)


def _missing(
    wanted: ExistingFunction, missing: list[ast.arg], arrays: tuple[str, ...], *, is_by_name: bool
) -> RatchetError:
    """The error that names the options without a value, and says how to give each a value.

    Literals are given with `--set`. If one of the values is an object that only code can make, the user has to write a
    function that makes the object.
    """
    names = ", ".join(argument.arg.upper() for argument in missing)
    needs = f"{wanted.function} needs {names}, which the problem does not state"
    types = {argument.arg: option_types.made_by_code(wanted, argument) for argument in missing}
    if not any(types.values()):
        ways = "give each with --set NAME=VALUE (a literal, such as 512 or '(512, 512)'), or write kernel.py by hand"
        return RatchetError("missing-option", f"{needs}: {ways}")
    made = " and ".join(f"{name.upper()} is {type_name}" for name, type_name in types.items() if type_name)
    file = f"next to {wanted.path.name} " if wanted.helpers else ""
    return RatchetError(
        "missing-option",
        f"{needs}, and {made}, which --set cannot give: write a function like the one below into mine.py {file}and "
        "pass --from mine.py:mine\n"
        f"{option_types.example(wanted, arrays, types, is_by_name=is_by_name)}",
    )


def _bodies(statement: Statement) -> Iterator[tuple[str, str]]:
    """The bodies of kernel_fn to try, which use `call` (the function with its options), each with a description."""
    names = ", ".join(array.name for array in statement.inputs)
    yield f"    return call({names})", "with the arrays as they are"
    if len(statement.results) > 1:
        return
    axes = max(len(array.shape) for array in statement.inputs)
    yield from _other_axes_of_one(statement, axes)
    for more in range(1, 5 - axes):
        new, old = (", ".join([index] * more) for index in ("None", "0"))
        description = f"with {quantity(more, 'more leading axis', 'more leading axes')}"
        yield f"    return call(*(x[{new}] for x in ({names},)))[{old}]", description
        whole = [array.name for array in statement.inputs if len(array.shape) == axes]
        if len(whole) < len(statement.inputs):
            mixed = ", ".join(
                f"{array.name}[{new}]" if array.name in whole else array.name for array in statement.inputs
            )
            yield f"    return call({mixed})[{old}]", f"{description} of {' and '.join(whole)}"
    for less in range(1, axes - 1):
        leading = quantity(less, "leading axis", "leading axes")
        yield f"    return {'jax.vmap(' * less}call{')' * less}({names})", f"mapped over {leading}"
    # Many published functions have the heads after the sequence.
    turned = {
        2: f"    return call(*(x[None, :, None] for x in ({names},)))[0, :, 0]",
        3: f"    return call(*(x.swapaxes(0, 1)[None] for x in ({names},)))[0].swapaxes(0, 1)",
        4: f"    return call(*(x.swapaxes(1, 2) for x in ({names},))).swapaxes(1, 2)",
    }
    if axes in turned and all(len(array.shape) == axes for array in statement.inputs):
        yield turned[axes], "with the heads after the sequence"


def _other_axes_of_one(statement: Statement, axes: int) -> Iterator[tuple[str, str]]:
    """Bodies that remove or add an axis of one element in inputs, such as `labels` [rows] instead of [rows, 1]."""
    vectors = [array.name for array in statement.inputs if len(array.shape) == 1 < axes]
    with_ones = [array for array in statement.inputs if 1 in array.shape]
    changes = (
        ("without the size-1 axes of", {array.name: _index(array.shape, "0") for array in with_ones}),
        ("with a last axis of size 1 on", dict.fromkeys(vectors, "[:, None]")),
        ("with a first axis of size 1 on", dict.fromkeys(vectors, "[None]")),
    )
    for words, indices in changes:
        if indices:
            handed = ", ".join(array.name + indices.get(array.name, "") for array in statement.inputs)
            yield f"    return call({handed})", f"{words} {' and '.join(indices)}"


def _index(shape: Sequence[int], mark: str) -> str:
    """An index with `mark` for each axis of size 1, such as `[:, 0]`; "" if no axis has size 1."""
    return f"[{', '.join(mark if extent == 1 else ':' for extent in shape)}]" if 1 in shape else ""


def _candidate(
    wanted: ExistingFunction, statement: Statement, options: tuple[_Option, ...], body: str, is_by_name: bool
) -> Candidate:
    names = ", ".join(array.name for array in statement.inputs)
    # `--set` finds a constant only by its name, in any of the files.
    of_helpers = frozenset[str]().union(*(names_in(data) for data in wanted.helpers.values()))
    named = {
        option: f"{wanted.function.upper()}_{name}" if (name := option.name.upper()) in of_helpers else name
        for option in options
    }
    constants = "".join(f"{name} = {option.value}\n" for option, name in named.items())
    handed = ", ".join(f"{option.name}={name}" for option, name in named.items())
    jax = "import jax\n" if "jax." in body else ""
    home = wanted.name.partition(":")[0]
    options_handed = f", {handed}" if handed else ""
    call = f"    call = functools.partial(existing{options_handed})"
    if is_by_name:
        by_name = ", ".join(f"{array.name}={array.name}" for array in statement.inputs)
        call = f"    def call({names}):\n        return existing({by_name}{options_handed})\n"
    functools = "" if is_by_name else "import functools\n\n"
    text = (
        f'"""{statement.operation} by {wanted.function} of {home}: what an experiment changes."""\n\n'
        f"{functools}{jax}from {wanted.module} import {wanted.function} as existing\n\n"
        f'KERNEL_NAME = "{wanted.function}"\nPROBLEM_DESCRIPTION = "{statement.operation}"\n\n'
        f"{constants}{chr(10) if constants else ''}\n"
        f"def kernel_fn({names}):\n{call}\n{body}\n"
    )
    return Candidate.of_files({**wanted.helpers, KERNEL: text.encode()})
