"""The normal form of a program, as lines. Names, comments and places in files do not change the normal form.

Each line of a traced program is an operation: the module and name of its primitive in JAX, its parameters, and the
numbers of its operands. Each line of an exported program is an operation in MLIR's generic form. The body of a kernel
consists of the lines of the kernel's module.
"""

import base64
import dataclasses
import enum
import hashlib
import json
import re
from collections import Counter, deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from itertools import zip_longest
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import tree_util
from jax.extend import core
from jax.interpreters import mlir
from jaxlib.mlir import ir

from harness.dumps import mosaic
from harness.judge.evaluate.trace import jaxprs, kernels, program_codec

# The prefix of the name of a primitive that JAX does not have.
UNKNOWN = "?:"
_ADDRESS = re.compile(r"\b0x[0-9a-f]+")
# Parameters and fields with names, source lines or information for people.
_NAMES = frozenset(("name", "name_and_src_info", "debug", "debug_info", "metadata", "origin"))
# Attributes that hold only names of the kernel or of results.
_NAMED_ATTRIBUTES = ("kernel_name", "jax.result_info")
_FRONTEND, _KERNEL_METADATA = "mhlo.frontend_attributes", "kernel_metadata"
_SYMBOL = re.compile(r'@"?(?P<symbol>[\w.$<>-]+)"?|sym_name = "(?P<name>[^"]*)"')
# A source line in MLIR's text; the first match is the innermost place in one of the candidate's files.
_PLACE = re.compile(r'"(?P<file>[^"/]+\.py)":(?P<line>\d+)')


# --- the traced program ------------------------------------------------------------------------


def of_traced(closed: Any) -> tuple[str, ...]:
    """The traced program (a closed jaxpr) in normal form; a called program is written out at its first call."""
    writer = _Writer()
    writer.program(closed)
    return tuple(writer.lines)


def digest(lines: Iterable[str]) -> str:
    """The SHA-256 of a normal form."""
    return hashlib.sha256("\n".join(lines).encode()).hexdigest()


def primitives(closed: Any) -> tuple[tuple[str, int], ...]:
    """The primitives of the program by module and name in JAX, each with its number of operations, sorted.

    A primitive that JAX does not have gets the prefix `UNKNOWN` in place of its module.
    """
    counted = Counter(_place(equation.primitive) for equation in jaxprs.every_equation(closed.jaxpr))
    return tuple(sorted(counted.items()))


def _place(primitive: Any) -> str:
    return program_codec.place(primitive) or f"{UNKNOWN}{primitive.name}"


