"""The vocabulary: every fact that flows from a problem to a verdict, as frozen records that can be saved."""

from dataclasses import dataclass
from typing import Literal

Source = Literal["measured", "measured cpu", "simulated"]
Stage = Literal["contract", "static", "correctness", "compile", "counters", "latency", "profile"]
Outcome = Literal["accept", "reject", "inconclusive", "failed"]
Parameter = str | int | float | bool
LogState = Literal["none", "no remote", "pushed", "not pushed", "not fetched"]


# --- Problem -----------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Array:
    """Name, shape and dtype (numpy/ml_dtypes name, such as `bfloat16`) of one input or output."""

    name: str
    shape: tuple[int, ...]
    dtype: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Work:
    """Useful work of one call, as the judge counts it: a causal kernel is credited with unmasked pairs only."""

    matmul_flops: int
    vector_flops: int
    minimum_hbm_bytes: int

    @property
    def flops(self) -> int:
        """All useful FLOPs, the number behind `tflops`, `util` and `score`."""
        return self.matmul_flops + self.vector_flops


@dataclass(frozen=True, slots=True, kw_only=True)
class Statement:
    """A problem as it is recorded: what is computed, in the words and numbers of the judge."""

    operation: str
    title: str
    parameters: tuple[tuple[str, Parameter], ...]
    inputs: tuple[Array, ...]
    outputs: tuple[Array, ...]
    work: Work


# --- Candidate ---------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Failure:
    """A candidate that did not pass: a value, not an exception. `kind` is stable for programs."""

    stage: Stage
    kind: str
    message: str
    detail: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class TilingClaim:
    """What `get_tiling_meta()` says, made comparable; checked, never believed. None: not stated."""

    grid: tuple[int, ...] | None = None
    input_bytes: int | None = None
    output_bytes: int | None = None
    buffer_bytes: int | None = None
    vregs: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Claims:
    """What the kernel says about itself."""

    kernel_name: str
    problem_description: str
    flops: int | None
    tiling: TilingClaim | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Window:
    """One operand of a Pallas call: its block, and the HBM traffic that walking its index map over the grid gives.

    `fetches` counts the steps at which the block index changes (the first one included);
    `hbm_bytes` = fetches x block bytes. Both are None where the kernel moves the operand by
    hand (memory space ANY/HBM): then only the simulator knows. `buffers` is how many copies
    of the block VMEM holds (2: double buffering; 1: the block never changes).
    """

    name: str
    role: Literal["input", "output"]
    array: Array
    block_shape: tuple[int, ...]
    memory_space: str
    buffers: int
    fetches: int | None
    hbm_bytes: int | None
    vmem_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Scratch:
    """One scratch buffer of a Pallas call, padded to the tiles of its dtype."""

    shape: tuple[int, ...]
    dtype: str
    memory_space: str
    vmem_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class PallasCall:
    """One Pallas call found in the trace."""

    name: str
    grid: tuple[int, ...]
    dimension_semantics: tuple[str, ...]
    windows: tuple[Window, ...]
    scratch: tuple[Scratch, ...]
    vmem_limit_bytes: int | None

    @property
    def steps(self) -> int:
        """Grid steps of one call."""
        product = 1
        for bound in self.grid:
            product *= bound
        return product

    @property
    def hbm_bytes(self) -> int | None:
        """HBM bytes in and out of one call, or None where an operand is moved by hand."""
        total = 0
        for window in self.windows:
            if window.hbm_bytes is None:
                return None
            total += window.hbm_bytes
        return total

    @property
    def vmem_bytes(self) -> int:
        """VMEM that the windows and scratch of the call need."""
        return sum(window.vmem_bytes for window in self.windows) + sum(s.vmem_bytes for s in self.scratch)


@dataclass(frozen=True, slots=True, kw_only=True)
class Trace:
    """What the one trace of the candidate shows.

    `fingerprint` is a hash of the traced program without source locations: equal fingerprints
    are identical candidates. `pallas_flops` and `outside_flops` are counted from the trace
    (dots and elementwise floating-point operations, full shapes, grid steps included).
    """

    fingerprint: str
    pallas_calls: tuple[PallasCall, ...]
    pallas_flops: int
    outside_flops: int
    seconds: float


