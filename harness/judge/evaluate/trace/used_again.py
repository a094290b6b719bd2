"""Refuses programs that reuse semaphores to which other chips signal, or memory to which other chips send.

No interpreted run shows the reuse, because JAX's interpreter gives each kernel and each scope of `run_scoped` new
semaphores and memory, and each window one buffer. On a TPU:

- the next kernel with the same `collective_id`, and the next call of the same kernel, have the same barrier semaphore;
- the next scope has the same addresses;
- a window alternates between two buffers.

So the signal of a chip that is ahead can end the wrong wait of a neighbour, and its transfer can overwrite memory that
the neighbour still reads.
"""

from collections.abc import Iterator
from math import prod
from typing import Any

from jax.extend.core import Var

from harness.judge.evaluate.trace import jaxprs

_LOOPS = ("scan", "while")
# The operands of a copy in JAX 0.10.2 and 0.12.0: source, target, the semaphore at the target, the semaphore at the
# sender, and the device.
_OPERANDS_OF_A_COPY, _TARGETS_OF_A_COPY = 5, (1, 2)


def refuse_use_again(jaxpr: jaxprs.Jaxpr) -> None:
    """Raises Rejected `sharded` if the program reuses a semaphore or memory to which other chips signal or send."""
    numbers: set[int] = set()
    repeated = jaxprs.calls_within_loops(jaxpr)
    for call in jaxprs.pallas_calls(jaxpr):
        number = getattr(call.params["compiler_params"], "collective_id", None)
        if number is not None:
            if number in numbers or any(call is other for other in repeated):
                message = (
                    f"expected a different collective_id for each kernel call, got {number} again: the calls would "
                    "share one barrier semaphore, and a neighbour's signal for the second call could end the wait of "
                    "the first; choose another number, and make no such call in a loop"
                )
                raise jaxprs.refusal(call, "sharded", message)
            numbers.add(number)
        _refuse_late_barriers(call)
        scopes = list(_scopes_sent_to(call.params["jaxpr"]))
        grid = call.params["grid_mapping"].grid
        is_repeated = not all(isinstance(size, int) for size in grid) or prod(grid) > 1
        if scopes and (len(scopes) > 1 or is_repeated or scopes[0][1]):
            message = (
                "expected other chips to send to memory and semaphores of scratch_shapes, got memory or semaphores of "
                "run_scoped: the next scope reuses them, so a neighbour that is ahead overwrites data that this chip "
                "still reads; use scratch_shapes"
            )
            raise jaxprs.refusal(scopes[0][0], "sharded", message)
        if is_repeated and _windows(call) & _sent_to(call.params["jaxpr"]):
            message = (
                "expected other chips to send to scratch_shapes or to memory in HBM, got copies to a block of an input "
                "or output: a block has two buffers, which the grid uses in turn, and chips at different steps use "
                "different buffers; use scratch_shapes"
            )
            raise jaxprs.refusal(call, "sharded", message)


def _refuse_late_barriers(call: jaxprs.Equation) -> None:
    """Raises Rejected `sharded` if the kernel waits for its barrier semaphore after a copy to another chip."""
    late = next(_Order().late_waits(call.params["jaxpr"], frozenset()), None)
    if late is not None:
        message = (
            "expected all waits for the barrier semaphore before the kernel's first copy to another chip, got a wait "
            "after it: a neighbour that has begun the next call signals the same semaphore, which ends this wait too "
            "early; after the barrier, use a semaphore of scratch_shapes"
        )
        raise jaxprs.refusal(late, "sharded", message)


class _Order:
    """A walk through a kernel in the order of its operations; loops are walked twice."""

    def __init__(self) -> None:
        self.has_sent = False

    def late_waits(self, jaxpr: jaxprs.Jaxpr, barriers: frozenset[Any]) -> Iterator[jaxprs.Equation]:
        """The waits for a barrier semaphore that come after a copy to another chip.

        `barriers` are the barrier semaphores of the surrounding program.
        """
        for equation in jaxpr.eqns:
            name = equation.primitive.name
            if name == "get_barrier_semaphore":
                barriers |= {*equation.outvars}
            elif name == "semaphore_wait":
                if self.has_sent and _reference(jaxprs.operands_of(equation)[0]) in barriers:
                    yield equation
            elif name == "dma_start" and jaxprs.operands_of(equation)[-1] is not None:
                self.has_sent = True
            for part in jaxprs.inner(equation) * (2 if name in _LOOPS else 1):
                outer = jaxprs.outer_operands(equation, part)
                same = {ref for ref, operand in outer.items() if isinstance(operand, Var) and operand in barriers}
                yield from self.late_waits(part, frozenset(same))


def _windows(call: jaxprs.Equation) -> set[Any]:
    """The kernel's references to blocks of its inputs and outputs."""
    mapping, parameters = call.params["grid_mapping"], call.params["jaxpr"].invars
    blocks = zip(parameters[mapping.slice_block_ops], mapping.block_mappings, strict=True)
    return {reference for reference, block in blocks if not jaxprs.is_in_hbm(block)}


def _scopes_sent_to(jaxpr: jaxprs.Jaxpr, *, is_within_loop: bool = False) -> Iterator[tuple[jaxprs.Equation, bool]]:
    """The scopes with memory or semaphores to which other chips send, each with True if the scope is in a loop."""
    for equation in jaxpr.eqns:
        if equation.primitive.name == "run_scoped":
            scope = equation.params["jaxpr"]
            if _sent_to(scope) & {*scope.invars}:
                yield equation, is_within_loop
        for part in jaxprs.inner(equation):
            yield from _scopes_sent_to(part, is_within_loop=is_within_loop or equation.primitive.name in _LOOPS)


def _sent_to(jaxpr: jaxprs.Jaxpr) -> set[Any]:
    """The references to memory or semaphores of another chip in the program's copies and signals."""
    targets: set[Any] = set()
    for equation in jaxpr.eqns:
        name = equation.primitive.name
        if name in ("dma_start", "semaphore_signal"):
            operands = jaxprs.operands_of(equation)
            device = operands[-1 if name == "dma_start" else -2]
            if device is None:
                continue
            if name == "semaphore_signal":
                targets.add(_reference(operands[0]))
            elif len(operands) == _OPERANDS_OF_A_COPY:
                targets |= {_reference(operands[place]) for place in _TARGETS_OF_A_COPY}
            else:
                targets |= {operand for operand in equation.invars if isinstance(operand, Var)}
        for part in jaxprs.inner(equation):
            outer = jaxprs.outer_operands(equation, part)
            targets |= {outer[ref] for ref in _sent_to(part) if ref in outer}
    return targets


def _reference(operand: Any) -> Any:
    """The whole reference that `operand` is a part of."""
    while hasattr(operand, "ref"):
        operand = operand.ref
    return operand
