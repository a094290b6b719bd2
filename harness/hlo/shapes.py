"""Shapes of HLO values with their layouts: reading, printing, and the size in memory with tiles and padding.

The text is XLA's: `bf16[8,128]{1,0:T(8,128)(2,1)S(1)}`, tuples and dynamic dimensions included.
"""

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import reduce
from typing import TypeAlias

from harness.errors import RatchetError
from harness.hlo.tokens import DIMENSIONS, Misunderstood, Tokens

# Bits of one element in memory, unless the layout states another width. Types below a byte take a whole byte (XLA's
# primitive types, xla_data.proto).
ELEMENT_BITS = {
    **dict.fromkeys(("pred", "s1", "s2", "s4", "s8", "u1", "u2", "u4", "u8"), 8),
    **dict.fromkeys(("f4e2m1fn", "f8e3m4", "f8e4m3", "f8e4m3fn", "f8e4m3fnuz", "f8e4m3b11fnuz"), 8),
    **dict.fromkeys(("f8e5m2", "f8e5m2fnuz", "f8e8m0fnu"), 8),
    **dict.fromkeys(("s16", "u16", "f16", "bf16"), 16),
    **dict.fromkeys(("s32", "u32", "f32"), 32),
    **dict.fromkeys(("s64", "u64", "f64", "c64"), 64),
    "c128": 128,
    **dict.fromkeys(("token", "opaque"), 0),
}
# In a tile, `*` stands for a dimension that is joined with the next, more minor dimension.
JOINED = -1
# The memory spaces of a TPU that are published: 0 and 1 in the scaling book, 5 in XLA's layout.h (host offloading).
HOST = 5
MEMORIES = {0: "HBM", 1: "VMEM", HOST: "host"}
# The deepest nesting of tuples that is read; real tuples are two or three deep.
_DEEPEST = 50
# XLA counts the elements of an array in 64 bits. A tile of a chip has a few thousand elements.
_MOST_ELEMENTS, _LARGEST_TILE, _MOST_TILES = 1 << 63, 1 << 31, 8
# The form of nearly all arrays, read in one match; any other form is read token by token.
_PLAIN_ARRAY = re.compile(
    r"([a-z]\w{1,12})\[((?:\d{1,9},){0,5}\d{1,9})?\]"
    r"(\{((?:\d,){0,5}\d)?(?::(?:T((?:\((?:[1-9]\d{0,3},)?[1-9]\d{0,3}\)){1,4}))?(?:S\((\d)\))?)?\})?(?!\{)"
)
_TILE = re.compile(r"\(([\d,]+)\)")


@dataclass(frozen=True, slots=True, kw_only=True)
class Layout:
    """The placement of an array in memory; `minor_to_major` lists its dimensions, fastest varying first.

    `tiles` are applied one after the other. `element_bits` is 0 if the width is that of the dtype. The array's size is
    rounded up to a multiple of `tail_elements`. `others` has the known parts that do not affect the size, such as
    `SC(0:8)`.
    """

    minor_to_major: tuple[int, ...] = ()
    tiles: tuple[tuple[int, ...], ...] = ()
    tail_elements: int = 1
    element_bits: int = 0
    memory_space: int = 0
    others: tuple[str, ...] = ()

    def __str__(self) -> str:
        after = "".join(f"({','.join('*' if size == JOINED else str(size) for size in tile)})" for tile in self.tiles)
        after = f"T{after}" if after else ""
        after += f"L({self.tail_elements})" if self.tail_elements != 1 else ""
        after += f"E({self.element_bits})" if self.element_bits else ""
        after += f"S({self.memory_space})" if self.memory_space else ""
        after += "".join(self.others)
        return "{" + ",".join(map(str, self.minor_to_major)) + (f":{after}" if after else "") + "}"

    @property
    def order(self) -> str:
        """The dimensions without the tiles, fastest varying first, such as `{1,0}`."""
        return "{" + ",".join(map(str, self.minor_to_major)) + "}"

    @property
    def memory(self) -> str:
        """The name of the memory; if it has none, its number as HLO writes it."""
        return MEMORIES.get(self.memory_space, f"S({self.memory_space})")


