"""Two judged kernels held against each other: figures, cycles by kind, cycles by line; `diff` and `ci` make it."""

from dataclasses import dataclass
from typing import Literal

from harness.records.evidence import Source


@dataclass(frozen=True, slots=True, kw_only=True)
class Pair:
    """One number of both, in `unit` or plain; None where it is not known, or is not there."""

    name: str
    unit: Literal["", "B", "cycles"]
    before: float | None
    after: float | None

    @property
    def difference(self) -> float:
        """How much more it is after; what is not there counts as nothing."""
        return (self.after or 0.0) - (self.before or 0.0)


@dataclass(frozen=True, slots=True, kw_only=True)
class LinePair:
    """The simulated cycles of one source line of `file`; its number is None where the other text alone has it.

    `text` is the line as it is after, or was before where it is gone. Lines without a number are what belongs to no
    line: launch, other operations, what the compiler adds.
    """

    file: str
    before_line: int | None
    after_line: int | None
    text: str
    before_cycles: float
    after_cycles: float

    @property
    def difference(self) -> float:
        """How many more cycles it costs after."""
        return self.after_cycles - self.before_cycles


@dataclass(frozen=True, slots=True, kw_only=True)
class ProgramPair:
    """Both at one problem; of a suite at the member `name`, and the mean of all of them, without figures, as "".

    `source` is where both times come from, None where they do not come from one. A time is None where there is none;
    `before_failure` and `after_failure` say what failed. `is_same_program`: both were traced to the same program.
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
        """The time after over the time before; None where they cannot be held against each other, or one side fails."""
        if self.source is None or not self.before_seconds or self.after_seconds is None:
            return None
        if self.before_failure or self.after_failure:
            return None
        return self.after_seconds / self.before_seconds


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """Two texts of kernel.py, what each is called, and both at every problem, the whole first.

    `differing` says why times are not comparable, "" where they are.
    """

    before: str
    after: str
    differing: str
    programs: tuple[ProgramPair, ...]
    diff: str
