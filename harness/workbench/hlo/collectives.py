"""The collectives of a module: array, group, number of runs, and the time that the links need."""

from dataclasses import dataclass

from harness.chips.row import Figures
from harness.hlo.module import Instruction
from harness.hlo.shapes import Shape, Tuple, arrays
from harness.hlo.sharding import Groups
from harness.workbench.hlo.global_shapes import group_size
from harness.workbench.hlo.graph import FREE, Graph
from harness.workbench.hlo.interconnect import COLLECTIVES, Collective, link_bytes_per_second, published_seconds
from harness.workbench.hlo.mesh import axes_of_groups


@dataclass(frozen=True, slots=True, kw_only=True)
class Traffic:
    """One collective.

    - `array_bytes`: V of the published formulas, the whole array (after a gather, or before a scatter).
    - `size`, `count`: the number of devices in a group, and the number of groups.
    - `axes`: the mesh axes along which the groups run, if any.
    - `seconds`: the time of one run by the published rules (V/W for an all-gather).
    """

    name: str
    kind: Collective
    within: str
    operand: str
    result: str
    array_bytes: int | None
    size: int | None
    count: int | None
    stride: int | None
    axes: tuple[str, ...]
    groups: str
    channel: int | None
    runs: int | None
    seconds: float | None
    source: str


def kind_of(opcode: str) -> Collective | None:
    """The collective of an opcode or of its asynchronous start; None for any other opcode."""
    return next((kind for kind in COLLECTIVES if opcode in (kind, f"{kind}-start")), None)


def is_timed(instruction: Instruction) -> bool:
    """True if an instruction takes time, and is neither a collective nor the end of an asynchronous operation."""
    return not (instruction.opcode in FREE or instruction.opcode.endswith("-done") or kind_of(instruction.opcode))


def collectives(graph: Graph, target: Figures) -> tuple[Traffic, ...]:
    """All collectives of the module, including those inside fusions, the slowest first; repeated ones only once."""
    listed: list[Traffic] = []
    seen: set[tuple[object, ...]] = set()
    for computation in graph.module.computations:
        runs = graph.runs_of(computation)
        if runs == 0:
            continue
        parent = graph.parents.get(computation.name)
        for instruction in computation.instructions:
            collective = traffic(graph, instruction, target)
            if collective is None:
                continue
            # The fusions for the start, the overlapped part and the end of an asynchronous collective all contain it.
            key = (collective.kind, collective.channel, collective.groups, collective.operand, collective.result)
            if parent is not None and collective.channel is not None and key in seen:
                continue
            seen.add(key)
            listed.append(collective)
    return tuple(sorted(listed, key=lambda collective: -(collective.seconds or 0) * (collective.runs or 1)))


def traffic(graph: Graph, instruction: Instruction, target: Figures) -> Traffic | None:
    """The collective of an instruction; None if the instruction is not a collective."""
    kind = kind_of(instruction.opcode)
    if kind is None:
        return None
    result: Shape = instruction.shape
    # The result of a start is a tuple: operand, output, and flags.
    if instruction.opcode.endswith("-start") and isinstance(result, Tuple) and len(result.members) > 1:
        result = result.members[1]
    # XLA writes some reduce-scatters as an all-reduce, after which each device keeps a slice of the result.
    computation = graph.home(instruction)
    if kind == "all-reduce" and computation.name.startswith("all-reduce-scatter"):
        kind = "reduce-scatter"
        result = computation.root.shape if computation.root else result
    size = _size(instruction, graph.module.devices)
    return _traffic(graph, instruction, target, kind, result, size)


def named_kind(name: str) -> Collective | None:
    """The kind of collective in a computation's name; XLA calls a reduce-scatter `all-reduce-scatter.3`."""
    if name.startswith("all-reduce-scatter"):
        return "reduce-scatter"
    return next((kind for kind in COLLECTIVES if name.startswith(kind)), None)


def named_traffic(graph: Graph, instruction: Instruction, target: Figures) -> Traffic | None:
    """The collective of a fusion, derived from the name of its computation, which is missing in the text."""
    names = instruction.computations("calls") if instruction.opcode == "fusion" else ()
    kind = named_kind(names[0]) if names else None
    before, after = _bytes(_operands(graph, instruction)), _bytes([instruction.shape])
    if kind is None or not before or not after:
        return None
    large, small = max(before, after), min(before, after)
    size = large // small if kind in ("reduce-scatter", "all-gather") and large % small == 0 else None
    return _traffic(graph, instruction, target, kind, instruction.shape, size)


def _traffic(
    graph: Graph, instruction: Instruction, target: Figures, kind: Collective, result: Shape, size: int | None
) -> Traffic:
    """The collective of an instruction, with this `kind`, this `result`, and groups of `size` devices."""
    computation, groups = graph.home(instruction), instruction.groups
    parent = graph.parents.get(computation.name)
    operands = _operands(graph, instruction)
    whole = array_bytes(kind, _bytes(operands), _bytes([result]), size)
    bandwidth = link_bytes_per_second(target)
    return Traffic(
        name=instruction.name,
        kind=kind,
        within=parent.name if parent else "",
        operand=", ".join(shape.plain for shape in operands),
        result=result.plain,
        array_bytes=whole,
        size=size,
        count=_count(groups, graph.module.devices, size),
        stride=groups.stride if groups else None,
        axes=axes_of_groups(groups, graph.module.mesh),
        groups=_groups_text(instruction),
        channel=instruction.channel,
        runs=graph.runs_of(computation),
        seconds=published_seconds(kind, whole, bandwidth) if whole is not None and bandwidth else None,
        source=instruction.source,
    )


def _operands(graph: Graph, instruction: Instruction) -> list[Shape]:
    return [shape for shape in graph.operand_shapes(instruction) if shape is not None]


def array_bytes(kind: Collective, before: int | None, after: int | None, size: int | None) -> int | None:
    """V in bytes: the gathered array; the array to scatter, reduce or send; for an all-to-all, all devices' parts."""
    if kind == "all-gather":
        return after
    if kind == "all-to-all":
        return None if before is None or size is None else before * size
    return before


def _size(instruction: Instruction, devices: int) -> int | None:
    if instruction.pairs:
        return len({device for pair in instruction.pairs for device in pair})
    return group_size(instruction.groups, devices)


def _count(groups: Groups | None, devices: int, size: int | None) -> int | None:
    if groups is None or not groups.is_whole:
        return None
    return len(groups.groups) or (1 if size == devices else None)


def _groups_text(instruction: Instruction) -> str:
    if instruction.pairs:
        shown = ",".join(f"{source}->{target}" for source, target in instruction.pairs[:8])
        return shown + (",..." if len(instruction.pairs) > 8 else "")
    return instruction.groups.text if instruction.groups else ""


def _bytes(shapes: list[Shape]) -> int | None:
    sizes = [array.logical_bytes for shape in shapes for array in arrays(shape)]
    whole = [size for size in sizes if size is not None]
    return sum(whole) if shapes and len(whole) == len(sizes) else None
