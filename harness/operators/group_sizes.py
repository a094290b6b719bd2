"""The numbers of rows in the groups of a grouped product: those that are timed, and those that kernels mishandle."""

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from harness.operators.blocks import BLOCK

Sizes = NDArray[np.int32]

# In `whole_tiles`: the most tiles of the group that begins inside a tile; the fewest groups that allow this group.
_LONGEST, _FEWEST = 4, 3


def balanced(rows: int, groups: int) -> Sizes:
    """Sizes of groups to which each row goes with equal probability, like the tokens of a balanced router.

    The sizes differ by about the square root of their mean, so hardly any border is also a border of a kernel's tiles.
    Equal arguments give equal sizes.
    """
    return _thrown(rows, np.full(groups, 1 / groups), np.random.default_rng((rows, groups, 0)))


def skewed(rows: int, groups: int) -> Sizes:
    """Sizes like those of an unbalanced router: the group of rank i is 1/i times as probable as the largest.

    The order of groups is random. If there are three groups or more, one is empty. Of 8 groups, the largest has 39 % of
    the rows. Equal arguments give equal sizes.
    """
    random = np.random.default_rng((rows, groups, 1))
    shares = 1 / np.arange(1.0, groups + 1)
    if groups > 2:
        shares[-1] = 0
    return _thrown(rows, random.permutation(shares / shares.sum()), random)


