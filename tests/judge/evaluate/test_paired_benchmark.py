"""The loop of a paired benchmark and what its child makes of a clock, on timings that are given as data."""

from collections.abc import Iterable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import false_accepts_noise as noise
import false_accepts_replays
import numpy as np
import pytest
from jax.profiler import ProfileData

from harness.judge.evaluate.messages import MoreRequest
from harness.judge.evaluate.timing import paired_benchmark as pairing
from harness.judge.evaluate.timing.device_timing import calls_per_sample, more, tick_seconds
from harness.judge.verdict import compare_measured
from harness.records import Failure, PairedBenchmark, Policy, Samples
from harness.sandbox.profiling import device_seconds

POLICY = Policy(looks=(20, 40, 80))


def batch(seconds: float, pairs: int, device: int | None = None) -> pairing.Slots:
    """`pairs` rounds in which every slot takes the same time, and a profile that shows `device` calls of each."""
    samples = Samples(
        device_kind="TPU v5 lite",
        host_seconds=(seconds,) * pairs,
        device_seconds=(seconds / 2,) * (pairs if device is None else device),
    )
    return samples, samples, samples


def batches(*answers: pairing.Slots | Failure) -> Iterator[pairing.Slots | Failure]:
    """Yields these batches only: to ask for another is an error."""
    yield from answers
    raise AssertionError("a batch too many was asked for")


def never(benchmark: PairedBenchmark) -> bool:
    return False


def still() -> float:
    return 0.0


def sampled(slots: Iterator[pairing.Slots | Failure], *rest: Any, policy: Policy = POLICY) -> Any:
    """The paired benchmark, and the samples of champion and candidate; it must not fail."""
    outcome = pairing.sample(slots, policy, *rest)
    assert isinstance(outcome, tuple)
    return outcome


def test_the_paired_benchmark_ends_with_the_look_that_settles_it() -> None:
    seen: list[tuple[int, int]] = []

    def is_settled(benchmark: PairedBenchmark) -> bool:
        seen.append((benchmark.looks, len(benchmark.candidate_seconds)))
        return benchmark.looks == 2

    benchmark, champion, candidate = sampled(batches(batch(1e-3, 20), batch(2e-3, 20)), is_settled, still)
    assert seen == [(1, 20), (2, 40)]
    assert benchmark.looks == 2
    assert benchmark.clock == "device"
    for seconds in (benchmark.champion_seconds, benchmark.control_seconds, benchmark.candidate_seconds):
        assert seconds == (5e-4,) * 20 + (1e-3,) * 20
    assert champion.host_seconds == candidate.host_seconds == (1e-3,) * 20 + (2e-3,) * 20


def test_an_unsettled_paired_benchmark_ends_with_the_last_look() -> None:
    benchmark, _, _ = sampled(batches(batch(1, 20), batch(1, 20), batch(1, 40)), never, still)
    assert (benchmark.looks, len(benchmark.control_seconds)) == (3, 80)


@pytest.mark.parametrize(("per_round", "looks"), [(1.5, 1), (0.9, 2), (0.5, 3)])
def test_no_batch_is_begun_that_would_not_be_done_in_time(per_round: float, looks: int) -> None:
    """A budget of 60 s: 40 rounds of 1.5 s are 60 s, 80 rounds of 0.75 s too; a longer batch is not begun."""
    now = 0.0

    def taking() -> Iterator[pairing.Slots | Failure]:
        nonlocal now
        for pairs in (20, 20, 40):
            now += per_round * 1.01 * pairs
            yield batch(1, pairs)

    benchmark, _, _ = sampled(taking(), never, lambda: now, policy=replace(POLICY, paired_seconds=60.0))
    assert benchmark.looks == looks


def test_a_failure_in_any_batch_is_the_outcome() -> None:
    failure = Failure(stage="latency", kind="timeout", message="took too long")
    assert pairing.sample(batches(failure), POLICY, never, still) is failure
    assert pairing.sample(batches(batch(1, 20), failure), POLICY, never, still) is failure


def test_one_call_missing_in_a_profile_and_all_pairs_are_the_hosts() -> None:
    for device in (0, 19):
        slots = batches(batch(1, 20), batch(1, 20, device))
        benchmark, _, _ = sampled(slots, lambda benchmark: benchmark.looks == 2, still)
        assert (benchmark.clock, benchmark.champion_seconds) == ("host", (1,) * 40)


def test_without_looks_there_is_no_paired_benchmark() -> None:
    with pytest.raises(ValueError, match="at least one look"):
        pairing.sample(batches(), replace(POLICY, looks=()), never, still)


