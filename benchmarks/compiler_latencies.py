"""Compares the latency of each unit in the TPU compiler's own schedules with the simulator's constants.

    uv pip install -e '.[bench]' && python benchmarks/compiler_latencies.py

Small kernels, in which each operation waits for the previous one, are compiled for every chip. Their schedules are read
after `packed-bundles-post-ra`, the last pass that keeps empty bundles (the hardware's interlocks make them
unnecessary). In these schedules the smallest number of bundles between two operations is the latency. Prints one line
for each figure, and exits with 1 if a figure differs from the rows of harness/chips.
"""

import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import fidelity_compile

from harness.hardware import TPUS, chip
from harness.judge.simulate.machine import machine_of

_PASS = "packed-bundles-post-ra"
_BUNDLE = re.compile(r"\s*(?:0x)?([0-9a-f]+) +: .*?\{(.*)\}")
_OPCODE = re.compile(r"(?:^|= ?)\s*(v[\w.\[\]]+)")

# Float32 pushes only: v4 and v7x convert the operand to bfloat16 first, so they have none.
_PUSHES_FLOAT32 = r"vmatpush\d?(\.xpose)?\.ms.*mxu0"
# Kernel, first operation, second operation, and field of the machine. If both operations are of one kind, the distance
# of the nearest two counts.
_FIGURES = (
    ("sum", r"\.xlane\..*xlu0", r"vpop\.xlane\.xlu0", "reduce_latency_cycles"),
    ("roll", r"vrot\.lane.*xlu0", r"vpop\.permute\.xlu0", "permute_latency_cycles"),
    ("broadcast", r"vperm.*xlu0", r"vpop\.permute\.xlu0", "permute_latency_cycles"),
    ("transpose", r"vxpose\.xlu0.*\.end", r"vpop\.trf\.xlu0", "transpose_latency_cycles"),
    ("transpose", r"vxpose\.xlu0.*\.cont", r"vxpose\.xlu0.*\.cont", "xlu_cycles"),
    ("transpose16", r"vxpose\.xlu0.*\.end", r"vpop\.trf\.xlu0", "transpose_packed_latency_cycles"),
    ("transpose16", r"vxpose\.xlu0.*\.cont", r"vxpose\.xlu0.*\.cont", "transpose_packed_cycles"),
    ("exp", r"vexp2", r"vpop\.eup", "eup_latency_cycles"),
    ("matmul", r"vmatpush.*mxu0", r"vmatpush.*mxu0", "push_cycles"),
    ("matmul_transposed", r"vmatpush.*mxu0", r"vmatpush.*mxu0", "push_transposed_cycles"),
    ("matmul32", _PUSHES_FLOAT32, _PUSHES_FLOAT32, "push_float32_cycles"),
    ("matmul32_transposed", _PUSHES_FLOAT32, _PUSHES_FLOAT32, "push_float32_transposed_cycles"),
    ("matmul", r"vmatmul.*mxu0", r"vmatmul.*mxu0", "cycles of a matmul of 16 rows"),
    ("matmul", r"vmatmul.*mxu0", r"vpop\..*mxu0", "matmul_latency_cycles"),
    ("matmul8", r"vmatmul.*mxu0", r"vmatmul.*mxu0", "cycles of a matmul of 8-bit values"),
    ("matmul8", r"vmatmul.*mxu0", r"vpop\..*mxu0", "matmul_narrow_latency_cycles"),
)


def expected(chip_name: str, field: str) -> float:
    """The simulator's value of `field`."""
    machine = machine_of(chip(chip_name))
    if field == "cycles of a matmul of 16 rows":
        return 16 / machine.matmul_rows_per_cycle
    if field == "cycles of a matmul of 8-bit values":
        return 32 / machine.matmul_rows_per_cycle / machine.narrow_rate
    return float(getattr(machine, field))


