"""The record that `ci` produces: the effect of a change to a repository on its contests."""

from dataclasses import dataclass
from typing import Literal

from harness.records.comparison import Comparison

# wrong: the contest fails a check or does not compile. slower: by at least the threshold, in the mean or at a member of
# a suite. fixed: only the base fails. faster: by at least the threshold, in the mean. inconclusive: the machine
# prevented a result, or a latency is not known. new: the base has nothing to compare the contest with.
GateOutcome = Literal["wrong", "slower", "inconclusive", "fixed", "faster", "same", "new", "removed"]
# touched: the change edits prepare.py, but both sides are judged under the base's prepare.py.
PrepareState = Literal["same", "touched", "new"]


@dataclass(frozen=True, slots=True, kw_only=True)
class GatedContest:
    """One contest that the change touches: its folder in the repository, and the change's effect on it.

    `prepare` states the origin of the prepare.py under which both sides are judged. `comparison` is None if there is
    only one side. `seconds` is the simulated time after the change, None if it is unknown or the chip has no simulator.
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

    `other` is the same comparison under the other locked compiler, if asked for.
    """

    base: str
    head: str
    compiler: str
    threshold: float
    contests: tuple[GatedContest, ...]
    other: "Gate | None" = None
