"""Reads a prepare.py as data, without running it: constants, and a class of `harness.operators` called with them.

The reader takes the small part of Python that such a file needs: literals, arithmetic on numbers, tuples and dicts,
names, functions that return an expression, comprehensions, and calls of the classes of `harness.operators` and of a
few functions such as `zip`. A file with anything else is not data.
"""

import ast
import math
import operator
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, fields, is_dataclass
from typing import Any

from harness import operators
from harness.operators import Member, Suite, prepare_module

# A larger file can be written so that Python takes seconds to parse it.
_MOST_BYTES = 1 << 16
# The most expressions that are evaluated; the project's own files have about a hundred.
_MOST_STEPS = 20_000
_MOST_BITS = 256
_MOST_ITEMS = 1000
_MOST_CHARACTERS = 10_000
# The limits of a problem's arguments. No axis of a TPU program is longer than an int32 can count. Stating a problem
# makes an array for each of its tables (`_entries`); together these arrays may have at most this many numbers.
_LARGEST = 2**31 - 1
_MOST_ENTRIES = 1 << 22


class _NotDataError(Exception):
    """A prepare.py that is not read as data: it has code that is not understood, or exceeds a limit."""


_ARITHMETIC: dict[type[ast.operator], Callable[[Any, Any], Any]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
    ast.FloorDiv: operator.floordiv,
    ast.Mod: operator.mod,
    ast.Pow: operator.pow,
}
_COMPARISONS: dict[type[ast.cmpop], Callable[[Any, Any], bool]] = {
    ast.Eq: operator.eq,
    ast.NotEq: operator.ne,
    ast.Lt: operator.lt,
    ast.LtE: operator.le,
    ast.Gt: operator.gt,
    ast.GtE: operator.ge,
}
_FUNCTIONS: dict[str, Callable[..., Any]] = {
    "tuple": tuple,
    "list": list,
    "dict": dict,
    "zip": zip,
    "enumerate": enumerate,
    "min": min,
    "max": max,
    "sum": sum,
    "int": int,
    "float": float,
    "len": len,
    "abs": abs,
}


def read(source: bytes) -> tuple[Any, Any] | None:
    """The values of `problem()` and CHIP in this prepare.py; None if it is not data, or fails."""
    if len(source) > _MOST_BYTES:
        return None
    try:
        return _Reader().module(ast.parse(source))
    # A file that fails here fails again when it is run, with a message.
    except (_NotDataError, SyntaxError, RecursionError, MemoryError, *_MISTAKES):
        return None


def members_of(problem: Any) -> tuple[Member, ...]:
    """The members of a suite; for a single problem, the problem itself, as a member without a name."""
    return problem.members if isinstance(problem, Suite) else (Member(name="", problem=problem),)


_MISTAKES = (NameError, AttributeError, TypeError, ValueError, ArithmeticError, LookupError, StopIteration)


@dataclass(frozen=True, slots=True)
class _Function:
    """A `def` of the file, and the names in its scope."""

    node: ast.FunctionDef
    names: Mapping[str, Any]


