"""The process that times exported programs on a device, in turns, on fresh inputs, and waits for every result."""

import functools
import math
import pickle
import random
import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

import jax
import numpy as np
from numpy.typing import NDArray

from harness import operators
from harness.judge.evaluate import messages
from harness.records import Samples
from harness.sandbox import profiling

if TYPE_CHECKING:
    # For types only, so that the timing key contains no checks.
    from harness.operators import Problem

# The shortest sample in ticks of the clock. One tick is then at most 0.1 % of a sample, a tenth of the minimum effect.
_TICKS_PER_SAMPLE = 1000
# The most calls in one sample. This only limits the time of a sample, because no known kernel needs more calls.
_MOST_CALLS_PER_SAMPLE = 1000
# The number of successive readings of the clock from which its tick is determined.
_READINGS = 1000

# The programs of the last `measure`, for `more`.
_rounds: "_Rounds | None" = None


def device(request: messages.DeviceRequest) -> messages.DeviceReply:
    """The device on which `measure` would run."""
    first = jax.devices()[0]
    return messages.DeviceReply(platform=first.platform, kind=first.device_kind)


def measure(request: messages.MeasureRequest) -> messages.MeasureReply:
    """The mean seconds of a call, by artifact and round: from blocked samples (host), and from a profile (device).

    The order of the artifacts is random in each round. Every round has new inputs, including the rounds of the profile.
    Afterwards the last artifact's output in a random round is checked against float64. A sample consists of
    back-to-back calls: enough for the host's clock to resolve it, and equally many for all artifacts. The profile has
    another clock and shows single calls.
    """
    global _rounds
    _rounds = _Rounds(request)
    _rounds.warm_up(request.warmup_calls)
    return _rounds.batch(request.rounds, request.profiled_calls, request.session)


def more(request: messages.MoreRequest) -> messages.MeasureReply:
    """Further rounds of the last `measure`, with the same programs; the reply covers these rounds alone."""
    if _rounds is None:
        raise RuntimeError("expected a measure request before one for more rounds, got none")
    return _rounds.batch(request.rounds, request.profiled_calls, request.session)


def tick_seconds(readings: Sequence[float]) -> float:
    """The smallest step between successive readings of a clock: its resolution or the cost of a reading."""
    return min((after - before for before, after in pairwise(readings) if after > before), default=math.inf)


def calls_per_sample(call_seconds: float, tick_seconds: float) -> int:
    """The number of calls in a sample of `_TICKS_PER_SAMPLE` ticks of the clock; at most `_MOST_CALLS_PER_SAMPLE`."""
    return math.ceil(min(_MOST_CALLS_PER_SAMPLE, max(1.0, _TICKS_PER_SAMPLE * tick_seconds / call_seconds)))


@dataclass(frozen=True, slots=True, kw_only=True)
class _Turn:
    """One artifact's turn in a round: the artifact's number, and the round's inputs, as drawn and on the device.

    There is one set of arrays for each timing input of the problem, or a single set if the problem has no timing
    inputs. A turn calls the artifact equally often with each set.
    """

    round: int
    which: int
    drawn: Sequence[Sequence[NDArray[Any]]]
    inputs: Sequence[Sequence[Any]]


