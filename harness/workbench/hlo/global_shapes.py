"""Global shapes of sharded values, derived from a module: the split dimensions, and the number of their parts."""

import itertools
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field

from harness.hlo.module import Contraction, Instruction
from harness.hlo.shapes import Array, Shape
from harness.hlo.sharding import Groups
from harness.workbench.hlo.graph import Graph
from harness.workbench.hlo.mesh import axes_of_groups, axes_of_sharding
from harness.workbench.hlo.work import ALIKE, matmuls

# A value: (computation, instruction). A dimension of a value: (computation, instruction, place of the dimension).
_Value = tuple[str, str]
Dimension = tuple[str, str, int]
# A dimension's number of parts, the evidence for this split, and the axes of the mesh.
_Split = tuple[int, str, tuple[str, ...]]


@dataclass(frozen=True, slots=True, kw_only=True)
class TrueShape:
    """A value that is split over devices.

    - `local`, `whole`: the shape of one device's part, and the global shape.
    - `parts`, `axes`: for each dimension, the number of parts and the mesh axes that split it.
    - `because`: the evidence.
    """

    name: str
    local: str
    whole: str
    parts: tuple[int, ...]
    axes: tuple[tuple[str, ...], ...]
    because: str


@dataclass(slots=True)
class _Classes:
    """Sets of dimensions with the same split (a union-find forest), and the known split of each set."""

    parents: dict[Dimension, Dimension] = field(default_factory=dict)
    splits: dict[Dimension, _Split] = field(default_factory=dict)

    def find(self, dimension: Dimension) -> Dimension:
        """The representative of the set with `dimension`."""
        while (up := self.parents.get(dimension, dimension)) != dimension:
            # Path halving: later calls take half as many steps.
            self.parents[dimension] = further = self.parents.get(up, up)
            dimension = further
        return dimension


def true_shapes(graph: Graph) -> tuple[TrueShape, ...]:
    """The split arguments, and the split operands and results of matmuls and collectives, with their global shapes.

    Splits are known from two sources: the shardings of arguments, and collectives. An all-reduce or reduce-scatter of a
    matmul's result adds up parts, so the dimensions that the matmul sums over are split over the group. A gathered
    dimension was split before the gather. A split spreads along matmuls, fusions, loops and element-wise operations,
    wherever a dimension is passed on unchanged.
    """
    classes = _Classes()
    every = [instruction for computation in graph.module.computations for instruction in computation.instructions]
    for first, second in (pair for instruction in every for pair in _split_alike(graph, instruction)):
        classes.parents[classes.find(second)] = classes.find(first)
    stated = [split for instruction in every for split in _stated_splits(graph, instruction)]
    # Shardings of arguments take precedence, because they are certain; splits from collectives are only implied.
    for dimension, split in sorted(stated, key=lambda entry: not entry[1][1].startswith("sharding of")):
        classes.splits.setdefault(classes.find(dimension), split)
    shapes: dict[str, TrueShape] = {}
    for instruction in _of_interest(graph):
        shown = _true_shape(graph, classes, instruction)
        if shown is not None:
            shapes.setdefault(instruction.name, shown)
    return tuple(shapes.values())


def _of_interest(graph: Graph) -> list[Instruction]:
    """The arguments, then the matmuls and collectives with their operands."""
    listed = [
        instruction
        for computation in graph.module.computations
        for instruction in computation.instructions
        if instruction.opcode == "parameter" and computation.is_entry
    ]
    for instruction, _ in graph.executions():
        if instruction.groups is None and not matmuls(graph, instruction):
            continue
        operands = (graph.operand(instruction, place) for place in range(len(instruction.operands)))
        listed += [value for value in (*operands, instruction) if value is not None]
    return listed


def _true_shape(graph: Graph, classes: _Classes, instruction: Instruction) -> TrueShape | None:
    shape = instruction.shape
    if not isinstance(shape, Array) or not shape.dimensions or None in shape.dimensions:
        return None
    within = graph.home(instruction).name
    dimensions = [classes.find((within, instruction.name, at)) for at in range(len(shape.dimensions))]
    splits = [classes.splits.get(dimension, (1, "", ())) for dimension in dimensions]
    if all(count == 1 for count, _, _ in splits):
        return None
    whole = tuple((size or 0) * count for size, (count, _, _) in zip(shape.dimensions, splits, strict=True))
    return TrueShape(
        name=instruction.name,
        local=shape.plain,
        whole=Array(dtype=shape.dtype, dimensions=whole).plain,
        parts=tuple(count for count, _, _ in splits),
        axes=tuple(along for _, _, along in splits),
        because="; ".join(dict.fromkeys(because for count, because, _ in splits if count > 1)),
    )


