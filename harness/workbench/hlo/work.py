"""The work of one instruction: its FLOPs, and the bytes that it moves to and from HBM."""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import islice

from harness.hlo.attributes import configuration
from harness.hlo.module import Computation, Convolution, Instruction, WindowDimension
from harness.hlo.shapes import HOST, Array, Shape, arrays, padded_bytes
from harness.workbench.hlo.graph import FREE, RENAMES, Graph

_ARITHMETIC = """
abs add and atan2 cbrt ceil clamp clz compare complex convert cosine divide erf exponential exponential-minus-one
floor imag is-finite log log-plus-one logistic maximum minimum multiply negate not or popcnt power real remainder
round-nearest-afz round-nearest-even rsqrt select shift-left shift-right-arithmetic shift-right-logical sign sine sqrt
stochastic-convert subtract tan tanh xor
"""
_MOVING = """
bitcast-convert broadcast concatenate copy copy-done copy-start domain dynamic-reshape dynamic-slice dynamic-slice-done
dynamic-slice-start dynamic-update-slice gather get-dimension-size infeed iota outfeed pad recv recv-done
reduce-precision reshape reverse send send-done set-dimension-size slice slice-done slice-start transpose async-done
async-update all-gather all-gather-start all-gather-done all-to-all collective-permute collective-permute-start
collective-permute-done all-reduce-done collective-broadcast ragged-all-to-all
"""
# Opcodes that count as one FLOP for each element of the result, as in XLA's own cost analysis (hlo_cost_analysis.cc),
# conversions included. XLA counts transcendental functions separately; here they count like all others.
ELEMENTWISE = frozenset(_ARITHMETIC.split())
# Opcodes that move, make or rename values, but compute nothing.
MOVES = frozenset(_MOVING.split())
# Opcodes whose result and operands have the same dimensions, with the same split over devices.
ALIKE = ELEMENTWISE | {"copy", "copy-done", "bitcast", "opt-barrier", "all-reduce", "collective-permute"}
# Custom calls of libtpu without work: buffers, and the two ends of an overlapped collective (their fusion also contains
# the collective).
_WITHOUT_WORK = ("AllocateBuffer", "AsyncCollectiveStart", "AsyncCollectiveDone", "AssumeGatherIndicesInBound")
_SLICES = ("dynamic-slice", "slice", "gather")
_MATMULS = ("dot", "convolution")
# The largest number of a fusion's matmuls that are examined (XLA puts at most one into a fusion), and of unknown
# operations that are named.
_MOST_LISTED = 16
# The largest number of pairs of positions that are tried to count the products of a dilated convolution.
_MOST_PAIRS = 1 << 20
# FLOPs, and the operations with unknown FLOPs.
_Flops = tuple[float, frozenset[str]]


@dataclass(frozen=True, slots=True, kw_only=True)
class InstructionWork:
    """The work of one execution of an instruction; None means unknown.

    - `hbm_bytes`, `host_bytes`, `other_bytes`: bytes read and written in HBM (memory space 0), in the host's memory,
      and in all others (VMEM), padding included.
    - `to_host`: True if a result is in the host's memory.
    - `claimed`: True if `flops` is the kernel's own cost estimate.
    - `unknown`: the operations with unknown FLOPs.
    """

    flops: float | None
    hbm_bytes: int | None
    other_bytes: int | None
    host_bytes: int | None = 0
    to_host: bool = False
    claimed: bool = False
    unknown: tuple[str, ...] = ()


def work(graph: Graph, instruction: Instruction) -> InstructionWork:
    """The work of one execution of `instruction`, including all that its fusion computes."""
    hbm, other, host = _traffic(graph, instruction)
    if instruction.opcode == "custom-call" and instruction.target not in _WITHOUT_WORK:
        estimate = _estimate(instruction)
        flops = estimate.get("flops")
        claimed = estimate.get("bytes_accessed")
        return InstructionWork(
            flops=flops,
            hbm_bytes=int(claimed) if claimed is not None else hbm,
            other_bytes=other,
            host_bytes=host,
            to_host=_writes_to_host(instruction),
            claimed=flops is not None,
            unknown=() if flops is not None else (f"custom-call {instruction.target}".strip(),),
        )
    flops, unknown = _flops(graph, instruction, _totals(graph))
    if not math.isfinite(flops):
        unknown |= {f"{instruction.opcode} of more FLOPs than can be counted"}
    names = tuple(sorted(unknown))
    return InstructionWork(
        flops=None if names else flops,
        hbm_bytes=hbm,
        other_bytes=other,
        host_bytes=host,
        to_host=_writes_to_host(instruction),
        unknown=names,
    )


