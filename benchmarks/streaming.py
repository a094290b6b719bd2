"""Programs that only move bytes, simulated: a copy, a reduction and an RMSNorm, against the chip's bandwidth.

    .venv/bin/python benchmarks/streaming.py [--chips v5e,v6e]

The programs are XLA's own, for an array of 16384 x 4096 bfloat16, compiled by the real TPU compiler; nothing is
measured. They are bound by memory and should reach between 70 and 100 % of the chip's published bandwidth: more is
impossible, and less means that the simulator's transfers are too slow.
"""

import argparse
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

from fidelity_compile import environment
from tabulate import tabulate

from harness import units
from harness.advice.dump_directory import read
from harness.hardware import chip
from harness.judge.simulate.module import run_module

CACHE = Path(__file__).parent / ".cache" / "streaming"
ROWS, COLUMNS = 16384, 4096
# XLA makes two passes over its argument for the RMSNorm.
PROGRAMS = ("copy", "reduction", "rmsnorm")
LEAST, MOST = 0.70, 1.00


def compile_one(name: str, chip_name: str) -> None:
    """Compiles the program for the chip; the environment says where the dumps go."""
    import jax
    import jax.numpy as jnp
    from jax.sharding import SingleDeviceSharding

    from harness.judge.evaluate.compile.topology import described_device

    def rmsnorm(x: jax.Array) -> jax.Array:
        wide = x.astype(jnp.float32)
        return (wide * jax.lax.rsqrt(jnp.mean(wide * wide, axis=1, keepdims=True) + 1e-6)).astype(x.dtype)

    programs: dict[str, Callable[[jax.Array], jax.Array]] = {
        "copy": jnp.copy,
        "reduction": lambda x: jnp.sum(x, axis=1, dtype=jnp.float32),
        "rmsnorm": rmsnorm,
    }
    device = described_device(chip(chip_name))
    operand = jax.ShapeDtypeStruct((ROWS, COLUMNS), jnp.bfloat16, sharding=SingleDeviceSharding(device))
    jax.jit(programs[name]).lower(operand).compile()


def simulated(name: str, chip_name: str) -> tuple[float, int, int]:
    """Seconds, bytes moved from and to HBM, and the number of things that were not understood.

    Raises CalledProcessError if the program does not compile, ValueError if it has no latency.
    """
    directory = CACHE / f"{name}-{chip_name}"
    if not any(directory.glob("*-TLP-*final_bundles.txt")):
        directory.mkdir(parents=True, exist_ok=True)
        command = [sys.executable, __file__, "--compile", name, "--chips", chip_name]
        paths = {"PYTHONPATH": os.pathsep.join(sys.path)}
        subprocess.run(command, env=environment(directory) | paths, check=True, capture_output=True)
    target = chip(chip_name)
    simulation = run_module(read(directory, target), target)
    if simulation.seconds is None:
        raise ValueError(f"{name} on {chip_name} has no latency: {simulation.unknown[0]}")
    return simulation.seconds, simulation.hbm_read_bytes + simulation.hbm_written_bytes, len(simulation.unknown)


def main() -> int:
    """Prints the table; exit code 1 if a share is outside the plausible range."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--chips", default="v5e,v5p,v6e,v7x")
    parser.add_argument("--compile", default=None, choices=PROGRAMS, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.compile:
        compile_one(options.compile, options.chips)
        return 0
    table = []
    is_plausible = True
    for chip_name in options.chips.split(","):
        for name in PROGRAMS:
            seconds, moved, unknown = simulated(name, chip_name)
            part = moved / seconds / chip(chip_name).hbm_bytes_per_second
            is_plausible &= LEAST <= part <= MOST
            verdict = "yes" if LEAST <= part <= MOST else "no"
            table.append(
                [
                    chip_name,
                    name,
                    units.decimal(moved, "B"),
                    units.seconds(seconds),
                    units.percent(part),
                    unknown,
                    verdict,
                ]
            )
    print(f"{ROWS} x {COLUMNS} bfloat16; all times simulated")
    headers = ["chip", "program", "moved", "time", "of the bandwidth", "not understood", "70 to 100 %"]
    print(tabulate(table, headers=headers, disable_numparse=True))
    return 0 if is_plausible else 1


if __name__ == "__main__":
    sys.exit(main())
