"""Kernels that are shipped without the compiler's checks: seen in the program, and judged with them."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import pytest
from jax.experimental import pallas as pl
from jax.experimental.pallas import tpu as pltpu

from harness.hardware import chip
from harness.judge.evaluate.candidate import unchecked_warnings
from harness.judge.evaluate.compile.left_out import leaves_out_checks, with_checks
from harness.judge.evaluate.interpret import interpretation
from harness.sandbox import asked_device

SHAPE = jax.ShapeDtypeStruct((256, 128), jnp.float32)


def doubling(**options: bool) -> Callable[[Any], Any]:
    def double(x_ref: object, o_ref: object) -> None:
        o_ref[...] = x_ref[...] * 2  # type: ignore[index]

    call: Callable[[Any], Any] = pl.pallas_call(
        double, out_shape=SHAPE, compiler_params=pltpu.CompilerParams(**options)
    )
    return call


def artifact(path: Path, **options: bool) -> Path:
    closed = jax.make_jaxpr(doubling(**options))(SHAPE)
    with asked_device.aiming_at(chip("v5e")):
        exported = interpretation.export(closed, (SHAPE,), "tpu", chip("v5e"))
    path.write_bytes(exported.serialize())
    return path


@pytest.mark.parametrize("option", ["disable_bounds_checks", "disable_semaphore_checks"])
def test_the_program_says_which_checks_it_leaves_out(option: str, tmp_path: Path) -> None:
    bare, whole = artifact(tmp_path / "bare", **{option: True}), artifact(tmp_path / "whole")
    assert leaves_out_checks(bare)
    assert not leaves_out_checks(whole)
    exported = jax.export.deserialize(bytearray(bare.read_bytes()))
    checked = with_checks(exported.mlir_module_serialized)
    assert len(checked) == len(exported.mlir_module_serialized)
    assert f'"{option}":false'.encode() in checked
    assert f'"{option}": true'.encode() not in checked


def test_calls_of_one_line_are_warned_of_once() -> None:
    call = doubling(disable_bounds_checks=True)
    (warning,) = unchecked_warnings(jax.make_jaxpr(lambda x: call(call(x)))(SHAPE))
    assert "disable_bounds_checks: the kernel is timed as shipped" in warning
    assert unchecked_warnings(jax.make_jaxpr(doubling())(SHAPE)) == ()
