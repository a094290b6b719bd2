"""Gated linear unit on a TPU, silu(X Wg) * (X Wu): the one file that an experiment changes.

The honest naive kernel to start from: gate and up values side by side, one block of X against one block of each
weight in each grid step. The judge traces kernel_fn and checks what compute_flops() and get_tiling_meta()
claim.
"""

import jax
import jax.numpy as jnp
from jax.experimental import pallas as pl
from jax.experimental.pallas import tpu as pltpu

KERNEL_NAME = "naive_swiglu"
PROBLEM_DESCRIPTION = "silu(X Wg) * (X Wu), gate and up values added up in float32"

BT = 512
BH = 256
BK = 512
# How much VMEM the compiler may give the kernel, in bytes; None: its default (16 MiB on v5e).
VMEM_LIMIT = None


def gated(x_ref, w_gate_ref, w_up_ref, y_ref, gate_ref, up_ref):
    """One step: block of X [BT, BK] times block of Wg and of Wu [BK, BH]; gate, up [BT, BH] float32 live in VMEM."""
    step, steps = pl.program_id(2), pl.num_programs(2)

    @pl.when(step == 0)
    def start():
        gate_ref[...] = jnp.zeros_like(gate_ref)
        up_ref[...] = jnp.zeros_like(up_ref)

    # By default the matrix unit rounds float32 to bfloat16; HIGHEST takes six passes instead of one.
    precision = jax.lax.Precision.HIGHEST if x_ref.dtype == jnp.float32 else None
    gate_ref[...] += jnp.dot(x_ref[...], w_gate_ref[...], precision=precision, preferred_element_type=jnp.float32)
    up_ref[...] += jnp.dot(x_ref[...], w_up_ref[...], precision=precision, preferred_element_type=jnp.float32)

    @pl.when(step == steps - 1)
    def finish():
        gate = gate_ref[...]
        # exp(-gate) may overflow to infinity, of which 1 / (1 + inf) = 0 is the right sigmoid.
        y_ref[...] = (gate / (1 + jnp.exp(-gate)) * up_ref[...]).astype(y_ref.dtype)


def multiply(h_ref, w_down_ref, y_ref, acc_ref):
    """One step: block of hidden values [BT, BK] times block of Wd [BK, BH]."""
    step, steps = pl.program_id(2), pl.num_programs(2)

    @pl.when(step == 0)
    def start():
        acc_ref[...] = jnp.zeros_like(acc_ref)

    # By default the matrix unit rounds float32 to bfloat16; HIGHEST takes six passes instead of one.
    precision = jax.lax.Precision.HIGHEST if h_ref.dtype == jnp.float32 else None
    acc_ref[...] += jnp.dot(h_ref[...], w_down_ref[...], precision=precision, preferred_element_type=jnp.float32)

    @pl.when(step == steps - 1)
    def finish():
        y_ref[...] = acc_ref[...].astype(y_ref.dtype)


def kernel_fn(x, w_gate, w_up, w_down=None):
    """silu(x w_gate) * (x w_up), times w_down if there is one, of x [tokens, model], weights [model, hidden].

    Raises ValueError where a block does not divide them.
    """
    hidden = product(gated, KERNEL_NAME, x, w_gate, w_up)
    return hidden if w_down is None else product(multiply, "naive_down", hidden, w_down)


def product(body, name, x, *weights):
    """A kernel over blocks of x [tokens, model] and of all weights [model, hidden] at the same place."""
    (tokens, model), hidden = x.shape, weights[0].shape[1]
    for constant, length, block in (("BT", tokens, BT), ("BH", hidden, BH), ("BK", model, BK)):
        if length % block:
            raise ValueError(f"expected {constant} to divide {length}, got {constant}={block}")
    weight = pl.BlockSpec((BK, BH), lambda i, j, p: (p, j))
    return pl.pallas_call(
        body,
        out_shape=jax.ShapeDtypeStruct((tokens, hidden), x.dtype),
        grid=(tokens // BT, hidden // BH, model // BK),
        in_specs=[pl.BlockSpec((BT, BK), lambda i, j, p: (i, p)), *[weight] * len(weights)],
        out_specs=pl.BlockSpec((BT, BH), lambda i, j, p: (i, j)),
        scratch_shapes=[pltpu.VMEM((BT, BH), jnp.float32)] * len(weights),
        compiler_params=pltpu.CompilerParams(
            dimension_semantics=("parallel", "parallel", "arbitrary"), vmem_limit_bytes=VMEM_LIMIT
        ),
        name=name,
    )(x, *weights)


def compute_flops(tokens=4096, model=4096, hidden=3584, down=False):
    """FLOPs of one call: two or three products, and five for every hidden value (silu, and the product with up)."""
    return (6 if down else 4) * tokens * model * hidden + 5 * tokens * hidden


def get_tiling_meta(tokens=4096, model=4096, hidden=3584):
    """Of gate and up: X is read once for every block of columns, the weights once for every block of rows."""
    grid = (tokens // BT, hidden // BH, model // BK)
    # A block stays where it is until the next step needs another one.
    x = 2 * tokens * model * (grid[1] if grid[2] > 1 else 1)
    weight = 2 * model * hidden * (grid[0] if grid[1] * grid[2] > 1 else 1)
    return {
        "grid": grid,
        "buffers": {
            "x": ((BT, BK), "bfloat16"),
            "w_gate": ((BK, BH), "bfloat16"),
            "w_up": ((BK, BH), "bfloat16"),
            "y": ((BT, BH), "bfloat16"),
            "gate": ((BT, BH), "float32"),
            "up": ((BT, BH), "float32"),
        },
        "inputs": {"x": x, "w_gate": weight, "w_up": weight},
        "outputs": {"y": 2 * tokens * hidden},
    }