class _Reader:
    def __init__(self) -> None:
        self._steps = 0
        self._entries = 0

    def module(self, tree: ast.Module) -> tuple[Any, Any]:
        names: dict[str, Any] = {}
        for node in tree.body:
            if not _is_main(node) and self._statement(node, names):
                raise _NotDataError
        function, chip = names["problem"], names["CHIP"]
        if not isinstance(function, _Function):
            raise _NotDataError
        return self._call_function(function, [], {}), chip

    def _statement(self, node: ast.stmt, names: dict[str, Any]) -> tuple[Any, ...]:
        """Executes a statement: the value of a `return`, in a tuple of one; () for any other statement."""
        match node:
            case ast.Expr(value=ast.Constant(value=str())):
                pass
            case ast.Assign(targets=[target], value=value):
                self._bind(target, self._value(value, names), names)
            case ast.AnnAssign(target=ast.Name() as target, value=ast.expr() as value):
                self._bind(target, self._value(value, names), names)
            case ast.ImportFrom(module="harness.operators" | "harness.problems", level=0, names=imported):
                for alias in imported:
                    names[alias.asname or alias.name] = _on_board(alias.name)
            case ast.FunctionDef(name=name, decorator_list=[]):
                names[name] = _Function(node, names)
            case ast.Return(value=ast.expr() as value):
                return (self._value(value, names),)
            case _:
                raise _NotDataError
        return ()

    def _bind(self, target: ast.expr, value: Any, names: dict[str, Any]) -> None:
        match target:
            case ast.Name(id=name):
                names[name] = value
            case ast.Tuple(elts=parts) if isinstance(value, tuple | list) and len(value) == len(parts):
                for part, item in zip(parts, value, strict=True):
                    self._bind(part, item, names)
            case _:
                raise _NotDataError

    def _call_function(self, function: _Function, values: list[Any], named: dict[str, Any]) -> Any:
        """The value that a function of the file returns for these arguments.

        Raises _NotDataError if a parameter has a default or is not plain, if the arguments do not fit, or if the
        function returns nothing.
        """
        arguments = function.node.args
        if arguments.vararg or arguments.kwarg or arguments.defaults or arguments.kw_defaults or arguments.posonlyargs:
            raise _NotDataError
        parameters = [argument.arg for argument in arguments.args]
        if len(values) > len(parameters) or sorted([*parameters[: len(values)], *named]) != sorted(parameters):
            raise _NotDataError
        names = {**function.names, **dict(zip(parameters, values, strict=False)), **named}
        for node in function.node.body:
            returned = self._statement(node, names)
            if returned:
                return returned[0]
        raise _NotDataError

    def _value(self, node: ast.expr, names: Mapping[str, Any]) -> Any:
        self._steps += 1
        if self._steps > _MOST_STEPS:
            raise _NotDataError
        return _small(self._any_value(node, names))

    def _any_value(self, node: ast.expr, names: Mapping[str, Any]) -> Any:
        match node:
            case ast.Constant(value=value) if value is None or isinstance(value, bool | int | float | str):
                return value
            case ast.Name(id=name):
                return names[name] if name in names else _FUNCTIONS[name]
            case ast.Tuple(elts=parts) | ast.List(elts=parts):
                values = [self._value(part, names) for part in parts]
                return tuple(values) if isinstance(node, ast.Tuple) else values
            case ast.Dict(keys=keys, values=parts):
                return {
                    self._value(key or _absent(), names): self._value(part, names)
                    for key, part in zip(keys, parts, strict=True)
                }
            case ast.BinOp(left=left, op=by, right=right):
                return _computed(type(by), self._value(left, names), self._value(right, names))
            case ast.UnaryOp(op=ast.USub(), operand=operand):
                return -_number(self._value(operand, names))
            case ast.UnaryOp(op=ast.Not(), operand=operand):
                return not self._value(operand, names)
            case ast.IfExp(test=test, body=body, orelse=orelse):
                return self._value(body if self._value(test, names) else orelse, names)
            case ast.Compare(left=left, ops=[by], comparators=[right]) if type(by) in _COMPARISONS:
                return _COMPARISONS[type(by)](self._value(left, names), self._value(right, names))
            case ast.JoinedStr(values=parts):
                return "".join(self._text(part, names) for part in parts)
            case ast.Subscript(value=value, slice=index):
                return self._value(value, names)[self._value(index, names)]
            case ast.GeneratorExp() | ast.ListComp():
                return list(self._elements(node.elt, node.generators, names))
            case ast.Call(func=ast.Name() as called, args=args, keywords=keywords):
                return self._call(called, args, keywords, names)
        raise _NotDataError

    def _call(
        self, called: ast.Name, args: list[ast.expr], keywords: list[ast.keyword], names: Mapping[str, Any]
    ) -> Any:
        function = self._value(called, names)
        values = [self._value(argument, names) for argument in args]
        named: dict[str, Any] = {}
        for keyword in keywords:
            value = self._value(keyword.value, names)
            more = {keyword.arg: value} if keyword.arg is not None else value
            if not isinstance(more, dict) or named.keys() & more.keys():
                raise _NotDataError
            named |= more
        if isinstance(function, _Function):
            return self._call_function(function, values, named)
        if function in (zip, enumerate):
            return list(function(*values, **named))
        if function in _FUNCTIONS.values():
            return function(*values, **named)
        if _is_on_board(function):
            if any(isinstance(value, int) and abs(value) > _LARGEST for value in (*values, *named.values())):
                raise _NotDataError
            stated = function(*values, **named)
            self._entries += _entries(stated)
            if self._entries > _MOST_ENTRIES:
                raise _NotDataError
            return stated
        raise _NotDataError

    def _elements(
        self, element: ast.expr, generators: list[ast.comprehension], names: Mapping[str, Any]
    ) -> Iterator[Any]:
        first, *rest = generators
        if first.is_async:
            raise _NotDataError
        for value in self._value(first.iter, names):
            inner = dict(names)
            self._bind(first.target, value, inner)
            if all(self._value(test, inner) for test in first.ifs):
                yield from self._elements(element, rest, inner) if rest else [self._value(element, inner)]

    def _text(self, part: ast.expr, names: Mapping[str, Any]) -> str:
        match part:
            case ast.Constant(value=str() as text):
                return text
            case ast.FormattedValue(value=value, conversion=-1, format_spec=None):
                text_value = self._value(value, names)
                if isinstance(text_value, bool | int | float | str):
                    return str(text_value)
        raise _NotDataError


