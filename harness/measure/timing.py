"""The process that times exported programs on a device: in turn, on fresh inputs, every result waited for."""

import functools
import pickle
import random
import time
from collections.abc import Callable, Iterator, Sequence
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

    Every round, those of the profile too, has inputs of its own. One output of the last
    artifact, of a round nobody can foresee, is checked against float64 afterwards.
    """
    problem: Problem = pickle.loads(Path(request.problem).read_bytes())
    rounds = _Rounds(request, problem)
    rounds.warm_up(request.warmup_calls)
    host: list[list[float]] = [[] for _ in request.artifacts]
    for which, call in rounds.calls(request.rounds):
        before = time.perf_counter()
        call()
        host[which].append(time.perf_counter() - before)
    on_device = _profile(request, rounds)
    inputs, outputs = rounds.checked
    found, failure = problems.check(
        problem, inputs, tuple(np.asarray(leaf) for leaf in jax.tree.leaves(outputs)),
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


class _Rounds:
    """Rounds of blocked calls: one of each artifact on the same fresh inputs, in random order."""

    def __init__(self, request: MeasureRequest, problem: Problem) -> None:
        self._programs = [correctness.program(artifact) for artifact in request.artifacts]
        self._drawn = problem.make_inputs(_FAMILY, request.seed)
        self._order = random.Random(request.seed)
        self._checked_round = self._order.randrange(request.rounds + request.profiled_calls)
        self._round = 0
        # The inputs and outputs of the call that is to be checked.
        self.checked: tuple[Sequence[NDArray[Any]], Any] = ((), ())

    def warm_up(self, calls: int) -> None:
        """So many calls of each artifact, for compilers and caches."""
        inputs = _placed(self._drawn)
        for program in self._programs:
            for _ in range(calls):
                jax.block_until_ready(program(*inputs))

    def calls(self, rounds: int) -> Iterator[tuple[int, Callable[[], None]]]:
        """Which artifact, and its blocked call; the inputs are on the device before a call is handed out."""
        for _ in range(rounds):
            fresh = _fresh(self._drawn, self._order)
            inputs = _placed(fresh)
            for which in self._order.sample(range(len(self._programs)), len(self._programs)):
                yield which, functools.partial(self._call, which, fresh, inputs)
            self._round += 1

    def _call(self, which: int, fresh: Sequence[NDArray[Any]], inputs: Sequence[Any]) -> None:
        outputs = jax.block_until_ready(self._programs[which](*inputs))
        # The last artifact is the candidate.
        if self._round == self._checked_round and which == len(self._programs) - 1:
            self.checked = (fresh, outputs)


def _fresh(drawn: Sequence[NDArray[Any]], order: random.Random) -> list[NDArray[Any]]:
    """New inputs of the same kind: every row moved by a random distance, which costs a copy and not a new draw."""
    return [np.roll(array, order.randrange(1, array.shape[-2]), axis=-2) for array in drawn]


def _placed(arrays: Sequence[NDArray[Any]]) -> list[Any]:
    return jax.block_until_ready([jax.device_put(array) for array in arrays])  # type: ignore[no-any-return]


def _profile(request: MeasureRequest, rounds: _Rounds) -> list[tuple[float, ...]]:
    """Device seconds of each artifact's profiled calls; empty where the profile does not show every call."""
    turns: list[int] = []

    def calls() -> Iterator[Callable[[], None]]:
        for which, call in rounds.calls(request.profiled_calls):
            turns.append(which)
            yield call

    folder = profiling.capture(calls(), Path(request.profile_directory), request.session, deep=request.deep)
    seconds = profiling.device_seconds(folder)
    if len(seconds) != len(turns):
        return [() for _ in request.artifacts]
    return [
        tuple(taken for turn, taken in zip(turns, seconds, strict=True) if turn == which)
        for which in range(len(request.artifacts))
    ]


TASKS = {"device": (DeviceRequest, device), "measure": (MeasureRequest, measure)}
