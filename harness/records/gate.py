"""What a change in a repository does to its contests: what `ci` finds out about each."""

from dataclasses import dataclass
from typing import Literal

from harness.records.comparison import Comparison

# wrong: it fails a check or does not compile. slower: by the threshold at least, in the mean or at a member of a suite.
# fixed: only the base fails. faster: by the threshold at least in the mean. inconclusive: the machine, or a latency
# that is not known, kept it from being told. new: there is nothing to hold it against.
GateOutcome = Literal["wrong", "slower", "inconclusive", "fixed", "faster", "same", "new", "removed"]
# touched: it was changed, and is judged under the base's all the same.
PrepareState = Literal["same", "touched", "new"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Gated:
    """One contest that the change touches: its folder in the repository, and what the change does to it.

    `prepare` says under which prepare.py both sides are judged. `comparison` is None where one side is all there is.
    `seconds` is the simulated time after the change, None where it is unknown or the chip has no simulator.
    """

    contest: str
    outcome: GateOutcome
    reason: str
    prepare: PrepareState
    changed: tuple[str, ...]
    comparison: Comparison | None = None
    seconds: float | None = None
    chip: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Gate:
    """Two commits, and every contest that differs between them; `compiler` judged both sides.

    `other` is the same under the other compiler that is locked, where it was asked for.
    """

    base: str
    head: str
    compiler: str
    threshold: float
    contests: tuple[Gated, ...]
    other: "Gate | None" = None
