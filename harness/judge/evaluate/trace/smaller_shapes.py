"""Chooses the smaller shapes for which a kernel is traced, and decides if the full shape is interpreted too.

`_INTERPRETED_STEPS` is the number of grid steps above which the full shape is usually not interpreted.
"""

import math
from collections.abc import Callable
from typing import Any

from harness.judge.evaluate.trace import contract, jaxprs, same_program
from harness.judge.evaluate.trace.traced import TracedKernel, traced_program
from harness.operators.wrong_parts import its_shape
from harness.records import PallasCall, Statement, Window
from harness.sandbox.messages import Rejected

# Operations that order memory accesses independently of the order of grid steps.
_BY_HAND = frozenset(("dma_start", "dma_wait", "semaphore_signal", "semaphore_wait", "semaphore_read"))
# A step in TPU interpret mode takes 1.5 ms in addition to its arithmetic, so this many steps take three seconds. A
# larger grid is interpreted only if its steps may behave differently from the steps at a reduced shape.
_INTERPRETED_STEPS = 2048
# A loop that copies walks an inner grid, such as that of `pltpu.emit_pipeline`. The axes of this grid are unknown. With
# two steps along each of three axes, it has this number of steps.
_LOOP_STEPS = 8


def choose_reduced(function: Callable[..., Any], full: TracedKernel) -> tuple[int | None, TracedKernel, str]:
    """The reduced shape to check: its position, its trace, and "" (or the reason why there is none).

    A reduced shape is suitable if each grid axis with several steps at `full` also has several steps at the reduced
    shape, and if the blocks divide the arrays. Of the suitable shapes, the first for which `_repeats_loops` is true is
    chosen, otherwise the first. Shapes that are too small for the full shape's blocks are tried last, because they suit
    only kernels that choose blocks by the shape. If no shape is suitable, the position is None, and the trace is that
    of the full shape.
    """
    shapes = sorted(
        enumerate(full.problem.reduced()),
        key=lambda numbered_problem: not _has_room(numbered_problem[1].statement(), full),
    )
    why = "the problem has none"
    full_statement = full.problem.statement()
    first: tuple[int, TracedKernel, str] | None = None
    for position, problem in shapes:
        last_try = f"the last one tried is {its_shape(problem.statement(), full_statement)}"
        why = f"{last_try}: the blocks do not divide it, or an axis has only one step"
        try:
            with contract.CandidateCode("contract", "trace-error", "tracing kernel_fn"):
                small = traced_program(function, problem, full.chip)
        except Rejected as refused:
            why = f"{last_try}: {refused.failure.message}"
            continue
        if _is_like(small.calls, full.calls):
            if _repeats_loops(small, full):
                return position, small, ""
            first = first or (position, small, "")
    return first or (None, full, why)


def at_full(full: TracedKernel, *small: TracedKernel) -> tuple[str, bool, tuple[str, ...]]:
    """A difference of `full` from a `small` program beyond sizes, or ""; True if `full` must be interpreted; warnings.

    An interpretation at a small shape does not cover steps that only the full grid has (a kernel may branch on a number
    that only a late step reaches), or a program that kernel.py makes only for the full shape. The CPU reference program
    runs these steps, but finds no races, because it runs one step after the other. So if races are possible
    (`_may_race`), all steps are interpreted, whatever their number.
    """
    # Over a mesh every check interprets the program.
    if full.chip.mesh or any(program is full for program in small):
        return "", False, ()
    differences = (same_program.difference(program.closed, full.closed) for program in small)
    difference = next(filter(None, differences), "")
    steps = sum(call.steps for call in full.calls)
    # On a GPU no step of a grid depends on another step, so late steps behave like early steps.
    if difference or (full.chip.platform == "tpu" and (steps <= _INTERPRETED_STEPS or _may_race(full))):
        return difference, True, ()
    if full.chip.platform != "tpu":
        return "", False, ()
    return (
        "",
        False,
        (
            f"interpreted at a reduced shape only, because the full grid has {steps:,} steps (at most "
            f"{_INTERPRETED_STEPS:,} are interpreted) and cannot race: the kernel copies nothing by hand, one core "
            "runs all steps, and each output block is visited once. Values are checked at the full shape",
        ),
    )


