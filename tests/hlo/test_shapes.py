"""Shapes and layouts: their text as XLA itself reads and prints it, and padding element by element."""

import itertools
import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from jaxlib import _hlo

from harness.errors import RatchetError
from harness.hlo.shapes import ELEMENT_BITS, JOINED, Array, Layout, Shape, Tuple, array, arrays, padded_bytes, shape

TILES = ((), ((8, 128), (2, 1)), ((8, 128),), ((4, 128),), ((2, 2),), ((128,),), ((1024,), (128,), (2, 1)), ((2, 1),))
DTYPES = sorted(set(ELEMENT_BITS) - {"token", "opaque"})


@st.composite
def layouts(draw: st.DrawFn, rank: int) -> Layout:
    return Layout(
        minor_to_major=tuple(draw(st.permutations(range(rank)))),
        tiles=draw(st.sampled_from(TILES)),
        memory_space=draw(st.integers(0, 6)),
        element_bits=draw(st.sampled_from((0, 0, 4))),
        tail_elements=draw(st.sampled_from((1, 1, 1024))),
    )


@st.composite
def written_arrays(draw: st.DrawFn) -> Array:
    rank = draw(st.integers(0, 4))
    layout = draw(layouts(rank))
    # XLA writes no layout for a scalar that says nothing.
    is_plain = not rank and layout == Layout()
    return Array(
        dtype=draw(st.sampled_from(DTYPES)),
        dimensions=tuple(draw(st.lists(st.integers(1, 300), min_size=rank, max_size=rank))),
        dynamic=tuple(draw(st.lists(st.booleans(), min_size=rank, max_size=rank))),
        layout=None if is_plain else layout,
    )


def shapes() -> st.SearchStrategy[Shape]:
    return st.recursive(
        written_arrays(),
        lambda inner: st.lists(inner, max_size=3).map(lambda read_shape: Tuple(members=tuple(read_shape))),
    )


@pytest.mark.long
@given(shapes())
@settings(max_examples=150)
def test_what_is_printed_reads_as_the_same_here_and_in_xla(read_shape: Shape) -> None:
    text = str(read_shape)
    assert shape(text) == read_shape
    assert str(_hlo.Shape(text)) == text


