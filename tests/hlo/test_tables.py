"""Constants of a compiled module, and where their words lie in memory."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.experimental.pallas.ops.tpu.megablox.gmm import make_group_metadata

from harness.hlo import parse
from harness.hlo.tables import Tables

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
        # The conversion of a float is the chip's business, and the set words are not zero.
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
    values = Tables(parse.read(HLO)).values(name)
    assert (None if values is None else values.tolist()) == expected


def test_a_computation_that_is_called_twice_is_known_for_both_callers() -> None:
    tables = Tables(parse.read(HLO))
    assert [values.tolist() for name in ("plus", "more") if (values := tables.values(name)) is not None] == [
        [4, 0, 8, 10],
        [4, 0, 8, 10],
    ]


def test_only_arguments_of_the_program_can_be_given() -> None:
    assert Tables(parse.read(HLO)).parameters == ("x", "table")


def test_an_element_of_a_copy_under_way_is_not_asked_of_xla() -> None:
    """XLA ends its process if it is asked for an element of a value that is no tuple."""
    assert Tables(parse.read(HLO)).values("start", 1) is None


def test_an_argument_can_be_given_by_its_name_in_the_program() -> None:
    tables = Tables(parse.read(HLO), {"table": np.array([5, 6])})
    values = tables.values("wide")
    assert values is not None
    assert values.tolist() == [[5, 5, 5], [6, 6, 6]]
    wrong = Tables(parse.read(HLO), {"table": np.array([5, 6, 7])})
    assert wrong.values("wide") is None


def test_words_of_a_table_of_two_dimensions() -> None:
    """Element (i, j) of a 32-bit table lies at ((i/8) ceil(cols/128) + j/128) 1024 + (i%8) 128 + j%128."""
    table = np.arange(20 * 300, dtype=np.int32).reshape(20, 300)
    text = "HloModule m\n\nENTRY %main () -> s32[20,300] {\n  %t = s32[20,300]{1,0:T(8,128)} parameter(0)\n}\n"
    words = Tables(parse.read(text), {"t": table}).words("t")
    assert words is not None
    for i, j in ((0, 0), (9, 130), (19, 299), (7, 127)):
        assert words[((i >> 3) * 3 + (j >> 7)) * 1024 + (i & 7) * 128 + (j & 127)] == table[i, j]


# As XLA hands a table of rows to a kernel as one line: seen in a published kernel. A bitcast keeps memory and tiles.
RESHAPED = """HloModule m

ENTRY %main (rows: s32[16,32], bytes: u8[40,130]) -> s32[16384] {
  %rows = s32[16,32]{1,0:T(8,128)} parameter(0)
  %bytes = u8[40,130]{1,0:T(8,128)(4,1)} parameter(1)
  %zero = s32[]{:T(128)} constant(0)
  %wide = s32[16,1024]{1,0:T(8,128)} pad(%rows, %zero), padding=0_0x0_992
  %tiles = s32[2,8,8,128]{3,2,1,0:T(8,128)} bitcast(%wide)
  %turned = s32[2,8,8,128]{3,1,2,0:T(8,128)} copy(%tiles)
  %behind = s32[2048]{0:T(1024)} bitcast(%rows)
  %larger = s32[4096]{0:T(1024)} bitcast(%rows)
  %column = s32[40,130,1]{1,0,2:T(8,128)} bitcast(%words)
  %words = s32[40,130]{1,0:T(8,128)} convert(%bytes)
  %turned_bytes = u8[5,8,130]{2,1,0:T(8,128)(4,1)} bitcast(%bytes)
  ROOT %line = s32[16384]{0:T(1024)} bitcast(%turned)
}
"""


def test_a_bitcast_keeps_memory_with_its_tiles() -> None:
    rows = np.arange(512, dtype=np.int32).reshape(16, 32)
    data = np.random.default_rng(0).integers(0, 256, (40, 130)).astype(np.uint8)
    operands: dict[str, np.ndarray] = {"rows": rows, "bytes": data}
    tables = Tables(parse.read(RESHAPED), operands)
    line = tables.values("line")
    assert line is not None
    wanted = np.zeros((16, 1024), np.int32)
    wanted[:, :32] = rows
    assert np.array_equal(line, wanted.ravel())
    for name, shape in (("column", (40, 130, 1)), ("turned_bytes", (5, 8, 130))):
        values = tables.values(name)
        assert values is not None
        assert np.array_equal(values, data.reshape(shape))
    # Memory behind a row's elements is unused, and there is less of it than is asked for.
    assert tables.values("behind") is None
    assert tables.values("larger") is None


def test_bytes_are_packed_four_to_a_word() -> None:
    text = "HloModule m\n\nENTRY %main () -> s8[200] {\n  %t = s8[200]{0:T(512)(128)(4,1)} parameter(0)\n}\n"
    words = Tables(parse.read(text), {"t": np.arange(200, dtype=np.uint8).astype(np.int8)}).words("t")
    assert words is not None
    assert len(words) == 128
    assert words[5] & 0xFF == 5
    assert words[5] >> 8 & 0xFF == 133


# Operations of XLA on a table on its way to a kernel: sums of groups are sorted, scattered and put in a loop.
COMPUTED = """HloModule m

