"""The requests of an evaluation to its processes, and their replies."""

from dataclasses import dataclass
from typing import Literal, TypeAlias

from harness.hardware import Chip
from harness.records import KERNEL, Array, Check, Claims, Failure, HloCounts, MosaicCounts, Samples, Trace


@dataclass(frozen=True, slots=True, kw_only=True)
class TraceRequest:
    """Trace `function` of the directory's kernel.py for the pickled problem; write the chip's program to `artifact`.

    If `program` is given, the traced program is also written to this file. `stubs` are modules that stand-ins replace,
    even if they are installed.
    """

    problem: str
    chip: Chip
    artifact: str
    function: str = KERNEL
    program: str = ""
    stubs: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class TraceReply:
    """The findings of the trace for the contest's own shape.

    `operations` is the number of the program's operations; each operation in a loop or branch counts once.
    `exceeds_vmem` is the reason why the program cannot fit into VMEM, or "".
    """

    trace: Trace
    claims: Claims
    warnings: tuple[str, ...]
    operations: int
    exceeds_vmem: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class OtherMember:
    """Another member of the suite: its name, the function that computes it, and the inputs of this function."""

    name: str
    function: str
    inputs: tuple[Array, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class ShapesRequest:
    """Trace the candidate again at the full shape, after the `others` of its suite, and at smaller shapes."""

    others: tuple[OtherMember, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class ShapesReply:
    """The shapes to check. `reduced` is the position of the reduced shape in `problem.reduced()`; None: the full shape.

    `has_second`: the kernel was also traced for the second shape, which is then interpreted instead of the reduced
    shape. `interpret_full`: the full shape is to be interpreted too. `difference` is the first place at which the
    programs of the full shape and of a smaller shape differ in more than sizes.
    """

    reduced: int | None
    has_second: bool = False
    interpret_full: bool = False
    difference: str = ""
    warnings: tuple[str, ...] = ()


# The shapes that a kernel is traced for: the contest's shape, a reduced shape, and a second shape near the reduced one.
TracedShape = Literal["full", "reduced", "second"]

# The content of unwritten memory. A number: this number. None: NaN. marked: a marked NaN, for which comparisons give
# the opposite of their result for NaN. mixed: these kinds in turn, from element to element.
Fill: TypeAlias = float | Literal["marked", "mixed"] | None


@dataclass(frozen=True, slots=True, kw_only=True)
class ExportRequest:
    """Write to `artifact` the CPU reference program that is made from the trace for `shape`.

    In this program unwritten memory holds `fill`.
    """

    artifact: str
    shape: TracedShape = "full"
    fill: Fill = None


@dataclass(frozen=True, slots=True, kw_only=True)
class InterpretRequest:
    """Run the program traced for `shape` in TPU interpret mode on the inputs of `family` and `seed`; write `outputs`.

    Unwritten memory holds `fill`, or NaN if it is None.
    """

    family: str
    seed: int
    outputs: str
    shape: TracedShape = "reduced"
    fill: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckRequest:
    """Run the program `artifact` and check its outputs. Without `artifact`, check the outputs in the file `outputs`.

    `reduced` is the position of the shape in `problem.reduced()`, or None for the full shape. `is_second` selects the
    second shape near the reduced shape. `over` is the chip of a program over a mesh.
    """

    problem: str
    reduced: int | None
    family: str
    seed: int
    artifact: str = ""
    outputs: str = ""
    is_second: bool = False
    over: Chip | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckReply:
    """The check, and the failure if it did not pass."""

    check: Check
    failure: Failure | None


@dataclass(frozen=True, slots=True, kw_only=True)
class ProbeRequest:
    """Probe how outputs of the CPU reference program `artifact` depend on its inputs; draw both with `seed`.

    If `reduced` is None, the shape is the full shape. `full`: make only the probes that are worth their time at the
    full shape. `over` is the chip of a program over a mesh.
    """

    problem: str
    reduced: int | None
    seed: int
    artifact: str
    full: bool
    over: Chip | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ProbeReply:
    """The checks up to the first check that did not pass, and its failure (None if all passed)."""

    checks: tuple[Check, ...]
    failure: Failure | None


@dataclass(frozen=True, slots=True, kw_only=True)
class CertifyRequest:
    """Prove that `for_chip` is the traced `program`, lowered for `chip`; write the CPU reference program to `artifact`.

    In the CPU reference program unwritten memory holds `fill`. If `joins_windows`, an input that is aliased to an
    output and may be in VMEM shares the output's window. `trace` is the report on both programs. `splits` has, for each
    input and then for each result, the axes of the chip's mesh over which its dimensions are split.
    """

    program: str
    for_chip: str
    chip: Chip
    trace: Trace
    artifact: str
    fill: Fill
    splits: tuple[tuple[str | None, ...], ...] = ()
    joins_windows: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class CompileRequest:
    """Compile `artifact` for `chip`; write the HLO text to `hlo_texts`, the kernels' Mosaic to `mosaic_directory`."""

    artifact: str
    problem: str
    chip: Chip
    hlo_texts: tuple[str, ...]
    mosaic_directory: str


@dataclass(frozen=True, slots=True, kw_only=True)
class CompileReply:
    """The counts of operations in the compiled module's HLO and in its kernels' Mosaic."""

    hlo: HloCounts
    mosaic: MosaicCounts


@dataclass(frozen=True, slots=True, kw_only=True)
class SimulateRequest:
    """Call `module`.`function` on a directory of dumps; `with_lines`: attribute the cost to source lines.

    A small timeline of the run is written to the file `timeline`, if given.
    """

    module: str
    function: str
    dump_directory: str
    chip: Chip
    deadline_seconds: float
    with_lines: bool
    timeline: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ResimulateRequest:
    """Call `module`.`function` on a directory of dumps, for the machines with these names, until the deadline."""

    module: str
    function: str
    dump_directory: str
    chip: Chip
    names: tuple[str, ...]
    deadline_seconds: float


@dataclass(frozen=True, slots=True, kw_only=True)
class ResimulateReply:
    """The simulated seconds on each machine, in the order of the request's names; None if unknown."""

    seconds: tuple[float | None, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class MeasureRequest:
    """Time the artifacts on the device, alternating, on fresh inputs; profile them as `session` of `profile_directory`.

    An artifact that is named twice is loaded twice.
    """

    artifacts: tuple[str, ...]
    problem: str
    seed: int
    warmup_calls: int
    profiled_calls: int
    rounds: int
    deep: bool
    profile_directory: str
    session: str


@dataclass(frozen=True, slots=True, kw_only=True)
class MoreRequest:
    """Run more rounds of the programs of the previous `MeasureRequest`, which are still loaded."""

    profiled_calls: int
    rounds: int
    session: str


@dataclass(frozen=True, slots=True, kw_only=True)
class MeasureReply:
    """Samples of each artifact, in the order of the request, paired by round, and the check of one timed output."""

    samples: tuple[Samples, ...]
    check: CheckReply


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceRequest:
    """Ask which device this machine has."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceReply:
    """The device that JAX would use: platform (`tpu`, `gpu` or `cpu`) and kind (`TPU v5 lite`)."""

    platform: str
    kind: str
