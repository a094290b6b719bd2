"""Types of a function's options, from its annotations: `--set` takes literals, but no objects of classes."""

import ast
from collections.abc import Sequence

from harness.loop.find_function import ExistingFunction, definition

# An alias is followed through at most this many others.
_MOST_ALIASES = 8
_LITERALS = frozenset((
    "Annotated", "Any", "ArrayLike", "DTypeLike", "Dict", "Iterable", "List", "Mapping", "None", "Number",
    "PrecisionLike", "Real", "Sequence", "Tuple", "bool", "bytes", "complex", "dict", "dtype", "float", "int", "list",
    "object", "str", "tuple",
))  # fmt: skip


def made_by_code(function: ExistingFunction, argument: ast.arg) -> str:
    """The name of an option's type if no literal has this type, such as `BlockSizes`; "" if a literal may have it."""
    if argument.annotation is None or _may_be_literal(function, argument.annotation, _MOST_ALIASES):
        return ""
    named = [name for node in ast.walk(argument.annotation) if (name := _name(node)) and name not in _LITERALS]
    return named[0] if named else ast.unparse(argument.annotation)


def example(function: ExistingFunction, arrays: Sequence[str], options: dict[str, str], *, is_by_name: bool) -> str:
    """An example file: its function passes `arrays` on and makes options of these types ("": a literal).

    Each value is a constant of the file, which `--set` and `sweep` change.
    """
    imports = {function.importable: [function.function]}
    handed = [f"{array}={array}" for array in arrays] if is_by_name else list(arrays)
    constants: dict[str, str] = {}
    for option, type_name in options.items():
        home, fields = _class(function, type_name) if type_name else ("", ((option, "..."),))
        if home:
            imports.setdefault(home, []).append(type_name)
        values = []
        for field, value in fields:
            name = field.upper() if field.upper() not in constants else f"{option}_{field}".upper()
            constants[name] = value
            values.append(f"{field}={name}")
        handed.append(f"{option}={type_name}({', '.join(values) or '...'})" if type_name else values[0])
    lines = [f"from {module} import {', '.join(sorted(names))}" for module, names in imports.items()]
    return "\n".join((
        *lines,
        "",
        *(f"{name} = {value}" for name, value in constants.items()),
        *(("",) if constants else ()),
        f"def mine({', '.join(arrays)}):",
        f"    return {function.function}({', '.join(handed)})",
    ))  # fmt: skip


def _may_be_literal(function: ExistingFunction, annotation: ast.expr, most: int) -> bool:
    """False if the type is a class of a package or of the file, otherwise True, even if the type is not understood."""
    match annotation:
        case ast.Constant(value=str() as text):
            try:
                return _may_be_literal(function, ast.parse(text, mode="eval").body, most)
            except SyntaxError:
                return True
        case ast.BinOp(left=left, op=ast.BitOr(), right=right):
            return _may_be_literal(function, left, most) or _may_be_literal(function, right, most)
        case ast.Subscript(value=base, slice=inner):
            parts = inner.elts if isinstance(inner, ast.Tuple) else [inner]
            if _name(base) in ("Optional", "Literal"):
                return True
            if _name(base) == "Union":
                return any(_may_be_literal(function, part, most) for part in parts)
            parts = parts[:1] if _name(base) == "Annotated" else parts
            return all(_may_be_literal(function, part, most) for part in (base, *parts))
        case ast.Name(id=name) if name not in _LITERALS:
            _, node = definition(function, name)
            if isinstance(node, ast.Assign) and most:
                return _may_be_literal(function, node.value, most - 1)
            return not name[:1].isupper()
        case ast.Attribute(attr=name) if name not in _LITERALS:
            return not name[:1].isupper()
    return True


def _name(node: ast.AST) -> str:
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        return node.value if node.value.isidentifier() else ""
    return node.id if isinstance(node, ast.Name) else node.attr if isinstance(node, ast.Attribute) else ""


def _class(function: ExistingFunction, name: str) -> tuple[str, tuple[tuple[str, str], ...]]:
    """The module that a class can be imported from, and its fields with their defaults; `...` stands for no default."""
    home, node = definition(function, name)
    if not isinstance(node, ast.ClassDef):
        return home, ()
    return home, tuple(
        (field.target.id, ast.unparse(field.value) if field.value and is_literal(field.value) else "...")
        for field in node.body
        if isinstance(field, ast.AnnAssign) and isinstance(field.target, ast.Name)
    )


def is_literal(value: ast.expr) -> bool:
    """True if the expression is a literal of Python, as `--set` takes it."""
    try:
        ast.literal_eval(value)
    except ValueError:
        return False
    return True
