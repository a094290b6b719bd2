"""Shapes from their HLO text: `bf16[8,128]{1,0:T(8,128)(2,1)S(1)}`, tuples and dynamic dimensions included."""

import math

from harness import limits
from harness.errors import RatchetError
from harness.workbench.hlo.shapes import ELEMENT_BITS, JOINED, Array, Layout, Shape, Tuple
from harness.workbench.hlo.tokens import Misunderstood, Tokens

# Real tuples are two or three deep.
_DEEPEST = 50
# XLA counts the elements of an array in 64 bits; tiles of a chip have a few thousand.
_MOST_ELEMENTS, _LARGEST_TILE, _MOST_TILES = 1 << 63, 1 << 31, 8


def shape(text: str) -> Shape:
    """The shape that `text` is. Raises RatchetError `bad-hlo`."""
    tokens = Tokens(text)
    try:
        found = read_shape(tokens)
        if tokens.peek().kind != "end":
            raise tokens.misunderstood("the end of the shape")
    except Misunderstood as error:
        raise RatchetError("bad-hlo", f"{text[:80]!r} is no shape such as bf16[8,128]{{1,0}}: {error}") from error
    return found


def array(text: str) -> Array:
    """The same, of one array. Raises RatchetError `bad-hlo`."""
    found = shape(text)
    if isinstance(found, Tuple):
        raise RatchetError("bad-hlo", f"expected the shape of one array, got the tuple {found}")
    return found


def read_shape(tokens: Tokens, depth: int = 0) -> Shape:
    """The shape that begins at the next token, `depth` tuples deep. Raises Misunderstood."""
    if depth > _DEEPEST:
        raise tokens.misunderstood(f"tuples no more than {_DEEPEST} deep")
    if tokens.skip("("):
        members: list[Shape] = []
        while not tokens.skip(")"):
            if members:
                tokens.expect(",")
            members.append(read_shape(tokens, depth + 1))
        return Tuple(members=tuple(members))
    start = tokens.peek()
    dtype = tokens.name()
    if dtype not in ELEMENT_BITS:
        raise Misunderstood(
            f"{tokens.where(start.start)}: expected a type such as bf16 or f32, got `{start.text[:40]}`"
        )
    tokens.expect("[")
    sizes: list[int | None] = []
    dynamic: list[bool] = []
    while not tokens.skip("]"):
        if sizes:
            tokens.expect(",")
        if tokens.skip("?"):
            sizes.append(None)
            dynamic.append(True)
            continue
        dynamic.append(tokens.skip("<="))
        sizes.append(tokens.integer())
        if (sizes[-1] or 0) < 0:
            raise Misunderstood(f"a dimension of {sizes[-1]}")
        limits.DIMENSIONS.check(len(sizes), f"the shape at {tokens.where(start.start)}")
    if math.prod(size for size in sizes if size) >= _MOST_ELEMENTS:
        raise Misunderstood(f"{tokens.where(start.start)}: expected a shape of less than 2^63 elements")
    layout = _layout(tokens, len(sizes)) if _begins_layout(tokens) else None
    try:
        return Array(dtype=dtype, dimensions=tuple(sizes), dynamic=tuple(dynamic), layout=layout)
    except ValueError as error:
        raise Misunderstood(str(error)) from error


def _begins_layout(tokens: Tokens) -> bool:
    """A brace straight behind the shape; behind a space it would be the body of a computation."""
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
        limits.DIMENSIONS.check(len(order), "a layout")
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
                        raise Misunderstood(f"expected tiles of {_MOST_TILES} kinds at most, one in the other")
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
    while not tokens.skip(")"):
        if sizes:
            tokens.expect(",")
        if tokens.skip("*"):
            sizes.append(JOINED)
            continue
        sizes.append(tokens.integer())
        if sizes[-1] < 1:
            raise Misunderstood(f"a tile of {sizes[-1]}")
        limits.DIMENSIONS.check(len(sizes), "a tile")
    if math.prod(size for size in sizes if size != JOINED) >= _LARGEST_TILE:
        raise Misunderstood("expected tiles of less than 2^31 elements")
    return tuple(sizes)