%added (a: s32[], b: s32[]) -> s32[] {
  %a = s32[]{:T(128)} parameter(0)
  %b = s32[]{:T(128)} parameter(1)
  ROOT %a_plus_b = s32[]{:T(128)} add(%a, %b)
}

%put (p.1: s32[4], p.2: s32[4]) -> (s32[4], s32[6]) {
  %p.1 = s32[4]{0:T(128)} parameter(0)
  %p.2 = s32[4]{0:T(128)S(1)} parameter(1)
  %zero = s32[]{:T(128)} constant(0)
  %zeros = s32[6]{0:T(128)} broadcast(%zero), dimensions={}
  %ends = s32[4]{0:T(128)} reduce-window(%p.1, %zero), window={size=4 pad=3_0}, to_apply=%added
  %counted = s32[6]{0:T(128)} scatter(%zeros, %places, %p.1), update_window_dims={}, inserted_window_dims={0}, \
scatter_dims_to_operand_dims={0}, index_vector_dim=1, to_apply=%added
  %places = s32[4,1]{0,1:T(1,128)} bitcast(%p.2)
  ROOT %both = (s32[4]{0:T(128)}, s32[6]{0:T(128)}) tuple(%ends, %counted)
}

%goes_on (s.1: (s32[], s32[4])) -> pred[] {
  %s.1 = (s32[]{:T(128)}, s32[4]{0:T(128)}) parameter(0)
  %turn.1 = s32[]{:T(128)} get-tuple-element(%s.1), index=0
  %most = s32[]{:T(128)} constant(3)
  ROOT %less = pred[]{:T(512)} compare(%turn.1, %most), direction=LT
}

%turns (s.2: (s32[], s32[4])) -> (s32[], s32[4]) {
  %s.2 = (s32[]{:T(128)}, s32[4]{0:T(128)}) parameter(0)
  %turn.2 = s32[]{:T(128)} get-tuple-element(%s.2), index=0
  %one.2 = s32[]{:T(128)} constant(1)
  %next = s32[]{:T(128)} add(%turn.2, %one.2)
  %old = s32[4]{0:T(128)} get-tuple-element(%s.2), index=1
  %new = s32[4]{0:T(128)} add(%old, %old)
  ROOT %state = (s32[]{:T(128)}, s32[4]{0:T(128)}) tuple(%next, %new)
}

