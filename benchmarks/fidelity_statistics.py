"""The statistics of FIDELITY.md: errors against the published times, their cross-validation, and pairs of rows."""

import csv
import dataclasses
from pathlib import Path

import numpy as np
import numpy.typing as npt
from scipy import stats

from harness.judge.simulate.profiled import PUBLISHED, Measurement

DATA = Path(__file__).parent / "data" / "measured_attention.tsv"
CHIPS = {"tpu_v5": "v5p", "tpu_v6_lite": "v6e", "tpu7x": "v7x"}
# Five samples repeat to 0.2 % typically; no row counts for more than that makes it.
SPREAD_FLOOR = 0.005
# As many as lie within one standard deviation of a normal distribution.
ONE_DEVIATION = 0.6827
# What two rows must share for their ratio to count; the judge's number comes from the kind marked by REFERENCE.
KINDS = {
    "chip": ("chip_dir",),
    "chip, width": ("chip_dir", "Dqk"),
    "chip, width, layouts": ("chip_dir", "Dqk", "layouts"),
    "chip, width, layouts, scheduler": ("chip_dir", "Dqk", "layouts", "exp_sched"),
    "these and mask": ("chip_dir", "Dqk", "layouts", "exp_sched", "causal"),
    "these and blocks, not mask": (
        "chip_dir",
        "Dqk",
        "layouts",
        "exp_sched",
        "block_q",
        "block_kv",
        "block_kv_compute",
    ),
    "same shape, other mask": ("chip_dir", "B", "S", "Hq", "Dqk", "Dv"),
}
REFERENCE = "chip, width, layouts, scheduler"
# Chips whose pairs are looked at together, by the size of their matrix units: of v6e alone there are 17.
GENERATIONS = (("v5p",), ("v6e", "v7x"))

Vector = npt.NDArray[np.float64]
Row = dict[str, str]


def rows() -> list[Row]:
    """The published measurements, in the order of the file."""
    lines = [line for line in DATA.read_text(encoding="utf-8").splitlines() if not line.startswith("#")]
    return list(csv.DictReader(lines, delimiter="\t"))


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    """One row simulated: seconds, those of them that a profile shows, and what one pass over its boundary takes."""

    seconds: float | None
    result_copy_seconds: float
    argument_copy_seconds: float
    boundary_pass_seconds: float
    steps: int | None
    unknown: tuple[str, ...]


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Table:
    """Published and predicted seconds of all rows; `held_out` with the measurement's constants fitted to all others."""

    chips: tuple[str, ...]
    measured: Vector
    predicted: Vector
    held_out: Vector
    weights: Vector
    fitted: Measurement

    def errors(self, held_out: bool = False) -> Vector:
        """Predicted over measured, less one."""
        return (self.held_out if held_out else self.predicted) / self.measured - 1


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Columns:
    """What the constants of the measurement multiply, per row, in seconds; weights have mean 1."""

    measured: Vector
    weights: Vector
    base: Vector
    copies: Vector
    one_pass: Vector

    def predicted(self, how: Measurement) -> Vector:
        """Seconds per row as a profile would show them."""
        return (
            self.base + how.fixed_seconds + how.argument_copy_share * self.copies + how.boundary_passes * self.one_pass
        )

    def only(self, rows: npt.NDArray[np.bool_]) -> "Columns":
        """Some of the rows."""
        return Columns(**{field.name: getattr(self, field.name)[rows] for field in dataclasses.fields(self)})


def columns(published: list[Row], results: list[Result]) -> Columns:
    """The rows' columns; a row counts the less, the worse its five samples repeat."""
    spread = np.array([float(row["spread_pct"]) / 100 for row in published])
    weights = 1 / np.hypot(spread, SPREAD_FLOOR)
    return Columns(
        measured=np.array([float(row["median_ms"]) * 1e-3 for row in published]),
        weights=weights / weights.mean(),
        base=np.array([(r.seconds or 0.0) - r.result_copy_seconds - r.argument_copy_seconds for r in results]),
        copies=np.array([result.argument_copy_seconds for result in results]),
        one_pass=np.array([result.boundary_pass_seconds for result in results]),
    )


def fitted(data: Columns) -> Measurement:
    """The constants of the measurement with which the weighted sum of relative errors is least; two on a grid."""
    best: tuple[float, Measurement] | None = None
    for share in np.linspace(0, 1, 11):
        for fixed in np.linspace(0, 100e-6, 21):
            rest = data.measured - data.base - fixed - share * data.copies
            ratio = rest / data.one_pass
            order = np.argsort(ratio)
            mass = np.cumsum((data.weights * data.one_pass / data.measured)[order])
            passes = float(ratio[order][np.searchsorted(mass, mass[-1] / 2)])
            how = Measurement(boundary_passes=passes, fixed_seconds=float(fixed), argument_copy_share=float(share))
            loss = mean_error(data, how)
            if best is None or loss < best[0]:
                best = loss, how
    assert best is not None
    return best[1]


def mean_error(data: Columns, how: Measurement) -> float:
    """The weighted mean of the absolute relative errors."""
    return float(np.average(np.abs(data.predicted(how) / data.measured - 1), weights=data.weights))


