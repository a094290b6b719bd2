"""The check of an answer: its error against float64, in units of honest rounding on the same inputs.

The factors here apply to every operator. The size of an honest rounding comes from the operator's method `rounding`
(for attention: operators/attention/rounding.py).
"""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Literal, Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from harness.operators.exact import differing, is_exact, is_float, numpy_dtype
from harness.operators.outputs import as_read, by_itself, element, in_rows, row_count, spans
from harness.operators.probes import counted
from harness.operators.problem import Exact, Problem, Rows, Values
from harness.operators.rounding import relative_rounding
from harness.operators.state import check_state
from harness.operators.survey import standing_out
from harness.operators.wrong_parts import wrong_parts
from harness.records import Array, Check, Failure, Mode

# Errors are measured in standard deviations of honest rounding, which Problem.rounding derives for every element. So
# the errors of an honest candidate are about normal, with a deviation of at most one.
# tests/operators/test_attention_tolerance.py compares honest variants and planted bugs with both factors.
#
# The worst of N normal elements is near sqrt(2 ln N): 4.6 in one check, 6.7 among the billions checked in a night.
# The factor is 1.5 times as large, because a whole row may share a rounding (measured: up to 6.6). If a kernel leaves
# out any of the contest's 128 blocks, some element moves by 50 or more.
WORST_FACTOR = 10.0
# Over a whole check, noise averages out: even if the elements of a row share a rounding, 256 or more independent
# roundings are left, so the root mean square is known within 4 %. Honest variants measure at most 1.05. A factor of 1.5
# allows 1.25 times the honest variance in addition. An accumulator that is rounded to bfloat16 between four blocks adds
# 2 times that variance (measured root mean square: 1.75, and 7 with 128 blocks).
RMS_FACTOR = 1.5
# The root mean square of the errors of n honest elements has a standard deviation of 1 / sqrt(2 n), in units of
# rounding: so many of these deviations are allowed. For fewer than 32 elements this is more than RMS_FACTOR.
_BY_CHANCE = 4.0
# A forbidden rounding is detected by projecting the kernel's error onto the error of this rounding. The projection, as
# a share of the rounding's error, is 1 for a kernel that makes the rounding. For other kernels it is at most about
# 1 / sqrt(size), where `size` is the sum of the squares of the rounding's errors in deviations. For N compared elements
# this is about 1 / sqrt(N): 0.02 for a few thousand. This constant is the limit of the share.
FORBIDDEN_SHARE = 0.5
# The smallest `size` for which shares count. For this size, the limit is 6 deviations of an honest kernel's share.
_LEAST_FORBIDDEN = (6 / FORBIDDEN_SHARE) ** 2
# The limit for the root mean square of the relative errors of whole rows or columns, in relative roundings. The root
# mean square is 1 if the factor of each row or column is rounded to the output's dtype. If the factor is exact, only
# the N elements of a row are rounded, and the root mean square is about 1 / sqrt(N).
_FACTOR_SHARE = 0.5
# The mean square of at least `_LEAST_SLICES` rows or columns exceeds `_BY_CHANCE` times its expectation once in 10^7
# times.
_LEAST_SLICES, _BY_CHANCE = 16, 4.0
# The number of rows that are refined at a time, and the most rows outside their tolerance that are refined at all.
# Eight rows of 16384 keys cost 2.5 s, of 512 keys a thirtieth of that.
_REFINED_AT_ONCE, _MOST_REFINED = 8, 64


@runtime_checkable
class Forbidding(Protocol):
    """A problem that forbids roundings whose errors are too small to exceed the tolerance."""

    def forbidden(self, inputs: Sequence[Values], rows: Rows) -> dict[str, Exact]:
        """The error that each rounding alone would cause, `[len(rows), columns]`, by the name of the rounded value."""


