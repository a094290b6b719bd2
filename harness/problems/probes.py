"""What an output may depend on, as data: a part of the inputs is changed, these elements must move, those must stay."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from harness.records import Array, Check, Failure

Mode = Literal["full", "interpret", "twin", "device"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Region:
    """A part of one input, one range per axis, that a probe multiplies by `factor`.

    `array` is the input's position in the statement. The factor is a signed power of two: no
    element is rounded by it, and none but zero stays as it was.
    """

    array: int
    ranges: tuple[range, ...]
    factor: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """Some elements of the output, seen as `[rows, columns]` as everywhere in a problem."""

    rows: range
    columns: range


@dataclass(frozen=True, slots=True, kw_only=True)
class Probe:
    """A change of the inputs of `family`, and what it does to a right output, bit for bit.

    Every row of a part that `moves` depends on what is changed, strongly enough that some of its
    elements get another value whatever is rounded; no element of a part that `stays` depends on
    it. Elements in neither may do either. `name` says what is changed, in the plural:
    `keys 128 to 255 of key/value head 0`.
    """

    name: str
    family: str
    regions: tuple[Region, ...]
    moves: tuple[Part, ...]
    stays: tuple[Part, ...]


def changed(probe: Probe, inputs: Sequence[NDArray[Any]]) -> tuple[NDArray[Any], ...]:
    """Copies of the inputs with the regions of the probe changed."""
    copies = tuple(array.copy() for array in inputs)
    for region in probe.regions:
        place = np.ix_(*region.ranges)
        array = copies[region.array]
        array[place] = (array[place].astype(np.float32) * np.float32(region.factor)).astype(array.dtype)
    return copies


def check_probe(
    output: Array, probe: Probe, before: NDArray[Any], after: NDArray[Any], *, mode: Mode, seed: int
) -> tuple[Check, Failure | None]:
    """The check of `after`, the output on the changed inputs, against `before`, that on the others.

    With it a Failure: `non-finite` where `after` is not, `wrong-dependence` where a promise of the probe is broken.
    """
    moved = _differs(before, after)
    bad = ~np.isfinite(after).reshape(moved.shape)
    told = [f"{_named(bad, output)} are not finite"] if bad.any() else []
    broken, compared = int(np.count_nonzero(bad)), 0
    for parts, must_move in ((probe.stays, False), (probe.moves, True)):
        wrong = np.zeros_like(moved)
        for part in parts:
            place = np.ix_(part.rows, part.columns)
            wrong[place] = ~moved[place].any(axis=1, keepdims=True) if must_move else moved[place]
            compared += len(part.rows) * len(part.columns)
        if wrong.any():
            verb = "did not move, and depend on them" if must_move else "moved, and do not depend on them"
            told.append(f"{_named(wrong, output)} {verb}")
            broken += int(np.count_nonzero(wrong))
    found = _exact(output, probe.name, "dependence", broken, compared, mode=mode, seed=seed)
    if not told:
        return found, None
    message = f"{probe.name} were changed: {'; '.join(told)} (shape {list(output.shape)}, seed {seed})"
    detail = f"{broken} of {compared} compared elements; inputs: {probe.family}; look at index maps, masks and skips"
    return found, Failure(
        stage="correctness", kind="non-finite" if bad.any() else "wrong-dependence", message=message, detail=detail
    )


def check_determinism(
    output: Array, family: str, first: NDArray[Any], again: NDArray[Any], *, mode: Mode, seed: int
) -> tuple[Check, Failure | None]:
    """The check that the same inputs gave the same bits twice; a Failure `not-deterministic` if they did not."""
    moved = _differs(first, again)
    broken = int(np.count_nonzero(moved))
    found = _exact(output, f"{family} twice", "determinism", broken, moved.size, mode=mode, seed=seed)
    if not broken:
        return found, None
    message = (
        f"the same inputs gave other outputs the second time: {_named(moved, output)} differ "
        f"(inputs: {family}, seed {seed}); look for memory that is read before it is written, and random numbers"
    )
    return found, Failure(stage="correctness", kind="not-deterministic", message=message)


def _exact(
    output: Array,
    family: str,
    criterion: Literal["dependence", "determinism"],
    broken: int,
    compared: int,
    *,
    mode: Mode,
    seed: int,
) -> Check:
    return Check(
        family=family, mode=mode, shape=output.shape, seed=seed, elements=compared, criterion=criterion,
        error=float(broken), honest_error=0.0, tolerance=0.0, passed=not broken,
    )  # fmt: skip


def _differs(before: NDArray[Any], after: NDArray[Any]) -> NDArray[np.bool_]:
    """`[rows, columns]`: which elements differ in any bit. Raises ValueError for arrays of another shape or dtype."""
    if before.shape != after.shape or before.dtype != after.dtype:
        raise ValueError(f"expected {before.dtype}{list(before.shape)}, got {after.dtype}{list(after.shape)}")
    columns = before.shape[-1]
    word = np.dtype(f"u{before.itemsize}")
    old, new = (np.ascontiguousarray(array).view(word).reshape(-1, columns) for array in (before, after))
    differs: NDArray[np.bool_] = old != new
    return differs


def _named(wrong: NDArray[np.bool_], output: Array) -> str:
    """`12 elements of o in 3 rows, o[0, 128, 5] to o[0, 130, 127],` of those that are wrong."""
    rows, columns = np.nonzero(wrong)
    ends = []
    for i in (0, -1):
        index = [*(int(n) for n in np.unravel_index(int(rows[i]), output.shape[:-1])), int(columns[i])]
        ends.append(f"{output.name}{index}")
    return f"{len(rows)} elements in {len(np.unique(rows))} rows, {' to '.join(ends)},"
