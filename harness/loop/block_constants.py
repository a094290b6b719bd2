"""The constants of kernel.py that set a block, so that advice on its size becomes a setting to try."""

import ast
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import replace

from harness.candidate import Candidate
from harness.loop.settings import value_of
from harness.records import Edit, Evidence, Hint


def with_settings(advice: Sequence[Hint], evidence: Evidence, candidate: Candidate) -> tuple[Hint, ...]:
    """`advice` with the constants of `candidate` that make its edits."""
    return tuple(_with_settings(hint, evidence, candidate) for hint in advice)


def _with_settings(hint: Hint, evidence: Evidence, candidate: Candidate) -> Hint:
    edits = tuple(replace(edit, constants=_constants(edit, evidence, candidate)) for edit in hint.edits)
    values_of: dict[str, list[str]] = {}
    for edit in edits:
        if len(edit.constants) == 1:
            values_of.setdefault(edit.constants[0], []).append(str(edit.new))
    options = [f"--set {name}={','.join(dict.fromkeys(values))}" for name, values in values_of.items()]
    for edit in edits:
        if len(edit.constants) > 1:
            # Constants of one size, of which the text does not tell which sets the block.
            options.append(f"one of {', '.join(f'--set {name}={edit.new}' for name in edit.constants)}")
    words = f"{hint.suggestion} ({' or '.join(dict.fromkeys(options))})" if options else hint.suggestion
    return replace(hint, edits=edits, suggestion=words)


def _constants(edit: Edit, evidence: Evidence, candidate: Candidate) -> tuple[str, ...]:
    """The constant that the BlockSpec names; else all constants with the block's size."""
    sized = tuple(name for name, value in candidate.constants if _is_size(value, edit.size))
    named = next(filter(None, _named(edit, evidence, candidate)), "")
    return (named,) if named in sized else sized


def _is_size(value: str, size: int) -> bool:
    with suppress(ValueError, TypeError, ArithmeticError):
        number = value_of(value)
        return type(number) is int and number == size
    return False


def _named(edit: Edit, evidence: Evidence, candidate: Candidate) -> Iterator[str]:
    """The name in place of the block's size in the input's BlockSpec, if all BlockSpecs are written out."""
    calls = evidence.trace.pallas_calls if evidence.trace else ()
    inputs = [window for call in calls for window in call.windows if window.role == "input"]
    places = [place for place, window in enumerate(inputs) if window.name == edit.window]
    for text in candidate.files.values():
        nodes: tuple[ast.AST, ...] = ()
        with suppress(SyntaxError, ValueError):
            nodes = tuple(ast.walk(ast.parse(text)))
        specs = [
            node.value.elts
            for node in nodes
            if isinstance(node, ast.keyword) and node.arg == "in_specs" and isinstance(node.value, ast.List | ast.Tuple)
        ]
        if len(calls) == len(specs) == len(places) == 1 and len(specs[0]) == len(inputs):
            yield _size_in(specs[0][places[0]], edit.axis)


def _size_in(spec: ast.expr, axis: int) -> str:
    shapes = [*spec.args[:1], *(keyword.value for keyword in spec.keywords)] if isinstance(spec, ast.Call) else []
    for shape in shapes:
        if isinstance(shape, ast.Tuple) and len(shape.elts) >= -axis:
            size = shape.elts[axis]
            return size.id if isinstance(size, ast.Name) else ""
    return ""