@runtime_checkable
class Scaling(Protocol):
    """A problem that multiplies whole rows or columns of its output by factors, which must not be rounded to bfloat16.

    The error of rounding a factor is as small as the error of rounding the output. But all elements of a row or column
    share this error, at whatever scale the factor is rounded.
    """

    def factors(self) -> dict[str, Literal[0, 1]]:
        """The axis along which each named factor is constant: 0 if it scales columns, 1 if it scales rows."""


@runtime_checkable
class Divided(Protocol):
    """A problem whose inputs divide the rows into parts of different sizes. Kernels go wrong at the parts' borders."""

    def border_rows(self, inputs: Sequence[Values]) -> Rows:
        """The first and last row of each part, sorted and distinct; they are compared in addition to `sample_rows`."""


@runtime_checkable
class Refining(Protocol):
    """A problem whose `rounding` approximates the most expensive term, which it can compute exactly for a few rows."""

    def exact_rounding(self, inputs: Sequence[Values], rows: Rows) -> Exact:
        """The result of Problem.rounding, computed more exactly and at a higher cost for each row."""


@runtime_checkable
class Sharing(Protocol):
    """A problem in which many rows may round the same number, so that its error does not average out."""

    def shared_errors(self, inputs: Sequence[Values], rows: Rows) -> tuple[Exact, ...]:
        """For each shared number, the largest error that its rounding can cause: `[len(rows), columns]`."""


@dataclass(frozen=True, kw_only=True)
class Errors:
    """Candidate, honest and exact outputs of some rows, all `[rows, columns]` float64.

    `deviation` is the standard deviation of honest rounding, the unit of everything `scaled`. `shared` are errors that
    many rows may have in common, each at its largest.
    """

    got: Exact
    expected: Exact
    honest: Exact
    deviation: Exact
    shared: tuple[Exact, ...] = ()

    @cached_property
    def scaled(self) -> Exact:
        """The candidate's absolute errors, in deviations."""
        return _in_deviations(self.got - self.expected, self.deviation)

    @cached_property
    def honest_scaled(self) -> Exact:
        """The honest computation's absolute errors, in deviations."""
        return _in_deviations(self.honest - self.expected, self.deviation)

    @cached_property
    def unit(self) -> float:
        """The size of one deviation: more than 1 if the honest computation errs more than its model says."""
        return max(1.0, self.rms(self.honest_scaled))

    @cached_property
    def worst_ratio(self) -> float:
        """The worst element's error divided by its tolerance."""
        return float(self.scaled.max()) / (WORST_FACTOR * self.unit)

    @cached_property
    def rms_ratio(self) -> float:
        """The root mean square error divided by its tolerance."""
        return self.rms(self.averaged) / (self.rms_factor * self.unit)

    @cached_property
    def rms_factor(self) -> float:
        """The limit on the root mean square error, in deviations (see `rms_factor`)."""
        return rms_factor(int(np.count_nonzero(self.counted)))

    @cached_property
    def averaged(self) -> Exact:
        """The absolute errors for means over all elements, in larger deviations that also cover the `shared` errors."""
        if not self.shared:
            return self.scaled
        variance = np.square(self.deviation) + sum(np.square(error / RMS_FACTOR) for error in self.shared)
        return _in_deviations(self.got - self.expected, np.sqrt(variance))

    @cached_property
    def counted(self) -> NDArray[np.bool_]:
        """True for elements that roundings can change; other elements are always 0, and would hide errors in a mean."""
        moved: NDArray[np.bool_] = self.deviation > np.finfo(np.float32).tiny
        return moved if moved.any() else np.ones_like(moved)

    @cached_property
    def _are_all_counted(self) -> bool:
        return bool(self.counted.all())

    def rms(self, values: Exact) -> float:
        """The root mean square of values `[rows, columns]`, over the elements that are counted."""
        return _rms(values if self._are_all_counted else values[self.counted])

    @property
    def passed(self) -> bool:
        """True if both ratios are at most 1."""
        return self.worst_ratio <= 1 and self.rms_ratio <= 1


