"""The doctor: the machine in lines, and programs that recompile, transfer and multiply widely, run for real."""

import json
import os
import runpy
import subprocess
import sys
import traceback
from dataclasses import replace
from pathlib import Path
from typing import Any

import jax
import msgspec
import pytest
from analyses import printed_by_name, rows
from capture_examples import four_devices_run
from loop_fixtures import PROJECT, git, identify

from harness.hardware import chip
from harness.ledger import lock
from harness.loop import machine_check
from harness.loop.scaffold import scaffold
from harness.records import Environment, Isolation
from harness.records.doctor import Compilation, Dispatched, Dots, Line, Phase, ProgramRun, Transfers
from harness.shell.main import main
from harness.verbs.parts import doctor
from harness.workbench.capture import products
from harness.workbench.capture.program_run import run_program, second_call
from harness.workbench.capture.programs import transfer_sizes
from harness.workbench.doctor import jax_errors
from harness.workbench.doctor.program import InUse, checklist

pytestmark = pytest.mark.long

RECOMPILING = '''
"""Compiles again and again, in each of the ways that a program can."""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np


@jax.jit
def product(x, w):
    return x @ w


@partial(jax.jit, static_argnums=1)
def scaled(x, factor):
    return x * factor


WEIGHTS = np.ones((256, 256), np.float32)


def step():
    for rows in (4, 5, 6):
        y = product(np.ones((rows, 256), np.float32), WEIGHTS)
        scaled(WEIGHTS, rows)
    product(np.ones((4, 256), np.float32), WEIGHTS.astype(jnp.bfloat16))
    return jax.jit(lambda a: a + 1)(y)
'''
CLEAN = """
import jax
import jax.numpy as jnp


@jax.jit
def product(x, w):
    return jnp.matmul(x, w, preferred_element_type=jnp.float32)


X = jnp.ones((16, 64), jnp.bfloat16)
W = jnp.ones((64, 16), jnp.bfloat16)


def step():
    return product(X, W)


if __name__ == "__main__":
    step()
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("programs")
    (made / "recompiling.py").write_text(RECOMPILING)
    (made / "clean.py").write_text(CLEAN)
    return made


@pytest.fixture(scope="module", autouse=True)
def _on_the_cpu() -> Any:
    with pytest.MonkeyPatch.context() as patch:
        for name in [name for name in os.environ if name.startswith(("JAX_", "XLA_", "LIBTPU_"))]:
            patch.delenv(name)
        patch.setenv("JAX_PLATFORMS", "cpu")
        yield


@pytest.fixture(scope="module")
def recompiling(folder: Path) -> ProgramRun:
    return run_program(f"{folder / 'recompiling.py'}:step", 120.0)


def findings(run: ProgramRun, rule: str = "") -> list[dict[str, Any]]:
    """The findings of a rule, or of all rules."""
    return [finding for finding in rows(checklist(run, "x.py")[0]) if rule in ("", finding["rule"])]


# --- a program ----------------------------------------------------------------------------------


def test_compilations_are_counted_and_the_argument_that_caused_each_is_named(recompiling: ProgramRun) -> None:
    first_call = [(c.name, c.arguments, c.cause) for c in recompiling.compilations if c.phase == "first call"]
    assert first_call == [
        ("jit(product)", (), "first call"),
        ("jit(scaled)", (), "first call"),
        ("jit(product)", ("x",), "x is float32[5,256], was float32[4,256]"),
        ("jit(scaled)", ("factor",), "factor is int 5, was int 4"),
        ("jit(product)", ("x",), "x is float32[6,256], was float32[5,256]"),
        ("jit(scaled)", ("factor",), "factor is int 6, was int 5"),
        ("jit(product)", ("w",), "w is bfloat16[256,256], was float32[256,256]"),
        ("jit(<lambda>)", (), "first call"),
    ]


def test_only_the_function_that_is_made_anew_compiles_in_the_second_call(recompiling: ProgramRun) -> None:
    again = [c for c in recompiling.compilations if c.phase == "second call"]
    assert [(c.name, c.is_redefinition) for c in again] == [("jit(<lambda>)", True)]
    assert all("recompiling.py:" in c.place for c in recompiling.compilations)


def test_findings_name_the_argument_and_how_often(recompiling: ProgramRun) -> None:
    again = findings(recompiling, "recompiled")
    assert "compiled 2 more times" in again[0]["observation"]
    for finding, name, argument, remedy in zip(
        again, ("product", "scaled", "product"), ("x", "factor", "w"), ("pad", "static", "one type"), strict=True
    ):
        assert finding["subject"] == f"jit({name})"
        assert f"because {argument} changed" in finding["observation"]
        assert remedy in finding["remedy"]
    assert "jit(<lambda>)" in [finding["subject"] for finding in findings(recompiling, "jit-in-loop")]
    wide = {finding["subject"]: finding["observation"] for finding in findings(recompiling, "wide-operands")}
    assert wide["jit_product"].startswith("4 matrix products of f32 and f32")


def test_transfers_are_counted_with_their_bytes(recompiling: ProgramRun) -> None:
    """x of 4, 5, 6 and 4 rows, the float32 weights six times, the bfloat16 ones once."""
    sizes = (4 + 5 + 6 + 4) * 256 * 4 + 6 * 256 * 256 * 4 + 256 * 256 * 2
    first, second = recompiling.transfers
    assert (first.direction, first.phase, second.phase) == ("host-to-device", "first call", "second call")
    assert first.count == second.count == 4 + 6 + 1
    assert (first.num_bytes, first.unsized) == (sizes, 0)
    # Compiled functions take a fast path, where jax 0.10 and 0.12 do not say sizes.
    assert (second.num_bytes, second.unsized) == (0, 11)
    (finding_there,) = findings(recompiling, "transfers")
    assert f"the first call transferred {sizes:,} bytes" in finding_there["observation"]


def test_a_program_that_does_it_right_compiles_once_and_yields_nothing(folder: Path) -> None:
    run = run_program(f"{folder / 'clean.py'}:step", 120.0)
    assert [c.name for c in run.compilations if c.phase != "import"] == ["jit(product)"]
    assert [c.phase for c in run.compilations if c.name == "jit(product)"] == ["first call"]
    assert [t for t in run.transfers if t.phase != "import"] == []
    # The time that it waits for input depends on the machine's other work.
    assert [finding for finding in findings(run) if finding["rule"] != "input"] == []


def test_a_file_is_run_as_a_main_program_and_json_says_what_is_unknown_here(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    tables = printed_by_name(capsys, "doctor", str(folder / "clean.py"))
    assert {table["origin"] for table in tables.values()} == {"measured cpu"}
    measures = {row["measure"]: row for row in tables["measures"]["rows"]}
    assert measures["run"]["seconds"] > 0
    assert "second call" not in measures
    for name in ("MXU in use", "HBM in use", "input"):
        assert measures[name]["fraction"] is None
        assert measures[name]["reading"].startswith("unknown")
    assert "jit(product)" in [row["name"] for row in tables["compilations"]["rows"]]
    (compilation,) = [row for row in tables["findings"]["rows"] if row["rule"] == "compilation"]
    assert "over 5%" in compilation["observation"]
    assert "JAX_COMPILATION_CACHE_DIR" in compilation["remedy"]


def test_settings_that_spoil_a_program_are_found(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("JAX_PLATFORMS")
    monkeypatch.setenv("JAX_DEFAULT_MATMUL_PRECISION", "highest")
    monkeypatch.setenv("JAX_DEBUG_NANS", "1")
    monkeypatch.setenv("TPU_SKIP_MDS_QUERY", "1")
    run = run_program(f"{folder / 'clean.py'}:step", 120.0)
    assert {f["rule"] for f in findings(run)} == {"precision", "debugging", "no-platform"}


@pytest.mark.parametrize(
    ("module", "code", "sentence"),
    [
        ("clean.py:other", 4, "expected a function other"),
        ("nowhere.py:step", 2, "expected MODULE.py or MODULE.py:FUNCTION"),
        ("raising.py:step", 4, "ValueError: bad weather"),
    ],
)
def test_a_program_that_cannot_run_is_told(
    folder: Path, module: str, code: int, sentence: str, capsys: pytest.CaptureFixture[str]
) -> None:
    (folder / "raising.py").write_text('def step():\n    raise ValueError("bad weather")\n')
    assert main(["doctor", str(folder / module), "--quiet"]) == code
    assert sentence in capsys.readouterr().err


EXAMPLE = Path(PROJECT, "examples", "checklist", "train.py")
# Code, and words of the doctor about it; each is traced for real.
TRACED = {
    "truth": ("return x if x.sum() > 0 else -x", "jnp.where or jax.lax.cond", "TracerBoolConversionError"),
    "mask": ("return x[x > 0]", "keep the size", "NonConcreteBooleanIndexError"),
    "index": ("return [1, 2, 3][x.sum().astype(int)]", "jax.lax.fori_loop", "TracerIntegerConversionError"),
    "numpy": ("return np.sin(x)", "call the jax.numpy function", "TracerArrayConversionError"),
    "shape": ("return float(x.sum())", "static_argnums, take sizes from x.shape", "ConcretizationTypeError"),
}


@pytest.mark.slow
def test_the_faults_of_the_example_are_found_and_gone_when_mended() -> None:
    run = run_program(f"{EXAMPLE}:step", 120.0)
    counts = {each.name: each.count for each in run.dispatched}
    assert counts["multiply"] == counts["add"] == 3
    assert counts["product"] == 1
    sizes = {(dots.batch, dots.rows, dots.summed, dots.columns) for dots in run.dots if dots.flops > 1e7}
    assert sizes == {(1, 8, 2048, 2048), (8, 512, 64, 512)}
    by_rule = {finding["rule"]: finding for finding in findings(run)}
    assert set(by_rule) == {"outside-jit", "small-batch", "layout", "input"}
    assert "operations one by one" in by_rule["outside-jit"]["observation"]
    assert "8 rows for 2048 x 2048 weights: under 241 rows" in by_rule["small-batch"]["observation"]
    assert (
        "the weights fill 50% of the 128 x 128 matrix units of a v5e: summed size 64"
        in by_rule["layout"]["observation"]
    )
    assert run.own_seconds is not None
    assert 0 < run.own_seconds <= run.seconds["second call"]
    _, measures, _ = checklist(run, "x.py")
    (row,) = [row for row in measures.rows if row[0] == "input"]
    assert row[-1] == "over the target"
    # On a shared machine, a call may wait for its turn.
    assert {f["rule"] for f in findings(run_program(f"{EXAMPLE}:mended", 120.0))} <= {"input"}


def made(**changes: Any) -> ProgramRun:
    """A run without faults, in which nothing else is known."""
    plain = ProgramRun(
        platform="tpu",
        device_kind="TPU v6 lite",
        devices=1,
        seconds={"first call": 1.0, "second call": 0.1},
        lowering_seconds=0.0,
        compilations=(),
        transfers=(),
        dots=(),
        configuration={"jax_platforms": "tpu"},
    )
    return replace(plain, **changes)


def compiled(name: str, phase: Phase, seconds: float, cause: str = "an operation outside any jit") -> Compilation:
    return Compilation(name=f"jit({name})", place="", phase=phase, seconds=seconds, cause=cause)


def dots(rows: int, summed: int, columns: int, batch: int = 1) -> Dots:
    return Dots(
        module="m",
        left="bf16",
        right="bf16",
        result="f32",
        precision="DEFAULT",
        count=1,
        batch=batch,
        rows=rows,
        summed=summed,
        columns=columns,
    )


def test_operations_by_themselves_are_counted_from_the_fifth_on() -> None:
    alone = (compiled("add", "first call", 0.0),)

    def rules_of(add: int) -> list[str]:
        handed = (Dispatched(name="add", count=add, seconds=0.01), Dispatched(name="f", count=99, seconds=0.01))
        return [f["rule"] for f in findings(made(compilations=alone, dispatched=handed))]

    assert rules_of(4) == []
    assert rules_of(5) == ["outside-jit"]


def test_compilation_is_held_against_five_percent() -> None:
    again = compiled("f", "second call", 0.006, "the same arguments as before")
    (finding_there,) = findings(made(compilations=(again,)))
    assert (finding_there["rule"], finding_there["subject"]) == ("compilation", "6% of the second call")
    assert findings(made(compilations=(replace(again, seconds=0.004),))) == []
    main_run = made(seconds={"run": 10.0}, compilations=(compiled("f", "run", 0.5, "first call"),))
    assert [f["subject"] for f in findings(main_run)] == ["5% of the run"]


def test_waiting_for_the_host_is_held_against_ten_percent(tmp_path: Path) -> None:
    assert [f["rule"] for f in findings(made(own_seconds=0.011))] == ["input"]
    assert findings(made(own_seconds=0.009)) == []
    idle = doctor._in_use(str(four_devices_run(tmp_path)), tmp_path).idle
    # A step takes 150 us, in which the devices run for 106 us.
    assert idle == pytest.approx((150 - 106) / 150, abs=0.02)
    assert [row[1] for row in checklist(made(), "x.py", InUse(idle=idle))[0].rows] == ["input"]
    assert checklist(made(own_seconds=0.09), "x.py", InUse(idle=0.09))[0].rows == ()


@pytest.mark.parametrize(
    ("call", "own_seconds", "platform", "reading"),
    [
        (0.1, 0.009, "tpu", "under the target"),
        (0.1, 0.011, "tpu", "over the target"),
        # Over a tenth of the call: 0.9 ms is too short for a clock, 1.1 ms is not; on a CPU, with longer times.
        (0.006, 0.0009, "tpu", "too short to tell"),
        (0.006, 0.0011, "tpu", "over the target"),
        (0.4, 0.049, "cpu", "too short to tell"),
        (0.06, 0.051, "cpu", "over the target"),
    ],
)
def test_the_reading_of_the_input_says_what_the_finding_says(
    call: float, own_seconds: float, platform: str, reading: str
) -> None:
    run = made(seconds={"first call": 1.0, "second call": call}, own_seconds=own_seconds, platform=platform)
    _, measures, _ = checklist(run, "x.py")
    assert [row[-1] for row in measures.rows if row[0] == "input"] == [reading]
    assert [f["rule"] for f in findings(run)] == (["input"] if reading == "over the target" else [])
    assert any("too short to tell" in note for note in measures.notes) == (reading == "too short to tell")


def test_batches_and_sizes_are_those_of_the_chip_that_ran() -> None:
    # 918 TFLOP/s over 1640 GB/s are 560 FLOPs a byte.
    small, *_ = findings(made(dots=(dots(512, 4096, 4096),)))
    assert "under 560 rows (the ridge of a v6e in bfloat16)" in small["observation"]
    assert "640 or more" in small["remedy"]
    (narrow,) = findings(made(dots=(dots(4096, 4096, 128),)))
    assert narrow["observation"] == (
        "the weights fill 50% of the 256 x 256 matrix units of a v6e: column count 128 is no multiple of 256"
    )
    assert findings(made(dots=(dots(4096, 4096, 4096), dots(4096, 64, 64)))) == [], "3 in 10,000 of all FLOPs"


def test_a_profile_that_does_not_show_the_call_is_said_to(tmp_path: Path) -> None:
    run = second_call(made(), four_devices_run(tmp_path))
    assert run.own_seconds is None
    assert run.unread == ("the profile of the second call does not show that call",)


@pytest.mark.parametrize("name", TRACED)
def test_what_cannot_be_traced_is_told_in_plain_words(name: str, tmp_path: Path) -> None:
    body, remedy, error = TRACED[name]
    path = tmp_path / "traced.py"
    path.write_text(f"import jax\nimport jax.numpy as jnp\nimport numpy as np\n\n\ndef f(x):\n    {body}\n")
    function = runpy.run_path(str(path))["f"]
    with pytest.raises(Exception, match=r"JAX|racer|onc") as raised:
        jax.eval_shape(function, jax.ShapeDtypeStruct((4,), "float32"))
    detail = "".join(traceback.format_exception(raised.value))
    sentence = jax_errors.translate(f"{type(raised.value).__name__}: {raised.value}", detail, "traced.py")
    assert sentence.startswith(f"traced.py:7, in f: `{body}`: ")
    assert remedy in sentence
    assert sentence.endswith(f"[{error}]")
    assert "\n" not in sentence


@pytest.mark.slow
def test_the_command_prints_the_sentence_and_no_traceback(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["doctor", f"{EXAMPLE}:traced", "--quiet"]) == 4
    sentence = capsys.readouterr().err
    assert "in chosen: `return x if x.sum() > 0 else -x`: a traced value is used as a condition" in sentence
    assert "[TracerBoolConversionError] [jax-error]" in sentence
    assert "Traceback" not in sentence
    assert len(sentence.splitlines()) < 4


def test_errors_that_are_none_of_jax_are_left_as_they_are() -> None:
    assert jax_errors.translate("ValueError: bad weather", "Traceback ...", "x.py") == ""
    donated = jax_errors.translate("RuntimeError: Array has been deleted with shape=float32[4].", "", "x.py")
    assert donated.startswith("x.py: an array is used after it was deleted")
    assert donated.endswith("[RuntimeError]")


# --- the machine --------------------------------------------------------------------------------


def by_name(lines: Any) -> dict[str, Line]:
    return {line.what: line for line in lines}


def test_a_contest_in_a_repository_is_fit_and_its_lines_are_there(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    git(tmp_path, "init", "-q", "-b", "main")
    identify(tmp_path)
    scaffold(tmp_path / "mine", "attention", ())
    git(tmp_path, "add", "mine")
    git(tmp_path, "commit", "-q", "-m", "a contest")
    code = main(["doctor", "-C", str(tmp_path / "mine"), "--json"])
    (table,) = json.loads(capsys.readouterr().out)["tables"]
    lines = {row["what"]: row for row in table["rows"]}
    assert code == (1 if any(row["state"] == "problem" for row in table["rows"]) else 0)
    assert lines["devices"]["value"] == "1 x cpu"
    assert lines["chip of the contest"]["state"] == "note"
    assert lines["git identity"]["state"] == lines["lock"]["state"] == "ok"
    assert lines["ledger's log"]["value"] == "none"
    assert {"Python", "libtpu", "cores", "memory available", "disk free", "Landlock", "seccomp"} <= set(lines)


def test_no_repository_and_devices_that_do_not_start_are_problems(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("JAX_PLATFORMS", "nosuch")
    assert main(["doctor", "-C", str(tmp_path), "--quiet"]) == 1
    out = " ".join(capsys.readouterr().out.split())
    assert "problem git not-a-repository" in out
    assert "Run `git init`" in out
    assert "problem devices" in out
    assert "nosuch" in out


def test_a_lock_is_told_while_it_is_held_and_when_it_was_left(tmp_path: Path) -> None:
    git(tmp_path, "init", "-q")
    path = tmp_path / ".git" / "ratchet" / "lock"
    assert by_name(machine_check.repository(tmp_path, "ratchet/lock"))["lock"].value == "free"
    with lock.hold(path, "an attempt"):
        assert "held by process" in by_name(machine_check.repository(tmp_path, "ratchet/lock"))["lock"].value
    # A killed run cannot remove its name.
    program = (
        "import os, pathlib, sys\nfrom harness.ledger import lock\n"
        "with lock.hold(pathlib.Path(sys.argv[1]), 'an attempt'):\n    os._exit(9)"
    )
    subprocess.run([sys.executable, "-c", program, str(path)], check=False)
    assert by_name(machine_check.repository(tmp_path, "ratchet/lock"))["lock"].value == "left by a run that was ended"


def test_packages_are_held_against_the_lock(tmp_path: Path) -> None:
    version = Environment(python="3.12.1", jax="1", jaxlib="1", libtpu="1", machine="m", platform="p")
    named = tmp_path / "requirements.lock"

    def software(text: str) -> Line:
        named.write_text(text)
        return by_name(machine_check.software(version, named))["requirements.lock"]

    assert software(f"msgspec=={msgspec.__version__} \\\n    --hash=sha256:0\n").state == "ok"
    assert f"msgspec is {msgspec.__version__}, not 0.0.1" in software("msgspec==0.0.1\n").value
    assert "nowhere-at-all 1.0 is missing" in software("nowhere-at-all==1.0\n").value
    assert software("nowhere-at-all==1.0 ; sys_platform == 'win32'\n").state == "ok"


def test_the_chip_is_recognised() -> None:
    here = by_name(machine_check.devices((("tpu", "TPU v5 lite"),), "", chip("v5e")))
    assert here["chip of the contest"].state == "ok"
    assert (
        "--on cpu" in by_name(machine_check.devices((("cpu", "cpu"),), "", chip("h100")))["chip of the contest"].remedy
    )


def test_layers_that_are_missing_are_notes() -> None:
    missing = by_name(machine_check.isolation(Isolation(landlock=None, system_calls_filtered=False)))
    assert {line.state for line in missing.values()} == {"note"}
    there = by_name(machine_check.isolation(Isolation(landlock=5, system_calls_filtered=True)))
    assert {line.state for line in there.values()} == {"ok"}


# --- many small products, types by pass, channels, transfers ---------------------------------------


TRAINING = """
import jax
import jax.numpy as jnp

