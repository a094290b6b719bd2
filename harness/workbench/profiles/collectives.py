"""The collectives of a device: what each moves among how many devices, its time in flight, the time waited."""

from collections import defaultdict, deque
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from harness.chips.workbench import Links
from harness.errors import RatchetError
from harness.hlo.module import Instruction
from harness.hlo.parse import module
from harness.hlo.shapes import Shape, arrays
from harness.hlo.sharding import Groups
from harness.records import Device, Execution, Operation
from harness.workbench.hlo.graph import Graph
from harness.workbench.hlo.interconnect import COLLECTIVES, Collective, exact_seconds
from harness.workbench.profiles.classes import COMMUNICATION, category, half, op_class, opcode, pair_name
from harness.workbench.profiles.op_times import running
from harness.workbench.profiles.spans import spans, within

# A collective of a device: its module, and the name that its two halves share.
Key: TypeAlias = tuple[str, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class Moved:
    """What one execution moves: `array_bytes` is the whole array (gathered, not yet scattered), `size` the devices.

    None is what the capture's text does not say.
    """

    kind: Collective | None
    size: int | None = None
    array_bytes: float | None = None
    groups: Groups | None = None
    pairs: tuple[tuple[int, int], ...] = ()

    @property
    def bus_bytes(self) -> float | None:
        """What crosses the links per device, whatever the number of devices: the array times the bus factor.

        all-reduce 2 (n-1)/n, all-gather, reduce-scatter and all-to-all (n-1)/n, permutation 1 (NVIDIA nccl-tests,
        PERFORMANCE.md, whose bus bandwidth this is).
        """
        if self.kind is None or self.array_bytes is None:
            return None
        if self.kind == "collective-permute":
            return self.array_bytes
        if self.size is None:
            return None
        return (2 if self.kind == "all-reduce" else 1) * self.array_bytes * (self.size - 1) / self.size


@dataclass(frozen=True, slots=True, kw_only=True)
class Flight:
    """All executions of one collective on one device.

    `flight_seconds` are from start to end each time, `waited_seconds` what the device spent in its done half or, where
    it is synchronous, in itself; `start_seconds` what starting took. `flights` is how often a time of flight is known.
    """

    name: str
    module: str
    moved: Moved
    is_asynchronous: bool
    count: int = 0
    flights: int = 0
    flight_seconds: float = 0.0
    waited_seconds: float = 0.0
    start_seconds: float = 0.0


def flights(device: Device, graphs: Mapping[str, Graph] | None = None) -> tuple[Flight, ...]:
    """The collectives of a device, the one most waited for first.

    `graphs` are the modules by name: they say what is moved where the capture has no text of an operation.

    In flight is what the asynchronous line shows; without one, from the begin of the start half to the end of the
    done half that follows it. Of a GPU and a CPU, whose operations run side by side, see `_side_by_side`.
    """
    kinds = [op_class(operation) == COMMUNICATION for operation in device.operations]
    if device.platform != "tpu":
        return _side_by_side(device, kinds, graphs or {})
    serial = [run for run in device.executions if kinds[run.operation]]
    beside = [run for run in device.asynchronous if kinds[run.operation]]
    pairs: dict[Key, list[int]] = defaultdict(list)
    for number in dict.fromkeys(run.operation for run in serial):
        pairs[_key(device.operations[number])].append(number)
    took: dict[int, list[float]] = defaultdict(list)
    for run in serial:
        took[run.operation].append(run.self_seconds)
    in_flight: dict[Key, list[float]] = defaultdict(list)
    for key, seconds in _in_flight(device, serial, beside):
        in_flight[key].append(seconds)
    found = [_flight(device, key, numbers, took, in_flight[key], graphs or {}) for key, numbers in pairs.items()]
    return tuple(sorted(found, key=lambda one: (-one.waited_seconds, one.name)))


def _side_by_side(device: Device, kinds: Sequence[bool], graphs: Mapping[str, Graph]) -> tuple[Flight, ...]:
    """A collective is in flight while its own kernel runs, and waited for while no other operation runs beside it.

    XLA names a GPU's kernel after the start half; there is no event of a done half.
    """
    work = spans((run.start, run.end) for run in running(device) if not kinds[run.operation])
    runs: dict[Key, list[Execution]] = defaultdict(list)
    for run in device.executions:
        if kinds[run.operation]:
            runs[_key(device.operations[run.operation])].append(run)
    found = [
        Flight(
            name=key[1],
            module=key[0],
            moved=moved(device.operations[own[0].operation], graphs),
            is_asynchronous=True,
            count=len(own),
            flights=len(own),
            flight_seconds=sum(run.seconds for run in own),
            waited_seconds=sum(run.seconds - within(work, run.start, run.end) for run in own),
        )
        for key, own in runs.items()
    ]
    return tuple(sorted(found, key=lambda one: (-one.waited_seconds, one.name)))


def _flight(
    device: Device,
    key: Key,
    numbers: Sequence[int],
    took: Mapping[int, Sequence[float]],
    in_flight: Sequence[float],
    graphs: Mapping[str, Graph],
) -> Flight:
    """The halves of one collective put together, or a synchronous one, whose flight is its own time."""
    by_half: dict[str, list[int]] = defaultdict(list)
    for number in numbers:
        by_half[half(device.operations[number])].append(number)
    # What is moved stands with the start half; it is missing where the capture began between the two.
    first = (by_half["start"] or by_half[""] or numbers)[0]
    waited = [seconds for part in ("done", "") for number in by_half[part] for seconds in took[number]]
    flown = in_flight or [seconds for number in by_half[""] for seconds in took[number]]
    return Flight(
        name=key[1],
        module=key[0],
        moved=moved(device.operations[first], graphs),
        is_asynchronous=not by_half[""],
        count=len(waited),
        flights=len(flown),
        flight_seconds=sum(flown),
        waited_seconds=sum(waited),
        start_seconds=sum(seconds for number in by_half["start"] for seconds in took[number]),
    )


def moved(operation: Operation, graphs: Mapping[str, Graph] | None = None) -> Moved:
    """What one execution of a collective moves, from its HLO text or, where that is missing, from its module."""
    instruction = _instruction(operation) or _in_module(operation, (graphs or {}).get(operation.module))
    said = f"{instruction.opcode if instruction else ''} {opcode(operation)} {category(operation)} {operation.name}"
    kind = next((kind for kind in COLLECTIVES if kind in said.replace("_", "-")), None)
    if instruction is None or kind is None:
        return Moved(kind=kind)
    size = instruction.groups.size if instruction.groups else None
    array_bytes = _array_bytes(kind, instruction, size)
    return Moved(kind=kind, size=size, array_bytes=array_bytes, groups=instruction.groups, pairs=instruction.pairs)


def least_seconds(moved: Moved, network: Links | None) -> float | None:
    """The time that one axis of the torus, closed to a ring, needs; None where something of it is not known."""
    if network is None or moved.kind is None or moved.array_bytes is None or moved.size is None:
        return None
    # What all devices exchange is `size` times what each of them holds.
    whole = moved.array_bytes * (moved.size if moved.kind == "all-to-all" else 1)
    return exact_seconds(moved.kind, whole, moved.size, network.one_way_bytes_per_second, is_ring=True)


def _in_flight(device: Device, serial: list[Execution], beside: list[Execution]) -> Iterator[tuple[Key, float]]:
    """How long each asynchronous collective was in flight, execution by execution."""
    keys = [_key(operation) for operation in device.operations]
    if beside:
        for run in beside:
            yield keys[run.operation], run.seconds
        return
    halves = [half(operation) for operation in device.operations]
    started: dict[Key, deque[float]] = defaultdict(deque)
    for run in serial:
        key = keys[run.operation]
        if halves[run.operation] == "start":
            started[key].append(run.start)
        elif halves[run.operation] == "done" and started[key]:
            yield key, run.end - started[key].popleft()


def _key(operation: Operation) -> Key:
    return operation.module, pair_name(operation.name)


def _in_module(operation: Operation, graph: Graph | None) -> Instruction | None:
    if graph is None:
        return None
    known = (graph.instructions.get((run, operation.name)) for run in graph.runs)
    return next((one for one in known if one is not None), None)


def _instruction(operation: Operation) -> Instruction | None:
    try:
        computations = module(operation.text).computations
    except RatchetError:
        return None
    return computations[0].instructions[0]


def _array_bytes(kind: Collective, instruction: Instruction, size: int | None) -> float | None:
    """The whole array's bytes, from the operands where the text has their shapes, else from the result.

    The result of a start half is the operand beside the result (XLA: a tuple of both, then contexts without
    dimensions), except that of an all-reduce.
    """
    result = _bytes(instruction.shape)
    shapes = [operand.shape for operand in instruction.operands]
    known = [_bytes(shape) for shape in shapes if shape is not None]
    operand = sum(known) if known and len(known) == len(shapes) else None
    has_both = instruction.opcode.endswith("-start") and kind != "all-reduce"
    if kind in ("all-reduce", "all-to-all", "collective-permute"):
        # Here the result is as large as the operand.
        return operand if operand is not None else result / 2 if has_both else result
    if kind == "all-gather" and not has_both:
        return result
    if kind == "reduce-scatter" and operand is not None:
        return operand
    if size is None:
        return None
    if kind == "all-gather" and operand is not None:
        return operand * size
    # One of the two is the whole, the other a part of 1/size.
    return result * size / (size + 1) if has_both else result * size


def _bytes(shape: Shape) -> float:
    return float(sum(array.logical_bytes or 0 for array in arrays(shape) if array.dimensions))
