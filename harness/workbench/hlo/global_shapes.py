"""Global shapes of sharded values, read off a module: which dimensions are split, and over how many devices."""

from dataclasses import dataclass, field

from harness.hlo.module import Computation, Convolution, Instruction
from harness.hlo.shapes import Array
from harness.hlo.sharding import Groups
from harness.workbench.hlo.graph import Graph
from harness.workbench.hlo.mesh import axes_of_groups, axes_of_sharding
from harness.workbench.hlo.work import ALIKE, matmuls

# One dimension of one value: computation, instruction, dimension.
Dimension = tuple[str, str, int]
# The number of parts into which a dimension is split, the evidence, and the axes of the mesh.
_Split = tuple[int, str, tuple[str, ...]]


@dataclass(frozen=True, slots=True, kw_only=True)
class TrueShape:
    """A value of which each device holds a part.

    `local` is the shape of the part, `whole` the global shape; `parts` is the number of pieces of each dimension,
    `axes` the mesh axes along which each dimension is split, `because` the evidence.
    """

    name: str
    local: str
    whole: str
    parts: tuple[int, ...]
    axes: tuple[tuple[str, ...], ...]
    because: str


@dataclass(slots=True)
class _Classes:
    """Dimensions that are split alike, as a forest of sets, and the known split of each set."""

    parents: dict[Dimension, Dimension] = field(default_factory=dict)
    splits: dict[Dimension, _Split] = field(default_factory=dict)

    def find(self, dimension: Dimension) -> Dimension:
        """The representative of the set that `dimension` belongs to."""
        while (up := self.parents.get(dimension, dimension)) != dimension:
            # Path halving: later calls take half as many steps.
            self.parents[dimension] = further = self.parents.get(up, up)
            dimension = further
        return dimension

    def join(self, kept: Dimension, joined: Dimension) -> None:
        """Joins two dimensions that are split alike. If both have a known split, the split of `kept` stays."""
        kept, joined = self.find(kept), self.find(joined)
        if kept == joined:
            return
        self.parents[joined] = kept
        split = self.splits.pop(joined, None)
        if split is not None:
            self.splits.setdefault(kept, split)

    def join_each(self, kept: tuple[str, str], joined: tuple[str, str], count: int) -> None:
        """Joins the first `count` dimensions of two values, each given by computation and instruction."""
        for place in range(count):
            self.join((*kept, place), (*joined, place))

    def state(self, dimension: Dimension, split: _Split) -> None:
        """Records a split of `dimension`, unless its split is known already."""
        self.splits.setdefault(self.find(dimension), split)


def true_shapes(graph: Graph) -> tuple[TrueShape, ...]:
    """Arguments, and operands and results of matmuls and collectives, with their global shapes if they are split.

    The known splits are the shardings of arguments, and splits that collectives imply: an all-reduce or reduce-scatter
    of a matmul's result adds up parts, so the dimensions that the matmul sums over are split over the group; a gathered
    dimension was split before. A split spreads along matmuls, fusions, loops and element-wise operations, wherever a
    dimension is passed on unchanged.
    """
    classes = _Classes()
    places: dict[str, tuple[Computation, Instruction]] = {}
    for computation in graph.module.computations:
        for instruction in computation.instructions:
            _spread(graph, classes, computation, instruction)
            places.setdefault(instruction.name, (computation, instruction))
    stated: list[tuple[Dimension, _Split]] = []
    for computation in graph.module.computations:
        for instruction in computation.instructions:
            stated += _stated_splits(graph, computation, instruction)
    # The shardings of arguments are certain; splits that collectives imply come second.
    for dimension, split in sorted(stated, key=lambda entry: not entry[1][1].startswith("sharding of")):
        classes.state(dimension, split)
    shapes: dict[str, TrueShape] = {}
    for computation, instruction in _of_interest(graph):
        shown = _true_shape(classes, computation, instruction)
        if shown is not None:
            shapes.setdefault(instruction.name, shown)
    return tuple(shapes.values())


def _of_interest(graph: Graph) -> list[tuple[Computation, Instruction]]:
    """Arguments, then matmuls and collectives with their operands and results."""
    listed = [
        (computation, instruction)
        for computation in graph.module.computations
        for instruction in computation.instructions
        if instruction.opcode == "parameter" and computation.is_entry
    ]
    for computation, instruction, _ in graph.executions():
        if instruction.groups is None and not matmuls(graph, computation, instruction):
            continue
        operands = (graph.operand(computation, instruction, place) for place in range(len(instruction.operands)))
        listed += [(computation, value) for value in (*operands, instruction) if value is not None]
    return listed


def _true_shape(classes: _Classes, computation: Computation, instruction: Instruction) -> TrueShape | None:
    shape = instruction.shape
    if not isinstance(shape, Array) or not shape.dimensions or None in shape.dimensions:
        return None
    dimensions = [classes.find((computation.name, instruction.name, at)) for at in range(len(shape.dimensions))]
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


