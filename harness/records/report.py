"""What evidence means, all of it derived: the report, a row of the table, where one stands."""

from dataclasses import dataclass
from typing import Literal

from harness.records.evidence import Source
from harness.records.verdict import TITLE_MOVES, Key, Kind, Outcome

LogState = Literal["none", "no remote", "pushed", "not pushed", "not fetched"]


@dataclass(frozen=True, slots=True, kw_only=True)
class CounterLine:
    """One counter of the report: what was counted at which level, what is expected, and a word if it is off."""

    level: Literal["hlo", "mosaic", "schedule"]
    name: str
    count: int
    expected: str
    remark: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Edit:
    """The block of the input `window` along `axis`, counted from the end, made `new` instead of `size`.

    `constants` are those of kernel.py that set it: several where their values do not tell which; none where that is
    not known.
    """

    window: str
    axis: int
    size: int
    new: int
    constants: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Hint:
    """What to try next: what was observed, the rule that it falls under, one concrete change and what it may gain.

    `rule` is the name of the rule, `because` its sentence and `rule_source` where that was published. `kind` is the
    kind of change (see advice/kernel_changes.py), "" where the advice is to change nothing. `gain` is the fraction of
    the time that the change saves at most, None where nothing known bounds it; `gain_source` says what bounds it.
    Each of the `edits` follows the advice. `ranked_by` is the share of the time by which hints are ordered: a simulated
    edit's gain, a bound weighed by what such advice was worth, of an unknown gain a part of what its cause takes; None
    for what comes before all others.
    """

    observation: str
    suggestion: str
    rule: str = ""
    because: str = ""
    rule_source: str = ""
    kind: str = ""
    gain: float | None = None
    gain_source: str = ""
    edits: tuple[Edit, ...] = ()
    ranked_by: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Ceiling:
    """What the simulator says that the same schedule would take if `resource` cost nothing or half (new / old)."""

    resource: Literal["memory", "MXU"]
    time_ratio: float
    words: str


@dataclass(frozen=True, slots=True, kw_only=True)
class UnitUse:
    """How much of a functional unit a run used: issue slots of those offered; cycles busy of all, if known."""

    name: str
    slot_fraction: float
    busy_fraction: float | None

    @property
    def used_fraction(self) -> float:
        """The larger of the two: the same operations cannot take less than this of the cycles, however scheduled."""
        return max(self.slot_fraction, self.busy_fraction or 0.0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Share:
    """A part of a whole: what it is, the source line that it belongs to (0: none), and its fraction."""

    name: str
    fraction: float
    line: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class CycleShares:
    """Where a simulated run's cycles go, for a glance. `parts` sum to 1, and so do `spill_lines`.

    `hottest` are the lines that cost most, as fractions of all cycles; `spill_fraction` is the
    least that spilling costs, as such a fraction; `spill_lines` share the bytes that are saved
    and restored. Bytes are per grid step, None where the schedule does not tell how many ran.
    """

    cycles: float
    clock_hz: float
    parts: tuple[Share, ...]
    bubble_fraction: float
    hottest: tuple[Share, ...]
    spilled_bytes_per_step: float | None
    filled_bytes_per_step: float | None
    spill_fraction: float
    spill_lines: tuple[Share, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class MemberReport:
    """What the evidence about one member of a suite means; `weight` is its share of the score."""

    name: str
    weight: float
    report: "Report"


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """What the evidence means, all of it derived. Times in seconds, rates per second, fractions of 1.

    `hbm_bytes` are actual bytes with re-reads; `traffic_source` names where they come from.
    Everything that needs a latency is None where there is none. Of a suite times and rates are weighted geometric
    means, and what such a mean does not mean (regime, gap, counters) is in `members` alone. `hints` are there in
    documents alone: elsewhere advice stands beside the report.
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
    cycle_shares: CycleShares | None = None
    members: tuple[MemberReport, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One attempt as the results table shows it; small enough to ride in a commit message.

    `commit` is the branch commit of an accept, the log commit of anything else (empty: only
    its file in `experiments/` is known here). `time_ratio` is against the champion of its time.
    `key` is the whole key behind `key_digest`, which stands for the timing key. `is_on_branch`
    is False for an accept in the log that no branch here holds, None where that does not apply or is not known.
    `revokes` are the attempts whose title a `revoke` took, `holder` the one that it gave the title to. Of a suite
    `members` are the names of its members and their times. `looked_at` is how many programs the sweep looked at whose
    best this is, 0 where it came of none; None: an older record, which does not say. `schedule` is the digest of what
    it compiles to, `certificate` the beginning of that of its certificate, "" where they are not known.
    """

    number: int
    kind: Kind
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
    is_on_branch: bool | None = None
    revokes: tuple[int, ...] = ()
    holder: int | None = None
    members: tuple[tuple[str, float | None], ...] = ()
    looked_at: int | None = None
    schedule: str = ""
    certificate: str = ""

    @property
    def is_title(self) -> bool:
        """True if the attempt itself became the champion: accepted, and neither an undo nor a revoke."""
        return self.outcome == "accept" and self.kind not in TITLE_MOVES


@dataclass(frozen=True, slots=True, kw_only=True)
class Status:
    """Where a person stands in a contest.

    `champion` is the newest accepted attempt with the champion's program, `won_by` the one that won the title with it.
    """

    contest: str
    branch: str
    champion: Row | None
    won_by: Row | None
    next_number: int
    key: Key
    key_digest: str
    kernel_state: str
    dirty_judge_files: tuple[str, ...] = ()
    log: LogState = "none"
    messages: tuple[str, ...] = ()
