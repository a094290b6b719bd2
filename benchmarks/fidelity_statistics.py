"""The statistics of FIDELITY.md: errors against the published times, by kind, chip and purpose, and pairs of rows."""

import dataclasses
import json
from collections import Counter
from collections.abc import Callable, Iterable
from itertools import combinations
from math import ceil
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from fidelity_rows import FIGURES, table
from scipy import optimize, stats

OTHERS = Path(__file__).parent / "data" / "fidelity_others.json"
# The shares within one and two standard deviations of a normal distribution.
ONE_DEVIATION = 0.6827
TWO_DEVIATIONS = 0.95
# Kinds of operations, as the goals name them: the first of these words that an operation's name contains decides.
KINDS = {
    "attention_vjp": "attention backward",
    "attention": "attention forward",
    "ragged_dot": "ragged dot",
    "cross_entropy": "cross-entropy",
    "normalization": "normalization",
    "gated_linear_unit": "gated linear unit",
}
OTHER = "other"
Vector = npt.NDArray[np.float64]


def kind_of(operation: str) -> str:
    """The kind of an operation, by its name."""
    return next((kind for word, kind in KINDS.items() if word in operation), OTHER)


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Point:
    """One row of the page.

    `predicted_seconds` was simulated before a validation row's time was read. Rows of purpose `earlier` were predicted
    by a simulator that has changed since.
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
    calls: int
    waits_for_transfers: float
    waits_for_units: float

    @property
    def error(self) -> float:
        """Predicted over measured time, less one; without a prediction, simulated over measured time."""
        return (self.predicted_seconds or self.simulated_seconds) / self.measured_seconds - 1

    @property
    def kind(self) -> str:
        """The kind of the row's operation."""
        return kind_of(self.operation)

    @property
    def operation_seconds(self) -> float:
        """The average time of one of the program's HLO operations."""
        return self.simulated_seconds / max(1, self.calls)


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
    row_points = []
    for line in table(FIGURES):
        values: dict[str, Any] = dict(line)
        values |= {name: float(line[name]) if line[name] else None for name in _NUMBERS}
        values["calls"] = int(line["calls"])
        row_points.append(Point(**values))
    return row_points


def write(row_points: Iterable[Point]) -> None:
    """Writes the rows of the page."""
    names = [field.name for field in dataclasses.fields(Point)]
    lines = [_SOURCE, "\t".join(names)]
    for point in row_points:
        values = (getattr(point, name) for name in names)
        lines.append("\t".join("" if v is None else f"{v:.6g}" if isinstance(v, float) else str(v) for v in values))
    FIGURES.write_text("\n".join(lines) + "\n", encoding="utf-8")


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Others:
    """The pages' figures on rows without a point: how many have each purpose, and why some have no latency.

    `without`: operation, chip, reason and number of rows. `compiler`: the versions that compiled all rows.
    """

    compiler: str
    rows: dict[str, int]
    without: list[tuple[str, str, str, int]]


def others() -> Others:
    """The Others of the last `fidelity.py --write`."""
    return Others(**json.loads(OTHERS.read_text(encoding="utf-8")))


def write_others(other_figures: Others) -> None:
    """Keeps the Others for the pages."""
    OTHERS.write_text(json.dumps(dataclasses.asdict(other_figures), indent=1) + "\n", encoding="utf-8")


SEALED = Path(__file__).parent / "data" / "fidelity_sealed.tsv"


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class StatedErrors:
    """Errors of some rows in percent, as text.

    `most` is the 90th percentile. An empty string means that the error is not known.
    """

    operation: str
    chip: str
    rows: str = ""
    median: str
    most: str
    worst: str = ""
    within_one: str = ""
    within_two: str = ""


def sealed() -> list[StatedErrors]:
    """Errors of the simulator of 2026-11-22 on times that it predicted before the comparison: first all rows."""
    return [StatedErrors(**line) for line in table(SEALED)]


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Summary:
    """Median, 90th percentile and worst of some rows' absolute errors; their bias is the median error with its sign."""

    rows: int
    median: float
    most: float
    worst: float
    bias: float


def summary(row_points: list[Point]) -> Summary:
    """The Summary of one row or more."""
    errors = np.array([point.error for point in row_points])
    size = np.abs(errors)
    return Summary(
        rows=len(row_points),
        median=float(np.median(size)),
        most=float(np.quantile(size, 0.9)),
        worst=float(size.max()),
        bias=float(np.median(errors)),
    )


def grouped(row_points: Iterable[Point], key: Callable[[Point], str]) -> dict[str, list[Point]]:
    """The rows grouped by `key`, in sorted order."""
    groups: dict[str, list[Point]] = {}
    for point in sorted(row_points, key=key):
        groups.setdefault(key(point), []).append(point)
    return groups


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Spread:
    """The scatter of errors: a fraction of the time for each chip's programs, and seconds for each operation called."""

    by_chip: dict[str, float]
    operation_seconds: float

    def of(self, point: Point) -> float:
        """The scale of the row's logarithmic error."""
        return float(np.hypot(self.by_chip[point.chip], self.operation_seconds / point.operation_seconds))


