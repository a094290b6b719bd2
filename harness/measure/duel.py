"""Champion and candidate timed in turn in one process, as the exported programs that their evidence was taken from."""

import pickle
import tempfile
from dataclasses import replace
from pathlib import Path

from harness.errors import RatchetError
from harness.measure import environment
from harness.measure.child import Children
from harness.measure.gathering import measure_request
from harness.measure.messages import MeasureReply
from harness.problems import Problem
from harness.records import Duel, Failure, Policy, Samples


def run(
    champion: Path, candidate: Path, problem: Problem, policy: Policy, *, on: str | None = None, deep: bool = False
) -> tuple[Duel, Samples, Samples] | Failure:
    """The paired seconds, then all samples of the champion and of the candidate; a Failure where there are none.

    `champion` and `candidate` are the work directories of their `gather`. Within each of
    `policy.measured_pairs` rounds both get the same fresh inputs, in random order. The clock is
    the device's where the profile shows every call, else the host's. `on` is `cpu` or the TPU.

    Writes a profile beside `candidate`. Raises RatchetError `no-program` where a directory holds none.
    """
    platform = "cpu" if on == "cpu" else "tpu"
    programs = (champion / f"candidate.{platform}", candidate / f"candidate.{platform}")
    for path in programs:
        if not path.is_file():
            raise RatchetError("no-program", f"expected the exported program {path.name} in {path.parent}, found none")
    # On a device every pair is wanted from the profile, not only the few calls that are looked at.
    if platform == "tpu":
        policy = replace(policy, profiled_calls=policy.measured_pairs)
    with tempfile.TemporaryDirectory() as scratch, Children(policy.child_memory_bytes) as children:
        pickled = Path(scratch) / "problem.pickle"
        pickled.write_bytes(pickle.dumps(problem))
        request = measure_request(programs, pickled, policy, candidate.parent, f"{candidate.name}-duel", deep=deep)
        child = children.start("timer", "harness.measure.timing", Path(scratch), environment.measuring(platform))
        children.ask(child, "duel", "latency", "measure", request, MeasureReply, policy.measure_seconds)
        _, reply = children.wait()
    if isinstance(reply, Failure):
        return reply
    assert isinstance(reply, MeasureReply)
    if reply.check.failure is not None:
        return reply.check.failure
    champions, candidates = reply.samples
    on_device = bool(champions.device_seconds and candidates.device_seconds)
    duel = Duel(
        champion_seconds=champions.device_seconds if on_device else champions.host_seconds,
        candidate_seconds=candidates.device_seconds if on_device else candidates.host_seconds,
        clock="device" if on_device else "host",
    )
    return duel, champions, candidates
