"""The constants that a Python file assigns at its top level: read, and rewritten."""

import ast

from harness.errors import RatchetError, UsageError

Settings = tuple[tuple[str, str], ...]


def constants(source: bytes) -> Settings:
    """The constants that `rewrite` can change and their literals, in their order; empty if `source` is not Python."""
    try:
        tree = ast.parse(source)
    except (SyntaxError, ValueError):
        return ()
    single = {name: values[0] for name, values in _assigned(tree).items() if len(values) == 1}
    return tuple((name, ast.unparse(value)) for name, value in single.items() if is_plain(value))


def names(source: bytes) -> frozenset[str]:
    """Everything that is assigned at the top level; empty if `source` is not Python."""
    try:
        return frozenset(_assigned(ast.parse(source)))
    except (SyntaxError, ValueError):
        return frozenset()


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
    own = values.get(name, [])
    if len(own) != 1:
        known = ", ".join(sorted(values)) or "none"
        problem = "is assigned more than once at the top level" if own else "is not assigned at the top level"
        raise RatchetError("unknown-constant", f"--set {name}: {name} {problem} of {where}; constants there: {known}")
    old = own[0]
    lines = source.splitlines(keepends=True)
    assert old.end_lineno is not None
    assert old.end_col_offset is not None
    before = b"".join(lines[: old.lineno - 1]) + lines[old.lineno - 1][: old.col_offset]
    after = lines[old.end_lineno - 1][old.end_col_offset :] + b"".join(lines[old.end_lineno :])
    return before + value.encode() + after


def refuse_text(source: bytes, name: str, value: str) -> None:
    """Raises UsageError `bad-setting` where text is to take the place of a number: a mistyped one, mostly."""
    old = dict(constants(source)).get(name)
    if old is not None and _is_number(expression(old)) and isinstance(expression(value), ast.Constant):
        new = ast.literal_eval(value)
        if isinstance(new, str):
            raise UsageError("bad-setting", f"--set {name}: expected a number, as {name} = {old} is one, got {new!r}")


def expression(text: str) -> ast.expr:
    """The syntax tree of a value as `constants` gives it."""
    return ast.parse(text, mode="eval").body


def is_plain(value: ast.expr) -> bool:
    """True for a literal, and for arithmetic on numbers."""
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


def _assigned(tree: ast.Module) -> dict[str, list[ast.expr]]:
    """What is assigned to each name at the top level."""
    values: dict[str, list[ast.expr]] = {}
    for node in tree.body:
        if isinstance(node, ast.Assign) and len(node.targets) == 1 and isinstance(node.targets[0], ast.Name):
            values.setdefault(node.targets[0].id, []).append(node.value)
        elif isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name) and node.value is not None:
            values.setdefault(node.target.id, []).append(node.value)
    return values
