"""Prints the time of TPU interpret mode on a kernel that copies page by page, with JAX's bookkeeping and with ours.

    .venv/bin/python benchmarks/interpreter_speed.py [--pages 256,512,1024]

Each run starts one copy for each page of a row, waits for all of them, and adds the pages; rows have 64 pages. Both
runs are made one after the other in this process, so their ratio hardly depends on the machine. Times include the
compilation of the interpreted program.
"""

import argparse
import contextlib
import time

import jax
import jax.numpy as jnp
import numpy as np
from jax.experimental import pallas as pl
from jax.experimental.pallas import tpu as pltpu
from tabulate import tabulate

from harness.hardware import chip
from harness.judge.evaluate.interpret import interpretation, transfers
from harness.judge.evaluate.interpret.quick_interpreter import quick_interpreter

PAGES_OF_A_ROW, PAGE = 64, (8, 128)


def added(x: jax.Array) -> jax.Array:
    """The sum [rows, 8, 128] over the pages of each row of x [rows, 64, 8, 128]."""

    def kernel(x_hbm: jax.Ref, o_ref: jax.Ref, pages: jax.Ref, arrived: jax.Ref) -> None:
        row = pl.program_id(0)
        copies = [pltpu.make_async_copy(x_hbm.at[row, page], pages.at[page], arrived) for page in range(PAGES_OF_A_ROW)]
        for copy in copies:
            copy.start()
        for copy in copies:
            copy.wait()
        o_ref[...] = pages[...].sum(axis=0)

    return pl.pallas_call(
        kernel,
        out_shape=jax.ShapeDtypeStruct((x.shape[0], *PAGE), x.dtype),
        grid=(x.shape[0],),
        in_specs=[pl.BlockSpec(memory_space=pl.ANY)],
        out_specs=pl.BlockSpec((None, *PAGE), lambda row: (row, 0, 0)),
        scratch_shapes=[pltpu.VMEM((PAGES_OF_A_ROW, *PAGE), x.dtype), pltpu.SemaphoreType.DMA],
    )(x)


def seconds(rows: int, *, is_quick: bool) -> float:
    """The wall time of one interpreted run over this number of rows. Raises AssertionError if a sum is wrong."""
    v5e = chip("v5e")
    x = np.arange(rows * PAGES_OF_A_ROW * 8 * 128, dtype=np.float32).reshape(rows, PAGES_OF_A_ROW, *PAGE) % 7
    parameters = interpretation.checking_parameters(v5e, rows, transfers.MOST_UNDER_WAY[-1])
    program = interpretation.runnable(jax.make_jaxpr(added)(x), parameters, v5e)
    began = time.monotonic()
    with quick_interpreter() if is_quick else contextlib.nullcontext(), transfers.transfers_end("last"):
        (out,) = jax.block_until_ready(jax.jit(program)(jnp.asarray(x)))
    wall_seconds = time.monotonic() - began
    interpretation.reset()
    assert np.array_equal(out, x.sum(axis=1))
    return wall_seconds


def main() -> None:
    """Prints one row for each number of pages."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--pages", default="256,512,1024", help=f"multiples of {PAGES_OF_A_ROW}")
    table = []
    for pages in map(int, parser.parse_args().pages.split(",")):
        with_jax, ours = (seconds(pages // PAGES_OF_A_ROW, is_quick=is_quick) for is_quick in (False, True))
        table.append((f"{pages:,}", f"{with_jax:.1f} s", f"{ours:.1f} s", f"{with_jax / ours:.1f}"))
    print(tabulate(table, ("pages", "JAX's bookkeeping", "ours", "ratio"), colalign=("right",) * 4))


if __name__ == "__main__":
    main()
