"""Integer instructions of a dumped HLO module, evaluated: what they depend on becomes a program for the CPU.

XLA computes many of the tables that a kernel branches on: the groups of a grouped matmul, where the
rows of a scatter go. Their instructions are copied into a module of their own, fusions opened and the
TPU's layouts left out, which XLA compiles for this machine.
"""

import math
import os
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cache
from typing import Any

import numpy as np
import numpy.typing as npt

Values = npt.NDArray[np.generic]
# A value within the new module: the name of its instruction, or what a tuple holds.
_Place = "str | tuple[_Place, ...]"

_NUMBERS = {"pred": "?", "s8": "i1", "u8": "u1", "s16": "<i2", "u16": "<u2", "s32": "<i4", "u32": "<u4"}
_SIZES = {name: np.dtype(code).itemsize for name, code in _NUMBERS.items()}
_HEAD = re.compile(r"^ *(ROOT )?%([\w.\-]+) = ", re.MULTILINE)
_OPCODE = re.compile(r" ([a-z][\w\-]*)\(")
_COMPUTATION = re.compile(
    r"^(?:ENTRY )?%([\w.\-]+) \([^\n]*\{$\n(.*?)^\}(?:, execution_thread=\"\w+\")?$", re.MULTILINE | re.DOTALL
)
_OPERAND = re.compile(r"%([\w.\-]+)")
_LAYOUT = re.compile(r"(?<=\])\{([^{}]*)\}")
_ARRAY = re.compile(r"(\w+)\[([\d,]*)\](?:\{([^{}]*)\})?")
_NO_MATTER = re.compile(
    r", (?:sharding|frontend_attributes|control-predecessors|metadata|backend_config|statistics|origin)=.*"
)
_CALLED = re.compile(r"\b(calls|to_apply|condition|body|true_computation|false_computation)=%([\w.\-]+)")
# What hands on its first operand as it is.
_SAME = ("copy", "copy-start", "copy-done", "async-done", "call-done", "opt-barrier")
_SAME_CALLS = ("AssumeGatherIndicesInBound", "Sharding")
_OPENED = ("fusion", "call", "async-start", "call-start")
# Some integers are made with floating-point numbers on the way. They are believed where these operations alone make
# them, which round alike on every machine; a division and what is beyond it do not.
_EXACT = (
    "abs add bitcast bitcast-convert broadcast clamp compare concatenate constant convert copy dynamic-slice "
    "dynamic-update-slice floor gather get-tuple-element iota maximum minimum multiply negate pad parameter reduce "
    "reduce-window reshape reverse scatter select sign slice subtract transpose tuple while"
)
_LITERAL = re.compile(r"[-\w.+]+")
# Below this a product of few may be smaller than a machine's smallest normal number, and some machines make 0 of it.
_SMALLEST = 2.0**-24
# What memory holds that nothing has written yet.
_UNSET = "/*unset*/0"
# More elements than these are no table.
_MOST_ELEMENTS = 1 << 17
_MOST_INSTRUCTIONS = 20_000


class NotEvaluated(Exception):
    """The value does not follow from what is known, or not from integers alone."""


@dataclass(frozen=True, slots=True)
class Instruction:
    """One line of a computation: `type` with its layout, `operands` by name, `text` what stands in its brackets."""

    name: str
    type: str
    opcode: str
    operands: tuple[str, ...]
    text: str
    attributes: str


@dataclass(slots=True)
class _Computation:
    instructions: dict[str, Instruction]
    root: str

    def parameter(self, number: int) -> Instruction:
        for instruction in self.instructions.values():
            if instruction.opcode == "parameter" and instruction.text.strip() == str(number):
                return instruction
        raise NotEvaluated(f"a computation without its parameter {number}")


@dataclass(slots=True)
class _Scope:
    """One computation of the new module while it is written."""

    lines: list[str] = field(default_factory=list)
    parameters: int = 0


