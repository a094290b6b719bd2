"""What decides and what was decided: policy, key, duel, verdict, and the attempt that the ledger stores."""

from dataclasses import dataclass
from typing import Literal

from harness.records.candidate import Failure
from harness.records.evidence import Evidence, Source

Outcome = Literal["accept", "reject", "inconclusive", "failed"]


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
