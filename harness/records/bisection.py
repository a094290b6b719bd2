"""Which change of a contest's history made it slower, spill more or fail: what `bisect` finds out."""

from dataclasses import dataclass
from typing import Literal

from harness.records.comparison import Comparison

Metric = Literal["time", "spills", "correctness"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Judgment:
    """One kernel of the history, judged now. `is_bad` is None where that could not be told, and `failure` says why.

    `spills` are executed saves of vector registers to VMEM, of a suite those of all members.
    """

    name: str
    title: str
    seconds: float | None
    spills: int | None
    failure: str
    is_bad: bool | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Bisection:
    """`suspects` are the changes that may be it: one, where every kernel between could be judged.

    `judged` are in the order in which they were judged, the two ends first; `kernels` is how many different ones the
    history has, both ends included. `comparison` holds the guilty one against the one before it.
    """

    metric: Metric
    chip: str
    threshold: float
    kernels: int
    judged: tuple[Judgment, ...]
    suspects: tuple[str, ...]
    comparison: Comparison | None