def compare(published: list[Row], results: list[Result]) -> Table:
    """All rows against the published times; each also predicted with the constants fitted to all others."""
    data = columns(published, results)
    held_out = np.empty_like(data.measured)
    for i in range(len(held_out)):
        others = np.arange(len(held_out)) != i
        held_out[i] = data.predicted(fitted(data.only(others)))[i]
    return Table(
        chips=tuple(CHIPS[row["chip_dir"]] for row in published),
        measured=data.measured,
        predicted=data.predicted(PUBLISHED),
        held_out=held_out,
        weights=data.weights,
        fitted=fitted(data),
    )


def quantile(values: Vector, weights: Vector, fraction: float) -> float:
    """The weighted quantile of `values`."""
    order = np.argsort(values)
    mass = np.cumsum(weights[order]) - weights[order] / 2
    return float(np.interp(fraction * weights.sum(), mass, values[order]))


def summary(table: Table, held_out: bool = False) -> list[list[str]]:
    """Per chip and over all: rows, median and 90th percentile of absolute error, bias, rank correlation."""
    lines = []
    errors = table.errors(held_out)
    for name in (*dict.fromkeys(table.chips), "all"):
        here = np.array([name in (chip, "all") for chip in table.chips])
        error, weight = errors[here], table.weights[here]
        lines.append(
            [
                name,
                str(int(here.sum())),
                f"{100 * quantile(np.abs(error), weight, 0.5):.1f} %",
                f"{100 * quantile(np.abs(error), weight, 0.9):.1f} %",
                f"{100 * quantile(error, weight, 0.5):+.1f} %",
                f"{rank_correlation(table, name, held_out):.4f}" if name != "all" else "",
            ]
        )
    return lines


def rank_correlation(table: Table, chip: str, held_out: bool = False) -> float:
    """How well the order of the chip's rows is predicted: Spearman's, 1 is perfect."""
    here = np.array([chip == other for other in table.chips])
    predicted = table.held_out if held_out else table.predicted
    return float(stats.spearmanr(predicted[here], table.measured[here]).statistic)


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Pairs:
    """Pairs of rows (each once): their numbers, chip, absolute error of the ratio, and how far apart; both as logs."""

    first: npt.NDArray[np.int_]
    second: npt.NDArray[np.int_]
    chips: tuple[str, ...]
    errors: Vector
    distances: Vector

    def within(self, fraction: float) -> float:
        """The error that `fraction` of the pairs do not exceed."""
        return float(np.quantile(self.errors, fraction))

    def only(self, which: npt.NDArray[np.bool_]) -> "Pairs":
        """Some of the pairs."""
        return Pairs(
            first=self.first[which],
            second=self.second[which],
            chips=tuple(chip for chip, wanted in zip(self.chips, which, strict=True) if wanted),
            errors=self.errors[which],
            distances=self.distances[which],
        )

    def on(self, *chips: str) -> npt.NDArray[np.bool_]:
        """Which pairs are of one of `chips`."""
        return np.array([chip in chips for chip in self.chips])


def pairs(table: Table, published: list[Row], shared: tuple[str, ...]) -> Pairs:
    """All pairs of rows that agree in the columns `shared`."""
    kind = [tuple(row[name] for name in shared) for row in published]
    found = [(i, j) for i in range(len(kind)) for j in range(i) if kind[i] == kind[j]]
    first, second = np.array(found, dtype=int).reshape(-1, 2).T
    errors, times = np.log1p(table.errors()), np.log(table.predicted)
    return Pairs(
        first=first,
        second=second,
        chips=tuple(table.chips[i] for i in first),
        errors=np.abs(errors[first] - errors[second]),
        distances=np.abs(times[first] - times[second]),
    )


def coverage_without(found: Pairs, groups: list[npt.NDArray[np.bool_]], fraction: float) -> float:
    """How many pairs of all groups lie within the quantile of the pairs that are not in their group: held out."""
    inside = sum(int((found.errors[group] <= found.only(~group).within(fraction)).sum()) for group in groups)
    return inside / sum(int(group.sum()) for group in groups)


def leave_row_out(found: Pairs) -> list[npt.NDArray[np.bool_]]:
    """Groups for coverage_without: for each row the pairs that it is in."""
    each = sorted({*found.first.tolist(), *found.second.tolist()})
    return [(found.first == row) | (found.second == row) for row in each]


def leave_chip_out(found: Pairs) -> list[npt.NDArray[np.bool_]]:
    """Groups for coverage_without: the pairs of each chip."""
    return [found.on(chip) for chip in dict.fromkeys(found.chips)]


def interval(found: Pairs, fraction: float, draws: int = 2000) -> tuple[float, float]:
    """The 90 % bootstrap interval of a quantile; rows are drawn, not pairs, for pairs that share a row are alike."""
    random = np.random.default_rng(0)
    count = int(max(found.first.max(), found.second.max())) + 1
    values = []
    for _ in range(draws):
        drawn = random.multinomial(count, np.full(count, 1 / count))
        weights = (drawn[found.first] * drawn[found.second]).astype(float)
        if weights.sum():
            values.append(quantile(found.errors, weights, fraction))
    low, high = np.quantile(values, (0.05, 0.95))
    return float(low), float(high)
