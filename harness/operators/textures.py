"""The space from which the matrices of products and norms are drawn, with their scales, outliers, offsets and zeros."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from harness.operators import space
from harness.operators.blocks import borders, empty_lines, repeated_lines
from harness.operators.normals import normal
from harness.records import Array, Statement

# Beyond these limits, sums overflow float32, or squares of the smallest numbers underflow.
LIMITS = {
    "scale": (2.0**-20, 2.0**12),
    "row_spread": (0.0, 12.0),
    "column_spread": (0.0, 12.0),
    "row_offset": (0.0, 100.0),
    "column_offset": (0.0, 100.0),
    "channels": (0, 8),
    "channel_factor": (1.0, 1024.0),
    "spikes": (0, 8),
    "spike": (1.0, 1024.0),
    "zeros": (0.0, 0.99),
    "empty_rows": (0.0, 0.5),
    "empty_columns": (0.0, 0.5),
    "cancelled": (0.0, 0.9),
    "repeated": (0.0, 0.2),
    "sign": (-1, 1),
    "noise": (0.0, 1.0),
}
# Means far from zero, and different in every row or column, as in attention.
_OFFSETS = (96.0, 104.0)
# An attempt draws one recipe of each of these kinds.
KINDS = ("scales", "outliers", "offsets", "even", "empty", "mixture")
# The kind of recipe for shapes that get only one draw.
ALL = "outliers"
# The kinds with equal neighbouring rows and columns, and those with matrices of one sign.
_REPEATING, _SIGNED = ("scales", ALL), ("scales", "empty")


@dataclass(frozen=True, slots=True, kw_only=True)
class Texture:
    """The contents of one matrix: N(0, noise^2) times `scale`, changed as the other fields say.

    - Rows and columns are e^(-spread u) times as large, u uniform in [0, 1).
    - Each row and column has its own mean of up to `offset`.
    - `channels` of the columns are `channel_factor` times as large.
    - In each row, `spikes` random elements are +/-`spike`; no column gets a second spike before every column has one.
    - If `sign` is 1 or -1, all elements have this sign (or are zero).
    - The fraction `zeros` of the elements is zero, and so are fractions of whole rows and columns, except in a vector
      (`blocks.empty_lines`).
    """

    noise: float = 1.0
    scale: float = 1.0
    row_spread: float = 0.0
    column_spread: float = 0.0
    row_offset: float = 0.0
    column_offset: float = 0.0
    channels: int = 0
    channel_factor: float = 1.0
    spikes: int = 0
    spike: float = 1.0
    zeros: float = 0.0
    empty_rows: float = 0.0
    empty_columns: float = 0.0
    sign: int = 0

    def in_words(self) -> str:
        """The differences from N(0, 1), in words."""
        phrases = [
            (self.noise != 1, f"noise {self.noise:.3g}"),
            (self.scale != 1, f"scale {self.scale:.3g}"),
            (self.row_spread, f"rows down to e^-{self.row_spread:.2g}"),
            (self.column_spread, f"columns down to e^-{self.column_spread:.2g}"),
            (self.row_offset, f"rows around +/-{self.row_offset:.3g}"),
            (self.column_offset, f"columns around +/-{self.column_offset:.3g}"),
            (self.channels, f"{self.channels} columns x {self.channel_factor:.3g}"),
            (self.spikes, f"{self.spikes} spikes of {self.spike:.3g} in each row"),
            (self.sign, "no negative elements" if self.sign > 0 else "no positive elements"),
            (self.zeros, f"{self.zeros:.0%} zeros"),
            (self.empty_rows, f"{self.empty_rows:.0%} of the rows zero"),
            (self.empty_columns, f"{self.empty_columns:.0%} of the columns zero"),
        ]
        return ", ".join(words for applies, words in phrases if applies) or "N(0, 1)"


@dataclass(frozen=True, slots=True, kw_only=True)
class Recipe:
    """A texture for each input matrix, in order, and properties that the matrices share.

    - The fraction `cancelled` of the terms along the inner axis cancel.
    - If `repeated` is not 0, many rows and columns (along the last two axes) equal the one before, this fraction of
      them at random places (`blocks.repeated_lines`). The places are the same on all axes of the same length.
    """

    textures: tuple[Texture, ...]
    cancelled: float = 0.0
    repeated: float = 0.0

    def in_words(self, names: Sequence[str]) -> str:
        """The recipe's notable properties, in words for people."""
        phrases = [f"{name}: {texture.in_words()}" for name, texture in zip(names, self.textures, strict=False)]
        if self.cancelled:
            phrases.append(f"{self.cancelled:.0%} of the terms cancel")
        if self.repeated:
            phrases.append("rows and columns equal to the one before")
        return "; ".join(phrases)


