"""JAX's own attention beside kernel.py: how far the vendor's kernel is ahead, by the host's clock. Judges nothing.

python peer.py           cuDNN's kernel and kernel.py in turn, on the GPU that JAX sees
python peer.py --on cpu  XLA's attention alone, on this CPU: for development of this script
"""

import argparse
import statistics
import sys
import time
from pathlib import Path

import jax
import numpy as np

from harness.contest import load
from harness.operators import check
from harness.units import decimal, milliseconds

FAMILY, SEED = "composite", 1
ROUNDS = {"gpu": 30, "cpu": 3}


def main() -> int:
    """0, or 1 where an output is wrong."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--on", choices=["cpu", "gpu"], default="gpu")
    on = parser.parse_args().on
    try:
        device = jax.devices(on)[0]
    except RuntimeError as error:
        print(f"peer: expected a {on}, JAX has none: {error}", file=sys.stderr)
        return 4
    problem = load(Path(__file__).parent).problem
    inputs = problem.make_inputs(FAMILY, SEED)
    # Each in the layout that its function takes, so that nobody is timed for a transposition.
    heads_first = [jax.device_put(array, device) for array in inputs]
    sequence_first = [jax.device_put(np.swapaxes(array, 0, 1)[None], device) for array in inputs]
    implementation = "cudnn" if on == "gpu" else "xla"

    def attend(q, k, v):
        return jax.nn.dot_product_attention(
            q, k, v, scale=problem.scale, is_causal=problem.causal, implementation=implementation
        )

    contestants = {f"jax.nn.dot_product_attention, {implementation}": (jax.jit(attend), sequence_first)}
    if on == "gpu":
        import kernel

        contestants["kernel.py"] = (jax.jit(kernel.kernel_fn), heads_first)
    wrong = 0
    for name, (function, arrays) in contestants.items():
        output = np.asarray(jax.block_until_ready(function(*arrays)))
        if output.ndim == 4:
            output = np.swapaxes(output[0], 0, 1)
        found, failure = check(problem, inputs, output, family=FAMILY, mode="device", seed=SEED)
        if failure is not None:
            wrong += 1
            print(f"{name}: {failure.message}")
        else:
            print(f"{name}: error {found.error:.2e} of {found.tolerance:.2e} allowed against float64")
    seconds = {name: [] for name in contestants}
    for _ in range(ROUNDS[on]):
        for name, (function, arrays) in contestants.items():
            before = time.perf_counter()
            jax.block_until_ready(function(*arrays))
            seconds[name].append(time.perf_counter() - before)
    for name, taken in seconds.items():
        median = statistics.median(taken)
        rate = decimal(problem.statement().work.flops / median, "FLOP/s")
        told = f"{milliseconds(median)}, {rate} useful, host clock, median of {len(taken)}"
        print(f"{name}: {told} [measured {device.device_kind}]")
    return 1 if wrong else 0


if __name__ == "__main__":
    raise SystemExit(main())
