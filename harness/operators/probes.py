"""Probes of the outputs' dependence: if a part of the inputs changes, some elements must move, others must stay."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from math import gcd
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from harness.operators.outputs import side_by_side
from harness.operators.wrong_parts import wrong_parts
from harness.records import Array, Check, Failure, Mode


@dataclass(frozen=True, slots=True, kw_only=True)
class Region:
    """A part of one input, one range per axis, that a probe multiplies by `factor`.

    `array` is the input's position in the statement. The factor is a signed power of two: it rounds no element, and
    changes every element except zero.
    """

    array: int
    ranges: tuple[range, ...]
    factor: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """Some elements of the outputs as `[rows, columns]`, with several outputs side by side."""

    rows: range
    columns: range


@dataclass(frozen=True, slots=True, kw_only=True)
class Probe:
    """A change of the inputs of `family`, and its effect on a correct output, bit for bit.

    Every row of a part in `moves` depends on the changed elements so strongly that, with any rounding, some of its
    elements in this part change. No element of a part in `stays` depends on the changed elements. All other elements
    may change or not. `name` names the changed elements in the plural: `keys 128 to 255 of key/value head 0`.
    """

    name: str
    family: str
    regions: tuple[Region, ...]
    moves: tuple[Part, ...]
    stays: tuple[Part, ...]


def probe(
    name: str, family: str, regions: Iterable[Region], moves: Iterable[Part] = (), stays: Iterable[Part] = ()
) -> Probe:
    """A probe of these parts, without the empty parts, which promise nothing."""
    moving, staying = (tuple(part for part in parts if part.rows and part.columns) for parts in (moves, stays))
    return Probe(name=name, family=family, regions=tuple(regions), moves=moving, stays=staying)


def parts_of_rows(rows: range, columns: range, count: int) -> Iterator[Part]:
    """Yields parts for these rows of an output, of which `count` stand side by side in each row of all outputs.

    `columns` are the columns of the first of these rows. Rows with the same index modulo `count` stand in the
    same columns, and make one part.
    """
    step = count // gcd(count, rows.step)
    for first in range(min(len(rows), step)):
        some = rows[first::step]
        shift = some.start % count * len(columns)
        yield Part(
            rows=range(some.start // count, some[-1] // count + 1, some.step // count),
            columns=range(columns.start + shift, columns.stop + shift),
        )


def changed(probe: Probe, inputs: Sequence[NDArray[Any]]) -> tuple[NDArray[Any], ...]:
    """Copies of the inputs with the regions of the probe changed."""
    copies = tuple(array.copy() for array in inputs)
    for region in probe.regions:
        part = tuple(map(_slice, region.ranges, copies[region.array].shape))
        array = copies[region.array]
        array[part] = (array[part].astype(np.float32) * np.float32(region.factor)).astype(array.dtype)
    return copies


def _slice(places: range, length: int) -> slice:
    """The positions as a slice, because numpy treats a range as an array of indices.

    Raises IndexError if the positions lie outside the axis or are not in rising order.
    """
    if places.step < 1 or places.start < 0 or places.stop > length:
        raise IndexError(f"expected rising places below {length}, got {places}")
    return slice(places.start, places.stop, places.step)


def check_probe(
    outputs: Sequence[Array],
    probe: Probe,
    before: Sequence[NDArray[Any]],
    after: Sequence[NDArray[Any]],
    *,
    mode: Mode,
    seed: int,
) -> tuple[Check, Failure | None]:
    """The check of `after`, the outputs on the changed inputs, against `before`, the outputs on the unchanged ones.

    The Failure is `non-finite` if `after` is not finite, or `wrong-dependence` if a promise of the probe is broken.
    """
    moved = _differs(before, after)
    bad = side_by_side([~np.isfinite(array) for array in after])
    sentences = [f"not finite: {_named(bad, outputs)}"] if bad.any() else []
    broken, compared = int(np.count_nonzero(bad)), 0
    for parts, must_move in ((probe.stays, False), (probe.moves, True)):
        wrong = np.zeros_like(moved)
        for part in parts:
            where = tuple(map(_slice, (part.rows, part.columns), moved.shape))
            wrong[where] |= ~moved[where].any(axis=1, keepdims=True) if must_move else moved[where]
            compared += len(part.rows) * len(part.columns)
        if wrong.any():
            verb = "should have moved, and did not" if must_move else "moved, and should not have"
            sentences.append(f"{_named(wrong, outputs)} {verb}")
            broken += int(np.count_nonzero(wrong))
    shape = outputs[0].shape
    dependence_check = counted("dependence", broken, compared, shape, probe.name, mode, seed)
    if not sentences:
        return dependence_check, None
    message = f"{probe.name} were changed: {'; '.join(sentences)} (shape {list(shape)}, seed {seed})"
    detail = f"{broken} of {compared} compared elements; inputs: {probe.family}; look at index maps, masks and skips"
    return dependence_check, Failure(
        stage="correctness", kind="non-finite" if bad.any() else "wrong-dependence", message=message, detail=detail
    )


def check_determinism(
    outputs: Sequence[Array],
    family: str,
    first: Sequence[NDArray[Any]],
    again: Sequence[NDArray[Any]],
    *,
    mode: Mode,
    seed: int,
) -> tuple[Check, Failure | None]:
    """The check that the same inputs gave the same bits twice; a Failure `not-deterministic` if they did not."""
    moved = _differs(first, again)
    broken = int(np.count_nonzero(moved))
    determinism_check = counted("determinism", broken, moved.size, outputs[0].shape, f"{family} twice", mode, seed)
    if not broken:
        return determinism_check, None
    message = (
        f"the same inputs gave different outputs the second time: {_named(moved, outputs)} changed (inputs: {family}, "
        f"seed {seed}); look for memory that is read before it is written, and random numbers"
    )
    return determinism_check, Failure(stage="correctness", kind="not-deterministic", message=message)


def counted(
    criterion: Literal["dependence", "determinism", "state", "exact"],
    wrong: int,
    compared: int,
    shape: tuple[int, ...],
    family: str,
    mode: Mode,
    seed: int,
) -> Check:
    """The check of a criterion without a tolerance: it passes if none of the `compared` elements is wrong."""
    return Check(
        family=family,
        mode=mode,
        shape=shape,
        seed=seed,
        elements=compared,
        criterion=criterion,
        error=float(wrong),
        honest_error=0.0,
        tolerance=0.0,
        passed=not wrong,
    )


def _differs(before: Sequence[NDArray[Any]], after: Sequence[NDArray[Any]]) -> NDArray[np.bool_]:
    """True for elements in which a bit differs: `[rows, columns]`. Raises ValueError if a shape or dtype differs."""
    differ: list[NDArray[np.bool_]] = []
    for old, new in zip(before, after, strict=True):
        if old.shape != new.shape or old.dtype != new.dtype:
            raise ValueError(f"expected {old.dtype}{list(old.shape)}, got {new.dtype}{list(new.shape)}")
        word = np.dtype(f"u{old.itemsize}")
        old_bits, new_bits = (np.ascontiguousarray(array).view(word) for array in (old, new))
        differ.append(old_bits != new_bits)
    return side_by_side(differ)


def _named(wrong: NDArray[np.bool_], outputs: Sequence[Array]) -> str:
    """A description of the wrong elements, such as `12 elements in o[0, 128..130, 5..127]`."""
    count = np.count_nonzero(wrong)
    return f"{count} element{'s' if count > 1 else ''} in {wrong_parts(outputs, wrong)}"
