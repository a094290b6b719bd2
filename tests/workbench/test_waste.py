"""Work that does nothing useful: its kinds and bytes by hand, from HLO and from captures; how full a matrix unit is."""

from dataclasses import replace
from pathlib import Path

import pytest
from analyses import rows_by, waste
from analysis_examples import capture, device, op
from capture_examples import profiled

from harness.hardware import chip
from harness.hlo import parse
from harness.records import Capture
from harness.workbench.hlo import matrix_fill
from harness.workbench.hlo.graph import Graph
from harness.workbench.hlo.listing import module_tables
from harness.workbench.hlo.prediction import matmul, spec
from harness.workbench.hlo.waste import module_waste
from harness.workbench.profiles import reading

V5E, V6E = chip("v5e"), chip("v6e")
# A cast in a fusion of its own, one that belongs to a sum; an array of 100 columns, stored as 128; an update in place.
MODULE = """HloModule step, is_scheduled=true

%only_casts (p: f32[1024,1024]) -> bf16[1024,1024] {
  %p = f32[1024,1024]{1,0:T(8,128)} parameter(0)
  ROOT %c = bf16[1024,1024]{1,0:T(8,128)(2,1)} convert(%p)
}

%casts_and_adds (p: bf16[1024,1024]) -> f32[1024,1024] {
  %p = bf16[1024,1024]{1,0:T(8,128)(2,1)} parameter(0)
  %c = f32[1024,1024]{1,0:T(8,128)} convert(%p)
  ROOT %a = f32[1024,1024]{1,0:T(8,128)} add(%c, %c)
}

ENTRY %main (a: f32[1024,1024], n: f32[1024,100], u: f32[1,1024], i: s32[]) -> f32[1024,1024] {
  %a = f32[1024,1024]{1,0:T(8,128)} parameter(0)
  %n = f32[1024,100]{1,0:T(8,128)} parameter(1)
  %u = f32[8,1024]{1,0:T(8,128)} parameter(2)
  %i = s32[]{:T(128)} parameter(3)
  %cast = bf16[1024,1024]{1,0:T(8,128)(2,1)} fusion(%a), kind=kLoop, calls=%only_casts, METADATA
  %useful = f32[1024,1024]{1,0:T(8,128)} fusion(%cast), kind=kLoop, calls=%casts_and_adds
  %turned = f32[1024,1024]{0,1:T(8,128)} transpose(%useful), dimensions={1,0}, METADATA
  %padded = f32[1024,100]{1,0:T(8,128)} negate(%n), metadata={source_file="m.py" source_line=9}
  %fetch = (f32[1024,1024]{1,0:T(8,128)S(1)}, f32[1024,1024]{1,0:T(8,128)}, u32[]{:S(2)}) copy-start(%useful)
  %fetched = f32[1024,1024]{1,0:T(8,128)S(1)} copy-done(%fetch)
  ROOT %updated = f32[1024,1024]{1,0:T(8,128)} dynamic-update-slice(%a, %u, %i, %i)
}
""".replace("METADATA", 'metadata={source_file="m.py" source_line=3}')
MIB = 1 << 20


def test_the_total_of_a_module_by_hand() -> None:
    total, lines = module_waste(Graph(parse.module(MODULE)), V5E, 10)
    wasted = rows_by(total)
    assert wasted["cast"]["hbm_bytes"] == 6 * MIB, "read as float32, written as bfloat16"
    assert wasted["transpose"]["hbm_bytes"] == 8 * MIB
    assert wasted["padding"]["hbm_bytes"] == 2 * 1024 * 28 * 4, "28 of 128 columns, read and written"
    assert wasted["dynamic-update-slice"]["hbm_bytes"] == pytest.approx(2 * 8 * 1024 * 4, abs=2048)
    assert "copy" not in wasted, "a copy into VMEM runs beside other work"
    together = wasted["together"]
    assert together["hbm_bytes"] == sum(row["hbm_bytes"] for kind, row in wasted.items() if kind != "together")
    assert together["seconds"] == pytest.approx(together["hbm_bytes"] / 819e9)
    assert 0.5 < together["share"] < 1
    assert rows_by(lines)["m.py:3"]["kinds"] == "cast, transpose"
    assert rows_by(lines)["m.py:3"]["hbm_bytes"] == 14 * MIB
    assert rows_by(lines)["m.py:9"]["kinds"] == "padding"


def test_a_module_without_waste_says_so() -> None:
    body = "%a = f32[8,128] parameter(0)\n  ROOT %n = f32[8,128] negate(%a)"
    text = f"ENTRY %main (a: f32[8,128]) -> f32[8,128] {{\n  {body}\n}}"
    total, lines = module_waste(Graph(parse.module(text)), V5E, 10)
    assert not total.rows
    assert not lines.rows
    assert "no value is padded" in total.why_empty


