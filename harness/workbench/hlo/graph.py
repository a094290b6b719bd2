"""The graph of a module: operands, users, and the number of runs of each computation."""

import graphlib
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeVar

from harness.errors import RatchetError
from harness.hlo.module import CallRole, Computation, Instruction, Module
from harness.hlo.shapes import Shape, Tuple

_Made = TypeVar("_Made")
# A number of runs that no computation of a real program reaches.
_MOST_RUNS = 1 << 62

# Opcodes that only rename a value; they neither compute nor move anything.
RENAMES = ("bitcast", "get-tuple-element", "tuple", "opt-barrier", "optimization-barrier", "add-dependency")
_COPIES = ("copy", "bitcast", "copy-done", "copy-start")
# Opcodes of instructions without a cost. `while`, `conditional` and `call` cost what their computations cost.
FREE = (*RENAMES, "parameter", "constant", "after-all", "partition-id", "replica-id", "while", "conditional", "call")


@dataclass(slots=True)
class Graph:
    """A module with its links between instructions and computations. Raises RatchetError `bad-hlo` for a cycle.

    - `times`: the number of runs of the module.
    - `runs`: the number of runs of each computation in all runs of the module; None if a trip count is unknown.
      Computations inside fusions and reductions are left out, because they run as a part of their instruction.
    - `parents`: the instruction that calls a computation.
    - `loops`: the `while` that has a computation as its body or condition.
    - `home`: the computation that contains an instruction of the module.
    """

    module: Module
    instructions: dict[tuple[str, str], Instruction] = field(default_factory=dict)
    users: dict[tuple[str, str], list[Instruction]] = field(default_factory=dict)
    runs: dict[str, int | None] = field(default_factory=dict)
    trips: dict[tuple[str, str], int | None] = field(default_factory=dict)
    parents: dict[str, Instruction] = field(default_factory=dict)
    loops: dict[str, Instruction] = field(default_factory=dict)
    times: int = 1
    # By identity: two computations may have equal instructions.
    _homes: dict[int, Computation] = field(default_factory=dict)
    _callees_first: tuple[Computation, ...] = ()
    _made: dict[str, dict[str, Any]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for computation in self.module.computations:
            for instruction in computation.instructions:
                self._homes[id(instruction)] = computation
                self.instructions[computation.name, instruction.name] = instruction
                for name in instruction.computations("calls"):
                    self.parents[name] = instruction
                for name in instruction.computations("body", "condition") if instruction.opcode == "while" else ():
                    self.loops.setdefault(name, instruction)
                for operand in instruction.operands:
                    self.users.setdefault((computation.name, operand.name), []).append(instruction)
        self._refuse_circles()
        entry = self.module.entry
        if entry is not None:
            self.runs[entry.name] = self.times
            for computation in reversed(self._callees_first):
                if computation.name in self.runs:
                    self._count(computation, self.runs[computation.name])

    def of_each(self, what: str, make: Callable[[Computation, Mapping[str, _Made]], _Made]) -> Mapping[str, _Made]:
        """The results of `make` for all computations, by name; computed only once for each `what`.

        `make` also gets the results of the computations that a computation calls, so it need not follow calls itself.
        """
        if what not in self._made:
            results: dict[str, _Made] = {}
            for computation in self._callees_first:
                results[computation.name] = make(computation, results)
            self._made[what] = results
        return self._made[what]

    def executions(self) -> list[tuple[Instruction, int | None]]:
        """The instructions that run by themselves, with their numbers of runs."""
        return [
            (instruction, count)
            for name, count in self.runs.items()
            for instruction in self.module.by_name[name].instructions
        ]

    def home(self, instruction: Instruction) -> Computation:
        """The computation that contains `instruction`, which must be an instruction of the module."""
        return self._homes[id(instruction)]

    def runs_of(self, computation: Computation) -> int | None:
        """The number of runs of a computation, even inside a fusion; 0 if nothing runs it."""
        name = computation.name
        while name not in self.runs and name in self.parents:
            name = self.home(self.parents[name]).name
        return self.runs.get(name, 0)

    def operand(self, instruction: Instruction, place: int) -> Instruction | None:
        """The instruction that makes an operand; None if the text lacks it."""
        if place >= len(instruction.operands):
            return None
        return self.instructions.get((self.home(instruction).name, instruction.operands[place].name))

    def operand_shape(self, instruction: Instruction, place: int) -> Shape | None:
        """The shape of an operand: the shape stated with it, else the shape of its maker; None if neither is known."""
        if place >= len(instruction.operands):
            return None
        repeated = instruction.operands[place].shape
        if repeated is not None:
            return repeated
        behind = self.operand(instruction, place)
        return behind.shape if behind is not None else None

    def operand_shapes(self, instruction: Instruction) -> list[Shape | None]:
        """The shapes of all operands."""
        return [self.operand_shape(instruction, place) for place in range(len(instruction.operands))]

    def source(self, instruction: Instruction, place: int, through: Collection[str]) -> Instruction | None:
        """The instruction that makes an operand.

        Instructions with an opcode in `through` are skipped: the maker of their first operand is used instead.
        """
        source = self.operand(instruction, place)
        while source is not None and source.opcode in through:
            source = self.operand(source, 0)
        return source

    def using(self, instruction: Instruction) -> list[Instruction]:
        """The instructions that use the result of `instruction`."""
        return self.users.get((self.home(instruction).name, instruction.name), [])

    def inside(self, instruction: Instruction, role: CallRole = "calls") -> Computation | None:
        """The computation that an instruction calls in this role, such as the body of a fusion; None if missing."""
        names = instruction.computations(role)
        return self.module.by_name.get(names[0]) if names else None

    def _refuse_circles(self) -> None:
        """Raises RatchetError `bad-hlo` for recursion, or for a value that depends on itself.

        Valid HLO has neither, and following such links would never end.
        """
        calls = {
            computation.name: {name for instruction in computation.instructions for _, name in instruction.called}
            for computation in self.module.computations
        }
        order = _sort_by_links(calls, "computations")
        self._callees_first = tuple(self.module.by_name[name] for name in order if name in self.module.by_name)
        for computation in self.module.computations:
            uses: dict[str, set[str]] = {}
            for instruction in computation.instructions:
                uses.setdefault(instruction.name, set()).update(o.name for o in instruction.operands if o.name)
            _sort_by_links(uses, f"values of {computation.name or 'the text'}")

    def _count(self, computation: Computation, runs: int | None) -> None:
        """Adds the `runs` of `computation` to those of the computations that it calls."""
        for instruction in computation.instructions:
            if instruction.opcode == "while":
                trips = trip_count(self, instruction)
                self.trips[computation.name, instruction.name] = trips
                for name in instruction.computations("body"):
                    self._add(name, None if runs is None or trips is None else runs * trips)
            elif instruction.opcode == "call":
                for name in instruction.computations("to_apply", "calls"):
                    self._add(name, runs)
            elif instruction.opcode == "conditional":
                # Which branch runs depends on data.
                for name in instruction.computations("branch", "calls"):
                    self._add(name, None)

    def _add(self, name: str, runs: int | None) -> None:
        before = self.runs.get(name, 0)
        total = None if runs is None or before is None else before + runs
        if name in self.module.by_name:
            self.runs[name] = None if total is not None and total > _MOST_RUNS else total


def _sort_by_links(links: dict[str, set[str]], what: str) -> tuple[str, ...]:
    """The names in an order in which links point backwards. Raises RatchetError `bad-hlo` if links form a cycle."""
    try:
        return tuple(graphlib.TopologicalSorter(links).static_order())
    except graphlib.CycleError as error:
        circle = " -> ".join(error.args[1][:6])
        raise RatchetError("bad-hlo", f"expected {what} without cycles, got {circle}") from error


def trip_count(graph: Graph, loop: Instruction) -> int | None:
    """The number of times that a `while` runs its body; None if it is not a plain counted loop.

    The compiler's own statement takes precedence. If there is none, a loop is plain if all of these hold:

    - its condition compares element i of the loop's tuple with a constant,
    - its body adds a constant to element i,
    - element i starts from a constant.
    """
    if loop.trip_count is not None:
        return loop.trip_count if 0 <= loop.trip_count < _MOST_RUNS else None
    body, condition = graph.inside(loop, "body"), graph.inside(loop, "condition")
    if body is None or condition is None or body.root is None or condition.root is None:
        return None
    test = condition.root
    if test.opcode != "compare" or len(test.operands) != 2 or body.root.opcode != "tuple":
        return None
    counter = _element(graph, test, 0)
    if counter is None or counter >= len(body.root.operands):
        return None
    # The bound and the step may be constants, or elements of the tuple that the body returns unchanged.
    limit = _second_operand(graph, test, loop, body)
    start = _initial(graph, loop, counter)
    added = graph.operand(body.root, counter)
    if added is None or added.opcode != "add" or _element(graph, added, 0) != counter:
        return None
    step = _second_operand(graph, added, loop, body)
    if limit is None or start is None or not step:
        return None
    way, distance = ("L", limit - start) if step > 0 else ("G", start - limit)
    if test.direction == f"{way}T":
        return max(0, -(-distance // abs(step)))
    return max(0, distance // abs(step) + 1) if test.direction == f"{way}E" else None


def _element(graph: Graph, instruction: Instruction, place: int) -> int | None:
    """The index of an operand in the loop's tuple; None if the operand is not an element of the tuple."""
    source = graph.source(instruction, place, _COPIES)
    if source is None or source.opcode != "get-tuple-element":
        return None
    whole = graph.operand(source, 0)
    return source.number if whole is not None and whole.opcode == "parameter" else None


def _second_operand(graph: Graph, instruction: Instruction, loop: Instruction, body: Computation) -> int | None:
    """The second operand's value, if it is a constant or an element that the loop does not change; else None."""
    source = graph.source(instruction, 1, _COPIES)
    if source is None:
        return None
    if source.opcode == "constant":
        return _integer(source.literal)
    element = _element(graph, instruction, 1)
    if element is None or body.root is None or _element(graph, body.root, element) != element:
        return None
    return _initial(graph, loop, element)


def _initial(graph: Graph, loop: Instruction, element: int) -> int | None:
    """The initial value of an element of the loop's tuple; None if it is not a constant."""
    start = graph.operand(loop, 0)
    if start is None or start.opcode != "tuple" or not isinstance(start.shape, Tuple):
        return None
    source = graph.source(start, element, _COPIES)
    return _integer(source.literal) if source is not None and source.opcode == "constant" else None


def _integer(literal: str) -> int | None:
    try:
        number = int(literal)
    except ValueError:
        return None
    return number if abs(number) < _MOST_RUNS else None