def matmuls(graph: Graph, instruction: Instruction) -> list[Instruction]:
    """The matmuls of an instruction: itself, or those in its fusion (only the first, if there are many)."""

    def of_body(body: Computation, results: Mapping[str, list[Instruction]]) -> list[Instruction]:
        within = (matmul for inner in body.instructions for matmul in _matmuls(graph, inner, results))
        return list(islice(within, _MOST_LISTED))

    return _matmuls(graph, instruction, graph.of_each("matmuls", of_body))


def _matmuls(graph: Graph, instruction: Instruction, results: Mapping[str, list[Instruction]]) -> list[Instruction]:
    if instruction.opcode in _MATMULS:
        return [instruction]
    body = graph.inside(instruction) if instruction.opcode == "fusion" else None
    return results[body.name] if body else []


def matmul_dtype(graph: Graph, instruction: Instruction) -> str:
    """The type of the left operand of the instruction's matmul; bf16 if it has no matmul."""
    within = matmuls(graph, instruction)
    shape = graph.operand_shape(within[0], 0) if within else None
    return shape.dtype if isinstance(shape, Array) else "bf16"


def dot_flops(left: Array, result: Array, contracted: tuple[int, ...]) -> float | None:
    """FLOPs of a dot: 2 x elements of the result x summed length; None if a length is unknown."""
    lengths = [left.dimensions[place] for place in contracted if place < len(left.dimensions)]
    elements = result.elements
    if elements is None or None in lengths or not len(lengths) == len(set(contracted)) == len(contracted):
        return None
    return 2.0 * elements * math.prod(length for length in lengths if length is not None)


def convolution_flops(data: Array, kernel: Array, result: Array, how: Convolution) -> float | None:
    """FLOPs of a convolution: 2 for each product of two real elements, as XLA counts them.

    Padding and holes of a dilation do not count. XLA writes batched matmuls as convolutions with windows that are
    mostly padding; counting this padding would multiply their FLOPs.
    """
    sizes = {"given": data.dimensions, "kernel": kernel.dimensions, "result": result.dimensions}
    if any(size is None for dimensions in sizes.values() for size in dimensions):
        return None
    ranks = 2 + len(how.input_spatial)
    if any(len(dimensions) != ranks for dimensions in sizes.values()):
        return None
    batch, features = result.dimensions[how.output_batch] or 0, result.dimensions[how.output_feature] or 0
    summed = kernel.dimensions[how.kernel_input] or 0
    valid = 1.0
    windows = how.window or (WindowDimension(),) * len(how.input_spatial)
    if len(windows) != len(how.input_spatial):
        return None
    for window, place_in, place_out in zip(windows, how.input_spatial, how.output_spatial, strict=True):
        pairs = _valid(window, data.dimensions[place_in] or 0, result.dimensions[place_out] or 0)
        if pairs is None:
            return None
        valid *= pairs
    return 2.0 * batch / how.batch_groups * features * summed * valid


