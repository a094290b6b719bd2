"""Whole modules: text and proto agree, FLOPs as XLA counts them, loops, copies, collectives and whole shapes."""

import gzip
import json
import re
import subprocess
import sys
from dataclasses import fields, replace
from pathlib import Path

import hlo_programs
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from jaxlib import _hlo
from module_fixtures import modules

from harness.errors import RatchetError
from harness.hardware import chip
from harness.hlo import parse
from harness.hlo.module import Instruction, Module
from harness.render import tables
from harness.shell.documents import json_text
from harness.shell.tables import TABLES, TablesDocument, figures
from harness.workbench.hlo import proto
from harness.workbench.hlo.collectives import collectives
from harness.workbench.hlo.copies import copies
from harness.workbench.hlo.explain import operation_tables
from harness.workbench.hlo.global_shapes import true_shapes
from harness.workbench.hlo.graph import Graph
from harness.workbench.hlo.listing import module_tables
from harness.workbench.hlo.prediction import operation_time
from harness.workbench.hlo.work import work

pytestmark = pytest.mark.long

HERE = Path(__file__).parents[1]
DUMPS = sorted((HERE / "fixtures" / "schedules").glob("*/*/*-TLP-hlo.txt.gz"))
PROGRAMS = ("fused", "looped", "sent")
V5E = chip("v5e")
LAYERS = hlo_programs.LAYERS


