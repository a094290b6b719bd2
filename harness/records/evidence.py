"""Everything found out about one candidate: correctness, counters, simulation, samples, latency."""

import statistics
from dataclasses import dataclass
from typing import Literal

from harness.records.candidate import Claims, Failure, Trace
from harness.records.cycle_breakdown import CycleBreakdown
from harness.records.problem import Statement, SuiteMember

Source = Literal["measured", "measured cpu", "simulated"]

# What ran a check, as records name it.
Mode = Literal["full", "interpret", "reduced", "device"]
_MODE_WORDS: dict[Mode, str] = {
    "full": "full shape",
    "interpret": "interpreter",
    "reduced": "reduced shape",
    "device": "device",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Draw:
    """Which inputs a check had: with the same problem these make them again. `shape` is that of the first output.

    Of probes the seed alone counts: it draws what is changed too, so `family` is empty.
    """

    mode: Mode
    shape: tuple[int, ...]
    family: str
    seed: int

    @property
    def mode_words(self) -> str:
        """What ran the check, in words."""
        return _MODE_WORDS[self.mode]

    @property
    def is_probe(self) -> bool:
        """True if inputs are changed, or a call is repeated, and bits are compared."""
        return not self.family


@dataclass(frozen=True, slots=True, kw_only=True)
class Certificate:
    """The program that is checked and the one that is compiled for `platform`, shown to be one.

    `sha256` is of its normal form: the traced program and the program for the chip, without names and places.
    `primitives` are its operations by where JAX has them (`module:name`), and how many of each.
    """

    sha256: str
    platform: str
    primitives: tuple[tuple[str, int], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Check:
    """One correctness check: errors relative to what an honest computation in the problem's dtype costs.

    `error` is the candidate's error against float64, `honest_error` that of the honest
    computation on the same inputs, `tolerance` the largest `error` that passes; all three in
    units of the output, and None where nothing could be compared (wrong structure, shape or
    dtype, non-finite output). `criterion` says which error: of the worst element, or the root
    mean square over all; the one nearer to its limit is recorded. `elements` says how many
    were compared. Modes: `full` and `reduced` are the CPU reference program at the contest's and at a smaller
    shape, `interpret` is TPU interpret mode.

    Two criteria compare bits with another run of the same program instead: `dependence` (inputs
    were changed as `family` says) and `determinism` (they were the same). Two compare bits with what is right: `state`,
    and `exact` of outputs without a tolerance. There `error` counts the elements that broke the rule, and `tolerance`
    is 0.
    """

    family: str
    mode: Mode
    shape: tuple[int, ...]
    seed: int
    elements: int
    error: float | None
    honest_error: float | None
    tolerance: float | None
    passed: bool
    criterion: Literal["worst element", "root mean square", "dependence", "determinism", "state", "exact"] = (
        "worst element"
    )

    @property
    def mode_words(self) -> str:
        """What ran it, in words."""
        return _MODE_WORDS[self.mode]

    @property
    def draw(self) -> Draw:
        """What makes its inputs again."""
        family = "" if self.criterion in ("dependence", "determinism") else self.family
        return Draw(mode=self.mode, shape=self.shape, family=family, seed=self.seed)


@dataclass(frozen=True, slots=True, kw_only=True)
class HloCounts:
    """Instructions of the compiled HLO module *around* the kernel, fusions' insides included, from the HLO proto."""

    copy: int
    transpose: int
    fusion: int
    dot: int
    exponential: int
    reduce: int
    custom_call: int
    instructions: int
    text_lines: int


@dataclass(frozen=True, slots=True, kw_only=True)
class MosaicCounts:
    """Operations *inside* the kernel bodies (static, all kernels of the module), from the Mosaic MLIR."""

    matmul: int
    exp: int
    reduction: int
    load: int
    store: int
    dma: int
    operations: int
    not_understood: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Unit:
    """One functional unit over the whole run: issue slots used of those offered, and how busy it was.

    `static_slots` counts slots in the schedule text, `executed_slots` weights each bundle by
    how often it ran, `offered_slots` is cycles x slots per bundle. `busy_cycles` is the
    unit's occupancy where an op keeps it longer than its issue (the MXU), else None.
    """

    name: str
    slots_per_bundle: int
    static_slots: int
    executed_slots: int
    offered_slots: int
    busy_cycles: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class OpTime:
    """Time of one HLO op of the module, all its calls together."""

    name: str
    bundles: int
    executed_bundles: int
    cycles: float
    seconds: float
    calls: int = 1


OffenceKind = Literal[
    "chip-halts",
    "transfer-pending",
    "transfer-part-waited",
    "semaphore-not-zero",
    "memory-nobody-wrote",
    "check-unknown",
    "transfer-raced",
]


@dataclass(frozen=True, slots=True, kw_only=True)
class Offence:
    """What a program does, when its whole schedule is executed, that no right program does.

    chip-halts: a check of the compiler fails, at which the chip halts. transfer-pending: a kernel
    ends and a transfer that it started was never waited for. transfer-part-waited: a wait ends with a
    part of a transfer, and nobody knows which part has arrived. semaphore-not-zero: a kernel ends and
    leaves a semaphore with a count. memory-nobody-wrote: control flow depends on a word of scalar
    memory that nothing wrote. check-unknown: a check of the compiler depends on something that the
    simulator does not know. transfer-raced: a load, a store or another transfer touches the memory of a
    transfer before it was waited for, and one of the two writes. `op` is the HLO instruction, `what` says which
    check, transfer, semaphore or word, `line` is `kernel.py:23` where the compiler names it, else "", `count`
    how often.
    """

    kind: OffenceKind
    op: str
    what: str
    line: str = ""
    count: int = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class TimedRun:
    """The schedule executed with one of the timing inputs that the problem states, called `name`.

    The fields are those of a Simulation.
    """

    name: str
    seconds: float | None
    plus_minus_seconds: float | None
    relative_uncertainty: float
    hbm_bytes: int
    mxu_flops: int | None
    unknown: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class LinkTraffic:
    """What one direction of a link between two neighbouring chips has carried, and for how long that kept it busy."""

    source: int
    destination: int
    bytes: int
    busy_seconds: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Simulation:
    """The final schedule, executed. Without a latency (`seconds` None) `unknown` says why.

    `bundle_cycles` (issued bundles, one cycle each) + `dma_wait_cycles` + `unit_stall_cycles`
    + `launch_cycles` (the top-level program, and waiting for the other core) = `cycles`.
    Spills and fills are vector registers saved to and restored
    from VMEM, in executed slots. `unknown` names what the simulator did not understand; where
    it reached control flow there is no latency. `executed_steps` counts the grid steps that
    really ran, all kernels together; None where the schedule does not tell. `mxu_flops` is
    what the executed matmul instructions did, whole arrays, useful or not. Where two cores share
    the work, cycles and op times are those of the core that ends last, everything else is the
    chip's; `breakdown` takes that core's cycles apart. `as_profiled_seconds` stands in old records only: what a
    device profile was thought to show. `relative_uncertainty` is how far the ratio of the time to that of
    another program on the same chip may be off, as a fraction of it, one standard deviation; `plus_minus_seconds` is
    how far the time itself may be off (judge/simulate/uncertainty.py, benchmarks/FIDELITY.md).
    `offences` are judged (judge/verdict/schedule_checks.py); those of all cores and all runs, each once. `runs` are
    the runs with the problem's timing inputs, where it has inputs of integers; everything else is of the first of them.
    `schedule` is a digest of the bundles, equal for equal ones; "" in older records. Of several `chips` that run the
    program together the figures are those of the one that ends last; `links` are those between all of them, and
    `link_wait_cycles` how long that chip waits for others.
    """

    chip: str
    seconds: float | None
    plus_minus_seconds: float | None
    cycles: float | None
    bundle_cycles: int
    dma_wait_cycles: float
    unit_stall_cycles: float
    launch_cycles: float
    clock_hz: float
    ops: tuple[OpTime, ...]
    units: tuple[Unit, ...]
    static_bundles: int
    empty_bundles: int
    static_spills: int
    static_fills: int
    executed_spills: int
    executed_fills: int
    hbm_read_bytes: int
    hbm_written_bytes: int
    dma_transfers: int
    unknown: tuple[str, ...]
    executed_steps: int | None = None
    mxu_flops: int | None = None
    executed_empty_bundles: int | None = None
    as_profiled_seconds: float | None = None
    relative_uncertainty: float = 0.02
    breakdown: CycleBreakdown | None = None
    offences: tuple[Offence, ...] = ()
    runs: tuple[TimedRun, ...] = ()
    schedule: str = ""
    chips: int = 1
    links: tuple[LinkTraffic, ...] = ()
    link_wait_cycles: float = 0.0

    @property
    def mean_seconds(self) -> float | None:
        """The mean over the timing inputs, each counting alike; None where one of them has no latency."""
        if not self.runs:
            return self.seconds
        known = [run.seconds for run in self.runs if run.seconds is not None]
        return statistics.fmean(known) if len(known) == len(self.runs) else None

    @property
    def mean_hbm_bytes(self) -> int:
        """HBM bytes of one call, read and written, as a mean over the timing inputs."""
        if not self.runs:
            return self.hbm_read_bytes + self.hbm_written_bytes
        return round(statistics.fmean(run.hbm_bytes for run in self.runs))

    @property
    def mean_mxu_flops(self) -> int | None:
        """What the matrix units did in one call, as a mean over the timing inputs."""
        if not self.runs:
            return self.mxu_flops
        known = [run.mxu_flops for run in self.runs if run.mxu_flops is not None]
        return round(statistics.fmean(known)) if len(known) == len(self.runs) else None


@dataclass(frozen=True, slots=True, kw_only=True)
class Samples:
    """Raw seconds of one artifact on one device: host wall clock around blocked calls, device time from a profile.

    A call too short for the host's clock is timed `host_calls_per_sample` at a time; seconds are per call.
    """

    device_kind: str
    host_seconds: tuple[float, ...]
    device_seconds: tuple[float, ...] = ()
    host_calls_per_sample: int = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Latency:
    """The latency that is judged, with its source. `seconds` None: not known, and `reasons` says why."""

    source: Source
    seconds: float | None
    plus_minus_seconds: float | None
    reasons: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Environment:
    """Where the evidence was taken; `machine` only matters to measured numbers."""

    python: str
    jax: str
    jaxlib: str
    libtpu: str | None
    machine: str
    platform: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Isolation:
    """How the children were kept apart from the machine: layers that the kernel offered, and their own environment.

    `landlock` is the version of its interface (None: files and network lay open);
    `system_calls_filtered`: no process, program or socket could be started. `variables` are the
    environment variables of the candidate's process, `NAME=value`, where they can matter.
    """

    landlock: int | None
    system_calls_filtered: bool
    variables: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class StageTime:
    """How long one stage of the judgement took on this machine, and when it began (seconds since the start)."""

    stage: str
    start_seconds: float
    seconds: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Evidence:
    """Everything found out about one candidate; what a failure kept from being found is None or empty.

    `unchecked` names the checks that were not run because its simulated time is too slow: such evidence can be
    rejected for its time and serves nothing else. Of a suite `members` are the evidence of its members in the order of
    `problem.members`, up to the one that failed; then what is of one program is theirs alone, and latency, trace
    (its fingerprint is of all of them) and failure are of the whole. `certificate` is None in older records.
    """

    problem: Statement
    chip: str
    environment: Environment
    claims: Claims | None = None
    trace: Trace | None = None
    checks: tuple[Check, ...] = ()
    warnings: tuple[str, ...] = ()
    hlo: HloCounts | None = None
    mosaic: MosaicCounts | None = None
    simulation: Simulation | None = None
    samples: Samples | None = None
    latency: Latency | None = None
    dump_directory: str | None = None
    stages: tuple[StageTime, ...] = ()
    failure: Failure | None = None
    isolation: Isolation | None = None
    unchecked: tuple[str, ...] = ()
    members: "tuple[Evidence, ...]" = ()
    certificate: Certificate | None = None

    @property
    def named_members(self) -> "tuple[tuple[SuiteMember, Evidence], ...]":
        """Each member of a suite that was evaluated, as it is stated, and its evidence; nothing of a single problem."""
        return tuple(zip(self.problem.members or (), self.members, strict=False))

    @property
    def programs(self) -> "tuple[tuple[str, Evidence], ...]":
        """The evidence about each program: that of the members by name; of a single problem this one, named ""."""
        return tuple((one.name, found) for one, found in self.named_members) or (("", self),)

    @property
    def schedule(self) -> str:
        """A digest of the executed bundles of all programs; "" where one of them was not simulated."""
        found = [one.simulation.schedule if one.simulation else "" for _, one in self.programs]
        return "" if "" in found else "+".join(digest[:16] for digest in found)

    @property
    def certified(self) -> str:
        """What stands for the certificates of all programs; "" where one of them has none."""
        found = [one.certificate.sha256[:16] if one.certificate else "" for _, one in self.programs]
        return "" if "" in found else "+".join(found)

    @property
    def all_checks(self) -> tuple[Check, ...]:
        """The checks of all programs."""
        return tuple(check for _, found in self.programs for check in found.checks)
