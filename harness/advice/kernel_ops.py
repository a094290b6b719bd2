"""The operations of a run: those of the kernel, and those that XLA put around the kernel, distinguished by name.

A kernel without a name is shown under the name of its function.
"""

import ast
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace

from harness.advice.operands import UNNAMED_KERNEL
from harness.records import OpTime, PallasCall, Simulation

COLLECTIVES = ("all-gather", "all-reduce", "all-to-all", "collective-permute", "reduce-scatter")

# XLA names an operation by its opcode, and a fusion by the opcodes of its parts: `copy.5`, `compare_select_fusion`,
# `slice-start.1`. _WORDS are the words in these names. A kernel has the name of its pallas_call, or else the name of
# the jitted function around it.
_WORDS = frozenset(
    re.findall(
        r"\w+",
        """
        abs add afz and arithmetic async atan2 barrier bitcast broadcast call cbrt ceil ceiling clamp clone compare
        complex concatenate conditional constant convert convolution copy cosine count custom divide domain done dot
        dynamic element erf even exp exponential finite floor fusion gather generator get imag iota is leading left
        log logarithm logical logistic map maximum minimum minus multiply nearest negate not one optimization or pad
        parameter plus population power precision real reduce remainder reshape reverse right rng round rsqrt
        scatter select shift sign sine slice sort sqrt start subtract tan tanh transpose tuple update while wide
        window xor zeros
        """,
    )
)
_NUMBER = re.compile(r"(?:\.\d+|\.clone|\.remat\d*)+$")


def outside_ops(ops: Sequence[OpTime], calls: Sequence[PallasCall]) -> list[OpTime] | None:
    """The operations outside the Pallas `calls`, without collectives; None if it is not known which are outside."""
    names = (*(call.name for call in calls), UNNAMED_KERNEL)
    others = [op for op in ops if not op.name.startswith((*names, *COLLECTIVES))]
    if any(op.name.startswith(names) for op in ops):
        return others
    strange = [op for op in others if not _WORDS.issuperset(re.split(r"[-_]", _NUMBER.sub("", op.name)))]
    return [op for op in others if op not in strange] if strange and len(strange) == len(calls) else None


def shown_names(ops: Iterable[str], files: Mapping[str, Sequence[str]]) -> dict[str, str]:
    """The shown name of each operation that is a Pallas kernel without a name: `mlp_kernel (jaxpr_as_fun.1)`.

    Other operations are left out. `files` are the lines of the kernel's files. The result is empty unless all Pallas
    calls without a name in these files have the same function.
    """
    functions = {function for lines in files.values() for function in _unnamed_kernels("\n".join(lines))}
    if len(functions) != 1 or "" in functions:
        return {}
    (function,) = functions
    return {op: f"{function} ({op})" for op in ops if op.startswith(UNNAMED_KERNEL)}


def with_shown_names(run: Simulation, files: Mapping[str, Sequence[str]]) -> Simulation:
    """`run` with its operations as `shown_names` names them."""
    names = shown_names((op.name for op in run.ops), files)
    return replace(run, ops=tuple(replace(op, name=names.get(op.name, op.name)) for op in run.ops))


def _unnamed_kernels(text: str) -> Iterator[str]:
    """The function of each Pallas call without a name in a file's text; "" where the text does not name it."""
    nodes: list[ast.AST] = []
    with suppress(SyntaxError, ValueError, RecursionError):
        nodes = list(ast.walk(ast.parse(text)))
    defined = {node.name for node in nodes if isinstance(node, ast.FunctionDef)}
    assigned = {
        target.id: node.value
        for node in nodes
        if isinstance(node, ast.Assign)
        for target in node.targets
        if isinstance(target, ast.Name)
    }
    for node in nodes:
        if isinstance(node, ast.Call) and _last_part(node.func) == "pallas_call":
            options = {keyword.arg: keyword.value for keyword in node.keywords}
            if "name" not in options:
                kernel = node.args[0] if node.args else options.get("kernel")
                if isinstance(kernel, ast.Name) and kernel.id not in defined:
                    kernel = assigned.get(kernel.id)
                yield _function(kernel, defined)


def _function(node: ast.expr | None, defined: set[str]) -> str:
    """The name of the function that `node` names or passes to functools.partial; "" for anything else."""
    if isinstance(node, ast.Call) and _last_part(node.func) == "partial" and node.args:
        node = node.args[0]
    name = _last_part(node)
    return name if name in defined or isinstance(node, ast.Attribute) else ""


def _last_part(node: ast.expr | None) -> str:
    if isinstance(node, ast.Attribute):
        return node.attr
    return node.id if isinstance(node, ast.Name) else ""
