"""A schedule on a machine with one resource scaled (a what-if): how much this resource limits the time."""

from collections.abc import Mapping
from dataclasses import replace

from harness.advice import run_parts
from harness.dumps.llo import ModuleDump
from harness.hardware import Chip
from harness.hlo.evaluation import Values
from harness.judge.simulate.machine import Machine, machine_of
from harness.judge.simulate.module import run_module
from harness.records import Simulation
from harness.records.whatif import Answer, Factors

# The scales that are tried by default, each for one resource: twice the throughput, no latency or no cost. The clock
# comes last, because no change of a kernel has the effect of a faster clock.
SWEEP = (
    Factors(mxu=2.0),
    Factors(bandwidth=2.0),
    Factors(dma_latency=0.0),
    Factors(transfer_cost=0.0),
    Factors(clock=2.0),
)
# Added to SWEEP if the program runs on several chips.
_LINKS = Factors(link_bandwidth=2.0)


def scale_machine(machine: Machine, scale: Factors) -> Machine:
    """`machine` with its resources scaled; an equal machine if all factors are 1."""
    clock = scale.clock

    def in_cycles(cycles: float, factor: float) -> int:
        return round(cycles * factor * clock)

    links = machine.links
    if links is not None:
        faster = links.one_way_bytes_per_second * scale.link_bandwidth
        links = replace(links, one_way_bytes_per_second=faster)
    return replace(
        machine,
        links=links,
        clock_hz=machine.clock_hz * clock,
        hbm_bytes_per_cycle=machine.hbm_bytes_per_cycle * scale.bandwidth / clock,
        dma_latency_cycles=in_cycles(machine.dma_latency_cycles, scale.dma_latency),
        dma_write_latency_cycles=in_cycles(machine.dma_write_latency_cycles, scale.dma_latency),
        transfer_cycles=in_cycles(machine.transfer_cycles, scale.transfer_cost),
        matmul_rows_per_cycle=machine.matmul_rows_per_cycle * scale.mxu,
        push_cycles=max(1, round(machine.push_cycles / scale.mxu)),
        push_transposed_cycles=max(1, round(machine.push_transposed_cycles / scale.mxu)),
        push_float32_cycles=max(1, round(machine.push_float32_cycles / scale.mxu)),
        push_float32_transposed_cycles=max(1, round(machine.push_float32_transposed_cycles / scale.mxu)),
        matmul_narrow_latency_cycles=max(1, round(machine.matmul_narrow_latency_cycles / scale.mxu)),
        matmul_latency_cycles=max(1, round(machine.matmul_latency_cycles / scale.mxu)),
    )


def answers(
    dump: ModuleDump,
    chip: Chip,
    scales: tuple[Factors, ...] = SWEEP,
    *,
    deadline_seconds: float = 60.0,
    operands: Mapping[str, Values] | None = None,
) -> tuple[Simulation, tuple[Answer, ...]]:
    """The run on the real machine, and one answer for each scale, in the order of `scales`.

    A scale has no answer if its run, or the run on the real machine, has no latency. SWEEP scales the links, too, if
    the program runs on several chips. All runs use the schedule that was compiled for the real chip. So an edit that
    reduces the use of a resource by the same factor gains at most as much as the answer shows. `operands` are the
    contents of arguments by name.
    """
    real = run_module(dump, chip, deadline_seconds=deadline_seconds, operands=operands)
    if scales == SWEEP and real.chips > 1:
        scales = (*SWEEP, _LINKS)
    scaled_answers = []
    for scale in scales:
        machine = scale_machine(machine_of(chip), scale)
        run = run_module(
            dump, chip, machine=machine, deadline_seconds=deadline_seconds, operands=operands, with_lines=False
        )
        whole, whole_scaled = real.mean_seconds, run.mean_seconds
        if whole is not None and whole_scaled is not None:
            parts = _ratios(real, run)
            scaled_answers.append(
                Answer(scale=scale, seconds=whole_scaled, time_ratio=whole_scaled / whole, parts=parts)
            )
    return real, tuple(scaled_answers)


def _ratios(real: Simulation, scaled: Simulation) -> tuple[tuple[str, float], ...]:
    """The time of each part of the `scaled` run, divided by the time of the same part of the `real` run."""
    times = {op.name: op.seconds for op in scaled.ops}
    times |= {part.name: part.seconds for part in run_parts.timing_inputs(scaled)}
    parts = (*run_parts.timing_inputs(real), *run_parts.operations(real))
    return tuple((part.name, times[part.name] / part.seconds) for part in parts if part.name in times)