def draw(kind: str, matrices: int, random: np.random.Generator) -> Recipe:
    """A recipe of this kind for `matrices` matrices. Raises ValueError for a kind that does not exist.

    scales: rows and columns of different scales. outliers: large columns, a few rows and columns of zeros, and in the
    first matrix spikes and rows of different scales. offsets: means that are not zero, and terms that cancel. even: all
    elements of a row of the first matrix are equal, so that roundings of equal terms do not average out. empty: rows
    and columns of zeros between others. mixture: any of the first three together, each matrix scaled, some with zeros.
    In scales, outliers and half of the mixtures, neighbouring rows and columns are equal at many places. In half of the
    matrices of scales and empty, all elements have the same sign.
    """
    if kind not in KINDS:
        raise ValueError(f"expected a kind of {KINDS}, got {kind!r}")
    textures = []
    for matrix in range(matrices):
        scales: dict[str, Any] = {"row_spread": random.uniform(0, 8), "column_spread": random.uniform(0, 8)}
        channels, factor = int(random.integers(5)), float(2 ** random.uniform(1, 8))
        outliers: dict[str, Any] = {"channels": channels, "channel_factor": factor}
        if matrix == 0:
            outliers |= {"spikes": int(random.integers(4, 9)), "spike": float(2 ** random.uniform(8, 10))}
            outliers |= {"row_spread": random.uniform(0, 8)}
        offsets: dict[str, Any] = {"row_offset": random.uniform(0, 100), "column_offset": random.uniform(0, 100)}
        even: dict[str, Any] = {}
        empty: dict[str, Any] = {}
        if kind == "even" and matrix == 0:
            even = {"noise": 0.0, "row_offset": random.uniform(1, 100)}
        if kind == "empty":
            empty = {"empty_rows": random.uniform(0.05, 0.3), "empty_columns": random.uniform(0.05, 0.3)}
        if kind == ALL:
            outliers |= {"empty_rows": random.uniform(0.01, 0.05), "empty_columns": random.uniform(0.01, 0.05)}
        made = {"scales": scales, "outliers": outliers, "offsets": offsets, "even": even, "empty": empty}.get(kind)
        if made is None:
            parts = [part for part in (scales, outliers, offsets) if random.random() < 0.5]
            made = {name: value for part in parts for name, value in part.items()}
            made |= {"scale": float(2 ** random.uniform(-20, 6)), "zeros": max(0.0, random.uniform(-1, 0.9))}
        if kind in _SIGNED:
            made["sign"] = int(random.choice([-1, 0, 0, 1]))
        textures.append(Texture(**made))
    cancels = kind == "offsets" or (kind == "mixture" and random.random() < 0.3)
    cancelled = random.uniform(0.1, 0.9) if cancels else 0.0
    repeats = kind in _REPEATING or (kind == "mixture" and random.random() < 0.5)
    return Recipe(textures=tuple(textures), cancelled=cancelled, repeated=random.uniform(0.02, 0.1) if repeats else 0.0)


def build(texture: Texture, shape: tuple[int, ...], random: np.random.Generator) -> NDArray[np.float32]:
    """An array of this shape with this texture, float32 and not rounded; the last axis has the columns."""
    rows, columns = math.prod(shape[:-1]), shape[-1]
    array = normal(random, rows, columns)
    _scale(array, np.float32(texture.noise))
    if texture.row_offset:
        array += random.uniform(-texture.row_offset, texture.row_offset, (rows, 1)).astype(np.float32)
    if texture.column_offset:
        array += random.uniform(-texture.column_offset, texture.column_offset, columns).astype(np.float32)
    if texture.channels:
        channels = random.choice(columns, min(texture.channels, columns), replace=False)
        array[:, channels] *= np.float32(texture.channel_factor)
    if texture.zeros:
        array *= random.random((rows, columns), dtype=np.float32) >= texture.zeros
    spike(array, texture.spikes, texture.spike, random)
    _scale(array, np.exp(-np.float32(texture.row_spread) * random.random((rows, 1), dtype=np.float32)))
    _scale(array, np.exp(-np.float32(texture.column_spread) * random.random(columns, dtype=np.float32)))
    _scale(array, np.float32(texture.scale))
    if rows > 1:
        for empty, share in ((array, texture.empty_rows), (array.T, texture.empty_columns)):
            if share:
                # Half of the rows or columns at borders of blocks are zeroed too: kernels may test only these.
                edges = borders(len(empty))
                empty[empty_lines(len(empty), share, random)] = 0
                empty[edges[random.random(len(edges)) < 0.5]] = 0
    if texture.sign:
        np.abs(array, out=array)
        _scale(array, np.float32(texture.sign))
    return array.reshape(shape)


def _scale(values: NDArray[np.float32], factors: NDArray[np.float32] | np.float32) -> None:
    """Multiplies `values` by `factors` in place; skips the work if all factors are 1, as is usual."""
    if np.any(factors != 1):
        values *= factors