# --- Evidence ----------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Check:
    """One correctness check: errors relative to what an honest computation in the problem's dtype costs.

    `error` is the candidate's error against float64, `honest_error` that of the honest
    computation on the same inputs, `tolerance` the largest `error` that passes; all three in
    units of the output, and None where nothing could be compared (wrong structure, shape or
    dtype, non-finite output). `criterion` says which error: of the worst element, or the root
    mean square over all; the one nearer to its limit is recorded. `elements` says how many
    were compared.
    """

    family: str
    mode: Literal["full", "interpret", "device"]
    shape: tuple[int, ...]
    seed: int
    elements: int
    error: float | None
    honest_error: float | None
    tolerance: float | None
    passed: bool
    criterion: Literal["worst element", "root mean square"] = "worst element"


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


@dataclass(frozen=True, slots=True, kw_only=True)
class Simulation:
    """The final schedule, executed. Without a latency (`seconds` None) `unknown` says why.

    `bundle_cycles` (issued bundles, one cycle each) + `dma_wait_cycles` + `unit_stall_cycles`
    + `launch_cycles` = `cycles`. Spills and fills are vector registers saved to and restored
    from VMEM, in executed slots. `unknown` names what the simulator did not understand; where
    it reached control flow there is no latency. `executed_steps` counts the grid steps that
    really ran, all kernels together; None where the schedule does not tell. `mxu_flops` is
    what the executed matmul instructions did, whole arrays, useful or not. Where two cores share
    the work, cycles and op times are those of the core that ends last, everything else is the
    chip's. `as_profiled_seconds` is what a device profile taken as the published times were
    would show. `relative_uncertainty` is for comparing two programs of the same kind on the same
    chip: their time ratio is known to within this fraction of it, one standard deviation
    (docs/FIDELITY.md: pairs of published times that differ in lengths, heads and blocks only).
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
    relative_uncertainty: float = 0.015


@dataclass(frozen=True, slots=True, kw_only=True)
class Samples:
    """Raw seconds of one artifact on one device: host wall clock around a blocked call, device time from a profile."""

    device_kind: str
    host_seconds: tuple[float, ...]
    device_seconds: tuple[float, ...] = ()


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
class StageTime:
    """How long one stage of the judgement took on this machine, and when it began (seconds since the start)."""

    stage: str
    start_seconds: float
    seconds: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Evidence:
    """Everything found out about one candidate; what a failure kept from being found is None or empty."""

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


# --- Verdict -----------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Policy:
    """What decides, saved with every attempt. Time limits are seconds of wall clock."""

    # Until the simulator states its own relative uncertainty, less than 1 % is not believed.
    minimum_effect: float = 0.01
    trace_seconds: float = 60.0
    correctness_seconds: float = 240.0
    compile_seconds: float = 180.0
    simulate_seconds: float = 60.0
    measure_seconds: float = 120.0
    # A child may hold this much memory; a candidate that needs more is stopped, not the machine.
    child_memory_bytes: int = 16 << 30
    warmup_calls: int = 5
    profiled_calls: int = 3
    measured_pairs: int = 30


@dataclass(frozen=True, slots=True, kw_only=True)
class Key:
    """The comparability key: only evidence with equal keys is compared. `machine` is empty for simulated numbers."""

    judge: str
    problem: str
    chip: str
    source: Source
    jax: str
    jaxlib: str
    libtpu: str
    machine: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Duel:
    """Champion and candidate timed in turn in one process: paired raw seconds, in the order they were taken."""

    champion_seconds: tuple[float, ...]
    candidate_seconds: tuple[float, ...]
    clock: Literal["device", "host"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """A derived number that moved between champion (`before`) and candidate (`after`), in SI `unit` or plain."""

    name: str
    unit: Literal["", "s", "B", "cycles"]
    before: float
    after: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """The decision and its reasons. `time_ratio` = candidate / champion, with the interval it was decided on.

    `changes` says what moved in the counters against the champion, the largest relative change first.
    """

    outcome: Outcome
    reasons: tuple[str, ...]
    time_ratio: float | None = None
    time_ratio_low: float | None = None
    time_ratio_high: float | None = None
    failure: Failure | None = None
    changes: tuple[Change, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Champion:
    """The attempt that a candidate was judged against."""

    attempt: int
    commit: str
    score: float | None
    seconds: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Attempt:
    """One run of the ratchet, whatever its outcome: what the ledger stores.

    `judged_against` is the branch's commit when the attempt began. `champion` is None for a
    baseline. `champion_evidence` is there when the champion was evaluated again inside this
    attempt. `diff` is kernel.py against the champion's, unified. `settings` are the `--set`
    rewrites. `expected_time_ratio` is the stated hypothesis in numbers (0.95: 5 % less time).
    """

    number: int
    contest: str
    hypothesis: str
    started: str
    finished: str
    judged_against: str
    kernel_sha256: str
    key: Key
    policy: Policy
    evidence: Evidence
    verdict: Verdict
    champion: Champion | None = None
    champion_evidence: Evidence | None = None
    duel: Duel | None = None
    expected_time_ratio: float | None = None
    settings: tuple[tuple[str, str], ...] = ()
    diff: str = ""
    kind: Literal["baseline", "experiment", "rebaseline", "undo"] = "experiment"


# --- Report ------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class CounterLine:
    """One counter of the report: what was counted at which level, what is expected, and a word if it is off."""

    level: Literal["hlo", "mosaic", "schedule"]
    name: str
    count: int
    expected: str
    remark: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Hint:
    """What to try next: the observation first, then one concrete single change."""

    observation: str
    suggestion: str


@dataclass(frozen=True, slots=True, kw_only=True)
class UnitUse:
    """How much of a functional unit a run used: issue slots of those offered; cycles busy of all, if known."""

    name: str
    slot_fraction: float
    busy_fraction: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """What the evidence means, all of it derived. Times in seconds, rates per second, fractions of 1.

    `hbm_bytes` are actual bytes with re-reads; `traffic_source` names where they come from.
    Everything that needs a latency is None where there is none.
    """

    chip: str
    source: Source
    seconds: float | None
    plus_minus_seconds: float | None
    flops_per_second: float | None
    util: float | None
    mxu_util: float | None
    score: float | None
    regime: Literal["compute-bound", "memory-bound", "latency-bound"] | None
    hbm_bytes: int | None
    minimum_hbm_bytes: int
    traffic_source: Literal["block index maps", "simulated DMA", "unknown"]
    bytes_per_second: float | None
    bandwidth_util: float | None
    intensity: float | None
    minimum_intensity: float
    ridge: float
    compute_only_seconds: float
    memory_only_seconds: float | None
    gap_seconds: float | None
    gap_fraction: float | None
    vmem_bytes: int | None
    vmem_limit_bytes: int
    counters: tuple[CounterLine, ...]
    hints: tuple[Hint, ...]
    impossible: tuple[str, ...] = ()
    units: tuple[UnitUse, ...] = ()
    gap_size: Literal["small", "moderate", "large"] | None = None
    device_median_seconds: float | None = None
    host_median_seconds: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One attempt as the results table shows it; small enough to ride in a commit message.

    `commit` is the branch commit of an accept, the log commit of anything else (empty: only
    its file in `experiments/` is known here). `time_ratio` is against the champion of its time.
    `key` is the whole key behind `key_digest`, so that a table can say what changed.
    """

    number: int
    kind: Literal["baseline", "experiment", "rebaseline", "undo"]
    outcome: Outcome
    failure_kind: str
    hypothesis: str
    source: Source
    chip: str
    key_digest: str
    kernel_sha256: str
    fingerprint: str
    score: float | None = None
    seconds: float | None = None
    time_ratio: float | None = None
    expected_time_ratio: float | None = None
    util: float | None = None
    regime: str | None = None
    gap_fraction: float | None = None
    copies: int | None = None
    spills: int | None = None
    commit: str = ""
    key: Key | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Status:
    """Where a person stands in a contest."""

    contest: str
    branch: str
    champion: Row | None
    next_number: int
    key: Key
    key_digest: str
    kernel_state: str
    dirty_judge_files: tuple[str, ...] = ()
    log: LogState = "none"
    messages: tuple[str, ...] = ()
