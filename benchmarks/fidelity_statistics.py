"""The statistics of FIDELITY.md: errors against the published times, by kind, chip and purpose, and pairs of rows."""

import csv
import dataclasses
from collections.abc import Callable, Iterable
from itertools import combinations
from math import ceil
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy import stats

from harness.judge.simulate.uncertainty import leans_on_memory

FIGURES = Path(__file__).parent / "data" / "fidelity_rows.tsv"
# As many as lie within one and two standard deviations of a normal distribution.
ONE_DEVIATION = 0.6827
TWO_DEVIATIONS = 0.95
# Kinds of operations, as the goals name them: the first word that an operation's name contains decides.
_KINDS = {
    "attention_vjp": "attention backward",
    "attention": "attention forward",
    "ragged_dot": "ragged dot",
    "cross_entropy": "cross-entropy",
    "normalization": "normalization",
    "gated_linear_unit": "gated linear unit",
}
OTHER = "other"
# What is aimed at on validation rows: median, 90th percentile, worst.
GOALS: dict[str, tuple[float, float | None, float | None]] = {
    "attention forward": (0.015, 0.05, 0.12),
    "attention backward": (0.03, 0.08, None),
    "ragged dot": (0.03, 0.08, None),
    "normalization": (0.06, None, None),
    "gated linear unit": (0.06, None, None),
    "cross-entropy": (0.06, None, None),
}

Vector = npt.NDArray[np.float64]


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Point:
    """One row of the page.

    `predicted_seconds` is what was simulated before a validation row's time was read; of purpose `earlier` are those
    that were predicted by a simulator which has changed since.
    """

    row: str
    chip: str
    operation: str
    purpose: str
    problem: str
    measured_seconds: float
    spread: float
    simulated_seconds: float
    predicted_seconds: float | None
    waits_for_transfers: float
    waits_for_units: float

    @property
    def error(self) -> float:
        """Simulated over measured, less one; of a validation row what was predicted."""
        return (self.predicted_seconds or self.simulated_seconds) / self.measured_seconds - 1

    @property
    def kind(self) -> str:
        """What kind of operation it is."""
        return next((kind for word, kind in _KINDS.items() if word in self.operation), OTHER)

    @property
    def leans_on_memory(self) -> bool:
        """Whether it spends much of its time waiting for transfers."""
        return leans_on_memory(self.waits_for_transfers)


_NUMBERS = (
    "measured_seconds",
    "spread",
    "simulated_seconds",
    "predicted_seconds",
    "waits_for_transfers",
    "waits_for_units",
)
_SOURCE = "# measured_seconds, spread: published with tokamax (autotuning data, Apache-2.0). The rest is simulated."


def points() -> list[Point]:
    """The rows of the page, as the last `fidelity.py --write` found them."""
    lines = [line for line in FIGURES.read_text(encoding="utf-8").splitlines() if not line.startswith("#")]
    found = []
    for line in csv.DictReader(lines, delimiter="\t"):
        values: dict[str, Any] = dict(line)
        values |= {name: float(line[name]) if line[name] else None for name in _NUMBERS}
        found.append(Point(**values))
    return found


def write(found: Iterable[Point]) -> None:
    """Writes the rows of the page."""
    names = [field.name for field in dataclasses.fields(Point)]
    lines = [_SOURCE, "\t".join(names)]
    for point in found:
        values = (getattr(point, name) for name in names)
        lines.append("\t".join("" if v is None else f"{v:.6g}" if isinstance(v, float) else str(v) for v in values))
    FIGURES.write_text("\n".join(lines) + "\n", encoding="utf-8")


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Summary:
    """Absolute errors of some rows: median, 90th percentile and worst; their bias; rank correlation of the times."""

    rows: int
    median: float
    most: float
    worst: float
    bias: float
    rank: float | None


def summary(found: list[Point]) -> Summary:
    """Of at least one row."""
    errors = np.array([point.error for point in found])
    size = np.abs(errors)
    simulated = [point.predicted_seconds or point.simulated_seconds for point in found]
    measured = [point.measured_seconds for point in found]
    # A rank correlation of three rows says nothing.
    rank = float(stats.spearmanr(simulated, measured).statistic) if len(found) > 3 else None
    return Summary(
        rows=len(found),
        median=float(np.median(size)),
        most=float(np.quantile(size, 0.9)),
        worst=float(size.max()),
        bias=float(np.median(errors)),
        rank=rank,
    )


def grouped(found: Iterable[Point], key: Callable[[Point], str]) -> dict[str, list[Point]]:
    """The rows by what `key` says of them, in sorted order."""
    groups: dict[str, list[Point]] = {}
    for point in sorted(found, key=key):
        groups.setdefault(key(point), []).append(point)
    return groups


def within(found: Iterable[Point], fraction: float) -> float:
    """The relative error that `fraction` of the rows do not exceed, as a logarithm."""
    return float(np.quantile(np.abs(np.log1p([point.error for point in found])), fraction))


def earned(found: Iterable[Point], fraction: float) -> float:
    """The relative error, as a logarithm, within which one more row like these lies with that probability.

    The k-th smallest of n errors with k = fraction (n + 1), rounded up, or the largest if there are too few: the
    quantile itself would promise too much, for the constants were fitted to these rows.
    """
    errors = np.sort(np.abs(np.log1p([point.error for point in found])))
    return float(errors[min(ceil(fraction * (len(errors) + 1)), len(errors)) - 1])


def covered(found: Iterable[Point], claimed: Callable[[Point], float]) -> float:
    """How many of the rows have an error within what is claimed for each."""
    return float(np.mean([abs(np.log1p(point.error)) <= claimed(point) for point in found]))


def pair_errors(found: list[Point]) -> Vector:
    """Of each pair of rows of one chip and operation: how far the simulated ratio is off the measured one, as a log."""
    same = (pair for pair in combinations(found, 2) if pair[0].chip == pair[1].chip)
    pairs = ((a, b) for a, b in same if a.operation == b.operation)
    return np.array([abs(np.log1p(a.error) - np.log1p(b.error)) for a, b in pairs])
