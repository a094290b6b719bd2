"""Evidence for the rules of the diagnosis: saved from real runs, or built with what a rule looks at changed.

The files in fixtures/evidence are what `ratchet.sh judge --json` printed about variants of the root contest's
kernel.py (jax 0.10.2, libtpu 0.0.42.1), without timings of the machine.
"""

from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
from evidence_examples import KEY, evidence, table_row, window
from narrowing import present

from harness.records import (
    Array,
    CycleBreakdown,
    Evidence,
    LineTime,
    OpTime,
    PallasCall,
    Part,
    PartKind,
    Row,
    Scratch,
    Statement,
    Window,
    Work,
)

_KERNEL = OpTime(name="naive.1", bundles=600, executed_bundles=1, cycles=1.0, seconds=0.7e-3)
SAVED = Path(__file__).parents[1] / "fixtures" / "evidence"


def saved(name: str) -> Evidence:
    """The recorded evidence of a real kernel."""
    return msgspec.json.decode((SAVED / f"{name}.json").read_bytes(), type=Evidence)


def good(seconds: float = 0.80e-3, **changes: Any) -> Evidence:
    """A kernel near the roofline of v5e, whose floor is 0.70 ms."""
    return evidence(seconds, bq=2048, bkv=512, **changes)


def with_call(base: Evidence, **changes: Any) -> Evidence:
    trace = present(base.trace)
    return replace(base, trace=replace(trace, pallas_calls=(replace(trace.pallas_calls[0], **changes),)))


def with_window(base: Evidence, place: int, **changes: Any) -> Evidence:
    windows = list(present(base.trace).pallas_calls[0].windows)
    windows[place] = replace(windows[place], **changes)
    return with_call(base, windows=tuple(windows))


def with_run(base: Evidence, **changes: Any) -> Evidence:
    return replace(base, simulation=replace(present(base.simulation), **changes))


def with_parts(base: Evidence, *parts: tuple[PartKind, str, float], steps: int | None = None) -> Evidence:
    """The run taken apart into these shares; the rest is issuing."""
    cycles = present(present(base.simulation).cycles)
    rest = 1 - sum(share for _, _, share in parts)
    shares = (*parts, ("issuing", "", rest))
    breakdown = CycleBreakdown(
        parts=tuple(Part(kind=kind, name=name, cycles=share * cycles) for kind, name, share in shares),
        lines=(LineTime(file="", line=0, issue_cycles=cycles, stall_cycles=0.0, wait_cycles=0.0),),
        steps=steps,
        spilled_bytes=0,
        filled_bytes=0,
        spill_cycles=0.0,
    )
    return with_run(base, breakdown=breakdown)


def with_slots(base: Evidence, **used: float) -> Evidence:
    """The run with these shares of the units' issue slots."""
    units = tuple(
        replace(unit, executed_slots=round(used[unit.name] * unit.offered_slots)) if unit.name in used else unit
        for unit in present(base.simulation).units
    )
    return with_run(base, units=units)


def one_pass(base: Evidence, *lines: str) -> Evidence:
    """A kernel whose products in these lines have float32 operands at the default precision."""
    return replace(base, trace=replace(present(base.trace), one_pass_lines=lines))


def with_counts(base: Evidence, **counts: Any) -> Evidence:
    return replace(base, mosaic=replace(present(base.mosaic), **counts))


