"""Evaluates integers of a module: XLA runs the instructions that compute them, as a program on the CPU.

XLA computes many of the tables that a kernel branches on, such as the groups of a grouped matmul or the target rows of
a scatter. The instructions that compute a table are copied into a new module, which XLA compiles for this computer.
Fusions are inlined, and the TPU's layouts are left out.
"""

import os
import re
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cache, lru_cache
from math import prod
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from harness.hlo.module import Instruction, Module
from harness.hlo.shapes import JOINED, Array, Shape, Tuple, arrays

Values = npt.NDArray[np.generic]
# The place of a value in the new module: the name of an instruction, or the places of a tuple's parts.
_Place: TypeAlias = "str | tuple[_Place, ...]"

# Only integers are evaluated, because integer arithmetic is the same on every machine. Float arithmetic differs
# (subnormal numbers, and conversions of NaN and of numbers outside the integer type's range). So a branch in the
# simulation could skip work that the chip does.
INTEGERS = {"pred": "?", "s8": "i1", "u8": "u1", "s16": "<i2", "u16": "<u2", "s32": "<i4", "u32": "<u4"}
# Attributes that do not affect the value; they come after the attributes that affect it.
IRRELEVANT = re.compile(
    r", (?:sharding|frontend_attributes|control-predecessors|metadata|backend_config|statistics|origin)=.*", re.DOTALL
)
_NAME = re.compile(r"%([\w.\-]+)")
# Operations, and targets of custom calls, that return their first operand unchanged.
_SAME = ("copy", "copy-start", "copy-done", "async-done", "call-done", "opt-barrier")
_SAME_CALLS = ("AssumeGatherIndicesInBound", "Sharding")
_OPENED = ("fusion", "call", "async-start", "call-start")
_NOT_HERE = ("custom-call", "infeed", "rng", "rng-bit-generator", "partition-id", "replica-id")
# Some integers are computed from floating-point numbers. They are trusted if only these operations are used, because
# these operations round in the same way on every machine. Divisions and more complex operations round differently.
_EXACT = """
abs add bitcast bitcast-convert broadcast clamp compare concatenate constant convert copy dynamic-slice
dynamic-update-slice floor gather get-tuple-element iota maximum minimum multiply negate pad parameter reduce
reduce-window reshape reverse scatter select sign slice sort subtract transpose tuple while
"""
# The order in which these operations add is not documented. So only exact sums are accepted: sums of -1, 0 and 1, such
# as the counts of a histogram.
_SUMS = ("reduce", "reduce-window", "scatter")
# If the float operands of these operations are all -1, 0 or 1, so are their results.
_KEEP_UNITS = """
abs broadcast clamp concatenate copy dynamic-slice dynamic-update-slice floor gather maximum minimum multiply negate pad
reshape reverse select sign slice transpose
"""
_UNITS = {-1.0, 0.0, 1.0}
# Operations for which the order of the numbers does not matter; float sums must also be exact (see _SUMS).
_IN_ANY_ORDER = ("add", "multiply", "maximum", "minimum", "and", "or", "xor")
# Machines may use a reduction's initial number several times. For each of these operations, this is the only initial
# number that has no effect on the result.
_IDENTITY = {"add": 0.0, "xor": 0.0, "multiply": 1.0}
_STABLE = "is_stable=true"
_COMMENT = re.compile(r"/\*.*?\*/")
_LITERAL = re.compile(r"[-\w.+]+")
# Smaller float constants are refused: a product of a few of them may be subnormal, and some machines flush subnormal
# numbers to 0.
_SMALLEST = 2.0**-24
# The contents of memory that nothing has written yet.
_UNSET = "/*unset*/0"
# The shape of a value without contents, which only orders operations, such as operations of another core.
_TOKEN = "token[]"
# Larger arrays are not evaluated; no table of indices is so large.
MOST_ELEMENTS = 1 << 22
_MOST_INSTRUCTIONS = 20_000


class NotEvaluated(Exception):
    """Raised for a value that depends on unknown values, or that machines may compute differently."""


