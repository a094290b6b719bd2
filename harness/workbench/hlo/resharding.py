"""Collectives that a sharding constraint would spare: gathers cut again or used row by row, sums of all rows."""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from harness.chips.row import Figures
from harness.hlo.module import Computation, Instruction, Module
from harness.hlo.shapes import Array, arrays
from harness.hlo.sharding import Mesh
from harness.records import Table
from harness.records.table import Origin
from harness.workbench.hlo.collectives import Traffic, traffic
from harness.workbench.hlo.global_shapes import TrueShape, true_shapes
from harness.workbench.hlo.graph import RENAMES, Graph
from harness.workbench.hlo.mesh import inferred, specification
from harness.workbench.hlo.work import matmuls
from harness.workbench.tables import columns, table

# Ours: a collective that sends a tenth of all bytes is worth a look, as is a step that is idle for a tenth (protocol).
_LARGE = 0.10
# What hands a value on as it is, so that its users are asked instead.
_PASSES = (*RENAMES, "copy", "convert", "copy-done", "all-gather-done", "all-reduce-done")
_CUTS = ("dynamic-slice", "slice", "reduce-scatter", "all-to-all")


@dataclass(frozen=True, slots=True, kw_only=True)
class Spared:
    """A large collective and what stands behind it; `remedy` is empty where it is needed, or nobody can say."""

    name: str
    kind: str
    axes: tuple[str, ...]
    array_bytes: int
    runs: int | None
    used_by: str
    reading: str
    remedy: str
    source: str


_CONSTRAINTS = columns("names=collective;fact=what;reading=says!")


def constraint_table(found: Sequence[Spared], origin: Origin) -> Table:
    """What stands behind the large collectives, alike ones together, and the sharding constraint that spares them."""
    alike: dict[tuple[str, str, str], list[str]] = {}
    for one in found:
        alike.setdefault((one.reading, one.remedy, one.source), []).append(one.name)
    rows = [
        (", ".join(names), fact, said)
        for (reading, remedy, source), names in alike.items()
        for fact, said in (("reading", reading), ("remedy", remedy), ("source", source))
        if said
    ]
    why = "no collective is a tenth or more of what the module sends"
    return table("constraints", "what a sharding constraint would spare", origin, _CONSTRAINTS, rows, (), why)


def laid_out(module: Module, named: Mesh | None) -> Module:
    """The module with the mesh that is named, else the one that its shardings and groups fit."""
    if named is not None:
        return replace(module, mesh=named)
    every = [instruction for computation in module.computations for instruction in computation.instructions]
    shardings = [one.sharding for one in every if one.sharding]
    return replace(module, mesh=inferred(shardings, [one.groups for one in every if one.groups], module.devices))


def spared(graph: Graph, target: Figures) -> tuple[Spared, ...]:
    """The large all-gathers and all-reduces, each with what its use says; those that send most first."""
    sent = [
        (computation, instruction, one)
        for computation, instruction, _ in graph.executed()
        if (one := traffic(graph, computation, instruction, target)) is not None
    ]
    whole = sum((one.array_bytes or 0) * (one.runs or 1) for _, _, one in sent)
    shapes = {shape.name: shape for shape in true_shapes(graph)}
    found = []
    for computation, instruction, one in sent:
        if not one.array_bytes or one.array_bytes * (one.runs or 1) < _LARGE * whole:
            continue
        if one.kind == "all-gather":
            found.append(_gathered(graph, computation, instruction, one, shapes))
        elif one.kind == "all-reduce":
            found += _added_up(graph, computation, instruction, one, shapes)
    return tuple(sorted(found, key=lambda one: (not one.remedy, -one.array_bytes * (one.runs or 1))))


def _gathered(
    graph: Graph, computation: Computation, instruction: Instruction, one: Traffic, shapes: dict[str, TrueShape]
) -> Spared:
    """An all-gather, by what its users do with the gathered dimension."""
    place = instruction.dimensions[0] if len(instruction.dimensions) == 1 else None
    users = list(_users(graph, computation, instruction, place))
    says = [_use(graph, computation, user, value, at, one.axes, shapes) for user, value, at in users]
    reading, is_spared = "unknown: its use is not understood", False
    if says and all(word == "cut" for word in says):
        reading, is_spared = "every use takes a part of it again", True
    elif "summed" in says:
        reading = "needed: a product sums over the gathered dimension"
    elif "taken" in says:
        reading = "needed: the other operand is split along the same axis"
    elif says and all(word in ("rows", "cut") for word in says):
        reading, is_spared = "every device computes all its rows, which do not need each other", True
    elif says and all(word in ("rows", "cut", "elements") for word in says):
        reading, is_spared = "every device computes all of it, element by element", True
    result = _array(instruction)
    remedy = ""
    if is_spared and result is not None and place is not None:
        split = [one.axes if at == place else () for at in range(len(result.dimensions))]
        remedy = f"keep it split: with_sharding_constraint(x, {_spec(split)}) before this use"
    return _spared(one, users, reading, remedy)


def _added_up(
    graph: Graph, computation: Computation, instruction: Instruction, one: Traffic, shapes: dict[str, TrueShape]
) -> Iterator[Spared]:
    """An all-reduce of products: of all rows, although an argument has as many rows, split along the same axis."""
    for place in range(len(instruction.operands)):
        made = _maker(graph, computation, instruction, place)
        held = matmuls(graph, computation, made) if made is not None else []
        if not held or made is None:
            continue
        inside, product = held[0]
        rows = _rows(graph, inside, product)
        split = next((shape for shape in shapes.values() if _has_rows(graph, shape, rows, one.axes)), None)
        if split is None:
            continue
        users = list(_users(graph, computation, instruction, None))
        reading = f"every device adds up all {rows:,} rows, though {split.name} has them split along {split.axes[0][0]}"
        spec = _spec([split.axes[0], (), ()][: max(2, len(_dimensions(instruction)))])
        remedy = f"split the rows before the product: with_sharding_constraint(x, {spec})"
        yield _spared(one, users, reading, remedy)
        return


