"""An HLO module as records: computations and their instructions, read from text or from a proto."""

from collections import Counter
from dataclasses import dataclass
from functools import cached_property
from typing import Literal

from harness.hlo.shapes import Shape
from harness.hlo.sharding import Groups, Mesh, Sharding

CallRole = Literal["calls", "to_apply", "body", "condition", "branch"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Operand:
    """An operand: an instruction of the same computation by name, and the shape if the text repeats it."""

    name: str
    shape: Shape | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Contraction:
    """The contracting dimensions of a dot's two operands, and their batch dimensions."""

    left: tuple[int, ...] = ()
    right: tuple[int, ...] = ()
    left_batch: tuple[int, ...] = ()
    right_batch: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class WindowDimension:
    """A convolution's window along one spatial dimension: size, stride, padding, dilations (xla_data.proto)."""

    size: int = 1
    stride: int = 1
    low_padding: int = 0
    high_padding: int = 0
    input_dilation: int = 1
    window_dilation: int = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Convolution:
    """The dimensions of a convolution: `bf_io->bf` is the plain matmul of a batch and a kernel.

    The entries of `input_spatial`, `kernel_spatial`, `output_spatial` and `window` correspond one to one.
    """

    text: str
    input_batch: int
    input_feature: int
    input_spatial: tuple[int, ...]
    kernel_input: int
    kernel_output: int
    kernel_spatial: tuple[int, ...]
    output_batch: int
    output_feature: int
    output_spatial: tuple[int, ...]
    window: tuple[WindowDimension, ...] = ()
    batch_groups: int = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Instruction:
    """One instruction. Fields that its operation does not have are empty or None.

    - `number`: the number of a parameter, or of a tuple element.
    - `literal`: the text of a constant.
    - `called`: the computations that the instruction calls, each with its role.
    - `backend`: the backend's configuration, which is JSON for a TPU.
    - `trip_count`: the number of iterations of a loop, if the compiler states it.
    - `other_attributes`: the names of attributes that are not read.
    - `attributes`: the text of all attributes except `backend`.
    """

    name: str
    opcode: str
    shape: Shape
    operands: tuple[Operand, ...] = ()
    is_root: bool = False
    number: int | None = None
    literal: str = ""
    dimensions: tuple[int, ...] = ()
    called: tuple[tuple[CallRole, str], ...] = ()
    fusion_kind: str = ""
    target: str = ""
    contraction: Contraction | None = None
    convolution: Convolution | None = None
    direction: str = ""
    groups: Groups | None = None
    pairs: tuple[tuple[int, int], ...] = ()
    channel: int | None = None
    precision: tuple[str, ...] = ()
    sharding: Sharding | None = None
    aliasing: str = ""
    trip_count: int | None = None
    op_name: str = ""
    source: str = ""
    backend: str = ""
    other_attributes: tuple[str, ...] = ()
    attributes: str = ""

    def __str__(self) -> str:
        named = ", ".join(f"%{operand.name}" for operand in self.operands)
        inside = str(self.number) if self.opcode == "parameter" else self.literal or named
        return f"%{self.name} = {self.shape} {self.opcode}({inside}){self.attributes}"

    def computations(self, *roles: CallRole) -> tuple[str, ...]:
        """The computations that the instruction calls in one of these roles."""
        return tuple(name for role, name in self.called if role in roles)


@dataclass(frozen=True, kw_only=True)
class Computation:
    """A list of instructions, operands before their users."""

    name: str
    instructions: tuple[Instruction, ...]
    is_entry: bool = False

    @cached_property
    def root(self) -> Instruction | None:
        """The instruction whose value is returned: the marked root, or else the last instruction; None without any."""
        marked = [instruction for instruction in self.instructions if instruction.is_root]
        return marked[0] if marked else self.instructions[-1] if self.instructions else None

    @cached_property
    def parameters(self) -> dict[int, Instruction]:
        """The parameters by number, in order of their numbers."""
        numbered = {
            instruction.number: instruction
            for instruction in reversed(self.instructions)
            if instruction.opcode == "parameter" and instruction.number is not None
        }
        return dict(sorted(numbered.items()))


@dataclass(frozen=True, kw_only=True)
class Module:
    """A whole module, or computations or instructions alone (`is_pasted`). Loose instructions form one computation.

    - `devices`: the module's number of devices (num_partitions times replica_count). `mesh`: the layout of the devices,
      if known.
    - `in_place`: for each result that reuses a parameter's memory, the result's index (0 for a single result) and the
      parameter's number.
    - `not_understood`: a sentence with a line number for each part that could not be read.
    """

    name: str
    computations: tuple[Computation, ...]
    devices: int = 1
    is_pasted: bool = False
    mesh: Mesh | None = None
    in_place: tuple[tuple[int, int], ...] = ()
    not_understood: tuple[str, ...] = ()

    @property
    def entry(self) -> Computation | None:
        """The entry computation: the marked entry, or else the last computation; None without computations."""
        marked = [computation for computation in self.computations if computation.is_entry]
        return marked[0] if marked else self.computations[-1] if self.computations else None

    @cached_property
    def by_name(self) -> dict[str, Computation]:
        """The module's computations by name."""
        return {computation.name: computation for computation in self.computations}

    @cached_property
    def branch_operands(self) -> dict[str, Instruction]:
        """For each parameter of a branch that is called once, the operand that the conditional passes to it."""
        every = [instruction for computation in self.computations for instruction in computation.instructions]
        calls = Counter(name for instruction in every for _, name in instruction.called)
        operands: dict[str, Instruction] = {}
        for conditional in every:
            if conditional.opcode != "conditional":
                continue
            branches = (self.by_name.get(name) for _, name in conditional.called)
            for branch, operand in zip(branches, conditional.operands[1:], strict=False):
                if branch is not None and calls[branch.name] == 1 and operand.name in self.instructions:
                    parameters = branch.parameters.values()
                    operands |= {parameter.name: self.instructions[operand.name] for parameter in parameters}
        return operands

    @cached_property
    def instructions(self) -> dict[str, Instruction]:
        """The instructions of all computations by name; names are unique in a module that XLA printed."""
        return {
            instruction.name: instruction
            for computation in self.computations
            for instruction in computation.instructions
        }
