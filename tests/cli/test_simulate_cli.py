"""`simulate DIR --chip C` from the command line: a wrong chip, wrong words, and the answers in JSON."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from command_line import Shell
from schedule_examples import NEWEST, unpack

from harness.hardware import chip
from harness.judge.simulate.channel import SPARSE_CORE
from harness.verbs import simulate

pytestmark = pytest.mark.long


def refused(shell: Shell, *arguments: object) -> str:
    output = shell.run("simulate", *arguments, code=(2, 4))
    assert output.out == ""
    return output.err


def test_a_schedule_of_another_chip_is_refused_by_its_matrix_units(tmp_path: Path, shell: Shell) -> None:
    folder = unpack(NEWEST, "v6e-128x256-2048", tmp_path)
    complaint = refused(shell, folder, "--chip", "v5e")
    assert "other-chip" in complaint
    assert "v6e or v7x" in complaint
    shell.run("simulate", folder, "--chip", "v6e")


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
def test_bad_words_are_refused_in_one_form(words: list[str], kind: str, tmp_path: Path, shell: Shell) -> None:
    unpack(NEWEST, "v5e-128x256-2048", tmp_path)
    np.save(tmp_path / "table.npy", np.zeros(4, np.int32))
    complaint = refused(shell, *(word.format(tmp_path) for word in words))
    assert complaint.startswith("ratchet: ")
    assert f"[{kind}]" in complaint


def test_contents_of_an_operand_give_a_table_driven_program_a_latency_a_timeline_and_what_would_help(
    tmp_path: Path, shell: Shell
) -> None:
    folder = unpack(NEWEST, "v5e-counted-1024", tmp_path / "program")
    np.save(tmp_path / "counts.npy", np.array([3, 0, 1, 2, 0, 4, 5, 1], np.int32))
    words = [folder, "--chip", "v5e"]
    with_operand = [*words, "--operand", f"given_1_.1={tmp_path / 'counts.npy'}"]
    assert shell.document("simulate", *words, code=1)["total_seconds"] is None
    simulated = shell.document("simulate", *with_operand)
    shell.run("whatif", *words, "-C", tmp_path, code=4)
    assert shell.document("whatif", *with_operand, "-C", tmp_path)["seconds"] == simulated["total_seconds"]
    shell.run("timeline", *with_operand, "-C", tmp_path)
    assert list((tmp_path / "profile_data").glob("*.trace.json.gz"))
    complaint = shell.complaint("timeline", "3", "-C", tmp_path, *with_operand[3:], code=2)
    assert "a contest states the contents of its tables in prepare.py" in complaint


def test_the_json_says_what_the_text_says(tmp_path: Path, shell: Shell) -> None:
    folder = unpack(NEWEST, "v5e-1024x512-2048", tmp_path)
    answer = shell.document("simulate", folder, "--chip", "v5e")
    assert {"chip", "total_seconds", "plus_minus_seconds", "ops", "unknown"} <= set(answer)
    assert answer["chip"] == "v5e"
    assert answer["unknown"] == []
    parts = answer["cycles"]
    assert parts["bundles"] + parts["dma_wait"] + parts["unit_stall"] + parts["launch"] == parts["total"]
    assert all(set(op) == {"name", "cycles", "seconds"} for op in answer["ops"])
    assert sum(op["seconds"] for op in answer["ops"]) <= answer["total_seconds"]


def test_operands_that_the_runtime_fetches_before_the_program_are_in_the_time_and_not_in_a_profile(
    tmp_path: Path, shell: Shell
) -> None:
    """XLA's own product of two bfloat16 matrices of 1024 on a v6e."""
    folder = unpack("libtpu-0.0.42.1", "v6e-prefetched-1024", tmp_path / "prefetched")
    simulated = shell.document("simulate", folder, "--chip", "v6e")
    # The transfer that begins before the program does: an operand of 2 MiB.
    fetch = (1 << 21) / chip("v6e").hbm_bytes_per_second
    assert simulated["total_seconds"] - simulated["profile_seconds"] > fetch
    assert "a profile of the chip shows" in shell.printed("simulate", folder, "--chip", "v6e")
    folder = unpack("libtpu-0.0.42.1", "v6e-128x256-2048", tmp_path / "own")
    assert shell.document("simulate", folder, "--chip", "v6e")["profile_seconds"] is None


def test_a_folder_above_the_schedules_is_told_where_they_are(tmp_path: Path, shell: Shell) -> None:
    folder = unpack(NEWEST, "v5e-128x256-2048", tmp_path / "attempt" / "dumps")
    assert f"; use {folder}" in refused(shell, folder.parent, "--chip", "v5e")


def test_a_function_that_xla_hands_to_the_sparse_core_has_a_time_on_the_tensorcore(
    tmp_path: Path, shell: Shell
) -> None:
    (tmp_path / "counted.py").write_text(
        "import jax.numpy as jnp\n\n\ndef counted(tiles):\n"
        "    return jnp.zeros(64, jnp.float32).at[tiles].add(1.0).astype(jnp.int32)\n"
    )
    words = ["simulate", f"{tmp_path}/counted.py:counted", "--chip", "v6e", "--arg", "s32[4096]"]
    handed = shell.document(*words, code=1)
    assert "--on-tensorcore" in handed["unknown"][0]
    assert "(its part: scatter-add at counted.py line 5)" in handed["unknown"][0]
    least, most = handed["range_seconds"]
    assert 0 < least < most
    kept = shell.document(*words, "--on-tensorcore")
    assert kept["range_seconds"] is None
    assert kept["total_seconds"] > least
    assert "--on-tensorcore" in shell.complaint("simulate", tmp_path, "--chip", "v6e", "--on-tensorcore", code=2)


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