# Programs whose operations take less than this on average are short: a fetch and a store are much of each operation.
SHORT_SECONDS = 20e-6
# The most likely value is 0.11 us an operation, but then only 59 % of the short rows lie within the 68 % interval, each
# operation left out in turn. With the value here 69 % do, and no chip is covered worse: CALIBRATION_HISTORY.md.
LEAST_OPERATION_SECONDS = 0.25e-6
# Errors have longer tails than a normal distribution: they follow Student's, with this many degrees of freedom.
_FREEDOM = 4


def log_error(point: Point) -> float:
    """The error as a logarithm, so that twice and half the time are equally far off."""
    return float(np.log1p(point.error))


def spread(row_points: Iterable[Point]) -> Spread:
    """The most likely scatter of these rows' errors."""
    rows = list(row_points)
    chips = sorted({point.chip for point in rows})
    errors = np.array([log_error(point) for point in rows])
    chip = np.array([chips.index(point.chip) for point in rows])
    rate = np.array([1e-6 / point.operation_seconds for point in rows])

    def unlikely(logs: Vector) -> float:
        scale = np.hypot(np.exp(logs[chip]), np.exp(logs[-1]) * rate)
        density = stats.t.logpdf(errors / scale, _FREEDOM) - np.log(scale)
        return -float(density.sum())

    start = np.log([0.03] * len(chips) + [0.3])
    bounds = [(np.log(1e-3), np.log(3))] * len(chips) + [(np.log(1e6 * LEAST_OPERATION_SECONDS), np.log(3))]
    logs = optimize.minimize(unlikely, start, method="L-BFGS-B", bounds=bounds).x
    return Spread(
        by_chip={name: float(np.exp(log)) for name, log in zip(chips, logs, strict=False)},
        operation_seconds=float(np.exp(logs[-1])) * 1e-6,
    )


def scores(row_points: Iterable[Point]) -> Vector:
    """Each row's error, divided by the error to expect from the other rows."""
    rows = list(row_points)
    return np.array([abs(log_error(row)) / spread(p for p in rows if p is not row).of(row) for row in rows])


def left_out(row_points: Iterable[Point]) -> list[tuple[Point, bool, bool]]:
    """Each row, and whether its error is within the 68 and 95 % bounds that the rows of all other operations give.

    Rows of a chip's only operation are omitted, because no other rows say what to expect.
    """
    rows = list(row_points)
    within = []
    for kind in sorted({_left_out_with(row) for row in rows}):
        others = [row for row in rows if _left_out_with(row) != kind]
        likely = spread(others)
        scored = np.array([abs(log_error(row)) / likely.of(row) for row in others])
        once, mostly = (expected(scored, fraction) for fraction in (ONE_DEVIATION, TWO_DEVIATIONS))
        for row in rows:
            if _left_out_with(row) == kind and row.chip in likely.by_chip:
                score = abs(log_error(row)) / likely.of(row)
                within.append((row, score <= once, score <= mostly))
    return within


def _left_out_with(row: Point) -> str:
    """The name of the group of rows that is left out with this row: its kind, or its operation for XLA's own
    cross-entropy.
    """
    return row.operation if "chunked_xla" in row.operation else row.kind


def expected(scored: Vector, fraction: float) -> float:
    """The score that one more row does not exceed with the probability `fraction`.

    It is the k-th smallest of n with k = fraction (n + 1), rounded up, or the largest if there are too few.
    """
    return float(np.sort(scored)[min(ceil(fraction * (len(scored) + 1)), len(scored)) - 1])


def covered(row_points: Iterable[Point], claimed: Callable[[Point], float]) -> float:
    """The share of the rows whose logarithmic error is within the bound claimed for them."""
    return float(np.mean([abs(log_error(point)) <= claimed(point) for point in row_points]))


def as_of_today(row_points: Iterable[Point]) -> list[Point]:
    """The rows with the errors of today's simulation, whatever was predicted."""
    return [dataclasses.replace(point, predicted_seconds=None) for point in row_points]


# If a chip has fewer unfitted rows than this, its uncertainty is derived from its rows for fitting as well.
FEW = 10


def unfitted(row_points: Iterable[Point]) -> list[Point]:
    """The rows that show the error to expect of a new row, with today's errors.

    These are the rows that no constant was fitted to; of a chip with fewer than FEW such rows, all rows.
    """
    rows = as_of_today(row_points)
    free = Counter(point.chip for point in rows if point.purpose != "fit")
    return [point for point in rows if point.purpose != "fit" or free[point.chip] < FEW]


def rivals(row_points: Iterable[Point]) -> list[tuple[Point, Point]]:
    """Pairs of rows that compute the same problem on the same chip with two operations."""
    groups = grouped(row_points, lambda point: f"{point.chip} {point.kind} {point.problem}")
    pairs = (pair for here in groups.values() for pair in combinations(here, 2))
    return [(a, b) for a, b in pairs if a.operation != b.operation and a.problem]


def pair_error(a: Point, b: Point) -> float:
    """The error of the simulated ratio of two times, against the measured one, as a logarithm."""
    return log_error(a) - log_error(b)
