"""The values that a compiled module holds or computes, as words of the chip's memory.

Scalar-prefetch kernels branch on tables of integers. The known values are the module's constants, the arguments that
the caller states, and all values that the module computes from both.
"""

import re
from collections.abc import Iterable, Mapping
from typing import TypeGuard

import numpy as np

from harness.hlo.evaluation import INTEGERS, IRRELEVANT, MOST_ELEMENTS, NotEvaluated, Values, evaluated
from harness.hlo.module import Instruction, Module
from harness.hlo.shapes import Array, Shape, arrays

_COMMENT = re.compile(r"/\*.*?\*/")
_NUMBER = re.compile(r"true|false|-?\d+")
# `{{1}: (2, {})}`: the second result is in the memory of operand 2.
_ALIASED = re.compile(r"\(\s*(\d+)")
_NAME = re.compile(r"%[\w.\-]+")
# The number of a collective, which is ignored in comparisons: equal collectives share their code, but not their number.
_CHANNEL = re.compile(r"\bchannel_id=\d+(?:, )?")
# Operations that return their operand unchanged.
_COPIES = ("copy", "copy-start", "copy-done")


class Tables:
    """The values of an HLO module's instructions that follow from its constants and from `operands`.

    `operands` has the contents of arguments. Keys are the parameter's name, the name that the program gave the
    argument, or the argument's position.
    """

    def __init__(self, module: Module, operands: Mapping[str, Values] | Mapping[int, Values] | None = None) -> None:
        self._module = module
        self._operands: dict[str | int, Values] = dict((operands or {}).items())
        self._values: dict[tuple[str, int | None], Values | None] = {}
        self._bodies: dict[str, tuple[object, ...]] = {}

    def values(self, name: str, element: int | None = None) -> Values | None:
        """The integer array that the instruction `name` yields, or None if known values do not determine it.

        `element` selects one array of a tuple.
        """
        key = name, element
        if key not in self._values:
            try:
                plain = None if element else self._stated_values(name)
                self._values[key] = evaluated(self._module, name, element, self._argument) if plain is None else plain
            except (NotEvaluated, RecursionError, LookupError, ValueError, OverflowError):
                self._values[key] = None
        return self._values[key]

    def words(self, name: str, element: int | None = None) -> tuple[int, ...] | None:
        """The signed 32-bit words that hold the value of `name` in the chip's memory; None if the value is unknown."""
        values = self.values(name, element)
        if values is None:
            return None
        try:
            return _words(values, arrays(self._module.instructions[name].shape)[element or 0])
        except ValueError:
            return None

    def result_count(self, name: str) -> int | None:
        """The number of arrays that the instruction `name` returns; None if the module has no such instruction."""
        instruction = self._module.instructions.get(name)
        return len(arrays(instruction.shape)) if instruction is not None else None

    def written_operands(self, name: str) -> frozenset[int]:
        """The indices of the operands whose memory the instruction's results reuse."""
        instruction = self._module.instructions.get(name)
        aliasing = instruction.aliasing if instruction is not None else ""
        return frozenset(int(place) for place in _ALIASED.findall(aliasing))

    def same_code(self, name: str, among: Iterable[str]) -> str | None:
        """The first instruction in `among` that compiles to the same code as `name`, or None.

        The compiler emits code only once for the same operation on the same types and layouts.
        """
        wanted = self._code(name)
        if wanted is None:
            return None
        return next((other for other in among if self._code(other) == wanted), None)

    @property
    def parameters(self) -> tuple[str, ...]:
        """The names that can be keys of `operands`."""
        entry = self._module.entry
        arguments = entry.parameters.values() if entry is not None else ()
        return tuple(
            dict.fromkeys(name for argument in arguments for name in (argument.name, argument.op_name) if name)
        )

    def _stated_values(self, name: str) -> Values | None:
        """The value of an argument, a constant, or a copy of either; None if it must be computed or is unknown."""
        instruction = self._module.instructions.get(name)
        while instruction is not None and instruction.opcode in _COPIES and instruction.operands:
            instruction = self._module.instructions.get(instruction.operands[0].name)
        if instruction is None or not _is_table(instruction.shape):
            return None
        if instruction.opcode == "parameter":
            return self._argument(instruction)
        literal = instruction.literal
        if instruction.opcode == "broadcast" and not instruction.dimensions:
            # A constant of equal elements is written as a broadcast of one number.
            number = self._module.instructions.get(instruction.operands[0].name)
            literal = number.literal if number is not None else ""
        return _literal(literal, instruction.shape) if literal and "..." not in literal else None

    def _argument(self, instruction: Instruction) -> Values | None:
        """The value that `operands` has for a parameter of the entry; None if it has no value."""
        entry = self._module.entry
        if entry is None or entry.parameters.get(instruction.number or 0) is not instruction:
            return None
        names = (instruction.name, instruction.op_name, instruction.number)
        values = next((self._operands[name] for name in names if name in self._operands), None)
        return _typed(values, instruction.shape) if values is not None and _is_table(instruction.shape) else None

    def _code(self, name: str) -> tuple[object, ...] | None:
        instruction = self._module.instructions.get(name)
        if instruction is None:
            return None
        operands = (self._module.instructions.get(operand.name) for operand in instruction.operands)
        return *self._own_code(instruction), *(operand.shape if operand is not None else None for operand in operands)

    def _own_code(self, instruction: Instruction) -> tuple[object, ...]:
        """The code of an instruction, without its name, its channel and the names of the computations that it calls.

        The program of a custom call is in its backend's configuration.
        """
        attributes = _NAME.sub("%", _CHANNEL.sub("", IRRELEVANT.sub("", instruction.attributes)))
        called = [(role, self._body(name)) for role, name in instruction.called]
        operands = len(instruction.operands)
        backend = instruction.backend if instruction.opcode == "custom-call" else ""
        return instruction.shape, instruction.opcode, operands, instruction.literal, attributes, called, backend

    def _body(self, name: str) -> tuple[object, ...]:
        if name not in self._bodies:
            self._bodies[name] = ()
            called = self._module.by_name.get(name)
            self._bodies[name] = tuple(map(self._own_code, called.instructions)) if called is not None else ()
        return self._bodies[name]


def _is_table(shape: Shape) -> TypeGuard[Array]:
    """True for an integer array of a fixed size that is not too large."""
    if not isinstance(shape, Array) or shape.dtype not in INTEGERS or any(shape.dynamic):
        return False
    return (shape.elements or 0) <= MOST_ELEMENTS


def _literal(text: str, array: Array) -> Values:
    words = _NUMBER.findall(_COMMENT.sub("", text))
    numbers = np.array([int({"true": "1", "false": "0"}.get(word, word)) for word in words])
    return _typed(np.broadcast_to(numbers, array.elements or 0) if len(words) == 1 else numbers, array)


def _typed(values: Values, array: Array) -> Values:
    """The values with the type and the shape of the array. Raises ValueError for another number of elements."""
    return values.astype(INTEGERS[array.dtype], copy=False).reshape([size or 0 for size in array.dimensions])


def _words(values: Values, array: Array) -> tuple[int, ...]:
    """The array's words in memory order; the tiles are nested as XLA's layouts define."""
    laid = values.transpose(array.major_to_minor) if values.ndim else values.reshape(1)
    for tile in array.layout.tiles if array.layout else ():
        laid = _tiled(laid, tile)
    raw = np.ascontiguousarray(laid).tobytes()
    raw += b"\0" * (-len(raw) % 4)
    return tuple(int(word) for word in np.frombuffer(raw, "<i4"))


def _tiled(array: Values, tile: tuple[int, ...]) -> Values:
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