def _spared(one: Traffic, users: list[tuple[Instruction, str, int | None]], reading: str, remedy: str) -> Spared:
    names = ", ".join(dict.fromkeys(user.name for user, _, _ in users)) or "the result"
    return Spared(
        name=one.name,
        kind=one.kind,
        axes=one.axes,
        array_bytes=one.array_bytes or 0,
        runs=one.runs,
        used_by=names,
        reading=reading,
        remedy=remedy,
        source=one.source,
    )


def _users(
    graph: Graph, computation: Computation, instruction: Instruction, place: int | None
) -> Iterator[tuple[Instruction, str, int | None]]:
    """Who uses a value, by the name under which they take it, and where its dimension `place` is for them."""
    waiting, seen = [(instruction, place)], {instruction.name}
    while waiting:
        value, at = waiting.pop()
        for user in graph.using(computation, value):
            if user.opcode in _PASSES:
                if user.name not in seen:
                    seen.add(user.name)
                    waiting.append((user, _carried(_array(value), _array(user), at)))
            else:
                yield user, value.name, at


def _use(
    graph: Graph,
    computation: Computation,
    user: Instruction,
    value: str,
    place: int | None,
    axes: tuple[str, ...],
    shapes: dict[str, TrueShape],
) -> str:
    """`cut`, `summed`, `rows` (a product that hands the dimension on), `taken`, `elements`, or "" for anything else."""
    number = next(at for at, operand in enumerate(user.operands) if operand.name == value)
    if user.opcode in _CUTS and number == 0:
        return "cut"
    held = matmuls(graph, computation, user)
    if held:
        inside, product = held[0]
        side = number if inside is computation else _side(graph, inside, product, number)
        if side is None or place is None:
            return ""
        if product.contraction is None:
            return ""
        summed = (product.contraction.left, product.contraction.right)[side]
        if place in summed:
            return "summed"
        other = user.operands[1 - side].name if inside is computation and len(user.operands) > 1 else ""
        along = {axis for split in (shapes[other].axes if other in shapes else ()) for axis in split}
        return "taken" if along & set(axes) else "rows"
    body = graph.inside(user)
    if body is not None and (parameter := body.parameters.get(number)) is not None:
        inner = graph.using(body, parameter)
        if inner and all(one.opcode in _CUTS and one.operands[0].name == parameter.name for one in inner):
            return "cut"
    return "elements" if user.opcode == "fusion" or _is_alike(user, graph, computation, number) else ""


def _is_alike(user: Instruction, graph: Graph, computation: Computation, number: int) -> bool:
    """Whether an operation has a result of its operand's dimensions: element by element, as far as can be seen."""
    before, after = graph.operand_shape(computation, user, number), _array(user)
    return isinstance(before, Array) and after is not None and before.dimensions == after.dimensions


def _side(graph: Graph, inside: Computation, product: Instruction, number: int) -> int | None:
    """Which operand of the product the fusion's parameter is, seen through what hands it on; None for neither."""
    parameter = inside.parameters.get(number)
    for side in range(min(2, len(product.operands))):
        found = _maker(graph, inside, product, side)
        if found is not None and parameter is not None and found.name == parameter.name:
            return side
    return None


def _maker(graph: Graph, computation: Computation, instruction: Instruction, place: int) -> Instruction | None:
    """What made an operand, seen through what only renames it."""
    found = graph.operand(computation, instruction, place)
    while found is not None and found.opcode in _PASSES and found.opcode != "tuple":
        found = graph.operand(computation, found, 0)
    return found


def _rows(graph: Graph, inside: Computation, product: Instruction) -> int:
    """The rows of a product: what its left operand hands on. Batches are none."""
    left = graph.operand_shape(inside, product, 0)
    if product.contraction is None or not isinstance(left, Array) or None in left.dimensions:
        return 0
    how = product.contraction
    sizes = [size or 0 for at, size in enumerate(left.dimensions) if at not in (*how.left, *how.left_batch)]
    return math.prod(sizes) if sizes else 0


def _has_rows(graph: Graph, shape: TrueShape, rows: int, axes: tuple[str, ...]) -> bool:
    """Whether an argument has as many rows in all, as its first dimension or its first two, and they are split so."""
    entry = graph.module.entry
    parameters = {one.name for one in entry.instructions if one.opcode == "parameter"} if entry else set()
    if not rows or not axes or shape.name not in parameters or shape.axes[0] != axes:
        return False
    sizes = [int(size) for size in shape.whole.partition("[")[2].rstrip("]").split(",") if size.isdecimal()]
    return rows in (sizes[0], math.prod(sizes[:2]))


def _carried(before: Array | None, after: Array | None, place: int | None) -> int | None:
    """Where a dimension is after its value was renamed: in the dimension that holds its stride, row by row."""
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
    """The array that an instruction makes; of a start half, its result."""
    found = arrays(instruction.shape)
    if not found:
        return None
    return found[1] if instruction.opcode == "all-gather-start" and len(found) > 1 else found[0]


def _dimensions(instruction: Instruction) -> tuple[int | None, ...]:
    found = _array(instruction)
    return found.dimensions if found else ()


def _spec(split: list[tuple[str, ...]]) -> str:
    return specification(split) or "P(AXIS, ...)"