def compile_kernels(chip_name: str) -> None:
    """Compiles all kernels for the chip, in a child process whose flags say where the compiler dumps."""
    import jax
    import jax.numpy as jnp
    from jax.experimental import pallas as pl
    from jax.experimental.pallas import tpu as pltpu
    from jax.sharding import SingleDeviceSharding

    from harness.judge.evaluate.compile.topology import described_device

    sharding = SingleDeviceSharding(described_device(chip(chip_name)))
    bfloat16, float32 = jnp.bfloat16, jnp.float32

    def compiled(name: str, body: Any, shapes: list[tuple[int, int]], dtype: Any, out: Any) -> None:
        def kernel(*refs: Any) -> None:
            refs[-1][...] = body(*(ref[...] for ref in refs[:-1]))

        result = jax.eval_shape(body, *(jax.ShapeDtypeStruct(shape, dtype) for shape in shapes))
        arguments = [jax.ShapeDtypeStruct(shape, dtype, sharding=sharding) for shape in shapes]
        call = pl.pallas_call(kernel, out_shape=jax.ShapeDtypeStruct(result.shape, out), name=f"{name}_kernel")
        jax.jit(call).lower(*arguments).compile()

    def chained(name: str, step: Any, shape: tuple[int, int], dtype: Any = float32) -> None:
        def body(x: Any) -> Any:
            y = x
            for _ in range(3):
                y = step(y, x)
            return y

        compiled(name, body, [shape], dtype, dtype)

    def product(name: str, dtype: Any, out: Any, *, transposed: bool = False) -> None:
        dimensions = (((1,), (1 if transposed else 0,)), ((), ()))
        compiled(
            name,
            lambda a, b: jax.lax.dot_general(a, b, dimensions, preferred_element_type=out),
            [(256, 256), (256, 256)],
            dtype,
            out,
        )

    chained("sum", lambda y, x: x * jnp.sum(y, axis=1, keepdims=True), (8, 128))
    chained("roll", lambda y, x: x + pltpu.roll(y, 3, 1), (8, 128))
    chained("broadcast", lambda y, x: x * jnp.broadcast_to(y[:, 3:4], y.shape), (8, 128))
    chained("transpose", lambda y, x: x + y.T, (128, 128))
    chained("transpose16", lambda y, x: x + y.T, (128, 128), bfloat16)
    chained("exp", lambda y, x: x + jnp.exp(y), (8, 128))
    product("matmul", bfloat16, float32)
    product("matmul_transposed", bfloat16, float32, transposed=True)
    product("matmul32", float32, float32)
    product("matmul32_transposed", float32, float32, transposed=True)
    if chip(chip_name).peak_int8_ops_per_second:
        product("matmul8", jnp.int8, jnp.int32)
    elif chip(chip_name).peak_fp8_flops_per_second:
        product("matmul8", jnp.float8_e4m3fn, float32)


def operations(text: str) -> Iterator[tuple[int, str]]:
    """The bundle number and the opcode of each vector operation in a schedule."""
    for line in text.splitlines():
        bundle = _BUNDLE.match(line)
        if bundle is None:
            continue
        for part in bundle[2].split(";;"):
            opcode = _OPCODE.search(part.strip())
            if opcode is not None:
                yield int(bundle[1], 16), opcode[1]


def fewest(bundle_operations: list[tuple[int, str]], first: str, second: str) -> int | None:
    """The smallest number of bundles from an operation of the kind `first` to a later one of the kind `second`."""
    ones = [number for number, opcode in bundle_operations if re.search(first, opcode)]
    if first == second:
        return min((b - a for a, b in pairwise(ones)), default=None)
    others = [number for number, opcode in bundle_operations if re.search(second, opcode)]
    return others[0] - ones[0] if ones and others else None


def main() -> int:
    """Compiles for all chips and prints the figures; 1 if one differs."""
    if len(sys.argv) > 1:
        compile_kernels(sys.argv[1])
        return 0
    differing = 0
    for name in (tpu.name for tpu in TPUS):
        with tempfile.TemporaryDirectory() as folder:
            environment = fidelity_compile.environment(Path(folder))
            flags = environment["LIBTPU_INIT_ARGS"].replace("final_bundles|per-bundle", _PASS)
            environment = os.environ | environment | {"LIBTPU_INIT_ARGS": flags}
            subprocess.run([sys.executable, __file__, name], env=environment, check=True)
            for kernel, first, second, field in _FIGURES:
                texts = [
                    path for path in Path(folder).glob(f"*-{kernel}_kernel*-{_PASS}.txt") if "analysis" not in path.name
                ]
                bundle_operations = list(operations(texts[0].read_text(encoding="utf-8"))) if texts else []
                cycles = fewest(bundle_operations, first, second)
                if cycles is None:
                    continue
                believed = expected(name, field)
                differing += cycles != believed
                difference = "" if cycles == believed else f", the simulator has {believed:g}"
                print(f"{name:4} {kernel:18} {field:34} {cycles:4} cycles{difference}")
    return int(differing > 0)


if __name__ == "__main__":
    sys.exit(main())