@dataclass(frozen=True, kw_only=True)
class ExactErrors(Errors):
    """The errors of an exact output: only `expected` passes."""

    @cached_property
    def differs(self) -> NDArray[np.bool_]:
        """True for elements that differ from the expected number, or are a zero of the other sign."""
        return differing(self.got, self.expected)

    @property
    def passed(self) -> bool:
        """True if no element differs."""
        return not self.differs.any()


def rms_factor(elements: int) -> float:
    """The largest root mean square error that honest rounding causes in so many elements, in deviations."""
    return max(RMS_FACTOR, 1 + _BY_CHANCE / math.sqrt(2 * elements))


def _in_deviations(error: Exact, deviation: Exact) -> Exact:
    with np.errstate(divide="ignore", invalid="ignore"):
        scaled: Exact = np.abs(error)
        scaled /= deviation
    return scaled


def _rms(values: Exact) -> float:
    flat = values.reshape(-1)
    return float(np.sqrt(np.dot(flat, flat) / flat.size))


def errors(
    problem: Problem, inputs: Sequence[Values], outputs: Values | Sequence[Values], rows: Rows
) -> tuple[Errors, ...]:
    """The errors of each output at `rows`. Computing them takes three evaluations of these rows."""
    arrays = (outputs,) if isinstance(outputs, np.ndarray) else outputs
    methods = (problem.reference, problem.rounding, problem.honest)
    expected, deviation, honest = (method(inputs, rows) for method in methods)
    # If the error of the honest computation exceeds the tolerance of kernels, the model of rounding does not hold for
    # this element. Then its honest error counts as one deviation.
    off = np.abs(honest - expected)
    deviation = np.where(off > WORST_FACTOR * deviation, off, deviation)
    # A deviation that is not finite would allow any error. With 0 instead, every error is too large.
    deviation[~np.isfinite(deviation)] = 0
    output_errors = []
    stated = problem.statement().outputs
    for position, output, columns in spans(stated):
        got = arrays[position].reshape(row_count(stated), -1)[rows].astype(np.float64)
        exact = expected[:, columns]
        if is_exact(problem, output):
            # Integers have only one zero.
            exact = exact if is_float(numpy_dtype(output.dtype)) else exact + 0.0
        kind = ExactErrors if is_exact(problem, output) else Errors
        output_errors.append(kind(got=got, expected=exact, deviation=deviation[:, columns], honest=honest[:, columns]))
    return tuple(output_errors)


def refined(problem: Problem, inputs: Sequence[Values], rows: Rows, columns: slice, output_errors: Errors) -> Errors:
    """The errors; if few rows are outside their tolerance, some rows have the deviations of `exact_rounding`.

    `columns`: the output's columns in the matrix of all outputs. Refining stops when a refined row is still outside its
    tolerance, or when the errors pass. Rows outside their tolerance are refined first, then the other rows by
    decreasing error.
    """
    if isinstance(output_errors, ExactErrors):
        return output_errors
    outside = np.flatnonzero((output_errors.scaled > WORST_FACTOR * output_errors.unit).any(axis=1))
    if not isinstance(problem, Refining) or len(outside) > _MOST_REFINED or output_errors.passed:
        return output_errors
    largest = np.argsort(-np.square(output_errors.scaled).sum(axis=1), kind="stable")
    order = np.concatenate([outside, largest[~np.isin(largest, outside)]])
    for some in np.split(order, range(_REFINED_AT_ONCE, len(order), _REFINED_AT_ONCE)):
        deviation = output_errors.deviation.copy()
        deviation[some] = np.maximum(deviation[some], problem.exact_rounding(inputs, rows[some])[:, columns])
        output_errors = replace(output_errors, deviation=deviation)
        if output_errors.passed or (output_errors.scaled[some] > WORST_FACTOR * output_errors.unit).any():
            break
    return output_errors


