"""Records derived from evidence: the report, a row of the table, the status of a contest."""

from dataclasses import dataclass
from typing import Literal

from harness.records.evidence import LinkTraffic, Source
from harness.records.verdict import TITLE_MOVES, Key, Kind, Outcome

LogState = Literal["none", "no remote", "pushed", "not pushed", "not fetched"]


@dataclass(frozen=True, slots=True, kw_only=True)
class CounterLine:
    """One counter of the report: its level, its count, the expected range, and a remark on a count outside it."""

    level: Literal["hlo", "mosaic", "schedule"]
    name: str
    count: int
    expected: str
    remark: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Edit:
    """A change of a block's size along one axis of the input `window`, from `size` to `new`.

    `axis` counts from the last axis.

    `constants` are the constants of kernel.py that may set the size: several if it is unclear which of them sets it,
    none if no constant is known.
    """

    window: str
    axis: int
    size: int
    new: int
    constants: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Hint:
    """A suggestion: the observation, the rule behind it, one concrete change and its possible gain.

    - `rule`: the name of the rule. `because`: its sentence. `rule_source`: its publication.
    - `kind`: the kind of change (advice/kernel_changes.py); "" if the advice is to change nothing.
    - `gain`: the fraction of the time that the change saves, simulated or an upper bound, as `gain_source` states; None
      if unknown.
    - `edits`: changes of block sizes, each of which follows the advice.
    - `ranked_by`: the share of the time by which hints are ordered. It is the gain of a simulated edit; or a bound,
      weighted by the past success of such advice; or, if the gain is unknown, a part of the time that the cause takes.
      A hint whose `ranked_by` is None comes first.
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
    """The simulated time ratio (new / old) of the same schedule if `resource` cost nothing or half as much."""

    resource: Literal["memory", "MXU"]
    time_ratio: float
    words: str


@dataclass(frozen=True, slots=True, kw_only=True)
class UnitUse:
    """Use of a functional unit in a run: the used fraction of its issue slots, and its busy fraction of the cycles.

    `busy_fraction` is None if it is not known.
    """

    name: str
    slot_fraction: float
    busy_fraction: float | None

    @property
    def used_fraction(self) -> float:
        """The larger fraction: any schedule of the same operations needs at least this fraction of the run's cycles."""
        return max(self.slot_fraction, self.busy_fraction or 0.0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Share:
    """A part of a whole: its name, the source line that it belongs to (0: none), and its fraction."""

    name: str
    fraction: float
    line: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class CycleShares:
    """A summary of a simulated run's cycles. `parts` sum to 1, and so do `spill_lines` if anything is spilled.

    `hottest` are the lines that cost most, as fractions of all cycles; `spill_fraction` is a lower bound on the cost of
    spilling, also as a fraction of all cycles; `spill_lines` are the lines' shares of the bytes saved and restored.
    Bytes are per grid step, None if the schedule does not show how many steps ran.
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
class Communication:
    """The waits of several chips for each other, and the traffic of their links.

    `floor_seconds` is the least time that the links allow. `exposed_seconds` is the time for which the chip that ends
    last waits for other chips. `busiest` is the direction of a link that carries most bytes. `needed_bytes` are the
    bytes that this direction would carry if the bytes that come to a chip were spread evenly over all links of the
    chip.
    """

    chips: int
    floor_seconds: float
    needed_bytes: int
    exposed_seconds: float
    busiest: LinkTraffic
    busy_fraction: float
    links: tuple[LinkTraffic, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class MemberReport:
    """The report on one member of a suite; `weight` is its share of the score."""

    name: str
    weight: float
    report: "Report"


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """Figures derived from evidence. Times in seconds, rates per second, fractions of 1.

    `hbm_bytes` are actual bytes with re-reads; `traffic_source` names their source. Figures that need a latency are
    None without a latency. For a suite, times and rates are weighted geometric means; figures for which a mean has no
    meaning (regime, gap, counters) are only in `members`. `hints` are filled only in documents; elsewhere the advice
    is passed along with the report.
    """

    chip: str
    source: Source
    seconds: float | None
    plus_minus_seconds: float | None
    flops_per_second: float | None
    util: float | None
    mxu_util: float | None
    score: float | None
    regime: Literal["compute-bound", "memory-bound", "link-bound", "latency-bound"] | None
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
    communication: Communication | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One attempt as the results table shows it; small enough for a commit message.

    - `commit` is the branch commit of an accept, the log commit of any other attempt (empty: only the attempt's file in
      `experiments/` is known here). `time_ratio` is against the champion at the time of the attempt.
    - `key_digest` is a hash of the timing key; `key` is the whole key. `is_on_branch` is False for an accept in the log
      that no branch here holds, None if inapplicable or unknown.
    - `revokes` are the attempts that lost their title in a `revoke`, `holder` is the attempt that got the title.
    - `members` are the names of a suite's members and their times.
    - `looked_at` is the number of programs from which the sweep chose this one; 0: no sweep, None: an older record.
    - `schedule` is the digest of the compiled program, `certificate` the beginning of its certificate's digest, "" if
      not known.
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
    """The state of a contest.

    `champion` is the newest accepted attempt with the champion's program, `won_by` the attempt that won the title with
    that program.
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