class Evaluator:
    """Evaluates instructions of the module whose text is `hlo`; `known` tells what those of the entry hold."""

    def __init__(self, hlo: str, known: Callable[[str], Values | None]) -> None:
        self._known = known
        self._computations = {match[1]: _read(match[2]) for match in _COMPUTATION.finditer(hlo)}
        self._home = {
            name: computation for computation in self._computations.values() for name in computation.instructions
        }

    def instruction(self, name: str) -> Instruction | None:
        """The instruction called `name`, in whichever computation it stands."""
        home = self._home.get(name)
        return home.instructions[name] if home is not None else None

    def kinds(self, name: str) -> tuple[str, ...]:
        """The types, layouts included, of what the instruction `name` yields: several if that is a tuple."""
        instruction = self.instruction(name)
        return tuple(array[0] for array in _ARRAY.finditer(instruction.type)) if instruction else ()

    def values(self, name: str, element: int | None = None) -> Values:
        """The array that the instruction `name` yields, or an element of its tuple. Raises NotEvaluated."""
        kinds = self.kinds(name)
        home = self._home.get(name)
        if home is None or not (element or 0) < len(kinds):
            raise NotEvaluated(f"{name} is not in the module")
        kind = kinds[element or 0]
        if kind.partition("[")[0] not in _NUMBERS:
            raise NotEvaluated(f"{name} is no integer")
        writer = _Writer(self._computations, self._known)
        place = writer.place(home, name, None, writer.main)
        if element is not None and home.instructions[name].type.startswith("("):
            place = writer.element(place, element, kind)
        if not isinstance(place, str):
            raise NotEvaluated(f"{name} is no array")
        text = writer.module(place, _plain(kind))
        values = _run(text)
        if _UNSET in text and not np.array_equal(values, _run(text.replace(_UNSET, "1"))):
            raise NotEvaluated(f"{name} depends on what machines make different things of")
        return values


