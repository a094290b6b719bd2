"""Communication by axis of the mesh, SparseCores, and the collectives that a sharding constraint would spare."""

import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from analyses import named, overlap, rows_by
from analysis_examples import US, capture, device, op
from capture_examples import (
    ALL_REDUCE_DONE,
    ALL_REDUCE_START,
    V6E,
    Ran,
    four_devices_run,
    plane,
    run_folder,
    serialized,
    space,
)

from harness.errors import UsageError
from harness.hardware import chip
from harness.hlo import parse
from harness.hlo.sharding import Mesh
from harness.sandbox import environment
from harness.shell.main import main
from harness.workbench.hlo.graph import Graph
from harness.workbench.hlo.resharding import large_collectives, with_mesh
from harness.workbench.profiles import reading

V5E = chip("v5e")
MIB = 1 << 20


WHOLE = "bf16[1024,1024]{1,0:T(8,128)(2,1)}"
ALONG_DATA = op(
    "all-reduce.2", "all-reduce", f"%all-reduce.2 = {WHOLE} all-reduce(%f), replica_groups={{{{0,2,4,6}},{{1,3,5,7}}}}"
)
ALONG_MODEL = op(
    "all-gather.5", "all-gather", f"%all-gather.5 = {WHOLE} all-gather(%p), replica_groups=[4,2]<=[8], dimensions={{0}}"
)

# The bytes of this collective are known, those of its neighbour are not.
MOVED = op(
    "collective-permute.3",
    "collective-permute",
    f"%collective-permute.3 = {WHOLE} collective-permute(%f), source_target_pairs={{{{0,1}}}}",
)


def test_waits_of_cores_before_a_program_that_communicates(tmp_path: Path) -> None:
    waits = [Ran("barrier-cores", 1.0, 7.0), Ran("dependency-wait", 8.0, 0.1), Ran("barrier-cores", 60.0, 30.0)]
    ran = [Ran(ALL_REDUCE_START, 10.0, 1.0), Ran(ALL_REDUCE_DONE, 11.0, 40.0)]
    text = space(plane(1, "/device:TPU:0", {"XLA Ops": ran, "XLA TraceMe": waits}, V6E))
    shown = named(overlap(reading.read([run_folder(tmp_path, "waits", serialized(text))])))
    assert rows_by(shown["core_waits"]) == {
        "TPU:0": {
            "device": "TPU:0",
            "name": "barrier-cores",
            "count": 2,
            "seconds": pytest.approx(37 * US),
            "longest_seconds": pytest.approx(30 * US),
        }
    }


def test_bytes_time_exposed_time_and_link_by_axis() -> None:
    captured = capture(device([(ALONG_DATA, 0, 100), (op("fusion.1", "loop fusion"), 100, 40), (ALONG_MODEL, 140, 60)]))
    axes = named(overlap(replace(captured, paths=()), {"data": 4, "model": 2}))["axes"]
    shown = rows_by(axes)
    # v5e: 50 GB/s one way over a link; an axis of 4 chips is a line.
    assert shown["data"]["device_bytes"] == pytest.approx(2 * MIB * 2 * 3 / 4)
    assert shown["data"]["exposed_seconds"] == pytest.approx(100 * US)
    assert shown["data"]["exposed_fraction"] == pytest.approx(0.5)
    assert shown["data"]["link_fraction"] == pytest.approx(2 * 2 * MIB * 3 / 4 / 50e9 / 100e-6)
    assert shown["model"]["device_bytes"] == pytest.approx(2 * MIB / 2)
    assert shown["model"]["link_fraction"] == pytest.approx(2 * MIB / 2 / 50e9 / 60e-6)
    assert not any("made up" in note for note in axes.notes)