def equal(rows: int, groups: int) -> Sizes:
    """Sizes that are equal, or differ by one if the groups do not divide the rows."""
    return np.diff(np.arange(groups + 1) * rows // groups).astype(np.int32)


def unaligned(rows: int, groups: int, random: np.random.Generator) -> Sizes:
    """Sizes of groups that may end anywhere; in half of the draws, some of them are equal."""
    draw = (_anywhere, _anywhere, pairs, all_but_one)[int(random.integers(4))]
    return draw(rows, groups, random)


def pairs(rows: int, groups: int, random: np.random.Generator) -> Sizes:
    """Sizes that are equal in neighbouring pairs of groups, and differ from pair to pair.

    If there are enough rows, in a multiple of 16, and an even number of four or more groups, then no size is a multiple
    of 8, and the first two are at least 8. The last size differs from its neighbour's if rows or groups are odd.
    """
    half, count = rows // 2, -(-groups // 2)
    if half // 8 < count:
        sizes = _anywhere(half, count, random)
    else:
        # Multiples of 8 plus one of two remainders in turn: neither a border nor a distance of neighbours divides by 8.
        borders = 8 * (1 + np.sort(random.permutation(half // 8 - 1)[: count - 1]))
        sizes = _between(borders + np.resize(random.permutation(np.arange(1, 8))[:2], count - 1), half)
    sizes = np.repeat(sizes, 2)[:groups]
    sizes[-1] += rows - sizes.sum()
    return sizes


def all_but_one(rows: int, groups: int, random: np.random.Generator) -> Sizes:
    """Sizes of which all but one, often the first or the last, are the same odd number."""
    most = rows // max(groups - 1, 1)
    sizes = np.full(groups, max(0, int(random.integers(most // 2, most, endpoint=True)) - 1) | 1, np.int32)
    if sizes.sum() - sizes[0] > rows:
        return _anywhere(rows, groups, random)
    place = (0, groups - 1, int(random.integers(groups)))[int(random.integers(3))]
    sizes[place] += rows - sizes.sum()
    return sizes


def aligned(rows: int, groups: int, random: np.random.Generator) -> Sizes:
    """Sizes of groups that end where a tile ends, so that no tile is shared."""
    return _between(np.sort(random.integers(rows // BLOCK + 1, size=groups - 1)) * BLOCK, rows)


def whole_tiles(rows: int, groups: int, random: np.random.Generator) -> Sizes:
    """Sizes with which a group begins inside a tile and still has whole tiles; some groups begin or end with a tile.

    One group that begins inside a tile is as long as n tiles, where n is the largest power of two that is at most half
    of all tiles and at most `_LONGEST`. So it contains whole tiles of every kernel whose tiles are at most half as long
    as the group. If there are too few groups or rows, groups may end anywhere.
    """
    tiles = rows // BLOCK
    if groups < _FEWEST or tiles < 2:
        return unaligned(rows, groups, random)
    longest = 1 << (min(tiles // 2, _LONGEST).bit_length() - 1)
    begin = int(random.integers(tiles - longest))
    others = random.choice(np.r_[: begin + 1, begin + longest + 1 : tiles], groups - _FEWEST)
    inside = int(random.integers(1, BLOCK))
    starts = np.append(others * BLOCK + inside * random.integers(2, size=len(others)), begin * BLOCK + inside)
    return _between(np.sort(np.append(starts, starts[-1] + longest * BLOCK)), rows)


def empty_groups(rows: int, groups: int, random: np.random.Generator) -> Sizes:
    """Sizes of which half are zero, including the first or the last; the other groups may end anywhere."""
    full, places = groups - groups // 2, np.zeros(1, int)
    if groups > 1:
        places = np.sort(random.permutation(groups - 1)[:full] + int(random.integers(2)))
    sizes = np.zeros(groups, np.int32)
    sizes[places] = _anywhere(rows, full, random)
    return sizes


def one_group(rows: int, groups: int, random: np.random.Generator) -> Sizes:
    """Sizes with all rows in one group."""
    sizes = np.zeros(groups, np.int32)
    sizes[random.integers(groups)] = rows
    return sizes


def single_rows(rows: int, groups: int, random: np.random.Generator) -> Sizes:
    """Sizes of one row in every group except one (0 if there are too few rows), so that many groups share a tile."""
    sizes = np.zeros(groups, np.int32)
    sizes[random.permutation(groups)[: rows - 1]] = 1
    sizes[random.integers(groups)] += rows - int(sizes.sum())
    return sizes


def crowded(rows: int, groups: int, random: np.random.Generator) -> Sizes:
    """Sizes of one row in three quarters of the groups, next to each other, so that a tile has many groups.

    One of the other groups has at least two thirds of the remaining rows.
    """
    few = min(groups - max(1, groups // 4), rows)
    sizes = np.ones(groups, np.int32)
    place = int(random.integers(groups - few + 1))
    others, left = np.r_[:place, place + few : groups], rows - few
    sizes[others] = _anywhere(left - left * 2 // 3, groups - few, random)
    sizes[random.choice(others)] += left * 2 // 3
    return sizes


DRAWN: dict[str, Callable[[int, int, np.random.Generator], Sizes]] = {
    "unaligned": unaligned,
    "equal": lambda rows, groups, _: equal(rows, groups),
    "aligned": aligned,
    "whole-tiles": whole_tiles,
    "empty-groups": empty_groups,
    "one-group": one_group,
    "single-rows": single_rows,
    "crowded": crowded,
}
TIMED: dict[str, Callable[[int, int], Sizes]] = {"balanced": balanced, "skewed": skewed}
# Kinds that the full shape gets besides the timed ones: the largest possible group, and the most regular sizes.
AT_FULL_SHAPE = ("one-group", "equal")


def any_kind(rows: int, groups: int, random: np.random.Generator) -> Sizes:
    """Sizes of a randomly drawn kind."""
    return DRAWN[str(random.choice(tuple(DRAWN)))](rows, groups, random)


def _thrown(rows: int, shares: NDArray[np.float64], random: np.random.Generator) -> Sizes:
    return random.multinomial(rows, shares).astype(np.int32)


def _anywhere(rows: int, groups: int, random: np.random.Generator) -> Sizes:
    return _between(np.sort(random.integers(rows + 1, size=groups - 1)), rows)


def _between(borders: NDArray[np.int64], rows: int) -> Sizes:
    return np.diff(borders, prepend=0, append=rows).astype(np.int32)
