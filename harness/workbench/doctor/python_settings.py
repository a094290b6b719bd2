"""The variables that a Python program sets for JAX and XLA, read from its syntax tree without running the program."""

import ast
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from typing import TypeAlias

from harness.records.doctor import Setting

# A setting, or, for an assignment that was not understood, its line and the reason in words.
Step: TypeAlias = Setting | str

# Functions that start JAX's backends. The backends read XLA_FLAGS and LIBTPU_INIT_ARGS only when they start. Calls of
# jax.numpy and jax.random start the backends, too.
_STARTING = """
devices local_devices device_count local_device_count default_backend process_index process_count device_put make_mesh
block_until_ready
"""
_STARTS = frozenset(f"jax.{name}" for name in _STARTING.split())
_START_BY_PREFIX = ("jax.numpy.", "jax.random.")
# Functions about types, which need no backend.
_NO_START = frozenset(
    f"jax.numpy.{name}" for name in ("dtype", "finfo", "iinfo", "issubdtype", "promote_types", "result_type")
)
# Functions that return compiled functions. Calling a compiled function starts the backend.
_COMPILED = frozenset(("jax.jit", "jax.pmap"))

_Function = ast.FunctionDef | ast.AsyncFunctionDef


class _Unread(Exception):
    """Raised for an expression if its value cannot be known without running the program."""


def assignment(name: str, value: str, place: str) -> Setting:
    """The setting of a whole variable."""
    return Setting(variable=name, name="", value=value, word=f"{name}={value}", place=place)


def steps(tree: ast.Module, is_watched: Callable[[str], bool]) -> Iterator[Step]:
    """The assignments to environment variables and JAX's options, in the order in which they run.

    An assignment is not certain if it is in a condition, or in a function that the module does not call. Scope 0 is the
    program's environment. The other scopes are environments for other processes; there only watched variables count.
    """
    walk = _Walk(is_watched)
    yield from walk.body(tree.body)
    # It is unknown whether functions that the module does not call are ever run.
    walk.is_certain = False
    while walk.functions:
        started = walk.started_in, walk.started_by
        yield from walk.body(walk.functions.pop(next(iter(walk.functions))).body)
        walk.started_in, walk.started_by = started