def test_the_tick_of_a_clock_is_its_smallest_step() -> None:
    assert tick_seconds([0.0, 0.0, 3e-8, 3e-8, 1e-7, 1.2e-7]) == pytest.approx(2e-8)
    # A clock that stands still resolves nothing.
    assert tick_seconds([5.0, 5.0]) == float("inf")


@pytest.mark.parametrize(
    ("call", "tick", "calls"),
    [
        (1e-3, 5e-8, 1),
        (5e-5, 5e-8, 1),
        (4.9e-5, 5e-8, 2),
        (1e-5, 5e-8, 5),
        (1e-9, 5e-8, 1000),
        (1e-3, float("inf"), 1000),
    ],
)
def test_short_calls_are_timed_several_at_a_time(call: float, tick: float, calls: int) -> None:
    assert calls_per_sample(call, tick) == calls


def test_more_rounds_need_programs() -> None:
    with pytest.raises(RuntimeError, match="before one for more rounds"):
        more(MoreRequest(profiled_calls=0, rounds=1, session="x"))


def profile(folder: Path, plane: str, line: str, events: Iterable[tuple[int, int]]) -> Path:
    """A profile with one line of events, each (offset, duration) in picoseconds."""
    text = "".join(
        f"events {{ metadata_id: 1 offset_ps: {offset} duration_ps: {duration} }}" for offset, duration in events
    )
    whole = (
        f'planes {{ name: "{plane}" lines {{ name: "{line}" {text} }} event_metadata {{ key: 1 value {{ id: 1 }} }} }}'
    )
    (folder / "host.xplane.pb").write_bytes(ProfileData.text_proto_to_serialized_xspace(whole))
    return folder


def test_device_time_is_read_from_the_profile_in_the_order_of_time(tmp_path: Path) -> None:
    events = [(7_000_000, 3_000_000), (1_000_000, 2_000_000)]
    seconds = device_seconds(profile(tmp_path, "/device:TPU:0", "XLA Modules", events))
    assert seconds == pytest.approx((2e-6, 3e-6))


@pytest.mark.parametrize(("plane", "line"), [("/host:CPU", "XLA Modules"), ("/device:TPU:0", "XLA Ops")])
def test_without_a_tpus_modules_there_is_no_device_time(tmp_path: Path, plane: str, line: str) -> None:
    assert device_seconds(profile(tmp_path, plane, line, [(1, 2)])) == ()
    assert device_seconds(tmp_path / "missing") == ()


@pytest.mark.parametrize("machine", noise.MACHINES, ids=lambda machine: machine.name)
def test_what_gains_nothing_is_not_accepted_on_any_machine(machine: noise.Machine) -> None:
    """The rule allows one in 2,000; two in 100 would come by luck once in a thousand runs."""
    assert false_accepts_replays.tally(machine, 100).accepted < 2


@pytest.mark.parametrize("since", [1, 1000])
def test_a_gain_of_three_percent_is_accepted_at_the_published_spread(since: int) -> None:
    tally = false_accepts_replays.tally(noise.QUIET, 50, ratio=0.97, since_accept=since)
    assert tally.accepted == 50


@pytest.mark.parametrize("machine", [noise.SLOWER_CHAMPION, noise.SLOWER_CONTROL], ids=lambda machine: machine.name)
@pytest.mark.parametrize("ratio", [0.9, 1.0])
def test_a_planted_slower_slot_makes_the_control_fire(machine: noise.Machine, ratio: float) -> None:
    assert false_accepts_replays.tally(machine, 25, ratio=ratio).too_noisy == 25


def test_the_guard_can_fail(monkeypatch: pytest.MonkeyPatch) -> None:
    """If each look may be wrong in five of a hundred cases, luck is accepted."""
    monkeypatch.setattr(false_accepts_replays, "POLICY", Policy(false_accept_rate=0.9))
    wide = noise.Machine(name="10 % spread", slowdown=noise.spread(0.1))
    assert false_accepts_replays.tally(wide, 100).accepted >= 2


def test_this_machines_recorded_noise_is_replayed() -> None:
    recorded = noise.recorded()
    assert false_accepts_replays.tally(recorded, 50).accepted == 0
    replayed, ruling = false_accepts_replays.attempt(recorded, np.random.default_rng(1), 0.2, 1)
    assert ruling.outcome == "accept"
    assert compare_measured.rule(replayed, false_accepts_replays.POLICY, 1) == ruling
