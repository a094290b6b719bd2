"""Axes of a mesh behind shardings and groups, compared with JAX's own for a PartitionSpec."""

from pathlib import Path

import pytest
from analyses import printed_by_name
from hypothesis import given, settings
from hypothesis import strategies as st
from jax.sharding import AbstractMesh, NamedSharding, PartitionSpec

from harness.hlo.sharding import Groups, Mesh, groups, read_sharding
from harness.hlo.tokens import Tokens
from harness.shell.main import main
from harness.workbench.hlo.mesh import (
    axes_of_groups,
    axes_of_sharding,
    groups_per_link,
    infer_mesh,
    specification,
    torus_of,
)

NAMES = ("a", "b", "c", "d")


@st.composite
def meshes(draw: st.DrawFn) -> Mesh:
    sizes = draw(st.lists(st.integers(2, 4), min_size=1, max_size=4))
    return Mesh(axes=tuple(zip(NAMES, sizes, strict=False)))


def xla_sharding(mesh: Mesh, spec: tuple[tuple[str, ...], ...]) -> str:
    """The sharding that JAX hands to XLA."""
    sizes, names = [size for _, size in mesh.axes], tuple(name for name, _ in mesh.axes)
    named = NamedSharding(AbstractMesh(tuple(sizes), names), PartitionSpec(*(axes or None for axes in spec)))
    return str(named._to_xla_hlo_sharding(len(spec)))


@given(meshes(), st.data())
@settings(max_examples=80)
def test_the_axes_of_a_sharding_are_those_of_jaxs_partition_spec(mesh: Mesh, data: st.DataObject) -> None:
    order = data.draw(st.permutations([name for name, _ in mesh.axes]))
    ends = sorted(data.draw(st.lists(st.integers(0, len(order)), min_size=2, max_size=2)))
    spec = (tuple(order[: ends[0]]), tuple(order[ends[0] : ends[1]]))
    text = xla_sharding(mesh, spec)
    sharding = read_sharding(Tokens(text))
    if not any(spec):
        assert sharding.kind == "replicated"
        return
    axes_read = axes_of_sharding(sharding, mesh)
    # If the order of axes makes no difference, JAX may use any: only the text has to be the same.
    assert xla_sharding(mesh, axes_read) == text
    assert [set(axes) for axes in axes_read] == [set(axes) for axes in spec]


@given(meshes(), st.data())
@settings(max_examples=60)
def test_the_axes_of_groups_are_those_they_were_made_of(mesh: Mesh, data: st.DataObject) -> None:
    names = [name for name, _ in mesh.axes]
    along = data.draw(st.lists(st.sampled_from(names), min_size=1, unique=True))
    axes = ",".join(f"'{name}'={size}" for name, size in mesh.axes)
    parsed = groups(f"mesh[{axes}] {{{','.join(repr(name) for name in along)}}}")
    assert axes_of_groups(parsed, mesh) == tuple(name for name in names if name in along)
    listed = Groups(text="lists", groups=parsed.groups)
    assert axes_of_groups(listed, mesh) == tuple(name for name in names if name in along)


def test_groups_that_are_not_those_of_whole_axes_have_none() -> None:
    mesh = Mesh(axes=(("data", 4), ("model", 2)))
    assert axes_of_groups(groups("{{0,1,2,3},{4,5,6,7}}"), mesh) == ()
    assert axes_of_groups(groups("{{0,3},{1,2},{4,7},{5,6}}"), mesh) == ()
    assert axes_of_groups(groups("{}"), mesh) == ("data", "model")
    assert axes_of_groups(groups("{{0,16}}"), mesh) == ()


@pytest.mark.parametrize(
    ("shardings", "collectives", "expected"),
    [
        (["{devices=[4,1,2]<=[8] last_tile_dim_replicate}"], [], "axis0=4,axis1=2"),
        (["{devices=[1,2,4]<=[4,2]T(1,0) last_tile_dim_replicate}"], [], "axis0=4,axis1=2"),
        ([], ["{{0,1},{2,3},{4,5},{6,7}}"], "axis0=4,axis1=2"),
        ([], ["[2,4]<=[4,2]T(1,0)", "{{0,2},{1,3},{4,6},{5,7}}"], "axis0=2,axis1=2,axis2=2"),
        (["{mesh['data'=4,'model'=2], [{'data'}, {}]}"], ["{{0,1},{2,3},{4,5},{6,7}}"], "data=4,model=2"),
        ([], [], "None"),
    ],
)
def test_the_mesh_is_read_off_the_text(shardings: list[str], collectives: list[str], expected: str) -> None:
    guessed = infer_mesh([read_sharding(Tokens(text)) for text in shardings], [groups(text) for text in collectives], 8)
    assert str(guessed) == expected


def test_a_specification_reads_as_jax_writes_it() -> None:
    assert specification([("data",), (), ("x", "y")]) == "P(data, None, (x, y))"
    assert specification([(), ()]) == ""


MODULE = """HloModule jit_f, num_partitions=8

add {
  a = f32[] parameter(0)
  b = f32[] parameter(1)
  ROOT c = f32[] add(a, b)
}

fused {
  p = f32[128,512]{1,0} parameter(0)
  q = f32[512,256]{1,0} parameter(1)
  product = f32[128,256]{1,0} dot(p, q), lhs_contracting_dims={1}, rhs_contracting_dims={0}
  ROOT positive = f32[128,256]{1,0} maximum(product, product), metadata={op_name="jit(f)/relu"}
}

ENTRY main {
  x = f32[128,512]{1,0} parameter(0), sharding={devices=[4,2]<=[8]}
  w = f32[512,256]{1,0} parameter(1), sharding={devices=[2,1,4]<=[4,2]T(1,0) last_tile_dim_replicate}
  y = f32[128,256]{1,0} fusion(x, w), kind=kOutput, calls=fused
  ROOT z = f32[128,256]{1,0} all-reduce(y), replica_groups={{0,1},{2,3},{4,5},{6,7}}, channel_id=1, to_apply=add
}
"""