@pytest.fixture(scope="module")
def compiled(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Text, proto and XLA's counts of the three programs, compiled by libtpu in a process of its own."""
    folder = tmp_path_factory.mktemp("hlo")
    subprocess.run(
        [sys.executable, str(HERE / "support" / "hlo_programs.py"), str(folder)],
        env=hlo_programs.ENVIRONMENT,
        check=True,
        capture_output=True,
    )
    return folder


def text_of(folder: Path, name: str) -> Module:
    return parse.module((folder / f"{name}.txt").read_text(), name)


def graph_of(folder: Path, name: str) -> Graph:
    return Graph(module=text_of(folder, name))


def instruction_called(module: Module, name: str) -> Instruction:
    return next(i for computation in module.computations for i in computation.instructions if i.name == name)


# Fields that text and proto write differently: digits of constants, lists of devices, aliases.
WORDED = {"attributes", "other_attributes", "literal", "sharding", "aliasing", "called", "backend"}


def assert_same(ours: Module, theirs: Module) -> None:
    assert (ours.name, ours.not_understood, theirs.not_understood) == (theirs.name, (), ())
    assert len(ours.computations) == len(theirs.computations)
    for computation in ours.computations:
        other = next((candidate for candidate in theirs.computations if candidate.name == computation.name), None)
        assert other is not None
        assert other.is_entry == computation.is_entry
        by_name = {instruction.name: instruction for instruction in other.instructions}
        assert by_name.keys() == {instruction.name for instruction in computation.instructions}
        for instruction in computation.instructions:
            twin = by_name[instruction.name]
            for field in fields(instruction):
                if field.name not in WORDED:
                    assert getattr(instruction, field.name) == getattr(twin, field.name), (instruction, field.name)
            assert sorted(instruction.called) == sorted(twin.called)
            if instruction.sharding is not None:
                assert twin.sharding is not None
                assert instruction.sharding.parts == twin.sharding.parts


@pytest.mark.parametrize("name", PROGRAMS)
def test_text_and_proto_are_the_same_module(compiled: Path, name: str) -> None:
    theirs = proto.module((compiled / f"{name}.pb").read_bytes())
    assert_same(text_of(compiled, name), theirs)
    assert theirs.devices == text_of(compiled, name).devices


@pytest.mark.parametrize("path", DUMPS, ids=lambda path: path.parent.name)
def test_saved_dumps_read_as_xla_reads_them(path: Path) -> None:
    text = gzip.decompress(path.read_bytes()).decode()
    ours = parse.module(text)
    assert sum(len(c.instructions) for c in ours.computations) == len(re.findall(r"^  .* = ", text, re.MULTILINE))
    # XLA reads the same file and hands out its own proto.
    assert_same(
        replace(ours, devices=1), proto.module(_hlo.hlo_module_from_text(text).as_serialized_hlo_module_proto())
    )


@pytest.mark.parametrize("name", ["fused", "looped"])
def test_flops_are_those_of_xlas_cost_analysis(compiled: Path, name: str) -> None:
    graph = graph_of(compiled, name)
    # XLA counts a loop's body once, and functions such as tanh apart: there they are added.
    ours = sum(work(graph, instruction).flops or 0 for instruction, _ in graph.executions())
    theirs = json.loads((compiled / f"{name}.json").read_text())["flops"]
    assert ours == pytest.approx(theirs, rel=1e-6)


def test_a_loop_runs_as_often_as_there_are_layers(compiled: Path) -> None:
    graph = graph_of(compiled, "looped")
    assert list(graph.trips.values()) == [LAYERS]
    assert sorted(runs for runs in graph.runs.values() if runs is not None) == [1, LAYERS]
    # The result is the same from condition and body alone, without the compiler's statement.
    assert all(instruction.trip_count is None for instruction, _ in graph.executions())


def test_bytes_of_a_slice_in_a_loop_are_those_of_the_slice(compiled: Path) -> None:
    graph = graph_of(compiled, "looped")
    reads = [
        work(graph, instruction).hbm_bytes
        for instruction, runs in graph.executions()
        if "dynamic-slice" in instruction.name and instruction.opcode == "fusion" and runs == LAYERS
    ]
    # One layer of weights, 512 x 1024 of bfloat16, not all six; and the counter.
    assert len(reads) == 2
    assert all(size is not None and 2 * 512 * 1024 <= size < 2 * 512 * 1024 + 4096 for size in reads)


def test_the_matmul_of_a_fusion_binds_it(compiled: Path) -> None:
    graph = graph_of(compiled, "fused")
    done = [work(graph, i) for i, _ in graph.executions() if i.opcode == "fusion"]
    matmul = max(done, key=lambda amount: amount.flops or 0)
    assert (matmul.flops or 0) >= 2 * 1024 * 512 * 2048
    took = operation_time(matmul, "bf16", V5E)
    assert took.bound == "FLOPs"
    assert took.seconds == pytest.approx((matmul.flops or 0) / 197e12)


def test_collectives_with_their_groups(compiled: Path) -> None:
    by_kind = {sent.kind: sent for sent in collectives(graph_of(compiled, "sent"), V5E)}
    local = 1024 * 1024 * 2
    assert {kind: (sent.size, sent.array_bytes) for kind, sent in by_kind.items()} == {
        "all-gather": (8, 8 * local),
        "all-to-all": (4, 4 * local),
        "reduce-scatter": (2, local),
        "collective-permute": (8, local),
    }
    assert by_kind["reduce-scatter"].stride == 4
    assert by_kind["all-gather"].seconds == pytest.approx(8 * local / 1e11)
    assert by_kind["all-to-all"].seconds == pytest.approx(local / 1e11)


def test_a_collective_that_is_overlapped_is_listed_once(compiled: Path) -> None:
    listed = collectives(graph_of(compiled, "looped"), V5E)
    assert sorted(sent.kind for sent in listed) == ["all-gather", "all-gather", "all-reduce"]
    assert {sent.runs for sent in listed} == {LAYERS}
    assert {sent.size for sent in listed if sent.kind == "all-gather"} == {2}
    assert {sent.size for sent in listed if sent.kind == "all-reduce"} == {4}


def test_true_shapes_of_arguments_and_of_what_comes_of_them(compiled: Path) -> None:
    # jax 0.10 writes the shardings at the arguments; of jax 0.12 the collectives alone tell them.
    listed = true_shapes(graph_of(compiled, "looped"))
    whole = {value.local: value.whole for value in listed if value.name.startswith("param")}
    assert whole["bf16[6,512,1024]"] == "bf16[6,1024,4096]"
    assert whole["bf16[6,1024,512]"] == "bf16[6,4096,1024]"
    # The hidden layer: its columns are split like the weights', seen through loop, slices and fusions.
    assert any(value.local == "bf16[512,1024]" and value.parts[1] == 4 for value in listed)


def test_the_copy_of_a_transposed_result(compiled: Path) -> None:
    copy = next(listed for listed in copies(graph_of(compiled, "fused")) if listed.kind == "relayout")
    assert copy.shape == "bf16[2048,1024]"
    assert copy.consumers == ("the result",)
    assert copy.bytes_moved == 2 * 2048 * 1024 * 2
    assert (copy.runs, copy.bytes_per_run) == (1, copy.bytes_moved)
    assert "default layout" in copy.cause
    assert "AUTO" in copy.remedy


LOOPED = """
HloModule looped

body {
  state = (s32[]) parameter(0)
  i = s32[] get-tuple-element(state), index=0
  one = s32[] constant(1)
  next = s32[] add(i, one)
  ROOT after = (s32[]) tuple(next)
}

condition {
  before = (s32[]) parameter(0)
  ROOT less = pred[] constant(false)
}

ENTRY main {
  zero = s32[] constant(0)
  start = (s32[]) tuple(zero)
  loop = (s32[]) while(start), condition=condition, body=body
  ROOT made = s32[] get-tuple-element(loop), index=0
}
"""


def test_what_is_not_understood_is_kept_and_the_rest_is_read() -> None:
    text = LOOPED.replace("  one = s32[] constant(1)\n", "  one = s32[] constant(1)\n  ?? !! nonsense\n")
    module = parse.module(text)
    assert len(module.not_understood) == 1
    assert "expected a" in module.not_understood[0]
    assert "line 8" in module.not_understood[0]
    assert {computation.name for computation in module.computations} == {"body", "condition", "main"}
    assert instruction_called(module, "next").opcode == "add"


def test_a_computation_that_breaks_off_is_said_to() -> None:
    module = parse.module(LOOPED[: LOOPED.index("  ROOT made = ")])
    assert any("main breaks off" in sentence for sentence in module.not_understood)
    assert instruction_called(module, "loop").opcode == "while"


def test_operations_without_a_time_are_listed_after_those_with_one() -> None:
    calls = "".join(
        f'  c{place} = f32[8]{{0:S(1)}} custom-call(), custom_call_target="Unknown"\n' for place in range(3)
    )
    text = f"HloModule m\nENTRY e {{\n  a = f32[1024]{{0}} parameter(0)\n{calls}  ROOT b = f32[1024]{{0}} add(a, a)\n}}"
    operations = module_tables(Graph(parse.module(text)), V5E, 2)[0]
    assert [row[0] for row in operations.rows] == ["b", "c0"]
    assert any("Without a predicted time: 3 operations (Unknown 3)." in note for note in operations.notes)


@pytest.mark.parametrize("text", ["", "hello", "HloModule m\n", "def f(x):\n    return x\n", "{{{{", '"', "%a = "])
def test_what_is_no_hlo_is_told(text: str) -> None:
    with pytest.raises(RatchetError, match="expected HLO") as caught:
        parse.module(text)
    assert caught.value.kind == "bad-hlo"


CHARACTERS = "(){}[],=%:*<>?\"' \n0aT-"


@given(st.sampled_from(DUMPS), st.lists(st.tuples(st.integers(0, 3000), st.sampled_from(CHARACTERS)), max_size=4))
@settings(max_examples=60)
def test_damaged_text_is_read_or_refused_and_nothing_else(path: Path, damage: list[tuple[int, str]]) -> None:
    text = gzip.decompress(path.read_bytes()).decode()
    for place, character in damage:
        text = text[:place] + character + text[place + 1 :]
    try:
        graph = Graph(module=parse.module(text))
    except RatchetError:
        return
    for table in module_tables(graph, V5E, 5):
        assert bool(table.rows) != bool(table.why_empty)
    if not damage:
        assert not graph.module.not_understood


@pytest.mark.parametrize(
    "text",
    [
        "HloModule m\nENTRY e {\n  a = f32[8]{0} copy(a)\n}",
        "HloModule m\nENTRY e {\n  a = f32[8]{0} add(b, b)\n  b = f32[8]{0} bitcast(a)\n}",
        "HloModule m\nf {\n  a = f32[8]{0} fusion(), kind=kLoop, calls=f\n}",
    ],
)
def test_what_goes_in_circles_is_refused(text: str) -> None:
    with pytest.raises(RatchetError, match="without cycles, got"):
        Graph(module=parse.module(text))


def test_brackets_without_end_are_told() -> None:
    for text in ("(" * 5000, "%a = " + "(" * 5000, "%a = f32[2]{0} add(%b), sharding=" + "{" * 5000):
        with pytest.raises(RatchetError, match="expected HLO"):
            parse.module(text)


@pytest.mark.parametrize("name", PROGRAMS)
def test_every_table_fits_a_hundred_columns(compiled: Path, name: str) -> None:
    graph = graph_of(compiled, name)
    pages = [module_tables(graph, V5E, 8)]
    for instruction, _ in graph.executions():
        pages.append(operation_tables(graph, instruction, V5E))
    for page in pages:
        assert page
        assert all(len(line) <= 100 for line in tables.text(page, 100).splitlines()), tables.text(page, 100)
        assert "nan" not in json_text(TABLES, TablesDocument(command="hlo", tables=figures(page)))


@pytest.mark.parametrize("data", [b"", b"\x00\x01\x02", b"\x0a\x04name", b"\xff" * 40])
def test_what_is_no_proto_is_told(data: bytes) -> None:
    with pytest.raises(RatchetError, match="expected a serialized HloModuleProto or HloProto") as caught:
        proto.module(data)
    assert caught.value.kind == "bad-hlo"


def test_the_proto_around_a_module_is_opened(compiled: Path) -> None:
    data = (compiled / "fused.pb").read_bytes()
    length = bytes([0x80 | len(data) & 0x7F, 0x80 | len(data) >> 7 & 0x7F, len(data) >> 14])
    assert proto.module(b"\x0a" + length + data).name == proto.module(data).name
    with pytest.raises(RatchetError):
        proto.module(data[: len(data) // 2])


def test_a_module_of_another_xla_is_refused_and_its_origins_are_read() -> None:
    data = modules("naive")[0].read_bytes().replace(b"parameter", b"parametre")
    with pytest.raises(RatchetError, match="the installed XLA cannot read the module") as caught:
        proto.module(data)
    assert caught.value.kind == "bad-hlo"
    assert "parametre" in {origin.opcode for origin in proto.origins(data).values()}
