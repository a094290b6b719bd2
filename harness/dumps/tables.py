"""The values that a compiled module holds or computes, in the words in which they lie in the chip's memory.

Scalar-prefetch kernels branch on such tables; constants, values handed in from outside, and what
the module makes of them are known.
"""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import numpy as np

from harness.dumps.evaluated import Evaluator, NotEvaluated, Values

# Integers only: their arithmetic is the same everywhere. Of floats it is not (subnormal numbers, and what becomes of
# one that no integer holds), and a branch that goes another way than on the chip skips work in the simulation alone.
_DTYPES = {"pred": "u1", "s8": "i1", "u8": "u1", "s16": "<i2", "u16": "<u2", "s32": "<i4", "u32": "<u4"}
_INSTRUCTION = re.compile(
    r"^ *(?:ROOT )?%([\w.\-]+) = (\w+)\[([\d,]*)\](?:\{([^}]*)\})? ([\w\-]+)\(((?:[^()]|\([^()]*\))*)\)(.*)",
    re.MULTILINE,
)
_COMPUTATION = re.compile(r"^(?:ENTRY )?%([\w.\-]+) \(.*\{$", re.MULTILINE)
_NAMES = re.compile(r"%[\w.\-]+")
_ATTRIBUTES = re.compile(r", (?:metadata|backend_config)=[^\n]*")
_CALLED = re.compile(r"\b(calls=|to_apply=|condition=|body=)%([\w.\-]+)")
_KIND_LAYOUT = re.compile(r"\{([^}]*)\}")
_OPERAND = re.compile(r"%([\w.\-]+)")
_START = re.compile(r"^ *%([\w.\-]+) = \([^\n]* copy-start\(%([\w.\-]+)\)", re.MULTILINE)
# Larger tables are not tables of indices.
_MOST_ELEMENTS = 1 << 22


@dataclass(frozen=True, slots=True)
class _Instruction:
    dtype: str
    shape: tuple[int, ...]
    layout: str
    opcode: str
    operands: tuple[str, ...]
    literal: str
    attributes: str