ENTRY %main (sizes: s32[4], scale: f32[]) -> s32[4] {
  %sizes = s32[4]{0:T(128)} parameter(0)
  %scale = f32[]{:T(128)} parameter(1)
  %where = s32[4]{0:T(128)} constant({5, 0, 5, 2})
  %fusion = (s32[4]{0:T(128)}, s32[6]{0:T(128)}) fusion(%sizes, %where), kind=kCustom, calls=%put
  %ends.1 = s32[4]{0:T(128)} get-tuple-element(%fusion), index=0
  %counts = s32[6]{0:T(128)S(1)} get-tuple-element(%fusion), index=1
  %shorter = s32[5]{0:T(128)} bitcast(%counts)
  %leading = s32[]{:T(128)} bitcast(%ends.1)
  %first = s32[]{:T(128)} constant(0)
  %begun = (s32[]{:T(128)}, s32[4]{0:T(128)}) tuple(%first, %ends.1)
  %while = (s32[]{:T(128)}, s32[4]{0:T(128)}) while(%begun), condition=%goes_on, body=%turns
  %doubled = s32[4]{0:T(128)} get-tuple-element(%while), index=1
  %wide = f32[4]{0:T(128)} convert(%doubled)
  %whole = s32[4]{0:T(128)} convert(%wide)
  %large = f32[4]{0:T(128)} multiply(%wide, %wide)
  %larger = f32[4]{0:T(128)} multiply(%large, %large)
  %largest = f32[4]{0:T(128)} multiply(%larger, %larger)
  %cut = s32[4]{0:T(128)} convert(%largest)
  %third = f32[4]{0:T(128)} divide(%wide, %large)
  %of_third = s32[4]{0:T(128)} convert(%third)
  %scales = f32[4]{0:T(128)} broadcast(%scale), dimensions={}
  %scaled = f32[4]{0:T(128)} multiply(%wide, %scales)
  %of_scaled = s32[4]{0:T(128)} convert(%scaled)
  %memory = s32[4]{0:T(128)} custom-call(), custom_call_target="AllocateBuffer"
  %unwritten = s32[4]{0:T(128)} add(%memory, %sizes)
  %no_matter = s32[4]{0:T(128)} subtract(%unwritten, %memory)
  ROOT %result = s32[4]{0:T(128)} copy(%doubled)
}
"""


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("ends.1", [3, 4, 9, 9]),
        ("counts", [1, 0, 0, 0, 0, 8]),
        ("shorter", [1, 0, 0, 0, 0]),
        ("leading", [3]),
        ("doubled", [24, 32, 72, 72]),
        ("whole", [24, 32, 72, 72]),
        ("no_matter", [3, 1, 5, 0]),
        # Values that differ between machines, and unknown values.
        ("cut", None),
        ("of_third", None),
        ("of_scaled", None),
        ("unwritten", None),
    ],
)
def test_what_xla_computes_from_known_integers(name: str, expected: list[int] | None) -> None:
    words = Tables(parse.read(COMPUTED), {"sizes": np.array([3, 1, 5, 0], np.int32)}).words(name)
    assert (None if words is None else list(words[: len(expected or ())])) == expected


def test_nothing_is_computed_from_operands_that_were_not_given() -> None:
    assert Tables(parse.read(COMPUTED)).words("counts") is None


BRANCHES = """HloModule m

%idle (none: (s32[4], f32[4])) -> s32[4] {
  %none = (s32[4]{0:T(128)}, f32[4]{0:T(128)}) parameter(0)
  ROOT %same = s32[4]{0:T(128)} get-tuple-element(%none), index=0
}

%work (handed: (s32[4], f32[4])) -> s32[4] {
  %handed = (s32[4]{0:T(128)}, f32[4]{0:T(128)}) parameter(0)
  %sizes.1 = s32[4]{0:T(128)} get-tuple-element(%handed), index=0
  ROOT %twice = s32[4]{0:T(128)} add(%sizes.1, %sizes.1)
}

%alone (array: s32[4]) -> s32[4] {
  %array = s32[4]{0:T(128)} parameter(0)
  ROOT %negative = s32[4]{0:T(128)} negate(%array)
}

ENTRY %main (sizes: s32[4], scale: f32[4], which: s32[]) -> s32[4] {
  %sizes = s32[4]{0:T(128)} parameter(0)
  %scale = f32[4]{0:T(128)} parameter(1)
  %which = s32[]{:T(128)} parameter(2)
  %pair = (s32[4]{0:T(128)}, f32[4]{0:T(128)}) tuple(%sizes, %scale)
  %other = (s32[4]{0:T(128)}, f32[4]{0:T(128)}) tuple(%sizes, %scale)
  %one = s32[4]{0:T(128)} conditional(%which, %pair, %other, %sizes), branch_computations={%idle, %work, %alone}
  ROOT %two = s32[4]{0:T(128)} conditional(%which, %other, %one), branch_computations={%idle, %alone}
}
"""


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        # A branch of only one conditional knows what it is handed, whatever else there is.
        ("twice", [6, 2, 10, 0]),
        # These are branches of two, which hand them different arrays or the same.
        ("same", None),
        ("negative", None),
    ],
)
def test_a_branch_computes_from_what_its_conditional_hands_to_it(name: str, expected: list[int] | None) -> None:
    words = Tables(parse.read(BRANCHES), {"sizes": np.array([3, 1, 5, 0], np.int32)}).words(name)
    assert (None if words is None else list(words[:4])) == expected


def test_code_that_calls_something_else_is_not_the_same() -> None:
    hlo = """HloModule m

