"""Edits of a kernel.py: those that change nothing, and those that cost a little time."""

import ast
import random
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise

_COMMENTS = ("Blocks are visited in this order.", "See the paper, section 3.", "TODO: try another layout.")
# One step of needless work, by the unit that does it.
WASTES = {
    "transcendental": "waste = jnp.tanh(waste)",
    "reductions across lanes": "waste = jnp.broadcast_to(jnp.max(waste, axis=1, keepdims=True), waste.shape) * 0.5",
    "rotations": "waste = pltpu.roll(waste, 1, 1) + 0.25",
    "vector arithmetic": "waste = waste * 0.5 + 0.25",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Waste:
    """A place for needless work in a kernel: after the line `after`, on the part `ref` of a buffer, `[8, 128]`."""

    after: str
    ref: str

    def put(self, source: str, unit: str, dose: int, period: int) -> str:
        """The kernel with `dose` steps of work of `unit` in each `period`-th step of the grid's first axis.

        The work is in a branch of its own, which the compiler cannot hide behind other work.
        """
        assert source.count(self.after) == 1, f"expected {self.after!r} once"
        lines = [
            f"    @pl.when(pl.program_id(0) % {period} == 0)",
            "    def work_for_nothing():",
            f"        waste = {self.ref}.astype(jnp.float32)",
            *[f"        {WASTES[unit]}"] * dose,
            # Nothing is ever added, because no number in a kernel is equal to this one.
            f"        {self.ref} += jnp.where(waste == 1234.5, 1.0, 0.0).astype({self.ref.partition('[')[0]}.dtype)",
        ]
        return source.replace(self.after, self.after + "".join(f"{line}\n" for line in lines))


def neutral(source: str, count: int, seed: int) -> list[tuple[str, str]]:
    """`count` different texts with the same meaning, each with its change: comments, new names, another order."""
    drawn = random.Random(seed)
    kinds = [list(_commented(source)), list(_renamed(source)), list(_reordered(source))]
    for kind in kinds:
        drawn.shuffle(kind)
    texts: list[tuple[str, str]] = []
    while len(texts) < count:
        if not any(kinds):
            raise ValueError(f"expected {count} edits, found {len(texts)}")
        texts += [kind.pop() for kind in kinds if kind]
    return texts[:count]


def _commented(source: str) -> Iterator[tuple[str, str]]:
    lines = source.splitlines(keepends=True)
    for place, node in enumerate(ast.walk(ast.parse(source))):
        if isinstance(node, ast.Assign | ast.Return | ast.If | ast.For):
            text, line = _COMMENTS[place % len(_COMMENTS)], node.lineno
            indent = " " * node.col_offset
            yield f"comment above line {line}", "".join([*lines[: line - 1], f"{indent}# {text}\n", *lines[line - 1 :]])


def _renamed(source: str) -> Iterator[tuple[str, str]]:
    """The source with each local name of each function replaced, unless a keyword, attribute or global has that name.

    The arguments of kernel_fn stay: they are the problem's inputs by name.
    """
    tree = ast.parse(source)
    used_names = {node.attr for node in ast.walk(tree) if isinstance(node, ast.Attribute)}
    used_names |= {node.arg for node in ast.walk(tree) if isinstance(node, ast.keyword) and node.arg}
    for function in tree.body:
        if not isinstance(function, ast.FunctionDef) or function.name in ("compute_flops", "get_tiling_meta"):
            continue
        local_names = {
            node.id for node in ast.walk(function) if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)
        }
        arguments = {node.arg for node in ast.walk(function.args) if isinstance(node, ast.arg)}
        local_names = local_names - arguments if function.name == "kernel_fn" else local_names | arguments
        for name in sorted(local_names - used_names):
            places = [
                (node.lineno, node.col_offset)
                for node in ast.walk(function)
                if (isinstance(node, ast.Name) and node.id == name) or (isinstance(node, ast.arg) and node.arg == name)
            ]
            yield f"{function.name}: {name} renamed", _replaced(source, places, name, f"{name}_of_block")


def _replaced(source: str, places: list[tuple[int, int]], old: str, new: str) -> str:
    lines = source.splitlines(keepends=True)
    for line, column in sorted(places, reverse=True):
        text = lines[line - 1]
        assert text[column:].startswith(old)
        lines[line - 1] = text[:column] + new + text[column + len(old) :]
    return "".join(lines)


def _reordered(source: str) -> Iterator[tuple[str, str]]:
    """The text with neighbouring, independent assignments to plain names swapped."""
    lines = source.splitlines(keepends=True)
    for node in ast.walk(ast.parse(source)):
        body = getattr(node, "body", None)
        for first, other in pairwise(body if isinstance(body, list) else []):
            if _are_independent(first, other):
                (a, b), (c, d) = ((each.lineno - 1, each.end_lineno) for each in (first, other))
                between = lines[b:c]
                swapped = [*lines[:a], *lines[c:d], *between, *lines[a:b], *lines[d:]]
                yield f"lines {a + 1} and {c + 1} in the other order", "".join(swapped)


def _are_independent(statement: ast.stmt, other: ast.stmt) -> bool:
    if not isinstance(statement, ast.Assign | ast.FunctionDef) or not isinstance(other, ast.Assign | ast.FunctionDef):
        return False
    if any(isinstance(each, ast.FunctionDef) and each.decorator_list for each in (statement, other)):
        return False
    (stored, read), (also_stored, also_read) = map(_names, (statement, other))
    return not (stored & (also_stored | also_read) or also_stored & read)


def _names(statement: ast.stmt) -> tuple[set[str], set[str]]:
    """The names that a statement writes (also buffers that it stores into), and those that it reads."""
    stored = {statement.name} if isinstance(statement, ast.FunctionDef) else set()
    read: set[str] = set()
    for node in ast.walk(statement):
        if isinstance(node, ast.Name):
            (read if isinstance(node.ctx, ast.Load) else stored).add(node.id)
        elif isinstance(node, ast.Subscript) and isinstance(node.ctx, ast.Store):
            stored |= {each.id for each in ast.walk(node.value) if isinstance(each, ast.Name)}
    return stored, read
