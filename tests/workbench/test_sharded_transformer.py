"""examples/sharded-transformer: shapes and sharding from its captures alone, and the corrected line."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from loop_fixtures import PROJECT

from harness.sandbox import environment
from harness.shell.main import main

pytestmark = pytest.mark.slow
PROGRAM = Path(PROJECT) / "examples" / "sharded-transformer" / "transformer.py"

Tables = dict[str, list[dict[str, Any]]]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with both captures, each taken in a process of its own."""
    where = tmp_path_factory.mktemp("captured")
    for name in ("written", "mended"):
        subprocess.run(
            [sys.executable, PROGRAM, name],
            cwd=where,
            check=True,
            env=environment.on_cpu(),
            timeout=300,
            capture_output=True,
        )
    return where


def asked(capsys: pytest.CaptureFixture[str], folder: Path, *words: str) -> Tables:
    """The rows of each table of an answer."""
    assert main([*words, "-C", str(folder), "--json"]) == 0
    return {table["name"]: table["rows"] for table in json.loads(capsys.readouterr().out)["tables"]}


@pytest.mark.parametrize("name", ["written", "mended"])
def test_shapes_and_shardings_of_the_arguments_come_from_the_capture(
    name: str, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    rows = asked(capsys, folder, "hlo", name, "--top", "100")["true_shapes"]
    arguments = [(row["whole"], row["parts"]) for row in rows if row["because"] == f"sharding of {row['name']}"]
    layer = [("f32[256,4,64]", "4x2x1")] * 3 + [
        ("f32[4,64,256]", "2x1x4"),
        ("f32[256,1024]", "4x2"),
        ("f32[1024,256]", "2x4"),
    ]
    expected = [*layer, *layer, ("f32[2048,256]", "1x4"), ("s32[8,512]", "4x1")]
    assert sorted(argument for argument in arguments if argument in expected) == sorted(expected)


def test_the_missing_constraint_shows_in_what_is_sent_and_in_the_work(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    written, mended = (asked(capsys, folder, "hlo", name, "--top", "200") for name in ("written", "mended"))
    # 8 sequences of 512 words: all of the batch, added up by the four devices along `data`, which are two apart.
    largest = max(written["collectives"], key=lambda row: row["array_bytes"])
    assert (largest["kind"], largest["result"]) == ("all-reduce", "f32[8,512,512]")
    assert (largest["devices_per_group"], largest["stride"], largest["array_bytes"]) == (4, 2, 8 * 512 * 512 * 4)
    # Mended, activations are summed along `model` only, a quarter of the batch at a time.
    reduced = [row for row in mended["collectives"] if row["kind"] == "all-reduce"]
    assert {(row["result"], row["devices_per_group"], row["stride"]) for row in reduced} == {("f32[2,512,256]", 2, 1)}

    def flops(tables: Tables) -> int:
        return sum(row["flops"] or 0 for row in tables["operations"])

    def sent(tables: Tables) -> int:
        return sum(row["array_bytes"] for row in tables["collectives"])

    assert flops(written) > 1.5 * flops(mended)
    assert sent(written) > 2 * sent(mended)


def test_attention_and_mlp_are_told_apart(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    rows = asked(capsys, folder, "xprof", "scopes", "written", "--depth", "2")["scopes"]
    shares = {row["scope"].strip(): row["share"] for row in rows}
    assert {"embed", "attention", "mlp"} <= shares.keys()
    assert shares["attention"] + shares["mlp"] > 0.5


def test_both_are_compared_by_step(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    tables = asked(capsys, folder, "xprof", "compare", "written", "mended")
    (summary, *_) = tables.values()
    assert summary[0]["what"] == "step, median"
    gone = [row for table in tables.values() for row in table if row.get("operation") == "all-reduce.4"]
    assert [row["what"] for row in gone] == ["vanished"]


def test_communication_is_told_apart_by_axis_and_the_constraint_is_named(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    written, mended = (
        asked(capsys, folder, "xprof", "overlap", name, "--mesh", "data=4,model=2") for name in ("written", "mended")
    )
    data = next(row for row in written["axes"] if row["axes"] == "data")
    # Two all-reduces of 8.4 MB and two of 6.3 MB in each of three steps, 2 x 3/4 of which cross a device's links.
    assert data["device_bytes"] == 3 * 2 * 3 / 4 * 2 * (8 * 512 * 512 + 3 * 8 * 512 * 2 * 64) * 4
    assert next(row for row in mended["axes"] if row["axes"] == "data")["device_bytes"] < data["device_bytes"] / 10
    constraints = {row["fact"]: row["reading"] for row in written["constraints"]}
    assert "with_sharding_constraint(x, P(data, None, None))" in constraints["remedy"]
    assert "all 4,096 rows" in constraints["reading"]
    assert not any(row["fact"] == "remedy" for row in mended.get("constraints", ()))
