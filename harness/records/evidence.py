"""The evidence about one candidate: correctness, counters, simulation, samples, latency."""

import statistics
from dataclasses import dataclass
from typing import Literal

from harness.records.candidate import Claims, Failure, Trace
from harness.records.cycle_breakdown import CycleBreakdown
from harness.records.problem import Statement, SuiteMember

Source = Literal["measured", "measured cpu", "simulated"]

# The ways to run a check, as records name them.
Mode = Literal["full", "interpret", "reduced", "device"]
_MODE_WORDS: dict[Mode, str] = {
    "full": "full shape",
    "interpret": "interpreter",
    "reduced": "reduced shape",
    "device": "device",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Draw:
    """A check's inputs, which can be made again from this record and the problem. `shape` is the first output's shape.

    A probe needs only the seed, which also determines the change of the inputs, so its `family` is empty.
    """

    mode: Mode
    shape: tuple[int, ...]
    family: str
    seed: int

    @property
    def mode_words(self) -> str:
        """The mode of the check in words."""
        return _MODE_WORDS[self.mode]

    @property
    def is_probe(self) -> bool:
        """True for a check that changes inputs or repeats a call, and compares bits."""
        return not self.family


@dataclass(frozen=True, slots=True, kw_only=True)
class Certificate:
    """Proof that the checked program and the program compiled for `platform` are the same.

    `sha256` is the hash of the normal form: the traced program and the program for the chip, without names and places.
    `primitives` are the counts of the normal form's operations, by their place in JAX (`module:name`).
    """

    sha256: str
    platform: str
    primitives: tuple[tuple[str, int], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Check:
    """One correctness check: the candidate's error, the honest error (in the problem's dtype), and a limit.

    - `error`: the candidate's error against float64. `honest_error`: the error of the honest computation on the same
      inputs. `tolerance`: the largest `error` that passes. All three are in units of the output, and None if nothing
      could be compared (wrong structure, shape or dtype, non-finite output).
    - `criterion`: the kind of error, which is the worst element's error or the root mean square over all elements. The
      criterion nearer to its limit is recorded.
    - `elements`: the number of compared elements.
    - `mode`: `full` and `reduced` are the CPU reference program at the contest's shape and at a smaller shape,
      `interpret` is TPU interpret mode, `device` is a run on the device.

    Four criteria compare bits. `dependence` (inputs changed as `family` states) and `determinism` (equal inputs)
    compare with another run of the same program. `state`, and `exact` for outputs without a tolerance, compare with the
    correct answer. For these criteria, `error` is the number of elements that broke the rule, and `tolerance` is 0.
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
        """The mode of the check in words."""
        return _MODE_WORDS[self.mode]

    @property
    def draw(self) -> Draw:
        """The inputs of the check."""
        family = "" if self.criterion in ("dependence", "determinism") else self.family
        return Draw(mode=self.mode, shape=self.shape, family=family, seed=self.seed)


@dataclass(frozen=True, slots=True, kw_only=True)
class HloCounts:
    """Numbers of instructions in the compiled HLO module *around* the kernel, including those inside fusions."""

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
    """One functional unit over the whole run: the issue slots offered and used, and the unit's busy cycles.

    `static_slots` counts slots in the schedule text, `executed_slots` weights each bundle by its executions,
    `offered_slots` is cycles x slots per bundle. `busy_cycles` are the cycles in which ops occupy the unit, if these
    exceed their issue cycles (the MXU), otherwise None.
    """

    name: str
    slots_per_bundle: int
    static_slots: int
    executed_slots: int
    offered_slots: int
    busy_cycles: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class OpTime:
    """Time of one HLO op of the module, summed over its calls."""

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
    """An offence that was seen while the whole schedule was executed; a correct program commits none.

    - chip-halts: a check of the compiler fails, so that the chip halts.
    - transfer-pending: a kernel ends, and a transfer that it started was never waited for.
    - transfer-part-waited: a wait covers only a part of a transfer, it is unknown which part, and something may touch
      the memory of a transfer on the same semaphore before the rest is waited for.
    - semaphore-not-zero: a kernel ends and leaves a semaphore above zero.
    - memory-nobody-wrote: control flow depends on a word of scalar memory that nothing wrote.
    - check-unknown: a check of the compiler depends on something that the simulator does not know.
    - transfer-raced: a load, a store or another transfer touches the memory of a transfer before the kernel waited for
      it, and one of the two accesses is a write.

    `op` is the HLO instruction, `what` names the check, transfer, semaphore or word, `line` is the source line
    (`kernel.py:23`) or "" if the compiler does not name it, and `count` is how often the offence was seen.
    """

    kind: OffenceKind
    op: str
    what: str
    line: str = ""
    count: int = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class TimedRun:
    """The schedule executed with the timing input `name` of the problem; fields as in Simulation."""

    name: str
    seconds: float | None
    plus_minus_seconds: float | None
    relative_uncertainty: float
    hbm_bytes: int
    mxu_flops: int | None
    unknown: tuple[str, ...] = ()
    range_seconds: tuple[float, float] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class LinkTraffic:
    """Bytes that one direction of a link between two neighbouring chips carried, and how long it was busy."""

    source: int
    destination: int
    bytes: int
    busy_seconds: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Simulation:
    """A simulated run of the final schedule. If there is no latency (`seconds` is None), `unknown` has the reasons.

    - Cycles: `bundle_cycles` (issued bundles, one cycle each) + `dma_wait_cycles` + `unit_stall_cycles` +
      `launch_cycles` (the top-level program, and waiting for the other core) = `cycles`.
    - Spills and fills: slots that save vector registers to VMEM and restore them, counted in the schedule (`static_`)
      and as executed (`executed_`).
    - `unknown`: the things that the simulator did not understand. There is no latency if control flow depends on them.
    - `executed_steps`: the number of grid steps that really ran, over all kernels; None if the schedule does not show
      it.
    - `mxu_flops`: the FLOPs of the executed matmul instructions on whole MXU arrays, useful or not.
    - `relative_uncertainty`: the uncertainty of the ratio of this time to another program's time on the same chip: one
      standard deviation, as a fraction of the ratio.
    - `plus_minus_seconds`: one standard deviation of the time itself (judge/simulate/uncertainty.py,
      benchmarks/FIDELITY.md).
    - `offences`: the offences of all cores and runs, each once. judge/verdict/schedule_checks.py judges them.
    - `runs`: the runs with the problem's timing inputs, if the problem has integer inputs. All other fields are of the
      first run.
    - `schedule`: a digest of the bundles, equal for equal bundles; "" in older records.
    - `range_seconds`: the shortest and the longest time of a program that has no latency because the SparseCore does a
      part of it (judge/simulate/sparse_core.py), if both are known.
    - `as_profiled_seconds`: only in old records, an estimate of the time that a device profile shows.

    If two cores share the work, cycles, op times and `breakdown` are those of the core that ends last, and all other
    fields are of the whole chip. If several `chips` run the program together, the figures are those of the chip that
    ends last; `links` is the traffic between all chips, and `link_wait_cycles` are the cycles for which that chip waits
    for other chips.
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
    range_seconds: tuple[float, float] | None = None

    @property
    def mean_seconds(self) -> float | None:
        """Unweighted mean over the timing inputs; None if one of them has no latency."""
        if not self.runs:
            return self.seconds
        latencies = [run.seconds for run in self.runs if run.seconds is not None]
        return statistics.fmean(latencies) if len(latencies) == len(self.runs) else None

    @property
    def mean_range_seconds(self) -> tuple[float, float] | None:
        """The means of both ends of the range over the timing inputs; None if a run has neither a range nor a latency.

        If a run has a latency, it counts as both ends.
        """
        runs = self.runs or (self,)
        least, most = [], []
        for run in runs:
            ends = run.range_seconds if run.seconds is None else (run.seconds, run.seconds)
            if ends is None:
                return None
            least.append(ends[0])
            most.append(ends[1])
        return statistics.fmean(least), statistics.fmean(most)

    @property
    def mean_hbm_bytes(self) -> int:
        """HBM bytes of one call, read and written, as a mean over the timing inputs."""
        if not self.runs:
            return self.hbm_read_bytes + self.hbm_written_bytes
        return round(statistics.fmean(run.hbm_bytes for run in self.runs))

    @property
    def mean_mxu_flops(self) -> int | None:
        """FLOPs of the matrix units in one call, as a mean over the timing inputs; None if one is not known."""
        if not self.runs:
            return self.mxu_flops
        flops = [run.mxu_flops for run in self.runs if run.mxu_flops is not None]
        return round(statistics.fmean(flops)) if len(flops) == len(self.runs) else None


@dataclass(frozen=True, slots=True, kw_only=True)
class Samples:
    """Raw seconds of one artifact on one device: host wall clock around blocked calls, device time from a profile.

    If a call is too short for the host's clock, `host_calls_per_sample` calls are timed together; seconds are per call.
    """

    device_kind: str
    host_seconds: tuple[float, ...]
    device_seconds: tuple[float, ...] = ()
    host_calls_per_sample: int = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Latency:
    """The judged latency with its source. `seconds` is None if the latency is not known; `reasons` states why."""

    source: Source
    seconds: float | None
    plus_minus_seconds: float | None
    reasons: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Environment:
    """Versions and machine behind the evidence; `machine` matters to measured numbers only."""

    python: str
    jax: str
    jaxlib: str
    libtpu: str | None
    machine: str
    platform: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Isolation:
    """Confinement of the child processes: the layers that Linux offered, and the children's environment.

    `landlock` is the version of its interface (None: files and network were open). `system_calls_filtered`: no process,
    program or socket could be started. `variables` are the environment variables of the candidate's process that
    can matter, as `NAME=value`.
    """

    landlock: int | None
    system_calls_filtered: bool
    variables: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class StageTime:
    """Duration of one stage of a judgement on this machine, and its start, in seconds after the judgement began."""

    stage: str
    start_seconds: float
    seconds: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Evidence:
    """The evidence about one candidate. Fields that are unknown because of a failure are None or empty.

    - `unchecked`: the names of the checks that were skipped because the simulated time is too long. Such evidence can
      only be rejected for its time.
    - `members`: for a suite, the evidence of its members in the order of `problem.members`, up to the member that
      failed. Only `members` have the fields about one program; latency, failure and trace (whose fingerprint covers all
      members) are of the whole suite.
    - `certificate`: None in older records.
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
        """Each evaluated member of a suite, as the problem states it, with its evidence; empty for a single problem."""
        return tuple(zip(self.problem.members or (), self.members, strict=False))

    @property
    def programs(self) -> "tuple[tuple[str, Evidence], ...]":
        """Each program's evidence: by member name for a suite; this one, named "", for a single problem."""
        return tuple((member.name, evidence) for member, evidence in self.named_members) or (("", self),)

    @property
    def schedule(self) -> str:
        """A digest of the executed bundles of all programs; "" if one of them was not simulated."""
        digests = [evidence.simulation.schedule if evidence.simulation else "" for _, evidence in self.programs]
        return "" if "" in digests else "+".join(digest[:16] for digest in digests)

    @property
    def certified(self) -> str:
        """The digests of all programs' certificates, shortened; "" if a program has none."""
        digests = [evidence.certificate.sha256[:16] if evidence.certificate else "" for _, evidence in self.programs]
        return "" if "" in digests else "+".join(digests)

    @property
    def all_checks(self) -> tuple[Check, ...]:
        """The checks of all programs."""
        return tuple(check for _, evidence in self.programs for check in evidence.checks)
