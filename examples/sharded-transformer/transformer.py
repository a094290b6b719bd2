"""A transformer of two layers on a mesh of eight CPU devices, captured: as written, or with its batch kept split.

    .venv/bin/python examples/sharded-transformer/transformer.py written
    .venv/bin/python examples/sharded-transformer/transformer.py mended

Each writes a run of its name to profile_data/plugins/profile of the current folder.
"""

import os
import sys

os.environ["XLA_FLAGS"] = "--xla_force_host_platform_device_count=8"
os.environ["JAX_PLATFORMS"] = "cpu"

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import NamedSharding, PartitionSpec

LAYERS, BATCH, SEQUENCE, MODEL, HEADS, HEAD, HIDDEN, WORDS = 2, 8, 512, 256, 4, 64, 1024, 2048
MESH = jax.make_mesh((4, 2), ("data", "model"), axis_types=(jax.sharding.AxisType.Auto,) * 2)
WARMUP, STEPS = 2, 3

# Shape and sharding of each array: weights are split along both axes, the batch along `data`.
LAYER = {
    "query": ((MODEL, HEADS, HEAD), ("data", "model", None)),
    "key": ((MODEL, HEADS, HEAD), ("data", "model", None)),
    "value": ((MODEL, HEADS, HEAD), ("data", "model", None)),
    "output": ((HEADS, HEAD, MODEL), ("model", None, "data")),
    "up": ((MODEL, HIDDEN), ("data", "model")),
    "down": ((HIDDEN, MODEL), ("model", "data")),
}
WORD_VECTORS = ((WORDS, MODEL), (None, "data"))


def placed(array, *axes):
    """The array, split along these axes of the mesh."""
    return jax.device_put(array, NamedSharding(MESH, PartitionSpec(*axes)))


def forward(weights, tokens, is_mended):
    """tokens: [batch, sequence] int32 -> [batch, sequence, model] float32."""
    with jax.named_scope("embed"):
        x = weights["words"][tokens]
        if is_mended:
            # The word vectors are split along their second dimension, over `data`. Without this line so is x, in all
            # layers, and each device works on the whole batch.
            x = jax.lax.with_sharding_constraint(x, NamedSharding(MESH, PartitionSpec("data", None, None)))
    for layer in weights["layers"]:
        with jax.named_scope("attention"):
            query, key, value = (jnp.einsum("bsd,dnh->bsnh", x, layer[name]) for name in ("query", "key", "value"))
            shares = jax.nn.softmax(jnp.einsum("bsnh,btnh->bnst", query, key) * HEAD**-0.5)
            x += jnp.einsum("bsnh,nhd->bsd", jnp.einsum("bnst,btnh->bsnh", shares, value), layer["output"])
        with jax.named_scope("mlp"):
            x += jnp.einsum("bsf,fd->bsd", jax.nn.gelu(jnp.einsum("bsd,df->bsf", x, layer["up"])), layer["down"])
    return x


def main(name):
    """Captures some steps as a run of this name."""
    draw = np.random.default_rng(0)

    def drawn(shape, axes):
        return placed(0.02 * draw.standard_normal(shape, np.float32), *axes)

    weights = {
        "words": drawn(*WORD_VECTORS),
        "layers": [{name: drawn(*what) for name, what in LAYER.items()} for _ in range(LAYERS)],
    }
    tokens = placed(draw.integers(WORDS, size=(BATCH, SEQUENCE), dtype=np.int32), "data", None)
    step = jax.jit(forward, static_argnums=2)
    is_mended = name == "mended"
    for _ in range(WARMUP):
        step(weights, tokens, is_mended).block_until_ready()
    options = jax.profiler.ProfileOptions()
    options.python_tracer_level = 0
    options.session_id = name
    with jax.profiler.trace("profile_data", profiler_options=options):
        for number in range(STEPS):
            with jax.profiler.StepTraceAnnotation("train", step_num=number):
                step(weights, tokens, is_mended).block_until_ready()


if __name__ == "__main__":
    if sys.argv[1:] not in (["written"], ["mended"]):
        sys.exit("usage: transformer.py written|mended")
    main(sys.argv[1])