def repeat(arrays: Sequence[NDArray[Any]], share: float, random: np.random.Generator) -> None:
    """Copies rows and columns to the next ones, at `blocks.repeated_lines`; lines of zeros are not copied.

    The places are the same on all axes of the same length, so that the rows of a sum of two arrays repeat too. A vector
    stays as it is.
    """
    matrices = [array.reshape(-1, *array.shape[-2:]) for array in arrays if array.ndim > 1]
    lengths = sorted({length for matrix in matrices for length in matrix.shape[1:]})
    places = {length: repeated_lines(length, share, random) for length in lengths}
    for matrix in matrices:
        for plane in matrix:
            for lines in (plane, plane.T):
                some = places[len(lines)]
                some = some[lines[some].any(axis=1)]
                lines[some + 1] = lines[some]


def far_offsets(count: int, random: np.random.Generator) -> NDArray[np.float32]:
    """`count` numbers of size 96 to 104; the first half and the second half have opposite signs, drawn at random.

    So there are large blocks without positive elements and large blocks without negative elements.
    """
    offsets = random.uniform(*_OFFSETS, count).astype(np.float32)
    sign = np.float32(random.choice([-1, 1]))
    offsets[: count // 2] *= sign
    offsets[count // 2 :] *= -sign
    return offsets


def spike(rows: NDArray[Any], count: int, size: float, random: np.random.Generator) -> None:
    """Writes +/-`size` to `count` places of each row; no column gets a second spike before every column has one."""
    total = len(rows) * count
    if not total:
        return
    dealt = np.concatenate([random.permutation(rows.shape[1]) for _ in range(-(-total // rows.shape[1]))])[:total]
    # Where two permutations meet, neighbouring rows may share a column. Rarely a row gets a column twice, and then has
    # one spike fewer.
    rows[np.repeat(np.arange(len(rows)), count), dealt] = size * random.choice([-1.0, 1.0], total)


def cancel(a: NDArray[Any], b: NDArray[Any], share: float, random: np.random.Generator) -> None:
    """Makes this fraction of a product's terms, at random places, cancel in pairs."""
    count = int(share * a.shape[1] / 2)
    places = random.permutation(a.shape[1])
    first, second = places[:count], places[count : 2 * count]
    a[:, second] = -a[:, first]
    b[second] = b[first]


class Textured(space.Recipes):
    """The space of a problem whose inputs are matrices, with a texture for each; a vector counts as one row.

    At a reduced shape, the families are those of the class and drawn ones. The full shape has a draw, and a composite
    of the class's families.
    """

    __slots__ = ()
    record, kinds, limits = Recipe, KINDS, LIMITS
    own_families: ClassVar[tuple[str, ...]]

    def statement(self) -> Statement:
        """As in a Problem."""
        raise NotImplementedError

    def families(self, full: bool) -> tuple[str, ...]:
        """The families: a draw and a composite at the full shape; each kind alone, and draws, at a reduced shape."""
        if full:
            return (space.DRAWN + ALL, "composite")
        return (*self.own_families, *(space.DRAWN + kind for kind in KINDS))

    def require_family(self, family: str) -> None:
        """Raises ValueError if `family` is neither a family of the class nor the composite."""
        families = (*self.own_families, "composite")
        if family not in families:
            raise ValueError(f"expected an input family of {families}, got {family!r}")

    def drawn_record(self, kind: str, random: np.random.Generator) -> Recipe:
        """A recipe of this kind, as `draw` makes it, with a texture for each input."""
        return draw(kind, self.recipe_parts, random)

    @property
    def _textured_inputs(self) -> tuple[Array, ...]:
        """The inputs, each of which has a texture."""
        return self.statement().inputs

    @property
    def recipe_parts(self) -> int:
        """The number of textures."""
        return len(self._textured_inputs)

    def recipe_in_words(self, recipe: str) -> str:
        """The recipe's notable properties, in words for people."""
        return space.parsed(recipe, Recipe).in_words([array.name for array in self._textured_inputs])

    def _textured(self, family: str, seed: int) -> tuple[list[NDArray[np.float32]], float, np.random.Generator]:
        """The inputs of a recipe, float32; the share of terms that cancel; the generator that draws these terms.

        Raises ValueError if the recipe does not have one texture for each of `_textured_inputs`.
        """
        recipe, random = space.parsed(self.recipe(family, seed), Recipe), space.generator(family, seed)
        textured, textures = self._textured_inputs, recipe.textures
        if len(textures) != len(textured):
            raise ValueError(f"expected a texture for each of {len(textured)} inputs, got {len(textures)}")
        made = [build(texture, array.shape, random) for texture, array in zip(textures, textured, strict=True)]
        if recipe.repeated:
            repeat(made, recipe.repeated, random)
        return made, recipe.cancelled, random
