"""Simulates champion and candidate again, in parallel, once for each change of an uncertain simulator constant."""

import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path

from harness.hardware import Chip
from harness.judge.evaluate.messages import ResimulateReply, ResimulateRequest
from harness.records import Failure, Policy, Resimulation
from harness.sandbox import environment
from harness.sandbox.child import Children
from harness.sandbox.confinement import Confinement
from harness.sandbox.jobs import Job

SecondsOn = Callable[..., tuple[float | None, ...]]
# Extra time for starting the process, reading the dumps and replying; it does not extend the deadline of the runs.
_GRACE_SECONDS = 60.0
# The most processes for each of the two programs. Each process reads the dumps again, which takes as long as a few
# runs.
_MOST_SHARES = 4


def run(
    champion: Path, candidate: Path, chip: Chip, policy: Policy, names: Sequence[str], seconds_on: SecondsOn
) -> tuple[Resimulation, ...] | Failure:
    """The simulated times of `champion` and `candidate` on each machine in `names`, or a Failure.

    `seconds_on`, a function at the top level of a module, computes the times. Each of the two dump directories gets at
    least one process, and several if there are more cores. On one core, a single process handles both.
    """
    cores = environment.cores()
    shares = min(_MOST_SHARES, max(1, cores // 2), len(names))
    parts = [(dumps, tuple(names[share::shares])) for share in range(shares) for dumps in (champion, candidate)]
    seconds_by_variant: dict[tuple[Path, str], float | None] = {}
    limited = Children(policy.child_memory_bytes, are_confined=policy.is_confined)
    with tempfile.TemporaryDirectory() as scratch, limited as children:
        confinement = Confinement(readable=(str(champion), str(candidate)))
        module, variables = "harness.judge.evaluate.timing.simulation", environment.on_cpu()
        started = []
        for number in range(min(cores, len(parts))):
            home = Path(scratch) / str(number)
            home.mkdir()
            started.append(children.start("simulator", module, home, variables, confinement=confinement))
        limit = policy.resimulate_seconds + _GRACE_SECONDS
        asked: dict[Job, tuple[Path, tuple[str, ...]]] = {}
        for number, (dumps, some) in enumerate(parts):
            request = ResimulateRequest(
                module=seconds_on.__module__,
                function=seconds_on.__qualname__,
                dump_directory=str(dumps),
                chip=chip,
                names=some,
                deadline_seconds=policy.resimulate_seconds,
            )
            child = started[number % len(started)]
            job = children.ask(child, "simulate again", "latency", "resimulate", request, ResimulateReply, limit)
            asked[job] = dumps, some
        for _ in parts:
            job, reply = children.wait()
            if isinstance(reply, Failure):
                return reply
            dumps, some = asked[job]
            times = zip(some, reply.seconds, strict=True)
            seconds_by_variant.update(((dumps, name), seconds) for name, seconds in times)
    return tuple(
        Resimulation(
            name=name,
            champion_seconds=seconds_by_variant[champion, name],
            candidate_seconds=seconds_by_variant[candidate, name],
        )
        for name in names
    )