class _Walk:
    """A walk through the module's statements that tracks the values of names and of environment variables."""

    def __init__(self, is_watched: Callable[[str], bool]) -> None:
        self.is_watched = is_watched
        self.is_certain = True
        self.names: dict[str, str] = {}
        # Environments by name: the program's own (""), and dictionaries that it makes for other processes.
        self.environments: dict[str, dict[str, str]] = {"": {}}
        # Names of variables that are the program's environment.
        self.aliases: set[str] = set()
        # The full name of each imported name: `jax.numpy` for `jnp`.
        self.modules: dict[str, str] = {}
        # Functions whose bodies have not been read yet; each body is read at the function's first call.
        self.functions: dict[str, _Function] = {}
        self.compiled: set[str] = set()
        self.imported_in: int | None = None
        self.started_in: int | None = None
        self.started_by = ""

    def body(self, statements: Iterable[ast.stmt]) -> Iterator[Step]:
        for statement in statements:
            self._note_names(statement)
            if isinstance(statement, _Function):
                self.functions[statement.name] = statement
                continue
            if isinstance(statement, ast.ClassDef):
                for method in statement.body:
                    if isinstance(method, _Function):
                        self.functions[f"{statement.name}.{method.name}"] = method
                continue
            yield from self._calls(statement)
            yield from self._assignments(statement)
            yield from self._blocks(statement)

    def _blocks(self, statement: ast.stmt) -> Iterator[Step]:
        is_main = isinstance(statement, ast.If) and ast.unparse(statement.test) == "__name__ == '__main__'"
        outside, started = self.is_certain, (self.started_in, self.started_by)
        self.is_certain = outside and (is_main or isinstance(statement, ast.With))
        for block in (
            getattr(statement, "body", ()),
            *(handler.body for handler in getattr(statement, "handlers", ())),
            getattr(statement, "orelse", ()),
            getattr(statement, "finalbody", ()),
        ):
            yield from self.body(block)
            if isinstance(statement, ast.If) and not is_main:
                self.started_in, self.started_by = started
        self.is_certain = outside

    def _note_names(self, statement: ast.stmt) -> None:
        """Records imports, the line of the first import of JAX, and compiled functions."""
        if isinstance(statement, ast.Import):
            for alias in statement.names:
                top = alias.name.partition(".")[0]
                self.modules[alias.asname or top] = alias.name if alias.asname else top
        elif isinstance(statement, ast.ImportFrom):
            for alias in statement.names:
                self.modules[alias.asname or alias.name] = f"{statement.module}.{alias.name}"
        elif isinstance(statement, _Function):
            if any(self._is_compiled(decorator) for decorator in statement.decorator_list):
                self.compiled.add(statement.name)
        elif isinstance(statement, ast.Assign) and self._is_compiled(statement.value):
            self.compiled.update(target.id for target in statement.targets if isinstance(target, ast.Name))
        if self.imported_in is None and any(name.partition(".")[0] == "jax" for name in self.modules.values()):
            self.imported_in = statement.lineno

    def _is_compiled(self, node: ast.expr) -> bool:
        """True for `jax.jit`, `jax.jit(...)` and `partial(jax.jit, ...)`."""
        if isinstance(node, ast.Call):
            return self._is_compiled(node.func) or any(self._is_compiled(part) for part in node.args[:1])
        return isinstance(node, (ast.Name, ast.Attribute)) and self._full_name(node) in _COMPILED

    def _calls(self, statement: ast.stmt) -> Iterator[Step]:
        """The assignments in functions that this statement calls. Also records the first line that starts a backend."""
        nodes = [
            node for name, node in ast.iter_fields(statement) if name not in ("body", "handlers", "orelse", "finalbody")
        ]
        parts = [part for node in nodes for part in (node if isinstance(node, list) else [node])]
        for part in parts:
            for call in _calls_in(part) if isinstance(part, ast.AST) else ():
                name = self._full_name(call.func)
                starts = name in _STARTS or (name.startswith(_START_BY_PREFIX) and name not in _NO_START)
                is_call_of_compiled = isinstance(call.func, ast.Call) and self._is_compiled(call.func.func)
                if self.started_in is None and (starts or name in self.compiled or is_call_of_compiled):
                    self.started_in, self.started_by = call.lineno, name if starts else f"{name} is compiled"
                    if is_call_of_compiled:
                        self.started_by = "a compiled function is called"
                function = self.functions.pop(name, None) if name not in self.compiled else None
                if function is not None:
                    yield from self.body(function.body)

    def _full_name(self, function: ast.expr) -> str:
        """The full name of a called function: `jax.numpy.ones` for `jnp.ones`."""
        root, _, rest = ast.unparse(function).partition(".")
        module = self.modules.get(root, root)
        return f"{module}.{rest}" if rest else module

    def _too_late(self, name: str) -> str:
        """Says which earlier line has read this environment variable; "" if none has."""
        if name.startswith("JAX_") and self.imported_in is not None:
            return f"the import of JAX in line {self.imported_in} has read the variable"
        if not name.startswith("JAX_") and self.started_in is not None:
            return f"JAX has already started its backend in line {self.started_in} ({self.started_by})"
        return ""

    def _assignments(self, statement: ast.stmt) -> Iterator[Step]:
        if isinstance(statement, ast.Assign):
            for target in statement.targets:
                yield from self._assign(target, statement.value)
        elif isinstance(statement, ast.AugAssign) and isinstance(statement.op, ast.Add):
            yield from self._assign(statement.target, statement.value, add=True)
        elif isinstance(statement, ast.AugAssign) and isinstance(statement.op, ast.BitOr):
            if (holder := self._environment(statement.target)) is not None:
                yield from self._set_pairs(holder, [statement.value], [], statement.lineno)
        elif isinstance(statement, ast.AnnAssign) and statement.value is not None:
            yield from self._assign(statement.target, statement.value)
        elif isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Call):
            yield from self._call(statement.value)
        elif isinstance(statement, (ast.Return, ast.Expr, ast.With)):
            yield from self._other_environments(statement)

    def _assign(self, target: ast.expr, value: ast.expr, *, add: bool = False) -> Iterator[Step]:
        if isinstance(target, ast.Name):
            if self._environment(value) == "":
                self.aliases.add(target.id)
                return
            if self._holds_environment(value):
                self.environments[target.id] = {}
                yield from self._other_environments(value, target.id)
                return
            yield from self._other_environments(value)
            try:
                text = self._text(value)
                self.names[target.id] = self.names[target.id] + text if add else text
            except (_Unread, KeyError):
                self.names.pop(target.id, None)
        elif isinstance(target, ast.Subscript) and (holder := self._environment(target.value)) is not None:
            yield self._set(target.slice, value, target.lineno, add=add, holder=holder)
        elif isinstance(target, ast.Subscript) and self._is_watched_key(target.slice):
            # Any dictionary with such a key counts as an environment.
            holder = ast.unparse(target.value)
            self.environments.setdefault(holder, {})
            yield self._set(target.slice, value, target.lineno, add=add, holder=holder)
        else:
            yield from self._other_environments(value)

    def _call(self, call: ast.Call) -> Iterator[Step]:
        function = call.func
        name = self._full_name(function)
        holder = self._environment(function.value) if isinstance(function, ast.Attribute) else None
        method = function.attr if isinstance(function, ast.Attribute) and holder is not None else ""
        if name == "os.putenv" and len(call.args) == 2:
            yield self._put(call)
        elif holder is not None and method == "setdefault" and len(call.args) == 2:
            yield self._set(call.args[0], call.args[1], call.lineno, holder=holder)
        elif holder is not None and method == "update":
            yield from self._set_pairs(holder, call.args, call.keywords, call.lineno)
        elif name.endswith("config.update") and len(call.args) == 2:
            option = call.args[0]
            if isinstance(option, ast.Constant) and isinstance(option.value, str) and option.value.startswith("jax_"):
                # An option of JAX is recorded under its environment variable.
                option_set = self._set(ast.Constant(option.value.upper()), call.args[1], call.lineno)
                yield option_set if isinstance(option_set, str) else replace(option_set, too_late="")
        else:
            yield from self._other_environments(call)

    def _environment(self, node: ast.expr) -> str | None:
        """The name of the environment that an expression refers to ("": the program's own); None if to none."""
        if (isinstance(node, ast.Attribute) and node.attr == "environ") or (
            isinstance(node, ast.Name) and (node.id == "environ" or node.id in self.aliases)
        ):
            return ""
        name = ast.unparse(node)
        return name if name in self.environments else None

    def _holds_environment(self, value: ast.expr) -> bool:
        """True for a copy of an environment, and for a dictionary with a watched variable."""
        if isinstance(value, ast.Call):
            function = value.func
            if isinstance(function, ast.Attribute) and function.attr == "copy":
                return self._environment(function.value) is not None
            if ast.unparse(function) in ("dict", "copy.copy", "copy.deepcopy"):
                return any(self._environment(part) is not None for part in value.args) or any(
                    keyword.arg is not None and self.is_watched(keyword.arg) for keyword in value.keywords
                )
        if isinstance(value, ast.Dict):
            return any(
                self._environment(part) is not None if key is None else self._is_watched_key(key)
                for key, part in zip(value.keys, value.values, strict=True)
            )
        if isinstance(value, ast.BinOp) and isinstance(value.op, ast.BitOr):
            return self._holds_environment(value.left) or self._holds_environment(value.right)
        return False

    def _is_watched_key(self, node: ast.expr) -> bool:
        return isinstance(node, ast.Constant) and isinstance(node.value, str) and self.is_watched(node.value)

    def _other_environments(self, node: ast.AST, holder: str | None = None) -> Iterator[Step]:
        """The watched variables in an expression's dictionaries, which count as environments of other processes."""
        for inner in ast.walk(node):
            if isinstance(inner, ast.Dict):
                pairs = self._pairs([inner], [])
            elif isinstance(inner, ast.Call) and ast.unparse(inner.func) == "dict":
                pairs = self._pairs(inner.args, inner.keywords)
            else:
                continue
            watched = [(key, value) for key, value in pairs if self._is_watched_key(key)]
            if not watched:
                continue
            name = holder if holder is not None else f"line {inner.lineno}, column {inner.col_offset}"
            self.environments.setdefault(name, {})
            for key, value in watched:
                yield self._set(key, value, key.lineno, holder=name)

    def _set_pairs(self, holder: str, args: list[ast.expr], keywords: list[ast.keyword], line: int) -> Iterator[Step]:
        for key, value in self._pairs(args, keywords):
            if not holder or self._is_watched_key(key):
                yield self._set(key, value, line, holder=holder)

    def _pairs(self, args: list[ast.expr], keywords: list[ast.keyword]) -> Iterator[tuple[ast.expr, ast.expr]]:
        for argument in args:
            if isinstance(argument, ast.Dict):
                for key, value in zip(argument.keys, argument.values, strict=True):
                    if key is not None:
                        yield key, value
        for keyword in keywords:
            if keyword.arg is not None:
                yield ast.Constant(keyword.arg, lineno=keyword.value.lineno, col_offset=0), keyword.value

    def _set(self, key: ast.expr, value: ast.expr, line: int, *, add: bool = False, holder: str = "") -> Step:
        try:
            name = self._text(key)
        except _Unread:
            return f"line {line}: the name of the variable is computed: {ast.unparse(key)[:80]}"
        try:
            text = self._text(value)
        except _Unread as unread:
            return f"line {line}: {name} is computed: {str(unread)[:80]}"
        variables = self.environments[holder]
        variables[name] = variables.get(name, "") + text if add else text
        return replace(
            assignment(name, variables[name], f"line {line}"),
            is_certain=self.is_certain,
            too_late="" if holder else self._too_late(name),
            scope=list(self.environments).index(holder),
        )

    def _put(self, call: ast.Call) -> Step:
        """The assignment made by os.putenv, which libtpu sees; os.environ does not change."""
        seen_by_python = dict(self.environments[""])
        step = self._set(call.args[0], call.args[1], call.lineno)
        self.environments[""] = seen_by_python
        if isinstance(step, str):
            return step
        unreached = ""
        if step.variable.startswith("JAX_"):
            unreached = "JAX reads os.environ, which os.putenv does not change"
        elif step.variable == "LIBTPU_INIT_ARGS" and self.imported_in is None:
            # `cloud_tpu_init` of jax 0.10.2 appends a flag to the value in os.environ.
            unreached = (
                "on a machine with TPUs the import of JAX sets LIBTPU_INIT_ARGS again from os.environ, "
                "which os.putenv does not change"
            )
        return replace(step, unreached=unreached, too_late="" if unreached else step.too_late)

    def _text(self, node: ast.expr) -> str:
        """The value of an expression, as text. Raises _Unread."""
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
            case ast.Subscript(value=holder, slice=key) if (holder_name := self._environment(holder)) is not None:
                return self.environments[holder_name].get(self._text(key), "")
            case ast.Call(func=ast.Attribute(value=ast.Constant(value=str(between)), attr="join"), args=[argument]):
                if isinstance(argument, (ast.List, ast.Tuple)):
                    return between.join(map(self._text, argument.elts))
                return self._text(argument).replace(" ", between)
            case ast.Call(func=ast.Name(id="str"), args=[argument]):
                return self._text(argument)
            case ast.Call(func=ast.Attribute(value=holder, attr="get"), args=[key, *rest]) if (
                holder_name := self._environment(holder)
            ) is not None:
                return self.environments[holder_name].get(self._text(key), self._text(rest[0]) if rest else "")
            case ast.Call(func=function, args=[key, *rest]) if self._full_name(function) == "os.getenv":
                return self.environments[""].get(self._text(key), self._text(rest[0]) if rest else "")
        raise _Unread(ast.unparse(node))


def _calls_in(node: ast.AST) -> Iterator[ast.Call]:
    """The calls in an expression, except in the bodies of its lambdas."""
    if isinstance(node, ast.Lambda):
        return
    if isinstance(node, ast.Call):
        yield node
    for child in ast.iter_child_nodes(node):
        yield from _calls_in(child)