@pytest.mark.long
def test_bytes_that_are_not_known_of_one_collective_are_not_known_of_its_axis() -> None:
    bare = op("all-reduce.9", "all-reduce", f"%all-reduce.9 = {WHOLE} all-reduce(%f)")
    captured = replace(capture(device([(ALONG_DATA, 0, 100), (bare, 100, 40)])), paths=())
    axes = rows_by(named(overlap(captured, {"data": 4, "model": 2}))["axes"])
    assert {name: row["device_bytes"] is None for name, row in axes.items()} == {"data": False, "unknown": True}
    no_axes = rows_by(named(overlap(replace(capture(device([(bare, 0, 9), (MOVED, 9, 9)])), paths=())))["axes"])
    assert no_axes["unknown"]["device_bytes"] is None


def test_a_sparse_core_that_took_no_time_hides_nothing() -> None:
    chip = device([(op("fusion.1", "loop fusion"), 0, 40)])
    core = replace(device([(op("gather", "other"), 10, 0)]), name=f"{chip.name} SparseCore 0")
    (row,) = named(overlap(replace(capture(chip, core), paths=())))["sparse_cores"].rows
    assert row[-1] is None


def test_without_a_mesh_axes_are_made_up_and_another_number_of_devices_is_refused() -> None:
    captured = replace(capture(device([(ALONG_DATA, 0, 100), (ALONG_MODEL, 100, 60)])), paths=())
    axes = named(overlap(captured))["axes"]
    assert set(rows_by(axes)) == {"axis0", "axis1"}
    assert any("Name its axes with --mesh" in note for note in axes.notes)
    with pytest.raises(UsageError, match="8 devices that the collectives name, got 4"):
        overlap(captured, {"data": 4})


def test_sparse_cores_are_read_and_are_no_device_of_the_program(tmp_path: Path) -> None:
    shown = reading.read((four_devices_run(tmp_path),))
    assert not any("not read" in sentence for sentence in shown.left_out)
    tables = named(overlap(shown, {"data": 4}))
    assert len(tables["communication"].rows) == 4
    core = rows_by(tables["sparse_cores"])["TPU:0 SparseCore 0"]
    assert core["busy_seconds"] == pytest.approx(5 * US)
    assert core["hidden_fraction"] == pytest.approx(1.0)
    assert core["collective_seconds"] == 0
    # Two collectives a step along the one axis; 4 + 15 us of 106 are waited for, on core 2 the all-reduce 3 us.
    assert rows_by(tables["axes"])["data"]["exposed_seconds"] == pytest.approx(3 * (4 + (3 * 15 + 3) / 4) * US)


@pytest.mark.long
def test_the_command_names_the_axes(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["xprof", "overlap", str(four_devices_run(tmp_path)), "--mesh", "data=4"]) == 0
    shown = capsys.readouterr().out
    assert "Communication by axis of the mesh" in shown
    assert main(["xprof", "overlap", str(four_devices_run(tmp_path)), "--mesh", "data=3"]) == 2


HEAD = "HloModule step, num_partitions=8\n\n"
GATHER = (
    "%g = f32[8192,512]{1,0} all-gather(%x), channel_id=1, replica_groups={{0,2,4,6},{1,3,5,7}}, dimensions={0}, "
    'metadata={source_file="m.py" source_line=7}'
)
X = "%x = f32[2048,512]{1,0} parameter(0), sharding={devices=[4,1,2]<=[8] last_tile_dim_replicate}"
W = "%w = f32[512,256]{1,0} parameter(1)"
PRODUCT = "f32[8192,256]{1,0} dot(%g, %w), lhs_contracting_dims={1}, rhs_contracting_dims={0}"


def collectives_in(*lines: str) -> dict[str, Any]:
    text = HEAD + "ENTRY %main () -> f32[] {\n  " + "\n  ".join(lines) + "\n}\n"
    module = with_mesh(parse.module(text), Mesh(axes=(("data", 4), ("model", 2))))
    return {large.sent.name: large for large in large_collectives(Graph(module=module), V5E)}


def test_a_gather_that_is_cut_again_is_spared() -> None:
    cut = "ROOT %s = f32[2048,512]{1,0} dynamic-slice(%g, %i, %i), dynamic_slice_sizes={2048,512}"
    collective = collectives_in(X, GATHER, "%i = s32[] parameter(2)", cut)["g"]
    sent = collective.sent
    assert (sent.axes, sent.array_bytes, collective.used_by, sent.source) == (("data",), 16 * MIB, "s", "m.py:7")
    assert "takes only a part of the gathered array" in collective.reading
    assert "with_sharding_constraint(x, P(data, None))" in collective.remedy