X = jnp.ones((8, 32, 32, 4), jnp.bfloat16)


@jax.jit
def update(w, k):
    def loss(w):
        y = jax.lax.conv_general_dilated(
            X.transpose(0, 3, 1, 2), k, (1, 1), "SAME", dimension_numbers=("NCHW", "OIHW", "NCHW")
        )
        scores = y.reshape(8, -1)[:, :64].astype(jnp.float32) @ w
        return -jax.nn.log_softmax(scores.astype(jnp.bfloat16)).mean()

    return jax.grad(loss)(w)


@jax.jit
def heads(x, ws):
    return [x @ w for w in ws]


def step():
    update(jnp.ones((64, 128)), jnp.ones((4, 4, 3, 3), jnp.bfloat16))
    return heads(jnp.ones((16, 64), jnp.bfloat16), [jnp.ones((64, 32), jnp.bfloat16)] * 20)
"""


def test_a_training_step_is_read_by_its_passes(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(TRAINING)
    run = run_program(f"{tmp_path / 'train.py'}:step", 120.0)
    by_rule = {each["rule"]: each for each in findings(run)}
    wide = [each["observation"] for each in findings(run, "wide-operands")]
    assert any(text.endswith("in the forward pass: activations f32, weights f32") for text in wide)
    assert any("in the backward pass (gradients)" in text for text in wide)
    assert "in bf16" in by_rule["narrow-loss"]["observation"]
    assert "[b,f,0,1]" in by_rule["channels-first"]["observation"]
    assert "NHWC" in by_rule["channels-first"]["remedy"]
    assert by_rule["small-products"]["observation"].startswith("20 products of one size")
    assert "vmap" in by_rule["small-products"]["remedy"]


# Weights that are stored in bfloat16 and widened, a loop that passes them to a function, and a batch (no weight).
PRODUCTS = """
#loc1 = loc("params['w']")
#loc2 = loc("batch")
module @jit_f {
  func.func public @main(%arg0: tensor<16x32xbf16> loc("params['w']"), %arg1: tensor<3x32x32xf32> loc("stack"), %arg2: tensor<8x16xf32> loc("batch")) -> (tensor<8x32xf32> {jax.result_info = "result"}) {
    %0 = stablehlo.convert %arg0 : (tensor<16x32xbf16>) -> tensor<16x32xf32> loc(#loc3)
    %1 = stablehlo.dot_general %arg2, %0, contracting_dims = [1] x [0], precision = [DEFAULT, DEFAULT] : (tensor<8x16xf32>, tensor<16x32xf32>) -> tensor<8x32xf32> loc(#loc3)
    %2:2 = stablehlo.while(%iterArg = %arg1, %iterArg_0 = %1) : tensor<3x32x32xf32>, tensor<8x32xf32>
    cond {
      stablehlo.return %c : tensor<i1> loc(#loc3)
    } do {
      %3 = func.call @layer(%iterArg_0, %iterArg) : (tensor<8x32xf32>, tensor<3x32x32xf32>) -> tensor<8x32xf32> loc(#loc3)
      stablehlo.return %iterArg, %3 : tensor<3x32x32xf32>, tensor<8x32xf32> loc(#loc3)
    } loc(#loc3)
    return %2#1 : tensor<8x32xf32> loc(#loc3)
  } loc(#loc3)
  func.func private @layer(%arg0: tensor<8x32xf32> loc(unknown), %arg1: tensor<3x32x32xf32> loc(unknown)) -> tensor<8x32xf32> {
    %0 = stablehlo.reshape %arg1 : (tensor<3x32x32xf32>) -> tensor<96x32xf32> loc(#loc4)
    %1 = stablehlo.dot_general %arg0, %0, contracting_dims = [1] x [1], precision = [DEFAULT, DEFAULT] : (tensor<8x32xf32>, tensor<96x32xf32>) -> tensor<8x96xf32> loc(#loc4)
    return %1 : tensor<8x96xf32> loc(#loc4)
  } loc(#loc4)
}
#loc3 = loc("jit(f)/jvp()/dot_general"(#loc2))
#loc4 = loc("jit(f)/transpose(jvp())/dot_general"(#loc2))
"""  # noqa: E501


def test_weights_are_told_from_activations_by_where_they_come_from() -> None:
    first, second = products.dots("jit_f", PRODUCTS)
    assert (first.part, first.weights, first.weights_stored) == ("forward", "right", "bf16")
    # A gradient is multiplied with computed values too: only a weight of the forward pass counts as a weight here.
    assert (second.part, second.weights) == ("backward", "")
    texts = [each["observation"] for each in findings(made(dots=(first, second)))]
    assert "1 matrix product of f32 and f32 in the forward pass: activations f32, weights f32 (stored as bf16)" in texts
    forward = PRODUCTS.replace("transpose(jvp())", "jvp()")
    assert [each.weights_stored for each in products.dots("jit_f", forward)] == ["bf16", "f32"]


def test_few_or_large_products_are_no_many_small_ones() -> None:
    few, large = replace(dots(16, 64, 32), count=15), replace(dots(4096, 4096, 4096), count=32)
    assert findings(made(dots=(few, large))) == []


@pytest.mark.parametrize(
    ("destination", "expected"),
    [
        ("", 4 << 20),
        (", dst_sharding=SingleDeviceSharding(device=CpuDevice(id=1), memory_kind=device)", 4 << 20),
        (", dst_sharding=NamedSharding(mesh=Mesh('x': 4, axis_types=(Explicit,)), spec=P())", 4 << 20),
        (
            ", dst_sharding=NamedSharding(mesh=Mesh('x': 4, axis_types=(Auto,)), spec=P('x',), memory_kind=device)",
            1 << 20,
        ),
        (", dst_sharding=NamedSharding(mesh=Mesh('x': 2, 'y': 4), spec=PartitionSpec(None, 'y'))", 1 << 20),
        (", dst_sharding=NamedSharding(mesh=Mesh('x': 2, 'y': 2), spec=P(('x', 'y'),), memory_kind=device)", 1 << 20),
        (", dst_sharding=GSPMDSharding({devices=[4,1]<=[4]})", None),
        (", dst_sharding=NamedSharding(mesh=of_another_jax, spec=P('x',))", None),
    ],
)
def test_a_transfer_to_several_devices_counts_the_shard_of_each(destination: str, expected: int | None) -> None:
    line = f"W1130 guard_lib.cc:125] host-to-device transfer: aval=ShapedArray(float32[1024,1024]){destination}\n"
    assert transfer_sizes(line + line) == {"host-to-device": [expected, expected]}


def test_a_transfer_has_its_time_at_the_links_rate() -> None:
    over = Transfers(direction="host-to-device", phase="second call", count=1, num_bytes=271_000_000, unsized=0)
    (finding_there,) = findings(made(transfers=(over,)))
    # v6e: 27.1 GB/s from the host, 27.4 GB/s to it.
    assert finding_there["observation"].endswith("; 0.01 s at 27.1 GB/s (predicted)")
    (finding_back,) = findings(made(transfers=(replace(over, direction="device-to-host"),)))
    assert finding_back["observation"].endswith("; 0.0099 s at 27.4 GB/s (predicted)")
    _, measures, _ = checklist(made(transfers=(over,)), "x.py")
    (row,) = [row for row in measures.rows if str(row[0]).startswith("host-to-device")]
    assert row[2] == pytest.approx(0.01)
    _, on_a_cpu, _ = checklist(made(transfers=(over,), platform="cpu", device_kind="cpu"), "x.py")
    assert [row[2] for row in on_a_cpu.rows if str(row[0]).startswith("host-to-device")] == [None]
