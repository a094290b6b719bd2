"""Arithmetic on the CPU as a program states it, where XLA's simplifier would compute something else."""

import os
import subprocess
import sys

import jax
import numpy as np
import pytest
from loop_fixtures import PROJECT

from harness.judge.evaluate.interpret import as_written
from harness.sandbox.messages import Rejected


@pytest.mark.long
def test_the_simplifier_of_xla_rewrites_what_is_compiled_as_written() -> None:
    # The simplifier of jax 0.12 leaves all of these as they are.
    names = ["(x + a) - a", "x a / a", "x a b", "log(exp(x))", "exp(x) exp(-x)"]
    assert as_written.rewritten_arithmetic(jax.jit) == (names if jax.__version_info__ < (0, 12) else [])
    flags = {**os.environ, "JAX_PLATFORMS": "cpu", "PYTHONPATH": PROJECT}
    program = "from harness.judge.evaluate.interpret.as_written import *; print(rewritten_arithmetic(jit_as_written))"
    command = [sys.executable, "-c", program]
    assert subprocess.check_output(command, env=flags, text=True) == "['x x - 2 x x / 2']\n"
    assert as_written.rewritten_arithmetic(as_written.jit_as_written) == []


def test_an_xla_that_rewrites_arithmetic_checks_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    jit = as_written.jit_as_written
    monkeypatch.setattr(as_written, "jit_as_written", lambda f: lambda x: {**jit(f)(x), "log(exp(x))": x})
    with pytest.raises(Rejected, match=r"got log\(exp\(x\)\) rewritten"):
        as_written.require_arithmetic_as_written.__wrapped__()


def test_options_of_jit_are_kept() -> None:
    doubled = as_written.jit_as_written(lambda x: x + x, donate_argnums=0)
    assert np.asarray(doubled(np.ones(4, np.float32))).tolist() == [2.0] * 4
