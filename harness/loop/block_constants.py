"""The constants and lines of kernel.py that set a block, for advice on its size and on its index map."""

import ast
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import replace

from harness.advice.failure_remedies import BLOCK_BEYOND
from harness.advice.operands import with_callers_names
from harness.candidate import Candidate
from harness.loop.settings import value_of
from harness.records import Edit, Evidence, Hint, Window


def with_settings(advice: Sequence[Hint], evidence: Evidence, candidate: Candidate) -> tuple[Hint, ...]:
    """`advice` with the constants of `candidate` that may set the block of each edit.

    If a block lies beyond its array, the remedy begins with the lines that have BlockSpecs.
    """
    if evidence.failure is not None and BLOCK_BEYOND.search(evidence.failure.message):
        lines = ", ".join(_lines_with_specs(candidate))
        return tuple(replace(hint, suggestion=f"{lines and f'{lines}: '}{hint.suggestion}") for hint in advice)
    evidence = with_callers_names(evidence)
    return tuple(_with_settings(hint, evidence, candidate) for hint in advice)


def _lines_with_specs(candidate: Candidate) -> Iterator[str]:
    """The lines of the candidate's files that call BlockSpec, in order."""
    for name, text in candidate.files.items():
        with suppress(SyntaxError, ValueError):
            calls = (node for node in ast.walk(ast.parse(text)) if isinstance(node, ast.Call))
            specs = {node.lineno for node in calls if ast.unparse(node.func).rpartition(".")[2] == "BlockSpec"}
            yield from (f"{name}:{line}" for line in sorted(specs))


def _with_settings(hint: Hint, evidence: Evidence, candidate: Candidate) -> Hint:
    edits = tuple(replace(edit, constants=_constants(edit, evidence, candidate)) for edit in hint.edits)
    values_of: dict[str, list[str]] = {}
    for edit in edits:
        if len(edit.constants) == 1:
            values_of.setdefault(edit.constants[0], []).append(str(edit.new))
    options = [_option(name, tuple(dict.fromkeys(values))) for name, values in values_of.items()]
    for edit in edits:
        if len(edit.constants) > 1:
            # Several constants have the block's size, and the text does not tell which of them sets it.
            first, *others = (f"--set {name}={edit.new}" for name in edit.constants)
            options.append(f"first {first}; if it changes another block, {' or '.join(others)}")
    words = f"{hint.suggestion} ({' or '.join(dict.fromkeys(options))})" if options else hint.suggestion
    return replace(hint, edits=edits, suggestion=words)


def _option(name: str, values: Sequence[str]) -> str:
    # An attempt takes one value.
    return f"{'sweep with ' * (len(values) > 1)}--set {name}={','.join(values)}"


def _constants(edit: Edit, evidence: Evidence, candidate: Candidate) -> tuple[str, ...]:
    """The constant that the BlockSpec names; if it names none, all constants with the block's size that may set it."""
    sized = tuple(name for name, value in candidate.constants if _is_size(value, edit.size))
    specs = next(filter(None, _input_specs(evidence, candidate)), [])
    place = next((place for place, window in enumerate(_inputs(evidence)) if window.name == edit.window), None)
    if not specs or place is None or sum(window.name == edit.window for window in _inputs(evidence)) > 1:
        return sized
    named = _size_in(specs[place], edit.axis)
    if named in sized:
        return (named,)
    others = {_size_in(spec, axis) for spec in specs for axis in range(-len(_shape_in(spec)), 0)}
    return tuple(name for name in sized if not named or name not in others)


def _is_size(value: str, size: int) -> bool:
    with suppress(ValueError, TypeError, ArithmeticError):
        number = value_of(value)
        return type(number) is int and number == size
    return False


def _inputs(evidence: Evidence) -> list[Window]:
    calls = evidence.trace.pallas_calls if evidence.trace else ()
    return [window for call in calls for window in call.windows if window.role == "input"]


def _input_specs(evidence: Evidence, candidate: Candidate) -> Iterator[list[ast.expr]]:
    """The BlockSpecs of all inputs, for each file that lists them, if the trace has exactly one Pallas call."""
    calls = evidence.trace.pallas_calls if evidence.trace else ()
    for text in candidate.files.values():
        nodes: tuple[ast.AST, ...] = ()
        with suppress(SyntaxError, ValueError):
            nodes = tuple(ast.walk(ast.parse(text)))
        specs = [
            node.value.elts
            for node in nodes
            if isinstance(node, ast.keyword) and node.arg == "in_specs" and isinstance(node.value, ast.List | ast.Tuple)
        ]
        if len(calls) == len(specs) == 1 and len(specs[0]) == len(_inputs(evidence)):
            yield specs[0]


def _size_in(spec: ast.expr, axis: int) -> str:
    shape = _shape_in(spec)
    size = shape[axis] if len(shape) >= -axis else None
    return size.id if isinstance(size, ast.Name) else ""


def _shape_in(spec: ast.expr) -> list[ast.expr]:
    shapes = [*spec.args[:1], *(keyword.value for keyword in spec.keywords)] if isinstance(spec, ast.Call) else []
    return next((shape.elts for shape in shapes if isinstance(shape, ast.Tuple)), [])
