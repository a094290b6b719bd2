"""Results of looking back at a ledger: damage, drift under the present judge, accuracy of expected gains."""

from dataclasses import dataclass

from harness.records.evidence import Draw, Source
from harness.records.verdict import Change, Outcome


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """A disagreement between parts of a ledger. `kind` is stable for programs."""

    kind: str
    where: str
    what: str
    remedy: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Audit:
    """A ledger checked against itself: counts of what was checked, and the findings; `notes` are facts, not faults.

    `kernels` counts the kernel.py files whose hash was recomputed, `records` the records decoded and derived anew.
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
    """The result of judging a kernel, at its attempt or in a replay.

    `tightest` is the check whose error came nearest to its tolerance, and this error as a fraction of the tolerance.
    `certificate` has the shortened digests of its programs' certificates; "" if a program has none.
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
class RepeatedCheck:
    """A recorded check, repeated with its own seed: errors as fractions of the tolerance, None if bits are compared.

    If it could not be repeated, `passes_now` is None, for the reason in `why_not`.
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
    """Attempt `number` judged again by the present judge, on fresh inputs and on the recorded ones; nothing is stored.

    `differences` lists in words the changes of key, policy and problem since the attempt. `drift` is seconds now /
    then, None if one of the two is not known or their sources, chips or problems differ. `changes` are the counters
    that differ. `redrawn` are the recorded checks, each repeated with its own seed; `are_same_draws` is False if judge
    or problem changed, so that a seed may draw other inputs.
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
    redrawn: tuple[RepeatedCheck, ...] = ()
    are_same_draws: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class Calibration:
    """Expected gains compared with actual ones.

    `stated` counts the attempts with an expectation, `compared` those of them that also have a time ratio. Gains are
    1 - time ratio. `same_sign`: attempts that gained as expected, or lost as expected. `within_factor`:
    attempts that gained between half and twice the expected gain. `median_ratio` is the median of actual / expected
    gain, None if too few attempts can be compared.
    """

    stated: int
    compared: int
    same_sign: int
    within_factor: int
    median_ratio: float | None
