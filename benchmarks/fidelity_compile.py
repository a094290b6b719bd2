"""Compiles one row of the published measurements with tokamax, dumping its schedules: a child of fidelity.py."""

import contextlib
import os
import sys
from pathlib import Path
from typing import Any

TOPOLOGIES = {"v5p": "v5p:2x2x1", "v6e": "v6e:2x2", "v7x": "tpu7x:2x2x1"}
_FLAGS = (
    "--xla_jf_dump_to={directory} --xla_jf_dump_llo_text=true --xla_jf_emit_annotations=true "
    "--xla_jf_dump_llo_pass_label_regex=final_bundles|per-bundle"
)

# A version of the TPU dialect that libtpu 0.0.42.1 reads; it refuses what jax 0.12.0.1 writes by itself.
_OLDER_DIALECT = 13


def environment(directory: Path, library: Path | None = None) -> dict[str, str]:
    """The environment in which the compiler (`library`, if not the own one) dumps into `directory`, without a TPU."""
    chosen = {} if library is None else {"TPU_LIBRARY_PATH": str(library)}
    return (
        os.environ
        | chosen
        | {
            "JAX_PLATFORMS": "cpu",
            "TPU_SKIP_MDS_QUERY": "1",
            "TPU_ACCELERATOR_TYPE": "v5litepod-1",
            "TPU_WORKER_HOSTNAMES": "localhost",
            "ALLOW_MULTIPLE_LIBTPU_LOAD": "1",
            "LIBTPU_INIT_ARGS": _FLAGS.format(directory=directory),
        }
    )


def write_for_older_compilers() -> None:
    """Makes jax write Mosaic programs as older releases of libtpu read them. Found with jax 0.12.0.1, libtpu 0.0.42.1.

    As text, because they do not know all of today's bytecode; in an older version of the TPU
    dialect; without the table of source lines, for which they have no field.
    """
    import jax
    from jax._src import tpu_custom_call
    from jax._src.interpreters import mlir
    from jax._src.lib.mlir import ir

    config = tpu_custom_call.CustomCallBackendConfig
    to_json = config.to_json

    def as_text(self: Any, *arguments: Any, **options: Any) -> bytes:
        with mlir.make_ir_context() as context, ir.Location.unknown():
            context.allow_unregistered_dialects = True
            module = ir.Module.parse(self.lowered_module_asm)
            text = module.operation.get_asm(print_generic_op_form=True, enable_debug_info=False)
        object.__setattr__(self, "lowered_module_asm", text.encode())
        written: bytes = to_json(self, *arguments, **options)
        return written

    config.to_json = as_text
    tpu_custom_call.get_ir_version = lambda _: _OLDER_DIALECT
    jax.config.update("jax_mosaic_unzip_debug_locations", False)


def compile_row(chip: str, row: dict[str, str]) -> None:
    """Compiles the splash attention of one row for `chip`, ahead of time: inputs in their default layouts."""
    import jax
    import jax.numpy as jnp
    from jax.experimental import topologies
    from jax.sharding import AbstractDevice, AbstractMesh, SingleDeviceSharding
    from tokamax._src.ops.experimental.tpu.splash_attention import base, pallas_mosaic_tpu

    device = topologies.get_topology_desc(topology_name=TOPOLOGIES[chip], platform="tpu").devices[0]
    layouts = (pallas_mosaic_tpu.QKVLayout.HEAD_DIM_MINOR, pallas_mosaic_tpu.QKVLayout.SEQ_MINOR)
    query, key, value = (layouts[int(digit) - 1] for digit in row["layouts"])
    config = pallas_mosaic_tpu.Config(
        block_q=int(row["block_q"]),
        block_kv=int(row["block_kv"]),
        block_kv_compute=int(row["block_kv_compute"]),
        q_layout=query,
        k_layout=key,
        v_layout=value,
        use_experimental_scheduler=row["exp_sched"] == "1",
    )
    attention = pallas_mosaic_tpu.PallasMosaicTpuSplashAttention(config=config, bypass_device_check=True)
    mask = base.CAUSAL_MASK if row["causal"] == "1" else base.FULL_MASK
    batch, length = int(row["B"]), int(row["S"])

    def operand(heads: str, width: str) -> jax.ShapeDtypeStruct:
        single = (int(row[heads]), length, int(row[width]))
        shape = single if batch == 1 else (batch, *single)
        return jax.ShapeDtypeStruct(shape, jnp.bfloat16, sharding=SingleDeviceSharding(device))

    def one(q: jax.Array, k: jax.Array, v: jax.Array) -> jax.Array:
        return attention(q, k, v, mask=mask, return_residuals=False)

    kind = AbstractDevice(device_kind=device.device_kind, num_cores=None, platform="tpu")
    with contextlib.ExitStack() as stack:
        stack.enter_context(jax.sharding.use_abstract_mesh(AbstractMesh((1,), ("x",), abstract_device=kind)))
        function = jax.jit(one if batch == 1 else jax.vmap(one))
        function.lower(operand("Hq", "Dqk"), operand("Hkv", "Dqk"), operand("Hkv", "Dv")).compile()


if __name__ == "__main__":
    if "TPU_LIBRARY_PATH" in os.environ:
        write_for_older_compilers()
    compile_row(sys.argv[1], dict(word.split("=", 1) for word in sys.argv[2:]))
