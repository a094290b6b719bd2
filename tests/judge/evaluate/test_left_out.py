"""Kernels that are shipped without the compiler's checks: seen in the program, and judged with them."""

from pathlib import Path

import jax
import jax.numpy as jnp
import pytest
from jax.experimental import pallas as pl
from jax.experimental.pallas import tpu as pltpu

from harness.hardware import chip
from harness.judge.evaluate.compile.left_out import leaves_out_checks, with_checks
from harness.judge.evaluate.interpret import interpretation
from harness.sandbox import asked_device


def artifact(path: Path, **options: bool) -> Path:
    def double(x_ref: object, o_ref: object) -> None:
        o_ref[...] = x_ref[...] * 2  # type: ignore[index]

    shape = jax.ShapeDtypeStruct((256, 128), jnp.float32)
    call = pl.pallas_call(double, out_shape=shape, compiler_params=pltpu.CompilerParams(**options))
    closed = jax.make_jaxpr(call)(shape)
    with asked_device.aiming_at(chip("v5e")):
        exported = interpretation.export(closed, (shape,), "tpu", chip("v5e"))
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