class _Writer:
    """Writes a module that computes one value."""

    def __init__(self, computations: Mapping[str, _Computation], known: Callable[[str], Values | None]) -> None:
        self.computations = computations
        self.known = known
        self.main = _Scope()
        self._places: dict[tuple[int, int, str], Any] = {}
        self._written: dict[str, str] = {}
        self._texts: list[str] = []
        self._keep: list[object] = []
        self._count = 0

    def module(self, root: str, kind: str) -> str:
        """The module's text; its entry's root is a copy of `root`."""
        entry = [*self.main.lines, f"  ROOT %result = {kind} copy(%{root})"]
        computations = "\n".join(self._texts)
        return f"HloModule table\n\n{computations}\nENTRY %main () -> {kind} {{\n" + "\n".join(entry) + "\n}\n"

    def element(self, place: Any, index: int, kind: str) -> Any:
        """One element of a tuple in the entry."""
        if isinstance(place, tuple):
            return place[index]
        return self._named(self.main, _plain(kind), "get-tuple-element", f"%{place}", f", index={index}")

    def place(self, home: _Computation, name: str, given: "tuple[Any, ...] | None", scope: _Scope) -> Any:
        """Where in `scope` the value of `name` stands; `given` is where the parameters of an opened one stand."""
        key = (id(scope), id(given), name)
        if key not in self._places:
            self._keep.append(given)
            self._places[key] = self._make(home, home.instructions[name], given, scope)
        return self._places[key]

    def _make(
        self, home: _Computation, instruction: Instruction, given: "tuple[Any, ...] | None", scope: _Scope
    ) -> Any:
        opcode = instruction.opcode
        if given is None and scope is self.main:
            known = self.known(instruction.name) if _ARRAY.fullmatch(instruction.type) else None
            if known is not None:
                return self._input(known, instruction.type)
        if opcode == "parameter":
            return self._parameter(instruction, given, scope)
        operands = [self.place(home, operand, given, scope) for operand in instruction.operands]
        if opcode == "tuple":
            return tuple(operands)
        if opcode == "get-tuple-element":
            index = int(re.findall(r"index=(\d+)", instruction.attributes)[0])
            if isinstance(operands[0], tuple):
                return operands[0][index]
            return self._line(scope, instruction, [operands[0]], f", index={index}")
        if opcode in _SAME or (
            opcode == "custom-call" and any(f'"{call}"' in instruction.attributes for call in _SAME_CALLS)
        ):
            return operands[0]
        if opcode in _OPENED:
            called = self.computations.get(
                dict(_calls(instruction)).get("calls") or dict(_calls(instruction)).get("to_apply", "")
            )
            if called is None:
                raise NotEvaluated(f"{instruction.name} calls what is not in the module")
            return self.place(called, called.root, tuple(operands), scope)
        self._check(home, instruction)
        if opcode == "custom-call" and '"AllocateBuffer"' in instruction.attributes:
            return self._unset(_plain(instruction.type), scope)
        if opcode == "convert" and (source := self._float_operand(home, instruction)) is not None:
            return self._whole(instruction, source, operands[0], scope)
        if opcode == "bitcast":
            return self._bitcast(home, instruction, operands[0], scope)
        if opcode in ("custom-call", "infeed", "rng", "rng-bit-generator", "partition-id", "replica-id"):
            raise NotEvaluated(f"{instruction.name} is a {opcode}")
        attributes = instruction.attributes
        for what, called_name in _calls(instruction):
            attributes = attributes.replace(f"{what}=%{called_name}", f"{what}=%{self._computation(called_name)}")
        return self._line(scope, instruction, operands, attributes)

    def _check(self, home: _Computation, instruction: Instruction) -> None:
        """Raises NotEvaluated unless the instruction does the same on every machine."""
        types = [instruction.type, *(home.instructions[operand].type for operand in instruction.operands)]
        kinds = {array[1] for kind in types for array in _ARRAY.finditer(kind)}
        if strange := kinds - {*_NUMBERS, "f32"}:
            raise NotEvaluated(f"{instruction.name} is of {strange.pop()}")
        if "f32" in kinds:
            if instruction.opcode not in _EXACT.split():
                raise NotEvaluated(f"{instruction.name} computes {instruction.opcode} with floating-point numbers")
            if instruction.opcode == "constant" and any(
                0 < abs(float(word)) < _SMALLEST
                for word in _LITERAL.findall(re.sub(r"/\*.*?\*/", "", instruction.text))
            ):
                raise NotEvaluated(f"{instruction.name} is a very small number")

    def _parameter(self, instruction: Instruction, given: "tuple[Any, ...] | None", scope: _Scope) -> Any:
        number = int(instruction.text)
        if given is not None and number < len(given):
            return given[number]
        if scope is self.main:
            raise NotEvaluated(f"the contents of the argument {instruction.name} are not known")
        raise NotEvaluated("a parameter of a computation that was not given")

    def _input(self, values: Values, kind: str) -> str:
        if values.size > _MOST_ELEMENTS:
            raise NotEvaluated("a table of more elements than tables have")
        flat = f"s32[{values.size}]" if kind.startswith("pred") else f"{kind.partition('[')[0]}[{values.size}]"
        text = "{" + ", ".join(map(str, values.ravel().astype(np.int64))) + "}"
        place = self._named(self.main, flat, "constant", text, "")
        if kind.startswith("pred"):
            place = self._named(self.main, f"pred[{values.size}]", "convert", f"%{place}", "")
        return self._named(self.main, _plain(kind), "reshape", f"%{place}", "")

    def _line(self, scope: _Scope, instruction: Instruction, operands: list[Any], attributes: str) -> str:
        text = ", ".join(f"%{self._array(scope, operand)}" for operand in operands) if operands else instruction.text
        if "..." in text:
            raise NotEvaluated(f"{instruction.name} is a constant that the dump leaves out")
        return self._named(scope, _plain(instruction.type), instruction.opcode, text, attributes)

    def _array(self, scope: _Scope, place: Any) -> str:
        """The place as one instruction: what was known only as the parts of a tuple becomes one."""
        if isinstance(place, str):
            return place
        parts = [self._array(scope, part) for part in place]
        kinds = ", ".join(self._kinds[part] for part in parts)
        return self._named(scope, f"({kinds})", "tuple", ", ".join(f"%{part}" for part in parts), "")

    @property
    def _kinds(self) -> dict[str, str]:
        return self._written

    def _named(self, scope: _Scope, kind: str, opcode: str, text: str, attributes: str) -> str:
        self._count += 1
        if self._count > _MOST_INSTRUCTIONS:
            raise NotEvaluated("more instructions than a table takes")
        name = f"v{self._count}"
        scope.lines.append(f"  %{name} = {kind} {opcode}({text}){attributes}")
        self._written[name] = kind
        return name

    def _float_operand(self, home: _Computation, instruction: Instruction) -> str | None:
        """The type of what an instruction makes integers of, if that is floating-point numbers."""
        kind = home.instructions[instruction.operands[0]].type
        return _plain(kind) if kind.startswith("f32") and not instruction.type.startswith(("f32", "pred")) else None

    def _whole(self, instruction: Instruction, source: str, operand: Any, scope: _Scope) -> str:
        """The number without its fraction; what machines make of one that no integer holds differs."""
        target = _plain(instruction.type)
        sizes = source.removeprefix("f32")
        limit = self._named(scope, "f32[]", "constant", "1073741824", "")
        limits = self._named(scope, source, "broadcast", f"%{limit}", ", dimensions={}")
        size = self._named(scope, source, "abs", f"%{operand}", "")
        fits = self._named(scope, f"pred{sizes}", "compare", f"%{size}, %{limits}", ", direction=LT")
        whole = self._named(scope, target, "convert", f"%{operand}", "")
        return self._named(scope, target, "select", f"%{fits}, %{whole}, %{self._unset(target, scope)}", "")

    def _unset(self, kind: str, scope: _Scope) -> str:
        """An array of which nobody knows what it holds: one thing in the first evaluation, another in the second."""
        unset = self._named(
            scope, f"{kind.partition('[')[0]}[]", "constant", _UNSET.removeprefix("constant(").removesuffix(")"), ""
        )
        return self._named(scope, kind, "broadcast", f"%{unset}", ", dimensions={}")

    def _bitcast(self, home: _Computation, instruction: Instruction, operand: Any, scope: _Scope) -> str:
        """The same elements in the order in which they lie in memory, from one layout to another."""
        source = _ARRAY.fullmatch(home.instructions[instruction.operands[0]].type)
        target = _ARRAY.fullmatch(instruction.type)
        if source is None or target is None or not isinstance(operand, str):
            raise NotEvaluated("a bitcast of a tuple")
        if source[1] != target[1] and _SIZES.get(source[1]) != _SIZES.get(target[1]):
            raise NotEvaluated("a bitcast to elements of another size")
        there, here = _order(source), _order(target)
        before, after = _sizes(source), _sizes(target)
        kind = source[1]

        def moved(opcode: str, sizes: list[int], operand: str, attributes: str) -> str:
            return self._named(scope, f"{kind}[{','.join(map(str, sizes))}]", opcode, f"%{operand}", attributes)

        def dimensions(order: list[int]) -> str:
            return f", dimensions={{{','.join(map(str, order))}}}"

        if len(before) == len(after) == 1 and after < before:
            # What a tile is padded with lies behind the elements: a shorter array is the beginning of a longer one.
            return moved("slice", after, operand, f", slice={{[0:{after[0]}]}}")
        if math.prod(before) != math.prod(after):
            raise NotEvaluated(f"{instruction.name} has more elements than what it is made from")
        place = moved("transpose", [before[axis] for axis in there], operand, dimensions(there))
        place = moved("reshape", [after[axis] for axis in here], place, "")
        place = moved("transpose", after, place, dimensions([here.index(axis) for axis in range(len(here))]))
        if source[1] != target[1]:
            return self._named(scope, _plain(instruction.type), "bitcast-convert", f"%{place}", "")
        return place

    def _computation(self, name: str) -> str:
        """The computation `name` as one of the new module; its name there."""
        home = self.computations.get(name)
        if home is None:
            raise NotEvaluated(f"the computation {name} is not in the module")
        written = f"c{len(self._texts)}_{self._count}"
        scope = _Scope()
        parameters = sorted(
            (instruction for instruction in home.instructions.values() if instruction.opcode == "parameter"),
            key=lambda instruction: int(instruction.text),
        )
        given = []
        for number, parameter in enumerate(parameters):
            self._check(home, parameter)
            given.append(self._named(scope, _plain(parameter.type), "parameter", str(number), ""))
        root = self._array(scope, self.place(home, home.root, tuple(given), scope))
        kind = self._written[root]
        # The root has to be the last line and marked.
        if kind.startswith("("):
            line = next(line for line in scope.lines if line.startswith(f"  %{root} = "))
            scope.lines.remove(line)
            scope.lines.append("  ROOT" + line[1:])
        else:
            scope.lines.append(f"  ROOT %r{written} = {kind} copy(%{root})")
        signature = ", ".join(f"{place}: {self._written[place]}" for place in given)
        self._texts.append(f"%{written} ({signature}) -> {kind} {{\n" + "\n".join(scope.lines) + "\n}\n")
        return written


