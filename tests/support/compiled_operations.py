"""Small kernels compiled for a chip, one operation each; prints the operations of their schedules as JSON.

A process of its own for each chip: `python compiled_operations.py TOPOLOGY`, with the environment of a compiling child.
"""

import collections
import json
import re
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax
from jax.experimental import pallas as pl
from jax.experimental import topologies
from jax.sharding import SingleDeviceSharding

NAME = "probe"
F32, BF16 = jnp.float32, jnp.bfloat16
# The operation of an instruction: `%v9_v0 = vmul.f32 ...` or, without a result, `;;  vmatmul.f32...`.
_OPERATION = re.compile(r"(?:=|;)\s+([a-z][\w.]*)")
# The unit that an instruction is given to, as in `vpop.f32.mrf.mxu0` or `vmatmul.f32.vlgmr.msra.gmra.mxu2`.
_UNIT = re.compile(r"\.(msra|msrb|msk|gmra|vlgmra?|vlgmr|m[lr][lro]?[fb]?\d?|mxu\d|xlu\d|eup)\b")

Case = tuple[Callable[..., Any], tuple[jax.ShapeDtypeStruct, ...]]


def applied(function: Callable[..., Any], *dtypes: Any) -> Case:
    def body(*refs: Any) -> None:
        refs[-1][...] = function(*(ref[...] for ref in refs[:-1]))

    shapes = tuple(jax.ShapeDtypeStruct((16, 128), dtype) for dtype in dtypes)
    return pl.pallas_call(body, out_shape=jax.eval_shape(function, *shapes), name=NAME), shapes


def product(precision: Any, *dtypes: Any) -> Case:
    def body(a_ref: Any, b_ref: Any, o_ref: Any) -> None:
        o_ref[...] = jnp.dot(a_ref[...], b_ref[...], precision=precision, preferred_element_type=F32)

    shapes = tuple(jax.ShapeDtypeStruct((128, 128), dtype) for dtype in dtypes)
    return pl.pallas_call(body, out_shape=jax.ShapeDtypeStruct((128, 128), F32), name=NAME), shapes


def lanes(start: Callable[[Any], Any]) -> Case:
    def body(x_ref: Any, o_ref: Any) -> None:
        def step(index: Any, _: Any) -> int:
            o_ref[...] += x_ref[:, pl.ds(pl.multiple_of(start(index), 128), 128)]
            return 0

        lax.fori_loop(0, 4, step, 0)

    call = pl.pallas_call(body, out_shape=jax.ShapeDtypeStruct((8, 128), F32), name=NAME)
    return call, (jax.ShapeDtypeStruct((8, 1024), F32),)


CASES = {
    "product": product(None, F32, F32),
    "product, highest": product(lax.Precision.HIGHEST, F32, F32),
    "product, mixed": product(None, BF16, F32),
    "exp": applied(jnp.exp, BF16),
    "exp2": applied(jnp.exp2, BF16),
    "log": applied(jnp.log, BF16),
    "quotient": applied(lax.div, BF16, BF16),
    "quotient, float32": applied(lax.div, F32, F32),
    "reciprocal, approximate": applied(lambda x: pl.reciprocal(x, approx=True), F32),
    "cube": applied(lambda x: x**3, BF16),
    "even hint": lanes(lambda index: index * 128),
    "false hint": lanes(lambda index: index * 128 + 64),
}


def operations(topology: str) -> dict[str, dict[str, int]]:
    """The number of times that each operation stands in the schedule of each case."""
    device = topologies.get_topology_desc(topology_name=topology, platform="tpu").devices[0]
    sharding = SingleDeviceSharding(device)
    aimed = jax.sharding.AbstractDevice(device_kind=device.device_kind, num_cores=1, platform="tpu")
    by_name = {}
    for name, (call, shapes) in CASES.items():
        placed = [jax.ShapeDtypeStruct(shape.shape, shape.dtype, sharding=sharding) for shape in shapes]
        with jax.sharding.use_abstract_mesh(jax.sharding.AbstractMesh((), (), abstract_device=aimed)):
            jax.jit(lambda *arrays, call=call: call(*arrays)).lower(*placed).compile()
        written = [path for path in Path("../../dumps").glob("*final_bundles.txt") if NAME in path.name]
        text = max((path.read_text() for path in written), key=len)
        by_name[name] = dict(collections.Counter(_UNIT.sub("", word) for word in _OPERATION.findall(text)))
        for path in Path("../../dumps").iterdir():
            path.unlink()
    return by_name


if __name__ == "__main__":
    print(json.dumps(operations(sys.argv[1])))