def _stated_splits(graph: Graph, instruction: Instruction) -> list[tuple[Dimension, _Split]]:
    """The splits of dimensions that one instruction implies."""
    name, sharding, mesh = graph.home(instruction).name, instruction.sharding, graph.module.mesh
    if sharding is not None and instruction.opcode == "parameter" and sharding.parts:
        because = f"sharding of {instruction.name}"
        axes = axes_of_sharding(sharding, mesh) if mesh else tuple(() for _ in sharding.parts)
        return [
            ((name, instruction.name, place), (parts, because, along))
            for place, (parts, along) in enumerate(zip(sharding.parts, axes, strict=True))
        ]
    size = group_size(instruction.groups, graph.module.devices)
    if size is None or size < 2 or not instruction.operands:
        return []
    split = size, f"{instruction.name} over groups of {size}", axes_of_groups(instruction.groups, mesh)
    operand = instruction.operands[0].name
    if instruction.opcode in ("all-gather", "all-gather-start"):
        return [((name, operand, place), split) for place in instruction.dimensions]
    if instruction.opcode not in ("reduce-scatter", "all-reduce", "all-reduce-start"):
        return []
    scattered = instruction.dimensions if instruction.opcode == "reduce-scatter" else ()
    return [
        *(((name, instruction.name, place), split) for place in scattered),
        *_summed_splits(graph, instruction, split),
    ]


def _summed_splits(graph: Graph, instruction: Instruction, split: _Split) -> list[tuple[Dimension, _Split]]:
    """The splits of the dimensions that the matmul before a reduction sums over: each device has a part of them."""
    passed = ("bitcast", "copy", "convert", "get-tuple-element", "copy-done")
    behind = graph.source(instruction, 0, passed)
    within = matmuls(graph, behind) if behind is not None else []
    if len(within) != 1:
        return []
    matmul = within[0]
    sides = _contracted_dimensions(matmul)
    # If the matmul sums over several dimensions, it is unknown which of them is split.
    if any(len(summed) != 1 for summed in sides) or len(matmul.operands) < 2:
        return []
    name = graph.home(matmul).name
    return [((name, matmul.operands[side].name, summed[0]), split) for side, summed in enumerate(sides)]


def _contracted_dimensions(matmul: Instruction) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """The dimensions of the left and of the right operand that a matmul sums over."""
    if matmul.contraction is not None:
        return matmul.contraction.left, matmul.contraction.right
    if matmul.convolution is not None and not matmul.convolution.input_spatial:
        return (matmul.convolution.input_feature,), (matmul.convolution.kernel_input,)
    return (), ()


def group_size(groups: Groups | None, devices: int) -> int | None:
    """The number of devices in a group of a collective; None if there are no groups, or their size is unknown."""
    if groups is None:
        return None
    return devices if groups.is_everyone else groups.size


def _split_alike(graph: Graph, instruction: Instruction) -> Iterator[tuple[Dimension, Dimension]]:
    """Pairs of dimensions with the same split, mostly a dimension of an operand and one of the result."""
    name, opcode, shape = graph.home(instruction).name, instruction.opcode, instruction.shape
    result, shapes = (name, instruction.name), graph.operand_shapes(instruction)
    operands = [(name, operand.name) for operand in instruction.operands]
    if opcode in ALIKE and isinstance(shape, Array):
        for operand, before in zip(operands, shapes, strict=True):
            if opcode == "copy-done" or (isinstance(before, Array) and before.dimensions == shape.dimensions):
                yield from _pairs(operand, result, _all_of(shape))
            elif isinstance(before, Array) and opcode == "bitcast":
                yield from _pairs(operand, result, _kept_dimensions(before.dimensions, shape.dimensions))
    elif opcode == "while":
        yield from _carried_by_loop(graph, instruction)
    elif opcode in ("copy-start", "transpose", "broadcast", "dynamic-slice", "all-gather") and operands:
        yield from _pairs(operands[0], result, _passed_on(instruction, shapes[0]))
    elif instruction.target == "AsyncCollectiveDone" and isinstance(shape, Array):
        for place, operand in enumerate(operands):
            done = graph.operand(instruction, place)
            if done is not None and done.opcode == "all-gather":
                yield from _pairs(operand, result, _all_of(shape))
    elif opcode == "dot" and instruction.contraction is not None and len(operands) > 1:
        yield from _of_dot(operands[0], operands[1], result, instruction.contraction, shapes)
    elif opcode == "convolution" and instruction.convolution is not None and len(operands) > 1:
        (left, right, *_), how = operands, instruction.convolution
        yield (*left, how.input_batch), (*result, how.output_batch)
        yield (*right, how.kernel_output), (*result, how.output_feature)
        yield (*left, how.input_feature), (*right, how.kernel_input)
    elif opcode == "fusion" and (body := graph.inside(instruction)) is not None:
        for place, operand in enumerate(operands):
            if (parameter := body.parameters.get(place)) is not None:
                yield from _pairs(operand, (body.name, parameter.name), _all_of(parameter.shape))
        if body.root is not None:
            yield from _pairs((body.name, body.root.name), result, _all_of(shape))
    elif opcode == "get-tuple-element" and (made := _element(graph, instruction)) is not None:
        yield from _pairs(made, result, _all_of(shape))


