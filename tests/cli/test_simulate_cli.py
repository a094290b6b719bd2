"""`simulate DIR --chip C` from the command line: a wrong chip, wrong words, and the answers in JSON."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from schedule_examples import NEWEST, unpack

from harness.hardware import chip
from harness.shell.main import main

pytestmark = pytest.mark.long


def refused(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> str:
    code = main(["simulate", *arguments])
    printed = capsys.readouterr()
    assert printed.out == ""
    assert code in (2, 4)
    return printed.err


def document(capsys: pytest.CaptureFixture[str], *words: str, code: int = 0) -> Any:
    """The document that the command prints."""
    capsys.readouterr()
    assert main([*words, "--json"]) == code
    return json.loads(capsys.readouterr().out)


def test_a_schedule_of_another_chip_is_refused_by_its_matrix_units(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = str(unpack(NEWEST, "v6e-128x256-2048", tmp_path))
    complaint = refused([folder, "--chip", "v5e"], capsys)
    assert "other-chip" in complaint
    assert "v6e or v7x" in complaint
    assert main(["simulate", folder, "--chip", "v6e"]) == 0


@pytest.mark.parametrize(
    ("words", "kind"),
    [
        (["{}", "--chip", "v9"], "unknown-chip"),
        (["{}"], "usage"),
        (["{}/nothing", "--chip", "v5e"], "no-dump"),
        (["{}", "--chip", "v5e", "--operand", "table"], "bad-operand"),
        (["{}", "--chip", "v5e", "--operand", "nobody={}/table.npy"], "bad-operand"),
    ],
)
def test_bad_words_are_refused_in_one_form(
    words: list[str], kind: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    unpack(NEWEST, "v5e-128x256-2048", tmp_path)
    np.save(tmp_path / "table.npy", np.zeros(4, np.int32))
    complaint = refused([word.format(tmp_path) for word in words], capsys)
    assert complaint.startswith("ratchet: ")
    assert f"[{kind}]" in complaint


def test_contents_of_an_operand_give_a_table_driven_program_a_latency_a_timeline_and_what_would_help(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = str(unpack(NEWEST, "v5e-counted-1024", tmp_path / "program"))
    np.save(tmp_path / "counts.npy", np.array([3, 0, 1, 2, 0, 4, 5, 1], np.int32))
    words = [folder, "--chip", "v5e"]
    with_operand = [*words, "--operand", f"given_1_.1={tmp_path / 'counts.npy'}"]
    assert document(capsys, "simulate", *words, code=1)["total_seconds"] is None
    simulated = document(capsys, "simulate", *with_operand)
    assert main(["whatif", *words, "-C", str(tmp_path)]) == 4
    assert document(capsys, "whatif", *with_operand, "-C", str(tmp_path))["seconds"] == simulated["total_seconds"]
    assert main(["timeline", *with_operand, "-C", str(tmp_path)]) == 0
    assert list((tmp_path / "profile_data").glob("*.trace.json.gz"))
    capsys.readouterr()
    assert main(["timeline", "3", "-C", str(tmp_path), *with_operand[3:]]) == 2
    assert "a contest states the contents of its tables in prepare.py" in capsys.readouterr().err


def test_the_json_says_what_the_text_says(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = str(unpack(NEWEST, "v5e-1024x512-2048", tmp_path))
    answer = document(capsys, "simulate", folder, "--chip", "v5e")
    assert {"chip", "total_seconds", "plus_minus_seconds", "ops", "unknown"} <= set(answer)
    assert answer["chip"] == "v5e"
    assert answer["unknown"] == []
    parts = answer["cycles"]
    assert parts["bundles"] + parts["dma_wait"] + parts["unit_stall"] + parts["launch"] == parts["total"]
    assert all(set(op) == {"name", "cycles", "seconds"} for op in answer["ops"])
    assert sum(op["seconds"] for op in answer["ops"]) <= answer["total_seconds"]


def test_operands_that_the_runtime_fetches_before_the_program_are_in_the_time_and_not_in_a_profile(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """XLA's own product of two bfloat16 matrices of 1024 on a v6e."""
    folder = str(unpack("libtpu-0.0.42.1", "v6e-prefetched-1024", tmp_path / "prefetched"))
    simulated = document(capsys, "simulate", folder, "--chip", "v6e")
    # The transfer that begins before the program does: an operand of 2 MiB.
    fetch = (1 << 21) / chip("v6e").hbm_bytes_per_second
    assert simulated["total_seconds"] - simulated["profile_seconds"] > fetch
    assert main(["simulate", folder, "--chip", "v6e"]) == 0
    assert "a profile of the chip shows" in capsys.readouterr().out
    folder = str(unpack("libtpu-0.0.42.1", "v6e-128x256-2048", tmp_path / "own"))
    assert document(capsys, "simulate", folder, "--chip", "v6e")["profile_seconds"] is None


