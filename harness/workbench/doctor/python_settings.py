"""The variables that a Python program sets for JAX and XLA, read from its syntax; nothing is run."""

import ast
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace


@dataclass(frozen=True, slots=True, kw_only=True)
class Assignment:
    """One assignment to a variable of the environment (or to an option of JAX), or why it was not understood.

    `too_late` is the earlier reader of the variable in words, "" if there is none.
    """

    line: int
    name: str = ""
    value: str = ""
    is_certain: bool = True
    problem: str = ""
    too_late: str = ""


# What starts JAX's backends, which read XLA_FLAGS and LIBTPU_INIT_ARGS then and never again. Calls of jax.numpy and
# jax.random do so too.
_STARTS = frozenset(
    (
        "jax.devices",
        "jax.local_devices",
        "jax.device_count",
        "jax.local_device_count",
        "jax.default_backend",
        "jax.process_index",
        "jax.process_count",
        "jax.device_put",
        "jax.make_mesh",
        "jax.block_until_ready",
    )
)
_START_BY_PREFIX = ("jax.numpy.", "jax.random.")


class _Unread(Exception):
    """An expression whose text is not known without running it."""


def steps(tree: ast.Module) -> Iterator[Assignment]:
    """The assignments in the order of their lines. Those in a condition or a function are not certain."""
    yield from _Walk().body(tree.body, is_certain=True)


