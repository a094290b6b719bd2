"""Rewrites a top-level constant of a Python file, so that a one-line change can be stated on the command line."""

import ast

from harness.errors import RatchetError, UsageError

_WORDS = ("KERNEL_NAME", "PROBLEM_DESCRIPTION")


def parse(text: str) -> tuple[str, str]:
    """`BQ=2048` -> (`BQ`, `2048`); `VMEM_LIMIT=100*2**20` stays as written; `DTYPE=float32` -> (`DTYPE`, `"float32"`).

    Words need no quotes, because shells take quotes away.

    Raises UsageError `bad-setting`.
    """
    name, equals, value = text.partition("=")
    name, value = name.strip(), value.strip()
    if not equals or not name.isidentifier():
        raise UsageError("bad-setting", f"expected --set NAME=VALUE, got {text!r}; for instance --set BQ=2048")
    try:
        is_plain = _is_plain(ast.parse(value, mode="eval").body)
    except (ValueError, SyntaxError, MemoryError, RecursionError):
        is_plain = False
    if is_plain:
        return name, value
    if value.isidentifier():
        return name, f'"{value}"'
    raise UsageError(
        "bad-setting",
        f"--set {name}: expected a Python literal such as 2048, 0.5, True or text, or arithmetic such as 100*2**20, "
        f"got {value!r}",
    )


def rewrite(source: bytes, name: str, value: str, where: str) -> bytes:
    """`source` with the value of its top-level assignment `name = ...` replaced by `value`, all else byte for byte.

    Raises RatchetError `unknown-constant` if there is not exactly one such assignment (naming
    those that exist), `syntax-error` if `source` is not Python.
    """
    try:
        tree = ast.parse(source)
    except (SyntaxError, ValueError) as error:
        raise RatchetError("syntax-error", f"{where} is not valid Python: {error}") from None
    values = _assigned(tree)
    found = values.get(name, [])
    if len(found) != 1:
        known = ", ".join(sorted(values)) or "none"
        problem = "is assigned more than once at the top level" if found else "is not assigned at the top level"
        raise RatchetError("unknown-constant", f"--set {name}: {name} {problem} of {where}; constants there: {known}")
    old = found[0]
    lines = source.splitlines(keepends=True)
    assert old.end_lineno is not None
    assert old.end_col_offset is not None
    before = b"".join(lines[: old.lineno - 1]) + lines[old.lineno - 1][: old.col_offset]
    after = lines[old.end_lineno - 1][old.end_col_offset :] + b"".join(lines[old.end_lineno :])
    return before + value.encode() + after


def rewritten(kernel: bytes, settings: tuple[tuple[str, str], ...]) -> bytes:
    """`kernel` with these constants rewritten. Raises RatchetError `unknown-constant`, UsageError `bad-setting`."""
    for name, value in settings:
        refuse_text(kernel, name, value)
        kernel = rewrite(kernel, name, value, "kernel.py")
    return kernel


def refuse_text(source: bytes, name: str, value: str) -> None:
    """Raises UsageError `bad-setting` where text is to take the place of a number: a mistyped one, mostly."""
    old = dict(constants(source)).get(name)
    if old is not None and _is_number(_expression(old)) and isinstance(_expression(value), ast.Constant):
        given = ast.literal_eval(value)
        if isinstance(given, str):
            raise UsageError("bad-setting", f"--set {name}: expected a number, as {name} = {old} is one, got {given!r}")


def value_of(text: str) -> object:
    """What Python makes of a value that `parse` gave: a literal, or arithmetic on numbers."""
    expression = _expression(text)
    if not isinstance(expression, ast.BinOp | ast.UnaryOp):
        return ast.literal_eval(expression)
    if not _is_plain(expression):
        raise ValueError(f"expected a literal or arithmetic on numbers, got {text!r}")
    # Nothing but numbers and operators is in it.
    return eval(compile(ast.Expression(expression), "--set", "eval"), {"__builtins__": {}})


def _expression(text: str) -> ast.expr:
    return ast.parse(text, mode="eval").body


def constants(source: bytes) -> tuple[tuple[str, str], ...]:
    """The constants that `rewrite` can change and their literals, in their order; empty if `source` is not Python."""
    try:
        tree = ast.parse(source)
    except (SyntaxError, ValueError):
        return ()
    single = {name: values[0] for name, values in _assigned(tree).items() if len(values) == 1}
    return tuple((name, ast.unparse(value)) for name, value in single.items() if _is_plain(value))


def tunable(kernel: bytes) -> tuple[tuple[str, str], ...]:
    """The constants without words for people, which change nothing of the program."""
    return tuple((name, value) for name, value in constants(kernel) if name not in _WORDS)


def names(source: bytes) -> frozenset[str]:
    """Everything that is assigned at the top level; empty if `source` is not Python."""
    try:
        return frozenset(_assigned(ast.parse(source)))
    except (SyntaxError, ValueError):
        return frozenset()


def _assigned(tree: ast.Module) -> dict[str, list[ast.expr]]:
    """What is assigned to each name at the top level."""
    values: dict[str, list[ast.expr]] = {}
    for node in tree.body:
        if isinstance(node, ast.Assign) and len(node.targets) == 1 and isinstance(node.targets[0], ast.Name):
            values.setdefault(node.targets[0].id, []).append(node.value)
        elif isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name) and node.value is not None:
            values.setdefault(node.target.id, []).append(node.value)
    return values


def _is_plain(value: ast.expr) -> bool:
    """Whether it is a literal, or arithmetic on numbers."""
    match value:
        case ast.BinOp(left, _, right):
            return _is_number(left) and _is_number(right)
        case ast.UnaryOp(ast.USub() | ast.UAdd(), operand) if isinstance(operand, ast.BinOp):
            return _is_number(operand)
    try:
        ast.literal_eval(value)
    except (ValueError, TypeError, MemoryError, RecursionError):
        return False
    return True


def _is_number(value: ast.expr) -> bool:
    match value:
        case ast.Constant(int() | float() as number):
            return not isinstance(number, bool)
        case ast.BinOp(left, _, right):
            return _is_number(left) and _is_number(right)
        case ast.UnaryOp(ast.USub() | ast.UAdd(), operand):
            return _is_number(operand)
    return False