def with_shared(
    problem: Problem, inputs: Sequence[Values], rows: Rows, columns: slice, output_errors: Errors
) -> Errors:
    """The errors, with the errors that many rows may share if the root mean square is outside its tolerance."""
    if not isinstance(problem, Sharing) or output_errors.rms_ratio <= 1:
        return output_errors
    return replace(output_errors, shared=tuple(error[:, columns] for error in problem.shared_errors(inputs, rows)))


def check(
    problem: Problem,
    inputs: Sequence[Values],
    outputs: Values | Sequence[Values],
    *,
    family: str,
    mode: Mode,
    seed: int,
) -> tuple[Check, Failure | None]:
    """The check of one call's outputs (flat, in order; a bare array is one output) and, if it failed, a Failure.

    Kinds: `wrong-structure`, `wrong-shape`, `wrong-dtype` and `non-finite`, which end the check; `wrong-result`,
    `wrong-state`.
    """
    expected = problem.statement().outputs
    arrays = as_read(problem, inputs, (outputs,) if isinstance(outputs, np.ndarray) else tuple(outputs))
    failure = _malformed(problem.statement().results, arrays, family, seed)
    if failure is not None:
        return _unmeasured(expected[0], family, mode, seed), failure
    rows = problem.sample_rows(seed)
    if isinstance(problem, Divided):
        rows = np.union1d(rows, problem.border_rows(inputs))
    if mode == "device" or (mode == "full" and family in problem.families(full=True)):
        # The families of the full shape are enough, because rows that are wrong only at this shape are wrong with every
        # family of inputs.
        rows = np.union1d(rows, standing_out(problem, inputs, arrays, rows, seed))
    every = tuple(
        refined(problem, inputs, rows, columns, with_shared(problem, inputs, rows, columns, output_errors))
        for (_, _, columns), output_errors in zip(
            spans(problem.statement().outputs), errors(problem, inputs, arrays, rows), strict=True
        )
    )
    judged = [
        _judge(*_by_itself(output_errors, output, rows), output, family, mode, seed)
        for output, output_errors in zip(expected, every, strict=True)
    ]
    if all(output_check.passed for output_check, _ in judged):
        for rounding in (*_roundings(problem, inputs, rows, every[0]), *_factors(problem, every[0])):
            if rounding.error > rounding.limit:
                judged.append(_refused(rounding, judged[0][0], expected[0]))
                break
    states = check_state(problem, inputs, arrays[len(expected) :], family=family, mode=mode, seed=seed)
    judged += states
    # The output nearest to its limit is recorded, with the number of elements of all outputs.
    worst, failure = max(
        judged,
        key=lambda judged_output: (
            not judged_output[0].passed,
            (judged_output[0].error or 0) / (judged_output[0].tolerance or 1),
        ),
    )
    sizes = [output_errors.got.size for output_errors in every] + [state_check.elements for state_check, _ in states]
    return replace(worst, elements=sum(sizes)), failure


def _unmeasured(output: Array, family: str, mode: Mode, seed: int) -> Check:
    return Check(
        family=family,
        mode=mode,
        shape=output.shape,
        seed=seed,
        elements=0,
        error=None,
        honest_error=None,
        tolerance=None,
        passed=False,
    )


def _malformed(expected: Sequence[Array], arrays: Sequence[object], family: str, seed: int) -> Failure | None:
    """A Failure if the outputs are malformed or not finite, before any number is compared; else None."""

    def failure(kind: str, message: str, detail: str = "") -> Failure:
        full_message = f"{message} (inputs: {family}, seed {seed})"
        return Failure(stage="correctness", kind=kind, message=full_message, detail=detail)

    if len(arrays) != len(expected):
        plural = "s" if len(expected) > 1 else ""
        return failure("wrong-structure", f"expected {len(expected)} output array{plural}, got {len(arrays)}")
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
                f"{count} of {array.size} outputs are not finite, in {wrong_parts((want,), in_rows(bad))}; the first "
                f"is {want.name}{list(first)} = {float(array[first])}",
                "look for uninitialised memory, a transfer that was not waited for, an overflowing exp or a division "
                "by 0",
            )
    return None


