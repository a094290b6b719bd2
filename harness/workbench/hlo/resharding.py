"""Collectives that a sharding constraint would avoid: gathers used in parts or by row, and sums over all rows."""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from harness.chips.row import Figures
from harness.hlo.module import Instruction, Module
from harness.hlo.shapes import Array, arrays
from harness.hlo.sharding import Mesh
from harness.records import Table
from harness.records.table import Origin
from harness.workbench.hlo.collectives import Traffic, traffic
from harness.workbench.hlo.global_shapes import TrueShape, true_shapes
from harness.workbench.hlo.graph import RENAMES, Graph
from harness.workbench.hlo.mesh import infer_mesh, specification
from harness.workbench.hlo.work import matmuls
from harness.workbench.tables import columns, table

# Our choice: a collective with a tenth of all collectives' bytes counts as large. A tenth is also the protocol's red
# flag for idle time.
_LARGE = 0.10
# Opcodes that pass a value on unchanged: their users count as the value's users.
_PASSES = (*RENAMES, "copy", "convert", "copy-done", "all-gather-done", "all-reduce-done")
_RENAMED = tuple(opcode for opcode in _PASSES if opcode != "tuple")
_CUTS = ("dynamic-slice", "slice", "reduce-scatter", "all-to-all")


@dataclass(frozen=True, slots=True, kw_only=True)
class LargeCollective:
    """A large collective and its use; `remedy` is "" if the collective is needed, or if its need is unknown."""

    sent: Traffic
    used_by: str
    reading: str
    remedy: str


_CONSTRAINTS = columns("names=collective;fact=what;reading=says!")


def constraint_table(collectives: Sequence[LargeCollective], origin: Origin) -> Table:
    """A table of the use of large collectives, grouped by use, and of the constraints that would avoid them."""
    alike: dict[tuple[str, str, str], list[str]] = {}
    for collective in collectives:
        alike.setdefault((collective.reading, collective.remedy, collective.sent.source), []).append(
            collective.sent.name
        )
    rows = [
        (", ".join(names), fact, words)
        for (reading, remedy, source), names in alike.items()
        for fact, words in (("reading", reading), ("remedy", remedy), ("source", source))
        if words
    ]
    why = "no large all-gather, and no large all-reduce that a constraint would avoid"
    return table("constraints", "sharding constraints that may avoid collectives", origin, _CONSTRAINTS, rows, (), why)


def with_mesh(module: Module, named: Mesh | None) -> Module:
    """The module with the mesh `named`; if it is None, with a mesh that fits the module's shardings and groups."""
    if named is not None:
        return replace(module, mesh=named)
    every = [instruction for computation in module.computations for instruction in computation.instructions]
    shardings = [instruction.sharding for instruction in every if instruction.sharding]
    return replace(
        module,
        mesh=infer_mesh(shardings, [instruction.groups for instruction in every if instruction.groups], module.devices),
    )


def large_collectives(graph: Graph, target: Figures) -> tuple[LargeCollective, ...]:
    """The large all-gathers, and the large all-reduces that a constraint would avoid; entries with a remedy first."""
    sent = [
        (instruction, collective)
        for instruction, _ in graph.executions()
        if (collective := traffic(graph, instruction, target)) is not None
    ]
    whole = sum(_bytes_of_all_runs(collective) for _, collective in sent)
    shapes = {shape.name: shape for shape in true_shapes(graph)}
    listed = []
    for instruction, collective in sent:
        if not collective.array_bytes or _bytes_of_all_runs(collective) < _LARGE * whole:
            continue
        if collective.kind == "all-gather":
            listed.append(_read_gather(graph, instruction, collective, shapes))
        elif collective.kind == "all-reduce":
            listed += _read_sum(graph, instruction, collective, shapes)
    return tuple(sorted(listed, key=lambda large: (not large.remedy, -_bytes_of_all_runs(large.sent))))


