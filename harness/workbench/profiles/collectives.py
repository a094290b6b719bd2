"""Collectives of a capture: the array and group of each collective, its time in flight, the time spent waiting."""

from collections.abc import Mapping
from dataclasses import dataclass

from harness.chips.row import Links
from harness.errors import RatchetError
from harness.hlo.module import Instruction
from harness.hlo.parse import module
from harness.hlo.shapes import Shape, arrays
from harness.hlo.sharding import Groups
from harness.records import Operation
from harness.workbench.hlo.graph import Graph
from harness.workbench.hlo.interconnect import COLLECTIVES, AxisTimes, Collective, axis_times
from harness.workbench.profiles.classes import COMMUNICATION, category, opcode
from harness.workbench.profiles.graph import running_instruction
from harness.workbench.profiles.views import meets, overlap_of


@dataclass(frozen=True, slots=True, kw_only=True)
class CollectiveFacts:
    """A collective operation.

    `array_bytes` is the size of the whole array: after a gather, or before a scatter. `size` is the number of devices
    in a group. `pairs` are the source and target devices of a permutation. A field is None if the HLO does not state
    it.
    """

    kind: Collective | None
    size: int | None = None
    array_bytes: float | None = None
    groups: Groups | None = None
    pairs: tuple[tuple[int, int], ...] = ()

    @property
    def bus_bytes(self) -> float | None:
        """Bytes that cross the links of one device: the array times the bus factor.

        The factor is 2 (n-1)/n for all-reduce, (n-1)/n for all-gather, reduce-scatter and all-to-all, 1 for a
        permutation, as in the bus bandwidth of NVIDIA's nccl-tests (PERFORMANCE.md).
        """
        if self.kind is None or self.array_bytes is None:
            return None
        if self.kind == "collective-permute":
            return self.array_bytes
        if self.size is None:
            return None
        return (2 if self.kind == "all-reduce" else 1) * self.array_bytes * (self.size - 1) / self.size


# Every collective of each main device, the longest wait first. The asynchronous line shows when a collective is in
# flight. Without this line it is in flight from the beginning of its start half to the end of the next done half, if
# the capture has both. On a GPU and a CPU, operations run concurrently: a collective is in flight while its kernel
# runs, and waited for while no other operation runs. XLA names a GPU's kernel after the start half, and no event shows
# the done half.
FLIGHTS = f"""
    with sent as (
        select e.*, o.module, o.pair, o.half, d.platform = 'tpu' as is_tpu,
            count(*) filter (e.line = 'asynchronous') over (partition by e.device) > 0 as has_line
        from executions e join operations o using (operation) join devices d using (device)
        where d.is_main and o.class = '{COMMUNICATION}'),
    serial as (from sent where line = 'serial'),
    counted as (
        select *, count(*) filter (half = 'start') over earlier as starts,
            count(*) filter (half = 'done') over earlier as dones
        from serial where half in ('start', 'done')
        window earlier as (partition by device, module, pair order by execution)),
    -- A done half without a start in flight belongs to a start before the capture.
    unmatched as (
        select *, greatest(0, max(dones - starts) over (partition by device, module, pair order by execution)) as lost
        from counted),
    halves as (
        select *, case half when 'start' then starts else dones - lost end as nth,
            half = 'start' or lost = coalesce(lag(lost) over (partition by device, module, pair
            order by execution), 0) as is_matched
        from unmatched),
    flown as (
        select device, module, pair, seconds from sent where line = 'asynchronous' and is_tpu
        union all
        select s.device, s.module, s.pair, d.end_seconds - s.start_seconds from halves s join halves d
            on s.device = d.device and s.module = d.module and s.pair = d.pair and s.nth = d.nth
        where s.half = 'start' and d.half = 'done' and d.is_matched and s.is_tpu and not s.has_line),
    flights as (select device, module, pair, count(*) as count, sum(seconds) as seconds from flown group by all),
    -- The time in which other operations run concurrently; on a TPU no operation does.
    beside as (
        select s.execution, sum({overlap_of("s", "b")}) as seconds from serial s join busy b
            on b.device = s.device and b.of = 'own' and {meets("s", "b")} where not s.is_tpu group by 1)
    select s.device, s.module, s.pair, arg_min(operation, {{'half': case half when 'start' then 0 when '' then 1 else 2
            end, 'at': s.execution}}) as operation,
        not (is_tpu and bool_or(half = '')) as is_asynchronous,
        count(*) filter (half in ('done', '') or not is_tpu) as count,
        case when is_tpu then coalesce(any_value(f.count), count(*) filter (half = '')) else count(*) end as flights,
        case when is_tpu then coalesce(any_value(f.seconds), sum(self_seconds) filter (half = ''), 0)
            else sum(s.seconds) end as flight_seconds,
        case when is_tpu then coalesce(sum(self_seconds) filter (half in ('done', '')), 0)
            else sum(s.seconds) - coalesce(sum(b.seconds), 0) end as waited_seconds,
        case when is_tpu then coalesce(sum(self_seconds) filter (half = 'start'), 0) else 0 end as start_seconds
    from serial s left join flights f using (device, module, pair) left join beside b using (execution)
    group by s.device, s.module, s.pair, is_tpu order by s.device, waited_seconds desc, s.pair"""