@dataclass(frozen=True, slots=True, kw_only=True)
class _Forbidden:
    """A forbidden rounding: the kernel's error that shows it, the limit of this error, and words for the message."""

    of: str
    error: float
    limit: float
    words: str
    figures: str


def _roundings(problem: Problem, inputs: Sequence[Values], rows: Rows, output_errors: Errors) -> Iterator[_Forbidden]:
    """The roundings of a Forbidding problem, each with the kernel's error projected onto the error of this rounding."""
    for name, alone in problem.forbidden(inputs, rows).items() if isinstance(problem, Forbidding) else ():
        along = alone / output_errors.deviation
        size = float(np.square(along).sum())
        # A rounding that hardly changes anything, or that changes few elements, cannot be distinguished from others.
        if size < max(along.size / 100, _LEAST_FORBIDDEN):
            continue
        share, share_of_honest = (
            float(((values - output_errors.expected) / output_errors.deviation * along).sum()) / size
            for values in (output_errors.got, output_errors.honest)
        )
        # In an output of a single row or column, the rounding of the output may cause about the same error.
        if abs(share_of_honest) > FORBIDDEN_SHARE / 2:
            continue
        yield _Forbidden(
            of=name,
            error=share * _rms(alone),
            limit=FORBIDDEN_SHARE * _rms(alone),
            words=f"the error of {{output}} is that of rounding {name} to {{dtype}}",
            figures=f"{share:.2f} of that error, expected about 0",
        )


def _factors(problem: Problem, output_errors: Errors) -> Iterator[_Forbidden]:
    """The factors of a Scaling problem, each with the relative error of the rows or columns that it multiplies."""
    for name, axis in problem.factors().items() if isinstance(problem, Scaling) else ():
        off, limit = _of_slices(output_errors, axis, problem.statement().outputs[0].dtype)
        yield _Forbidden(
            of=name,
            error=off,
            limit=limit,
            words=f"all elements of a {('column', 'row')[axis]} of {{output}} have the same relative error",
            figures=f"{off:.3%} in the root mean square, limit {limit:.3%}",
        )


def _refused(rounding: _Forbidden, passed: Check, output: Array) -> tuple[Check, Failure]:
    """The failed check of a rounding that the kernel makes, in place of the check that `passed`, and its Failure."""
    refused = replace(
        passed,
        criterion="root mean square",
        error=rounding.error,
        honest_error=0.0,
        tolerance=rounding.limit,
        passed=False,
    )
    message = (
        f"forbidden rounding: the statement keeps {rounding.of} in float32, but "
        f"{rounding.words.format(output=output.name, dtype=output.dtype)} ({rounding.figures}; inputs: "
        f"{passed.family}, seed {passed.seed})"
    )
    return refused, Failure(stage="correctness", kind="wrong-result", message=message)


def _of_slices(output_errors: Errors, axis: Literal[0, 1], dtype: str) -> tuple[float, float]:
    """The root mean square of the relative errors of whole columns (`axis` 0) or rows, and its limit.

    The relative error of a slice is f - 1, where f is the factor by which its elements are off. f is fitted by least
    squares, with errors in deviations. A slice is left out if the deviation of its f is at least half of a factor's
    rounding. The result is (0, inf) if too few slices remain, and for float32, where such an error exceeds the
    tolerance.
    """
    rounding = relative_rounding(dtype)
    along = output_errors.expected / output_errors.deviation
    sizes = np.square(along).sum(axis=axis)
    products = ((output_errors.got - output_errors.expected) / output_errors.deviation * along).sum(axis=axis)
    tells = sizes * rounding**2 > 4
    if dtype == "float32" or tells.sum() < _LEAST_SLICES:
        return 0.0, np.inf
    by_chance = np.sqrt(_BY_CHANCE * (1 / sizes[tells]).mean())
    return _rms(products[tells] / sizes[tells]), max(_FACTOR_SHARE * rounding, float(by_chance))


