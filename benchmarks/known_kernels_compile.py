"""Compiles one case of known_kernels.py for a chip, dumping its schedules: a child of it."""

import sys
from pathlib import Path
from typing import Any

import jax
import numpy as np
from jax.sharding import AbstractDevice, AbstractMesh, AxisType, SingleDeviceSharding
from known_cases import Program

from harness.hardware import chip
from harness.judge.evaluate.compile.topology import described_device


def program(origin: str, name: str) -> Program:
    """The case `name` of `origin`: jax, tokamax or xla, which are not all installed everywhere."""
    if origin == "jax":
        from known_cases_jax import CASES
    elif origin == "tokamax":
        from known_cases_tokamax import CASES
    else:
        from known_cases_xla import CASES
    return CASES[name]()


def main(origin: str, case_name: str, chip_name: str, directory: str) -> None:
    """Compiles; the environment says where dumps go. What operands hold that a schedule reads is left there too."""
    target = chip(chip_name)
    device = described_device(target)
    # What an operation asks about the chip while it is traced.
    kind = AbstractDevice(device_kind=device.device_kind, num_cores=target.cores, platform="tpu")

    def shaped(operand: Any) -> jax.ShapeDtypeStruct:
        return jax.ShapeDtypeStruct(operand.shape, operand.dtype, sharding=SingleDeviceSharding(device))

    case = program(origin, case_name)
    for name, values in case.operands.items():
        if isinstance(values, np.ndarray):
            np.save(Path(directory) / f"{name}.npy", values)
    with jax.sharding.use_abstract_mesh(AbstractMesh((1,), ("x",), (AxisType.Auto,), abstract_device=kind)):
        jax.jit(case.function).lower(*jax.tree.map(shaped, tuple(case.operands.values()))).compile()


if __name__ == "__main__":
    main(*sys.argv[1:])
