"""Values of constants of kernel.py: lists, ranges and powers of two."""

import ast
import itertools
import re
from collections.abc import Iterator, Mapping, Sequence
from math import prod
from types import CodeType

from harness.errors import UsageError
from harness.loop.settings import parse, value_of

Setting = tuple[str, str]
Grid = tuple[tuple[str, tuple[str, ...]], ...]
_RANGE = re.compile(r"\s*(-?\d+)\.\.(-?\d+)(?::(pow2|\d+))?\s*")
_IN_CONDITIONS = (ast.BoolOp, ast.UnaryOp, ast.BinOp, ast.Compare, ast.Name, ast.Constant, ast.Load)
_OPERATORS = (ast.boolop, ast.unaryop, ast.cmpop, ast.Add, ast.Sub, ast.Mult, ast.FloorDiv, ast.Div, ast.Mod)
# A space up to this size can be listed.
MOST_LISTED = 1 << 16
# A larger range is probably a typing error, and the record of a sweep lists every value.
_MOST_VALUES = 4096


def space(texts: Sequence[str]) -> Grid:
    """The names in `("BQ=512,1024", "BKV=128..2048:pow2", "T=8..64:8")` with their values, in order.

    A range includes both ends if its steps reach them: `:pow2` gives the powers of two in the range, `:8` every
    eighth number from the first. Raises UsageError `bad-setting` or `bad-grid`.
    """
    grid: dict[str, tuple[str, ...]] = {}
    for text in texts:
        name, equals, values = text.partition("=")
        name = name.strip()
        settings = [parse(f"{name}{equals}{value}") for part in _split(values) for value in _values(name, part)]
        if name in grid:
            raise UsageError(
                "bad-grid", f"--set {name} is given twice: list all its values in one --set, such as {name}=512,1024"
            )
        grid[name] = tuple(dict.fromkeys(value for _, value in settings))
    if not grid:
        raise UsageError("bad-grid", "expected --set NAME=VALUE,VALUE,... at least once, got none")
    return tuple(grid.items())


def every(grid: Grid) -> Iterator[tuple[Setting, ...]]:
    """All settings of the grid, the last constant changing first."""
    names = [name for name, _ in grid]
    return (tuple(zip(names, values, strict=True)) for values in itertools.product(*(values for _, values in grid)))


def allowed(grid: Grid, conditions: Sequence[str]) -> frozenset[tuple[Setting, ...]] | None:
    """The settings of the grid that fulfil every one of `conditions`, such as `BKV % BKV_COMPUTE == 0`.

    A condition compares arithmetic on constants of the grid; `and`, `or` and `not` join comparisons. None without
    conditions. Raises UsageError `bad-condition` for an invalid condition, if no setting is left, or if the grid is too
    large to list.
    """
    if not conditions:
        return None
    names = {name for name, _ in grid}
    tests = [(text, compile(ast.Expression(_condition(text, names)), "--where", "eval")) for text in conditions]
    if size(grid) > MOST_LISTED:
        raise UsageError(
            "bad-condition",
            f"expected at most {MOST_LISTED:,} settings in a grid with --where, got {size(grid):,}: narrow the ranges",
        )
    numbers = {name: {value: value_of(value) for value in values} for name, values in grid}
    fulfilling = []
    for settings in every(grid):
        values = {name: numbers[name][value] for name, value in settings}
        if all(_holds(code, values, text) for text, code in tests):
            fulfilling.append(settings)
    if not fulfilling:
        words = " --where ".join(map(repr, conditions))
        raise UsageError("bad-condition", f"no setting of the grid fulfils --where {words}: loosen a condition")
    return frozenset(fulfilling)


def _condition(text: str, names: set[str]) -> ast.expr:
    try:
        tree = ast.parse(text.strip(), mode="eval").body
    except SyntaxError as error:
        raise UsageError("bad-condition", f"--where {text!r} is not a condition in Python: {error.msg}") from None
    for node in ast.walk(tree):
        if not isinstance(node, (*_IN_CONDITIONS, *_OPERATORS)):
            got = ast.unparse(node) or type(node).__name__
            raise UsageError("bad-condition", f"--where {text!r}: expected comparisons and arithmetic, got {got}")
        if isinstance(node, ast.Name) and node.id not in names:
            raise UsageError("bad-condition", f"--where {text!r}: expected constants of --set, got {node.id}")
    if not isinstance(tree, ast.Compare | ast.BoolOp | ast.UnaryOp):
        raise UsageError("bad-condition", f"--where {text!r}: expected a comparison, such as BKV_COMPUTE <= BKV")
    return tree


def _holds(code: CodeType, values: Mapping[str, object], text: str) -> bool:
    try:
        # The code contains only comparisons, arithmetic and the names in `values`.
        return bool(eval(code, {"__builtins__": {}}, dict(values)))
    except (ArithmeticError, TypeError, ValueError) as error:
        raise UsageError("bad-condition", f"--where {text!r} with {values}: {error}") from None


def size(grid: Grid) -> int:
    """The number of settings."""
    return prod(len(values) for _, values in grid)


def words(settings: Sequence[Setting]) -> str:
    """The settings in words, such as `BQ=2048 BKV=1024`."""
    return " ".join(f"{name}={value}" for name, value in settings)


def _values(name: str, text: str) -> list[str]:
    """The values of a range; for any other text, that text."""
    match = _RANGE.fullmatch(text)
    if match is None and re.match(r"\s*-?\d.*\.\.", text) is None:
        return [text]
    first, last, step = (int(match[1]), int(match[2]), match[3] or "1") if match else (0, 0, "0")
    if step == "pow2":
        numbers = [1 << power for power in range(last.bit_length()) if first <= 1 << power <= last] if last > 0 else []
    elif int(step) < 1 or (last - first) // int(step) >= _MOST_VALUES:
        numbers = []
    else:
        numbers = list(range(first, last + 1, int(step)))
    if not numbers:
        raise UsageError(
            "bad-grid",
            f"--set {name}: expected a rising range such as 128..2048:pow2 or 8..64:8, of at most {_MOST_VALUES:,} "
            f"values, got {text.strip()!r}",
        )
    return [str(value) for value in numbers]


def _split(values: str) -> list[str]:
    """The values, split at commas outside brackets and quotes: `(8, 128),(16, 128)` are two."""
    parts, depth, quote = [""], 0, ""
    for sign in values:
        if sign == "," and not depth and not quote:
            parts.append("")
            continue
        if quote:
            quote = "" if sign == quote else quote
        elif sign in "'\"":
            quote = sign
        else:
            depth += (sign in "([{") - (sign in ")]}")
        parts[-1] += sign
    return parts
