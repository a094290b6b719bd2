"""Traces one case of known_kernels.py for a chip, applies the judge's static rules to it, and compiles it.

A child of known_kernels.py. It leaves the reason why the judge refuses the case (empty if it does not) in refused.txt,
beside the dumps.
"""

import sys
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import jax
import numpy as np
from jax.sharding import AbstractDevice, AbstractMesh, SingleDeviceSharding
from known_cases import Program, cases

from harness.hardware import Chip, chip
from harness.judge.evaluate.compile.topology import described_device
from harness.judge.evaluate.trace import constants, stand_ins
from harness.judge.evaluate.trace.traced import refuse_unfit
from harness.sandbox.asked_device import aiming_at, asked_for
from harness.sandbox.messages import Rejected

REFUSED = "refused.txt"
# The oldest JAX whose traces the judge's static rules read.
_OLDEST_JUDGED = (0, 10, 2)
# The oldest JAX whose abstract devices name a platform, as those of `aiming_at` do.
_OLDEST_AIMED = (0, 10, 1)


def refusal(case: Program, shapes: tuple[Any, ...], target: Chip) -> str:
    """The reason why the judge's static rules refuse the program, with its line; "" if they admit it."""
    try:
        refuse_unfit(constants.own_copy(jax.make_jaxpr(case.function)(*shapes)), target)
    except Rejected as rejected:
        return f"{rejected.failure.kind}: {rejected.failure.message}"
    return ""


def aimed(target: Chip) -> AbstractContextManager[Any]:
    """A context in which any version of JAX traces for that chip."""
    if jax.__version_info__ >= _OLDEST_AIMED:
        return aiming_at(target)
    device = AbstractDevice(device_kind=target.device_kinds[0], num_cores=target.cores)
    mesh = AbstractMesh((), (), axis_types=(), abstract_device=device)
    return jax.sharding.use_abstract_mesh(mesh)  # type: ignore[no-any-return]


def main(origin: str, case_name: str, chip_name: str, directory: str, *stubs: str) -> None:
    """Compiles the case; the environment says where dumps go. `directory` also gets the contents of operands."""
    target = chip(chip_name)
    device = described_device(target)
    stand_ins.stand_in(stubs)

    def shaped(operand: Any) -> jax.ShapeDtypeStruct:
        return jax.ShapeDtypeStruct(operand.shape, operand.dtype, sharding=SingleDeviceSharding(device))

    # An operation may ask about the chip while it is traced.
    with asked_for(target), aimed(target):
        case = cases(origin)[case_name]()
        for name, values in case.operands.items():
            if isinstance(values, np.ndarray):
                np.save(Path(directory) / f"{name}.npy", values)
        operands = tuple(case.operands.values())
        plain = jax.tree.map(lambda operand: jax.ShapeDtypeStruct(operand.shape, operand.dtype), operands)
        if jax.__version_info__ >= _OLDEST_JUDGED:
            (Path(directory) / REFUSED).write_text(refusal(case, plain, target), encoding="utf-8")
        donated = tuple(place for place, name in enumerate(case.operands) if name in case.donated)
        jax.jit(case.function, donate_argnums=donated).lower(*jax.tree.map(shaped, operands)).compile()


if __name__ == "__main__":
    main(*sys.argv[1:])
