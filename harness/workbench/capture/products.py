"""The matrix products in a module's StableHLO: sizes, types, and the operands that are weights."""

import math
import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Literal

from harness.records.doctor import Dots
from harness.workbench.profiles.memory_rules import PARAMETERS, category_of_name

_DOT = re.compile(
    r"stablehlo\.dot_general (%[\w#]+), (%[\w#]+)([^:\n]*): \(tensor<([^>]*)>, tensor<([^>]*)>\) -> tensor<([^>]*)>"
)
# A product refers to an entry in the text's table of source locations: `loc(#loc12)`.
_PLACE = re.compile(r"loc\((#loc\d*)\)$")
_PLACES = re.compile(r'^(#loc\d*) = loc\((?:"([^"]*)"|\w+)?', re.MULTILINE)
_PRECISION = re.compile(r"precision = \[([\w, ]+)\]")
_FUNCTION = re.compile(r"func\.func (?:\w+ )?@(\w+)\(")
_ARGUMENT = re.compile(r'(%arg\d+): tensor<(?:\d+x)*(\w+)>(?:[^%]*?loc\("([^"]*)"\))?')
# Operations that return some or all values of their operand in another shape or type.
_SAME = re.compile(
    r"(%[\w#]+) = stablehlo\.(?:convert|transpose|reshape|broadcast_in_dim|slice|dynamic_slice) (%[\w#]+)"
)
_CALL = re.compile(r"(%\w+)(?::\d+)? = (?:func\.)?call @(\w+)\(([^)]*)\)")
_NEXT = re.compile(r"^\s*stablehlo\.return (.*) :")
_LOOP = re.compile(r"(%iterArg\w*) = (%[\w#]+)")
_RETURN = re.compile(r"^\s*(?:func\.)?return (%[\w#]+) :")
# Arguments are followed through at most this many levels of nested calls.
_DEEP = 4


@dataclass(frozen=True, slots=True)
class _Argument:
    """An argument of the program: the name that JAX gives it, such as `params['w1']`, and the type of its elements."""

    name: str
    dtype: str


def dots(module: str, text: str) -> Iterator[Dots]:
    """The matrix products of a module; equal products are one entry with a count."""
    products = list(_products(module, text))
    weights = {argument for of, *operands in products for argument in _weights(of, *operands)}
    kinds: Counter[Dots] = Counter()
    for of, left, right in products:
        side: Literal["left", "right", ""] = "right" if right in weights else "left" if left in weights else ""
        weight = {"left": left, "right": right, "": None}[side]
        kinds[replace(of, weights=side, weights_stored=weight.dtype if weight else "")] += 1
    yield from (replace(of, count=count) for of, count in kinds.items())


def _weights(of: Dots, left: _Argument | None, right: _Argument | None) -> Iterator[_Argument]:
    """Arguments that are weights: by name, or because they multiply a computed value outside the backward pass."""
    arguments = [argument for argument in (left, right) if argument]
    named = [argument for argument in arguments if category_of_name(argument.name, "Parameter") == PARAMETERS]
    yield from named or (arguments if len(arguments) == 1 and of.part != "backward" else ())


def _products(module: str, text: str) -> Iterator[tuple[Dots, _Argument | None, _Argument | None]]:
    """Each matrix product, and for both operands the program's argument that they come from (None: computed)."""
    places, stored, function = dict(_PLACES.findall(text)), _argument_values(text), ""
    for line in text.splitlines():
        if match := _FUNCTION.search(line):
            function = match[1]
        for first, second, attributes, *shapes in _DOT.findall(line):
            left, right, result = (shape.rpartition("x")[2] for shape in shapes)
            asked = _PRECISION.search(attributes)
            place = places.get(match[1], "") if (match := _PLACE.search(line)) else ""
            batch, rows, summed, columns = _sizes(attributes, shapes[0], shapes[1])
            of = Dots(
                module=module,
                left=left,
                right=right,
                result=result,
                count=1,
                precision=asked[1] if asked else "DEFAULT, DEFAULT",
                batch=batch,
                rows=rows,
                summed=summed,
                columns=columns,
                part="backward" if "transpose(" in place else "forward" if "jvp(" in place else "",
            )
            yield of, stored.get((function, first)), stored.get((function, second))


def _argument_values(text: str) -> dict[tuple[str, str], _Argument]:
    """For each value that is an argument of the program, by (function, name of the value): the argument.

    Arguments are followed through calls and loops.
    """
    arguments: dict[tuple[str, str], _Argument] = {}
    results: dict[str, str] = {}
    parameters: dict[str, list[str]] = {}
    for _ in range(_DEEP):
        before, function = len(arguments), ""
        loops: list[list[tuple[str, str]]] = []
        for line in text.splitlines():
            if match := _FUNCTION.search(line):
                function, loops = match[1], []
                listed = _ARGUMENT.findall(line)
                parameters[function] = [value for value, _, _ in listed]
                if function == "main":
                    arguments |= {(function, value): _Argument(name or value, dtype) for value, dtype, name in listed}
            elif match := _CALL.search(line):
                called, passed = match[2], match[3].split(", ")
                for value, inner in zip(passed, parameters.get(called, ()), strict=False):
                    _follow(arguments, (function, value), (called, inner))
                _follow(arguments, (called, results.get(called, "")), (function, match[1]))
            elif match := _SAME.search(line):
                _follow(arguments, (function, match[2]), (function, match[1]))
            elif match := _RETURN.match(line):
                results[function] = match[1]
            elif "stablehlo.while" in line:
                loops.append(_LOOP.findall(line))
            elif loops and (match := _NEXT.match(line)) and len(match[1].split(", ")) == len(loops[-1]):
                # A value that the loop changes is no longer the argument.
                for (inner, value), after in zip(loops.pop(), match[1].split(", "), strict=True):
                    if inner == after:
                        _follow(arguments, (function, value), (function, inner))
        if before == len(arguments):
            break
    return arguments


def _follow(arguments: dict[tuple[str, str], _Argument], value: tuple[str, str], into: tuple[str, str]) -> None:
    if value in arguments:
        arguments.setdefault(into, arguments[value])


def _sizes(attributes: str, left: str, right: str) -> tuple[int, int, int, int]:
    """Batch, rows, summed length and columns of a product; all are 0 if a size is not a number."""
    sides = [[int(size) for size in shape.split("x")[:-1] if size.isdecimal()] for shape in (left, right)]
    if any(len(sizes) != shape.count("x") for sizes, shape in zip(sides, (left, right), strict=True)):
        return 0, 0, 0, 0
    batched, summed = _dimensions(attributes, "batching_dims"), _dimensions(attributes, "contracting_dims")
    free = [
        math.prod(size for place, size in enumerate(sizes) if place not in (*batched[side], *summed[side]))
        for side, sizes in enumerate(sides)
    ]
    batch = math.prod(sides[0][place] for place in batched[0])
    return batch, free[0], math.prod(sides[0][place] for place in summed[0]), free[1]


def _dimensions(attributes: str, name: str) -> tuple[list[int], list[int]]:
    """The dimensions of the left and of the right operand in the attribute `name` of a product."""
    match = re.search(rf"{name} = \[([\d, ]*)\] x \[([\d, ]*)\]", attributes)
    left, right = (list(map(int, re.findall(r"\d+", side))) for side in (match.groups() if match else ("", "")))
    return left, right
