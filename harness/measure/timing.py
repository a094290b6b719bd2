"""The process that times exported programs on a device: in turn, on fresh inputs, every result waited for."""

import pickle
import random
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import jax
import numpy as np
from numpy.typing import NDArray

from harness import problems
from harness.measure import correctness, profiling
from harness.measure.messages import CheckReply, DeviceReply, DeviceRequest, MeasureReply, MeasureRequest
from harness.problems import Problem
from harness.records import Samples

_FAMILY = "composite"


def device(request: DeviceRequest) -> DeviceReply:
    """The device on which `measure` would run."""
    first = jax.devices()[0]
    return DeviceReply(platform=first.platform, kind=first.device_kind)


def measure(request: MeasureRequest) -> MeasureReply:
    """Host seconds of `rounds` blocked calls of each artifact, in random order within each round; then a profile.

    One output, of a round nobody can foresee, is checked against float64 afterwards.
    """
    problem: Problem = pickle.loads(Path(request.problem).read_bytes())
    drawn = problem.make_inputs(_FAMILY, request.seed)
    order = random.Random(request.seed)
    programs = [correctness.program(artifact) for artifact in request.artifacts]
    host: list[list[float]] = [[] for _ in programs]
    checked_round = order.randrange(request.rounds)
    checked: tuple[Sequence[NDArray[Any]], Any] = ((), ())
    inputs = jax.block_until_ready([jax.device_put(array) for array in drawn])
    for program in programs:
        for _ in range(request.warmup_calls):
            jax.block_until_ready(program(*inputs))
    for number in range(request.rounds):
        fresh = _fresh(drawn, order)
        inputs = jax.block_until_ready([jax.device_put(array) for array in fresh])
        for which in _shuffled(len(programs), order):
            before = time.perf_counter()
            outputs = jax.block_until_ready(programs[which](*inputs))
            host[which].append(time.perf_counter() - before)
            # The last artifact is the candidate.
            if number == checked_round and which == len(programs) - 1:
                checked = (fresh, outputs)
    on_device = _profile(request, programs, inputs, order)
    found, failure = problems.check(
        problem, checked[0], tuple(np.asarray(leaf) for leaf in jax.tree.leaves(checked[1])),
        family=_FAMILY, mode="device", seed=request.seed,
    )  # fmt: skip
    kind = jax.devices()[0].device_kind
    return MeasureReply(
        samples=tuple(
            Samples(device_kind=kind, host_seconds=tuple(times), device_seconds=device_times)
            for times, device_times in zip(host, on_device, strict=True)
        ),
        check=CheckReply(check=found, failure=failure),
    )


def _fresh(drawn: Sequence[NDArray[Any]], order: random.Random) -> list[NDArray[Any]]:
    """New inputs of the same kind: every row moved by a random distance, which costs a copy and not a new draw."""
    return [np.roll(array, order.randrange(1, array.shape[-2]), axis=-2) for array in drawn]


def _shuffled(count: int, order: random.Random) -> list[int]:
    return order.sample(range(count), count)


def _profile(
    request: MeasureRequest, programs: Sequence[Any], inputs: Sequence[Any], order: random.Random
) -> list[tuple[float, ...]]:
    """Device seconds of each artifact's profiled calls; empty where the profile does not show every call."""
    turns = [which for _ in range(request.profiled_calls) for which in _shuffled(len(programs), order)]
    calls = [lambda which=which: programs[which](*inputs) for which in turns]
    folder = profiling.capture(calls, Path(request.profile_directory), request.session, deep=request.deep)
    seconds = profiling.device_seconds(folder)
    if len(seconds) != len(turns):
        return [() for _ in programs]
    return [
        tuple(taken for turn, taken in zip(turns, seconds, strict=True) if turn == which)
        for which in range(len(programs))
    ]


TASKS = {"device": (DeviceRequest, device), "measure": (MeasureRequest, measure)}
