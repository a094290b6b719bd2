"""Compiles published rows through tokamax's own entry points, dumping their schedules: a child of fidelity.py.

    python benchmarks/fidelity_compile.py INTO UNTIL < ROWS.json

Each row is the operation with the published operands and configuration, wrapped as in tokamax's own measurements. When
a row's dump is complete, it is moved to INTO/ROW; if the row fails, the reason is in INTO/ROW/failed.txt. No row is
begun after the time UNTIL, in seconds since 1970.
"""

import contextlib
import functools
import importlib
import json
import os
import shutil
import signal
import sys
import time
import traceback
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from fidelity_rows import OPERATIONS, Row

from harness.judge.simulate import sparse_core

TOPOLOGIES = {"v5e": "v5e:2x2", "v5p": "v5p:2x2x1", "v6e": "v6e:2x2", "v7x": "tpu7x:2x2x1"}
_FLAGS = (
    "--xla_jf_dump_to={directory} --xla_jf_dump_llo_text=true --xla_jf_emit_annotations=true "
    "--xla_jf_dump_llo_pass_label_regex=final_bundles|per-bundle"
)
# Work on the SparseCore has no latency here, so the compared programs are kept on the TensorCore.
ON_TENSORCORE = "".join(f" {flag}" for flag in sparse_core.ON_TENSORCORE)
FAILED = "failed.txt"
# A row that takes longer to compile ends the process, and counts as failed.
_LONGEST_SECONDS = 1800

# A version of the TPU dialect that libtpu 0.0.42.1 reads; it refuses what jax 0.12.0.1 writes by itself.
_OLDER_DIALECT = 13


def environment(directory: Path, library: Path | None = None, flags: str = "") -> dict[str, str]:
    """The environment in which the compiler (at `library`, or the installed libtpu) dumps into `directory`, without a
    TPU.

    `flags` are further compiler flags, each after a space.
    """
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
            "LIBTPU_INIT_ARGS": _FLAGS.format(directory=directory) + flags,
        }
    )


def write_for_older_compilers() -> None:
    """Makes jax write Mosaic programs as older releases of libtpu read them: jax 0.12.0.1 for libtpu 0.0.42.1.

    The program is written as text, because older releases do not know all of today's bytecode; in an older version of
    the TPU dialect; and without the table of source lines, for which they have no field.
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


def _operation(row: Row) -> Any:
    """The row's operation as tokamax has it, without a configuration."""
    module, _, name = OPERATIONS[row.operation].rpartition(".")
    return getattr(importlib.import_module(f"tokamax._src.ops.{module}"), name)(bypass_device_check=True)


# For a product with transposed weights, today's tokamax uses tile_k as the tile of the columns and tile_n as the tile
# of the contraction. The rows of v5p and v6e mean the same. The rows of v5e and v7x are older and mean the reverse:
# read in reverse, the tiles of all rows but one divide the arrays; read as today, most do not.
_OLDER_TILES = ("v5e", "v7x")
_TRANSPOSED_WEIGHTS = [[1], [2]]


def todays_config(row: Row) -> str:
    """The row's configuration in the form of today's tokamax, or the reverse: both swap the same two tile sizes."""
    if row.operation != "pallas_mosaic_tpu_ragged_dot" or row.chip not in _OLDER_TILES:
        return row.config
    numbers = json.loads(row.key)["ragged_dot_dimension_numbers"]["dot_dimension_numbers"]
    config = json.loads(row.config)
    if numbers[0] == _TRANSPOSED_WEIGHTS:
        config["tile_k"], config["tile_n"] = config["tile_n"], config["tile_k"]
    return json.dumps(config)


@contextlib.contextmanager
def problem(row: Row) -> Iterator[tuple[Any, dict[str, Any]]]:
    """The row's operation, without a configuration, and its operands, while tokamax sees the row's chip."""
    import jax
    import numpy as np
    from jax.sharding import AbstractDevice, AbstractMesh
    from tokamax._src.ops import op as tokamax_op

    operation = _operation(row)
    device = _device(TOPOLOGIES[row.chip])
    kind = AbstractDevice(device_kind=device.device_kind, num_cores=device.num_cores, platform="tpu")
    with contextlib.ExitStack() as stack:
        stack.enter_context(jax.sharding.use_abstract_mesh(AbstractMesh((1,), ("x",), abstract_device=kind)))
        spec = tokamax_op._get_arg_spec_adapter(operation)._impl.validate_json(row.key)
        if row.operation == "pallas_mosaic_tpu_ragged_dot" and not isinstance(
            spec["group_sizes"], jax.ShapeDtypeStruct
        ):
            stack.enter_context(_tables_as_constants(np.asarray(spec["group_sizes"].value)))
        yield operation, spec