def _is_main(node: ast.stmt) -> bool:
    """True for `if __name__ == "__main__":`, whose test is True only if the file is run as a program."""
    return isinstance(node, ast.If) and not node.orelse and ast.unparse(node.test) == "__name__ == '__main__'"


def _absent() -> ast.expr:
    raise _NotDataError


def _on_board(name: str) -> Any:
    operator_class = getattr(operators, name, None)
    if not _is_on_board(operator_class):
        raise _NotDataError
    return operator_class


def _is_on_board(value: Any) -> bool:
    """True for a class of the judge that states a problem, or that makes suites."""
    return value in (Member, Suite) or (
        isinstance(value, type)
        and is_dataclass(value)
        and value.__module__.startswith("harness.operators.")
        and not prepare_module.missing_methods(value)
    )


def _entries(problem: Any) -> int:
    """The number of entries in a problem's tables, roughly: groups, segments of rows, lists of pages."""

    def product(*fields: str) -> int:
        return math.prod(getattr(problem, field, None) or 0 for field in fields)

    packed = product("batch", "sequence") if product("segments") else 0
    return packed + product("groups") + product("pages") + product("sequences", "pages_per_sequence")


def _number(value: Any) -> Any:
    if not isinstance(value, int | float):
        raise _NotDataError
    return value


def _computed(by: type[ast.operator], left: Any, right: Any) -> Any:
    function = _ARITHMETIC.get(by)
    if function is None or (function is operator.pow and isinstance(right, int) and abs(right) > _MOST_BITS):
        raise _NotDataError
    return function(_number(left), _number(right))


def _small(value: Any) -> Any:
    """The value itself. Raises _NotDataError if it exceeds a limit above: values of the project's files are smaller.

    Parts that occur twice count twice, as in the text.
    """
    left, inside = _MOST_ITEMS, [value]
    while inside:
        part = inside.pop()
        left -= 1
        if left < 0 or (isinstance(part, int) and part.bit_length() > _MOST_BITS):
            raise _NotDataError
        if isinstance(part, str | bytes) and len(part) > _MOST_CHARACTERS:
            raise _NotDataError
        if isinstance(part, tuple | list):
            inside += part
        elif isinstance(part, dict):
            inside += (*part.keys(), *part.values())
        elif isinstance(part, Member | Suite):
            inside += (getattr(part, field.name) for field in fields(part))
    return value
