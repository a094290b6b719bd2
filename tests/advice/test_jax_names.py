"""Names that some releases of JAX lack: the rows are those of the installed JAX, and the remedies say what to do."""

import importlib
import re
import warnings
from pathlib import Path

import jax
import pytest

import harness
from harness.advice import jax_names
from harness.advice.failure_remedies import next_step
from harness.records import Failure


@pytest.mark.parametrize(
    ("row", "name"), [(row, name) for row in jax_names.NAMES for name in row.names], ids=lambda value: str(value)[:40]
)
def test_the_installed_jax_has_and_lacks_what_the_rows_say(row: jax_names.Names, name: str) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        assert hasattr(importlib.import_module(row.module), name) == jax_names.has(row, jax.__version__)


def test_the_supported_releases_are_those_of_the_lock() -> None:
    lock = (Path(harness.__file__).parents[1] / "requirements.lock").read_text()
    assert re.findall(r"^jax==([\d.]+)", lock, re.M) == list(jax_names.SUPPORTED.values())


@pytest.mark.parametrize(
    ("message", "here", "words"),
    [
        (
            "AttributeError: module 'jax.experimental.pallas.tpu' has no attribute 'repeat'",
            "0.10.2",
            "JAX has jax.experimental.pallas.tpu.repeat up to 0.10.0, not from 0.10.2 on; no JAX that is supported "
            "here has it (0.10.2, 0.12.0.1): write jnp.tile",
        ),
        (
            "ImportError: cannot import name 'TPUCompilerParams' from 'jax.experimental.pallas.tpu' (tpu.py)",
            "0.12.0.1",
            "up to 0.7.0, not from 0.8.0 on; no JAX that is supported here has it (0.10.2, 0.12.0.1): write "
            "pltpu.CompilerParams",
        ),
        (
            "AttributeError: module 'jax.experimental.pallas.tpu' has no attribute 'semaphore'",
            "0.12.0.1",
            "write pl.semaphore, or judge the kernel with jax 0.10.2 (--python 3.11)",
        ),
        (
            "AttributeError: module 'jax.experimental.pallas.tpu' has no attribute 'TensorCoreMesh'",
            "0.10.2",
            "from 0.12.0 on, not in 0.10.2: judge the kernel with jax 0.12.0.1 (--python 3.12)",
        ),
        (
            "ModuleNotFoundError: No module named 'jax.experimental.pallas.gpu'",
            "0.10.2",
            "jax 0.10.2 has no jax.experimental.pallas.gpu; try jax 0.12.0.1 (--python 3.12)",
        ),
        (
            "AttributeError: module 'jax.numpy' has no attribute 'zeroslike'",
            "0.10.2",
            "jax 0.10.2 has no jax.numpy.zeroslike; did you mean jax.numpy.zeros_like?",
        ),
        (
            "ImportError: cannot import name 'BlockSpecs' from 'jax.experimental.pallas' (pallas.py)",
            "0.10.2",
            "did you mean jax.experimental.pallas.BlockSpec?",
        ),
        ("ModuleNotFoundError: No module named 'jax.experimental.palas'", "0.10.2", "mean jax.experimental.pallas?"),
        (
            "AttributeError: module 'jax.numpy' has no attribute 'frobnicate'",
            "0.10.2",
            "jax 0.10.2 has no jax.numpy.frobnicate; try jax 0.12.0.1 (--python 3.12)",
        ),
        ("ModuleNotFoundError: No module named 'jaxtyping'", "0.10.2", ""),
        ("AttributeError: module 'tiles' has no attribute 'repeat'", "0.10.2", ""),
    ],
)
def test_a_name_that_is_lacking_is_named_with_its_releases(message: str, here: str, words: str) -> None:
    remedy = jax_names.remedy(message, here)
    assert words in remedy
    assert bool(words) == bool(remedy)


def test_a_report_says_which_jax_has_it() -> None:
    message = "tracing kernel_fn failed: module 'jax.experimental.pallas.tpu' has no attribute 'TPUMemorySpace'"
    assert "pltpu.MemorySpace" in next_step(Failure(stage="contract", kind="trace-error", message=message))


def test_a_failing_import_is_told_what_the_sandbox_lacks() -> None:
    step = next_step(
        Failure(stage="contract", kind="import-error", message="in git/cmd.py line 3: ImportError: no git")
    )
    assert "no other processes, no network and no files to write" in step
    assert "STUBS" in step