def test_a_folder_above_the_schedules_is_told_where_they_are(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = unpack(NEWEST, "v5e-128x256-2048", tmp_path / "attempt" / "dumps")
    assert f"; use {folder}" in refused([str(folder.parent), "--chip", "v5e"], capsys)


def test_a_function_that_xla_hands_to_the_sparse_core_has_a_time_on_the_tensorcore(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "counted.py").write_text(
        "import jax.numpy as jnp\n\n\ndef counted(tiles):\n"
        "    return jnp.zeros(64, jnp.float32).at[tiles].add(1.0).astype(jnp.int32)\n"
    )
    words = ["simulate", f"{tmp_path}/counted.py:counted", "--chip", "v6e", "--arg", "s32[4096]"]
    handed = document(capsys, *words, code=1)
    assert "--on-tensorcore" in handed["unknown"][0]
    assert "(its part: scatter-add at counted.py line 5)" in handed["unknown"][0]
    least, most = handed["range_seconds"]
    assert 0 < least < most
    kept = document(capsys, *words, "--on-tensorcore")
    assert kept["range_seconds"] is None
    assert kept["total_seconds"] > least
    assert main(["simulate", str(tmp_path), "--chip", "v6e", "--on-tensorcore"]) == 2
    assert "--on-tensorcore" in capsys.readouterr().err


ASKS = """
import os
import jax
import jax.numpy as jnp
from jax import devices, local_devices
from jax.experimental import pallas as pl
from jax.experimental.pallas import tpu as pltpu

ON_TPU = jax.default_backend() == "tpu"
{setting}

def double(x_ref, o_ref):
    o_ref[...] = x_ref[...] * 2

def doubled(x):
    rows = {{"TPU v5 lite": 512}}.get({asked}.device_kind, 8)
    block = pl.BlockSpec((rows, 512), lambda i: (i, 0))
    return pl.pallas_call(double, out_shape=jax.ShapeDtypeStruct(x.shape, x.dtype), grid=(x.shape[0] // rows,),
                          in_specs=[block], out_specs=block, interpret=not ON_TPU)(x)

def copied(table_ref, x_ref, o_ref):
    o_ref[...] = x_ref[...]

def picked(x, table):
    spec = pltpu.PrefetchScalarGridSpec(num_scalar_prefetch=1, grid=(8,),
        in_specs=[pl.BlockSpec((128, 512), lambda i, table: (table[i], 0))],
        out_specs=pl.BlockSpec((128, 512), lambda i, table: (i, 0)))
    return pl.pallas_call(copied, grid_spec=spec, out_shape=jax.ShapeDtypeStruct(x.shape, x.dtype))(table, x)

given_away = jax.jit(lambda cache, row: cache.at[0].set(row), donate_argnames="cache")
"""


def simulated(
    folder: Path, capsys: pytest.CaptureFixture[str], function: str, *arguments: str, asked: str, setting: str = ""
) -> Any:
    """The document of a function of ASKS."""
    pytest.importorskip("libtpu", reason="the TPU compiler exists for x86-64 Linux only")
    program = folder / "asks.py"
    program.write_text(ASKS.format(asked=asked, setting=setting), encoding="utf-8")
    words = [word for argument in arguments for word in ("--arg", argument)]
    return document(capsys, "simulate", f"{program}:{function}", "--chip", "v5e", *words)


def test_a_program_asks_for_its_device_by_any_name_and_when_it_is_imported(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    names = ("jax.devices()[0]", "devices()[0]", "local_devices()[0]")
    when_imported = f"assert {' == '.join(f'{name}.device_kind' for name in names)} == 'TPU v5 lite'"
    when_traced = f"[device for device in ({', '.join(names)}) if device.device_kind][-1]"
    # A type may be named as a jaxpr names it, too.
    answer = simulated(tmp_path, capsys, "doubled", "i32[2048,512]", asked=when_traced, setting=when_imported)
    # Four steps of 512 rows: a copy in and out of each.
    assert answer["dma_transfers"] == 8


FLAGS = '"LIBTPU_INIT_ARGS", "--xla_tpu_scoped_vmem_limit_kib=32768"'


@pytest.mark.parametrize(
    "setting",
    [
        f"os.environ.update([({FLAGS})]), os.putenv({FLAGS})",
        # It uses a device instead of asking about it.
        "TABLE = jax.device_put(jnp.arange(8.0), jax.devices()[0])",
    ],
)
def test_a_program_that_sets_flags_or_uses_a_device_when_it_is_imported_is_simulated(
    setting: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    answer = simulated(tmp_path, capsys, "doubled", "f32[2048,512]", asked="jax.devices()[0]", setting=setting)
    assert answer["total_seconds"]


def test_arguments_that_a_jitted_function_gives_away_are_not_copied(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    arguments = ("bf16[32768,1024]", "bf16[1024]")
    answer = simulated(tmp_path, capsys, "given_away", *arguments, asked="jax.devices()[0]")
    assert answer["hbm_written_bytes"] < 1 << 20


def test_contents_of_an_argument_are_given_by_its_name(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("libtpu", reason="the TPU compiler exists for x86-64 Linux only")
    program = tmp_path / "asks.py"
    program.write_text(ASKS.format(asked="jax.devices()[0]", setting=""), encoding="utf-8")
    words = ["simulate", f"{program}:picked", "--chip", "v5e", "--arg", "f32[1024,512]", "--arg", "i32[8]"]
    assert main(words) == 1
    assert "--operand NAME=FILE.npy" in " ".join(capsys.readouterr().out.split())
    np.save(tmp_path / "table.npy", np.arange(8, dtype=np.int32))
    assert main([*words, "--operand", f"table={tmp_path / 'table.npy'}"]) == 0