def _stated_splits(graph: Graph, computation: Computation, instruction: Instruction) -> list[tuple[Dimension, _Split]]:
    """The splits of dimensions that one instruction implies."""
    name, sharding, mesh = computation.name, instruction.sharding, graph.module.mesh
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
        *_summed_splits(graph, computation, instruction, split),
    ]


def _summed_splits(
    graph: Graph, computation: Computation, instruction: Instruction, split: _Split
) -> list[tuple[Dimension, _Split]]:
    """Splits of the dimensions that the matmul before a reduction contracts: each device has a part of them."""
    passed = ("bitcast", "copy", "convert", "get-tuple-element", "copy-done")
    behind = graph.source(computation, instruction, 0, passed)
    within = matmuls(graph, computation, behind) if behind is not None else []
    if len(within) != 1:
        return []
    inside, matmul = within[0]
    sides = _contracted_dimensions(matmul)
    # If several dimensions are summed over, it is not known which one is split.
    if any(len(summed) != 1 for summed in sides) or len(matmul.operands) < 2:
        return []
    return [((inside.name, matmul.operands[side].name, summed[0]), split) for side, summed in enumerate(sides)]


def _contracted_dimensions(matmul: Instruction) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """The dimensions of the left and of the right operand that a matmul sums over."""
    if matmul.contraction is not None:
        return matmul.contraction.left, matmul.contraction.right
    if matmul.convolution is not None and not matmul.convolution.input_spatial:
        return (matmul.convolution.input_feature,), (matmul.convolution.kernel_input,)
    return (), ()


def group_size(groups: Groups | None, devices: int) -> int | None:
    """The number of devices in one group of a collective; None without groups or if their sizes are not known."""
    if groups is None:
        return None
    return devices if groups.is_everyone else groups.size


def _spread(graph: Graph, classes: _Classes, computation: Computation, instruction: Instruction) -> None:
    """Joins the dimensions of operand and result that an instruction passes on unchanged."""
    name, opcode = computation.name, instruction.opcode
    shape = instruction.shape

    def same(operand: int, from_place: int, to_place: int) -> None:
        if operand < len(instruction.operands):
            behind = instruction.operands[operand].name
            classes.join((name, behind, from_place), (name, instruction.name, to_place))

    if opcode in ALIKE and isinstance(shape, Array):
        for operand in range(len(instruction.operands)):
            operand_shape = graph.operand_shape(computation, instruction, operand)
            if opcode == "copy-done" or (
                isinstance(operand_shape, Array) and operand_shape.dimensions == shape.dimensions
            ):
                for place in range(len(shape.dimensions)):
                    same(operand, place, place)
            elif isinstance(operand_shape, Array) and opcode == "bitcast":
                for before, after in _kept_dimensions(operand_shape.dimensions, shape.dimensions):
                    same(operand, before, after)
    elif opcode == "copy-start":
        # The result is a tuple; its array is treated as the whole result.
        moved = graph.operand_shape(computation, instruction, 0)
        for place in range(len(moved.dimensions) if isinstance(moved, Array) else 0):
            same(0, place, place)
    elif opcode == "while":
        _spread_loop(graph, classes, computation, instruction)
    elif opcode == "transpose":
        for place, before in enumerate(instruction.dimensions):
            same(0, before, place)
    elif opcode == "broadcast":
        for place, after in enumerate(instruction.dimensions):
            same(0, place, after)
    elif opcode == "dynamic-slice" or opcode == "all-gather":
        sliced = graph.operand_shape(computation, instruction, 0)
        if isinstance(sliced, Array) and isinstance(shape, Array):
            pairs = zip(sliced.dimensions, shape.dimensions, strict=False)
            for place, (length, kept) in enumerate(pairs):
                if length == kept:
                    same(0, place, place)
    elif instruction.target == "AsyncCollectiveDone" and isinstance(shape, Array):
        for operand in range(len(instruction.operands)):
            done = graph.operand(computation, instruction, operand)
            for place in range(len(shape.dimensions) if done is not None and done.opcode == "all-gather" else 0):
                same(operand, place, place)
    elif opcode == "dot" and instruction.contraction is not None:
        _spread_dot(graph, classes, computation, instruction)
    elif opcode == "convolution" and instruction.convolution is not None:
        _spread_convolution(classes, name, instruction, instruction.convolution)
    elif opcode == "fusion" and (body := graph.inside(instruction)) is not None:
        for operand, named in enumerate(instruction.operands):
            parameter = body.parameters.get(operand)
            if parameter is not None and isinstance(parameter.shape, Array):
                count = len(parameter.shape.dimensions)
                classes.join_each((name, named.name), (body.name, parameter.name), count)
        if body.root is not None and isinstance(shape, Array):
            classes.join_each((body.name, body.root.name), (name, instruction.name), len(shape.dimensions))
    elif opcode == "get-tuple-element" and isinstance(shape, Array):
        made = _element(graph, computation, instruction)
        if made is not None:
            classes.join_each(made, (name, instruction.name), len(shape.dimensions))


