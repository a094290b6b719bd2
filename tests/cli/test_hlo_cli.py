"""The verb `hlo`: what it prints for shapes, pasted operations, files and stdin, at 100 columns and as JSON."""

import gzip
import io
import json
import sys
from pathlib import Path
from typing import Any

import pytest
from capture_examples import V6E, Ran, plane, run_folder, serialized, space
from memory_examples import STEP, memory_run, metadata_plane
from module_fixtures import modules

from harness.shell.main import main

pytestmark = pytest.mark.long

HERE = Path(__file__).parents[1]
SHIFTED = HERE / "fixtures/schedules/libtpu-0.0.50.1/v6e-shifted-2048/0-TLP-hlo.txt.gz"
NORMALISED = HERE / "fixtures/schedules/libtpu-0.0.50.1/v6e-normalised-8192/0-TLP-hlo.txt.gz"
# The first half of a module.
CUT = (proto := modules("naive")[0].read_bytes())[: len(proto) // 2]
SCATTER = (
    "%fusion.1 = bf16[8,1024,4096]{2,1,0:T(8,128)(2,1)} fusion(bf16[8,1024,8192]{2,1,0:T(8,128)(2,1)} %fusion.31), "
    "kind=kCustom, calls=%all-reduce-scatter.1"
)


@pytest.fixture(autouse=True)
def narrow(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "100")


def printed_by(capsys: pytest.CaptureFixture[str], *words: str) -> str:
    assert main(["hlo", *words]) == 0
    text = capsys.readouterr().out
    assert all(len(line) <= 100 for line in text.splitlines()), text
    return text


def tables(capsys: pytest.CaptureFixture[str], *words: str) -> dict[str, list[dict[str, Any]]]:
    assert main(["hlo", *words, "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert document["command"] == "hlo"
    return {table["name"]: table["rows"] for table in document["tables"]}


def mistaken(capsys: pytest.CaptureFixture[str], code: int, *words: str) -> str:
    assert main(["hlo", *words]) == code
    return capsys.readouterr().err


@pytest.mark.parametrize(
    ("text", "padded", "overhead", "printed"),
    [("f32[3,5]{1,0:T(2,2)}", "[4,6]", 1.6, "1.60x"), ("bf16[3,5]{1,0:T(8,128)(2,1)}", "[8,128]", 1024 / 15, "68.27x")],
)
def test_the_worked_paddings(
    capsys: pytest.CaptureFixture[str], text: str, padded: str, overhead: float, printed: str
) -> None:
    assert printed in printed_by(capsys, text)
    (row,) = tables(capsys, text)["shape"]
    assert (row["padded_to"], row["memory"]) == (padded, "HBM")
    assert row["overhead"] == pytest.approx(overhead)


def test_a_pasted_operation_is_taken_apart(capsys: pytest.CaptureFixture[str]) -> None:
    text = printed_by(capsys, SCATTER, "--chip", "v2")
    assert "kCustom: made by the backend itself" in text
    assert "all-reduce-scatter.1, not given here; by its name a reduce-scatter" in text
    assert "1.118 ms" in text
    by_name = tables(capsys, SCATTER, "--chip", "v2")
    result, operand = by_name["values"]
    assert (result["shape"], result["order"], result["tiles"]) == ("bf16[8,1024,4096]", "{2,1,0}", "(8,128)(2,1)")
    assert (operand["value"], operand["bytes"]) == ("0: fusion.31", 134217728)
    (sent,) = by_name["collective"]
    assert (sent["kind"], sent["devices_per_group"]) == ("reduce-scatter", 2)


def test_several_pasted_operations_know_each_other(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    pasted = (
        "%x = bf16[64,128]{1,0:T(8,128)(2,1)S(1)} parameter(0)\n"
        "%w = bf16[128,256]{1,0:T(8,128)(2,1)} parameter(1)\n"
        "%y = f32[64,256]{1,0:T(8,128)} dot(%x, %w), lhs_contracting_dims={1}, rhs_contracting_dims={0}, "
        'metadata={op_name="jit(f)/dot" source_file="kernel.py" source_line=12}\n'
    )
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(pasted.encode())))
    text = printed_by(capsys, "-")
    assert "bf16[64,128] x bf16[128,256] -> f32[64,256], summed over dimension 1 of the left" in text
    assert "kernel.py:12" in text
    assert "x (argument 0)" in text
    assert "VMEM" in text


def test_a_module_lists_its_hottest_operations(capsys: pytest.CaptureFixture[str]) -> None:
    by_name = tables(capsys, str(NORMALISED), "--chip", "v6e")
    rows = by_name["operations"]
    assert [row["name"] for row in rows] == ["fusion.1", "fusion", "add_rsqrt_fusion"]
    # Both pass once over 8192 x 8192 of bfloat16; the second also writes it.
    assert rows[1]["hbm_bytes"] == 8192 * 8192 * 2
    assert rows[0]["hbm_bytes"] == 2 * rows[1]["hbm_bytes"]
    assert rows[0]["seconds"] == pytest.approx(rows[0]["hbm_bytes"] / 1640e9)
    assert by_name["copies"] == []
    text = printed_by(capsys, str(NORMALISED), "--chip", "v6e")
    assert text.startswith("hottest operations of jit__lambda, predicted on v6e [predicted]")
    assert "the module has no copy and no transpose" in text
    assert "everything in the text was understood" in text


def test_a_kernels_flops_are_unknown_and_said_to_be(capsys: pytest.CaptureFixture[str]) -> None:
    by_name = tables(capsys, str(SHIFTED), "--chip", "v6e")
    kernel = next(row for row in by_name["operations"] if row["what"] == "tpu_custom_call")
    assert (kernel["flops"], kernel["bound"]) == (None, "bytes at least")
    assert {"kind": "FLOPs", "count": 1, "what": "custom-call tpu_custom_call"} in by_name["not_understood"]
    text = printed_by(capsys, str(SHIFTED), "--op", "naive.1", "--chip", "v6e")
    assert "FLOPs unknown: custom-call tpu_custom_call" in text
    assert "even if a kernel reads some bytes again" in text


def test_a_prefetch_is_no_defensive_copy(capsys: pytest.CaptureFixture[str]) -> None:
    (copy,) = tables(capsys, str(SHIFTED))["copies"]
    assert (copy["kind"], copy["producer"], copy["consumers"]) == (
        "prefetch",
        "v_ref.1 (argument 2)",
        "naive.1 (tpu_custom_call)",
    )
    assert copy["bytes_per_step"] == 2 * 2048 * 128 * 2


@pytest.mark.parametrize("path", modules("wrapped"), ids=lambda path: path.name)
def test_a_proto_reads_like_its_text(capsys: pytest.CaptureFixture[str], path: Path) -> None:
    by_name = tables(capsys, str(path))
    relayout = next(row for row in by_name["copies"] if row["kind"] == "relayout")
    assert relayout["shape"] == "bf16[128,512]"
    assert relayout["producer"].startswith("naive.1")
    causes = [row for row in by_name["copy_causes"] if row["names"] == relayout["name"]]
    assert {row["fact"] for row in causes} >= {"cause", "remedy", "layout"}
    assert relayout["name"] in printed_by(capsys, str(path))


def test_dynamic_dimensions_are_bounds(capsys: pytest.CaptureFixture[str]) -> None:
    assert "known only at run time; bytes are for its upper bound" in printed_by(capsys, "f32[<=10,128]{1,0:T(8,128)}")


@pytest.mark.parametrize(
    ("words", "code", "expected"),
    [
        ([str(NORMALISED), "--op", "%fusio"], 2, "similar names: fusion, fusion.1 [unknown-op]"),
        (["nowhere.txt"], 2, "expected a file, - for stdin"),
        (["f32[3,5]{1,0:T(2,2)"], 4, "expected HLO"),
        (["f32[3,5]{0}"], 4, "orders 1 dimensions, the shape has 2"),
        (["f32[3]", "--chip", "v99"], 2, "unknown chip 'v99'"),
        (["f32[3]", "--top", "0"], 2, "--top: expected a whole number, 1 or more"),
    ],
)
def test_bad_requests(capsys: pytest.CaptureFixture[str], words: list[str], code: int, expected: str) -> None:
    assert expected in mistaken(capsys, code, *words)


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        (b"", "expected HLO"),
        (b"def f():\n    pass\n", "expected HLO"),
        (b"\x00\x01\x02", "expected a serialized HloModuleProto"),
        (gzip.compress(b"HloModule m", mtime=0)[:-4], "begins like a gzip file and cannot be unpacked"),
        (b"\xff\xfe" + bytes(64), "expected a serialized HloModuleProto"),
        (CUT, "expected a serialized HloModuleProto or HloProto"),
    ],
)
def test_files_that_are_no_hlo(capsys: pytest.CaptureFixture[str], tmp_path: Path, data: bytes, expected: str) -> None:
    path = tmp_path / "module"
    path.write_bytes(data)
    assert expected in mistaken(capsys, 4, str(path))