def test_the_total_of_a_capture_by_category_and_text() -> None:
    copied = "%copy.1 = f32[512,1024]{1,0:T(8,128)} copy(f32[512,1024]{0,1:T(8,128)} %param.4)"
    padded = "%add.1 = f32[1024,64]{1,0:T(8,128)} add(f32[1024,64]{1,0:T(8,128)} %p.1, f32[1024,64]{1,0:T(8,128)} %p.2)"
    ran = [
        (op("copy.1", "data formatting", copied), 0.0, 30.0),
        (op("add.1", "non-fusion elementwise", padded), 30.0, 20.0),
        (op("transpose.1", "transpose"), 50.0, 10.0),
        (op("fusion.1", "loop fusion"), 60.0, 40.0),
    ]
    total, _ = waste(replace(capture(device(ran)), paths=()))
    wasted = rows_by(total)
    assert wasted["copy"]["seconds"] == pytest.approx(30e-6)
    assert wasted["copy"]["hbm_bytes"] == 2 * 512 * 1024 * 4
    assert wasted["padding"]["seconds"] == pytest.approx(10e-6), "half of what is moved"
    assert wasted["transpose"]["seconds"] == pytest.approx(10e-6)
    assert wasted["together"]["share"] == pytest.approx(0.5)


def test_the_capture_of_one_device(one_device: Capture) -> None:
    total, lines = waste(one_device)
    assert rows_by(total)["together"]["seconds"] == pytest.approx(18e-6)
    assert rows_by(lines)["(no source given)"]["most"] == "copy.2"


_PROGRAM = """
def f(x, buffer, at):
    turned = jax.lax.optimization_barrier(x.T)
    narrow = jax.lax.optimization_barrier(turned.astype(jnp.bfloat16))
    return narrow, jax.lax.dynamic_update_slice(buffer, x[:64], (at, 0)), jnp.sin(x)

step = jax.jit(f)
x, buffer = jnp.ones((1024, 1000)), jnp.ones((4096, 1000))
call = lambda: step(x, buffer, 5)
"""


@pytest.mark.slow
def test_a_real_capture_names_casts_and_transposes_by_its_modules(tmp_path: Path) -> None:
    total, _ = waste(reading.read(profiled(tmp_path, _PROGRAM, "wasteful")))
    wasted = rows_by(total)
    assert wasted["transpose"]["hbm_bytes"] + wasted.get("cast", {"hbm_bytes": 0})["hbm_bytes"] >= 3 * 1024 * 1000 * 4
    assert 0 < wasted["together"]["share"] < 1


@pytest.mark.parametrize(
    ("summed", "columns", "size", "share"),
    [
        (64, 64, 128, 0.25),
        (64, 64, 256, 1 / 16),
        (128, 128, 128, 1.0),
        (8192, 32768, 128, 1.0),
        (129, 128, 128, 129 / 256),
    ],
)
def test_how_full_a_matrix_unit_is(summed: int, columns: int, size: int, share: float) -> None:
    assert matrix_fill.fill_fraction(summed, columns, size) == pytest.approx(share)


def test_the_weights_of_a_product_given_by_hand_are_one_devices() -> None:
    product = matmul(spec("X[4096,512]", "bf16"), spec("W[512,512@model]", "bf16"), None, {"model": 8}, 8)
    assert matrix_fill.fill_of_product(product, {"model": 8}, 128) == (0.5, 512, 64)
    heads = matmul(spec("Q[8,2048,64]", "bf16"), spec("K[8,2048,64]", "bf16"), "hqd,hkd->hqk", {}, 1)
    assert matrix_fill.fill_of_product(heads, {}, 256) == (0.25, 64, 2048)


def test_the_table_of_a_module_shows_it() -> None:
    dot = (
        "ENTRY %main (x: bf16[4096,64], w: bf16[64,64]) -> bf16[4096,64] {\n  %x = bf16[4096,64] parameter(0)\n"
        "  %w = bf16[64,64] parameter(1)\n  ROOT %d = bf16[4096,64] dot(%x, %w), lhs_contracting_dims={1}, "
        "rhs_contracting_dims={0}\n}"
    )
    for target, share in ((V5E, 0.25), (V6E, 1 / 16)):
        operations = module_tables(Graph(parse.module(dot)), target, 10)[0]
        assert rows_by(operations)["d"]["mxu_fill"] == pytest.approx(share)
        assert any("matrix" in note or "unit" in note for note in operations.notes)