def simulated(folder: Path, shell: Shell, function: str, *arguments: str, asked: str, setting: str = "") -> Any:
    """The document of a function of ASKS."""
    pytest.importorskip("libtpu", reason="the TPU compiler exists for x86-64 Linux only")
    program = folder / "asks.py"
    program.write_text(ASKS.format(asked=asked, setting=setting), encoding="utf-8")
    words = [word for argument in arguments for word in ("--arg", argument)]
    return shell.document("simulate", f"{program}:{function}", "--chip", "v5e", *words)


def test_a_program_asks_for_its_device_by_any_name_and_when_it_is_imported(tmp_path: Path, shell: Shell) -> None:
    names = ("jax.devices()[0]", "devices()[0]", "local_devices()[0]")
    when_imported = f"assert {' == '.join(f'{name}.device_kind' for name in names)} == 'TPU v5 lite'"
    when_traced = f"[device for device in ({', '.join(names)}) if device.device_kind][-1]"
    # A type may be named as a jaxpr names it, too.
    answer = simulated(tmp_path, shell, "doubled", "i32[2048,512]", asked=when_traced, setting=when_imported)
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
    setting: str, tmp_path: Path, shell: Shell
) -> None:
    answer = simulated(tmp_path, shell, "doubled", "f32[2048,512]", asked="jax.devices()[0]", setting=setting)
    assert answer["total_seconds"]


def test_arguments_that_a_jitted_function_gives_away_are_not_copied(tmp_path: Path, shell: Shell) -> None:
    arguments = ("bf16[32768,1024]", "bf16[1024]")
    answer = simulated(tmp_path, shell, "given_away", *arguments, asked="jax.devices()[0]")
    assert answer["hbm_written_bytes"] < 1 << 20


def test_contents_of_an_argument_are_given_by_its_name(tmp_path: Path, shell: Shell) -> None:
    pytest.importorskip("libtpu", reason="the TPU compiler exists for x86-64 Linux only")
    program = tmp_path / "asks.py"
    program.write_text(ASKS.format(asked="jax.devices()[0]", setting=""), encoding="utf-8")
    words = ["simulate", f"{program}:picked", "--chip", "v5e", "--arg", "f32[1024,512]", "--arg", "i32[8]"]
    assert "--operand NAME=FILE.npy" in " ".join(shell.printed(*words, code=1).split())
    np.save(tmp_path / "table.npy", np.arange(8, dtype=np.int32))
    shell.run(*words, "--operand", f"table={tmp_path / 'table.npy'}")


REFUSED = """\
import jax
import jax.numpy as jnp
from jax.experimental import pallas as pl

def called(kernel, x, shape=None, **options):
    return pl.pallas_call(kernel, out_shape=jax.ShapeDtypeStruct(shape or x.shape, x.dtype), **options)(x)

def double(x_ref, o_ref):
    o_ref[...] = x_ref[...] * 2

def too_large(x):
    return called(double, x)

def odd_block(x):
    block = pl.BlockSpec((5, 7), lambda i: (i, 0))
    return called(double, x, grid=(x.shape[0] // 5,), in_specs=[block], out_specs=block)

def in_turned(x_ref, o_ref):
    o_ref[...] = x_ref[...].reshape(43, 72)

def turned(x):
    return called(in_turned, x, (43, 72))
"""


@pytest.mark.parametrize(
    ("verb", "function", "argument", "kind", "words"),
    [
        ("simulate", "too_large", "f32[8192,4096]", "vmem-exceeded", "Ran out of memory in memory space vmem"),
        ("hlo", "odd_block", "f32[15,14]", "compile-error", "at line 6: ValueError: The Pallas TPU lowering"),
        ("simulate", "turned", "f32[24,129]", "compile-error", "Mosaic failed to compile TPU kernel"),
    ],
)
def test_an_error_of_the_compiler_is_its_own_words_without_a_traceback(
    verb: str, function: str, argument: str, kind: str, words: str, tmp_path: Path, shell: Shell
) -> None:
    pytest.importorskip("libtpu", reason="the TPU compiler exists for x86-64 Linux only")
    (tmp_path / "mine.py").write_text(REFUSED, encoding="utf-8")
    program = f"{tmp_path / 'mine.py'}:{function}"
    complaint = shell.run(verb, program, "--chip", "v5e", "--arg", argument, code=4).err
    (first,) = (line for line in complaint.splitlines() if line.startswith("ratchet: mine.py: does not compile"))
    assert first.endswith(f"[{kind}]")
    assert words in first
    assert not any(word in complaint for word in ("Traceback", 'File "', "type.googleapis.com"))


def test_who_has_refused_the_sparsecore_already_is_not_told_to_refuse_it() -> None:
    assert "use simulate" in simulate._with_offer(SPARSE_CORE, ["gather"], False)
    assert "ignores --on-tensorcore" in simulate._with_offer(SPARSE_CORE, ["gather"], True)
