"""What looking back at a ledger finds: damage, drift under the present judge, how well expectations were met."""

from dataclasses import dataclass

from harness.records.evidence import Draw, Source
from harness.records.verdict import Change, Outcome


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """Something in a ledger that does not agree with the rest of it. `kind` is stable for programs."""

    kind: str
    where: str
    what: str
    remedy: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Audit:
    """A ledger checked against itself: what was looked at, and what is wrong; `notes` are facts, not faults.

    `kernels` counts the kernel.py whose hash was recomputed, `records` those decoded and derived anew.
    """

    contest: str
    log_commits: int
    records: int
    kernels: int
    accepts: int
    files: int
    findings: tuple[Finding, ...]
    notes: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Judgement:
    """What judging a kernel came to: once when it was attempted, once in a replay.

    `tightest` is the check whose error came nearest to its tolerance, and the fraction of the tolerance it used.
    `certificate` stands for those of its programs, "" where it has none.
    """

    outcome: Outcome
    reasons: tuple[str, ...]
    failure_kind: str
    source: Source
    seconds: float | None
    plus_minus_seconds: float | None
    score: float | None
    time_ratio: float | None
    checks_passed: int
    checks: int
    tightest: tuple[str, float] | None
    fingerprint: str
    certificate: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Redrawn:
    """A recorded check, repeated with its own seed: errors as fractions of the tolerance, None where bits are compared.

    Where nothing of it was repeated `passes_now` is None and `why_not` says why.
    """

    family: str
    draw: Draw
    then: float | None
    passed_then: bool
    now: float | None = None
    passes_now: bool | None = None
    why_not: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Replay:
    """Attempt `number` judged again under the present judge, on fresh inputs and on those of then; nothing is recorded.

    `differences` says in words what is not as it was: key, policy, problem. `drift` is seconds
    now / then, None where one of them is not known or they are of different sources, chips or
    problems. `changes` are the counters that moved. `redrawn` are the recorded checks, each repeated with its
    own seed; `are_same_draws` is False where judge or problem changed since, so that a seed may draw other inputs.
    """

    number: int
    hypothesis: str
    kernel_sha256: str
    then: Judgement
    now: Judgement
    differences: tuple[str, ...]
    drift: float | None
    changes: tuple[Change, ...]
    scratch: str
    redrawn: tuple[Redrawn, ...] = ()
    are_same_draws: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class Calibration:
    """Expected against got, of the attempts that stated an expectation (`stated`) and were compared (`compared`).

    Gains are 1 - time ratio. `same_sign`: gained where a gain was expected, lost where a loss was.
    `within_factor`: got between half and twice the expected gain. `median_ratio` is the median of
    got / expected gain, None where too few say anything.
    """

    stated: int
    compared: int
    same_sign: int
    within_factor: int
    median_ratio: float | None
