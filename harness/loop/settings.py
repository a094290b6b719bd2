"""`--set NAME=VALUE`: the name and value of a constant, which replace the constant's line in kernel.py."""

import ast

from harness.candidate import expression, is_plain
from harness.errors import UsageError


def parse(text: str) -> tuple[str, str]:
    """The name and the value of a setting: (`BQ`, `2048`) for `BQ=2048`.

    Arithmetic such as `100*2**20` stays as written. Words need no quotes, because shells remove quotes: `DTYPE=float32`
    gives (`DTYPE`, `"float32"`).

    Raises UsageError `bad-setting`.
    """
    name, equals, value = text.partition("=")
    name, value = name.strip(), value.strip()
    if not equals or not name.isidentifier():
        raise UsageError("bad-setting", f"expected --set NAME=VALUE, got {text!r}; for instance --set BQ=2048")
    try:
        is_literal = is_plain(expression(value))
    except (ValueError, SyntaxError, MemoryError, RecursionError):
        is_literal = False
    if is_literal:
        return name, value
    if value.isidentifier():
        return name, f'"{value}"'
    raise UsageError(
        "bad-setting",
        f"--set {name}: expected a literal such as 2048, 0.5 or True, one word, other text in quotes, or arithmetic "
        f"such as 100*2**20, got {value!r}",
    )


def value_of(text: str) -> object:
    """The value of a text from `parse`: a literal, or arithmetic on numbers."""
    value = expression(text)
    if not isinstance(value, ast.BinOp | ast.UnaryOp):
        return ast.literal_eval(value)
    if not is_plain(value):
        raise ValueError(f"expected a literal or arithmetic on numbers, got {text!r}")
    # The expression contains only numbers and operators.
    return eval(compile(ast.Expression(value), "--set", "eval"), {"__builtins__": {}})
