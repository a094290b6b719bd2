"""Compiles and simulates settings of one kernel in one process: a child of search_cost.py.

    python benchmarks/search_cost_grid.py CHIP < JOB.json

A line of JSON on stdout for each setting, in order: its simulated seconds, or null, and why. The environment says where
the compiler dumps (fidelity_compile.environment).
"""

import contextlib
import json
import os
import shutil
import signal
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jax
import numpy as np
from jax.sharding import SingleDeviceSharding

from harness.advice.dump_directory import read
from harness.candidate import Candidate
from harness.hardware import chip as chip_named
from harness.judge.evaluate.compile.topology import described_device
from harness.judge.simulate.module import run_module

# A setting that takes longer has no time.
_LONGEST_SECONDS = 180


class _TooLongError(Exception):
    """A setting that takes too long."""


def main(chip_name: str) -> None:
    """Times every setting of the job on stdin: `kernel`, `inputs` ([name, shape, dtype]), `tables`, `settings`."""
    job = json.load(sys.stdin)
    chip = chip_named(chip_name)
    dumps = Path(os.environ["LIBTPU_INIT_ARGS"].partition("--xla_jf_dump_to=")[2].partition(" ")[0])
    device = described_device(chip)
    place = SingleDeviceSharding(device)
    inputs = [jax.ShapeDtypeStruct(shape, dtype, sharding=place) for _, shape, dtype in job["inputs"]]
    tables = {name: np.asarray(values, dtype) for name, dtype, values in job["tables"]}
    for settings in job["settings"]:
        shutil.rmtree(dumps)
        dumps.mkdir()
        seconds, why = None, ""
        try:
            with _alarm():
                kernel: dict[str, Any] = {"__name__": "kernel"}
                exec(Candidate(text=job["kernel"].encode()).set(tuple(map(tuple, settings))).text, kernel)
                jax.jit(kernel["kernel_fn"]).lower(*inputs).compile()
                # One run suffices: the deciding contents are the same in all simulated tables.
                simulation = run_module(
                    read(dumps, chip), chip, deadline_seconds=_LONGEST_SECONDS, operands=tables, with_lines=False
                )
            seconds = simulation.seconds
            why = "" if seconds is not None else simulation.unknown[0]
        except _TooLongError:
            why = f"longer than {_LONGEST_SECONDS} s"
        except Exception as error:  # noqa: BLE001  # the border: whatever jax or the compiler says of a setting
            why = next((line for line in str(error).splitlines() if line.strip()), type(error).__name__)
        print(json.dumps({"settings": settings, "seconds": seconds, "why": why[:200]}), flush=True)


@contextlib.contextmanager
def _alarm() -> Iterator[None]:
    def ring(*_: object) -> None:
        raise _TooLongError

    signal.signal(signal.SIGALRM, ring)
    signal.alarm(_LONGEST_SECONDS)
    try:
        yield
    finally:
        signal.alarm(0)


if __name__ == "__main__":
    main(sys.argv[1])
