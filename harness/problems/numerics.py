"""Whether an answer is right: its error against float64, measured by what honest rounding costs on the same inputs."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from harness.problems.problem import Exact, Problem, Rows, Values
from harness.records import Array, Check, Failure

WORST_FACTOR = 8.0
RMS_FACTOR = 2.0

Mode = Literal["full", "interpret", "device"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Errors:
    """The errors of some rows `[rows, columns]`, in units of what honest rounding costs there."""

    got: Exact
    expected: Exact
    deviation: Exact
    honest: Exact

    @property
    def scaled(self) -> Exact:
        """|got - expected| in standard deviations of honest rounding."""
        return np.abs(self.got - self.expected) / self.deviation

    @property
    def honest_scaled(self) -> Exact:
        """The same of the honest computation."""
        return np.abs(self.honest - self.expected) / self.deviation


def errors(problem: Problem, inputs: Sequence[Values], output: Values, rows: Rows) -> Errors:
    """The errors of `output` at `rows`; costs four passes over the query-key pairs of these rows."""
    return Errors(
        got=output.reshape(-1, output.shape[-1])[rows].astype(np.float64),
        expected=problem.reference(inputs, rows),
        deviation=problem.rounding(inputs, rows),
        honest=problem.honest(inputs, rows),
    )


def check(
    problem: Problem,
    inputs: Sequence[Values],
    outputs: Values | Sequence[Values],
    *,
    family: str,
    mode: Mode,
    seed: int,
) -> tuple[Check, Failure | None]:
    """The check of one call's outputs (flat, in order; a bare array is one output) and, unless it passed, why not.

    Kinds: `wrong-structure`, `wrong-dtype`, `wrong-shape`, `non-finite`, `wrong-result`, in
    this order; the first that applies ends it.
    """
    expected = problem.statement().outputs
    arrays = (outputs,) if isinstance(outputs, np.ndarray) else tuple(outputs)
    failure = _malformed(expected, arrays, family)
    if failure is not None:
        return _unmeasured(expected[0], family, mode, seed), failure
    rows = problem.sample_rows(seed)
    return _judge(errors(problem, inputs, arrays[0], rows), expected[0], rows, family, mode, seed)


def _unmeasured(output: Array, family: str, mode: Mode, seed: int) -> Check:
    return Check(
        family=family, mode=mode, shape=output.shape, seed=seed, elements=0,
        error=None, honest_error=None, tolerance=None, passed=False,
    )  # fmt: skip


def _malformed(expected: Sequence[Array], arrays: Sequence[object], family: str) -> Failure | None:
    """What is wrong with the outputs before any number is compared."""

    def failure(kind: str, message: str) -> Failure:
        return Failure(stage="correctness", kind=kind, message=f"{message} (inputs: {family})")

    if len(arrays) != len(expected):
        return failure("wrong-structure", f"expected {len(expected)} output array, got {len(arrays)}")
    for want, array in zip(expected, arrays, strict=True):
        if not isinstance(array, np.ndarray):
            return failure("wrong-structure", f"expected {want.name} to be an array, got {type(array).__name__}")
        if array.shape != want.shape:
            return failure("wrong-shape", f"expected {want.name} of shape {want.shape}, got {array.shape}")
        if array.dtype.name != want.dtype:
            return failure("wrong-dtype", f"expected {want.name} of dtype {want.dtype}, got {array.dtype.name}")
        bad = ~np.isfinite(array)
        count = int(np.count_nonzero(bad))
        if count:
            first = tuple(int(i) for i in np.unravel_index(int(np.argmax(bad)), bad.shape))
            return failure(
                "non-finite",
                f"{count} of {array.size} outputs are not finite, the first is {want.name}{list(first)} = "
                f"{float(array[first])}; look for uninitialised memory, an overflowing exp or a division by 0",
            )
    return None


def _judge(
    found: Errors, output: Array, rows: Rows, family: str, mode: Mode, seed: int
) -> tuple[Check, Failure | None]:
    scaled, honest = found.scaled, found.honest_scaled
    rms, honest_rms = float(np.sqrt(np.mean(scaled**2))), float(np.sqrt(np.mean(honest**2)))
    # Where the honest computation errs more than its model says, the model gives way.
    unit = max(1.0, honest_rms)
    row, column = (int(i) for i in np.unravel_index(int(np.argmax(scaled)), scaled.shape))
    worst_ratio = float(scaled[row, column]) / (WORST_FACTOR * unit)
    rms_ratio = rms / (RMS_FACTOR * unit)
    deviation = float(found.deviation[row, column])
    if worst_ratio >= rms_ratio:
        criterion: Literal["worst element", "root mean square"] = "worst element"
        values = (float(scaled[row, column]), float(honest.max()), WORST_FACTOR * unit)
    else:
        criterion = "root mean square"
        values = (rms, honest_rms, RMS_FACTOR * unit)
        deviation = float(np.sqrt(np.mean(found.deviation**2)))
    error, honest_error, tolerance = (value * deviation for value in values)
    check = Check(
        family=family, mode=mode, shape=output.shape, seed=seed, elements=scaled.size, error=error,
        honest_error=honest_error, tolerance=tolerance, passed=max(worst_ratio, rms_ratio) <= 1, criterion=criterion,
    )  # fmt: skip
    if check.passed:
        return check, None
    index = [int(i) for i in np.unravel_index(int(rows[row]), output.shape[:-1])] + [column]
    outside = int(np.count_nonzero(scaled > WORST_FACTOR * unit))
    message = (
        f"wrong result on inputs {family!r} (seed {seed}): worst element {output.name}{index}: "
        f"got {found.got[row, column]:.6g}, expected {found.expected[row, column]:.6g}, "
        f"{worst_ratio:.3g} times the tolerance; root mean square error {rms_ratio:.3g} times its tolerance"
    )
    detail = f"{outside} of {scaled.size} compared elements are outside their tolerance"
    return check, Failure(stage="correctness", kind="wrong-result", message=message, detail=detail)
