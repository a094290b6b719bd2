"""Above HLO and below it: a function's jaxpr and StableHLO, the inside of a kernel, elements within tiles."""

from pathlib import Path
from typing import Any

import pytest
from analyses import printed_by_name
from narrowing import present
from simulated_examples import SMALL, run

from harness.hlo import shapes
from harness.shell.main import main
from harness.workbench.hlo.levels import COPIES, EXPONENTIALS, MATMULS, REDUCTIONS, kernel_table, level_table
from harness.workbench.hlo.tables import placement_table

PROGRAM = """\
import jax
import jax.numpy as jnp


def step(x, w):
    return jnp.tanh(x @ w).sum()


def alone():
    return step(jnp.ones((256, 512)), jnp.ones((512, 128)))
"""

# A function that asks for its device, as packages do to choose their blocks.
ASKING = """\
import jax
from jax.experimental.pallas import tpu as pltpu


def scaled(x):
    assert jax.default_backend() == "tpu" and jax.devices()[0].device_kind == "TPU v6 lite"
    return x * float(pltpu.get_tpu_info().vmem_capacity_bytes)
"""


def text(table: dict[str, Any]) -> str:
    return "\n".join(row["line"] for row in table["rows"])


@pytest.fixture
def program(tmp_path: Path) -> Path:
    path = tmp_path / "train.py"
    path.write_text(PROGRAM)
    return path


@pytest.mark.long
@pytest.mark.parametrize("words", [("step", "--arg", "f32[256,512]", "--arg", "bf16[512,128]"), ("alone",)])
def test_a_function_of_mine_at_each_level(
    words: tuple[str, ...], program: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("libtpu", reason="the TPU compiler exists for x86-64 Linux only")
    function, *more = words
    answer = printed_by_name(capsys, "hlo", f"{program}:{function}", *more, "--chip", "v5e", "--top", "100")
    assert "dot_general" in text(answer["jaxpr"])
    assert "stablehlo.tanh" in text(answer["stablehlo"])
    assert text(answer["hlo"]).startswith(f"HloModule jit_{function}, is_scheduled=true")
    assert "FileNames" not in text(answer["hlo"])
    assert answer["hlo"]["title"] == "HLO for TPU v5 lite"
    if function == "step":
        assert max(row["flops"] or 0 for row in answer["operations"]["rows"]) >= 2 * 256 * 512 * 128


@pytest.mark.long
def test_a_function_that_asks_for_its_device_is_told_of_the_chip(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "asking.py"
    path.write_text(ASKING)
    tables = printed_by_name(capsys, "hlo", f"{path}:scaled", "--arg", "f32[8,128]", "--chip", "v6e")
    # 128 MiB of VMEM, whatever machine compiles.
    assert "134217728.0" in text(tables["jaxpr"])


@pytest.mark.long
def test_what_is_wrong_with_a_function_is_one_sentence(program: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for words, sentence in (
        ((f"{program}:nothing",), "callable there: alone, step [no-function]"),
        (
            (f"{program}:step", "--arg", "zz[1]"),
            "expected --arg such as f32[8,128], got 'zz[1]': JAX has no type zz [bad-argument]",
        ),
        (("f32[3,5]", "--arg", "f32[1]"), "--arg is for a function"),
    ):
        assert main(["hlo", *words]) in (2, 4)
        assert sentence in capsys.readouterr().err


def test_the_text_of_a_level_is_cut_with_a_word() -> None:
    table = level_table("jaxpr", "jaxpr", "\n".join(map(str, range(25))), 2)
    assert len(table.rows) == 20
    assert table.notes == ("20 of 25 lines are shown (--top).",)
    assert level_table("jaxpr", "jaxpr", "a\nb", 1).notes == ()


@pytest.mark.parametrize("case", [SMALL, "v6e-causal-4096"])
def test_the_inside_of_a_kernel_adds_up_to_its_cycles(case: str, tmp_path: Path) -> None:
    breakdown = present(run(case, tmp_path).breakdown)
    table = kernel_table(breakdown, case.split("-")[0])
    kinds = {row[0]: row for row in table.rows}
    assert {MATMULS, EXPONENTIALS, REDUCTIONS, COPIES} <= kinds.keys()
    assert sum(row[-1] for row in table.rows) == pytest.approx(1.0)  # type: ignore[misc]
    # The stall for a unit is in the row of the unit's purpose.
    stalls = sum(part.cycles for part in breakdown.parts if part.kind == "unit stall" and part.name.startswith("MXU"))
    assert kinds[MATMULS][3] == stalls
    assert kinds[EXPONENTIALS][1] == sum(line.exponentials for line in breakdown.lines)


def test_elements_within_tiles_are_drawn() -> None:
    table = present(placement_table(shapes.array("bf16[4,8]{1,0:T(2,4)(2,1)}")))
    assert [row[1:5] for row in table.rows] == [
        ("0", "2", "4", "6"),
        ("1", "3", "5", "7"),
        ("16", "18", "20", "22"),
        ("17", "19", "21", "23"),
    ]
    places = {cell for row in table.rows for cell in row[1:]}
    assert len(places) == 32
    # XLA's own example.
    assert shapes.array("f32[3,5]{1,0:T(2,2)}").place((2, 3)) == 17
    assert shapes.array("f32[3,5]{0,1}").place((2, 3)) == 11


@pytest.mark.parametrize("large", ["f32[32,8]{1,0:T(8,128)}", "f32[8]{0}", "f32[4,4]", "f32[4,4]{1,0:T(*,4)}"])
def test_other_arrays_are_not_drawn(large: str) -> None:
    assert placement_table(shapes.array(large)) is None


COPY = "%copy.63 = f32[1024,128]{1,0:T(8,128)} copy(f32[1024,128]{1,0:T(8,128)} %get-tuple-element.5)"


def test_a_copy_of_a_running_value_is_known_by_its_size(capsys: pytest.CaptureFixture[str]) -> None:
    answer = printed_by_name(capsys, "hlo", COPY, "--steps", "512")
    (copy,) = answer["copies"]["rows"]
    # 512 KiB read and written in each of 512 steps.
    assert (copy["runs"], copy["bytes_per_step"], copy["bytes_per_run"]) == (512, 2 << 19, 512 * (2 << 19))
    causes = {row["fact"]: row["reading"] for row in answer["copy_causes"]["rows"]}
    assert "running sum" in causes["cause"]
    assert "scratch" in causes["remedy"]
    assert printed_by_name(capsys, "hlo", COPY)["copies"]["rows"][0]["runs"] == 1
    other = printed_by_name(capsys, "hlo", COPY.replace("f32", "bf16").replace("(8,128)", "(8,128)(2,1)"))
    assert "not known" in other["copy_causes"]["rows"][0]["reading"]