class _Writer:
    """Writes programs as lines; variables and programs are numbered in the order in which they appear."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        # The objects are kept alive, so that no id() is reused.
        self._numbers: dict[int, tuple[int, Any]] = {}
        self._programs: dict[int, tuple[int, Any]] = {}

    def program(self, program: Any) -> str:
        """The name of a program; writes the program out at its first use."""
        if id(program) in self._programs:
            return f"program {self._programs[id(program)][0]}"
        number = len(self._programs)
        self._programs[id(program)] = number, program
        # In jax 0.12 a closed program and the program that it closes are the same object.
        jaxpr = getattr(program, "jaxpr", program)
        constants = " ".join(map(self._value, getattr(program, "consts", ())))
        parameters = " ".join(map(self._variable, (*jaxpr.constvars, *jaxpr.invars)))
        # Programs within an equation come before the line of the equation.
        self.lines.append(f"program {number} takes {parameters} with {constants}")
        for equation in jaxpr.eqns:
            self.lines.append(self._equation(equation))
        self.lines.append(f"program {number} gives {' '.join(map(self._variable, jaxpr.outvars))}")
        return f"program {number}"

    def _equation(self, equation: Any) -> str:
        params = {name: value for name, value in sorted(equation.params.items()) if name not in _NAMES}
        words = " ".join(f"{name}={self._value(value)}" for name, value in params.items())
        operands = " ".join(map(self._variable, equation.invars))
        results = " ".join(map(self._variable, equation.outvars))
        context = [equation.ctx.compute_type, equation.ctx.xla_metadata]
        within = f" in {context}" if any(context) else ""
        return f"{results} = {_place(equation.primitive)} {operands} [{words}]{within}"

    def _variable(self, var: Any) -> str:
        if isinstance(var, core.Literal):
            return f"{self._value(var.val)}:{self._type(var.aval)}"
        if isinstance(var, core.DropVar):
            return "_"
        if id(var) not in self._numbers:
            self._numbers[id(var)] = len(self._numbers), var
            return f"%{self._numbers[id(var)][0]}:{self._type(var.aval)}"
        return f"%{self._numbers[id(var)][0]}"

    def _type(self, aval: Any) -> str:
        weak = "~" if getattr(aval, "weak_type", False) else ""
        return f"{weak}{type(aval).__name__}:{_ADDRESS.sub('', str(aval))}:{getattr(aval, 'memory_space', '')}"

    def _value(self, value: Any) -> str:
        """The text of a parameter, literal or constant, with its contents; for a function, only its type."""
        if isinstance(value, (core.ClosedJaxpr, core.Jaxpr)):
            return self.program(value)
        if isinstance(value, core.Primitive):
            return _place(value)
        if isinstance(value, (jax.core.Tracer, program_codec.ClosedOver)):
            # In jax 0.12, run_scoped closes over references of the surrounding program.
            return self._variable(value.val)
        if value is None or isinstance(value, (bool, int, float, complex, str, bytes)):
            return f"{type(value).__name__} {value!r}"
        if isinstance(value, type):
            return f"{value.__module__}.{value.__qualname__}"
        if isinstance(value, enum.Enum):
            return str(value)
        if isinstance(value, jax.core.AbstractValue):
            return self._type(value)
        if isinstance(value, jax.Array) and jnp.issubdtype(value.dtype, jax.dtypes.extended):
            return self._value(jax.random.key_data(value))
        if isinstance(value, (np.ndarray, np.generic)) or hasattr(value, "__array__"):
            array = np.asarray(value)
            return f"{array.dtype}{list(array.shape)} {hashlib.sha256(array.tobytes()).hexdigest()[:32]}"
        if isinstance(value, Mapping):
            return f"{{{', '.join(sorted(f'{self._value(key)}: {self._value(value[key])}' for key in value))}}}"
        if isinstance(value, AbstractSet):
            return f"{{{', '.join(sorted(map(self._value, value)))}}}"
        if isinstance(value, (tuple, list)):
            return f"({', '.join(map(self._value, value))})"
        if dataclasses.is_dataclass(value):
            fields = (field.name for field in dataclasses.fields(value) if field.name not in _NAMES)
            field_texts = ", ".join(f"{name}={self._value(getattr(value, name, None))}" for name in fields)
            return f"{type(value).__name__}({field_texts})"
        if isinstance(value, tree_util.PyTreeDef):
            return self._tree(value)
        return type(value).__name__ if callable(value) else _ADDRESS.sub("", str(value))

    def _tree(self, tree: Any) -> str:
        data = tree.node_data()
        return f"{'*' if data is None else self._value(data)}({', '.join(map(self._tree, tree.children()))})"


# --- an exported program -----------------------------------------------------------------------


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class ExportedForm:
    """An exported program: the lines outside kernels, with a hash in place of each kernel; and each kernel's lines."""

    around: tuple[str, ...]
    kernels: tuple[tuple[str, ...], ...]

    @property
    def digest(self) -> str:
        """The SHA-256 of the whole program."""
        return digest(self.around)


def of_exported(module_text: str) -> ExportedForm:
    """An exported program (StableHLO text) in normal form."""
    with mlir.make_ir_context():
        module = ir.Module.parse(module_text)
        bodies = tuple(_strip(module.operation))
        text = module.operation.get_asm(enable_debug_info=False, print_generic_op_form=True)
    return ExportedForm(
        around=tuple(_anonymous(text).split("\n")), kernels=tuple(tuple(body.splitlines()) for body in bodies)
    )


def difference(module_text: str, expected: str) -> str | None:
    """The first difference of an exported program from the `expected` program, in words; None if they are equal."""
    actual, other = of_exported(module_text), of_exported(expected)
    if actual.digest == other.digest:
        return None
    if len(actual.kernels) != len(other.kernels):
        return f"it calls {len(actual.kernels)} kernels instead of {len(other.kernels)}"
    shown, wanted = _Shown(module_text), _Shown(expected)
    for number, (kernel, others) in enumerate(zip(shown.kernels, wanted.kernels, strict=True)):
        if (at := _first(kernel.lines, others.lines)) is not None:
            return f"{kernel.place(at)}in kernel {number}: {_pair(kernel.lines, others.lines, at)}"
    at = _first(shown.around.lines, wanted.around.lines)
    if at is None:
        return "its kernels are called with other options"
    return f"{shown.around.place(at)}{_pair(shown.around.lines, wanted.around.lines, at)}"


