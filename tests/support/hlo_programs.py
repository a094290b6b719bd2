"""Compiles three small programs for 2 x 4 chips of v5e without one, and saves text, proto and XLA's counts."""

import json
import os
import sys
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
from jax.experimental import topologies
from jax.sharding import Mesh, NamedSharding, PartitionSpec

# The environment of the child that runs this file; other tests must not see it.
ENVIRONMENT = dict(
    os.environ,
    JAX_PLATFORMS="cpu",
    TPU_SKIP_MDS_QUERY="1",
    TPU_ACCELERATOR_TYPE="v5litepod-1",
    TPU_WORKER_HOSTNAMES="localhost",
    ALLOW_MULTIPLE_LIBTPU_LOAD="1",
)
LAYERS = 6
BF16 = jnp.bfloat16


def fused(x: jax.Array, w: jax.Array, b: jax.Array) -> tuple[jax.Array, jax.Array]:
    """A matmul with element-wise work and a reduction behind it, and a transposed result."""
    h = jax.nn.gelu(x @ w + b)
    return jnp.sum(h, axis=-1), h.T


def looped(x: jax.Array, first: jax.Array, second: jax.Array) -> jax.Array:
    """Layers in a loop, weights split over both axes of the mesh."""

    def layer(carry: jax.Array, weights: tuple[jax.Array, jax.Array]) -> tuple[jax.Array, tuple[()]]:
        return jax.nn.relu(carry @ weights[0]) @ weights[1] + carry, ()

    return jax.lax.scan(layer, x, (first, second))[0]


def sent(x: jax.Array) -> tuple[jax.Array, ...]:
    """One of each collective."""
    return (
        jax.lax.ppermute(x, "model", [(0, 1), (1, 2), (2, 3), (3, 0)]),
        jax.lax.all_to_all(x, "model", 0, 0, tiled=True),
        jax.lax.psum_scatter(x, "data", tiled=True),
        jax.lax.all_gather(x, ("data", "model")),
    )


def main(folder: Path) -> None:
    topology = topologies.get_topology_desc(topology_name="v5e:2x4", platform="tpu")
    mesh = Mesh(np.array(topology.devices).reshape(2, 4), ("data", "model"))

    def array(shape: tuple[int, ...], *axes: str | tuple[str, ...] | None) -> jax.ShapeDtypeStruct:
        return jax.ShapeDtypeStruct(shape, BF16, sharding=NamedSharding(mesh, PartitionSpec(*axes)))

    def alone(shape: tuple[int, ...]) -> jax.ShapeDtypeStruct:
        return jax.ShapeDtypeStruct(shape, BF16, sharding=jax.sharding.SingleDeviceSharding(topology.devices[0]))

    rows = PartitionSpec(("data", "model"), None)
    programs = {
        "fused": (jax.jit(fused), [alone((1024, 512)), alone((512, 2048)), alone((2048,))]),
        "looped": (
            jax.jit(looped, out_shardings=NamedSharding(mesh, PartitionSpec("data", None))),
            [
                array((1024, 1024), "data", None),
                array((LAYERS, 1024, 4096), None, "data", "model"),
                array((LAYERS, 4096, 1024), None, "model", "data"),
            ],
        ),
        "sent": (
            jax.jit(jax.shard_map(sent, mesh=mesh, in_specs=rows, out_specs=(rows,) * 4)),
            [array((8192, 1024), ("data", "model"), None)],
        ),
    }
    for name, (program, arguments) in programs.items():
        compiled = program.lower(*arguments).compile()
        (folder / f"{name}.txt").write_text(compiled.as_text())
        proto = compiled.runtime_executable().hlo_modules()[0].as_serialized_hlo_module_proto()
        (folder / f"{name}.pb").write_bytes(proto)
        counts = compiled.cost_analysis()
        flops = counts.get("flops", 0) + counts.get("transcendentals", 0)
        (folder / f"{name}.json").write_text(json.dumps({"flops": flops}))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