def _bytes_of_all_runs(collective: Traffic) -> int:
    return (collective.array_bytes or 0) * (collective.runs or 1)


def _read_gather(
    graph: Graph, instruction: Instruction, collective: Traffic, shapes: dict[str, TrueShape]
) -> LargeCollective:
    """A large all-gather; its reading follows from what its users do with the gathered dimension."""
    place = instruction.dimensions[0] if len(instruction.dimensions) == 1 else None
    users = list(_users(graph, instruction, place))
    says = [_use(graph, user, value, at, collective.axes, shapes) for user, value, at in users]
    reading, is_spared = "unknown: the use of the gathered array is not understood", False
    if says and all(word == "cut" for word in says):
        reading, is_spared = "every use takes only a part of the gathered array", True
    elif "summed" in says:
        reading = "needed: a product sums over the gathered dimension"
    elif "taken" in says:
        reading = "needed: the other operand is split along the same axis"
    elif says and all(word in ("rows", "cut") for word in says):
        reading, is_spared = "every device computes all rows, although they are independent of each other", True
    elif says and all(word in ("rows", "cut", "elements") for word in says):
        reading, is_spared = "every device computes the whole result, element by element", True
    result = _array(instruction)
    remedy = ""
    if is_spared and result is not None and place is not None:
        split = [collective.axes if at == place else () for at in range(len(result.dimensions))]
        remedy = f"keep the gathered array x split until its use: with_sharding_constraint(x, {_spec(split)})"
    return _large_collective(collective, users, reading, remedy)


def _read_sum(
    graph: Graph, instruction: Instruction, collective: Traffic, shapes: dict[str, TrueShape]
) -> Iterator[LargeCollective]:
    """The all-reduce, if it sums products over all rows and an argument has as many rows, split along the same axes."""
    for place in range(len(instruction.operands)):
        made = graph.source(instruction, place, _RENAMED)
        within = matmuls(graph, made) if made is not None else []
        if not within or made is None:
            continue
        rows = _rows(graph, within[0])
        split = next((shape for shape in shapes.values() if _has_rows(graph, shape, rows, collective.axes)), None)
        if split is None:
            continue
        users = list(_users(graph, instruction, None))
        axis = split.axes[0][0]
        reading = f"every device adds up all {rows:,} rows, but {split.name} has as many rows, split along {axis}"
        array = _array(instruction)
        spec = _spec([split.axes[0], (), ()][: max(2, len(array.dimensions) if array else 0)])
        remedy = f"split the rows before the product: with_sharding_constraint(x, {spec})"
        yield _large_collective(collective, users, reading, remedy)
        return


def _large_collective(
    collective: Traffic, users: list[tuple[Instruction, str, int | None]], reading: str, remedy: str
) -> LargeCollective:
    names = ", ".join(dict.fromkeys(user.name for user, _, _ in users)) or "the result"
    return LargeCollective(sent=collective, used_by=names, reading=reading, remedy=remedy)


def _users(graph: Graph, instruction: Instruction, place: int | None) -> Iterator[tuple[Instruction, str, int | None]]:
    """Each user of a value, the value's name in this use, and the place of the dimension `place` in this use."""
    waiting, seen = [(instruction, place)], {instruction.name}
    while waiting:
        value, at = waiting.pop()
        for user in graph.using(value):
            if user.opcode in _PASSES:
                if user.name not in seen:
                    seen.add(user.name)
                    waiting.append((user, _place_after(_array(value), _array(user), at)))
            else:
                yield user, value.name, at


