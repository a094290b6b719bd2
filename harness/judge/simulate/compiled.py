"""A schedule's program, ready to run: the function that a schedule was compiled to, and what it is called with."""

from collections.abc import Callable, Generator
from dataclasses import dataclass

from harness.dumps.llo import Op
from harness.judge.simulate.dma import Memory
from harness.judge.simulate.functional_units import Pipes, Stretch
from harness.judge.simulate.values import Unknown

# What a running program hands out: at a barrier its clock, which comes back as the clock of the last core to arrive.
Steps = Generator[int, int, int]
# Calls an HLO op by its place in `Program.calls` with its arguments at a clock.
Call = Callable[[int, "tuple[int | Unknown, ...]", int], Steps]
Run = Callable[[Memory, Pipes, Callable[[int], None], int, Call], Steps]


@dataclass(frozen=True, slots=True, kw_only=True)
class Program:
    """`run(memory, pipes, tick, clock, call)` executes it from `clock` on: a generator (see Steps)
    that returns the clock at its end and raises Unknowable.

    `pipes` counts how often each stretch runs; `tick(clock)` is called at every jump. `calls` are
    the `inlined_call` operations, `operands` memory space and address by operand, `outputs` those
    of them that the op writes.
    """

    stretches: tuple[Stretch, ...]
    names: dict[int, str]
    operands: dict[int, tuple[str, int]]
    outputs: frozenset[int]
    calls: tuple[Op, ...]
    run: Run
    text: str

    def pipes(self) -> Pipes:
        """Fresh units; what they remember serves all runs of the program."""
        return Pipes((stretch.last - stretch.first, stretch.uses) for stretch in self.stretches)