@dataclasses.dataclass(frozen=True, slots=True)
class _Text:
    """The lines of a module, and the same lines with their sources."""

    lines: tuple[str, ...]
    located: tuple[str, ...]

    def place(self, at: int) -> str:
        """The source of a line as `kernel.py line 12: `, or "" if it is not known."""
        match = _PLACE.search(self.located[at]) if at < len(self.located) else None
        return f"{match['file']} line {match['line']}: " if match else ""


class _Shown:
    """The text of an exported program, for messages that quote the first difference."""

    def __init__(self, module_text: str) -> None:
        with mlir.make_ir_context():
            module = ir.Module.parse(module_text)
            bodies = [*_bodies(module.operation)]
            deque(_strip(module.operation), maxlen=0)
            self.around = _Text(*(tuple(text.splitlines()) for text in _printed(module.operation)))
        self.kernels = tuple(_Text(*(tuple(text.splitlines()) for text in body)) for body in bodies)


def _printed(operation: ir.Operation) -> tuple[str, str]:
    """The text of a module without and with source places, in the same lines."""
    plain, located = (
        str(operation.get_asm(enable_debug_info=is_located, print_generic_op_form=True, use_local_scope=True))
        for is_located in (False, True)
    )
    return _anonymous(plain), located


def _first(lines: Sequence[str], others: Sequence[str]) -> int | None:
    pairs = zip_longest(lines, others)
    return next((at for at, (line, other) in enumerate(pairs) if line != other), None)


def _pair(lines: Sequence[str], others: Sequence[str], at: int) -> str:
    shown = [" ".join(side[at].split())[:160] if at < len(side) else "nothing" for side in (lines, others)]
    return f"`{shown[0]}` where `{shown[1]}` is expected"


def _bodies(operation: ir.Operation) -> Iterator[tuple[str, str]]:
    """The texts of each kernel's module, as `_printed` returns them."""
    target = kernels.called(operation)
    if target == kernels.TPU_CALL:
        body = base64.b64decode(kernels.mosaic_config(operation)["custom_call_config"]["body"])
        with mosaic.parsed(body) as module:
            yield _printed(module.operation)
    elif target == kernels.TRITON_CALL:
        text = _anonymous(kernels.triton_text(kernels.triton_config(operation)))
        yield text, text
    for inner in _inner(operation):
        yield from _bodies(inner)


def _inner(operation: ir.Operation) -> Iterator[ir.Operation]:
    for region in operation.regions:
        for block in region:
            yield from (inner.operation for inner in block)


def _strip(operation: ir.Operation) -> Iterator[str]:
    """Removes names, replaces each kernel by a hash, and yields the kernel's text."""
    attributes = operation.attributes
    for name in _NAMED_ATTRIBUTES:
        if name in attributes:
            del attributes[name]
    if _FRONTEND in attributes:
        # The kernel's metadata is free text; XLA reads the other attributes.
        frontend = ir.DictAttr(attributes[_FRONTEND])
        kept = {each.name: each.attr for each in frontend if each.name != _KERNEL_METADATA}
        del attributes[_FRONTEND]
        if kept:
            attributes[_FRONTEND] = ir.DictAttr.get(kept)
    target = kernels.called(operation)
    if target == kernels.TPU_CALL:
        config = kernels.mosaic_config(operation)
        call = config["custom_call_config"]
        text = _anonymous(mosaic.fingerprint_text(base64.b64decode(call.pop("body"))))
        yield text
        call["body_sha256"] = hashlib.sha256(text.encode()).hexdigest()
        attributes["backend_config"] = ir.StringAttr.get(json.dumps(config, sort_keys=True), operation.context)
    elif target == kernels.TRITON_CALL:
        config = kernels.triton_config(operation)
        launch = {name: str(value) for name, value in config.items() if name not in ("ir", "name")}
        text = _anonymous(kernels.triton_text(config))
        yield text
        launch["ir_sha256"] = hashlib.sha256(text.encode()).hexdigest()
        words = json.dumps(launch, sort_keys=True)
        attributes["mhlo.backend_config"] = ir.StringAttr.get(words, operation.context)
    for inner in _inner(operation):
        yield from _strip(inner)


def _anonymous(text: str) -> str:
    """`text` with every symbol (`@name`, `sym_name = "name"`) replaced by its number in order of appearance."""
    numbers: dict[str, int] = {}

    def number(match: re.Match[str]) -> str:
        name = match.group("symbol") or match.group("name")
        prefix = "@" if match.group("symbol") else "sym_name = "
        return f"{prefix}{numbers.setdefault(name, len(numbers))}"

    return _SYMBOL.sub(number, text)
