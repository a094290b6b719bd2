"""Prints how fewer fusions change the CPU programs of the checks: compile time, run time and outputs.

.venv/bin/python benchmarks/cpu_fusions.py [template:BQ/BKV | FOLDER ...]

Measures CPU seconds on this machine, for each kernel's program at the contest's own shape: with XLA's default settings,
and with those of `environment.checking` for large programs. A verdict compiles two such programs, and runs the program
of the full shape two or three times.
"""

import argparse
import os
import pickle
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
from tabulate import tabulate
from time_to_verdict import contest_of, judge

from harness.operators.suite import Suite
from harness.sandbox import environment

_RUNS = 3
_MANY_OPERATIONS = 10**9


def measured(artifact: Path, inputs: Path, outputs: Path) -> tuple[float, float]:
    """Seconds to compile the program and to run it. The program's first output is written to `outputs` as float32."""
    import jax

    values = pickle.loads(inputs.read_bytes())
    lowered = jax.jit(jax.export.deserialize(bytearray(artifact.read_bytes())).call).lower(*values)
    began = time.process_time()
    program = lowered.compile()
    compiled = time.process_time()
    for _ in range(_RUNS):
        results = jax.block_until_ready(program(*values))
    done = time.process_time()
    np.save(outputs, np.asarray(jax.tree.leaves(results)[0]).astype(np.float32))
    return compiled - began, (done - compiled) / _RUNS


def main() -> None:
    """Judges each kernel once to get its program, then runs the program with each setting, in a separate process."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("kernels", nargs="*", default=("template:2048/1024", "."), metavar="KERNEL")
    parser.add_argument("--program", nargs=3, type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.program:
        print(*measured(*options.program))
        return
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        for place, name in enumerate(options.kernels):
            contest, kernel = contest_of(name, Path(folder) / str(place), None)
            problem = contest.problem
            if isinstance(problem, Suite):
                parser.error(f"expected contests of one problem, got the suite in {name}")
            judge(contest, kernel, "work", rejected=False)
            artifact, inputs = contest.directory / "profile_data" / "work" / "candidate.cpu", Path(folder) / "inputs"
            family = problem.families(full=True)[0]
            inputs.write_bytes(pickle.dumps(problem.make_inputs(family, 1)))
            times: list[list[float]] = []
            outputs = []
            for settings in (environment.checking(0), environment.checking(_MANY_OPERATIONS)):
                path = Path(folder) / f"outputs-{len(times)}.npy"
                command = [sys.executable, __file__, "--program", str(artifact), str(inputs), str(path)]
                paths = {"PYTHONPATH": os.pathsep.join((settings["PYTHONPATH"], str(Path(__file__).parent)))}
                done = subprocess.run(command, env={**settings, **paths}, capture_output=True, text=True, check=True)
                times.append([float(seconds) for seconds in done.stdout.split()])
                outputs.append(np.load(path))
            (compile_before, run_before), (compile_after, run_after) = times
            rows.append(
                [
                    f"{name} on {contest.chip.name}",
                    f"{compile_before:.2f}",
                    f"{compile_after:.2f}",
                    f"{run_before:.2f}",
                    f"{run_after:.2f}",
                    f"{np.mean(outputs[0] != outputs[1]):.2%}",
                ]
            )
    headers = ["kernel", "compile, s", "with fewer", "run, s", "with fewer", "outputs that differ"]
    print(f"seconds of CPU measured on this machine, {environment.cores()} cores")
    print(tabulate(rows, headers=headers, disable_numparse=True, colalign=("left",)))


if __name__ == "__main__":
    main()
