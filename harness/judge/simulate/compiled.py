"""A schedule's program, ready to run: the function compiled from the schedule, and facts for the function's caller."""

from collections.abc import Callable, Generator, Mapping
from dataclasses import dataclass, field
from itertools import chain

from harness.dumps.llo import Op
from harness.judge.simulate.accesses import Touch
from harness.judge.simulate.functional_units import Pipes, Stretch, Use, uses_of
from harness.judge.simulate.machine import Machine
from harness.judge.simulate.scalar_memory import Memory
from harness.judge.simulate.values import Unknown

# A running program. At a barrier the program yields its clock and receives the clock of the core that arrives last.
Steps = Generator[int, int, int]
# Calls an HLO op: the parameters are its index in `Program.calls`, its arguments, and the clock.
Call = Callable[[int, "tuple[int | Unknown, ...]", int], Steps]
Run = Callable[[Memory, Pipes, Callable[[int], None], int, Call], Steps]


@dataclass(frozen=True, slots=True, kw_only=True)
class Program:
    """A compiled schedule: `run(memory, pipes, tick, clock, call)` executes it from `clock` on.

    `run` is a generator (see Steps) that returns the clock at its end, or raises Unknowable if the end is not known.
    `pipes` counts the runs of each stretch. `run` calls `tick(clock)` before every block; blocks begin where branches
    take effect and at their targets.

    - `kinds`: one operation of each kind that uses units.
    - `operands`: memory space and address of each operand, by the operand's index.
    - `outputs`: the indices of the operands that the op writes.
    - `calls`: the `inlined_call` operations.
    - `touches`: the accesses to VMEM, by the number that the program passes to `memory.under_way`.
    - `for_first_core`: True if no other core runs the program.
    - `identity`: in programs of several chips, the addresses of the words in scalar memory that identify the chip and
      the core, by the words' meanings.

    The only constant of the machine that affects a program is the number of branch slots.
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
        """A new cache of stalls for this machine's units, which all runs of the program can share."""
        uses = [uses_of(op, machine) for op in self.kinds]
        # Few bundles of a program differ in their uses of units.
        together: dict[tuple[int, ...], tuple[Use, ...]] = {}
        for users in {users for stretch in self.stretches for _, users in stretch.users}:
            together[users] = tuple(chain.from_iterable(uses[user] for user in users))
        return Pipes(
            (stretch.last - stretch.first, tuple((offset, together[users]) for offset, users in stretch.users))
            for stretch in self.stretches
        )
