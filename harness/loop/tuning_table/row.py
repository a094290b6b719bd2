"""A row of a table: one shape on one chip, its result, and the file that keeps such rows."""

import math
import os
from dataclasses import dataclass
from pathlib import Path

import msgspec

from harness import files, reading_limits
from harness.judge.verdict import compare_simulated
from harness.loop.search import Settings
from harness.loop.settings import value_of
from harness.records import RefusedSetting, ScreenedSetting
from harness.records.problem import Parameter

# The least and the most time, in seconds.
Ends = tuple[float, float]


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One shape on one chip; times are simulated, in seconds.

    - `settings` is the best setting; None if no setting has a time or a range, for the reason in `failure`.
    - `checks` is the number of checks that the best setting passed; 0 if it is unchecked. The reason is in `unchecked`:
      the three fastest fail, or the machine failed.
    - `tried` of the `possible` settings were tried; `looked_at` of their programs had a latency.
    - `search` is a digest of all that the search depends on: judge, compiler, kernel, grid, number of trials, seed.
    - `trials` are the tried settings in the order in which the search asked for them; of an earlier search that this
      one continued, only those with a latency.
    - `refused` are settings that were judged and fail. `kernel_digest` is a digest of the kernel's text and its judge.
    - `range_seconds` and `fallback_range_seconds` are the least and the most time of a setting that has no latency
      because the SparseCore does a part of it. `is_best_at_both_ends`: no other setting takes less at either end.

    Raises ValueError for impossible numbers: settings that passed without a check or a time, more tried than possible.
    """

    kernel: str
    chip: str
    shape: str
    operation: str
    parameters: tuple[tuple[str, Parameter], ...]
    settings: Settings | None
    seconds: float | None
    plus_minus_seconds: float | None
    fallback: Settings
    fallback_seconds: float | None
    fallback_failure: str
    checks: int
    unchecked: str
    failure: str
    tried: int
    possible: int
    looked_at: int
    compiler: str
    search: str
    finished: str
    # Older rows lack the fields from here on.
    trials: tuple[ScreenedSetting, ...] = ()
    refused: tuple[RefusedSetting, ...] = ()
    kernel_digest: str = ""
    range_seconds: Ends | None = None
    fallback_range_seconds: Ends | None = None
    is_best_at_both_ends: bool = True

    def __post_init__(self) -> None:
        ends = (*(self.range_seconds or ()), *(self.fallback_range_seconds or ()))
        times = (self.seconds, self.fallback_seconds, *ends)
        if any(time_ is not None and not 0 < time_ < math.inf for time_ in times):
            raise ValueError(f"expected times above 0, got {times}")
        if self.plus_minus_seconds is not None and not 0 <= self.plus_minus_seconds < math.inf:
            raise ValueError(f"expected an uncertainty of 0 or more, got {self.plus_minus_seconds} s")
        if any(pair is not None and pair[0] > pair[1] for pair in (self.range_seconds, self.fallback_range_seconds)):
            raise ValueError("expected a range with its lower end first")
        if self.is_entry and (self.best_ends is None or self.checks < 1):
            raise ValueError(
                f"expected an entry with a check, and with a time or a range, got {self.seconds} s, {self.checks} "
                "checks"
            )
        if not 1 <= self.looked_at <= reading_limits.MOST_LOOKED_AT:
            raise ValueError(f"expected looked_at from 1 to {reading_limits.MOST_LOOKED_AT}, got {self.looked_at}")
        if not 0 <= self.tried <= self.possible:
            raise ValueError(f"expected at most the {self.possible} possible settings to be tried, got {self.tried}")
        if any(trial.seconds is not None and not 0 < trial.seconds < math.inf for trial in self.trials):
            raise ValueError("expected times above 0 of the settings that were tried")
        for name, value in self.settings or ():
            try:
                value_of(value)
            except (SyntaxError, ValueError, TypeError, ArithmeticError, MemoryError, RecursionError) as error:
                raise ValueError(f"expected a Python literal or arithmetic as {name}, got {value[:40]!r}") from error

    @property
    def best_ends(self) -> Ends | None:
        """The ends of the best setting's range; if it has a time, both are that time."""
        return self.range_seconds if self.seconds is None else (self.seconds, self.seconds)

    @property
    def fallback_ends(self) -> Ends | None:
        """The ends of the fallback's range; if it has a time, both are that time."""
        seconds = self.fallback_seconds
        return self.fallback_range_seconds if seconds is None else (seconds, seconds)

    @property
    def fallback_ratio(self) -> float | None:
        """The fallback's time / the best setting's; for ranges, the smaller of the ratios at the two ends."""
        if self.best_ends is None or self.fallback_ends is None:
            return None
        return min(other / best for other, best in zip(self.fallback_ends, self.best_ends, strict=True))

    @property
    def is_entry(self) -> bool:
        """True if it has settings that passed every check."""
        return self.settings is not None and not self.unchecked

    @property
    def is_certain(self) -> bool:
        """True if the fallback is the best, or slower by more than the uncertainty, which grows with `looked_at`."""
        if self.settings == self.fallback:
            return True
        # The error of a range is not known.
        if self.seconds is None or self.fallback_seconds is None or self.plus_minus_seconds is None:
            return False
        reach = compare_simulated.deviations(self.looked_at) * self.plus_minus_seconds
        return self.seconds + reach < self.fallback_seconds


def add_row(folder: Path, row: Row) -> None:
    """Adds `row` as a line to rows.jsonl in `folder`. Raises RatchetError `no-space`, `read-only` or `io`."""
    path = folder / "rows.jsonl"
    with files.refusals_in_words(f"writing {path}"), open(path, "ab+") as stream:
        end = stream.seek(0, os.SEEK_END)
        if end:
            stream.seek(end - 1)
        # A kill may have cut the last line off.
        is_torn = bool(end) and stream.read(1) != b"\n"
        stream.write(b"\n" * is_torn + msgspec.json.encode(row) + b"\n")


def rows_in(folder: Path) -> tuple[Row, ...]:
    """The rows in `folder`, without lines that were cut off by a kill or have another format."""
    rows: list[Row] = []
    path = folder / "rows.jsonl"
    if not path.exists():
        return ()
    with files.refusals_in_words(f"reading {path}"):
        lines = reading_limits.read(path).splitlines()
    for line in lines:
        try:
            rows.append(msgspec.json.decode(line, type=Row))
        except msgspec.DecodeError:
            continue
    return tuple(rows)