%sum.1 (a.1: s32[], b.1: s32[]) -> s32[] {
  %a.1 = s32[] parameter(0)
  %b.1 = s32[] parameter(1)
  ROOT %r.1 = s32[] add(%a.1, %b.1)
}

%sum.2.clone (a.2: s32[], b.2: s32[]) -> s32[] {
  %a.2 = s32[] parameter(0)
  %b.2 = s32[] parameter(1)
  ROOT %r.2 = s32[] add(%a.2, %b.2)
}

%twice.1 (p.1: s32[8], q.1: s32[]) -> (s32[8], s32[8]) {
  %p.1 = s32[8] parameter(0)
  %q.1 = s32[] parameter(1)
  ROOT %t.1 = (s32[8], s32[8]) tuple(%p.1, %p.1)
}

%twice.2 (p.2: s32[8], q.2: s32[]) -> (s32[8], s32[8]) {
  %p.2 = s32[8] parameter(0)
  %q.2 = s32[] parameter(1)
  ROOT %t.2 = (s32[8], s32[8]) tuple(%p.2, %p.2)
}

%most (a.3: s32[], b.3: s32[]) -> s32[] {
  %a.3 = s32[] parameter(0)
  %b.3 = s32[] parameter(1)
  ROOT %r.3 = s32[] maximum(%a.3, %b.3)
}

ENTRY %main (x: s32[8]) -> s32[8] {
  %x = s32[8]{0} parameter(0)
  %k = s32[] constant(0)
  %one = s32[8]{0} reduce-window(%x, %k), window={size=8 pad=7_0}, to_apply=%sum.1
  %two = s32[8]{0} reduce-window(%one, %k), window={size=8 pad=7_0}, to_apply=%sum.2.clone
  %pair = (s32[8]{0}, s32[8]{0}) fusion(%one, %k), kind=kLoop, calls=%twice.1
  %other_pair = (s32[8]{0}, s32[8]{0}) fusion(%two, %k), kind=kLoop, calls=%twice.2
  ROOT %three = s32[8]{0} reduce-window(%two, %k), window={size=8 pad=7_0}, to_apply=%most
}
"""
    tables = Tables(parse.read(hlo))
    assert tables.same_code("two", ["three", "one"]) == "one"
    assert tables.same_code("pair", ["three", "other_pair"]) == "other_pair"
    assert tables.same_code("three", ["one", "two"]) is None


CALLS = """HloModule m

%add (a: f32[], b: f32[]) -> f32[] {
  %a = f32[] parameter(0)
  %b = f32[] parameter(1)
  ROOT %sum = f32[] add(%a, %b)
}

