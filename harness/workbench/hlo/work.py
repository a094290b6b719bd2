"""What one instruction does: its FLOPs, and the bytes it moves to and from HBM."""

import json
import math
from dataclasses import dataclass

from harness.workbench.hlo.graph import FREE, RENAMES, Graph
from harness.workbench.hlo.module import Computation, Convolution, Instruction, WindowDimension
from harness.workbench.hlo.opcodes import ELEMENTWISE, MOVES
from harness.workbench.hlo.shapes import Array, Shape, arrays, padded_bytes

# What libtpu writes as a custom call and does nothing by itself: buffers, and the two ends of a collective that runs
# beside other work (their fusion holds the collective too).
_WITHOUT_WORK = ("AllocateBuffer", "AsyncCollectiveStart", "AsyncCollectiveDone", "AssumeGatherIndicesInBound")
_SLICES = ("dynamic-slice", "slice", "gather")
_MATMULS = ("dot", "convolution")


@dataclass(frozen=True, slots=True, kw_only=True)
class Work:
    """What one execution of an instruction does; None is not known.

    `matmul_flops` is the part of `flops` that the MXU does. `hbm_bytes` are read and written in memory space 0,
    padding included; `other_bytes` those of other memories (VMEM). `claimed` says that a kernel's own cost estimate
    is all there is. `unknown` are the operations inside of which nobody knows the FLOPs.
    """

    flops: float | None
    matmul_flops: float | None
    hbm_bytes: int | None
    other_bytes: int | None
    claimed: bool = False
    unknown: tuple[str, ...] = ()


def work(graph: Graph, computation: Computation, instruction: Instruction) -> Work:
    """The work of one execution of `instruction`, what its fusion holds included."""
    hbm, other = _traffic(graph, computation, instruction)
    if instruction.opcode == "custom-call" and instruction.target not in _WITHOUT_WORK:
        estimate = _estimate(instruction)
        flops = estimate.get("flops")
        claimed = estimate.get("bytes_accessed")
        return Work(
            flops=flops,
            matmul_flops=None,
            hbm_bytes=int(claimed) if claimed is not None else hbm,
            other_bytes=other,
            claimed=flops is not None,
            unknown=() if flops is not None else (f"custom-call {instruction.target}".strip(),),
        )
    flops, matmul, unknown = _flops(graph, computation, instruction)
    names = tuple(sorted(unknown))
    return Work(flops=None if names else flops, matmul_flops=matmul, hbm_bytes=hbm, other_bytes=other, unknown=names)


def matmuls(graph: Graph, computation: Computation, instruction: Instruction) -> list[tuple[Computation, Instruction]]:
    """The matmuls that an instruction is or holds."""
    if instruction.opcode in _MATMULS:
        return [(computation, instruction)]
    body = graph.inside(instruction) if instruction.opcode == "fusion" else None
    return [found for inner in body.instructions for found in matmuls(graph, body, inner)] if body else []


def dot_flops(left: Array, result: Array, contracted: tuple[int, ...]) -> float | None:
    """2 times the elements of the result times the length of what is summed over."""
    lengths = [left.dimensions[place] for place in contracted if place < len(left.dimensions)]
    elements = result.elements
    if elements is None or None in lengths or len(lengths) != len(contracted):
        return None
    return 2.0 * elements * math.prod(length for length in lengths if length is not None)


def convolution_flops(given: Array, kernel: Array, result: Array, how: Convolution) -> float | None:
    """2 for each product that is not one with padding or with a hole of a dilation, as XLA counts them.

    XLA writes batched matmuls as convolutions whose windows mostly meet padding: without this they would count
    many times over.
    """
    sizes = {"given": given.dimensions, "kernel": kernel.dimensions, "result": result.dimensions}
    if any(size is None for dimensions in sizes.values() for size in dimensions):
        return None
    ranks = 2 + len(how.input_spatial)
    if any(len(dimensions) != ranks for dimensions in sizes.values()):
        return None
    batch, features = result.dimensions[how.output_batch] or 0, result.dimensions[how.output_feature] or 0
    summed = kernel.dimensions[how.kernel_input] or 0
    valid = 1.0
    windows = how.window or (WindowDimension(),) * len(how.input_spatial)
    for window, place_in, place_out in zip(windows, how.input_spatial, how.output_spatial, strict=True):
        valid *= _valid(window, given.dimensions[place_in] or 0, result.dimensions[place_out] or 0)
    return 2.0 * batch / how.batch_groups * features * summed * valid