class _Rounds:
    """Rounds of blocked samples. A round has one sample of each artifact, on the same fresh inputs, in random order."""

    def __init__(self, request: messages.MeasureRequest) -> None:
        self._request = request
        self._problem: Problem = pickle.loads(Path(request.problem).read_bytes())
        self._donated = self._problem.statement().donated
        self._programs = [_load(artifact, self._donated) for artifact in request.artifacts]
        # The checks at this shape include these families.
        self._families = tuple(operators.timing_inputs(self._problem)) or self._problem.families(full=True)[-1:]
        self._drawn = [self._problem.make_inputs(family, request.seed) for family in self._families]
        # Tables keep the stated values, because a kernel branches on them.
        self._fixed = [array.is_table for array in self._problem.statement().inputs]
        self._order = random.Random(request.seed)
        self._calls_per_sample = 1

    def warm_up(self, calls: int) -> None:
        """Calls each artifact `calls` times, but at least twice, to fill caches and to estimate the time of a call."""
        every = [program for program in self._programs for _ in range(max(2, calls))]
        call_seconds = [self._seconds(program, [_placed(drawn) for drawn in self._drawn], 1)[0] for program in every]
        tick = tick_seconds([time.perf_counter() for _ in range(_READINGS)])
        self._calls_per_sample = calls_per_sample(min(call_seconds), tick)

    def batch(self, rounds: int, profiled_calls: int, session: str) -> messages.MeasureReply:
        """Times `rounds` rounds by the host's clock, then `profiled_calls` rounds in a profile; checks one output."""
        checked_round = self._order.randrange(rounds + profiled_calls)
        # The timing input whose output is checked.
        family_index = self._order.randrange(len(self._families))
        checked: tuple[Sequence[NDArray[Any]], Any] = ((), ())
        host: list[list[float]] = [[] for _ in self._programs]

        def keep(turn: _Turn, outputs: Any) -> None:
            nonlocal checked
            # The last artifact is the candidate.
            if turn.round == checked_round and turn.which == len(self._programs) - 1:
                checked = (turn.drawn[family_index], outputs[family_index])

        for turn in self._turns(range(rounds)):
            seconds, outputs = self._seconds(self._programs[turn.which], turn.inputs, self._calls_per_sample)
            host[turn.which].append(seconds)
            keep(turn, outputs)
        on_device = self._profile(range(rounds, rounds + profiled_calls), session, keep)
        inputs, outputs = checked
        output_check, failure = operators.check(
            self._problem,
            inputs,
            tuple(np.asarray(leaf) for leaf in jax.tree.leaves(outputs)),
            family=self._families[family_index],
            mode="device",
            seed=self._request.seed,
        )
        kind = jax.devices()[0].device_kind
        return messages.MeasureReply(
            samples=tuple(
                Samples(
                    device_kind=kind,
                    host_seconds=tuple(times),
                    device_seconds=device_times,
                    host_calls_per_sample=self._calls_per_sample,
                )
                for times, device_times in zip(host, on_device, strict=True)
            ),
            check=messages.CheckReply(check=output_check, failure=failure),
        )

    def _turns(self, rounds: range) -> Iterator[_Turn]:
        """The turns: every artifact once in each round. The inputs are on the device before a turn is yielded."""
        for position in rounds:
            drawn = [_fresh(arrays, self._fixed, self._order) for arrays in self._drawn]
            inputs = [_placed(arrays) for arrays in drawn]
            for which in self._order.sample(range(len(self._programs)), len(self._programs)):
                if self._donated:
                    # The previous artifact has changed its inputs in place.
                    inputs = [_placed(arrays) for arrays in drawn]
                yield _Turn(round=position, which=which, drawn=drawn, inputs=inputs)

    def _profile(self, rounds: range, session: str, keep: Callable[[_Turn, Any], None]) -> list[tuple[float, ...]]:
        """By artifact, the mean device seconds of a call in each profiled turn; empty if the profile lacks a call."""
        nothing: list[tuple[float, ...]] = [() for _ in self._programs]
        if not rounds:
            return nothing
        turns: list[int] = []

        def call(turn: _Turn) -> None:
            keep(turn, self._seconds(self._programs[turn.which], turn.inputs, 1)[1])

        def calls() -> Iterator[Callable[[], None]]:
            for turn in self._turns(rounds):
                turns.append(turn.which)
                yield functools.partial(call, turn)

        request = self._request
        folder = profiling.capture(calls(), Path(request.profile_directory), session, deep=request.deep)
        seconds = profiling.device_seconds(folder)
        kinds = len(self._families)
        if len(seconds) != len(turns) * kinds:
            return nothing
        means = [statistics.fmean(seconds[place : place + kinds]) for place in range(0, len(seconds), kinds)]
        return [
            tuple(mean for turn, mean in zip(turns, means, strict=True) if turn == which)
            for which in range(len(self._programs))
        ]

    def _seconds(
        self, program: Callable[..., Any], inputs: Sequence[Sequence[Any]], calls: int
    ) -> tuple[float, Sequence[Any]]:
        """The mean seconds of a call by the host's clock, and the last result for each of `inputs`.

        `program` is called `calls` times with each of `inputs`, without a pause.

        Waits for every result. Each call gets the state of the previous call and writes the same places of the state.
        So the last result equals the result of a single call.
        """
        state = len(self._donated)
        current = [[*arrays] for arrays in inputs]
        before = time.perf_counter()
        kept: list[Any] = []
        for _ in range(calls):
            # Results of earlier calls are invalid, because their state was donated to later calls.
            kept = [] if state else kept
            for arrays in current:
                results = program(*arrays)
                kept.append(results)
                for place, result in zip(self._donated, results[len(results) - state :] if state else (), strict=True):
                    arrays[place] = result
        jax.block_until_ready(kept)
        return (time.perf_counter() - before) / (calls * len(inputs)), kept[-len(inputs) :]


def _load(artifact: str, donated: tuple[int, ...]) -> Callable[..., Any]:
    """The exported program, loaded anew: the control must be a second copy of the champion, not the same object."""
    exported = jax.export.deserialize(bytearray(Path(artifact).read_bytes()))
    return jax.jit(exported.call, donate_argnums=donated)  # type: ignore[no-any-return]


def _fresh(drawn: Sequence[NDArray[Any]], fixed: Sequence[bool], order: random.Random) -> list[NDArray[Any]]:
    """New inputs of the same kind, whose rows are moved by a random distance. Drawing them anew would take longer.

    Arrays that are `fixed` are not changed.
    """
    return [array if stays else _moved(array, order) for array, stays in zip(drawn, fixed, strict=True)]


def _moved(array: NDArray[Any], order: random.Random) -> NDArray[Any]:
    """The array with its rows moved by one random distance; a vector is moved by elements."""
    axis = max(0, array.ndim - 2)
    return np.roll(array, order.randrange(1, max(2, array.shape[axis])), axis=axis)


def _placed(arrays: Sequence[NDArray[Any]]) -> list[Any]:
    return jax.block_until_ready([jax.device_put(array) for array in arrays])  # type: ignore[no-any-return]


TASKS = {
    "device": (messages.DeviceRequest, device),
    "measure": (messages.MeasureRequest, measure),
    "more": (messages.MoreRequest, more),
}