def offset(sizes: tuple[int, ...], index: tuple[int, ...], tiles: tuple[tuple[int, ...], ...]) -> int:
    """The place of an element in memory, from XLA's page on tiled layouts, for dimensions in major-to-minor order."""
    if not tiles:
        place = 0
        for size, at in zip(sizes, index, strict=True):
            place = place * size + at
        return place
    tile, rest = tiles[0], tiles[1:]
    missing = max(0, len(tile) - len(sizes))
    sizes, index = (1,) * missing + sizes, (0,) * missing + index
    whole = len(sizes) - len(tile)
    counts = tuple(math.ceil(size / of) for size, of in zip(sizes[whole:], tile, strict=True))
    outer = tuple(at // of for at, of in zip(index[whole:], tile, strict=True))
    inner = tuple(at % of for at, of in zip(index[whole:], tile, strict=True))
    return offset((*sizes[:whole], *counts, *tile), (*index[:whole], *outer, *inner), rest)


@given(
    st.lists(st.integers(1, 9), min_size=0, max_size=3).flatmap(
        lambda sizes: st.tuples(
            st.just(tuple(sizes)),
            st.permutations(range(len(sizes))),
            st.sampled_from((((2, 2),), ((4, 8), (2, 1)), ((8,), (2,)), ((3, 4), (2,)), ())),
        )
    )
)
@settings(max_examples=100)
def test_padding_is_what_the_elements_need(
    case: tuple[tuple[int, ...], list[int], tuple[tuple[int, ...], ...]],
) -> None:
    sizes, order, tiles = case
    read_shape = Array(dtype="f32", dimensions=sizes, layout=Layout(minor_to_major=tuple(order), tiles=tiles))
    major = tuple(sizes[place] for place in reversed(order))
    places = [offset(major, index, tiles) for index in itertools.product(*map(range, major))]
    assert len(set(places)) == read_shape.elements
    assert read_shape.padded_elements is not None
    assert max(places) < read_shape.padded_elements
    # Not a tile more: the last tile has an element in it.
    assert read_shape.padded_elements - max(places) <= math.prod(tiles[0] if tiles else (1,))
    assert read_shape.padded_bytes == 4 * read_shape.padded_elements


@pytest.mark.parametrize(
    ("text", "padded", "overhead", "dimensions"),
    [
        ("f32[3,5]{1,0:T(2,2)}", 96, 1.6, (4, 6)),
        ("bf16[3,5]{1,0:T(8,128)(2,1)}", 2048, 1024 / 15, (8, 128)),
        ("bf16[4,8]{1,0:T(2,4)(2,1)}", 64, 1.0, (4, 8)),
        ("bf16[2048,1024]{0,1:T(8,128)(2,1)}", 4194304, 1.0, (1024, 2048)),
        ("bf16[]{:T(256)}", 512, 256.0, (256,)),
        ("bf16[2000]{0:T(1024)(128)(2,1)}", 4096, 4096 / 4000, (2048,)),
        ("s4[8,256]{1,0:T(8,128)E(4)}", 1024, 1.0, (8, 256)),
        ("s4[8,256]{1,0}", 2048, 1.0, (8, 256)),
        ("f32[100]{0:T(64)L(256)}", 1024, 2.56, (128,)),
    ],
)
def test_worked_paddings(text: str, padded: int, overhead: float, dimensions: tuple[int, ...]) -> None:
    read_shape = array(text)
    assert read_shape.padded_bytes == padded
    assert read_shape.overhead == pytest.approx(overhead)
    assert read_shape.physical_dimensions == dimensions


def test_joined_dimensions_are_tiled_as_one() -> None:
    read_shape = array("f32[2,3,4]{2,1,0:T(*,128)}")
    assert read_shape.layout is not None
    assert read_shape.layout.tiles == ((JOINED, 128),)
    # 3 x 4 elements in one tile of 128, twice.
    assert read_shape.padded_elements == 256
    assert str(read_shape) == str(_hlo.Shape(str(read_shape)))


def test_what_has_no_bound_has_no_size() -> None:
    read_shape = array("f32[?,4]{1,0}")
    assert (read_shape.elements, read_shape.padded_bytes, read_shape.overhead) == (None, None, None)
    bounded = array("f32[<=10,4]{1,0}")
    assert bounded.dynamic == (True, False)
    assert bounded.logical_bytes == 160
    assert padded_bytes(Tuple(members=(bounded, read_shape))) is None
    assert padded_bytes(Tuple(members=(bounded, array("token[]")))) == 160


def test_nested_tuples_list_their_arrays() -> None:
    read_shape = shape("(f32[2]{0}, (s32[]{:T(128)}, token[]), /*index=2*/u32[]{:S(2)})")
    assert [str(member) for member in arrays(read_shape)] == ["f32[2]{0}", "s32[]{:T(128)}", "token[]", "u32[]{:S(2)}"]


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("", "expected a name, got the end"),
        ("float[3]", "expected a type such as bf16 or f32, got `float`"),
        ("f32[3", "expected `,`, got the end"),
        ("f32[3,x]", "expected a whole number"),
        ("f32[-3]", "expected a dimension of 0 or more, got -3"),
        ("f32[3,5]{1,0,T(2,2)}", "expected a dimension's number, or `:` before tiles"),
        ("f32[3,5]{0}", "orders 1 dimensions, the shape has 2"),
        ("f32[3,5]{1,1}", "does not order the 2 dimensions"),
        ("f32[3,5]{1,0:T(0,2)}", "expected a tile of 1 or more in each dimension, got 0"),
        ("f32[3,5]{1,0:Q(2)}", "expected tiles T"),
        ("f32[3] f32[4]", "expected the end of the shape"),
        ("(f32[3], f32[4]", "expected `,`"),
    ],
)
def test_what_is_no_shape_is_told(text: str, sentence: str) -> None:
    with pytest.raises(RatchetError) as caught:
        shape(text)
    assert caught.value.kind == "bad-hlo"
    assert sentence in str(caught.value)
