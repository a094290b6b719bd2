"""Parts of an axis: the rows of an output that are compared, and the blocks of an input that are changed."""

from collections.abc import Iterator, Sequence
from itertools import pairwise, product
from math import prod
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from harness.operators.problem import Rows

Kind = TypeVar("Kind")

# The smallest block whose borders are compared. It is the number of lanes of a vector register, and divides the larger
# powers of two that kernels choose.
BLOCK = 128
# The shortest block that is changed. A change to fewer positions might move no output: one in 80 numbers of eight bits
# is zero, and only three of eight rows of attention's composite inputs weigh all keys equally.
_LEAST = 8
# The shares of blocks of 128, and of blocks of 8, that begin with two equal lines. Lines at borders may be zero, and
# zeros are not repeated, so that a third or more of the blocks of 128 begin with a pair.
_EQUAL_STARTS = {BLOCK: 0.75, _LEAST: 0.25}
# The smallest `share` with which `empty_lines` makes two runs.
_TWO_RUNS = 0.05
# The shortest length of reduced shapes: two of the smallest blocks.
SHORTEST = 2 * BLOCK


def sampled_rows(groups: int, length: int, budget: int, seed: int) -> Rows:
    """The first and last row of every group of `length` rows, and more rows, spread evenly over the group.

    The group is cut into equal spans. Each span gives a random row, and the first and last row of the block of 128 that
    contains that row. There are as many spans as blocks, or fewer if a group would otherwise give more than about
    `budget` rows. If `length` is at most `budget`, all rows are taken.
    """
    if length <= budget:
        return np.arange(groups * length)
    random = np.random.default_rng(np.random.SeedSequence((seed, groups * length)))
    edges = np.linspace(0, length, max(1, min(budget // 3, -(-length // BLOCK))) + 1)
    inside = random.uniform(edges[:-1], edges[1:], (groups, len(edges) - 1)).astype(np.int64)
    last = length - 1
    start = inside // BLOCK * BLOCK
    ends = np.tile([0, last], (groups, 1))
    rows = np.concatenate((np.minimum(inside, last), start, np.minimum(start + BLOCK - 1, last), ends), axis=1)
    return np.unique(rows + np.arange(groups)[:, None] * length)


def borders(length: int) -> Rows:
    """The first and the last position, and those on both sides of every multiple of 128 (256, 512 ... included)."""
    inner = np.arange(BLOCK, length, BLOCK)
    return np.unique(np.concatenate(([0, length - 1], inner - 1, inner)))


def turned(pattern: Sequence[Kind], seed: int, rows: int) -> tuple[Kind, ...]:
    """The `pattern` of rows, rotated by a number that depends on the seed, so that a row's kind varies.

    The pattern is not rotated if there are fewer rows than kinds.
    """
    if rows < len(pattern):
        return tuple(pattern)
    start = int(np.random.default_rng(np.random.SeedSequence((seed, len(pattern)))).integers(len(pattern)))
    return (*pattern[start:], *pattern[:start])


def spans(edges: Sequence[int]) -> Iterator[range]:
    """The ranges between neighbouring edges."""
    return (range(start, stop) for start, stop in pairwise(edges))


def around(part: range, length: int) -> tuple[range, range]:
    """The positions of an axis before and after a part of it."""
    return range(part.start), range(part.stop, length)


def slices(length: int, size: int) -> Iterator[slice]:
    """`length` cut into slices of `size`; the last slice may be shorter."""
    return (slice(start, min(start + size, length)) for start in range(0, length, size))


def empty_block(length: int, least: int, random: np.random.Generator, *, is_last: bool = True) -> range:
    """An aligned block of rows to be made zero: `least` rows, or 2, 4, 8 ... times as many, up to a quarter of all.

    It contains a whole block of any kernel whose blocks are no larger. Empty if two blocks of `least` do not fit.
    `is_last`: the block may be the last one.
    """
    if length < 2 * least:
        return range(0)
    size = least << int(random.integers(max(1, (length // (4 * least)).bit_length())))
    start = size * int(random.integers(length // size - (not is_last)))
    return range(start, start + size)


def empty_lines(length: int, share: float, random: np.random.Generator) -> NDArray[np.bool_]:
    """A mask, True for each line to be made zero: `share` of all at random places, and up to two runs of neighbours.

    The length of a run is about a quarter of `length`: a power of two, less 8 lines. It begins where blocks of any size
    begin, or ends where they end. So in a block of 16, 32, 64 ... lines, only every second of the last or of the first
    eight lines is nonzero. This exposes a kernel that skips the whole block after testing only the other lines. With a
    small share there is only one run, so that enough lines are left. At least one line is left.
    """
    is_empty = random.random(length) < share
    run = (1 << (length // 4).bit_length() - 1) - _LEAST if length >= 8 * _LEAST else length // 4
    half = length // (4 * _LEAST) * 2 * _LEAST or length // 2
    first, last = (half * int(random.integers(2)) for _ in range(2))
    ends = (first + run, last + half - run)
    runs = [slice(first, ends[0]), slice(ends[1], last + half)]
    between = [slice(ends[0], ends[0] + _LEAST, 2), slice(ends[1] - _LEAST + 1, ends[1], 2)]
    for side in (0, 1) if share >= _TWO_RUNS else (int(random.integers(2)),):
        is_empty[runs[side]] = True
        if run >= _LEAST:
            is_empty[between[side]] = True
    if is_empty.all():
        is_empty[int(random.integers(length))] = False
    return is_empty


def repeated_lines(length: int, share: float, random: np.random.Generator) -> Rows:
    """The lines of an axis that are to be copied to their next line, so that two neighbouring lines are equal.

    Many blocks of 8, 16, 32 ... begin with two equal lines; in addition, `share` of all lines at random places are
    copied. No line is both copied and overwritten, so there are pairs, but no longer runs.
    """
    starts, others = np.zeros(length, bool), random.random(length) < share
    for size, part in _EQUAL_STARTS.items():
        starts[::size] |= random.random(len(starts[::size])) < part
    others[1:] &= ~others[:-1] & ~starts[:-1]
    others[:-1] &= ~starts[1:]
    return np.flatnonzero((starts | others)[:-1])


def blocks(length: int, most: int, size: int = BLOCK) -> tuple[range, ...]:
    """`length` cut into blocks of `size`, or of the smallest multiple of `size` that gives at most `most` blocks."""
    size *= -(-length // (size * most))
    return tuple(spans([*range(0, length, size), length]))


def shifted_blocks(length: int, most: int, size: int, random: np.random.Generator) -> tuple[range, ...]:
    """`blocks`, shifted by a random number of positions: the first block may be shorter, and there may be one more.

    No block is shorter than 8 positions (or than `size` or `length` if that is less). Values at fewer positions may by
    chance be zero or have no weight; a change to them then moves no output. A shorter remainder is added to the
    block before it.
    """
    size *= -(-length // (size * max(1, most - 1)))
    least = min(_LEAST, size)
    first = int(random.integers(least, size + 1))
    return tuple(spans([0, *range(first, length - least + 1, size), length]))


def drawn_border(length: int, random: np.random.Generator, within: range | None = None) -> int:
    """A random position from 1 to `length` - 1 at which no block of 64, 128 or a multiple of these ends.

    At least a quarter of its block of 64, and of its block of 128, lies on either side of the position. A quarter is
    enough for an error above rounding if rows wrongly depend on other rows of their block. On an axis shorter than 128,
    the block sizes are the largest power of two that fits, and half of it. `within` limits the position, if it contains
    such positions.
    """
    block = _largest_block(length)
    at = np.arange(1, length)
    at = at[_is_inside(at, block, block // 4) & _is_inside(at, block // 2, block // 8)]
    at = at[at <= length - max(1, block // 4)]
    bounded = at if within is None else at[(at >= within.start) & (at < within.stop)]
    return int(random.choice(bounded if bounded.size else at))


def drawn_block(length: int, random: np.random.Generator) -> range:
    """A range of about 128 positions, or about a third of a short length, that begins or ends at a `drawn_border`.

    The other end is an end of the axis, or at least an eighth of a block away from borders of blocks of 128. So the
    range also exposes a kernel whose rows wrongly depend only on rows before them, or only on rows after them.
    """
    if length < 2:
        return range(length)
    border, block = drawn_border(length, random), _largest_block(length)
    size = min(BLOCK, max(1, length // 3))
    sizes = np.arange(size - size // 4, size + size // 4 + 1)
    ends = np.concatenate((border - sizes, border + sizes))
    ends = ends[(ends >= 0) & (ends <= length)]
    end = int(random.choice(ends[_is_inside(ends, block, block // 8) | (ends == 0) | (ends == length)]))
    return range(min(border, end), max(border, end))


def _largest_block(length: int) -> int:
    """128, or the largest power of two that fits into a shorter axis."""
    return min(BLOCK, 1 << (length.bit_length() - 1))


def _is_inside(at: NDArray[np.int64], block: int, least: int) -> NDArray[np.bool_]:
    """True for positions with `least` positions of their block on either side; all True if blocks cannot be cut."""
    place = at % max(1, block)
    return (place >= least) & (place <= block - least)


def shorter(*lengths: int) -> Iterator[tuple[int, ...]]:
    """All ways to shorten these lengths to 256, 512, 1024 ..., the smallest product first, without the full shape.

    A length of at most 256 stays as it is.
    """
    return shortened([(SHORTEST, length) for length in lengths])


def shortened(lengths: Sequence[tuple[int, int]]) -> Iterator[tuple[int, ...]]:
    """All ways to shorten the axes, as in `shorter`. `lengths` has the shortest and the full length of each axis."""
    ladders = [[*_doubling(shortest, length), length] for shortest, length in lengths]
    shapes = [some for some in product(*ladders) if some != tuple(length for _, length in lengths)]
    # Among equal products, the shape with the most equal lengths comes first, because it has several blocks along every
    # axis.
    yield from sorted(shapes, key=lambda some: (prod(some), max(some)))


def _doubling(some: int, length: int) -> Iterator[int]:
    while some < length:
        yield some
        some *= 2