def compile_row(row: Row) -> None:
    """Compiles the row's operation for its chip, ahead of time, wrapped as tokamax's autotuner wraps it for
    measurements.

    Arrays are parameters in their default layouts. Arrays whose contents decide what is done (group sizes) are
    constants, because the simulator has to see them.
    """
    import jax
    import numpy as np
    import pydantic
    from jax.sharding import SingleDeviceSharding
    from tokamax._src import benchmarking
    from tokamax._src.ops import op as tokamax_op

    with problem(row) as (operation, spec):
        configured = operation
        if type(operation).config_cls is not tokamax_op.NullConfig:
            configured = operation.replace(
                config=pydantic.TypeAdapter(type(operation).config_cls).validate_json(todays_config(row))
            )
        bound = configured.bind(**spec)
        function, arrays = benchmarking.standardize_function(configured, *bound.args, kwargs=bound.kwargs, seed=None)
        is_given = [isinstance(array, np.ndarray | jax.Array) for array in arrays]
        sharding = SingleDeviceSharding(_device(TOPOLOGIES[row.chip]))
        open_ones = [
            jax.ShapeDtypeStruct(array.shape, array.dtype, sharding=sharding)
            for array, is_array in zip(arrays, is_given, strict=True)
            if not is_array
        ]

        def forward(*parameters: Any) -> Any:
            left = iter(parameters)
            return function([a if is_array else next(left) for a, is_array in zip(arrays, is_given, strict=True)])

        jax.jit(forward).lower(*open_ones).compile()


@contextlib.contextmanager
def _tables_as_constants(group_sizes: Any) -> Iterator[None]:
    """Computes the tables of a grouped product's tiles here instead of on the device, from known group sizes.

    On the device XLA computes them before the kernel, on some chips with the SparseCore, which takes some microseconds;
    the simulator would not know their contents.
    """
    import jax
    import jax.numpy as jnp
    import numpy as np
    from tokamax._src.ops.ragged_dot import pallas_mosaic_tpu_kernel as kernel

    original = kernel.make_group_metadata

    thread = ThreadPoolExecutor(1)

    def make_from_known_sizes(**arguments: Any) -> Any:
        full_arguments = arguments | {"group_sizes": group_sizes.astype(np.int32), "start_group": 0}
        # Runs in a separate thread, in which nothing is traced, so that arrays have values.
        return jax.tree.map(
            np.asarray,
            thread.submit(
                lambda: original(**full_arguments | {"group_sizes": jnp.asarray(full_arguments["group_sizes"])})
            ).result(),
        )

    kernel.make_group_metadata = make_from_known_sizes
    try:
        yield
    finally:
        kernel.make_group_metadata = original


@functools.cache
def _device(topology: str) -> Any:
    from jax.experimental import topologies

    return topologies.get_topology_desc(topology_name=topology, platform="tpu").devices[0]


def _main(into: Path, until: float, rows: list[Row]) -> None:
    if "TPU_LIBRARY_PATH" in os.environ:
        write_for_older_compilers()
    # The compiler reads the folder from its flags once, so each row's files are moved out of it.
    scratch = Path(os.environ["LIBTPU_INIT_ARGS"].partition("--xla_jf_dump_to=")[2].partition(" ")[0])
    for row in rows:
        if time.time() > until:
            break
        start = time.monotonic()
        failed = ""
        signal.alarm(_LONGEST_SECONDS)
        try:
            compile_row(row)
        except Exception:  # noqa: BLE001 one row that tokamax or jax refuses must not end the others
            failed = traceback.format_exc()
        signal.alarm(0)
        target = into / f"{row.name}.part"
        shutil.rmtree(target, ignore_errors=True)
        target.mkdir(parents=True)
        for path in scratch.iterdir():
            shutil.move(path, target / path.name)
        (target / "row.json").write_text(json.dumps({"seconds": time.monotonic() - start}), encoding="utf-8")
        if failed:
            (target / FAILED).write_text(failed, encoding="utf-8")
        target.rename(into / row.name)
        print(f"{row.name} {'failed' if failed else 'compiled'} {time.monotonic() - start:.1f} s", flush=True)


if __name__ == "__main__":
    _main(Path(sys.argv[1]), float(sys.argv[2]), [Row(**fields) for fields in json.load(sys.stdin)])