class Tables:
    """The values of one HLO module's instructions, as far as they follow from its constants and from `operands`.

    `operands` gives the contents of parameters, by the name of the instruction, by the name
    that the program gave the argument, or by the argument's position.
    """

    def __init__(self, hlo: str, operands: Mapping[str, Values] | Mapping[int, Values] | None = None) -> None:
        self._given: dict[str | int, Values] = dict((operands or {}).items())
        self._instructions: dict[str, _Instruction] = {}
        self._known: dict[str, Values | None] = {}
        self._computed: dict[tuple[str, int | None], Values | None] = {}
        bodies = list(_COMPUTATION.finditer(hlo))
        self._entry = next((body[1] for body in bodies if body[0].startswith("ENTRY")), "")
        ends = [match.start() for match in bodies[1:]] + [len(hlo)]
        self._roots: dict[str, str] = {}
        self._callers: dict[str, str] = {}
        self._bodies: dict[str, str] = {}
        self._plain_bodies: dict[str, str] = {}
        self._parameters: dict[str, dict[int, str]] = {}
        for body, end in zip(bodies, ends, strict=False):
            text = hlo[body.end() : end]
            self._bodies[body[1]] = _ATTRIBUTES.sub("", text)
            for match in _INSTRUCTION.finditer(text):
                name, dtype, shape, layout, opcode, arguments, attributes = match.groups()
                self._instructions[name] = _Instruction(
                    dtype,
                    tuple(int(size) for size in filter(None, shape.split(","))),
                    layout or "",
                    opcode,
                    tuple(_OPERAND.findall(arguments)),
                    arguments,
                    attributes,
                )
                if match[0].lstrip().startswith("ROOT"):
                    self._roots[body[1]] = name
                if opcode == "parameter" and arguments.strip().isdigit():
                    self._parameters.setdefault(body[1], {})[int(arguments)] = name
        self._evaluator = Evaluator(hlo, self.values)
        # An asynchronous copy is a tuple; what it brings is what it copies.
        self._started = {match[1]: match[2] for match in _START.finditer(hlo)}

    def values(self, name: str) -> Values | None:
        """The array that the instruction `name` yields, or None if it does not follow from constants."""
        if name not in self._known:
            self._known[name] = None
            instruction = self._instructions.get(name)
            if instruction is not None and int(np.prod(instruction.shape)) <= _MOST_ELEMENTS:
                try:
                    self._known[name] = self._evaluated(name, instruction)
                except (ValueError, IndexError, OverflowError, KeyError):
                    self._known[name] = None
        return self._known[name]

    def computed(self, name: str, element: int | None = None) -> Values | None:
        """The same, XLA's help included: what follows from integers that are known, by whatever instructions.

        `element` asks for one of the arrays of a tuple.
        """
        key = name, element
        if key not in self._computed:
            values = self.values(name)
            if values is None:
                try:
                    values = self._evaluator.values(name, element)
                except (NotEvaluated, RecursionError, LookupError, ValueError):
                    values = None
            self._computed[key] = values
        return self._computed[key]

    def words(self, name: str, element: int | None = None) -> tuple[int, ...] | None:
        """The 32-bit words (signed) in which the chip's memory holds the value of `name`, or None."""
        values = self.computed(name, element) if self._evaluator.instruction(name) is not None else None
        if values is None:
            return None
        layout = _KIND_LAYOUT.search(self._evaluator.kinds(name)[element or 0])
        try:
            return _words(values, layout[1] if layout else "")
        except ValueError:
            return None

    def same_code(self, name: str, among: Iterable[str]) -> str | None:
        """The first instruction of `among` that compiles to the same code as `name`, or None.

        The compiler emits equal code once: for the same operation on the same types and layouts.
        """
        wanted = self._code(name)
        if wanted is None:
            return None
        return next((other for other in among if self._code(other) == wanted), None)

    def _code(self, name: str) -> tuple[str, ...] | None:
        instruction = self._evaluator.instruction(name)
        if instruction is None:
            return None
        handed = (self._evaluator.instruction(operand) for operand in instruction.operands)
        types = [operand.type if operand is not None else "" for operand in handed]
        return instruction.type, instruction.opcode, *types, self._without_names(instruction.attributes)

    def _without_names(self, text: str) -> str:
        """The text with what the computations that it calls say in the place of their names, which do not matter."""
        return _NAMES.sub("%", _CALLED.sub(lambda match: f"{match[1]}{{{self._body(match[2])}}}", text))

    def _body(self, name: str) -> str:
        if name not in self._plain_bodies:
            self._plain_bodies[name] = ""
            self._plain_bodies[name] = self._without_names(self._bodies.get(name, ""))
        return self._plain_bodies[name]

    def _evaluated(self, name: str, instruction: _Instruction) -> Values | None:
        dtype = _DTYPES.get(instruction.dtype)
        if dtype is None:
            return None
        values = self._raw(name, instruction, np.dtype(dtype))
        if values is None:
            return None
        return values.astype(dtype, copy=False).reshape(instruction.shape)

    def _raw(self, name: str, instruction: _Instruction, dtype: np.dtype[np.generic]) -> Values | None:
        opcode = instruction.opcode
        if opcode == "parameter":
            return self._parameter(name, instruction)
        if opcode == "constant":
            return _literal(instruction.literal, dtype)
        if opcode == "iota":
            axis = int(_attribute(instruction, "iota_dimension") or 0)
            along = np.arange(instruction.shape[axis])
            along = along.reshape([1] * axis + [-1] + [1] * (len(instruction.shape) - axis - 1))
            return np.broadcast_to(along, instruction.shape)
        if opcode == "fusion":
            return self._fusion(name, instruction)
        operands = [self._started.get(operand, operand) for operand in instruction.operands]
        arrays = [self.values(operand) for operand in operands]
        known = [array for array in arrays if array is not None]
        if len(known) < len(arrays) or not known:
            return None
        if opcode == "bitcast":
            return _seen_as(instruction, known[0], self._instructions[operands[0]].layout)
        return _computed(instruction, known)

    @property
    def parameters(self) -> tuple[str, ...]:
        """The names by which values of the program's arguments can be given."""
        names = {
            name: None
            for instruction_name, instruction in self._instructions.items()
            if instruction.opcode == "parameter"
            for name in _argument_names(instruction_name, instruction)
        }
        return tuple(names)

    def _parameter(self, name: str, instruction: _Instruction) -> Values | None:
        for given in _argument_names(name, instruction):
            if given in self._given:
                return self._given[given]
        # Parameters of the computations that it calls have positions too.
        is_argument = self._parameters.get(self._entry, {}).get(int(instruction.literal)) == name
        return self._given.get(int(instruction.literal)) if is_argument else None

    def _fusion(self, name: str, instruction: _Instruction) -> Values | None:
        called = _attribute(instruction, "calls").lstrip("%")
        # What is known within a called computation is known for its first caller.
        if self._callers.setdefault(called, name) != name:
            return None
        root = self._roots.get(called)
        parameters = self._parameters.get(called, {})
        for number, operand in enumerate(instruction.operands):
            if number in parameters:
                self._known[parameters[number]] = self.values(operand)
        return self.values(root) if root is not None else None


def _argument_names(name: str, instruction: _Instruction) -> tuple[str, ...]:
    """What a parameter is called: as the HLO instruction, and as the program's argument where that is told."""
    argument = re.search(r'op_name="([^"]*)"', instruction.attributes)
    return (name, argument[1]) if argument else (name,)


def _attribute(instruction: _Instruction, name: str) -> str:
    match = re.search(rf"\b{name}=(\{{[^}}]*\}}|[^,\s]+)", instruction.attributes)
    return match[1].strip("{}") if match else ""


