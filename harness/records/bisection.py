"""The record that `bisect` produces: the change of the history that made a kernel slower, spill more or fail."""

from dataclasses import dataclass
from typing import Literal

from harness.records.comparison import Comparison

Metric = Literal["time", "spills", "correctness"]


@dataclass(frozen=True, slots=True, kw_only=True)
class JudgedVersion:
    """One kernel of the history under the present judge. `is_bad` is None if judging failed, as `failure` states.

    `spills` are executed saves of vector registers to VMEM, summed over the members of a suite.
    """

    name: str
    title: str
    seconds: float | None
    spills: int | None
    failure: str
    is_bad: bool | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Bisection:
    """A bisection by `metric` between a good kernel and a bad one.

    `suspects` are the changes that may have made the kernel worse: one change if every kernel in between could be
    judged. `judged` are in the order of judging, the two ends first; `kernels` counts the different kernels in the
    history, both ends included. `comparison` compares the first bad kernel with its predecessor.
    """

    metric: Metric
    chip: str
    threshold: float
    kernels: int
    judged: tuple[JudgedVersion, ...]
    suspects: tuple[str, ...]
    comparison: Comparison | None
