"""Constants of a compiled module, and where their words lie in memory."""

import numpy as np
import pytest

from harness.dumps.tables import Tables

HLO = """HloModule m

%fused (p.0: s32[4]) -> s32[4] {
  %p.0 = s32[4]{0} parameter(0)
  %one = s32[] constant(1)
  %ones = s32[4]{0} broadcast(%one), dimensions={}
  ROOT %sum = s32[4]{0} add(%p.0, %ones)
}

ENTRY %main (x: s32[2]) -> s32[2] {
  %x = s32[2]{0:T(128)} parameter(0), metadata={op_name="table"}
  %c = s32[4]{0:T(128)} constant({3, -1, 7, 9})
  %plus = s32[4]{0} fusion(%c), kind=kLoop, calls=%fused
  %start = (s32[4]{0:T(128)S(1)}, s32[4]{0:T(128)}, u32[]{:S(2)}) copy-start(%c), backend_config={}
  %done = s32[4]{0:T(128)S(1)} copy-done(%start)
  %flags = pred[2]{0} constant({true, false})
  %wide = s32[2,3]{1,0} broadcast(%x), dimensions={0}
  %rows = s32[3,2]{1,0} iota(), iota_dimension=0
  %turned = s32[2,3]{1,0} transpose(%rows), dimensions={1,0}
  %some = s32[2,1]{1,0} slice(%turned), slice={[0:2], [1:2]}
  %long = s32[1000]{0} constant({...})
  %seen = s32[2,3]{0,1} bitcast(%rows)
  %halves = s16[8]{0} bitcast(%c)
  %more = s32[4]{0} fusion(%done), kind=kLoop, calls=%fused
  %float = f32[2]{0} constant({3e9, inf})
  %whole = s32[2]{0} convert(%float)
  %large = s32[2]{0} constant({256, 0})
  %is_set = pred[2]{0} convert(%large)
  %odd = s32[4]{0} custom-call(%c)
  %of_odd = s32[4]{0} add(%odd, %c)
  ROOT %y = s32[2]{0} copy(%x)
}
"""


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("c", [3, -1, 7, 9]),
        ("plus", [4, 0, 8, 10]),
        ("done", [3, -1, 7, 9]),
        ("flags", [1, 0]),
        ("rows", [[0, 0], [1, 1], [2, 2]]),
        ("turned", [[0, 1, 2], [0, 1, 2]]),
        ("some", [[1], [1]]),
        # In memory 0, 0, 1, 1, 2, 2, and the first index runs fastest.
        ("seen", [[0, 1, 2], [0, 1, 2]]),
        ("halves", None),
        # What a float becomes is the chip's business, and what is set is not zero.
        ("whole", None),
        ("is_set", [1, 0]),
        ("long", None),
        ("odd", None),
        ("of_odd", None),
        ("x", None),
        ("nothing", None),
    ],
)
def test_what_follows_from_constants(name: str, expected: list[object] | None) -> None:
    values = Tables(HLO).values(name)
    assert (None if values is None else values.tolist()) == expected


def test_a_computation_that_is_called_twice_is_known_for_its_first_caller() -> None:
    tables = Tables(HLO)
    assert tables.values("plus") is not None
    assert tables.values("more") is None


def test_an_argument_can_be_given_by_its_name_in_the_program() -> None:
    tables = Tables(HLO, {"table": np.array([5, 6])})
    values = tables.values("wide")
    assert values is not None
    assert values.tolist() == [[5, 5, 5], [6, 6, 6]]
    wrong = Tables(HLO, {"table": np.array([5, 6, 7])})
    assert wrong.values("wide") is None


def test_words_of_a_table_of_two_dimensions() -> None:
    """Element (i, j) of a 32-bit table lies at ((i/8) ceil(cols/128) + j/128) 1024 + (i%8) 128 + j%128."""
    table = np.arange(20 * 300, dtype=np.int32).reshape(20, 300)
    text = "HloModule m\n\nENTRY %main () -> s32[20,300] {\n  %t = s32[20,300]{1,0:T(8,128)} parameter(0)\n}\n"
    words = Tables(text, {"t": table}).words("t")
    assert words is not None
    for i, j in ((0, 0), (9, 130), (19, 299), (7, 127)):
        assert words[((i >> 3) * 3 + (j >> 7)) * 1024 + (i & 7) * 128 + (j & 127)] == table[i, j]


def test_bytes_are_packed_four_to_a_word() -> None:
    text = "HloModule m\n\nENTRY %main () -> s8[200] {\n  %t = s8[200]{0:T(512)(128)(4,1)} parameter(0)\n}\n"
    words = Tables(text, {"t": np.arange(200, dtype=np.uint8).astype(np.int8)}).words("t")
    assert words is not None
    assert len(words) == 128
    assert words[5] & 0xFF == 5
    assert words[5] >> 8 & 0xFF == 133