def _numbers(text: str) -> list[int]:
    return [int(word) for word in re.findall(r"\d+", text)]


def _literal(text: str, dtype: np.dtype[np.generic]) -> Values | None:
    if "..." in text:
        return None
    words = re.findall(r"true|false|-?\d+", re.sub(r"/\*.*?\*/", "", text))
    return np.array([int({"true": "1", "false": "0"}.get(word, word)) for word in words], dtype)


def _computed(instruction: _Instruction, arrays: list[Values]) -> Values | None:
    """What an instruction makes of known arrays; None for one that is not understood."""
    opcode, first = instruction.opcode, arrays[0]
    if opcode in ("copy", "copy-done", "reshape", "convert", "slice", "transpose", "broadcast"):
        return _moved(instruction, first)
    if opcode == "concatenate":
        return np.concatenate(arrays, axis=_numbers(_attribute(instruction, "dimensions"))[0])
    if opcode == "select" and len(arrays) == 3:
        return np.where(first != 0, arrays[1], arrays[2])
    if opcode == "compare" and len(arrays) == 2:
        direction = _attribute(instruction, "direction")
        functions = {"EQ": np.equal, "NE": np.not_equal, "LT": np.less, "LE": np.less_equal, "GT": np.greater,
                     "GE": np.greater_equal}  # fmt: skip
        return functions[direction](first, arrays[1])
    binary = {"add": np.add, "subtract": np.subtract, "multiply": np.multiply, "minimum": np.minimum,
              "maximum": np.maximum, "and": np.bitwise_and, "or": np.bitwise_or}  # fmt: skip
    if opcode in binary and len(arrays) == 2:
        result: Values = binary[opcode](first, arrays[1])
        return result
    return None


def _moved(instruction: _Instruction, first: Values) -> Values | None:
    opcode = instruction.opcode
    if opcode == "transpose":
        return first.transpose(_numbers(_attribute(instruction, "dimensions")))
    if opcode == "slice":
        ranges = re.findall(r"\[(\d+):(\d+)(?::(\d+))?\]", instruction.attributes)
        return first[tuple(slice(int(a), int(b), int(c or 1)) for a, b, c in ranges)]
    if opcode == "broadcast":
        kept = _numbers(_attribute(instruction, "dimensions"))
        if kept != sorted(kept):
            return None
        spread = first.reshape([size if axis in kept else 1 for axis, size in enumerate(instruction.shape)])
        return np.broadcast_to(spread, instruction.shape)
    if opcode == "convert" and instruction.dtype == "pred":
        return np.not_equal(first, 0)
    return first


def _seen_as(instruction: _Instruction, first: Values, layout: str) -> Values | None:
    """The same elements in the same order in memory, from one layout to another; None where their size changes."""
    if first.dtype.itemsize != np.dtype(_DTYPES[instruction.dtype]).itemsize:
        return None
    order = _major_to_minor(instruction.layout, len(instruction.shape))
    in_memory = first.transpose(_major_to_minor(layout, first.ndim))
    return in_memory.reshape([instruction.shape[axis] for axis in order]).transpose(np.argsort(order).tolist())


def _major_to_minor(layout: str, dimensions: int) -> list[int]:
    """The dimensions from the slowest to the fastest, of a layout as HLO writes it; without one, in their order."""
    return (_numbers(layout.partition(":")[0]) or list(range(dimensions))[::-1])[::-1]


def _words(values: Values, layout: str) -> tuple[int, ...]:
    """The array in memory order, its tiles applied one inside the other as XLA's layouts define them."""
    array = values.transpose(_major_to_minor(layout, values.ndim)) if values.ndim else values.reshape(1)
    for tile in re.findall(r"\(([\d,]+)\)", layout.partition(":")[2].partition("S(")[0]):
        array = _tiled(array, _numbers(tile))
    raw = np.ascontiguousarray(array).tobytes()
    raw += b"\0" * (-len(raw) % 4)
    return tuple(int(word) for word in np.frombuffer(raw, "<i4"))


def _tiled(array: Values, tile: list[int]) -> Values:
    """The array's last dimensions cut into tiles: `[..., a, b]` becomes `[..., a/t, b/u, t, u]`, padded with zeros."""
    if len(tile) > array.ndim:
        array = array.reshape([1] * (len(tile) - array.ndim) + list(array.shape))
    outer = array.ndim - len(tile)
    padding = [(0, 0)] * outer + [(0, -size % step) for size, step in zip(array.shape[outer:], tile, strict=True)]
    array = np.pad(array, padding)
    shape = list(array.shape[:outer])
    for size, step in zip(array.shape[outer:], tile, strict=True):
        shape += [size // step, step]
    inner = range(outer, outer + 2 * len(tile))
    return array.reshape(shape).transpose([*range(outer), *inner[::2], *inner[1::2]])