def _use(
    graph: Graph, user: Instruction, value: str, place: int | None, axes: tuple[str, ...], shapes: dict[str, TrueShape]
) -> str:
    """The kind of use: `cut`, `summed`, `elements`, `rows`, `taken`, or "" for any other use.

    A product that keeps the dimension is `taken` if `axes` split its other operand, else `rows`.
    """
    number = next(at for at, operand in enumerate(user.operands) if operand.name == value)
    if user.opcode in _CUTS and number == 0:
        return "cut"
    within = matmuls(graph, user)
    if within:
        product = within[0]
        side = number if product is user else _side(graph, product, number)
        if side is None or place is None or product.contraction is None:
            return ""
        summed = (product.contraction.left, product.contraction.right)[side]
        if place in summed:
            return "summed"
        other = user.operands[1 - side].name if product is user and len(user.operands) > 1 else ""
        along = {axis for split in (shapes[other].axes if other in shapes else ()) for axis in split}
        return "taken" if along & set(axes) else "rows"
    body = graph.inside(user)
    if body is not None and (parameter := body.parameters.get(number)) is not None:
        inner = graph.using(parameter)
        if inner and all(taker.opcode in _CUTS and taker.operands[0].name == parameter.name for taker in inner):
            return "cut"
    # If the result has the operand's dimensions, the operation is probably element-wise.
    before, after = graph.operand_shape(user, number), _array(user)
    is_alike = isinstance(before, Array) and after is not None and before.dimensions == after.dimensions
    return "elements" if user.opcode == "fusion" or is_alike else ""


def _side(graph: Graph, product: Instruction, number: int) -> int | None:
    """The operand of the product, 0 or 1, that is the fusion's parameter `number`; None if neither is."""
    parameter = graph.home(product).parameters.get(number)
    for side in range(min(2, len(product.operands))):
        maker = graph.source(product, side, _RENAMED)
        if maker is not None and parameter is not None and maker.name == parameter.name:
            return side
    return None


def _rows(graph: Graph, product: Instruction) -> int:
    """The number of a product's rows: its left operand's free dimensions, multiplied; 0 if unknown."""
    left = graph.operand_shape(product, 0)
    if product.contraction is None or not isinstance(left, Array) or None in left.dimensions:
        return 0
    how = product.contraction
    sizes = [size or 0 for at, size in enumerate(left.dimensions) if at not in (*how.left, *how.left_batch)]
    return math.prod(sizes) if sizes else 0


def _has_rows(graph: Graph, shape: TrueShape, rows: int, axes: tuple[str, ...]) -> bool:
    """True if an argument's first dimension, or its first two together, have `rows` rows and are split along `axes`."""
    entry = graph.module.entry
    argument = graph.instructions.get((entry.name, shape.name)) if entry else None
    is_argument = argument is not None and argument.opcode == "parameter"
    if not rows or not axes or not is_argument or shape.axes[0] != axes:
        return False
    sizes = [int(size) for size in shape.whole.partition("[")[2].rstrip("]").split(",") if size.isdecimal()]
    return rows in (sizes[0], math.prod(sizes[:2]))


def _place_after(before: Array | None, after: Array | None, place: int | None) -> int | None:
    """The place of dimension `place` after a rename, derived from its row-major stride; None if unknown."""
    if before is None or after is None or place is None:
        return None
    if before.dimensions == after.dimensions:
        return place
    if None in before.dimensions or None in after.dimensions or not (_is_in_order(before) and _is_in_order(after)):
        return None
    stride = math.prod(size or 0 for size in before.dimensions[place + 1 :])
    strides = [math.prod(size or 0 for size in after.dimensions[at + 1 :]) for at in range(len(after.dimensions))]
    sizes = [size or 0 for size in after.dimensions]
    return next((at for at, step in enumerate(strides) if step <= stride < step * sizes[at]), None)


def _is_in_order(array: Array) -> bool:
    order = array.layout.minor_to_major if array.layout else ()
    return list(order) == sorted(order, reverse=True)


def _array(instruction: Instruction) -> Array | None:
    """The array that an instruction makes; for an all-gather-start, the result of the all-gather."""
    members = arrays(instruction.shape)
    if not members:
        return None
    return members[1] if instruction.opcode == "all-gather-start" and len(members) > 1 else members[0]


def _spec(split: list[tuple[str, ...]]) -> str:
    return specification(split) or "P(AXIS, ...)"
