"""Compiles one contender at one problem for a chip, dumping its schedules: a child of peers.py."""

import contextlib
import importlib.util
import json
import math
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
from fidelity_compile import write_for_older_compilers
from jax.sharding import AbstractDevice, AbstractMesh, SingleDeviceSharding

from harness.dumps.hlo import kernel_bodies
from harness.hardware import chip
from harness.judge.evaluate.compile.topology import described_device

HEAD_DIM = 128
# The exit code of a child whose contender or compiler refused the configuration; the message is in REFUSED.
REFUSES = 3
REFUSED = "refused.txt"
# Written last: the names of the module's Pallas kernels, with the VMEM that the compiler gave each.
KERNELS = "kernels.json"
# The option that raises the compiler's limit of VMEM for one kernel, in KiB.
VMEM_KIB = "vmem_kib"

Attention = Callable[..., Any]
Options = dict[str, str]


def _scaled(q: jax.Array) -> jax.Array:
    """The queries multiplied by the softmax's scale, as kernels without a scale expect them."""
    return (q.astype(jnp.float32) * (1 / math.sqrt(HEAD_DIM))).astype(q.dtype)


def flash(options: Options) -> Attention:
    """JAX's flash attention; it has no shared heads, so keys and values are repeated before the call."""
    from jax.experimental.pallas.ops.tpu import flash_attention as module

    sizes = {name: int(options[name]) for name in ("block_q", "block_k_major", "block_k")}
    is_outside = options["scale"] == "outside"
    group = int(options["heads"]) // int(options["kv_heads"])

    def attention(q: jax.Array, k: jax.Array, v: jax.Array) -> jax.Array:
        if group > 1:
            k, v = jnp.repeat(k, group, axis=0), jnp.repeat(v, group, axis=0)
        out = module.flash_attention(
            (_scaled(q) if is_outside else q)[None],
            k[None],
            v[None],
            causal=options["causal"] == "1",
            sm_scale=1.0 if is_outside else 1 / math.sqrt(HEAD_DIM),
            block_sizes=module.BlockSizes(**sizes, block_b=1),
        )
        return out[0]

    return attention


def splash(options: Options) -> Attention:
    """JAX's splash attention; its masks become scalar-prefetch tables, its queries come scaled."""
    from jax.experimental.pallas.ops.tpu.splash_attention import splash_attention_kernel as kernel
    from jax.experimental.pallas.ops.tpu.splash_attention import splash_attention_mask as masks

    shape = (int(options["sequence"]),) * 2
    mask = masks.CausalMask(shape) if options["causal"] == "1" else masks.FullMask(shape)
    query, key, value = _layouts(options, kernel.QKVLayout)
    sizes = {name: int(options[name]) for name in ("block_q", "block_kv", "block_kv_compute")}
    attention: Attention = kernel.make_splash_mha(
        masks.MultiHeadMask([mask] * int(options["heads"])),
        head_shards=1,
        q_seq_shards=1,
        block_sizes=kernel.BlockSizes(**sizes, q_layout=query, k_layout=key, v_layout=value),
    )
    return lambda q, k, v: attention(_scaled(q), k, v)


def tokamax(options: Options) -> Attention:
    """tokamax's splash attention; its queries come scaled."""
    from tokamax._src.ops.experimental.tpu.splash_attention import base, pallas_mosaic_tpu

    query, key, value = _layouts(options, pallas_mosaic_tpu.QKVLayout)
    diagonal = options.get("diagonal")
    skipping = {"qk_diag_skip": True, "sv_diag_skip": True, "qk_diag_grid": int(diagonal)} if diagonal else {}
    config = pallas_mosaic_tpu.Config(
        **{name: int(options[name]) for name in ("block_q", "block_kv", "block_kv_compute")},
        q_layout=query,
        k_layout=key,
        v_layout=value,
        use_experimental_scheduler=options["exp_sched"] == "1",
        **skipping,
    )
    attention = pallas_mosaic_tpu.PallasMosaicTpuSplashAttention(config=config, bypass_device_check=True)
    mask = base.CAUSAL_MASK if options["causal"] == "1" else base.FULL_MASK
    return lambda q, k, v: attention(_scaled(q), k, v, mask=mask, return_residuals=False)