def _pairs(first: _Value, second: _Value, places: Iterable[tuple[int, int]]) -> Iterator[tuple[Dimension, Dimension]]:
    return (((*first, here), (*second, there)) for here, there in places)


def _all_of(shape: Shape | None) -> Iterator[tuple[int, int]]:
    """The place of each dimension of an array, paired with itself; empty for a tuple."""
    return ((place, place) for place in range(len(shape.dimensions) if isinstance(shape, Array) else 0))


def _passed_on(instruction: Instruction, before: Shape | None) -> Iterator[tuple[int, int]]:
    """For each dimension that is passed on: its place in the first operand, and its place in the result."""
    after = instruction.shape
    if instruction.opcode == "copy-start":
        # The result is a tuple, but its array is treated as the whole result.
        yield from _all_of(before)
    elif instruction.opcode == "transpose":
        yield from ((at, place) for place, at in enumerate(instruction.dimensions))
    elif instruction.opcode == "broadcast":
        yield from enumerate(instruction.dimensions)
    elif isinstance(before, Array) and isinstance(after, Array):
        sizes = enumerate(zip(before.dimensions, after.dimensions, strict=False))
        yield from ((place, place) for place, (length, kept) in sizes if length == kept)


def _of_dot(
    left: _Value, right: _Value, result: _Value, how: Contraction, shapes: Sequence[Shape | None]
) -> Iterator[tuple[Dimension, Dimension]]:
    first, second = shapes[:2]
    if not isinstance(first, Array) or not isinstance(second, Array):
        return
    free_left = [p for p in range(len(first.dimensions)) if p not in (*how.left, *how.left_batch)]
    free_right = [p for p in range(len(second.dimensions)) if p not in (*how.right, *how.right_batch)]
    # Order of the result's dimensions: batches, then free dimensions of the left operand, then of the right operand.
    of_left = (*how.left_batch, *free_left)
    yield from _pairs(left, result, zip(of_left, itertools.count(), strict=False))
    yield from _pairs(right, result, zip(free_right, itertools.count(len(of_left)), strict=False))
    both = zip((*how.left, *how.left_batch), (*how.right, *how.right_batch), strict=False)
    yield from _pairs(left, right, both)


def _carried_by_loop(graph: Graph, loop: Instruction) -> Iterator[tuple[Dimension, Dimension]]:
    """Pairs of a dimension of a loop's initial value, and the same dimension of the value that its body returns."""
    start, body = graph.operand(loop, 0), graph.inside(loop, "body")
    root = body.root if body else None
    if body is None or root is None or start is None or start.opcode != "tuple" or root.opcode != "tuple":
        return
    outside = graph.home(start).name
    for place, (first, next_one) in enumerate(zip(start.operands, root.operands, strict=False)):
        yield from _pairs((outside, first.name), (body.name, next_one.name), _all_of(graph.operand_shape(start, place)))


def _element(graph: Graph, instruction: Instruction) -> _Value | None:
    """The value that a get-tuple-element takes from its tuple; None if unknown."""
    whole, number = graph.operand(instruction, 0), instruction.number
    if whole is None or number is None:
        return None
    holder: Instruction | None = whole
    if whole.opcode == "fusion":
        body = graph.inside(whole)
        holder = body.root if body else None
    elif whole.opcode in ("while", "parameter"):
        # In a loop's body, the parameter is the loop's tuple, whose initial values are outside the body.
        loop = whole if whole.opcode == "while" else graph.loops.get(graph.home(whole).name)
        holder = graph.operand(loop, 0) if loop else None
    if holder is None:
        return None
    if holder.opcode == "tuple" and number < len(holder.operands):
        return graph.home(holder).name, holder.operands[number].name
    # In the tuple of an overlapped collective's start, number 0 is the operand, number 1 the output.
    is_start = whole.opcode == "fusion" and holder.target == "AsyncCollectiveStart"
    sent = graph.operand(holder, 0) if is_start else None
    if sent is None or not sent.operands or number > 1:
        return None
    return graph.home(holder).name, sent.operands[0].name if number == 0 else sent.name


def _kept_dimensions(before: tuple[int | None, ...], after: tuple[int | None, ...]) -> list[tuple[int, int]]:
    """Pairs of equal dimensions before and after a reshape that only adds or drops dimensions of 1; else empty."""
    ours = [place for place, size in enumerate(before) if size != 1]
    theirs = [place for place, size in enumerate(after) if size != 1]
    if [before[place] for place in ours] != [after[place] for place in theirs]:
        return []
    return list(zip(ours, theirs, strict=True))
