"""Kinds of change between two texts of kernel.py; hints on changes of several kinds and on vague hypotheses."""

import ast
import re
from collections import defaultdict
from collections.abc import Iterable, Sequence
from typing import TypeAlias

from harness.records.search_state import ChangeKind

# The kinds of changes, by what changed:
# - `constants`: values of names that both texts have.
# - `grid`: grid, blocks, index maps, semantics of the axes.
# - `scratch`: scratch buffers.
# - `dtype`: casts, precisions, dtypes of results.
# - `mask`: comparisons with positions, and conditions under which a body is skipped.
# - `compiler`: other compiler parameters.
# - `body`: any other code.
# - `claims`: only the kernel's statements about itself.
# - `unreadable`: unknown, because one of the texts is not valid Python.
Kind: TypeAlias = ChangeKind
PROGRAM_KINDS: tuple[Kind, ...] = ("constants", "grid", "scratch", "dtype", "mask", "compiler", "body")

# The claims of kernel.py about its program, which the judge reads too. Claims change together with the program, so a
# change of claims counts only if the program did not change.
_CLAIMS = ("compute_flops", "get_tiling_meta", "KERNEL_NAME", "PROBLEM_DESCRIPTION")
_KEYWORDS: dict[str, Kind] = {
    "grid": "grid",
    "grid_spec": "grid",
    "in_specs": "grid",
    "out_specs": "grid",
    "dimension_semantics": "grid",
    "scratch_shapes": "scratch",
    "preferred_element_type": "dtype",
    "precision": "dtype",
    "dtype": "dtype",
    "compiler_params": "compiler",
    "vmem_limit_bytes": "compiler",
}
_CALLS: dict[str, Kind] = {
    "BlockSpec": "grid",
    "GridSpec": "grid",
    "PrefetchScalarGridSpec": "grid",
    "VMEM": "scratch",
    "SMEM": "scratch",
    "DMA": "scratch",
    "CompilerParams": "compiler",
    "iota": "mask",
    "broadcasted_iota": "mask",
    "tril": "mask",
    "triu": "mask",
}
_FLOATS = {"bfloat16", "float16", "float32", "float64", "float8_e4m3fn", "float8_e5m2"}
_DTYPES = _FLOATS | {f"{sign}int{bits}" for sign in ("", "u") for bits in (4, 8, 16, 32)}
# Positions have this dtype in every kernel.
_OF_POSITIONS = "int32"
# A hypothesis names an observation if it has a number, or a word of this list, which reports use for counts, times and
# advice. Words are matched from their beginning, so `spill` stands for spills and spilling.
_WORDS = (
    "accumulat", "align", "bandwidth", "bound", "bubble", "buffer", "busy", "cast", "causal", "copies", "copy",
    "cycle", "dma", "drain", "eup", "exp", "fetch", "fill", "flop", "gap", "grid", "hbm", "idle", "intensity",
    "issue", "lane", "latency", "launch", "layout", "limit", "mask", "matmul", "mxu", "overlap", "padd", "pipeline",
    "prefetch", "re-read", "recomput", "reduc", "register", "reread", "rescal", "ridge", "roofline", "semantics",
    "slot", "softmax", "spill", "stall", "step", "store", "sublane", "tile", "traffic", "transpos", "unit",
    "unroll", "util", "valu", "vector", "vmem", "vreg", "wait", "xlu",
)  # fmt: skip
_NAMED = re.compile(rf"\d|%|\b(?:{'|'.join(map(re.escape, _WORDS))})", re.IGNORECASE)


def kinds_of_change(old: str, new: str) -> tuple[Kind, ...]:
    """The kinds of change from `old` to `new`, both whole texts of kernel.py; empty if nothing relevant changed.

    Comments, layout, docstrings and imports are not relevant. A change inside the declaration of a scratch buffer
    counts as `scratch` alone. The heuristic looks at names, not at their meaning, so it may confuse two kinds. It
    serves hints to people, never a verdict.
    """
    try:
        before, after = _take_apart(old), _take_apart(new)
    except (SyntaxError, ValueError, RecursionError):
        return ("unreadable",)
    changed: set[Kind] = {
        kind
        for kind in PROGRAM_KINDS
        if kind != "constants" and before.parts.get(kind, []) != after.parts.get(kind, [])
    }
    # A changed body may have other lines with casts. Its dtypes have changed only if one of the texts computes in a
    # dtype that the other lacks.
    if "body" in changed and before.dtypes == after.dtypes:
        changed.discard("dtype")
    shared = before.constants.keys() & after.constants.keys()
    if any(before.constants[name] != after.constants[name] for name in shared):
        changed.add("constants")
    if not changed:
        if before.constants != after.constants:
            return ("constants",)
        return ("claims",) if before.claims != after.claims else ()
    return tuple(kind for kind in PROGRAM_KINDS if kind in changed)