def ours(options: Options) -> Attention:
    """The kernel_fn of a kernel.py with its constants set; if it takes [sequence, d], it is mapped over the heads."""
    path = Path(options["kernel"])
    spec = importlib.util.spec_from_file_location("kernel", path)
    if spec is None or spec.loader is None:
        raise ImportError(f"expected a Python file, got {path}")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    for name, value in options.items():
        if name.isupper():
            if not hasattr(module, name):
                raise ValueError(f"{path.name} has no constant {name}")
            setattr(module, name, int(value))
    function: Attention = module.kernel_fn
    if options["heads"] != options["kv_heads"]:
        return function
    if options["heads"] != "1":
        mapped: Attention = jax.vmap(function)
        return mapped
    return lambda q, k, v: function(q[0], k[0], v[0])[None]


def _layouts(options: Options, kind: Any) -> tuple[Any, ...]:
    """The layouts of q, k and v as values of the package's enumeration: 1 is head_dim minor, 2 is sequence minor."""
    return tuple({"1": kind.HEAD_DIM_MINOR, "2": kind.SEQ_MINOR}[digit] for digit in options["layouts"])


CONTENDERS = {"flash": flash, "splash": splash, "tokamax": tokamax, "ours": ours}


def compile_contender(chip_name: str, contender: str, options: Options) -> list[dict[str, object]]:
    """Name and VMEM bytes of each Pallas kernel of the contender, compiled now, with operands in default layouts."""
    device = described_device(chip(chip_name))

    def operand(heads: str) -> jax.ShapeDtypeStruct:
        shape = (int(options[heads]), int(options["sequence"]), HEAD_DIM)
        return jax.ShapeDtypeStruct(shape, jnp.bfloat16, sharding=SingleDeviceSharding(device))

    kind = AbstractDevice(device_kind=device.device_kind, num_cores=None, platform="tpu")
    with contextlib.ExitStack() as stack:
        # tokamax asks which chip it compiles for.
        if contender == "tokamax":
            stack.enter_context(jax.sharding.use_abstract_mesh(AbstractMesh((1,), ("x",), abstract_device=kind)))
        function = jax.jit(CONTENDERS[contender](options))
        lowered = function.lower(operand("heads"), operand("kv_heads"), operand("kv_heads"))
        # If a package sets no limit, the limit is raised as a user would raise it.
        limit = {"xla_tpu_scoped_vmem_limit_kib": options[VMEM_KIB]} if VMEM_KIB in options else {}
        compiled = lowered.compile(compiler_options=limit)
    proto = compiled.runtime_executable().hlo_modules()[0].as_serialized_hlo_module_proto()
    return [{"name": body.name, "vmem_bytes": body.vmem_bytes} for body in kernel_bodies(proto)]


def main(directory: Path, dialect: str, chip_name: str, contender: str, *words: str) -> int:
    """Compiles, and leaves KERNELS or REFUSED in `directory`, where the environment also sends the dumps. Returns 0 or
    REFUSES.

    `dialect` is `older` for another compiler than the one that this jax comes with.
    """
    if dialect == "older":
        write_for_older_compilers()
    try:
        kernels = compile_contender(chip_name, contender, dict(word.split("=", 1) for word in words))
    except ImportError:
        raise
    except Exception as error:  # noqa: BLE001  # the border: whatever a package or the compiler says is its refusal
        (directory / REFUSED).write_text(f"{type(error).__name__}: {error}", encoding="utf-8")
        return REFUSES
    (directory / KERNELS).write_text(json.dumps(kernels), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]), *sys.argv[2:]))