def evaluated(
    module: Module, name: str, element: int | None, argument: Callable[[Instruction], Values | None]
) -> Values:
    """The array that the instruction `name` returns, or the array at index `element` of its tuple.

    `argument` gives the contents of a parameter of the entry. Raises NotEvaluated.
    """
    instruction = module.instructions.get(name)
    kinds = arrays(instruction.shape) if instruction is not None else ()
    if instruction is None or not (element or 0) < len(kinds):
        raise NotEvaluated(f"{name} is not in the module")
    kind = kinds[element or 0]
    if kind.dtype not in INTEGERS:
        raise NotEvaluated(f"{name} is not an integer")
    writer = _Writer(module, argument)
    place = writer.place(name, writer.main)
    if element is not None and isinstance(instruction.shape, Tuple):
        place = writer.element(place, element, kind)
    if not isinstance(place, str):
        raise NotEvaluated(f"{name} is not an array")
    text = writer.module(place, kind.plain)
    values = _run(text)
    if _UNSET in text and not np.array_equal(values, _run(text.replace(_UNSET, "1"))):
        raise NotEvaluated(f"{name} depends on a value that machines compute differently")
    return values


@dataclass(slots=True)
class _Frame:
    """A computation that is being written to `lines`, with the places of its parameters and its instructions so far."""

    lines: list[str]
    parameters: tuple[_Place, ...] | None
    places: dict[str, _Place] = field(default_factory=dict)


