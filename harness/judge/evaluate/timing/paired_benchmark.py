"""Times champion and candidate alternately in one process, in batches, until the samples decide the comparison."""

import pickle
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from harness.errors import RatchetError
from harness.judge.evaluate.messages import MeasureReply, MeasureRequest, MoreRequest
from harness.judge.evaluate.timing.requests import measure_request
from harness.records import Failure, PairedBenchmark, Policy, Samples
from harness.sandbox import environment
from harness.sandbox.child import Children
from harness.sandbox.confinement import Confinement
from harness.sandbox.jobs import Child

if TYPE_CHECKING:
    # For types only, so that the timing key contains no checks.
    from harness.operators import Problem

# The samples of the champion, of the control (a second copy of the champion), and of the candidate.
Slots = tuple[Samples, Samples, Samples]


def run(
    champion: Path,
    candidate: Path,
    problem: "Problem",
    policy: Policy,
    *,
    is_settled: Callable[[PairedBenchmark], bool],
    on: str,
    deep: bool = False,
) -> tuple[PairedBenchmark, Samples, Samples] | Failure:
    """The paired seconds, then all samples of the champion and of the candidate; or the Failure that ended the timing.

    `champion` and `candidate` are the work directories of their `evaluate`. Within each round, three programs get the
    same fresh inputs, in random order: the champion, a second copy of the champion (the control), and the candidate.
    The samples are judged after each number of pairs in `policy.looks`, until `is_settled` is true or the time is up.
    The programs stay loaded. The clock is the device's clock if the profile shows every call, otherwise the host's.
    `on` names the platform: `cpu`, `tpu`, `cuda`.

    Writes a profile for each look (on a CPU for the first look only) next to `candidate`. Raises RatchetError
    `no-program` if a directory has no program.
    """
    programs = (champion / f"candidate.{on}", candidate / f"candidate.{on}")
    for path in programs:
        if not path.is_file():
            raise RatchetError("no-program", f"expected the exported program {path.name} in {path.parent}, found none")
    limited = Children(policy.child_memory_bytes, are_confined=policy.is_confined)
    with tempfile.TemporaryDirectory() as scratch, limited as children:
        pickled = Path(scratch) / "problem.pickle"
        pickled.write_bytes(pickle.dumps(problem))
        slots = (programs[0], programs[0], programs[1])
        request = measure_request(slots, pickled, policy, candidate.parent, f"{candidate.name}-paired", deep=deep)
        # On a device the process is not confined, because the driver needs its device files and shared memory.
        folders = Confinement(readable=(str(champion),), writable=(str(candidate.parent),)) if on == "cpu" else None
        module, measuring = "harness.judge.evaluate.timing.device_timing", environment.measuring(on)
        child = children.start("timer", module, Path(scratch), measuring, confinement=folders)
        # On a device the profile must time every pair. On a CPU the profile is only for people.
        batches = _batches(children, child, request, policy, profile_all=on != "cpu")
        return sample(batches, policy, is_settled, time.monotonic)


def sample(
    batches: Iterator[Slots | Failure],
    policy: Policy,
    is_settled: Callable[[PairedBenchmark], bool],
    clock: Callable[[], float],
) -> tuple[PairedBenchmark, Samples, Samples] | Failure:
    """The paired benchmark: batches of samples, at most one for each of `policy.looks`.

    The benchmark ends after the first batch for which one of these holds:

    - `is_settled` is true;
    - the batch is the last;
    - at this batch's time per round, the next batch would end later than `policy.paired_seconds` after the start.

    Ending early is safe, whatever the reason, because fewer looks give chance fewer opportunities. Raises ValueError
    without looks.
    """
    began = clock()
    slots: Slots | None = None
    for look, pairs in enumerate(policy.looks, start=1):
        asked = clock()
        batch = next(batches)
        if isinstance(batch, Failure):
            return batch
        slots = batch if slots is None else _joined(slots, batch)
        paired = _paired(slots, look)
        now = clock()
        following = (policy.looks[look] if look < len(policy.looks) else pairs) - pairs
        ends = now + (now - asked) * following / len(batch[0].host_seconds)
        if is_settled(paired) or not following or ends - began > policy.paired_seconds:
            return paired, slots[0], slots[2]
    raise ValueError("expected a policy with at least one look, got none")


def _batches(
    children: Children, child: Child, request: MeasureRequest, policy: Policy, *, profile_all: bool
) -> Iterator[Slots | Failure]:
    """The samples of each batch, requested when they are needed. If a batch fails, its Failure is the last item."""
    before = 0
    for look, pairs in enumerate(policy.looks, start=1):
        rounds = pairs - before
        profiled = rounds if profile_all else request.profiled_calls if look == 1 else 0
        asked: MeasureRequest | MoreRequest = replace(request, rounds=rounds, profiled_calls=profiled)
        if look > 1:
            asked = MoreRequest(rounds=rounds, profiled_calls=profiled, session=f"{request.session}-{look}")
        task = "measure" if look == 1 else "more"
        children.ask(child, "paired", "latency", task, asked, MeasureReply, policy.measure_seconds)
        _, reply = children.wait()
        if isinstance(reply, Failure):
            yield reply
            return
        assert isinstance(reply, MeasureReply)
        if reply.check.failure is not None:
            yield reply.check.failure
            return
        champion, control, candidate = reply.samples
        yield champion, control, candidate
        before = pairs


def _joined(slots: Slots, batch: Slots) -> Slots:
    champion, control, candidate = (
        replace(
            before,
            host_seconds=before.host_seconds + after.host_seconds,
            device_seconds=before.device_seconds + after.device_seconds,
        )
        for before, after in zip(slots, batch, strict=True)
    )
    return champion, control, candidate


def _paired(slots: Slots, look: int) -> PairedBenchmark:
    """The seconds by the device's clock if it timed every round of every slot, otherwise by the host's clock."""
    on_device = all(len(slot.device_seconds) == len(slot.host_seconds) for slot in slots)
    champion, control, candidate = (slot.device_seconds if on_device else slot.host_seconds for slot in slots)
    return PairedBenchmark(
        champion_seconds=champion,
        control_seconds=control,
        candidate_seconds=candidate,
        clock="device" if on_device else "host",
        looks=look,
    )
