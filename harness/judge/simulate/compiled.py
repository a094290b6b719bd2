"""A schedule's program, ready to run: the function that the schedule was compiled to, and facts for its caller."""

from collections.abc import Callable, Generator, Mapping
from dataclasses import dataclass, field
from itertools import chain

from harness.dumps.llo import Op
from harness.judge.simulate.accesses import Touch
from harness.judge.simulate.functional_units import Pipes, Stretch, Use, uses_of
from harness.judge.simulate.machine import Machine
from harness.judge.simulate.scalar_memory import Memory
from harness.judge.simulate.values import Unknown

# A running program: at a barrier it yields its clock, and is sent the clock of the last core to arrive.
Steps = Generator[int, int, int]
# Calls an HLO op by its place in `Program.calls` with its arguments at a clock.
Call = Callable[[int, "tuple[int | Unknown, ...]", int], Steps]
Run = Callable[[Memory, Pipes, Callable[[int], None], int, Call], Steps]


@dataclass(frozen=True, slots=True, kw_only=True)
class Program:
    """`run(memory, pipes, tick, clock, call)` executes it from `clock` on: a generator (see Steps)
    that returns the clock at its end and raises Unknowable.

    `pipes` counts how often each stretch runs; `tick(clock)` is called at every jump. `touches` are its accesses to
    VMEM by the number that it hands to `memory.under_way`. In programs of several chips, `identity` has the addresses
    in scalar memory of the words that identify the chip and the core, by their meanings. `kinds` are one operation of
    each kind that uses units, `calls` the `inlined_call` operations, `operands` memory space and address by operand,
    `outputs` the operands that the op writes. `for_first_core`: no other core runs it. Only the machine's number of
    branch slots affects a program.
    """

    stretches: tuple[Stretch, ...]
    kinds: tuple[Op, ...]
    names: dict[int, str]
    operands: dict[int, tuple[str, int]]
    outputs: frozenset[int]
    calls: tuple[Op, ...]
    run: Run
    text: str
    touches: tuple[Touch, ...] = ()
    for_first_core: bool = False
    identity: Mapping[str, int] = field(default_factory=dict)

    def pipes(self, machine: Machine) -> Pipes:
        """Fresh units of this machine; what they remember serves all runs of the program."""
        uses = [uses_of(op, machine) for op in self.kinds]
        # A program has few different bundles, as far as units can tell.
        together: dict[tuple[int, ...], tuple[Use, ...]] = {}
        for users in {users for stretch in self.stretches for _, users in stretch.users}:
            together[users] = tuple(chain.from_iterable(uses[user] for user in users))
        return Pipes(
            (stretch.last - stretch.first, tuple((offset, together[users]) for offset, users in stretch.users))
            for stretch in self.stretches
        )