class _Writer:
    """Writes a module that computes one value."""

    def __init__(self, module: Module, argument: Callable[[Instruction], Values | None]) -> None:
        self._module = module
        self._argument = argument
        self.main = _Frame([], None)
        self._kinds: dict[str, str] = {}
        self._texts: list[str] = []
        # The places of float arrays in which all elements are -1, 0 or 1. The place of a tuple's part is the tuple's
        # place and the part's number.
        self._units: set[_Place | tuple[_Place, int]] = set()
        # The numbers of scalar constants, by their places.
        self._scalars: dict[_Place, float] = {}

    def module(self, root: str, kind: str) -> str:
        """The module's text; its entry's root is a copy of `root`."""
        entry = [*self.main.lines, f"  ROOT %result = {kind} copy(%{root})"]
        computations = "\n".join(self._texts)
        return f"HloModule table\n\n{computations}\nENTRY %main () -> {kind} {{\n" + "\n".join(entry) + "\n}\n"

    def element(self, place: _Place, index: int, kind: Shape) -> _Place:
        """One element of a tuple in the entry. Raises NotEvaluated for a copy in progress, which has no elements."""
        if isinstance(place, tuple):
            return place[index]
        if not self._kinds[place].startswith("("):
            raise NotEvaluated("an element of a value that is not a tuple")
        return self._written(self.main, kind.plain, "get-tuple-element", f"%{place}", f", index={index}")

    def place(self, name: str, frame: _Frame) -> _Place:
        """The place of the value of the instruction `name`; writes the instruction if it is missing."""
        if name not in frame.places:
            frame.places[name] = self._copied(self._module.instructions[name], frame)
        return frame.places[name]

    def _copied(self, instruction: Instruction, frame: _Frame) -> _Place:
        opcode = instruction.opcode
        if opcode == "parameter":
            return self._parameter(instruction, frame)
        if instruction.shape.plain == _TOKEN:
            return ()
        if opcode == "get-tuple-element" and frame is self.main:
            # A branch may receive a tuple; only this array of the tuple has to be known.
            handed = self._module.branch_operands.get(instruction.operands[0].name)
            if handed is not None and handed.opcode == "tuple":
                return self.place(handed.operands[instruction.number or 0].name, frame)
        operands = [self.place(operand.name, frame) for operand in instruction.operands]
        if opcode == "tuple":
            return tuple(operands)
        if opcode == "get-tuple-element" and isinstance(operands[0], tuple):
            return operands[0][instruction.number or 0]
        if opcode in _SAME or instruction.target in _SAME_CALLS:
            return operands[0]
        if opcode in _OPENED:
            called = self._module.by_name.get(next(iter(instruction.computations("calls", "to_apply")), ""))
            if called is None or called.root is None:
                raise NotEvaluated(f"{instruction.name} calls a computation that is not in the module")
            return self.place(called.root.name, _Frame(frame.lines, tuple(operands)))
        if opcode == "get-tuple-element":
            place = self._line(instruction, operands, frame)
            if (operands[0], instruction.number or 0) in self._units:
                self._units.add(place)
            return place
        self._check(instruction, operands)
        if instruction.target == "AllocateBuffer":
            return self._unset(instruction.shape, frame)
        if opcode == "convert" and self._cuts_fractions(instruction):
            return self._truncate(instruction, operands[0], frame)
        if opcode == "bitcast":
            place = self._bitcast(instruction, operands[0], frame)
            if operands[0] in self._units and self._is_f32(instruction):
                self._units.add(place)
            return place
        if opcode in _NOT_HERE:
            raise NotEvaluated(f"{instruction.name} is a {opcode}, which is not evaluated")
        if opcode == "scatter":
            return self._scatter(instruction, operands, frame)
        place = self._line(instruction, operands, frame)
        if self._makes_units(instruction, operands):
            self._units.add(place)
        if opcode == "constant" and isinstance(instruction.shape, Array) and not instruction.shape.dimensions:
            with suppress(ValueError):
                self._scalars[place] = float(_COMMENT.sub("", instruction.literal))
        if opcode == "sort":
            self._units.update((place, number) for number, each in enumerate(operands) if each in self._units)
        return place

    def _parameter(self, instruction: Instruction, frame: _Frame) -> _Place:
        number = instruction.number or 0
        if frame.parameters is not None and number < len(frame.parameters):
            return frame.parameters[number]
        if frame is self.main and instruction.name in self._module.branch_operands:
            return self.place(self._module.branch_operands[instruction.name].name, frame)
        values = self._argument(instruction) if frame is self.main else None
        if values is None:
            raise NotEvaluated(f"the contents of the argument {instruction.name} are not known")
        if values.size > MOST_ELEMENTS:
            raise NotEvaluated(f"{instruction.name} has more than {MOST_ELEMENTS} elements: too many to evaluate")
        array = instruction.shape
        assert isinstance(array, Array)
        dtype = "s32" if array.dtype == "pred" else array.dtype
        numbers = "{" + ", ".join(map(str, values.ravel().astype(np.int64).tolist())) + "}"
        place = self._written(frame, f"{dtype}[{values.size}]", "constant", numbers, "")
        if array.dtype == "pred":
            place = self._written(frame, f"pred[{values.size}]", "convert", f"%{place}", "")
        return self._written(frame, array.plain, "reshape", f"%{place}", "")

    def _check(self, instruction: Instruction, operands: Sequence[_Place] = ()) -> None:
        """Raises NotEvaluated if the instruction may give different results on different machines."""
        shapes = [instruction.shape, *(self._module.instructions[o.name].shape for o in instruction.operands)]
        kinds = [array for shape in shapes for array in arrays(shape)]
        if any(True in array.dynamic for array in kinds):
            raise NotEvaluated(f"{instruction.name} has a size that is known only at run time")
        dtypes = {array.dtype for array in kinds}
        if strange := dtypes - {*INTEGERS, "f32"}:
            raise NotEvaluated(f"{instruction.name} has elements of the type {strange.pop()}")
        if instruction.opcode == "sort" and self._has_unknown_order(instruction):
            raise NotEvaluated(f"{instruction.name} may put equal keys into any order")
        if "f32" in dtypes:
            if instruction.opcode not in _EXACT.split():
                raise NotEvaluated(f"{instruction.name} computes {instruction.opcode} with floating-point numbers")
            if any(0 < abs(number) < _SMALLEST for number in _numbers(instruction)):
                raise NotEvaluated(f"{instruction.name} is a very small number")
        if instruction.opcode in _SUMS:
            self._check_reduction(instruction, operands, is_float="f32" in dtypes)

    def _check_reduction(self, instruction: Instruction, operands: Sequence[_Place], *, is_float: bool) -> None:
        """Raises NotEvaluated if the result may depend on the order in which numbers are combined."""
        combine = self._combination(instruction)
        is_known = not is_float or combine in ("maximum", "minimum") or self._is_exact_sum(instruction, operands)
        if is_known and instruction.opcode != "scatter" and len(operands) == 2:
            identity = _IDENTITY.get(combine)
            is_known = combine in _IN_ANY_ORDER and identity in (None, self._scalars.get(operands[1]))
        if not is_known:
            raise NotEvaluated(f"{instruction.name} belongs to a sum whose order is not known")

    def _is_exact_sum(self, instruction: Instruction, operands: Sequence[_Place]) -> bool:
        """True if a reduction of floats adds, or a scatter adds or sets, few enough numbers that are -1, 0 or 1."""
        sets = instruction.opcode == "scatter" and all(part.opcode == "parameter" for part in self._called(instruction))
        sizes = [array.elements for operand in instruction.operands for array in self._arrays(operand.name)]
        are_few = all(size is not None and size <= MOST_ELEMENTS for size in sizes)
        are_units = all(place in self._units for place in operands if not self._is_of_integers(place))
        return (sets or self._combination(instruction) == "add") and are_few and are_units

    def _combination(self, instruction: Instruction) -> str:
        """The opcode that a reduction applies to its two numbers; "" if its computation does anything else."""
        parts = self._called(instruction)
        numbers = {part.name: part.number for part in parts if part.opcode == "parameter"}
        steps = [part for part in parts if part.opcode != "parameter"]
        if len(steps) != 1 or sorted(numbers.get(each.name, 2) or 0 for each in steps[0].operands) != [0, 1]:
            return ""
        return steps[0].opcode

    def _makes_units(self, instruction: Instruction, operands: Sequence[_Place]) -> bool:
        """True if all elements of the result are floats that are known to be -1, 0 or 1."""
        if not self._is_f32(instruction):
            return False
        if instruction.opcode == "constant":
            return _UNITS.issuperset(_numbers(instruction))
        if instruction.opcode == "convert":
            source = self._arrays(instruction.operands[0].name)[0].dtype
            return source == "pred" or (source == "f32" and operands[0] in self._units)
        if instruction.opcode not in _KEEP_UNITS.split():
            return False
        floats = [place for place in operands if not self._is_of_integers(place)]
        return bool(floats) and all(place in self._units for place in floats)

    def _is_f32(self, instruction: Instruction) -> bool:
        return [array.dtype for array in arrays(instruction.shape)] == ["f32"]

    def _is_of_integers(self, place: _Place) -> bool:
        return isinstance(place, str) and self._kinds[place].partition("[")[0] in INTEGERS

    def _arrays(self, name: str) -> tuple[Array, ...]:
        return arrays(self._module.instructions[name].shape)

    def _called(self, instruction: Instruction) -> list[Instruction]:
        """The instructions of the computations that an instruction calls."""
        return [part for _, name in instruction.called for part in self._module.by_name[name].instructions]

    def _has_unknown_order(self, instruction: Instruction) -> bool:
        """True if machines may put equal keys of a sort into different orders, and the result shows the order.

        The result does not show the order if the sort is stable, or if elements with equal keys are identical. They are
        identical if all operands are broadcasts except one operand of integers, whose elements are the keys. Floats may
        be equal without being identical (0 and -0), so a sort of floats has an unknown order, even if it is stable.
        """
        operands = [self._module.instructions[operand.name] for operand in instruction.operands]
        seen = [place for place, operand in enumerate(operands) if operand.opcode != "broadcast"]
        if any(array.dtype == "f32" for place in seen for array in arrays(operands[place].shape)):
            return True
        if not seen or _STABLE in instruction.attributes:
            return False
        comparator = self._called(instruction)
        is_plain = {part.opcode for part in comparator} == {"parameter", "compare"}
        numbers = {part.name: part.number for part in comparator}
        keys = {numbers.get(key.name) for part in comparator for key in part.operands}
        return not (len(seen) == 1 and is_plain and keys == {2 * seen[0], 2 * seen[0] + 1})

    def _line(self, instruction: Instruction, operands: Sequence[_Place], frame: _Frame) -> str:
        text = ", ".join(f"%{self._array(operand, frame)}" for operand in operands) or instruction.literal
        if "..." in text:
            raise NotEvaluated(f"{instruction.name} is a constant that the dump leaves out")
        attributes = IRRELEVANT.sub("", instruction.attributes)
        if instruction.called:
            attributes = _NAME.sub(lambda match: f"%{self._computation(match[1])}", attributes)
        return self._written(frame, instruction.shape.plain, instruction.opcode, text, attributes)

    def _array(self, place: _Place, frame: _Frame) -> str:
        """The name of an instruction with the value at `place`; a new tuple instruction joins the parts of a tuple."""
        if isinstance(place, str):
            return place
        parts = [self._array(part, frame) for part in place]
        kinds = ", ".join(self._kinds[part] for part in parts)
        return self._written(frame, f"({kinds})", "tuple", ", ".join(f"%{part}" for part in parts), "")

    def _written(self, frame: _Frame, kind: str, opcode: str, text: str, attributes: str) -> str:
        name = f"v{len(self._kinds)}"
        if len(self._kinds) >= _MOST_INSTRUCTIONS:
            raise NotEvaluated(f"more than {_MOST_INSTRUCTIONS} instructions: too many to evaluate")
        frame.lines.append(f"  %{name} = {kind} {opcode}({text}){attributes}")
        self._kinds[name] = kind
        return name

    def _cuts_fractions(self, instruction: Instruction) -> bool:
        """True if the instruction converts floating-point numbers to integers."""
        source = self._module.instructions[instruction.operands[0].name].shape
        kinds = [array.dtype for shape in (source, instruction.shape) for array in arrays(shape)]
        return kinds[0] == "f32" and kinds[1] not in ("f32", "pred")

    def _truncate(self, instruction: Instruction, operand: _Place, frame: _Frame) -> str:
        """The numbers without fractions. Large numbers become unknown, because machines convert them differently."""
        target = instruction.shape.plain
        sizes = target[target.index("[") :]
        limit = self._written(frame, "f32[]", "constant", "1073741824", "")
        limits = self._written(frame, f"f32{sizes}", "broadcast", f"%{limit}", ", dimensions={}")
        size = self._written(frame, f"f32{sizes}", "abs", f"%{operand}", "")
        fits = self._written(frame, f"pred{sizes}", "compare", f"%{size}, %{limits}", ", direction=LT")
        whole = self._written(frame, target, "convert", f"%{operand}", "")
        other = self._unset(instruction.shape, frame)
        return self._written(frame, target, "select", f"%{fits}, %{whole}, %{other}", "")

    def _scatter(self, instruction: Instruction, operands: Sequence[_Place], frame: _Frame) -> str:
        """The operand with its updates. Elements that several updates set to different numbers become unknown.

        Machines may make the updates of one element in any order. Raises NotEvaluated if the order matters and the
        scatter does more than set elements of one array.
        """
        written = self._line(instruction, operands, frame)
        if self._combination(instruction) in _IN_ANY_ORDER:
            return written
        roots = [part for part in self._called(instruction) if part.is_root]
        kind = instruction.shape
        if not isinstance(kind, Array) or any(root.opcode != "parameter" or root.number != 1 for root in roots):
            raise NotEvaluated(f"{instruction.name} may make its updates in any order")
        attributes = IRRELEVANT.sub("", instruction.attributes)
        greatest, least = (
            self._written(
                frame,
                kind.plain,
                "scatter",
                ", ".join(
                    f"%{self._array(operand, frame)}" for operand in (self._ends(kind, first, frame), *operands[1:])
                ),
                _NAME.sub(f"%{self._chooser(kind, opcode)}", attributes),
            )
            for opcode, first in (("maximum", 0), ("minimum", -1))
        )
        # An element without updates keeps its initial numbers: the least number of the type in `greatest`, and the
        # greatest number in `least`. So the element does not count as different.
        sizes = kind.plain[kind.plain.index("[") :]
        differ = self._written(frame, f"pred{sizes}", "compare", f"%{greatest}, %{least}", ", direction=GT")
        other = self._unset(kind, frame)
        return self._written(frame, kind.plain, "select", f"%{differ}, %{other}, %{written}", "")

    def _ends(self, kind: Array, index: int, frame: _Frame) -> str:
        """An array that repeats the least number of the type of `kind` (`index` 0), or the greatest number (-1)."""
        if kind.dtype in INTEGERS and kind.dtype != "pred":
            limits = np.iinfo(INTEGERS[kind.dtype])
            number = str((limits.min, limits.max)[index])
        else:
            number = {"pred": ("false", "true")}.get(kind.dtype, ("-inf", "inf"))[index]
        end = self._written(frame, f"{kind.dtype}[]", "constant", number, "")
        return self._written(frame, kind.plain, "broadcast", f"%{end}", ", dimensions={}")

    def _chooser(self, kind: Array, opcode: str) -> str:
        """The name of a computation that applies `opcode` to two numbers; writes it to the new module."""
        name, scalar = f"c{len(self._texts)}.{opcode}", f"{kind.dtype}[]"
        self._texts.append(
            f"%{name} (a: {scalar}, b: {scalar}) -> {scalar} {{\n  %{name}.a = {scalar} parameter(0)\n"
            f"  %{name}.b = {scalar} parameter(1)\n  ROOT %{name}.c = {scalar} {opcode}(%{name}.a, %{name}.b)\n}}\n"
        )
        return name

    def _unset(self, shape: Shape, frame: _Frame) -> str:
        """An array with unknown contents: one value in the first evaluation, and another value in the second."""
        kind = shape.plain
        unset = self._written(frame, f"{kind.partition('[')[0]}[]", "constant", _UNSET, "")
        return self._written(frame, kind, "broadcast", f"%{unset}", ", dimensions={}")

    def _bitcast(self, instruction: Instruction, operand: _Place, frame: _Frame) -> str:
        """The operand's memory read as another array; the padding of tiles is unknown."""
        source, target = self._module.instructions[instruction.operands[0].name].shape, instruction.shape
        if isinstance(source, Tuple) or isinstance(target, Tuple) or isinstance(operand, tuple):
            raise NotEvaluated("a bitcast of a tuple")
        if source.dtype != target.dtype and _bytes(source) != _bytes(target):
            raise NotEvaluated("a bitcast to elements of another size")
        there, here = _levels(source), _levels(target)
        if (size := prod(there[-1].tiled)) != prod(here[-1].tiled):
            raise NotEvaluated(f"{instruction.name} has another size in memory than its operand")

        def moved(opcode: str, sizes: Sequence[int], operand: str, attributes: str = "") -> str:
            kind = f"{source.dtype}[{','.join(map(str, sizes))}]"
            return self._written(frame, kind, opcode, f"%{operand}", attributes)

        def turned(sizes: Sequence[int], order: Sequence[int], operand: str) -> str:
            after = [sizes[axis] for axis in order]
            return moved("transpose", after, operand, f", dimensions={{{','.join(map(str, order))}}}")

        place = turned(there[0].sizes, source.major_to_minor, operand)
        for level in there[1:]:
            place = moved("reshape", level.sizes, place)
            if level.padded != level.sizes:
                unset = self._unset(Array(dtype=source.dtype), frame)
                edges = "x".join(f"0_{more - size}" for size, more in zip(level.sizes, level.padded, strict=True))
                kind = f"{source.dtype}[{','.join(map(str, level.padded))}]"
                place = self._written(frame, kind, "pad", f"%{place}, %{unset}", f", padding={edges}")
            place = turned(level.split, level.order, moved("reshape", level.split, place))
        place = moved("reshape", [size], place)
        for level in here[:0:-1]:
            back = [level.order.index(axis) for axis in range(len(level.order))]
            place = moved("reshape", level.padded, turned(level.tiled, back, moved("reshape", level.tiled, place)))
            if level.padded != level.sizes:
                cut = ", ".join(f"[0:{count}]" for count in level.sizes)
                place = moved("slice", level.sizes, place, f", slice={{{cut}}}")
        order = target.major_to_minor
        place = moved("reshape", [here[0].sizes[axis] for axis in order], place)
        back = [order.index(axis) for axis in range(len(order))]
        place = turned([here[0].sizes[axis] for axis in order], back, place)
        if source.dtype != target.dtype:
            return self._written(frame, target.plain, "bitcast-convert", f"%{place}", "")
        return place

    def _computation(self, name: str) -> str:
        """The new module's name for the computation `name`; writes the computation to the new module."""
        called = self._module.by_name.get(name)
        if called is None or called.root is None:
            raise NotEvaluated(f"the computation {name} is not in the module")
        lines: list[str] = []
        frame = _Frame(lines, None)
        parameters = []
        for number, parameter in called.parameters.items():
            self._check(parameter)
            parameters.append(self._written(frame, parameter.shape.plain, "parameter", str(number), ""))
        frame.parameters = tuple(parameters)
        root = self._array(self.place(called.root.name, frame), frame)
        kind = self._kinds[root]
        # The root must be the last line, and be marked as the root.
        if kind.startswith("("):
            line = next(line for line in lines if line.startswith(f"  %{root} = "))
            lines.remove(line)
            lines.append("  ROOT" + line[1:])
        else:
            lines.append(f"  ROOT %r{root} = {kind} copy(%{root})")
        written = f"c{root}"
        signature = ", ".join(f"{place}: {self._kinds[place]}" for place in parameters)
        self._texts.append(f"%{written} ({signature}) -> {kind} {{\n" + "\n".join(lines) + "\n}\n")
        return written