def mixed_kinds(kinds: tuple[Kind, ...]) -> tuple[Kind, ...]:
    """The members of `kinds` that are independent changes, if there are at least two; otherwise empty.

    New code in the body belongs to the change that needs it (a scratch buffer, a mask, a dtype), but a new value of a
    constant needs no new code.
    """
    separate = tuple(kind for kind in kinds if kind in ("constants", "grid", "scratch", "dtype", "mask"))
    if separate == ("constants",) and "body" in kinds:
        return ("constants", "body")
    return separate if len(separate) > 1 else ()


class _Parts(ast.NodeTransformer):
    """Takes a program apart: moves the parts of each kind from the tree to `parts`."""

    def __init__(self, names_of_masks: set[str]) -> None:
        self.parts: defaultdict[Kind, list[str]] = defaultdict(list)
        self.constants: dict[str, str] = {}
        self.dtypes: set[str] = set()
        self.claims: list[str] = []
        self._masks = names_of_masks

    def visit_Call(self, node: ast.Call) -> ast.AST:
        name = _called_name(node)
        if name == "astype" and isinstance(node.func, ast.Attribute):
            self.parts["dtype"] += ["astype", *map(ast.dump, node.args)]
            for argument in node.args:
                self._compute_in(argument)
            value: ast.AST = self.visit(node.func.value)
            return value
        condition = node.args[0] if len(node.args) == 3 and name in ("where", "select") else None
        if condition is not None and (isinstance(condition, ast.Compare) or _names(condition) & self._masks):
            self.parts["mask"] += map(ast.dump, (condition, node.args[2]))
            kept: ast.AST = self.visit(node.args[1])
            return kept
        if _CALLS.get(name) != "scratch":
            self.generic_visit(node)
        return self._take_part(_CALLS[name], node) if name in _CALLS else node

    def visit_keyword(self, node: ast.keyword) -> ast.AST | None:
        kind = _KEYWORDS.get(node.arg or "")
        # The dtype of a scratch buffer is part of the buffer.
        if kind != "scratch":
            self.generic_visit(node)
        if kind is None:
            return node
        self.parts[kind].append(ast.dump(node))
        if node.arg == "precision":
            self.dtypes.add(ast.dump(node.value))
        return None

    def visit_Attribute(self, node: ast.Attribute) -> ast.AST:
        self.generic_visit(node)
        if node.attr not in _DTYPES:
            return node
        self._compute_in(node)
        return self._take_part("dtype", node)

    def visit_Assign(self, node: ast.Assign) -> ast.AST | None:
        target = node.targets[0]
        if len(node.targets) == 1 and isinstance(target, ast.Name):
            if target.id in _CLAIMS:
                self.claims.append(ast.dump(node))
                return None
            if _is_literal(node.value):
                self.constants[target.id] = ast.dump(node.value)
                return None
            if target.id in self._masks:
                self.parts["mask"].append(ast.dump(node))
                return None
        self.generic_visit(node)
        # Without its mask, `scores = where(mask, scores, low)` assigns a name to itself.
        return None if ast.dump(node.value).replace("Load()", "") == ast.dump(target).replace("Store()", "") else node

    def visit_FunctionDef(self, node: ast.FunctionDef) -> ast.AST | list[ast.stmt] | None:
        if node.name in _CLAIMS:
            self.claims.append(ast.dump(node))
            return None
        node.body = _without_docstring(node.body)
        condition = _skips(node)
        if condition is None:
            self.generic_visit(node)
            return node
        # Skipping a body under a condition does not change the body.
        self.parts["mask"].append(ast.dump(condition))
        node.decorator_list = []
        self.generic_visit(node)
        return node.body

    def visit_Import(self, _: ast.Import) -> None:
        return None

    def visit_ImportFrom(self, _: ast.ImportFrom) -> None:
        return None

    def _take_part(self, kind: Kind, node: ast.AST) -> ast.AST:
        self.parts[kind].append(ast.dump(node))
        return ast.Name(id=f"<{kind}>", ctx=ast.Load())

    def _compute_in(self, node: ast.AST) -> None:
        named = {part.attr for part in ast.walk(node) if isinstance(part, ast.Attribute)}
        self.dtypes |= named & _DTYPES - {_OF_POSITIONS}