def collective_of(operation: Operation, graphs: Mapping[str, Graph] | None = None) -> CollectiveFacts:
    """The collective of an operation, from its HLO text or, if it has no text, from its module."""
    graph = (graphs or {}).get(operation.module)
    instruction = _instruction(operation) or (running_instruction(graph, operation.name) if graph else None)
    words = f"{instruction.opcode if instruction else ''} {opcode(operation)} {category(operation)} {operation.name}"
    kind = next((kind for kind in COLLECTIVES if kind in words.replace("_", "-")), None)
    if instruction is None or kind is None:
        return CollectiveFacts(kind=kind)
    groups, pairs = instruction.groups, instruction.pairs
    size = groups.size if groups else None
    whole = _array_bytes(kind, instruction, size)
    return CollectiveFacts(kind=kind, size=size, array_bytes=whole, groups=groups, pairs=pairs)


def times_on_an_axis(facts: CollectiveFacts, network: Links | None) -> AxisTimes | None:
    """The least times over one axis of the torus; None if the collective or the links are unknown.

    A capture does not state the slice. If a group's size closes no axis, its axis is a line; otherwise it may be a
    ring.
    """
    if network is None or facts.kind is None or facts.array_bytes is None or facts.size is None:
        return None
    # All devices together exchange `size` times the array of one device.
    whole = facts.array_bytes * (facts.size if facts.kind == "all-to-all" else 1)
    closes = None if network.closes(facts.size) else False
    return axis_times(facts.kind, whole, facts.size, network.one_way_bytes_per_second, closes=closes)


def _instruction(operation: Operation) -> Instruction | None:
    try:
        computations = module(operation.text).computations
    except RatchetError:
        return None
    return computations[0].instructions[0]


def _array_bytes(kind: Collective, instruction: Instruction, size: int | None) -> float | None:
    """The whole array's bytes, from the operands if the text has their shapes, else from the result.

    In XLA the shape of a start half is a tuple of operand, result, and contexts without dimensions; an all-reduce is an
    exception.
    """
    result = _bytes(instruction.shape)
    shapes = [operand.shape for operand in instruction.operands]
    sizes = [_bytes(shape) for shape in shapes if shape is not None]
    operand = sum(sizes) if sizes and len(sizes) == len(shapes) else None
    has_both = instruction.opcode.endswith("-start") and kind != "all-reduce"
    if kind in ("all-reduce", "all-to-all", "collective-permute"):
        # The result of these collectives is as large as the operand.
        return operand if operand is not None else result / 2 if has_both else result
    if kind == "all-gather" and not has_both:
        return result
    if kind == "reduce-scatter" and operand is not None:
        return operand
    if size is None:
        return None
    if kind == "all-gather" and operand is not None:
        return operand * size
    # One of operand and result is the whole array, the other is 1/size of the array.
    return result * size / (size + 1) if has_both else result * size


def _bytes(shape: Shape) -> float:
    return float(sum(array.logical_bytes or 0 for array in arrays(shape) if array.dimensions))
