"""The verdict and its basis: key, paired benchmark, changes, and the attempt that the ledger stores."""

from dataclasses import dataclass
from typing import Literal

from harness.records.candidate import Failure
from harness.records.evidence import Evidence, Source
from harness.records.judging_limits import Policy
from harness.records.revocation import Revocation
from harness.records.sweep import Sweep

Outcome = Literal["accept", "reject", "inconclusive", "failed"]
# `undo` and `revoke` are not attempts at a faster kernel: they give the title back to an earlier kernel.
Kind = Literal["baseline", "experiment", "rebaseline", "undo", "revoke"]
TITLE_MOVES: tuple[Kind, ...] = ("undo", "revoke")


@dataclass(frozen=True, slots=True, kw_only=True)
class Key:
    """Two keys in one record: `checks`, a hash of everything that correctness depends on, and the timing key.

    - The timing key consists of all fields except `checks` and `judge`. Times may be compared if their timing keys are
      equal (judge/key.py).
    - `timing`: a hash of the code and the facts of the chip on which a time depends. `problem`: a hash of the timed
      problem. `machine`: empty for simulated numbers.
    - `judge`: a hash of the whole judge, including the verdict. It is compared only for records before schema 11, which
      have neither `timing` nor `checks`.
    """

    judge: str
    problem: str
    chip: str
    source: Source
    jax: str
    jaxlib: str
    libtpu: str
    machine: str = ""
    timing: str = ""
    checks: str = ""

    @property
    def timed(self) -> tuple[str, ...]:
        """The timing key; times may be compared if their timing keys are equal."""
        versions = (self.jax, self.jaxlib, self.libtpu, self.machine)
        code = ("timing", self.timing) if self.timing else (self.judge,)
        return (*code, self.problem, self.chip, self.source, *versions)

    def counts_for(self, other: "Key") -> bool:
        """True if evidence under this key counts under `other`: the timing keys and the keys of checks are equal."""
        return (self.timed, self.checks) == (other.timed, other.checks)


@dataclass(frozen=True, slots=True, kw_only=True)
class PairedBenchmark:
    """Champion and candidate timed in turn in one process: raw seconds per call, paired by round, in order.

    `control_seconds` is the A/A control: the champion loaded a second time, with its own slot in each round; empty in
    records older than the control. `looks` is the number of looks at the samples until the decision.
    """

    champion_seconds: tuple[float, ...]
    candidate_seconds: tuple[float, ...]
    clock: Literal["device", "host"]
    control_seconds: tuple[float, ...] = ()
    looks: int = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """A number that differs between champion (`before`) and candidate (`after`); `unit` is "" for counts."""

    name: str
    unit: Literal["", "s", "B", "cycles"]
    before: float
    after: float


# The name of the unchanged machine, among the machines on which a pair is simulated again.
NOMINAL = "nominal"
# The same machine under the opposite of the contest's assumption (ASSUME) on branches.
OTHER_WAY = "branches the other way than ASSUME says"


@dataclass(frozen=True, slots=True, kw_only=True)
class MemberTimes:
    """Times of champion and candidate at the member `name` of a suite. None: no time."""

    name: str
    champion_seconds: float | None
    candidate_seconds: float | None

    @property
    def time_ratio(self) -> float | None:
        """Candidate / champion, None if either is not known."""
        return _ratio(self.champion_seconds, self.candidate_seconds)


@dataclass(frozen=True, slots=True, kw_only=True)
class Resimulation:
    """Champion and candidate simulated again, both on the variant `name` of the machine (simulate/machine_variants.py).

    `nominal` is the machine unchanged. Seconds are None if the simulator has no time. For a suite the seconds are
    weighted geometric means, and `members` are those whose program differs from the champion's. The other members keep
    their nominal times, because two equal programs are equally fast on any machine.
    """

    name: str
    champion_seconds: float | None
    candidate_seconds: float | None
    members: tuple[MemberTimes, ...] = ()

    @property
    def time_ratio(self) -> float | None:
        """Candidate / champion, None if either is not known."""
        return _ratio(self.champion_seconds, self.candidate_seconds)


def _ratio(champion_seconds: float | None, candidate_seconds: float | None) -> float | None:
    return candidate_seconds / champion_seconds if champion_seconds and candidate_seconds is not None else None


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """The decision and its reasons. `time_ratio` = candidate / champion, with the interval on which the decision rests.

    - `changes` are the counters that differ from the champion's, the largest relative change first.
    - Measured verdicts only: `attempts_since_accept` counts this attempt and the measured ones since the last accept,
      `error_rate` is the largest chance of accepting a candidate that gains too little.
    - Simulated gains only: `resimulated` is the pair on other machines, on which the gain has to hold.
    - Suites only: `members` are the times at each member.
    """

    outcome: Outcome
    reasons: tuple[str, ...]
    time_ratio: float | None = None
    time_ratio_low: float | None = None
    time_ratio_high: float | None = None
    failure: Failure | None = None
    changes: tuple[Change, ...] = ()
    attempts_since_accept: int | None = None
    error_rate: float | None = None
    resimulated: tuple[Resimulation, ...] = ()
    members: tuple[MemberTimes, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Champion:
    """The attempt that a candidate was judged against."""

    attempt: int
    commit: str
    score: float | None
    seconds: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Attempt:
    """One run of the ratchet, whatever its outcome, as the ledger stores it.

    - `judged_against`: the branch's commit when the attempt began.
    - `champion`: None for a baseline. `champion_evidence` is set if the champion was evaluated again in this attempt.
    - `diff`: the unified diff from the champion's kernel.py to this kernel.py. `settings`: the `--set` rewrites.
    - `expected_time_ratio`: the stated expectation (0.95: 5 % less time).
    - `sweep`: the grid of which this was the best setting; None if there was no sweep. `looked_at`: the number of
      programs from which this program was chosen, in this search or an earlier one.
    - `revocation`: set only in a `revoke`. In a revoke, `champion` is the attempt that lost its title,
      `champion_evidence` shows its failure, and kernel and evidence are those of the attempt that holds the title now.
      If no attempt holds it, kernel and evidence are those of the failed champion, and the outcome is `failed`.
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
    paired: PairedBenchmark | None = None
    expected_time_ratio: float | None = None
    settings: tuple[tuple[str, str], ...] = ()
    diff: str = ""
    kind: Kind = "experiment"
    sweep: Sweep | None = None
    looked_at: int = 1
    revocation: Revocation | None = None