@dataclass(frozen=True, slots=True, kw_only=True)
class _Level:
    """One step from an array to its memory layout: the dimensions, padded to whole tiles and split by the tile.

    `order` moves the dimensions within a tile to the end, which gives `tiled`.
    """

    sizes: tuple[int, ...]
    padded: tuple[int, ...]
    split: tuple[int, ...]
    order: tuple[int, ...]

    @property
    def tiled(self) -> tuple[int, ...]:
        return tuple(self.split[axis] for axis in self.order)


def _levels(array: Array) -> list[_Level]:
    """One level for the array's own dimensions, and one for each tile of its layout. Raises NotEvaluated."""
    lengths = tuple(size or 0 for size in array.dimensions)
    levels = [_Level(sizes=lengths, padded=lengths, split=lengths, order=array.major_to_minor)]
    for tile in array.layout.tiles if array.layout is not None else ():
        if JOINED in tile:
            raise NotEvaluated("a bitcast of joined dimensions")
        before = levels[-1].tiled
        sizes = (1,) * (len(tile) - len(before)) + before
        whole = len(sizes) - len(tile)
        counts = [-(-size // step) for size, step in zip(sizes[whole:], tile, strict=True)]
        ends = range(whole, whole + 2 * len(tile))
        levels.append(
            _Level(
                sizes=sizes,
                padded=(*sizes[:whole], *(count * step for count, step in zip(counts, tile, strict=True))),
                split=(*sizes[:whole], *(size for pair in zip(counts, tile, strict=True) for size in pair)),
                order=(*range(whole), *ends[::2], *ends[1::2]),
            )
        )
    return levels


def _numbers(instruction: Instruction) -> list[float]:
    """The numbers of a literal of floats; empty for other instructions."""
    is_float = "f32" in {array.dtype for array in arrays(instruction.shape)}
    return [float(word) for word in _LITERAL.findall(_COMMENT.sub("", instruction.literal))] if is_float else []


def _bytes(array: Array) -> int | None:
    """The bytes of an element if the array holds integers; None otherwise."""
    return np.dtype(INTEGERS[array.dtype]).itemsize if array.dtype in INTEGERS else None


@cache
def _client() -> Any:
    # Suppresses the XLA client's log about devices.
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "1")
    from jaxlib import xla_client

    return xla_client.make_cpu_client()


@lru_cache(maxsize=64)
def _run(text: str) -> Values:
    """The value of the module's entry, read-only. Raises NotEvaluated if XLA refuses the module."""
    client = _client()
    from jaxlib import _hlo, _jax, xla_client

    try:
        proto = _hlo.hlo_module_from_text(text).as_serialized_hlo_module_proto()
        devices = _jax.DeviceList(tuple(client.local_devices()[:1]))
        options = xla_client.CompileOptions()
        # The whole module is constant, so constant folding would evaluate all of it, which is XLA's slowest way to do
        # so. XLA's algebraic simplifier for CPUs rewrites float arithmetic by other rules than the one for TPUs.
        options.executable_build_options.debug_options.xla_disable_hlo_passes = "constant_folding,algsimp"
        program = client.compile_and_load(_jax.mlir.hlo_to_stablehlo(proto), devices, options)
        result = program.execute_sharded([]).disassemble_into_single_device_arrays()
    except (RuntimeError, ValueError, TypeError) as error:
        raise NotEvaluated(f"XLA does not evaluate it: {str(error).splitlines()[0]}") from error
    values: Values = np.asarray(result[0][0])
    return values
