"""Compares the work of the scored program with that of the checked program, by counts that both programs have.

The checked program (the CPU reference) and the scored program (compiled for the TPU and simulated) are made from one
trace, but are two files.
"""

import math
import re

from harness.judge.verdict.roofline import finished_run
from harness.records import Evidence, Failure

# The least share of the useful matmul FLOPs that a program must execute. The simulator counts whole tiles of the matrix
# unit, so an honest program executes at least all of them, except products of blocks that the compiler finds constant.
_FEWEST = 0.99
# The most elements that one operation of the exponential unit computes: a register of 8 x 128 words of two bfloat16.
ELEMENTS_OF_AN_EXPONENTIAL = 2048


def failure(evidence: Evidence) -> Failure | None:
    """The Failure `static`, `program-differs` if the compiled program lacks work of the checked program, else None.

    - Only missing matrix products, exponentials and transfers count, because no compiler leaves them out, and a kernel
      that passed the checks needs them.
    - The program needs only as many exponentials as the trace has, because a kernel may compute them in another way.
    - Additional work is allowed: unrolled loops, partly filled tiles, pipelines inside the kernel and several passes
      for float32 all add work.
    - Unknown counts are ignored. Products and exponentials are also ignored if the trace has fewer FLOPs than the
      useful matmul FLOPs, because such a trace has loops with unknown trip counts.
    """
    trace, work = evidence.trace, evidence.problem.work
    if trace is None:
        return None
    lacking = _lacking_transfers(evidence)
    if work.matmul_flops <= trace.pallas_flops:
        lacking += [*_lacking_products(evidence), *_lacking_exponentials(evidence)]
    if not lacking:
        return None
    message = (
        f"the compiled program does less than the program that was checked: {' and '.join(lacking)}; the trace has "
        f"{trace.pallas_flops:,} FLOPs in Pallas calls, and the problem needs {work.matmul_flops:,} in matmuls and "
        f"at least {work.minimum_hbm_bytes:,} bytes of HBM traffic; if a right kernel needs less, correct the "
        "problem's work()"
    )
    return Failure(stage="static", kind="program-differs", message=message)


def _lacking_transfers(evidence: Evidence) -> list[str]:
    """Sentences on outputs that are not wholly written, or inputs that are not wholly read."""
    run = finished_run(evidence)
    if run is None:
        return []
    problem, least = evidence.problem, evidence.problem.work.minimum_hbm_bytes
    if problem.donated:
        # With donated inputs, the statement does not show how many bytes of the minimum are written.
        moved = run.hbm_read_bytes + run.hbm_written_bytes
        return [f"only {moved:,} of {least:,} bytes of HBM traffic (simulated)"] if moved < _FEWEST * least else []
    outputs = sum(_bytes(problem.shard(output), output.dtype) for output in problem.outputs)
    inputs = least - outputs
    lacking = []
    if run.hbm_written_bytes < _FEWEST * outputs:
        lacking.append(f"only {run.hbm_written_bytes:,} of the outputs' {outputs:,} bytes written to HBM (simulated)")
    if run.hbm_read_bytes < _FEWEST * inputs:
        lacking.append(f"only {run.hbm_read_bytes:,} of the inputs' {inputs:,} bytes read from HBM (simulated)")
    return lacking


def _bytes(shape: tuple[int, ...], dtype: str) -> int:
    # `bfloat16`, `float8_e4m3fn`: the first number is the bits. A dtype without a number counts as zero bytes.
    bits = re.search(r"\d+", dtype)
    return math.prod(shape) * int(bits[0]) // 8 if bits else 0


def _lacking_products(evidence: Evidence) -> list[str]:
    mosaic, run = evidence.mosaic, finished_run(evidence)
    useful = evidence.problem.work.matmul_flops
    if not useful:
        return []
    lacking = []
    if mosaic is not None and mosaic.matmul == 0:
        lacking.append("no matrix product in its kernels")
    if run is not None and run.mxu_flops is not None and run.mxu_flops < _FEWEST * useful:
        lacking.append(f"only {run.mxu_flops:,} FLOPs on the matrix unit (simulated)")
    return lacking


def _lacking_exponentials(evidence: Evidence) -> list[str]:
    trace, run = evidence.trace, finished_run(evidence)
    unit = next((unit for unit in run.units if unit.name == "EUP"), None) if run is not None else None
    if trace is None or unit is None:
        return []
    needed = min(trace.exponentials, evidence.problem.work.exponentials)
    most = ELEMENTS_OF_AN_EXPONENTIAL * unit.executed_slots
    return [f"at most {most:,} of {needed:,} exponentials (simulated)"] if most < _FEWEST * needed else []