def _spread_dot(graph: Graph, classes: _Classes, computation: Computation, dot: Instruction) -> None:
    how = dot.contraction
    left = graph.operand_shape(computation, dot, 0)
    right = graph.operand_shape(computation, dot, 1)
    if how is None or not isinstance(left, Array) or not isinstance(right, Array) or len(dot.operands) < 2:
        return
    name = computation.name
    left_name, right_name = dot.operands[0].name, dot.operands[1].name
    free_left = [p for p in range(len(left.dimensions)) if p not in (*how.left, *how.left_batch)]
    free_right = [p for p in range(len(right.dimensions)) if p not in (*how.right, *how.right_batch)]
    # The result's dimensions: batches, then the free ones of the left operand, then those of the right one.
    for place, before in enumerate((*how.left_batch, *free_left)):
        classes.join((name, left_name, before), (name, dot.name, place))
    for place, before in enumerate(free_right, start=len(how.left_batch) + len(free_left)):
        classes.join((name, right_name, before), (name, dot.name, place))
    for of_left, of_right in zip((*how.left, *how.left_batch), (*how.right, *how.right_batch), strict=False):
        classes.join((name, left_name, of_left), (name, right_name, of_right))


def _spread_convolution(classes: _Classes, name: str, matmul: Instruction, how: Convolution) -> None:
    if len(matmul.operands) < 2:
        return
    left, right = matmul.operands[0].name, matmul.operands[1].name
    classes.join((name, left, how.input_batch), (name, matmul.name, how.output_batch))
    classes.join((name, right, how.kernel_output), (name, matmul.name, how.output_feature))
    classes.join((name, left, how.input_feature), (name, right, how.kernel_input))


def _spread_loop(graph: Graph, classes: _Classes, computation: Computation, loop: Instruction) -> None:
    """Joins the initial values of a loop with the values that its body returns."""
    start = graph.operand(computation, loop, 0)
    body = graph.computations.get(next(iter(loop.computations("body")), ""))
    root = body.root if body else None
    if body is None or root is None or start is None or start.opcode != "tuple" or root.opcode != "tuple":
        return
    for place, (first, next_one) in enumerate(zip(start.operands, root.operands, strict=False)):
        shape = graph.operand_shape(computation, start, place)
        count = len(shape.dimensions) if isinstance(shape, Array) else 0
        classes.join_each((computation.name, first.name), (body.name, next_one.name), count)


def _element(graph: Graph, computation: Computation, instruction: Instruction) -> tuple[str, str] | None:
    """Computation and instruction of the value that a get-tuple-element takes out of its tuple."""
    whole, number = graph.operand(computation, instruction, 0), instruction.number
    if whole is None or number is None:
        return None
    if whole.opcode == "fusion":
        body = graph.inside(whole)
        root = body.root if body else None
        if body is not None and root is not None and root.opcode == "tuple" and number < len(root.operands):
            return body.name, root.operands[number].name
        return _start_value(graph, body, root, number) if body is not None and root is not None else None
    if whole.opcode == "tuple" and number < len(whole.operands):
        return computation.name, whole.operands[number].name
    starts: tuple[Computation, Instruction] | None = None
    if whole.opcode == "while":
        starts = (computation, whole)
    elif whole.opcode == "parameter":
        # Inside a loop's body, the parameter is the loop's tuple; its initial values are outside.
        starts = graph.loops.get(computation.name)
    if starts is None:
        return None
    outside, loop = starts
    start = graph.operand(outside, loop, 0)
    if start is not None and start.opcode == "tuple" and number < len(start.operands):
        return outside.name, start.operands[number].name
    return None


def _start_value(graph: Graph, body: Computation, root: Instruction, number: int) -> tuple[str, str] | None:
    """The value in the tuple of an overlapped collective's start: number 0 is the operand, number 1 the output."""
    sent = graph.operand(body, root, 0) if root.target == "AsyncCollectiveStart" else None
    if sent is None or not sent.operands or number > 1:
        return None
    return body.name, sent.operands[0].name if number == 0 else sent.name


def _kept_dimensions(before: tuple[int | None, ...], after: tuple[int | None, ...]) -> list[tuple[int, int]]:
    """The pairs of equal dimensions before and after a reshape; empty unless it only adds or drops dimensions of 1."""
    ours = [place for place, size in enumerate(before) if size != 1]
    theirs = [place for place, size in enumerate(after) if size != 1]
    if [before[place] for place in ours] != [after[place] for place in theirs]:
        return []
    return list(zip(ours, theirs, strict=True))