def test_hlo_names_axes_shapes_and_what_a_fusion_holds(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "f.txt"
    path.write_text(MODULE)
    answer = printed_by_name(capsys, "hlo", str(path), "--mesh", "data=4,model=2")
    assert [row["axes"] for row in answer["collectives"]["rows"]] == ["model"]
    shapes = {row["name"]: (row["local"], row["whole"], row["sharding"]) for row in answer["true_shapes"]["rows"]}
    assert shapes["x"] == ("f32[128,512]", "f32[512,1024]", "P(data, model)")
    assert shapes["w"] == ("f32[512,256]", "f32[1024,256]", "P(model, None)")
    # The rows of the product stay split as those of x.
    assert shapes["z"] == ("f32[128,256]", "f32[512,256]", "P(data, None)")
    unnamed = printed_by_name(capsys, "hlo", str(path))
    assert unnamed["collectives"]["rows"][0]["axes"] == "axis1"
    assert any("use --mesh NAME=4,NAME=2." in note for note in unnamed["true_shapes"]["notes"])
    inside = printed_by_name(capsys, "hlo", str(path), "--op", "y", "--mesh", "data=4,model=2")["inside"]["rows"]
    assert [(row["name"], row["opcode"], row["operands"]) for row in inside] == [
        ("product", "dot", "p, q"),
        ("positive", "maximum", "product, product"),
    ]
    facts = printed_by_name(capsys, "hlo", str(path), "--op", "z", "--mesh", "data=4,model=2")["operation"]["rows"]
    assert {"fact": "groups", "reading": "{{0,1},{2,3},{4,5},{6,7}}, along model"} in facts
    assert main(["hlo", str(path), "--mesh", "data=3"]) == 2
    assert "expected --mesh of the module's 8 devices, got 3" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("axes", "dimensions", "expected"),
    [
        ((("data", 2), ("model", 4)), 2, (("data", "y (2 of 4)"), ("model", "x, y (2 of 4)"))),
        ((("data", 4), ("model", 4)), 2, (("data", "y"), ("model", "x"))),
        ((("data", 4), ("model", 2)), 2, (("data", "y"), ("model", "x"))),
        ((("a", 4), ("b", 2), ("c", 2)), 3, (("a", "z"), ("b", "y"), ("c", "x"))),
        ((("a", 8), ("b", 2)), 3, (("a", "y, z"), ("b", "x"))),
        # This is no known slice.
        ((("data", 6),), 2, ()),
    ],
)
def test_dimensions_of_the_torus(
    axes: tuple[tuple[str, int], ...], dimensions: int, expected: tuple[tuple[str, str], ...]
) -> None:
    assert torus_of(Mesh(axes=axes), dimensions) == expected


@pytest.mark.parametrize(
    ("text", "devices", "expected"),
    [
        # On 2 x 4 devices, device 4 is two links behind device 0.
        ("[4,2]<=[2,4]T(1,0)", 8, 2),
        ("{{0,1},{2,3},{4,5},{6,7}}", 8, 1),
        ("{{0,2,4,6},{1,3,5,7}}", 8, 1),
        # Groups over both axes, an unknown slice, groups without names.
        ("[2,4]<=[8]", 8, None),
        ("{{0,3},{1,4},{2,5}}", 6, None),
        ("{}", 8, None),
    ],
)
def test_groups_that_share_a_link(text: str, devices: int, expected: int | None) -> None:
    assert groups_per_link(groups(text), devices, 2) == expected


UNNAMED = """HloModule jit_f, is_scheduled=true, num_partitions=8

%add (a: f32[], b: f32[]) -> f32[] {
  %a = f32[] parameter(0)
  %b = f32[] parameter(1)
  ROOT %s = f32[] add(%a, %b)
}

ENTRY %main (x: bf16[1024,2048], w: bf16[512,4096]) -> f32[1024,4096] {
  %x = bf16[1024,2048]{1,0} parameter(0)
  %w = bf16[512,4096]{1,0} parameter(1)
  %ag = bf16[2048,4096]{1,0} all-gather(%w), replica_groups=[2,4]<=[8], dimensions={0}
  %dot = f32[1024,4096]{1,0} dot(%x, %ag), lhs_contracting_dims={1}, rhs_contracting_dims={0}
  ROOT %ar = f32[1024,4096]{1,0} all-reduce(%dot), replica_groups=[4,2]<=[2,4]T(1,0), to_apply=%add
}
"""


def test_unsharded_sizes_come_of_groups_where_no_mesh_is_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "module.txt"
    path.write_text(UNNAMED)
    shapes = printed_by_name(capsys, "hlo", str(path))["true_shapes"]
    whole = {row["name"]: (row["whole"], row["because"]) for row in shapes["rows"]}
    assert whole["x"] == ("bf16[1024,4096]", "ar over groups of 2")
    assert whole["w"] == ("bf16[2048,4096]", "ag over groups of 4")
    assert any("with the last axis varying fastest, is guessed" in note for note in shapes["notes"])
