"""The state of a search: floor, attempts by kind, constants, and the advice to stop."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from evidence_examples import V5E
from ledger_fixtures import new_repository
from state_examples import KERNEL, STATEMENT, kernel, row, seen

from harness.advice.simulated_rates import least_seconds
from harness.candidate import Candidate
from harness.errors import RatchetError
from harness.hardware import chip, with_mesh
from harness.judge.verdict.roofline import floor_of, impossibilities
from harness.ledger.paths import place_of
from harness.loop import refusals
from harness.loop.search_state import search_state, since_win
from harness.loop.stop_advice import FLOOR_REACHED
from harness.loop.untried_advice import TimedSettings
from harness.operators import AllGatherMatmul
from harness.records import Edit, Hint, Row, SuiteMember
from harness.records.search_state import Refusal, SearchState
from harness.records.titles import title_moves
from harness.render.search_state import search_state_blocks
from harness.render.sections import screen
from harness.units import percent, seconds


def losing(count: int) -> SearchState:
    rows = [row(1, "accept", kind="baseline"), *(row(number) for number in range(2, count + 2))]
    kernels = {1: KERNEL, **{number: kernel(BQ=128 * number) for number in range(2, count + 2)}}
    return search_state(seen(rows, kernels))


def test_without_a_champion_the_baseline_comes_first() -> None:
    state = search_state(seen([], {}, champion=None, report=None))
    assert (state.advice.do, state.advice.why, state.champion) == ("baseline", "no champion", None)
    assert state.floor.gap_seconds is None
    assert state.constants[0].name == "BQ"
    assert state.constants[0].tried == ()


def test_the_floor_is_the_larger_of_arithmetic_and_least_traffic() -> None:
    work = STATEMENT.work
    floor = floor_of(work, V5E, 2.16e-3)
    assert floor.compute_seconds == pytest.approx(work.flops / 197e12)
    assert floor.memory_seconds == pytest.approx(work.minimum_hbm_bytes / 819e9)
    assert (floor.bound_by, floor.seconds) == ("compute", floor.compute_seconds)
    assert floor.gap_seconds == pytest.approx(2.16e-3 - floor.seconds)
    assert floor.gap_fraction == pytest.approx(1 - floor.seconds / 2.16e-3)
    thin = replace(work, matmul_flops=10, vector_flops=0)
    assert floor_of(thin, V5E, None).bound_by == "memory"


def test_the_floor_of_several_chips_is_that_of_their_links_if_it_is_the_largest() -> None:
    problem = AllGatherMatmul(m=2048, n=4096, k=4096).statement()
    on = with_mesh(V5E, problem.mesh)
    floor = floor_of(problem.work, on, 202.5e-6)
    assert floor.link_seconds == pytest.approx(12_582_912 / 100e9)
    assert (floor.bound_by, floor.seconds) == ("links", floor.link_seconds)
    assert floor.gap_fraction == pytest.approx(1 - floor.seconds / 202.5e-6)
    assert floor_of(replace(problem.work, link_bytes=0), on, None).bound_by == "compute"
    assert floor_of(problem.work, V5E, None).link_seconds is None


def test_what_a_cache_holds_need_not_be_moved() -> None:
    thin, h200 = replace(STATEMENT.work, matmul_flops=10, vector_flops=0, minimum_hbm_bytes=1 << 30), chip("h200")
    floor = floor_of(thin, h200, None)
    assert floor.memory_seconds == pytest.approx(((1 << 30) - h200.cache_bytes) / 4800e9)
    # A time below it is refused as impossible, so it is the floor.
    assert impossibilities(thin, 0.999 * floor.seconds, h200)
    assert not impossibilities(thin, 1.001 * floor.seconds, h200)


def test_what_a_cpu_takes_is_no_distance_to_the_chips_floor() -> None:
    state = search_state(seen([row(1, "accept", source="measured cpu")], {}))
    assert (state.floor.gap_seconds, state.advice.do, state.advice.why) == (None, "go on", "no latency")
    assert state.advice.sentence == "the champion was timed on a CPU, which says nothing about the floor of a v5e"
    text = screen(search_state_blocks(state), 100)
    assert "[measured cpu, says nothing about a TPU]" in " ".join(text.split())
    assert "above it" not in text


@pytest.mark.parametrize(("losses", "do"), [(0, "go on"), (4, "go on"), (5, "change the kind of idea"), (10, "stop")])
def test_advice_follows_the_attempts_since_the_last_win(losses: int, do: str) -> None:
    state = losing(losses)
    assert state.advice.do == do
    assert state.attempts_since_win == losses
    assert "simulated v5e" in state.advice.sentence or state.advice.why == "plateau"


def test_after_five_losses_the_kinds_that_are_left_are_named_and_their_hints_come_first() -> None:
    constants = Hint(observation="short steps", suggestion="a longer block", kind="constants", ranked_by=0.2)
    body = replace(constants, observation="spills", suggestion="a smaller tile", kind="body", ranked_by=0.1)
    rows = [row(1, "accept", kind="baseline"), *(row(number) for number in range(2, 7))]
    kernels = {1: KERNEL, **{number: kernel(BQ=128 * number) for number in range(2, 7)}}
    state = search_state(seen(rows, kernels, advice=(constants, body)))
    assert state.advice.do == "change the kind of idea"
    assert [kind.kind for kind in state.kinds] == ["constants"]
    assert state.untried_kinds == ("grid", "scratch", "dtype", "mask", "compiler", "body")
    assert [hint.kind for hint in state.hints] == ["body", "constants"]
    fewer = search_state(seen(rows[:5], kernels, advice=(constants, body)))
    assert [hint.kind for hint in fewer.hints] == ["constants", "body"]


def test_a_hint_on_a_line_whose_change_left_the_schedule_as_it_was_comes_last(tmp_path: Path) -> None:
    (folder := new_repository(tmp_path / "contest")).joinpath("kernel.py").write_text("a\n")
    place = place_of(folder)
    assert refusals.refusals(place, 1) == ()
    old, new = Candidate(text=b"a\nb\n\nc\n"), Candidate(text=b"a\nB\n\nc\nd\n")
    same = refusals.refusal_of(RatchetError("same-schedule", "as attempt 1"), "b is B", 1, old, new)
    assert same == Refusal(
        champion=1, hypothesis="b is B", kind="same-schedule", message="as attempt 1", lines=("kernel.py:2",)
    )
    refusals.keep(place, same)
    refusals.keep(place, replace(same, champion=3))
    assert refusals.refusals(place, 1) == (same,)
    there = Hint(observation="divides, at kernel.py:2", suggestion="divide once", kind="body", ranked_by=0.2)
    elsewhere = replace(there, observation="spills, at kernel.py:20", suggestion="a smaller tile", ranked_by=0.1)
    state = search_state(replace(seen([row(1, "accept")], {}, advice=(there, elsewhere)), refused=(same,)))
    assert state.refused == (same,)
    # On a plateau, too, a refused hint comes last, although its kind was not tried.
    many = [row(1, "accept", kind="baseline"), *(row(number) for number in range(2, 8))]
    kernels = {1: KERNEL, **{number: kernel(BKV=512) for number in range(2, 8)}}
    of_a_tried_kind = replace(elsewhere, kind="constants")
    plateau = search_state(replace(seen(many, kernels, advice=(there, of_a_tried_kind)), refused=(same,)))
    assert plateau.advice.do == "change the kind of idea"
    assert "body" in plateau.untried_kinds
    assert plateau.hints[0] == of_a_tried_kind
    assert state.hints[0] == elsewhere
    assert state.hints[1].suggestion.endswith(
        "; a change of kernel.py:2 compiled to a schedule that was judged before (b is B)"
    )
    assert "refused, same-schedule: b is B" in screen(search_state_blocks(state), 100)


def test_the_plateau_can_be_set() -> None:
    rows = [row(1, "accept"), row(2), row(3)]
    assert search_state(seen(rows, {}), plateau=2).advice.why == "plateau"


def test_close_to_the_floor_it_stops_whatever_was_tried() -> None:
    least = least_seconds(STATEMENT, V5E)
    assert floor_of(STATEMENT.work, V5E, None).seconds < least
    near, far = least / (1 - FLOOR_REACHED + 0.01), least / (1 - FLOOR_REACHED - 0.01)
    assert search_state(seen([row(1, "accept", near)], {})).advice.why == "floor reached"
    assert search_state(seen([row(1, "accept", far)], {})).advice.why == "room left"
    assert search_state(seen([row(1, "accept", None)], {})).advice.why == "no latency"


def test_a_hint_that_ends_the_search_is_the_advice() -> None:
    last = Hint(observation="memory-bound", suggestion="stop tuning blocks", rule="small gap", because="a small gap")
    other = replace(last, observation="spills", suggestion="a smaller tile", kind="body", ranked_by=0.1)
    state = search_state(seen([row(1, "accept")], {}, advice=(last, other)))
    assert (state.advice.do, state.advice.why) == ("stop", "floor reached")
    assert state.advice.sentence == "stop: memory-bound; stop tuning blocks"
    text = screen(search_state_blocks(state), 100)
    assert text.count("stop") == 2
    assert "If you go on all the same:" in text
    assert "1. spills" in text
    # A fact about one member of a suite ends no search.
    suite = replace(
        STATEMENT, members=(SuiteMember(name="a", weight=1.0, function="kernel_fn", statement=STATEMENT),), may_lose=0.1
    )
    assert search_state(seen([row(1, "accept")], {}, problem=suite, advice=(last, other))).advice.do == "go on"


def test_a_plateau_has_one_sentence() -> None:
    plateau = Hint(observation="5 attempts", suggestion="change", rule="plateau", because="used up")
    state = search_state(seen([row(1, "accept"), row(2)], {}, advice=(plateau,)))
    assert (state.advice.do, state.hints) == ("go on", ())


def test_attempts_are_grouped_by_kind_of_change_against_the_champion_of_their_time() -> None:
    rows = [
        row(1, "accept", kind="baseline"),
        row(2, "accept", time_ratio=0.5),
        row(3, "failed", None, failure_kind="vmem-exceeded"),
        row(4),
        row(5),
    ]
    body = kernel(BQ=256).replace(b"return q @ k @ v", b"return (q @ k) @ v * 1.0")
    kernels = {1: KERNEL, 2: kernel(BQ=256), 3: kernel(BQ=512), 4: body}
    state = search_state(seen(rows, kernels, champion=2, candidate=Candidate(text=kernel(BQ=256))))
    assert [attempt.kinds for attempt in state.tried] == [(), ("constants",), ("constants",), ("body",), None]
    constants = next(kind for kind in state.kinds if kind.kind == "constants")
    assert (constants.attempts, constants.accepted, constants.best_time_ratio) == ((2, 3), 1, 0.5)
    (blocks,) = [constant for constant in state.constants if constant.name == "BQ"]
    assert (blocks.value, blocks.tried) == ("256", ("128", "256", "512"))
    assert [constant.name for constant in state.constants] == ["BQ", "BKV", "LIMIT"], (
        "names for people are no constants to tune"
    )


def test_only_the_newest_are_looked_into_but_all_are_counted() -> None:
    rows = [row(1, "accept"), *(row(number) for number in range(2, 9))]
    state = search_state(seen(rows, {1: KERNEL, 7: kernel(BQ=256), 8: kernel(BKV=512)}), limit=2)
    assert [(attempt.attempt, attempt.kinds) for attempt in state.tried] == [(7, ("constants",)), (8, ("constants",))]
    assert (state.attempts, state.attempts_since_win) == (8, 7)


def test_an_undo_is_neither_a_win_nor_an_attempt() -> None:
    rows = [row(1, "accept"), row(2, "accept"), row(3), row(4, "accept", kind="undo"), row(5)]
    assert [entry.number for entry in since_win(rows)] == [2, 3, 5], "nor is what it took back a win"
    state = search_state(seen(rows, {1: KERNEL, 2: kernel(BQ=256), 3: kernel(BQ=512), 4: KERNEL, 5: kernel(BKV=512)}))
    assert [attempt.attempt for attempt in state.tried] == [1, 2, 3, 5]
    assert state.attempts == 4
    (constants,) = state.kinds
    assert (constants.attempts, constants.accepted) == ((2, 3, 5), 0)
    assert "note: accepted and undone later: attempt 2" in screen(search_state_blocks(state), 100)


def test_checks_of_the_champion_are_neither_wins_nor_attempts() -> None:
    def check(number: int, **changes: object) -> Row:
        return replace(row(number, "accept", kind="rebaseline", kernel_sha256="won"), **changes)  # type: ignore[arg-type]

    rows = [row(1, "accept"), row(2, "accept", kernel_sha256="won"), row(3), check(4), row(5), check(6)]
    assert [entry.number for entry in since_win(rows)] == [3, 5]
    state = search_state(seen(rows, dict.fromkeys(range(1, 7), KERNEL), champion=6))
    assert [attempt.attempt for attempt in state.tried] == [1, 2, 3, 5]
    assert (state.attempts, state.attempts_since_win) == (4, 2)
    adopted = [*rows, check(7, kernel_sha256="by hand"), row(8)]
    assert [entry.number for entry in since_win(adopted)] == [8], "what came before was tried on another text"


def test_several_that_were_undone_are_plural() -> None:
    rows = [row(number, "accept") for number in (1, 2, 3)]
    rows += [row(number, "accept", kind="undo") for number in (4, 5)]
    text = screen(search_state_blocks(search_state(seen(rows, {}))), 100)
    assert "note: accepted and undone later: attempts 2, 3" in text
    assert "     3 undone" in text


def test_an_undo_takes_back_the_newest_accept_that_stands() -> None:
    accepts = [row(number, "accept") for number in (1, 2, 3)]
    rows = [*accepts, row(4, "accept", kind="undo"), row(5), row(6, "accept", kind="undo")]
    assert [(move.place, move.took, move.again) for move in title_moves(rows)] == [(3, (2,), 1), (5, (1,), 0)]
    elsewhere = [accepts[0], replace(accepts[1], is_on_branch=False), row(3, "accept", kind="undo")]
    assert [(move.took, move.again) for move in title_moves(elsewhere)] == [((0,), None)]


def test_a_value_that_only_a_sweep_screened_was_tried() -> None:
    rows, kernels = [row(1, "accept"), row(2)], {1: KERNEL, 2: kernel(BQ=256)}
    state = search_state(seen(rows, kernels, screened=((2, (("BQ", "256"),)), (2, (("BQ", "1024"),)))))
    assert state.constants[0].tried == ("128", "256", "1024")
    assert "BQ=128 (also tried: 256, 1024)" in screen(search_state_blocks(state), 100)


@pytest.mark.parametrize("width", [60, 100])
def test_it_reads_on_one_screen_advice_first(width: int) -> None:
    lines = screen(search_state_blocks(losing(9)), width).splitlines()
    assert lines[0].startswith("change the kind of idea: 9 attempts in a row brought")
    text = " ".join(" ".join(lines).split())
    assert "brought nothing, with changes of constants; up to 67.4% of the time is left above" in text
    assert "Floor: compute 704.473 us, least memory traffic 20.485 us; compute decides" in text
    assert "constants: 9 tried, 0 accepted, best: 10.0% more time" in text
    assert all(len(line) <= width for line in lines)
    assert len(lines) <= 50


def test_the_floor_of_a_simulated_time_is_stated_by_the_simulator_too() -> None:
    state = search_state(seen([row(1, "accept", 760e-6)], {}))
    least = least_seconds(STATEMENT, V5E)
    published, passing = 1 - state.floor.seconds / 760e-6, 1 - least / 760e-6
    text = " ".join(screen(search_state_blocks(state, least_seconds=least), 100).split())
    words = f"({percent(passing)} above what the simulator lets pass, {seconds(least)})"
    assert f"above the floor, {percent(published)} of its time {words} Tried:" in text
    # Without products, no time of the matrix units is shown.
    floor = replace(state.floor, bound_by="memory")
    text = screen(search_state_blocks(replace(state, floor=floor), has_products=False), 200)
    assert "Floor:        compute - (no matmuls), least memory traffic 20.485 us; memory decides" in text
    assert "lets pass" not in text.partition("Floor:")[2].partition("Tried:")[0]


def advised(edits: tuple[Edit, ...], rows: list[Row], kernels: dict[int, bytes], **changes: Any) -> SearchState:
    inputs = seen(rows, kernels)
    hint = Hint(observation="observed", suggestion="another block", rule="a rule", because="so", edits=edits)
    return search_state(replace(inputs, advice=(hint,), **changes))


LARGER = Edit(window="k", axis=-2, size=256, new=512, constants=("BKV",))
SMALLER = replace(LARGER, new=128)


def test_advice_that_was_tried_is_not_given_again() -> None:
    rows = [row(1, "accept", kind="baseline"), row(2)]
    result = advised((LARGER,), rows, {1: KERNEL, 2: kernel(BKV=512)})
    assert result.hints == ()
    assert any("advice left out, because it was tried by attempt 2" in message for message in result.messages)
    # With another constant changed too, the edit's effect is unknown.
    assert advised((LARGER,), rows, {1: KERNEL, 2: kernel(BKV=512, BQ=512)}).hints
    assert advised((LARGER,), rows, {1: KERNEL, 2: kernel(BQ=512)}).hints
    # A trial of the edit in another kernel does not count either.
    assert advised((LARGER,), rows, {1: KERNEL, 2: kernel(BKV=512).replace(b"q @ k", b"k @ q")}).hints


def test_advice_that_lost_with_another_body_says_so() -> None:
    times = (({"BKV": "256"}, 1.0), ({"BKV": "512"}, 1.02))
    slower = TimedSettings(by="the sweep of attempt 2", times=times)
    won = replace(slower, by="attempt 3", times=(times[1], ({"BKV": "256"}, 1.1)))
    rows = [row(1, "accept", kind="baseline")]
    (hint,) = advised((LARGER,), rows, {1: KERNEL}, timed=(slower,)).hints
    assert hint.suggestion == (
        "another block; slower in another kernel, by the sweep of attempt 2: BKV=512 (2.0% more time)"
    )
    # The newest record counts.
    (hint,) = advised((LARGER,), rows, {1: KERNEL}, timed=(slower, won)).hints
    assert hint.suggestion == "another block"


def test_advice_whose_known_gain_is_below_the_threshold_comes_last() -> None:
    timed = (TimedSettings(by="diagnose", times=(({"BKV": "256"}, 1.0), ({"BKV": "512"}, 0.996))),)
    larger = Hint(
        observation="short steps", suggestion="a longer block", because="so", kind="constants", edits=(LARGER,)
    )
    body = replace(larger, observation="spills", suggestion="a smaller tile", kind="body", edits=())
    small = replace(body, observation="stores", gain=0.01)
    inputs = replace(seen([row(1, "accept")], {1: KERNEL}, advice=(larger, small, body)), timed=timed)
    first, *last = search_state(replace(inputs, least_gain=0.072)).hints
    assert first == body
    assert [hint.observation for hint in last] == ["short steps", "stores"]
    assert last[0].suggestion == (
        "a longer block; below the threshold of 7.2% in another kernel, by diagnose: BKV=512 (0.4% less time)"
    )
    # Without a known threshold, every gain may be accepted.
    assert search_state(inputs).hints == (larger, small, body)
    # After many losses, too, a hint of an untried kind stays behind if its gain is too small.
    many = [row(1, "accept", kind="baseline"), *(row(number) for number in range(2, 8))]
    kernels = {1: KERNEL, **{number: kernel(BKV=64) for number in range(2, 8)}}
    plateau = search_state(replace(seen(many, kernels, advice=(small, larger)), least_gain=0.072))
    assert plateau.advice.do == "change the kind of idea"
    assert [hint.observation for hint in plateau.hints] == ["short steps", "stores"]


def test_advice_of_two_sizes_is_left_out_when_both_were_tried_or_screened() -> None:
    rows, both = [row(1, "accept", kind="baseline"), row(2)], (SMALLER, LARGER)
    kernels = {1: KERNEL, 2: kernel(BKV=512)}
    (hint,) = advised(both, rows, kernels).hints
    assert hint.suggestion == "another block; tried already: BKV=512 by attempt 2"
    result = advised(both, rows, kernels, screened=((2, (("BKV", "128"),)),))
    assert result.hints == ()
    assert any("tried by the sweep of attempt 2, attempt 2" in message for message in result.messages)
    # A sweep over another kernel says nothing about this one.
    other = {**kernels, 3: KERNEL.replace(b"q @ k", b"k @ q")}
    assert advised(both, [*rows, row(3)], other, screened=((3, (("BKV", "128"),)),)).hints


def test_where_two_constants_may_set_a_block_both_have_to_be_tried() -> None:
    rows, either = [row(1, "accept", kind="baseline"), row(2), row(3)], replace(LARGER, constants=("BQ", "BKV"))
    kernels = {1: KERNEL, 2: kernel(BKV=512)}
    assert advised((either,), rows, kernels).hints
    assert advised((either,), rows, {**kernels, 3: kernel(BQ=512)}).hints == ()