def _valid(window: WindowDimension, given: int, out: int) -> int:
    """Pairs of an output position and a window position that meet an element of the input, along one dimension."""
    dilated = (given - 1) * window.input_dilation + 1 if given else 0
    count = 0
    for place in range(window.size):
        # The input's place is output * stride + offset: it must lie within, and on no hole.
        offset = place * window.window_dilation - window.low_padding
        low = max(0, math.ceil(-offset / window.stride))
        high = min(out - 1, (dilated - 1 - offset) // window.stride)
        if high < low:
            continue
        if window.input_dilation == 1:
            count += high - low + 1
        else:
            count += sum(1 for at in range(low, high + 1) if (at * window.stride + offset) % window.input_dilation == 0)
    return count


def _flops(graph: Graph, computation: Computation, instruction: Instruction) -> tuple[float, float, set[str]]:
    """FLOPs, the matmuls' part of them, and the operations that are not known."""
    opcode = instruction.opcode
    if opcode in ("fusion", "async-start"):
        body = graph.inside(instruction)
        if body is None:
            return 0.0, 0.0, {f"{opcode} without its computation"}
        total, matmul = 0.0, 0.0
        unknown: set[str] = set()
        for inner in body.instructions:
            more, more_matmul, more_unknown = _flops(graph, body, inner)
            total, matmul, unknown = total + more, matmul + more_matmul, unknown | more_unknown
        return total, matmul, unknown
    if opcode in FREE or opcode in MOVES or instruction.target in _WITHOUT_WORK:
        return 0.0, 0.0, set()
    if opcode == "custom-call":
        return 0.0, 0.0, {f"custom-call {instruction.target}"}
    shapes = graph.operand_shapes(computation, instruction)
    first = shapes[0] if shapes and isinstance(shapes[0], Array) else None
    found: float | None = None
    if opcode in _MATMULS:
        found = _matmul_flops(instruction, shapes)
        return (0.0, 0.0, {opcode}) if found is None else (found, found, set())
    result = instruction.shape
    if opcode in ELEMENTWISE and isinstance(result, Array):
        found = result.elements
    elif opcode in ("reduce", "all-reduce", "all-reduce-start", "reduce-scatter") and first is not None:
        # One operation of the reducing function per element that goes in, but for the first of each result.
        each = _operations(graph, instruction)
        count = first.elements
        made = sum(array.elements or 0 for array in arrays(result)) if opcode == "reduce" else 0
        found = None if count is None or each is None else max(0, count - made) * each
    return (0.0, 0.0, {opcode}) if found is None else (float(found), 0.0, set())


def _matmul_flops(instruction: Instruction, shapes: list[Shape | None]) -> float | None:
    if len(shapes) < 2 or not isinstance(instruction.shape, Array):
        return None
    left, right = shapes[0], shapes[1]
    if not isinstance(left, Array) or not isinstance(right, Array):
        return None
    if instruction.contraction is not None:
        return dot_flops(left, instruction.shape, instruction.contraction.left)
    if instruction.convolution is not None:
        return convolution_flops(left, right, instruction.shape, instruction.convolution)
    return None


def _operations(graph: Graph, instruction: Instruction) -> float | None:
    """FLOPs of one call of the function that an instruction applies."""
    names = instruction.computations("to_apply", "calls")
    body = graph.computations.get(names[0]) if names else None
    if body is None:
        return 1.0
    total = 0.0
    for inner in body.instructions:
        more, _, unknown = _flops(graph, body, inner)
        if unknown:
            return None
        total += more
    return total


def _traffic(graph: Graph, computation: Computation, instruction: Instruction) -> tuple[int | None, int | None]:
    """Bytes in HBM and in other memories that one execution reads and writes; None where a shape is not known."""
    opcode = instruction.opcode
    if opcode in FREE or opcode.endswith(("-done", "-update")) or instruction.target in _WITHOUT_WORK:
        return 0, 0
    hbm, other = 0, 0
    for shape, count in _moved(graph, computation, instruction):
        if shape is None:
            return None, None
        for array in arrays(shape):
            size = array.padded_bytes if count is None else count
            if size is None:
                return None, None
            if array.memory_space == 0:
                hbm += size
            else:
                other += size
    return hbm, other


def _moved(graph: Graph, computation: Computation, instruction: Instruction) -> list[tuple[Shape | None, int | None]]:
    """Every value read or written, with the bytes of it that are touched where that is not all of it."""
    opcode, result = instruction.opcode, instruction.shape
    shapes = graph.operand_shapes(computation, instruction)
    if opcode in ("copy-start", "all-gather-start", "collective-permute-start") and not isinstance(result, Array):
        # The result lists the destination, the source and flags. The data moves once from the one to the other.
        members = result.members[:2]
        return [(member, None) for member in members]
    if opcode in ("dynamic-slice", "slice", "gather") and shapes:
        touched = padded_bytes(result)
        return [(shapes[0], touched), (result, None), *((shape, None) for shape in shapes[1:])]
    if opcode == "dynamic-update-slice" and len(shapes) > 1 and shapes[1] is not None:
        # In place: the update is read and written, nothing else of the array.
        return [(shapes[1], None), (result, padded_bytes(shapes[1]))]
    body = graph.inside(instruction) if opcode in ("fusion", "async-start") else None
    if body is None:
        return [*((shape, None) for shape in shapes), (result, None)]
    found: list[tuple[Shape | None, int | None]] = []
    for place, shape in enumerate(shapes):
        parameter = body.parameter(place)
        found.append((shape, _touched(graph, body, parameter) if parameter is not None else None))
    return [*found, *_written(graph, body, result)]


def _touched(graph: Graph, body: Computation, parameter: Instruction) -> int | None:
    """Bytes that a fusion reads of a parameter it takes slices of, 0 of one it updates in place; None for all."""
    total = 0
    waiting = [parameter]
    while waiting:
        value = waiting.pop()
        users = graph.using(body, value)
        if not users:
            return None
        for user in users:
            is_first = bool(user.operands) and user.operands[0].name == value.name
            if user.opcode in RENAMES and user.opcode != "tuple" and not user.is_root:
                waiting.append(user)
            elif user.opcode in _SLICES and is_first:
                total += padded_bytes(user.shape) or 0
            elif user.opcode == "fusion":
                inner = graph.inside(user)
                place = next(place for place, operand in enumerate(user.operands) if operand.name == value.name)
                inside = inner.parameter(place) if inner is not None else None
                if inner is None or inside is None:
                    return None
                part = _touched(graph, inner, inside)
                if part is None:
                    return None
                total += part
            elif not (user.opcode == "dynamic-update-slice" and is_first):
                return None
    return total


def _written(graph: Graph, body: Computation, result: Shape) -> list[tuple[Shape | None, int | None]]:
    """The results of a fusion; of one that updates an array in place, only the update."""
    root = body.root
    if root is None:
        return [(result, None)]
    if root.opcode == "tuple":
        members = [graph.operand(body, root, place) for place in range(len(root.operands))]
        shapes = arrays(result) if not isinstance(result, Array) else (result,)
        if len(members) == len(shapes):
            pairs = zip(shapes, members, strict=True)
            return [(shape, _update(graph, body, member)) for shape, member in pairs]
        return [(result, None)]
    return [(result, _update(graph, body, root))]


def _update(graph: Graph, body: Computation, member: Instruction | None) -> int | None:
    while member is not None and member.opcode == "bitcast":
        member = graph.operand(body, member, 0)
    if member is None or member.opcode != "dynamic-update-slice":
        return None
    shape = graph.operand_shape(body, member, 1)
    return padded_bytes(shape) if shape is not None else None


def compiler_cycles(instruction: Instruction) -> int | None:
    """What libtpu itself estimates for an instruction, in cycles; None where it says nothing."""
    try:
        return int(json.loads(instruction.backend)["window_config"]["estimated_cycles"])
    except (ValueError, KeyError, TypeError):
        return None


def _estimate(instruction: Instruction) -> dict[str, float]:
    """The cost estimate in a custom call's configuration: what its author says it does."""
    try:
        config = json.loads(instruction.backend)
        found = config.get("custom_call_config", config).get("cost_estimate", {})
        return {key: float(value) for key, value in found.items()}
    except (ValueError, TypeError, AttributeError):
        return {}
