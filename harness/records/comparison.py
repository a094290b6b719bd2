"""Two judged kernels compared: figures, cycles by kind, cycles by line; made by `diff` and `ci`."""

from dataclasses import dataclass
from typing import Literal

from harness.records.evidence import Source


@dataclass(frozen=True, slots=True, kw_only=True)
class Pair:
    """One figure of both kernels, in `unit` or without a unit; None if it is unknown or does not apply."""

    name: str
    unit: Literal["", "B", "cycles"]
    before: float | None
    after: float | None

    @property
    def difference(self) -> float:
        """Increase from before to after; None counts as 0."""
        return (self.after or 0.0) - (self.before or 0.0)


@dataclass(frozen=True, slots=True, kw_only=True)
class LinePair:
    """The simulated cycles of one source line of `file`; a line number is None if only the other text has the line.

    `text` is the line after the change, or before it if the change removed the line. Both line numbers are None for
    cycles of no line: launch, other operations, code that the compiler adds.
    """

    file: str
    before_line: int | None
    after_line: int | None
    text: str
    before_cycles: float
    after_cycles: float

    @property
    def difference(self) -> float:
        """Increase in cycles from before to after."""
        return self.after_cycles - self.before_cycles


@dataclass(frozen=True, slots=True, kw_only=True)
class ProgramPair:
    """Both kernels at one problem: the member `name` of a suite, or "" for a single problem and for the suite's mean.

    A suite's mean has no figures. `source` is the source of both times, None if the times cannot be compared. A time is
    None if it is not known; `before_failure` and `after_failure` are "" without a failure. `is_same_program`: both
    texts trace to the same program.
    """

    name: str
    chip: str
    source: Source | None
    before_seconds: float | None
    after_seconds: float | None
    before_failure: str
    after_failure: str
    is_same_program: bool
    figures: tuple[Pair, ...] = ()
    parts: tuple[Pair, ...] = ()
    lines: tuple[LinePair, ...] = ()

    @property
    def time_ratio(self) -> float | None:
        """Time after / time before; None if the two cannot be compared, or one side fails."""
        if self.source is None or not self.before_seconds or self.after_seconds is None:
            return None
        if self.before_failure or self.after_failure:
            return None
        return self.after_seconds / self.before_seconds


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """Two texts of kernel.py by name, compared at every problem, the whole suite first.

    `differing` is the reason why times are not comparable, "" if they are.
    """

    before: str
    after: str
    differing: str
    programs: tuple[ProgramPair, ...]
    diff: str