def with_exponentials(traced: float, operations: float, base: Evidence) -> Evidence:
    """The kernel of a problem that needs 2^28 exponentials, with these multiples of them in its trace and in its run.

    An operation of the run counts as 2048, two bfloat16 in each word of a register.
    """
    needed = 2**28
    units = tuple(
        replace(unit, executed_slots=round(operations * needed) // 2048) if unit.name == "EUP" else unit
        for unit in present(base.simulation).units
    )
    work = replace(base.problem.work, exponentials=needed)
    return replace(
        with_run(base, units=units),
        problem=replace(base.problem, work=work),
        trace=replace(present(base.trace), exponentials=round(traced * needed)),
    )


def on_chip(name: str, base: Evidence) -> Evidence:
    return replace(base, chip=name, simulation=replace(present(base.simulation), chip=name))


def earlier(number: int = 3, **changes: Any) -> Row:
    return replace(table_row(number, seconds=0.7e-3, spills=0, key=KEY), **changes)


def of_windows(
    seconds: float, problem: Statement, grid: tuple[int, ...], semantics: tuple[str, ...], *windows: Window
) -> Evidence:
    """A kernel of the problem that moves these windows and has no scratch memory."""
    call = PallasCall(
        name=problem.operation,
        grid=grid,
        dimension_semantics=semantics,
        windows=windows,
        scratch=(),
        vmem_limit_bytes=None,
    )
    base = evidence(seconds, problem=problem)
    return replace(
        base, trace=replace(present(base.trace), pallas_calls=(call,), pallas_flops=problem.work.flops), mosaic=None
    )


def rowwise(
    seconds: float, *, rows: int = 8192, columns: int = 4096, block: int = 256, reads: int = 1, flops: int = 5
) -> Evidence:
    """An operator on the rows of x [rows, columns] bfloat16 with weights w [1, columns]: no attention, memory-bound."""
    x = Array(name="x", shape=(rows, columns), dtype="bfloat16")
    w = Array(name="w", shape=(1, columns), dtype="bfloat16")
    least = 2 * rows * columns * 2 + columns * 2
    problem = Statement(
        operation="rmsnorm",
        title="rmsnorm",
        parameters=(("rows", rows), ("columns", columns)),
        inputs=(x, w),
        outputs=(replace(x, name="o"),),
        work=Work(matmul_flops=0, vector_flops=flops * rows * columns, minimum_hbm_bytes=least),
    )
    steps = rows // block

    windows = (
        window(x, "input", (block, columns), reads * steps),
        window(w, "input", (1, columns), 1),
        window(replace(x, name="o"), "output", (block, columns), steps),
    )
    if reads == 1:
        return of_windows(seconds, problem, (steps,), ("parallel",), *windows)
    return of_windows(seconds, problem, (reads, steps), ("parallel", "arbitrary"), *windows)


def outer_product(outer: int, inner: int, *, swapped: bool = False) -> Evidence:
    """A matmul with whole contractions, independent steps outer x inner: a is read once, b once per outer step."""
    a = Array(name="a", shape=(outer * 128, 512), dtype="bfloat16")
    b = Array(name="b", shape=(512, inner * 1024), dtype="bfloat16")
    o = Array(name="o", shape=(outer * 128, inner * 1024), dtype="bfloat16")
    size_a, size_b, size_o = 128 * 512 * 2, 512 * 1024 * 2, 128 * 1024 * 2

    work = Work(
        matmul_flops=2 * a.shape[0] * b.shape[1] * 512,
        vector_flops=0,
        minimum_hbm_bytes=outer * size_a + inner * size_b + outer * inner * size_o,
    )
    problem = Statement(operation="matmul", title="matmul", parameters=(), inputs=(a, b), outputs=(o,), work=work)
    fetches = (outer * inner, inner) if swapped else (outer, outer * inner)
    windows = (
        window(a, "input", (128, 512), fetches[0]),
        window(b, "input", (512, 1024), fetches[1]),
        window(o, "output", (128, 1024), outer * inner),
    )
    grid = (inner, outer) if swapped else (outer, inner)
    return of_windows(2e-3, problem, grid, ("parallel", "parallel"), *windows)


def column_scratch(base: Evidence) -> Evidence:
    column = Scratch(shape=(2048, 1), dtype="float32", memory_space="vmem", vmem_bytes=1 << 20)
    return with_call(base, scratch=(column, column, replace(column, shape=(2048, 128))))


def copied(base: Evidence) -> Evidence:
    """A copy of 0.1 ms beside the kernel."""
    copy = replace(_KERNEL, name="copy.9", seconds=0.1e-3)
    return replace(with_run(base, ops=(_KERNEL, copy)), hlo=replace(present(base.hlo), copy=1))


def reshaped(base: Evidence) -> Evidence:
    """A reshape beside the kernel, which is no copy and no transpose."""
    return with_run(base, ops=(_KERNEL, replace(_KERNEL, name="reshape.0", seconds=0.1e-3)))


def covering(factor: float, base: Evidence) -> Evidence:
    """A grid whose trace shows `factor` times the useful work; units are as busy as their issue slots say."""
    units = tuple(replace(unit, busy_cycles=None) for unit in present(base.simulation).units)
    flops = round(factor * base.problem.work.flops)
    return replace(with_run(base, units=units), trace=replace(present(base.trace), pallas_flops=flops))


def with_lines(base: Evidence, *lines: tuple[int, float, dict[str, int]]) -> Evidence:
    """The run taken apart into these lines of kernel.py: number, share of the cycles, operations; no waits."""
    with_breakdown = with_parts(base)
    simulation = present(with_breakdown.simulation)
    cycles = simulation.cycles or 0.0
    times = tuple(
        LineTime(
            file="kernel.py",
            line=number,
            issue_cycles=share * cycles,
            stall_cycles=0.0,
            wait_cycles=0.0,
            operations=tuple(operations.items()),
        )
        for number, share, operations in lines
    )
    units = tuple(replace(unit, busy_cycles=None) for unit in simulation.units)
    return with_run(with_breakdown, units=units, breakdown=replace(present(simulation.breakdown), lines=times))


def copied_by_hand(seconds: float, *, waiting: float) -> Evidence:
    """Rows of x that one step copies by hand, and waits for during a share of the cycles."""
    return with_window(with_parts(rowwise(seconds, block=8192), ("operand wait", "x", waiting)), 0, fetches=None)


def spilling(seconds: float, number: int) -> Evidence:
    return with_run(evidence(seconds, bq=2048, bkv=512), executed_spills=number, executed_fills=number)


def with_table(base: Evidence) -> Evidence:
    """A table of integers before all other inputs of the call."""
    windows = present(base.trace).pallas_calls[0].windows
    table = replace(windows[0], name="first", array=Array(name="first", shape=(8,), dtype="int32"), block_shape=(8,))
    return with_call(base, windows=(table, *windows))


def twice(base: Evidence) -> Evidence:
    """The same Pallas call a second time."""
    trace = present(base.trace)
    return replace(base, trace=replace(trace, pallas_calls=trace.pallas_calls * 2))
