"""The paths that each child of an evaluation may use, in addition to installed files and the child's folder."""

from dataclasses import replace
from pathlib import Path

from harness.hardware import Chip
from harness.records import Failure, Simulation
from harness.sandbox.child import Children
from harness.sandbox.confinement import Confinement


def reach(child: str, *, problem: Path, work: Path, profiles: Path, on_device: bool) -> Confinement | None:
    """The paths that this child may use; None for the timer on a device, because its driver's paths are unknown.

    The candidate's process reads the problem and writes to its own folder; the judge copies the programs from there
    before their use. No other child runs kernel.py, but all children handle data that comes from it.
    """
    if child == "timer" and on_device:
        return None
    if child == "candidate":
        return Confinement(readable=(str(problem),))
    writes = {"compiler": (str(work), str(profiles)), "checks compiler": (str(work),), "timer": (str(profiles),)}
    return Confinement(readable=(str(work),), writable=writes.get(child, ()))


def left_behind(children: Children) -> tuple[Failure, ...]:
    """The failure of a candidate that left processes behind; empty if it left none. The processes have been ended."""
    if not children.left_behind:
        return ()
    words = ", ".join(children.left_behind.values())
    message = f"expected kernel.py to start no processes, but these were left behind and had to be ended: {words}"
    return (Failure(stage="static", kind="left-behind", message=message),)


def not_looked_into(chip: Chip) -> tuple[str, ...]:
    """Sentences on facts that are unknown for kernels on `chip`; empty if the chip has a compiler and a simulator."""
    if chip.kind == "TPU":
        return ()
    return (
        f"{chip.name} is a GPU: the kernel is neither compiled nor simulated here, so there are no counters and no HBM "
        "traffic, and only its Triton form shows whether it does all the work",
    )


def not_interpreted(failure: Failure, difference: str) -> Failure:
    """The failure of the interpreted run at the contest's own shape. After a timeout, its message adds what is unknown.

    `difference` is the first place at which the program differs in more than sizes from that of a smaller shape, or "".
    """
    if failure.kind != "timeout":
        return failure
    unknown = "so it is unknown whether the kernel races or reads unwritten memory at the contest's own shape"
    if not difference:
        return replace(failure, message=f"{failure.message}; {unknown}; use larger blocks")
    return replace(
        failure,
        kind="differs-at-full-shape",
        message=(
            "expected the programs for the full and the reduced shape to differ only in sizes, got another difference "
            f"({difference}); the full shape could not be interpreted in time, {unknown}; write one body for all "
            "lengths, or use larger blocks"
        ),
    )


def work_not_done(simulation: Simulation, matmul_flops: int) -> tuple[Failure, ...]:
    """The failure of a compiled program whose matrix units do less than the useful work; empty if they do all of it.

    Also empty if the units' work is not known. The work is counted in the timed schedule, not taken from the report of
    the candidate's process. All matrix products are in kernels, because they are refused outside kernels.
    """
    done = simulation.mean_mxu_flops
    if simulation.mean_seconds is None or done is None or done >= matmul_flops:
        return ()
    message = (
        f"expected the compiled program to do the {matmul_flops:,} FLOPs of the problem's matrix products, got "
        f"{done:,} in its schedule (simulated): it is not the program that was checked"
    )
    return (Failure(stage="latency", kind="work-not-done", message=message),)
