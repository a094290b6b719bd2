"""The timeline of a simulated run: it holds what the simulation counts, and stays small."""

import itertools
from collections import Counter
from pathlib import Path

import msgspec
import pytest
from narrowing import present
from refusals import refused
from schedule_examples import NEWEST, unpack
from simulated_examples import SMALL, SMALL_STEPS, longer, run

from harness.dumps.llo import read_module
from harness.hardware import chip
from harness.judge import simulate
from harness.judge.simulate.timeline import timeline
from harness.records import Simulation, Span, Timeline

pytestmark = pytest.mark.long


def of(directory: Path, name: str, steps_shown: int = 2) -> Timeline:
    return timeline(read_module(directory), chip(name), steps_shown=steps_shown)


def on(timeline: Timeline, row: str) -> list[Span]:
    return [span for span in timeline.spans if span.row == row]


@pytest.mark.parametrize("case", [SMALL, "v5p-512x512-2048", "v7x-resident-2048", "v6e-causal-4096"])
def test_a_timeline_holds_what_the_simulation_counts(case: str, tmp_path: Path) -> None:
    result = run(case, tmp_path)
    timeline = of(tmp_path, result.chip)
    assert result.breakdown is not None
    assert (timeline.cycles, timeline.clock_hz, timeline.left_out) == (result.cycles, result.clock_hz, ())
    assert all(0 <= span.start < span.end <= timeline.cycles for span in timeline.spans)
    transfers = [span for span in timeline.spans if span.kind == "transfer"]
    assert len(transfers) == result.dma_transfers
    assert sum(span.hbm_bytes for span in transfers) == result.hbm_read_bytes + result.hbm_written_bytes
    steps = Counter(span.name for span in timeline.spans if span.kind == "step" and span.name.startswith("step"))
    assert sum(steps.values()) == result.executed_steps
    waited: Counter[str] = Counter()
    for span in on(timeline, "core 0 waits"):
        waited[span.name] += span.end - span.start
    parts: Counter[str] = Counter()
    for part in result.breakdown.parts:
        if part.kind in ("operand wait", "fill and drain"):
            parts[part.name] += int(part.cycles)
    if chip(result.chip).cores == 1:
        assert waited == parts
        assert sum(span.flops for span in timeline.spans if span.kind == "op") == result.mxu_flops


def test_steps_follow_each_other_and_the_pipeline_fills_and_drains(tmp_path: Path) -> None:
    timeline = of(unpack(NEWEST, SMALL, tmp_path), "v5e")
    steps = on(timeline, "core 0 steps")
    assert [span.name for span in steps] == ["fill", *(f"step {i}" for i in range(SMALL_STEPS)), "drain"]
    assert all(step.end == other.start for step, other in itertools.pairwise(steps))
    (op,) = on(timeline, "core 0 ops")
    assert (steps[0].start, steps[-1].end) == (op.start, op.end)


def test_the_window_accounts_for_each_of_its_cycles(tmp_path: Path) -> None:
    timeline = of(unpack(NEWEST, SMALL, tmp_path), "v5e", steps_shown=3)
    first, last = present(timeline.window)
    shown = [span for span in on(timeline, "core 0 steps") if first <= span.start and span.end <= last]
    assert (shown[0].start, shown[-1].end, len(shown)) == (first, last, 3)
    idle = Counter[str]()
    busy: set[int] = set()
    for span in timeline.spans:
        if span.kind == "issue":
            assert first <= span.start
            assert span.end <= last
            busy |= set(range(span.start, span.end))
        elif span.kind in ("stall", "wait") and first <= span.start < last:
            assert not busy & set(range(span.start, span.end))
            idle[span.kind] += span.end - span.start
    assert idle["stall"] > 0
    # The rest are bundles without an operation that takes a slot.
    assert 0.9 * (last - first) < len(busy) + sum(idle.values()) <= last - first
    assert {"core 0 MXU", "core 0 VALU", "core 0 EUP", "core 0 XLU", "core 0 VLOAD"} <= {s.row for s in timeline.spans}
    lines = {span.line for span in on(timeline, "core 0 MXU")}
    assert len(lines) == 2
    assert 0 not in lines