ENTRY %main (x: f32[8]) -> f32[8] {
  %x = f32[8]{0} parameter(0)
  %one = f32[8]{0} custom-call(%x), custom_call_target="tpu_custom_call", backend_config={"body":"AAAA"}
  %again = f32[8]{0} custom-call(%one), custom_call_target="tpu_custom_call", backend_config={"body":"AAAA"}
  %other = f32[8]{0} custom-call(%again), custom_call_target="tpu_custom_call", backend_config={"body":"BBBB"}
  %table = f32[8]{0} constant({16777216, 0, 0, 1, 0, 0, -16777216, 0})
  %zero = f32[] constant(0)
  %whole = f32[] reduce(%table, %zero), dimensions={0}, to_apply=%add
  %count = s32[] convert(%whole)
  %in_place = f32[8]{0} custom-call(%x, %other), custom_call_target="tpu_custom_call",
    output_to_operand_aliasing={{}: (1, {})}, backend_config={"body":"CCCC"}
  ROOT %y = f32[8]{0} copy(%in_place)
}
"""


def test_a_kernel_has_the_code_of_equal_kernels_only() -> None:
    tables = Tables(parse.read(CALLS))
    assert tables.same_code("again", ["other", "one"]) == "one"
    assert tables.same_code("other", ["one", "again"]) is None


def test_a_sum_of_floats_is_no_table() -> None:
    """2^24 + 1 - 2^24 is 0 or 1, by the order of the terms."""
    assert Tables(parse.read(CALLS)).values("count") is None


@pytest.mark.parametrize(
    ("made", "is_known"),
    [
        ("%made = f32[8]{0} broadcast(%one.0), dimensions={}", True),
        ("%made = f32[8]{0} convert(%flags)", True),
        ("%ones = f32[2,4]{1,0} broadcast(%one.0), dimensions={}\n  %made = f32[8]{0} bitcast(%ones)", True),
        ("%made = f32[8]{0} convert(%places)", False),
        ("%made = f32[8]{0} bitcast-convert(%places)", False),
        ("%ones = f32[8]{0} broadcast(%one.0), dimensions={}\n  %made = f32[8]{0} add(%ones, %ones)", False),
    ],
    ids=["ones", "predicates", "bitcast", "integers", "bits", "added before"],
)
def test_a_sum_of_floats_that_counts_is_a_table(made: str, is_known: bool) -> None:
    constants = """  %one.0 = f32[] constant(1)
  %places = s32[8]{0} iota(), iota_dimension=0
  %three = s32[] constant(3)
  %limit = s32[8]{0} broadcast(%three), dimensions={}
  %flags = pred[8]{0} compare(%places, %limit), direction=LT
"""
    text = CALLS.replace(
        "  %table = f32[8]{0} constant({16777216, 0, 0, 1, 0, 0, -16777216, 0})", constants + "  " + made
    )
    assert text != CALLS
    counted = Tables(parse.read(text.replace("reduce(%table", "reduce(%made"))).values("count")
    assert (counted is not None) == is_known


@pytest.mark.parametrize(
    ("kind", "body", "initial"),
    [
        ("f32", "add(%a, %b)", 1),
        ("f32", "subtract(%a, %b)", 0),
        ("f32", "add(%a, %a)", 0),
        ("s32", "add(%a, %b)", 1),
        ("s32", "subtract(%a, %b)", 0),
        ("s32", "add(%a, %a)", 0),
    ],
    ids=["initial float", "float difference", "one float", "initial integer", "difference", "one integer"],
)
def test_a_reduction_is_no_table_if_machines_may_combine_differently(kind: str, body: str, initial: int) -> None:
    def hlo(body: str, initial: int) -> str:
        return f"""HloModule m

%combine (a: {kind}[], b: {kind}[]) -> {kind}[] {{
  %a = {kind}[] parameter(0)
  %b = {kind}[] parameter(1)
  ROOT %c = {kind}[] {body}
}}

ENTRY %main () -> s32[] {{
  %one = {kind}[] constant(1)
  %ones = {kind}[30]{{0}} broadcast(%one), dimensions={{}}
  %initial = {kind}[] constant({initial})
  %r = {kind}[] reduce(%ones, %initial), dimensions={{0}}, to_apply=%combine
  ROOT %count = s32[] convert(%r)
}}
"""

    assert Tables(parse.read(hlo(body, initial))).values("count") is None
    assert Tables(parse.read(hlo("add(%a, %b)", 0))).values("count") == 30


@pytest.mark.long
@pytest.mark.parametrize("rows_of_a_tile", [128, 512])
def test_the_tables_of_megablox_are_known(rows_of_a_tile: int) -> None:
    """They count tiles in a histogram, the edges of whose bins are fractions."""
    rows, groups = 2048, 16

    def tables(sizes: Any) -> Any:
        return make_group_metadata(
            group_sizes=sizes,
            m=rows,
            tm=rows_of_a_tile,
            start_group=jnp.int32(0),
            num_nonzero_groups=groups,
            visit_empty_groups=True,
        )[0]

    sizes = np.random.default_rng(0).multinomial(rows, [1 / groups] * groups).astype(np.int32)
    program = jax.jit(tables).lower(sizes).compile()
    module = parse.read(program.as_text())
    assert module.entry is not None
    assert module.entry.root is not None
    computed = Tables(module, {0: sizes})
    for number, table in enumerate(program(sizes)):
        assert computed.values(module.entry.root.name, number).tolist() == table.tolist()  # type: ignore[union-attr]


@pytest.mark.parametrize(
    ("values", "comparison", "attributes", "is_known"),
    [
        ("eights", "compare(%x, %y), direction=LT", "", True),
        ("places", "compare(%x, %y), direction=LT", "", False),
        ("places", "compare(%x, %y), direction=LT", ", is_stable=true", True),
        ("eights", "compare(%v, %w), direction=LT", "", False),
        ("eights", "and(%p, %q)", "", False),
    ],
    ids=["equal values", "values", "stable", "compares values", "compares something else"],
)
def test_a_sort_is_a_table_if_the_order_of_equal_keys_is_known(
    values: str, comparison: str, attributes: str, is_known: bool
) -> None:
    tests = "  %p = pred[] compare(%x, %v), direction=LT\n  %q = pred[] compare(%y, %w), direction=GT\n"
    text = f"""HloModule m