class _Walk:
    """The texts of the module's names and of variables of the environment so far."""

    def __init__(self) -> None:
        self.names: dict[str, str] = {}
        self.environment: dict[str, str] = {}
        # What each name of the module stands for: `jnp` for `jax.numpy`.
        self.modules: dict[str, str] = {}
        self.imported_in: int | None = None
        self.started_in: int | None = None
        self.started_by = ""

    def body(self, statements: Iterable[ast.stmt], *, is_certain: bool) -> Iterator[Assignment]:
        for statement in statements:
            if is_certain:
                self._note_start(statement)
            if isinstance(statement, ast.Assign):
                for target in statement.targets:
                    yield from self._assign(target, statement.value, is_certain, add=False)
            elif isinstance(statement, ast.AugAssign) and isinstance(statement.op, ast.Add):
                yield from self._assign(statement.target, statement.value, is_certain, add=True)
            elif isinstance(statement, ast.AnnAssign) and statement.value is not None:
                yield from self._assign(statement.target, statement.value, is_certain, add=False)
            elif isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Call):
                yield from self._call(statement.value, is_certain)
            for name in ("body", "orelse", "finalbody"):
                inner = getattr(statement, name, None)
                if isinstance(inner, list) and not isinstance(statement, ast.ClassDef):
                    yield from self.body(inner, is_certain=is_certain and isinstance(statement, ast.With))

    def _note_start(self, statement: ast.stmt) -> None:
        """Notes the line in which JAX is imported, and the one in which it starts a backend."""
        if isinstance(statement, ast.Import):
            for alias in statement.names:
                self.modules[alias.asname or alias.name.partition(".")[0]] = (
                    alias.name if alias.asname else alias.name.partition(".")[0]
                )
        elif isinstance(statement, ast.ImportFrom):
            for alias in statement.names:
                self.modules[alias.asname or alias.name] = f"{statement.module}.{alias.name}"
        if self.imported_in is None and any(name.partition(".")[0] == "jax" for name in self.modules.values()):
            self.imported_in = statement.lineno
        if self.started_in is not None or isinstance(statement, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
            return
        nodes = [node for name, node in ast.iter_fields(statement) if name not in ("body", "orelse", "finalbody")]
        parts = [part for node in nodes for part in (node if isinstance(node, list) else [node])]
        for part in parts:
            for node in _calls_in(part) if isinstance(part, ast.AST) else ():
                name = self._full_name(node)
                if name in _STARTS or name.startswith(_START_BY_PREFIX):
                    self.started_in, self.started_by = node.lineno, name
                    return

    def _full_name(self, call: ast.Call) -> str:
        """The full name of the called function: `jax.numpy.ones` for `jnp.ones(...)`."""
        root, _, rest = ast.unparse(call.func).partition(".")
        module = self.modules.get(root, root)
        return f"{module}.{rest}" if rest else module

    def _too_late(self, name: str) -> str:
        """Words on an earlier line that has read that variable of the environment; "" if there is none."""
        if name.startswith("JAX_") and self.imported_in is not None:
            return f"JAX has already read it when it was imported, in line {self.imported_in}"
        if not name.startswith("JAX_") and self.started_in is not None:
            return f"JAX has already started its backend in line {self.started_in} ({self.started_by})"
        return ""

    def _assign(self, target: ast.expr, value: ast.expr, is_certain: bool, *, add: bool) -> Iterator[Assignment]:
        if isinstance(target, ast.Name):
            try:
                text = self._text(value)
                self.names[target.id] = self.names[target.id] + text if add else text
            except (_Unread, KeyError):
                self.names.pop(target.id, None)
        elif isinstance(target, ast.Subscript) and _is_environment(target.value):
            yield self._set(target.slice, value, target.lineno, is_certain, add=add)

    def _call(self, call: ast.Call, is_certain: bool) -> Iterator[Assignment]:
        function = call.func
        if not isinstance(function, ast.Attribute):
            return
        if (_is_environment(function.value) and function.attr == "setdefault" and len(call.args) == 2) or (
            isinstance(function.value, ast.Name)
            and function.value.id == "os"
            and function.attr == "putenv"
            and len(call.args) == 2
        ):
            yield self._set(call.args[0], call.args[1], call.lineno, is_certain, add=False)
        elif _is_environment(function.value) and function.attr == "update":
            for key, value in self._pairs(call):
                yield self._set(key, value, call.lineno, is_certain, add=False)
        elif ast.unparse(function).endswith("config.update") and len(call.args) == 2:
            option = call.args[0]
            if isinstance(option, ast.Constant) and isinstance(option.value, str) and option.value.startswith("jax_"):
                # An option of JAX and its variable are one setting.
                option_set = self._set(
                    ast.Constant(option.value.upper()), call.args[1], call.lineno, is_certain, add=False
                )
                yield replace(option_set, too_late="")

    def _pairs(self, call: ast.Call) -> Iterator[tuple[ast.expr, ast.expr]]:
        for argument in call.args:
            if isinstance(argument, ast.Dict):
                for key, value in zip(argument.keys, argument.values, strict=True):
                    if key is not None:
                        yield key, value
        for keyword in call.keywords:
            if keyword.arg is not None:
                yield ast.Constant(keyword.arg), keyword.value

    def _set(self, key: ast.expr, value: ast.expr, line: int, is_certain: bool, *, add: bool) -> Assignment:
        try:
            name = self._text(key)
        except _Unread:
            return Assignment(line=line, problem=f"the name of the variable is computed: {ast.unparse(key)[:80]}")
        try:
            text = self._text(value)
        except _Unread as unread:
            return Assignment(line=line, problem=f"{name} is computed: {str(unread)[:80]}")
        self.environment[name] = self.environment.get(name, "") + text if add else text
        return Assignment(
            line=line, name=name, value=self.environment[name], is_certain=is_certain, too_late=self._too_late(name)
        )

    def _text(self, node: ast.expr) -> str:
        """The text that an expression gives. Raises _Unread."""
        match node:
            case ast.Constant(value=value) if not isinstance(value, bytes):
                return str(value)
            case ast.Name(id=name) if name in self.names:
                return self.names[name]
            case ast.BinOp(left=left, op=ast.Add(), right=right):
                return self._text(left) + self._text(right)
            case ast.JoinedStr(values=parts):
                return "".join(
                    self._text(part.value if isinstance(part, ast.FormattedValue) else part) for part in parts
                )
            case ast.BoolOp(op=ast.Or(), values=values):
                return next((text for text in map(self._text, values) if text), "")
            case ast.List(elts=parts) | ast.Tuple(elts=parts):
                return " ".join(map(self._text, parts))
            case ast.Subscript(value=value, slice=key) if _is_environment(value):
                return self.environment.get(self._text(key), "")
            case ast.Call(func=ast.Attribute(value=ast.Constant(value=str(between)), attr="join"), args=[argument]) if (
                isinstance(argument, (ast.List, ast.Tuple))
            ):
                return between.join(map(self._text, argument.elts))
            case ast.Call(func=ast.Attribute(value=ast.Constant(value=str(between)), attr="join"), args=[argument]):
                return self._text(argument).replace(" ", between)
            case ast.Call(func=ast.Name(id="str"), args=[argument]):
                return self._text(argument)
            case ast.Call(func=ast.Attribute(value=holder, attr="get"), args=[key, *rest]) if _is_environment(holder):
                return self.environment.get(self._text(key), self._text(rest[0]) if rest else "")
            case ast.Call(func=ast.Attribute(attr="getenv"), args=[key, *rest]):
                return self.environment.get(self._text(key), self._text(rest[0]) if rest else "")
        raise _Unread(ast.unparse(node))


def _calls_in(node: ast.AST) -> Iterator[ast.Call]:
    """The calls in an expression, except in the bodies of its lambdas."""
    if isinstance(node, ast.Lambda):
        return
    if isinstance(node, ast.Call):
        yield node
    for child in ast.iter_child_nodes(node):
        yield from _calls_in(child)


def _is_environment(node: ast.expr) -> bool:
    return (isinstance(node, ast.Attribute) and node.attr == "environ") or (
        isinstance(node, ast.Name) and node.id == "environ"
    )