def test_a_capture_explains_its_modules(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = memory_run(tmp_path / "profile_data")
    plain = json_of(capsys, str(STEP))
    for what in (str(run), str(tmp_path), "memory"):
        assert json_of(capsys, what, "-C", str(tmp_path)) == plain
    assert main(["hlo", str(run), "--module", "jit_stp(7)"]) == 2
    assert "expected --module, one of jit_step(7), got 'jit_stp(7)'" in capsys.readouterr().err
    for what in (str(STEP), "-"):
        assert main(["hlo", what, "--module", "jit_step"]) == 2
        assert "--module is for a capture" in capsys.readouterr().err


def test_of_several_modules_it_is_the_one_that_ran_longest(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The module that only makes the inputs may be the largest."""
    step = gzip.decompress(STEP.read_bytes())
    stored = metadata_plane({"jit_make(7)": step, "jit_call(8)": modules("naive")[0].read_bytes(), "jit_call(9)": step})
    ops = [
        Ran((f"%copy.{program} = f32[8]{{0}} copy(%p)", {"hlo_category": "copy", "program_id": program}), at, length)
        for program, at, length in ((7, 0.0, 1.0), (8, 5.0, 3.0))
    ]
    run = run_folder(tmp_path, "two", serialized(space(stored, plane(1, "/device:TPU:0", {"XLA Ops": ops}, V6E))))
    called = json_of(capsys, str(run), "--module", "jit_call(8)")
    capsys.readouterr()
    assert json_of(capsys, str(run)) == called
    assert json_of(capsys, str(run), "--module", "jit_call") == called
    assert json_of(capsys, str(run), "--module", "jit_make") != called
    assert main(["hlo", str(run)]) == 0
    assert (
        "this is module jit_call(8), where most time was spent; --module names another of 3" in capsys.readouterr().err
    )


def json_of(capsys: pytest.CaptureFixture[str], *words: str) -> Any:
    assert main(["hlo", *words, "--json"]) == 0
    return json.loads(capsys.readouterr().out)
