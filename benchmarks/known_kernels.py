"""Other people's attention kernels through the simulator: JAX's flash and splash attention, tokamax's, on four chips.

    .venv/bin/python benchmarks/known_kernels.py [--chips v5e,v6e] [--sequence 4096] [--heads 8]

Compiled by the real TPU compiler, full and causal, head_dim 128, bfloat16; nothing is measured,
and no published time goes in. It shows that `simulate` reads schedules it was not written for,
and that what comes out is physically possible. A kernel whose package is missing is left out,
and said so. Dumps are kept in benchmarks/.cache.
"""

import argparse
import os
import subprocess
import sys
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

from fidelity_compile import environment
from tabulate import tabulate

from harness import units
from harness.advice.dumped import read
from harness.hardware import Chip, chip
from harness.judge.simulate.module import impossibilities, run_module
from harness.records import Simulation

HERE = Path(__file__).parent
CACHE = HERE / ".cache" / "known"
KERNELS = ("flash", "splash", "tokamax")
HEAD_DIM = 128


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """One kernel at one shape on one chip."""

    kernel: str
    chip: Chip
    causal: bool
    heads: int
    sequence: int

    @property
    def matmul_flops(self) -> int:
        """Useful ones: two matmuls over the pairs that are not masked."""
        pairs = self.sequence * (self.sequence + 1) // 2 if self.causal else self.sequence**2
        return 4 * pairs * HEAD_DIM * self.heads

    @property
    def words(self) -> list[str]:
        """As the compiling child gets it."""
        return [self.kernel, self.chip.name, "causal" if self.causal else "full", str(self.heads), str(self.sequence)]


def dumped(case: Case) -> Path:
    """The directory with the case's schedules, compiled now unless they are kept. Raises CalledProcessError."""
    directory = CACHE / "-".join(case.words)
    if not any(directory.glob("*-TLP-*final_bundles.txt")):
        directory.mkdir(parents=True, exist_ok=True)
        subprocess.run(
            [sys.executable, str(HERE / "known_kernels_compile.py"), *case.words],
            env=environment(directory) | {"PYTHONPATH": os.pathsep.join(sys.path)},
            check=True,
            capture_output=True,
            text=True,
        )
    return directory


def row(case: Case) -> list[str]:
    """One line of the table."""
    head = [case.chip.name, case.kernel, "causal" if case.causal else "full"]
    try:
        directory = dumped(case)
    except subprocess.CalledProcessError as error:
        return [*head, f"not compiled: {error.stderr.strip().splitlines()[-1][:90]}"]
    simulation = run_module(read(directory, case.chip), case.chip, deadline_seconds=600)
    if simulation.seconds is None:
        return [*head, f"no latency: {simulation.unknown[0]}"]
    return [*head, *_figures(case, simulation)]


def _figures(case: Case, simulation: Simulation) -> list[str]:
    assert simulation.seconds is not None
    assert simulation.cycles is not None
    assert simulation.plus_minus_seconds is not None
    useful = case.matmul_flops / simulation.seconds / case.chip.peak_bf16_flops_per_second
    busy = next((unit.busy_cycles for unit in simulation.units if unit.name == "MXU"), None)
    moved = simulation.hbm_read_bytes + simulation.hbm_written_bytes
    wrong = [*impossibilities(simulation, case.chip)]
    wrong += [f"useful work at {units.percent(useful)} of peak"] if useful > 1 else []
    return [
        units.seconds(simulation.seconds),
        units.seconds(simulation.plus_minus_seconds),
        units.percent(useful),
        "unknown" if busy is None else units.percent(busy / simulation.cycles),
        units.percent(moved / simulation.seconds / case.chip.hbm_bytes_per_second),
        str(len(simulation.unknown)),
        "; ".join(wrong) or "yes",
    ]


def main() -> int:
    """Prints the table; exit code 1 if anything in it is impossible, has no latency or did not compile."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--chips", default="v5e,v5p,v6e,v7x")
    parser.add_argument("--heads", type=int, default=8)
    parser.add_argument("--sequence", type=int, default=4096)
    given = parser.parse_args()
    kernels = [name for name in KERNELS if name != "tokamax" or find_spec("tokamax")]
    if "tokamax" not in kernels:
        print("tokamax is not installed (Python 3.12 and `pip install -e '.[bench]'`): left out", file=sys.stderr)
    cases = [
        Case(kernel=kernel, chip=chip(name), causal=causal, heads=given.heads, sequence=given.sequence)
        for name in given.chips.split(",")
        for kernel in kernels
        for causal in (False, True)
    ]
    table = []
    for number, case in enumerate(cases, 1):
        print(f"{number}/{len(cases)} {' '.join(case.words)}", file=sys.stderr, flush=True)
        table.append(row(case))
    print(f"{given.heads} heads, sequence {given.sequence}, head_dim {HEAD_DIM}, bfloat16; all times simulated")
    headers = ["chip", "kernel", "mask", "time", "+/-", "useful MXU", "MXU busy", "HBM", "not understood", "possible"]
    print(tabulate(table, headers=headers, disable_numparse=True))
    return 0 if all(line[-1] == "yes" for line in table) else 1


if __name__ == "__main__":
    sys.exit(main())