%sooner (x: s32[], y: s32[], v: s32[], w: s32[]) -> pred[] {{
  %x = s32[] parameter(0)
  %y = s32[] parameter(1)
  %v = s32[] parameter(2)
  %w = s32[] parameter(3)
{tests if "%p" in comparison else ""}  ROOT %lower = pred[] {comparison}
}}

ENTRY %main (keys: s32[4]) -> s32[4] {{
  %keys = s32[4]{{0}} parameter(0)
  %places = s32[4]{{0}} iota(), iota_dimension=0
  %eight = s32[] constant(8)
  %eights = s32[4]{{0}} broadcast(%eight), dimensions={{}}
  %sorted = (s32[4]{{0}}, s32[4]{{0}}) sort(%keys, %{values}), dimensions={{0}}{attributes}, to_apply=%sooner
  ROOT %first = s32[4]{{0}} get-tuple-element(%sorted), index=0
}}
"""
    words = Tables(parse.read(text), {"keys": np.array([3, 1, 3, 2], np.int32)}).words("first")
    assert (words is not None) == is_known


@pytest.mark.parametrize(
    ("root", "places", "updates", "expected"),
    [
        ("parameter(1)", "{0, 3, 2}", "{7, 8, 9}", [7, -1, 9, 8]),
        ("parameter(1)", "{0, 3, 3}", "{7, 8, 8}", [7, -1, -1, 8]),
        ("parameter(1)", "{0, 3, 3}", "{7, 8, 9}", None),
        ("parameter(1)", "{0, 3, 9}", "{7, 8, 9}", [7, -1, -1, 8]),
        ("add(%old, %new)", "{0, 3, 3}", "{7, 8, 9}", [6, -1, -1, 16]),
        ("subtract(%old, %new)", "{0, 3, 3}", "{7, 8, 9}", None),
        ("parameter(0)", "{0, 3, 3}", "{7, 8, 9}", None),
    ],
    ids=["one each", "equal updates", "different updates", "beyond the end", "sums", "differences", "none"],
)
def test_a_scatter_is_a_table_if_the_order_of_its_updates_does_not_matter(
    root: str, places: str, updates: str, expected: list[int] | None
) -> None:
    numbers = {"parameter(0)": ("%last", "%new"), "parameter(1)": ("%old", "%last")}.get(root, ("%old", "%new"))
    parameters = "".join(
        f"  {name} = s32[] parameter({place})\n" for place, name in enumerate(numbers) if name != "%last"
    )
    sizes = "update_window_dims={}, inserted_window_dims={0}, scatter_dims_to_operand_dims={0}, index_vector_dim=1"
    text = f"""HloModule m

%set (old: s32[], new: s32[]) -> s32[] {{
{parameters}  ROOT %last = s32[] {root}
}}

ENTRY %main () -> s32[4] {{
  %minus = s32[] constant(-1)
  %table = s32[4]{{0}} broadcast(%minus), dimensions={{}}
  %places = s32[3]{{0}} constant({places})
  %updates = s32[3]{{0}} constant({updates})
  ROOT %first = s32[4]{{0}} scatter(%table, %places, %updates), {sizes}, to_apply=%set
}}
"""
    values = Tables(parse.read(text)).values("first")
    assert (None if values is None else values.tolist()) == expected


def test_operands_in_the_memory_of_results_are_named() -> None:
    tables = Tables(parse.read(CALLS))
    assert tables.written_operands("in_place") == {1}
    assert tables.written_operands("one") == set()