def _may_race(traced: TracedKernel) -> bool:
    """True if the time at which a step reads and writes memory may matter.

    It may matter in each of these cases:

    - The chip has several cores.
    - The kernel copies by hand.
    - An output is aliased to an input.
    - An output block may be visited again after another block. Its contents are then in HBM, not in the buffer that the
      step writes.
    - A step computes the indices to which it writes, so a late step may write beyond an array and over other arrays.
    """
    if traced.chip.cores > 1:
        return True
    for equation, call in zip(jaxprs.pallas_calls(traced.closed.jaxpr), traced.calls, strict=True):
        kernel = equation.params["jaxpr"]
        is_by_hand = any(each.primitive.name in _BY_HAND for each in jaxprs.equations(kernel))
        outputs = (window for window in call.windows if window.role == "output")
        is_free = is_by_hand or jaxprs.writes_at_computed_places(kernel)
        if is_free or equation.params["input_output_aliases"] or any(map(_may_be_revisited, outputs)):
            return True
    return False


def _may_be_revisited(window: Window) -> bool:
    # A kernel that never visits a block fails the check of the values. So if there are as many visits as blocks, each
    # block is visited exactly once.
    blocks = (-(-extent // size) for extent, size in zip(window.array.shape, window.block_shape, strict=True))
    return window.fetches is None or window.fetches > math.prod(blocks)


def _has_room(small: Statement, full: TracedKernel) -> bool:
    """True if the full shape's blocks divide the small arrays, into at least two blocks along axes with several blocks.

    Considers only operands of kernels with the names and shapes of the problem's arrays.
    """
    whole, part = (
        {array.name: array.shape for array in (*statement.inputs, *statement.outputs)}
        for statement in (full.problem.statement(), small)
    )
    for window in (window for call in full.calls for window in call.windows):
        if whole.get(window.name) != window.array.shape:
            continue
        for large, little, block in zip(window.array.shape, part[window.name], window.block_shape, strict=True):
            if block and (little % block or little < min(2 * block, large)):
                return False
    return True


def second(
    function: Callable[..., Any], full: TracedKernel, reduced: TracedKernel, why: str
) -> tuple[TracedKernel | None, tuple[str, ...]]:
    """The trace for the second shape, or None; and a warning if no smaller shape, or no second shape, can be checked.

    `why` is the reason if there is no reduced shape.
    """
    if reduced is full:
        return None, (
            "no smaller shape is checked, so bugs that show only at other shapes may be missed; the stage `reduced "
            f"shapes` uses the contest's own shape. No smaller shape fits: {why}. To get one, take lengths from the "
            "arguments of kernel_fn, use smaller blocks, or state a larger problem in prepare.py",
        )
    problem = None if full.chip.mesh else full.problem.second_shape(reduced.problem)
    if problem is None:
        return None, ()
    title = problem.statement().title
    try:
        with contract.CandidateCode("contract", "trace-error", "tracing kernel_fn"):
            traced = traced_program(function, problem, full.chip)
    except Rejected as refused:
        return None, (f"a second shape ({title}) is not checked: {refused.failure.message}",)
    if not _is_like(traced.calls, full.calls):
        return None, (f"a second shape ({title}) is not checked: blocks do not divide it",)
    return traced, ()


def _is_like(small: tuple[PallasCall, ...], full: tuple[PallasCall, ...]) -> bool:
    if [len(call.grid) for call in small] != [len(call.grid) for call in full]:
        return False
    for little, large in zip(small, full, strict=True):
        if any(few < 2 <= many for few, many in zip(little.grid, large.grid, strict=True)):
            return False
        for window in little.windows:
            blocks = zip(window.array.shape, window.block_shape, strict=True)
            if any(extent % block for extent, block in blocks if block):
                return False
    return True


def _repeats_loops(small: TracedKernel, full: TracedKernel) -> bool:
    """True if each loop that copies has at least `_LOOP_STEPS` steps at the small shape, or as many as at the full."""
    wanted, repeated = _loops(full), _loops(small)
    if not any(copies for _, copies in wanted):
        return True
    return len(wanted) == len(repeated) and all(
        little >= min(large, _LOOP_STEPS)
        for (large, copies), (little, _) in zip(wanted, repeated, strict=True)
        if copies
    )


def _loops(traced: TracedKernel) -> list[tuple[int, bool]]:
    """For each loop of the kernels with a fixed number of steps: this number, and True if the loop starts copies."""
    return [
        (
            loop.params["length"],
            any(each.primitive.name == "dma_start" for part in jaxprs.inner(loop) for each in jaxprs.equations(part)),
        )
        for call in jaxprs.pallas_calls(traced.closed.jaxpr)
        for loop in jaxprs.equations(call.params["jaxpr"])
        if loop.primitive.name == "scan"
    ]