@dataclass(frozen=True, slots=True, kw_only=True)
class Array:
    """The shape of one array. If a dimension is `dynamic`, its size is an upper bound; None means no bound."""

    dtype: str
    dimensions: tuple[int | None, ...] = ()
    dynamic: tuple[bool, ...] = ()
    layout: Layout | None = None

    def __post_init__(self) -> None:
        if not self.dynamic:
            object.__setattr__(self, "dynamic", (False,) * len(self.dimensions))
        if len(self.dynamic) != len(self.dimensions):
            raise ValueError(f"expected {len(self.dimensions)} marks of dynamic dimensions, got {self.dynamic}")
        order = self.layout.minor_to_major if self.layout else ()
        if order and sorted(order) != list(range(len(self.dimensions))):
            raise ValueError(f"the layout {self.layout} does not order the {len(self.dimensions)} dimensions of {self}")

    def __str__(self) -> str:
        return f"{self.plain}{self.layout or ''}"

    @property
    def plain(self) -> str:
        """The shape without the layout, such as `bf16[8,128]`."""
        pairs = zip(self.dimensions, self.dynamic, strict=True)
        sizes = ("?" if size is None else f"<={size}" if moves else str(size) for size, moves in pairs)
        return f"{self.dtype}[{','.join(sizes)}]"

    @property
    def elements(self) -> int | None:
        """The largest possible number of elements; None if a dimension has no bound."""
        return product(self.dimensions)

    @property
    def element_bits(self) -> int | None:
        """Bits of one element in memory; None for a type that is not known."""
        bits = self.layout.element_bits if self.layout else 0
        return bits or ELEMENT_BITS.get(self.dtype)

    @property
    def logical_bytes(self) -> int | None:
        """Bytes of the elements without padding; None if that is not known."""
        return _bytes(self.elements, self.element_bits)

    @property
    def physical_dimensions(self) -> tuple[int, ...] | None:
        """The dimensions in memory, most major first. Dimensions under the first tile are rounded up to whole tiles.

        Example: (4, 6) for f32[3,5]{1,0:T(2,2)}. None if the dimensions are not known.
        """
        sizes = self._ordered()
        if sizes is None or self.layout is None or not self.layout.tiles:
            return sizes
        first = self.layout.tiles[0]
        if JOINED in first:
            return None
        sizes = (1,) * (len(first) - len(sizes)) + sizes
        whole = len(sizes) - len(first)
        return sizes[:whole] + tuple(-(-size // tile) * tile for size, tile in zip(sizes[whole:], first, strict=True))

    def place(self, index: Sequence[int]) -> int | None:
        """The offset in memory of the element at `index`, in elements; None if the offset is not known.

        Example: 17 for the index (2, 3) of f32[3,5]{1,0:T(2,2)}.
        """
        sizes = self._ordered()
        if sizes is None or self.layout is None or any(JOINED in tile for tile in self.layout.tiles):
            return None
        at = tuple(index[dimension] for dimension in reversed(self.layout.minor_to_major))
        for tile in self.layout.tiles:
            more = (0,) * (len(tile) - len(at))
            at, sizes, whole = more + at, (1,) * len(more) + sizes, max(0, len(at) - len(tile))
            covered = tuple(zip(at[whole:], tile, strict=True))
            at = (*at[:whole], *(place // size for place, size in covered), *(place % size for place, size in covered))
            sizes = _tiled(sizes, tile)
        return reduce(lambda place, next_: place * next_[0] + next_[1], zip(sizes, at, strict=True), 0)

    @property
    def padded_elements(self) -> int | None:
        """Elements in memory with the padding of all tiles; None if a dimension has no bound.

        In XLA's tiled layout (openxla.org/xla/tiled_layout), each tile splits each of the most minor dimensions into
        two: the number of tiles, rounded up, and the size of a tile. The next tile splits the result.
        """
        sizes = self._ordered()
        if sizes is None:
            return None
        layout = self.layout or Layout()
        for tile in layout.tiles:
            sizes = _tiled(sizes, tile)
        total = math.prod(sizes)
        return -(-total // layout.tail_elements) * layout.tail_elements

    @property
    def padded_bytes(self) -> int | None:
        """Bytes in memory with the padding of all tiles; None if that is not known."""
        return _bytes(self.padded_elements, self.element_bits)

    @property
    def overhead(self) -> float | None:
        """Bytes in memory divided by the bytes of the elements, 1.6 for f32[3,5]{1,0:T(2,2)}; None if not known."""
        padded, logical = self.padded_bytes, self.logical_bytes
        return padded / logical if padded is not None and logical else None

    @property
    def memory_space(self) -> int:
        """The number of the array's memory space: 0 (HBM on a TPU) unless the layout states another."""
        return self.layout.memory_space if self.layout else 0

    @property
    def major_to_minor(self) -> tuple[int, ...]:
        """The dimensions in memory from slowest to fastest varying; without a layout, in the order of the shape."""
        order = self.layout.minor_to_major if self.layout else ()
        return order[::-1] or tuple(range(len(self.dimensions)))

    def _ordered(self) -> tuple[int, ...] | None:
        """The sizes of the dimensions, most major first; None if a dimension has no bound."""
        sizes = tuple(self.dimensions[place] for place in self.major_to_minor)
        return None if None in sizes else tuple(size for size in sizes if size is not None)


@dataclass(frozen=True, slots=True, kw_only=True)
class Tuple:
    """The shape of a tuple."""

    members: "tuple[Shape, ...]" = ()

    def __str__(self) -> str:
        return f"({', '.join(map(str, self.members))})"

    @property
    def plain(self) -> str:
        """The members' shapes without layouts."""
        return f"({', '.join(member.plain for member in self.members)})"


Shape: TypeAlias = Array | Tuple


def arrays(shape: Shape) -> tuple[Array, ...]:
    """All arrays of a shape, including those of nested tuples."""
    if isinstance(shape, Array):
        return (shape,)
    return tuple(array for member in shape.members for array in arrays(member))


def padded_bytes(shape: Shape) -> int | None:
    """Bytes in memory of all arrays of a shape; None if the bytes of one array are not known."""
    sizes = [array.padded_bytes for array in arrays(shape)]
    bounded = [size for size in sizes if size is not None]
    return sum(bounded) if len(bounded) == len(sizes) else None


def _tiled(sizes: tuple[int, ...], tile: tuple[int, ...]) -> tuple[int, ...]:
    # If a tile has more dimensions than the shape, the missing dimensions have size 1 (a scalar under T(128)).
    sizes = (1,) * (len(tile) - len(sizes)) + sizes
    whole, covered = sizes[: len(sizes) - len(tile)], list(sizes[len(sizes) - len(tile) :])
    for place, size in enumerate(tile):
        if size == JOINED and place + 1 < len(tile):
            covered[place + 1] *= covered[place]
            covered[place] = 1
    pairs = [(size, of) for size, of in zip(covered, tile, strict=True) if of != JOINED]
    return (*whole, *(-(-size // of) for size, of in pairs), *(of for _, of in pairs))


def product(sizes: Sequence[int | None]) -> int | None:
    """The product of sizes; None if one of them is None."""
    bounded = [size for size in sizes if size is not None]
    return math.prod(bounded) if len(bounded) == len(sizes) else None


def _bytes(elements: int | None, bits: int | None) -> int | None:
    return None if elements is None or bits is None else -(-elements * bits // 8)


def shape(text: str) -> Shape:
    """The shape that `text` states. Raises RatchetError `bad-hlo`."""
    tokens = Tokens(text)
    try:
        parsed = read_shape(tokens)
        if tokens.peek().kind != "end":
            raise tokens.misunderstood("the end of the shape")
    except Misunderstood as error:
        raise RatchetError("bad-hlo", f"{text[:80]!r} is not a shape such as bf16[8,128]{{1,0}}: {error}") from error
    return parsed


def array(text: str) -> Array:
    """The shape of a single array that `text` states. Raises RatchetError `bad-hlo`."""
    parsed = shape(text)
    if isinstance(parsed, Tuple):
        raise RatchetError("bad-hlo", f"expected the shape of one array, got the tuple {parsed}")
    return parsed


def read_shape(tokens: Tokens, depth: int = 0) -> Shape:
    """The shape that begins at the next token, `depth` tuples deep. Raises Misunderstood."""
    if depth > _DEEPEST:
        raise tokens.misunderstood(f"tuples no more than {_DEEPEST} deep")
    if (plain := _plain_array(tokens)) is not None:
        return plain
    if tokens.skip("("):
        return Tuple(members=tuple([read_shape(tokens, depth + 1) for _ in tokens.items(")")]))
    start = tokens.peek()
    dtype = tokens.name()
    if dtype not in ELEMENT_BITS:
        raise Misunderstood(
            f"{tokens.where(start.start)}: expected a type such as bf16 or f32, got `{start.text[:40]}`"
        )
    tokens.expect("[")
    sizes: list[int | None] = []
    dynamic: list[bool] = []
    for _ in tokens.items("]"):
        if tokens.skip("?"):
            sizes.append(None)
            dynamic.append(True)
            continue
        dynamic.append(tokens.skip("<="))
        sizes.append(tokens.integer())
        if (sizes[-1] or 0) < 0:
            raise Misunderstood(f"expected a dimension of 0 or more, got {sizes[-1]}")
        DIMENSIONS.check(len(sizes), f"the shape at {tokens.where(start.start)}")
    if math.prod(size for size in sizes if size) >= _MOST_ELEMENTS:
        raise Misunderstood(f"{tokens.where(start.start)}: expected a shape of less than 2^63 elements")
    layout = _layout(tokens, len(sizes)) if _begins_layout(tokens) else None
    try:
        return Array(dtype=dtype, dimensions=tuple(sizes), dynamic=tuple(dynamic), layout=layout)
    except ValueError as error:
        raise Misunderstood(str(error)) from error


def _plain_array(tokens: Tokens) -> Array | None:
    """The array that begins at the next token. If its form is unusual or wrong, takes no token and returns None."""
    start = tokens.place
    match = tokens.match(_PLAIN_ARRAY)
    if match is None:
        return None
    dtype, dimensions, layout, order, tiles, memory_space = match.groups()
    sizes, places = _numbers(dimensions), _numbers(order)
    is_known = dtype in ELEMENT_BITS and len(sizes) <= DIMENSIONS.value
    is_ordered = layout is None or sorted(places) == list(range(len(sizes)))
    if not (is_known and is_ordered) or math.prod(filter(None, sizes)) >= _MOST_ELEMENTS:
        tokens.jump(start)
        return None
    if layout is None:
        return Array(dtype=dtype, dimensions=sizes)
    tilings = tuple([_numbers(tile) for tile in _TILE.findall(tiles or "")])
    placed = Layout(minor_to_major=places, tiles=tilings, memory_space=int(memory_space or 0))
    return Array(dtype=dtype, dimensions=sizes, layout=placed)


def _numbers(text: str | None) -> tuple[int, ...]:
    return tuple(map(int, text.split(","))) if text else ()


def _begins_layout(tokens: Tokens) -> bool:
    """True if a brace follows the shape directly; a brace after a space begins the body of a computation."""
    return tokens.sees("{") and tokens.text[tokens.peek().start - 1] == "]"


def _layout(tokens: Tokens, rank: int) -> Layout:
    tokens.expect("{")
    order: list[int] = []
    while not tokens.sees(":", "}"):
        if order:
            tokens.expect(",")
        if tokens.peek().kind != "number":
            raise tokens.misunderstood("a dimension's number, or `:` before tiles and memory space,")
        order.append(tokens.integer())
        DIMENSIONS.check(len(order), "a layout")
    if len(order) != rank:
        raise Misunderstood(f"the layout orders {len(order)} dimensions, the shape has {rank}")
    tiles: list[tuple[int, ...]] = []
    numbers = {"L": 1, "E": 0, "S": 0}
    others: list[str] = []
    if tokens.skip(":"):
        while not tokens.sees("}"):
            name = tokens.take().text
            if name == "T":
                while tokens.sees("("):
                    tiles.append(_tile(tokens))
                    if len(tiles) > _MOST_TILES:
                        raise Misunderstood(f"expected at most {_MOST_TILES} tilings, one within the other")
            elif name in numbers:
                tokens.expect("(")
                numbers[name] = tokens.integer()
                tokens.expect(")")
                if not 0 <= numbers[name] < _LARGEST_TILE:
                    raise Misunderstood(f"{name}({numbers[name]}) in a layout: expected a number of 31 bits")
            elif name in ("D", "SC", "M", "P", "#", "*"):
                others.append(name + tokens.group())
            else:
                raise Misunderstood(f"`{name[:40]}` in a layout: expected tiles T(8,128), a memory S(1) or bits E(4)")
    tokens.expect("}")
    return Layout(
        minor_to_major=tuple(order),
        tiles=tuple(tiles),
        tail_elements=numbers["L"],
        element_bits=numbers["E"],
        memory_space=numbers["S"],
        others=tuple(others),
    )


def _tile(tokens: Tokens) -> tuple[int, ...]:
    tokens.expect("(")
    sizes: list[int] = []
    for _ in tokens.items(")"):
        if tokens.skip("*"):
            sizes.append(JOINED)
            continue
        sizes.append(tokens.integer())
        if sizes[-1] < 1:
            raise Misunderstood(f"expected a tile of 1 or more in each dimension, got {sizes[-1]}")
        DIMENSIONS.check(len(sizes), "a tile")
    if math.prod(size for size in sizes if size != JOINED) >= _LARGEST_TILE:
        raise Misunderstood("expected tiles of less than 2^31 elements")
    return tuple(sizes)
