"""The bound on the SparseCore's time follows from the slices and arrays that the module has it move."""

import numpy as np
import pytest

from harness.hardware import chip
from harness.hlo import parse
from harness.hlo.tables import Tables
from harness.judge.simulate.machine import machine_of
from harness.judge.simulate.sparse_core import most_seconds

MACHINE = machine_of(chip("v6e"))
# A read and a write of a few bytes on v6e, one after the other.
PIECE_SECONDS = 1.15e-6 + 2 * 4e-9

# How XLA hands the counts of groups to the SparseCore (libtpu 0.0.42.1, megablox), with smaller arrays.
HLO = """HloModule m

%added (a: f32[], b: f32[]) -> f32[] {
  %a = f32[]{:T(128)S(7)} parameter(0)
  %b = f32[]{:T(128)S(7)} parameter(1)
  ROOT %a_plus_b = f32[]{:T(128)S(7)} add(%a, %b)
}, execution_thread="sparsecore"

%scattered (p.0: f32[17], p.1: s32[128], p.2: f32[128]) -> f32[17] {
  %p.0 = f32[17]{0:T(128)} parameter(0)
  %p.1 = s32[128]{0:T(128)} parameter(1)
  %r.1 = s32[128]{0:T(128)} reshape(%p.1)
  %p.2 = f32[128]{0:T(128)} parameter(2)
  %t.2 = f32[128]{0:T(128)} transpose(%p.2), dimensions={0}
  ROOT %scatter = f32[17]{0:T(128)} scatter(%p.0, %r.1, %t.2), update_window_dims={}, inserted_window_dims={0}, \
scatter_dims_to_operand_dims={0}, index_vector_dim=1, to_apply=%added
}, execution_thread="sparsecore"

%inner (p.3: f32[17], p.4: s32[128], p.5: f32[128]) -> f32[17] {
  %p.5 = f32[128]{0:T(128)} parameter(2)
  %p.4 = s32[128]{0:T(128)} parameter(1)
  %p.3 = f32[17]{0:T(128)} parameter(0)
  ROOT %fusion = f32[17]{0:T(128)} fusion(%p.3, %p.4, %p.5), kind=kCustom, calls=%scattered
}, execution_thread="sparsecore"

%outer (p.6: f32[17], p.7: s32[128], p.8: f32[128], p.9: token[]) -> f32[17] {
  %p.9 = token[] parameter(3)
  %p.8 = f32[128]{0:T(128)} parameter(2)
  %p.7 = s32[128]{0:T(128)} parameter(1)
  %p.6 = f32[17]{0:T(128)} parameter(0)
  %within = ((f32[17]{0:T(128)}, s32[128]{0:T(128)}, f32[128]{0:T(128)}), f32[17]{0:T(128)}, u32[]{:S(8)}) \
call-start(%p.6, %p.7, %p.8), async_execution_thread="sparsecore", to_apply=%inner
  ROOT %within_done = f32[17]{0:T(128)} call-done(%within)
}, execution_thread="sparsecore"

%sooner (x: s32[], y: s32[], v: f32[], w: f32[]) -> pred[] {
  %w = f32[] parameter(3)
  %v = f32[] parameter(2)
  %y = s32[] parameter(1)
  %x = s32[] parameter(0)
  ROOT %lower = pred[] compare(%x, %y), direction=LT
}

ENTRY %main (tiles: s32[128], weights: f32[128]) -> s32[17] {
  %tiles = s32[128]{0:T(128)} parameter(0)
  %weights = f32[128]{0:T(128)} parameter(1)
  %zero = f32[]{:T(128)} constant(0)
  %one = f32[]{:T(128)} constant(1)
  %zeros = f32[17]{0:T(128)} broadcast(%zero), dimensions={}
  %ones = f32[128]{0:T(128)} broadcast(%one), dimensions={}
  %asked = s32[]{:S(2)} custom-call(), custom_call_target="PrepareAsyncCallStart"
  %ready = token[] custom-call(%asked), custom_call_target="PrepareAsyncCallDone"
  %sorted = (s32[128]{0:T(128)}, f32[128]{0:T(128)}) sort(%tiles, %ones), dimensions={0}, to_apply=%sooner
  %keys = s32[128]{0:T(128)} get-tuple-element(%sorted), index=0
  %values = f32[128]{0:T(128)} get-tuple-element(%sorted), index=1
  %start = ((f32[17]{0:T(128)}, s32[128]{0:T(128)}, f32[128]{0:T(128)}, token[]), f32[17]{0:T(128)}) \
call-start(%zeros, %keys, %values, %ready), async_execution_thread="sparsecore", to_apply=%outer
  %done = f32[17]{0:T(128)} call-done(%start)
  ROOT %counts = s32[17]{0:T(128)} convert(%done)
}
"""


def test_every_slice_and_every_tile_is_moved_after_the_one_before() -> None:
    # 128 slices; the array, the places, the slices and the result are a tile each.
    assert most_seconds(parse.read(HLO), MACHINE) == pytest.approx((128 + 4) * PIECE_SECONDS, rel=0.01)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("call-start(%zeros, %keys, %values, %ready), async_execution_thread=\"sparsecore\"", "call-start(%zeros)"),
        ("ROOT %scatter = f32[17]{0:T(128)} scatter(", "ROOT %scatter = f32[17]{0:T(128)} sort("),
        ("update_window_dims={}", "update_window_dims=?"),
        ("ENTRY %main", "%not_the_entry"),
    ],
    ids=["no call", "something else", "not understood", "called from a loop"],
)  # fmt: skip
def test_what_does_not_follow_has_no_bound(old: str, new: str) -> None:
    assert old in HLO
    text = HLO.replace(old, new)
    if "ENTRY" not in text:
        text += "\nENTRY %other (z: s32[]) -> s32[] {\n  ROOT %z = s32[] parameter(0)\n}\n"
    assert most_seconds(parse.read(text), MACHINE) is None


def test_what_the_sparse_core_computes_of_known_integers_is_known() -> None:
    """The integers behind it pass through a sort with floats beside the keys, and a call with a token."""
    tiles = np.arange(128, dtype=np.int32)[::-1] // 9
    tables = Tables(parse.read(HLO), {"tiles": tiles})
    assert tables.words("counts") is not None
    assert list((tables.words("counts") or ())[:17]) == [9] * 14 + [2, 0, 0]


def test_the_order_of_equal_keys_is_not_believed() -> None:
    weights = "  %places = s32[128]{0} iota(), iota_dimension=0\n  %weighed = f32[128]{0} convert(%places)\n  %sorted"
    text = HLO.replace("  %sorted", weights).replace("sort(%tiles, %ones)", "sort(%tiles, %weighed)")
    tables = Tables(parse.read(text), {"tiles": np.zeros(128, np.int32)})
    assert tables.words("counts") is None
    assert Tables(parse.read(HLO), {"tiles": np.zeros(128, np.int32)}).words("counts") is not None