def _read(body: str) -> _Computation:
    instructions = {}
    root = ""
    for instruction, is_root in _instructions(body):
        instructions[instruction.name] = instruction
        root = instruction.name if is_root else root
    return _Computation(instructions, root)


def _instructions(body: str) -> Iterator[tuple[Instruction, bool]]:
    for line in body.splitlines():
        head = _HEAD.match(line)
        opcode = _OPCODE.search(line, head.end() - 1) if head else None
        # The type of a tuple holds blanks and brackets; the first word before a bracket behind it is the opcode.
        if head is None or opcode is None:
            continue
        end = _closing(line, opcode.end() - 1)
        text = line[opcode.end() : end]
        yield (
            Instruction(
                name=head[2],
                type=re.sub(r"/\*.*?\*/", "", line[head.end() : opcode.start()]).strip(),
                opcode=opcode[1],
                operands=() if opcode[1] in ("constant", "parameter") else tuple(_OPERAND.findall(text)),
                text=text,
                attributes=_NO_MATTER.sub("", line[end + 1 :]),
            ),
            head[1] is not None,
        )


def _closing(line: str, start: int) -> int:
    depth = 0
    for place in range(start, len(line)):
        depth += (line[place] == "(") - (line[place] == ")")
        if depth == 0:
            return place
    return len(line)