def _valid(window: WindowDimension, length: int, out: int) -> int | None:
    """The number of pairs (output position, window position) along one dimension that read an element of the input.

    None if there are too many pairs to try.
    """
    holes = window.input_dilation
    if window.size * (min(out, holes) if holes > 1 else 1) > _MOST_PAIRS:
        return None
    dilated = (length - 1) * holes + 1 if length else 0
    count = 0
    for place in range(window.size):
        # The position in the input is output * stride + offset. It must be inside the input, and not in a hole.
        offset = place * window.window_dilation - window.low_padding
        low = max(0, -(offset // window.stride))
        high = min(out - 1, (dilated - 1 - offset) // window.stride)
        if high < low:
            continue
        if holes == 1:
            count += high - low + 1
            continue
        # The pattern of holes repeats after as many output positions as the dilation.
        for at in range(low, min(high, low + holes - 1) + 1):
            if (at * window.stride + offset) % holes == 0:
                count += (high - at) // holes + 1
    return count


def _totals(graph: Graph) -> Mapping[str, _Flops]:
    """The FLOPs of each computation; each instruction counts once."""

    def total(body: Computation, results: Mapping[str, _Flops]) -> _Flops:
        flops, unknown = 0.0, set[str]()
        for inner in body.instructions:
            more, more_unknown = _flops(graph, inner, results)
            flops += more
            if len(unknown) < _MOST_LISTED:
                unknown |= more_unknown
        return flops, frozenset(unknown)

    return graph.of_each("flops", total)


def _flops(graph: Graph, instruction: Instruction, results: Mapping[str, _Flops]) -> _Flops:
    """FLOPs of an instruction and of all that it calls; `results` has the FLOPs of each computation."""
    opcode, result = instruction.opcode, instruction.shape
    if opcode in ("fusion", "async-start"):
        body = graph.inside(instruction)
        return results[body.name] if body is not None else (0.0, frozenset({f"{opcode} without its computation"}))
    if opcode in FREE or opcode in MOVES or instruction.target in _WITHOUT_WORK:
        return 0.0, frozenset()
    if opcode == "custom-call":
        return 0.0, frozenset({f"custom-call {instruction.target}"})
    shapes = graph.operand_shapes(instruction)
    first = shapes[0] if shapes and isinstance(shapes[0], Array) else None
    counted: float | None = None
    if opcode in _MATMULS:
        counted = _matmul_flops(instruction, shapes)
    elif opcode in ELEMENTWISE and isinstance(result, Array):
        counted = result.elements
    elif opcode in ("reduce", "all-reduce", "all-reduce-start", "reduce-scatter") and first is not None:
        # The reducing function runs once for each element of the operand, except for the first element of each result.
        each = _operations(instruction, results)
        count = first.elements
        made = sum(array.elements or 0 for array in arrays(result)) if opcode == "reduce" else 0
        counted = None if count is None or each is None else max(0, count - made) * each
    return (0.0, frozenset({opcode})) if counted is None else (float(counted), frozenset())


def _matmul_flops(instruction: Instruction, shapes: list[Shape | None]) -> float | None:
    (left, right, *_), result = (*shapes, None, None), instruction.shape
    if not (isinstance(left, Array) and isinstance(right, Array) and isinstance(result, Array)):
        return None
    if instruction.contraction is not None:
        return dot_flops(left, result, instruction.contraction.left)
    how = instruction.convolution
    return None if how is None else convolution_flops(left, right, result, how)


def _operations(instruction: Instruction, results: Mapping[str, _Flops]) -> float | None:
    """FLOPs of one call of the function that an instruction applies."""
    names = instruction.computations("to_apply", "calls")
    if not names or names[0] not in results:
        return 1.0
    total, unknown = results[names[0]]
    return None if unknown else total


def _traffic(graph: Graph, instruction: Instruction) -> tuple[int, int, int] | tuple[None, None, None]:
    """Bytes that one execution moves in HBM, in other memories, and in the host's; None if a shape is unknown."""
    hbm, other, host = 0, 0, 0
    for shape, count in _accesses(graph, instruction):
        if shape is None:
            return None, None, None
        for array in arrays(shape):
            size = array.padded_bytes if count is None else count
            if size is None:
                return None, None, None
            if array.memory_space == 0:
                hbm += size
            elif array.memory_space == HOST:
                host += size
            else:
                other += size
    return hbm, other, host


def _writes_to_host(instruction: Instruction) -> bool:
    written = instruction.shape
    if instruction.opcode.endswith("-start") and not isinstance(written, Array) and len(written.members) > 1:
        # A copy-start's result lists the destination first; the result of any other start lists it after the operands.
        written = written.members[instruction.opcode != "copy-start"]
    return any(array.memory_space == HOST for array in arrays(written))


def padding_bytes(graph: Graph, instruction: Instruction) -> int:
    """Known bytes of padding that one execution moves in HBM: the padding of values that are read or written whole."""
    whole = [shape for shape, count in _accesses(graph, instruction) if count is None and shape is not None]
    return sum(
        (array.padded_bytes or 0) - (array.logical_bytes or 0)
        for shape in whole
        for array in arrays(shape)
        if array.memory_space == 0 and array.padded_bytes is not None
    )


def _accesses(graph: Graph, instruction: Instruction) -> list[tuple[Shape | None, int | None]]:
    """Each value that is read or written, and the number of accessed bytes (None: all bytes)."""
    opcode, result = instruction.opcode, instruction.shape
    if opcode in FREE or opcode.endswith(("-done", "-update")) or instruction.target in _WITHOUT_WORK:
        return []
    shapes = graph.operand_shapes(instruction)
    if opcode in ("copy-start", "all-gather-start", "collective-permute-start") and not isinstance(result, Array):
        # The result lists destination, source and flags. The data moves once from source to destination.
        return [(member, None) for member in result.members[:2]]
    if opcode in ("dynamic-slice-start", "slice-start") and shapes and not isinstance(result, Array):
        # The result lists the operands, the part and flags.
        part = result.members[1]
        return [(shapes[0], padded_bytes(part)), (part, None), *((shape, None) for shape in shapes[1:])]
    if opcode in ("dynamic-slice", "slice", "gather") and shapes:
        touched = padded_bytes(result)
        return [(shapes[0], touched), (result, None), *((shape, None) for shape in shapes[1:])]
    if opcode == "dynamic-update-slice" and len(shapes) > 1 and shapes[1] is not None:
        # The update is in place, so only the updated part of the array is read and written.
        return [(shapes[1], None), (result, padded_bytes(shapes[1]))]
    body = graph.inside(instruction) if opcode in ("fusion", "async-start") else None
    if body is None:
        return [*((shape, None) for shape in shapes), (result, None)]
    reads = [(shape, _bytes_taken(graph, body.parameters.get(place))) for place, shape in enumerate(shapes)]
    return [*reads, *_results_written(graph, body.root, result)]


def _bytes_taken(graph: Graph, parameter: Instruction | None) -> int | None:
    """The bytes that a fusion reads of a parameter: only slices, or 0 if updated in place; None if it reads all."""
    if parameter is None:
        return None

    def of_parameters(inside: Computation, results: Mapping[str, dict[int, int | None]]) -> dict[int, int | None]:
        return {
            instruction.number: _bytes_taken_of(graph, instruction, results)
            for instruction in inside.instructions
            if instruction.opcode == "parameter" and instruction.number is not None
        }

    return graph.of_each("touched", of_parameters)[graph.home(parameter).name].get(parameter.number or 0)


def _bytes_taken_of(graph: Graph, parameter: Instruction, results: Mapping[str, dict[int, int | None]]) -> int | None:
    total = 0
    waiting = [parameter]
    seen = {parameter.name}
    while waiting:
        value = waiting.pop()
        users = graph.using(value)
        if not users:
            return None
        for user in users:
            is_first = bool(user.operands) and user.operands[0].name == value.name
            if user.opcode in RENAMES and user.opcode != "tuple" and not user.is_root:
                if user.name not in seen:
                    seen.add(user.name)
                    waiting.append(user)
            elif user.opcode in _SLICES and is_first:
                total += padded_bytes(user.shape) or 0
            elif user.opcode == "fusion":
                inner = graph.inside(user)
                place = next(place for place, operand in enumerate(user.operands) if operand.name == value.name)
                part = results[inner.name].get(place) if inner is not None else None
                if part is None:
                    return None
                total += part
            elif not (user.opcode == "dynamic-update-slice" and is_first):
                return None
    return total


def _results_written(graph: Graph, root: Instruction | None, result: Shape) -> list[tuple[Shape | None, int | None]]:
    """The results that a fusion writes, with the bytes written; for an array updated in place, only the update."""
    if root is None or root.opcode != "tuple":
        return [(result, _update(graph, root))]
    shapes = arrays(result)
    if len(root.operands) != len(shapes):
        return [(result, None)]
    return [(shape, _update(graph, graph.operand(root, place))) for place, shape in enumerate(shapes)]


def _update(graph: Graph, member: Instruction | None) -> int | None:
    while member is not None and member.opcode == "bitcast":
        member = graph.operand(member, 0)
    if member is None or member.opcode != "dynamic-update-slice":
        return None
    shape = graph.operand_shape(member, 1)
    return padded_bytes(shape) if shape is not None else None


def compiler_cycles(instruction: Instruction) -> int | None:
    """libtpu's own estimate for an instruction, in cycles; None if libtpu states no estimate."""
    cycles = _number(configuration(instruction.backend, "window_config", "estimated_cycles"))
    return None if cycles is None else int(cycles)


def _estimate(instruction: Instruction) -> dict[str, float]:
    """The cost estimate in a custom call's configuration, as stated by the kernel's author."""
    stated = configuration(instruction.backend, "custom_call_config", "cost_estimate") or configuration(
        instruction.backend, "cost_estimate"
    )
    numbers = {key: _number(value) for key, value in stated.items()} if isinstance(stated, dict) else {}
    return {key: value for key, value in numbers.items() if value is not None}


def _number(value: object) -> float | None:
    """A number from JSON (a number or a string); None if it is negative, not finite, or no number."""
    try:
        number = float(value) if isinstance(value, int | float | str) else math.nan
    except (ValueError, OverflowError):
        return None
    return number if math.isfinite(number) and number >= 0 else None