SPLIT = "%w = f32[512,64]{1,0} parameter(1), sharding={devices=[1,4,2]<=[8] last_tile_dim_replicate}"
WIDE = GATHER.replace("f32[8192,512]", "f32[2048,2048]").replace("dimensions={0}", "dimensions={1}")


@pytest.mark.parametrize(
    ("lines", "reading", "is_spared"),
    [
        ((X, W, GATHER, f"ROOT %d = {PRODUCT}"), "rows, although they are independent of each other", True),
        (
            (X, W.replace("512", "2048"), WIDE, f"ROOT %d = {PRODUCT.replace('8192', '2048')}"),
            "needed: a product sums over the gathered dimension",
            False,
        ),
        (
            (X, SPLIT, GATHER, f"ROOT %d = {PRODUCT.replace('8192,256', '8192,64')}"),
            "needed: the other operand is split along the same axis",
            False,
        ),
        ((X, GATHER, 'ROOT %c = f32[16]{0} custom-call(%g), custom_call_target="f"'), "unknown", False),
    ],
)
def test_a_gather_is_spared_or_needed_by_its_use(lines: tuple[str, ...], reading: str, is_spared: bool) -> None:
    collective = collectives_in(*lines)["g"]
    assert reading in collective.reading
    assert ("P(data, None)" in collective.remedy) == bool(collective.remedy) == is_spared


def test_sums_of_all_rows_are_spared_where_an_argument_has_them_split() -> None:
    tokens = "%t = s32[4,512]{1,0} parameter(2), sharding={devices=[4,1,2]<=[8] last_tile_dim_replicate}"
    lines = (
        "%x = f32[8192,64]{1,0} parameter(0)",
        "%w = f32[64,512]{1,0} parameter(1)",
        tokens,
        "%d = f32[8192,512]{1,0} dot(%x, %w), lhs_contracting_dims={1}, rhs_contracting_dims={0}",
        "ROOT %r = f32[8192,512]{1,0} all-reduce(%d), channel_id=1, replica_groups={{0,2,4,6},{1,3,5,7}}",
    )
    collective = collectives_in(*lines)["r"]
    assert collective.reading == "every device adds up all 8,192 rows, but t has as many rows, split along data"
    assert "with_sharding_constraint(x, P(data, None))" in collective.remedy
    assert not collectives_in(*lines[:2], tokens.replace("[4,512]", "[4,511]"), *lines[3:]), (
        "no argument has these rows"
    )


_PROGRAM = """
import jax
import jax.numpy as jnp
from jax.sharding import NamedSharding, PartitionSpec as P

mesh = jax.make_mesh((4, 2), ("data", "model"), axis_types=(jax.sharding.AxisType.Auto,) * 2)

def f(x, w):
    x = jax.lax.with_sharding_constraint(x, NamedSharding(mesh, P(None, None)))
    return jnp.tanh(x @ w)

def split(shape, *axes):
    return jax.ShapeDtypeStruct(shape, jnp.float32, sharding=NamedSharding(mesh, P(*axes)))

print(jax.jit(f).lower(split((8192, 512), "data", None), split((512, 256), None, None)).compile().as_text())
"""


@pytest.mark.slow
def test_a_compiled_program_that_replicates_its_rows_is_told_the_constraint() -> None:
    env = {**environment.on_cpu(), "XLA_FLAGS": "--xla_force_host_platform_device_count=8"}
    done = subprocess.run([sys.executable, "-c", _PROGRAM], env=env, timeout=120, capture_output=True, text=True)
    module = with_mesh(parse.module(done.stdout), Mesh(axes=(("data", 4), ("model", 2))))
    (collective,) = large_collectives(Graph(module=module), V5E)
    sent = collective.sent
    assert (sent.kind, sent.axes, sent.array_bytes) == ("all-gather", ("data",), 8192 * 512 * 4)
    assert "P(data, None)" in collective.remedy