def _take_apart(text: str) -> _Parts:
    tree = ast.parse(text)
    tree.body = _without_docstring(tree.body)
    parts = _Parts(_names_of_masks(tree))
    left = parts.visit(tree)
    parts.parts["body"] = [ast.dump(left)]
    return parts


def _names_of_masks(tree: ast.AST) -> set[str]:
    """Names of positions, of comparisons with positions, and of conditions under which a body is skipped."""
    skips = (_skips(node) for node in ast.walk(tree) if isinstance(node, ast.FunctionDef))
    names = {condition.id for condition in skips if isinstance(condition, ast.Name)}
    assigned = [
        node for node in ast.walk(tree) if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name)
    ]
    for node in assigned:
        compares = isinstance(node.value, ast.Compare) and bool(_names(node.value) & names)
        calls = {_called_name(call) for call in ast.walk(node.value) if isinstance(call, ast.Call)}
        if compares or any(_CALLS.get(name) == "mask" for name in calls):
            names |= {target.id for target in node.targets if isinstance(target, ast.Name)}
    return names


def _skips(node: ast.FunctionDef) -> ast.expr | None:
    """The condition of the function's `pl.when`; None if it has no `pl.when`, or if `==` selects a single step."""
    for decorator in node.decorator_list:
        if isinstance(decorator, ast.Call) and _called_name(decorator) == "when" and decorator.args:
            condition = decorator.args[0]
            is_step = isinstance(condition, ast.Compare) and isinstance(condition.ops[0], ast.Eq)
            return None if is_step else condition
    return None


def _called_name(node: ast.Call) -> str:
    if isinstance(node.func, ast.Attribute):
        return node.func.attr
    return node.func.id if isinstance(node.func, ast.Name) else ""


def _names(node: ast.AST) -> set[str]:
    return {name.id for name in ast.walk(node) if isinstance(name, ast.Name)}


def _is_literal(node: ast.AST) -> bool:
    """True for numbers, strings, None, tuples of these, and arithmetic with them."""
    allowed = (ast.Constant, ast.BinOp, ast.UnaryOp, ast.Tuple, ast.operator, ast.unaryop, ast.expr_context)
    return all(isinstance(part, allowed) for part in ast.walk(node))


def _without_docstring(body: list[ast.stmt]) -> list[ast.stmt]:
    first = body[0] if body else None
    is_text = (
        isinstance(first, ast.Expr) and isinstance(first.value, ast.Constant) and isinstance(first.value.value, str)
    )
    return body[1:] if is_text else body


def copied_from(lines: Sequence[str], others: Iterable[Sequence[str]]) -> Sequence[str]:
    """The first text of `others` that shares with `lines` over half of the longer one's lines; () if none does."""
    lines_here = {line for line in lines if line.strip()}
    for other in others:
        lines_there = {line for line in other if line.strip()}
        if 2 * len(lines_here & lines_there) > max(len(lines_here), len(lines_there)):
            return other
    return ()


def names_observation(hypothesis: str) -> bool:
    """True if `hypothesis` has a number, a unit, a counter or a rule's word; "make it faster" has none."""
    return _NAMED.search(hypothesis) is not None


def on_hypothesis(hypothesis: str) -> str:
    """The sentence for a hypothesis that names no observation; empty for any other."""
    if names_observation(hypothesis):
        return ""
    return (
        "the hypothesis names no observation: name a figure of the last report and how it should change, as in "
        '"BW 37%, memory-bound: blocks 4x as long, so a quarter of the re-reads"; then a loss tells as much as a gain'
    )


def changed_constants(old: str, new: str) -> tuple[str, ...]:
    """The constants that both texts have, with another value in `new`; empty if a text is not valid Python."""
    try:
        before, after = _take_apart(old).constants, _take_apart(new).constants
    except (SyntaxError, ValueError, RecursionError):
        return ()
    return tuple(name for name in before if name in after and before[name] != after[name])


def on_constants(names: tuple[str, ...]) -> str:
    """The sentence for several constants that changed at once; empty for a single constant."""
    if len(names) < 2:
        return ""
    named = f"{', '.join(names[:-1])} and {names[-1]}"
    return (
        f"one experiment changes several constants ({named}): if the time changes, nobody knows which constant caused "
        "the change; `sweep` tests the constants separately"
    )


def on_change(kinds: tuple[Kind, ...]) -> str:
    """The sentence for a change of several kinds; empty for a change of one kind."""
    mixed = mixed_kinds(kinds)
    if not mixed:
        return ""
    named = f"{', '.join(mixed[:-1])} and {mixed[-1]}"
    return f"one experiment makes several kinds of change ({named}): nobody will know which of them changed the time"