def _calls(instruction: Instruction) -> list[tuple[str, str]]:
    return _CALLED.findall(instruction.attributes)


def _plain(kind: str) -> str:
    """A type without its layout."""
    return _LAYOUT.sub("", kind)


def _sizes(array: re.Match[str]) -> list[int]:
    return [int(size) for size in filter(None, array[2].split(","))]


def _order(array: re.Match[str]) -> list[int]:
    """The dimensions from the slowest to the fastest in memory."""
    given = re.findall(r"\d+", (array[3] or "").partition(":")[0])
    return [int(axis) for axis in given][::-1] or list(range(len(_sizes(array))))


@cache
def _client() -> Any:
    # Its notes about the devices that it found do not belong among this program's words.
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "1")
    from jaxlib import xla_client

    return xla_client.make_cpu_client()


def _run(text: str) -> Values:
    """What the module's entry yields. Raises NotEvaluated where XLA refuses it."""
    client = _client()
    from jaxlib import _hlo, _jax, xla_client

    try:
        proto = _hlo.hlo_module_from_text(text).as_serialized_hlo_module_proto()
        devices = _jax.DeviceList(tuple(client.local_devices()[:1]))
        options = xla_client.CompileOptions()
        # All of it is constant: folded, it would be evaluated by the slowest of XLA's ways.
        options.executable_build_options.debug_options.xla_disable_hlo_passes = "constant_folding"
        program = client.compile_and_load(_jax.mlir.hlo_to_stablehlo(proto), devices, options)
        result = program.execute_sharded([]).disassemble_into_single_device_arrays()
    except (RuntimeError, ValueError, TypeError) as error:
        raise NotEvaluated(f"XLA does not evaluate it: {str(error).splitlines()[0]}") from error
    values: Values = np.asarray(result[0][0])
    return values