@pytest.mark.slow
def test_a_very_long_run_stays_small_and_says_what_it_left_out(tmp_path: Path) -> None:
    factor = 96
    directory = unpack(NEWEST, SMALL, tmp_path, longer(factor))
    timeline = of(directory, "v5e", steps_shown=1)
    left_out = dict(timeline.left_out)
    steps = SMALL_STEPS * factor
    transfers = len(on(timeline, "core 0 DMA in"))
    # A key and a value block in every step, a query block in every eighth.
    assert transfers + left_out["core 0 DMA in"] == 2 * steps + steps // 8
    assert len(timeline.spans) < 50_000
    first, last = present(timeline.window)
    assert [span for span in on(timeline, "core 0 DMA in") if first <= span.start < last]
    assert max(span.end for span in timeline.spans) > 0.999 * timeline.cycles


def test_without_steps_there_is_no_window_and_without_a_grid_some_cycles(tmp_path: Path) -> None:
    assert of(unpack(NEWEST, SMALL, tmp_path / "small"), "v5e", steps_shown=0).window is None
    timeline = of(unpack(NEWEST, "v5e-dot-8192", tmp_path / "dot"), "v5e")
    first, last = present(timeline.window)
    assert 0 < last - first < timeline.cycles / 10
    assert on(timeline, "core 0 MXU")
    assert not on(timeline, "core 0 steps")


def test_a_run_without_an_end_has_no_timeline(tmp_path: Path) -> None:
    directory = unpack(NEWEST, SMALL, tmp_path, lambda text: text.replace("vsyncadd", "vsyncfrob"))
    with refused("no-simulation", "vsyncfrob"):
        of(directory, "v5e")


# --- the small one that every attempt leaves ------------------------------------------------------


def small(directory: Path, name: str) -> tuple[Simulation, Timeline]:
    path = directory / "run.timeline"
    simulation = simulate.run(directory, chip(name), timeline=path)
    return simulation, msgspec.json.decode(path.read_bytes(), type=Timeline)


def covered(spans: list[Span]) -> set[int]:
    return {cycle for span in spans for cycle in range(span.start, span.end)}


@pytest.mark.parametrize("case", [SMALL, "v5p-512x512-2048", "v5e-dot-8192"])
def test_an_attempts_timeline_costs_no_second_run_and_changes_nothing(case: str, tmp_path: Path) -> None:
    plain = run(case, tmp_path)
    drawn, noted = small(tmp_path, plain.chip)
    assert drawn == plain
    assert (noted.cycles, noted.clock_hz, noted.chip) == (plain.cycles, plain.clock_hz, plain.chip)
    assert present(plain.breakdown).parts in [core.parts for core in noted.parts]
    units = {span.row for span in noted.spans if span.kind == "issue"}
    assert {"core 0 MXU", "core 0 VLOAD"} <= units
    shown = covered([span for span in noted.spans if span.kind in ("issue", "stall")])
    assert 0 < len(shown) <= 2_000


def test_cycles_with_a_transfer_under_way_are_those_of_the_lanes(tmp_path: Path) -> None:
    whole = of(unpack(NEWEST, SMALL, tmp_path), "v5e")
    flight = covered(on(whole, "core 0 DMA in") + on(whole, "core 0 DMA out"))
    waited = covered(on(whole, "core 0 waits"))
    _, noted = small(tmp_path, "v5e")
    assert whole.transfers == noted.transfers
    (core,) = noted.transfers
    assert (core.in_flight, core.waited) == (len(flight), len(flight & waited))
    assert 0 < core.waited < core.in_flight


def test_a_long_run_leaves_no_more_than_a_short_one(tmp_path: Path) -> None:
    _, noted = small(unpack(NEWEST, SMALL, tmp_path, longer(96)), "v5e")
    assert all(len(on(noted, f"core 0 {row}")) <= 2_000 for row in ("DMA in", "DMA out", "waits", "steps"))
    assert dict(noted.left_out)["core 0 DMA in"] > 10_000
    (core,) = noted.transfers
    assert core.in_flight > 90 * small(unpack(NEWEST, SMALL, tmp_path / "short"), "v5e")[1].transfers[0].in_flight


def test_a_run_without_an_end_leaves_none(tmp_path: Path) -> None:
    path = tmp_path / "run.timeline"
    directory = unpack(NEWEST, SMALL, tmp_path, lambda text: text.replace("vsyncadd", "vsyncfrob"))
    assert simulate.run(directory, chip("v5e"), timeline=path).seconds is None
    assert not path.exists()