def _by_itself(output_errors: Errors, output: Array, rows: Rows) -> tuple[Errors, Rows]:
    """The errors of one output, and their rows, as rows of that output instead of rows of all outputs."""
    if output_errors.got.shape[1] == output.shape[-1]:
        return output_errors, rows
    names = ("got", "expected", "honest", "deviation")
    places, *values = by_itself(output, rows, *(getattr(output_errors, name) for name in names), *output_errors.shared)
    numbers = dict(zip(names, values, strict=False))
    return replace(output_errors, **numbers, shared=tuple(values[len(names) :])), places


def _judge(
    output_errors: Errors, rows: Rows, output: Array, family: str, mode: Mode, seed: int
) -> tuple[Check, Failure | None]:
    if isinstance(output_errors, ExactErrors):
        return _judge_exact(output_errors, rows, output, family, mode, seed)
    scaled = output_errors.scaled
    row, column = (int(i) for i in np.unravel_index(int(np.argmax(scaled)), scaled.shape))
    criterion: Literal["worst element", "root mean square"]
    if output_errors.worst_ratio >= output_errors.rms_ratio:
        criterion, unit = "worst element", float(output_errors.deviation[row, column])
        error, honest_error = scaled.max(), output_errors.honest_scaled.max()
        tolerance = WORST_FACTOR * output_errors.unit
    else:
        criterion, unit = "root mean square", output_errors.rms(output_errors.deviation)
        error, honest_error = output_errors.rms(output_errors.averaged), output_errors.rms(output_errors.honest_scaled)
        tolerance = output_errors.rms_factor * output_errors.unit
    check = Check(
        family=family,
        mode=mode,
        shape=output.shape,
        seed=seed,
        elements=scaled.size,
        criterion=criterion,
        error=float(error) * unit,
        honest_error=float(honest_error) * unit,
        tolerance=tolerance * unit,
        passed=output_errors.passed,
    )
    if check.passed:
        return check, None
    outside = scaled > WORST_FACTOR * output_errors.unit
    where = f" in {wrong_parts((output,), outside, rows)}" if outside.any() else ""
    worst = element(output, int(rows[row]), column)
    message = (
        f"wrong result{where}: worst element {worst} is {output_errors.got[row, column]:.6g}, expected "
        f"{output_errors.expected[row, column]:.6g}, {output_errors.worst_ratio:.3g} times the tolerance; root mean "
        f"square error {output_errors.rms_ratio:.3g} times its tolerance (inputs: {family}, seed {seed})"
    )
    detail = f"{np.count_nonzero(outside)} of {scaled.size} compared elements are outside their tolerance"
    return check, Failure(stage="correctness", kind="wrong-result", message=message, detail=detail)


def _judge_exact(
    output_errors: ExactErrors, rows: Rows, output: Array, family: str, mode: Mode, seed: int
) -> tuple[Check, Failure | None]:
    differs = output_errors.differs
    count = int(np.count_nonzero(differs))
    check = counted("exact", count, differs.size, output.shape, family, mode, seed)
    if not count:
        return check, None
    row, column = (int(i) for i in np.unravel_index(int(np.argmax(differs)), differs.shape))
    message = (
        f"wrong result in {wrong_parts((output,), differs, rows)}: {element(output, int(rows[row]), column)} is "
        f"{output_errors.got[row, column]:.9g}, expected {output_errors.expected[row, column]:.9g}, and {output.name} "
        f"is compared exactly (inputs: {family}, seed {seed})"
    )
    detail = (
        f"{count} of {differs.size} compared elements differ; if several answers seem right, such as for equal "
        "elements, the problem states which answer is expected"
    )
    return check, Failure(stage="correctness", kind="wrong-result", message=message, detail=detail)
