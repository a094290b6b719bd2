"""Producers and consumers of an operation in a capture, as a table or as DOT."""

import difflib
import json
from collections import defaultdict
from dataclasses import dataclass
from typing import Any

from harness.errors import RatchetError, UsageError
from harness.hlo import parse
from harness.hlo.module import Instruction
from harness.records import Capture, Table
from harness.units import quantity, seconds
from harness.workbench import tables
from harness.workbench.hlo import proto
from harness.workbench.hlo.graph import Graph
from harness.workbench.profiles.database import database_of
from harness.workbench.profiles.op_times import origin
from harness.workbench.profiles.reading import hlo_protos, sources
from harness.workbench.tables import columns

# The largest number of nodes that a person can read; the nearest nodes are kept.
_MOST = 200
_COLUMNS = columns(
    "distance=away;instruction;opcode;shape;takes;mean_seconds=self time;count=runs;framework_name=tf_op;source"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Node:
    """One instruction, `distance` away from the chosen operation: below 0 a producer, above 0 a consumer.

    `instruction` is None if the capture has only the name of an operand.
    """

    name: str
    distance: int
    instruction: Instruction | None

    @property
    def takes(self) -> tuple[str, ...]:
        """The names of the instruction's operands."""
        return tuple(operand.name for operand in self.instruction.operands) if self.instruction else ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Neighbourhood:
    """The operation `name` of `module` and the instructions around it, by distance.

    If there are too many instructions, `nodes` lacks the farthest, whose number is `left_out`. `took` has the module's
    rows of the view `times`, by operation. If `is_whole` is True, the capture has the module's proto; otherwise only
    the operations that ran are known.
    """

    module: str
    name: str
    nodes: tuple[Node, ...]
    took: dict[str, dict[str, Any]]
    left_out: int
    other_modules: tuple[str, ...]
    is_whole: bool


def neighbourhood(capture: Capture, operation: str, depth: int = 2, module: str | None = None) -> Neighbourhood:
    """The instructions up to `depth` away from `operation` (`fusion.3` or `%fusion.3`).

    If `module` is None, the operation of this name that took longest is used.
    Raises RatchetError `no-hlo`, `unknown-op`, UsageError `unknown-module`.
    """
    name = operation.strip().removeprefix("%")
    graphs, is_whole = graphs_of(capture)
    if not graphs:
        raise RatchetError(
            "no-hlo",
            f"{capture.name} contains no HLO: neither modules (enable_hlo_proto) nor a TPU's operations with HLO text",
        )
    if module is not None:
        graphs = {title: graph for title, graph in graphs.items() if module in (title, title.split("(")[0])}
        if not graphs:
            raise UsageError("unknown-module", f"{capture.name} has no module {module!r}")
    took = {(row["module"], row["name"]): row for row in database_of(capture).rows_by_name("select * from times")}
    places = {title: place for title, graph in graphs.items() if (place := _place(graph, name)) is not None}
    if not places:
        raise RatchetError("unknown-op", f"{_unknown(capture, graphs, name)}")
    chosen = max(places, key=lambda title: took.get((title, name), {}).get("self_seconds", -1.0))
    nodes = _around(graphs[chosen], places[chosen], name, depth)
    return Neighbourhood(
        module=chosen,
        name=name,
        nodes=tuple(sorted(nodes[:_MOST], key=lambda node: node.distance)),
        took={operation: row for (title, operation), row in took.items() if title == chosen},
        left_out=max(0, len(nodes) - _MOST),
        other_modules=tuple(title for title in places if title != chosen),
        is_whole=is_whole,
    )


def table(capture: Capture, around: Neighbourhood) -> tuple[Table, ...]:
    """One row for each instruction, producers first."""
    notes = [
        "away: the distance from the operation, below 0 for producers, above 0 for consumers. Self time is that of one "
        "run; - marks instructions that did not run on their own."
    ]
    if around.other_modules:
        notes.append(f"Other modules with an operation of this name: {', '.join(around.other_modules)} (--module).")
    if not around.is_whole:
        notes.append(
            "The capture has no HLO module, so only operations that ran are shown, and the names of their operands."
        )
    if around.left_out:
        notes.append(f"Left out: {quantity(around.left_out, 'instruction')} farther away.")
    rows = [_row(node, around) for node in around.nodes]
    title = f"Around %{around.name} of {around.module}"
    return (tables.table("graph", title, origin(capture), _COLUMNS, rows, notes),)


def dot(around: Neighbourhood) -> str:
    """The neighbourhood as a graph in DOT, for `dot -Tsvg`; arrows go from producers to consumers."""
    lines = [f"digraph {json.dumps(around.module)} {{", "  rankdir=TB; node [shape=box, fontname=monospace];"]
    for node in around.nodes:
        words = [f"%{node.name}"]
        if node.instruction is not None:
            words.append(f"{node.instruction.opcode} {node.instruction.shape.plain}")
        if node.name in around.took:
            took = around.took[node.name]
            words.append(f"{seconds(took['mean_seconds'])} x {took['count']}")
        style = ", style=bold" if node.distance == 0 else ""
        lines.append(f"  {json.dumps(node.name)} [label={json.dumps(chr(10).join(words))}{style}];")
    shown = {node.name for node in around.nodes}
    edges = [(operand, node.name) for node in around.nodes for operand in dict.fromkeys(node.takes) if operand in shown]
    lines += [f"  {json.dumps(operand)} -> {json.dumps(name)};" for operand, name in edges]
    return "\n".join((*lines, "}"))


def _row(node: Node, around: Neighbourhood) -> tuple[str | int | float | None, ...]:
    instruction, took = node.instruction, around.took.get(node.name, {})
    return (
        f"{node.distance:+d}" if node.distance else "0",
        f"%{node.name}",
        instruction.opcode if instruction else None,
        str(instruction.shape) if instruction else None,
        " ".join(f"%{name}" for name in node.takes) or None,
        took.get("mean_seconds"),
        took.get("count"),
        (instruction.op_name if instruction else "") or took.get("framework_name") or None,
        (instruction.source if instruction else "") or took.get("source") or None,
    )


def graphs_of(capture: Capture) -> tuple[dict[str, Graph], bool]:
    """The modules as graphs, and True if they come from protos; if not, they have only operations that ran."""
    protos = hlo_protos(sources(capture))
    if protos:
        return {name: Graph(proto.module(data, name)) for name, data in protos.items()}, True
    texts: dict[str, list[str]] = defaultdict(list)
    for device in capture.devices:
        for operation in device.operations:
            if operation.text and operation.text not in texts[operation.module]:
                texts[operation.module].append(operation.text)
    return {name: Graph(parse.module("\n".join(lines), name)) for name, lines in texts.items() if lines}, False


def running_instruction(graph: Graph, name: str) -> Instruction | None:
    """The instruction `name` in a computation that runs by itself; None if there is none."""
    return next((graph.instructions[run, name] for run in graph.runs if (run, name) in graph.instructions), None)


def _place(graph: Graph, name: str) -> str | None:
    """The computation with the instruction `name`, preferably one that runs by itself; None if there is none."""
    places = [computation for computation, instruction in graph.instructions if instruction == name]
    return min(places, key=lambda place: place not in graph.runs, default=None)


def _around(graph: Graph, computation: str, name: str, depth: int) -> list[Node]:
    """The nodes around `name`, the nearest first, without repetitions."""
    nodes = {name: Node(name=name, distance=0, instruction=graph.instructions[computation, name])}
    for way in (-1, 1):
        edge = [name]
        for distance in range(1, depth + 1):
            beyond = dict.fromkeys(
                neighbour
                for nearer in edge
                for neighbour in _neighbours(graph, computation, nearer, way)
                if neighbour not in nodes
            )
            for neighbour in beyond:
                instruction = graph.instructions.get((computation, neighbour))
                nodes[neighbour] = Node(name=neighbour, distance=way * distance, instruction=instruction)
            edge = list(beyond)
    return sorted(nodes.values(), key=lambda node: abs(node.distance))


def _neighbours(graph: Graph, computation: str, name: str, way: int) -> list[str]:
    if way > 0:
        return [user.name for user in graph.users.get((computation, name), ())]
    instruction = graph.instructions.get((computation, name))
    return [operand.name for operand in instruction.operands] if instruction else []


def _unknown(capture: Capture, graphs: dict[str, Graph], name: str) -> str:
    names = sorted({instruction for graph in graphs.values() for _, instruction in graph.instructions})
    near = difflib.get_close_matches(name, names, 3)
    hint = f"; similar names: {', '.join(near)}" if near else ""
    return (
        f"expected an operation of {capture.name} ({len(names)} are known; `xprof ops` lists them), got {name!r}{hint}"
    )
