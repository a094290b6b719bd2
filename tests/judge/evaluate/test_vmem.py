"""Refusals from block shapes alone: libtpu refuses the same kernels, at each chip's limit."""

import functools
import subprocess
import sys
from pathlib import Path

import jax
import pytest
import vmem_cases
from planted import request
from refusals import assert_failed
from vmem_cases import CASES, STEPS, Call

from harness.hardware import TPUS, chip
from harness.judge.evaluate import evaluation
from harness.judge.evaluate.request import Listener
from harness.judge.evaluate.trace import jaxprs, traffic, vmem
from harness.loop import scaffold
from harness.operators import Attention
from harness.sandbox import asked_device, environment

pytestmark = pytest.mark.long

pytest.importorskip("libtpu", reason="the TPU compiler exists for x86-64 Linux only")

TEMPLATE = scaffold.text("attention", "kernel.py").decode()


def refusal(program: Call, shape: jax.ShapeDtypeStruct, name: str) -> str:
    """The judge's refusal of the program, "" without one."""
    on = chip(name)
    with asked_device.aiming_at(on):
        closed = jax.make_jaxpr(program)(shape)
    (equation,) = jaxprs.pallas_calls(closed.jaxpr)
    return vmem.excess(equation, traffic.pallas_call(equation, on, (STEPS,)), on)


@pytest.mark.parametrize("case", CASES)
def test_what_fits_is_not_refused_and_eight_rows_more_are(case: str) -> None:
    kernel, rows, options, _, is_certain = CASES[case]
    assert refusal(*vmem_cases.call(kernel, rows, **options), "v5e") == ""
    message = refusal(*vmem_cases.larger(case), "v5e")
    assert bool(message) == is_certain
    assert not message or "to fit into 2,097,152 bytes (2.00 MiB) of VMEM" in message


@functools.cache
def compiled(name: str) -> dict[str, str]:
    """libtpu's message on each case, from a separate process; "" for a case that it accepts."""
    compiler = environment.compiling(chip(name), with_lines=False)
    done = subprocess.run(
        [sys.executable, vmem_cases.__file__, name],
        env={**compiler, "LIBTPU_INIT_ARGS": ""},
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    return dict(line.split("\t", 1) for line in done.stdout.splitlines() if "\t" in line)


@pytest.mark.parametrize("case", CASES)
def test_libtpu_takes_what_is_not_refused_and_refuses_what_is(case: str) -> None:
    answers = compiled("v5e")
    assert answers[f"{case}: fits"] == ""
    if CASES[case][-1]:
        assert "vmem" in answers[f"{case}: larger"]


def test_scratch_that_libtpu_may_do_without_is_none_of_what_is_refused() -> None:
    """If this fails for all of them, libtpu has changed, and more could be refused."""
    assert compiled("v5e")["scratch written_first: larger"] == ""
    assert compiled("v5e")["scratch read_in_vain: larger"] == ""


@pytest.mark.parametrize(
    "name", ["v5e", *(pytest.param(tpu.name, marks=pytest.mark.slow) for tpu in TPUS if tpu.name != "v5e")]
)
def test_each_chip_has_the_limit_that_is_assumed_where_a_kernel_names_none(name: str) -> None:
    rows = vmem_cases.default_rows(chip(name).scoped_vmem_bytes)
    for more, is_refused in ((-8, False), (8, True)):
        assert bool(refusal(*vmem_cases.call(vmem_cases.add, rows + more, limit=None), name)) == is_refused
        assert ("vmem" in compiled(name)[f"default {more}"]) == is_refused


def test_a_candidate_is_refused_without_the_compiler(tmp_path: Path) -> None:
    """Its blocks and the scratch that it keeps take 16.5 MiB, of 16."""
    ended: dict[str, str] = {}
    kernel = TEMPLATE.replace("BQ = 128", "BQ = 8192").replace("BKV = 256", "BKV = 512")
    asked = request(tmp_path, kernel, Attention(sequence=16384, head_dim=128), checked=False)
    listener = Listener(progress=lambda stage, state, _: ended.update({stage: state}))
    evidence = evaluation.evaluate(asked, listener)
    words = "got at least 17,301,504 (8,912,896 for its blocks, 8,388,608 for scratch"
    assert_failed(evidence.failure, "compile", "vmem-exceeded", words)
    assert ended == {"trace": "vmem-exceeded"}
    assert not list((asked.work / "dumps").iterdir())
