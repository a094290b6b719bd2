"""The rules behind the analyses on captures made by hand: cases that must trigger them, and cases that must not."""

from dataclasses import replace

import pytest
from analyses import (
    breakdown,
    by,
    compare,
    framework_ops,
    gaps,
    lines,
    mfu,
    named,
    ops,
    overlap,
    roofline,
    scopes,
    steps_table,
    utilization,
    waste,
)
from analysis_examples import US, capture, device, op

from harness.records import Capture, Device, Operation
from harness.workbench.profiles import hotspots
from harness.workbench.profiles.analysis import tables
from harness.workbench.profiles.classes import direction, framework_category, op_class
from harness.workbench.profiles.database import Database
from harness.workbench.profiles.hotspots import segments
from harness.workbench.profiles.spans import length, shared_seconds, spans, within

# --- classes -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("operation", "expected"),
    [
        (op("fusion.3", "convolution fusion"), "matmul"),
        (op("dot_general.7", "dot"), "matmul"),
        (op("splash_mha_fwd_residuals.3", "custom-call"), "attention"),
        (op("splash_mqa_dkv.1", "custom-call"), "attention"),
        (op("flash_attention.2", "custom-call"), "attention"),
        (op("gmm.4", "custom-call"), "custom kernel"),
        (op("naive.1", "custom-call"), "custom kernel"),
        (op("all-reduce.2", "all-reduce"), "communication"),
        (op("fusion.8", "all-reduce fusion"), "communication"),
        (op("all_to_all.9", "all-to-all"), "communication"),
        (op("reduce_scatter.7", "reduce-scatter"), "communication"),
        (op("async-collective-done", "custom fusion"), "communication"),
        (op("async-start.4", "async-start"), "communication"),
        (op("slice-start.4", "async-start"), "memory transfer"),
        (op("copy-done.1", "copy-done"), "memory transfer"),
        (op("copy.1", "data formatting"), "data formatting"),
        (op("copy.1", "copy"), "data formatting"),
        (op("fusion.1", "custom fusion"), "custom fusion"),
        (op("fusion.1", "loop fusion"), "elementwise fusion"),
        (op("add.1", "non-fusion elementwise"), "elementwise fusion"),
        (op("exponential.1", "exponential"), "elementwise fusion"),
        (op("fusion.1", "output fusion"), "other fusion"),
        (op("fusion.1", "fusion", "%fusion.1 = f32[8]{0} fusion(f32[8]{0} %a), kind=kLoop"), "elementwise fusion"),
        (op("sort.1", "sort"), "routing"),
        (op("while.1", "while"), "control flow"),
        (op("all-gathered.1", "broadcast"), "other"),
        (op("gather.1", "gather"), "other"),
        (op("reduce.1", "reduce"), "other"),
    ],
    ids=lambda value: value if isinstance(value, str) else f"{value.name} {value.category}",
)
def test_classes_by_category_and_name(operation: Operation, expected: str) -> None:
    assert op_class(operation) == expected


@pytest.mark.parametrize(
    ("name", "framework_name", "expected"),
    [
        ("fusion.1", "jit(f)/transpose(jvp(mlp))/dot_general:", ("backward", "tf_op")),
        ("fusion.1", "jit(f)/transpose(checkpoint(jvp(mlp)))/dot_general:", ("backward", "tf_op")),
        ("fusion.1", "jit(f)/jvp(mlp)/transpose:", ("forward", "tf_op")),
        # The tf_op counts, whatever the name says.
        ("splash_mha_dkv.1", "jit(f)/jvp(attention)/pallas_call:", ("forward", "tf_op")),
        ("splash_mha_dkv.1", "", ("backward", "name")),
        ("splash_mha_fwd.1", "", ("forward", "name")),
        ("tgmm.2", "jit(f)/pallas_call:", ("backward", "name")),
        ("gmm.2", "", ("neither known", "")),
        ("transpose.1", "jit(f)/transpose:", ("neither known", "")),
    ],
)
def test_direction_by_tf_op_first_and_name_second(name: str, framework_name: str, expected: tuple[str, str]) -> None:
    assert direction(op(name, framework_name=framework_name)) == expected


@pytest.mark.parametrize(
    ("name", "category", "framework_name", "expected"),
    [
        ("fusion.1", "loop fusion", "jit(f)/layer/gla_attention/mul:", "gla"),
        ("fusion.1", "loop fusion", "jit(f)/angla/mul:", "other"),
        ("gmm.1", "custom-call", "jit(f)/pallas_call:", "moe"),
        ("fusion.1", "convolution fusion", "jit(f)/moe_block/dot_general:", "moe"),
        ("fusion.1", "convolution fusion", "jit(f)/self_attn/q_proj/dot_general:", "attention"),
        ("splash_mha_fwd.1", "custom-call", "", "attention"),
        ("fusion.1", "loop fusion", "jit(f)/pre_norm/rsqrt:", "norm"),
        ("fusion.1", "loop fusion", "jit(f)/embedder/gather:", "embedding"),
        ("all-gather.1", "all-gather", "jit(f)/self_attn/all_gather:", "collective"),
        ("fusion.1", "convolution fusion", "jit(f)/mlp/dot_general:", "matmul"),
        ("copy.1", "data formatting", "", "other"),
    ],
)
def test_framework_categories(name: str, category: str, framework_name: str, expected: str) -> None:
    assert framework_category(op(name, category, framework_name=framework_name)) == expected


@pytest.mark.long
def test_layers_of_a_mixture_of_experts() -> None:
    gmm, tgmm = op("gmm.1", "custom-call"), op("tgmm.2", "custom-call")
    # Two steps of three layers: 12 GMMs and 6 TGMMs each.
    ran = [(gmm if at % 3 else tgmm, 10.0 * at, 5.0) for at in range(36)]
    steps = [(0, 179), (180, 180)]
    experts = breakdown(capture(device(ran, steps=steps)))[2]
    assert experts.column("step_count") == (12.0, 6.0)
    assert experts.column("layers") == (3.0, 3.0)
    assert "counts differ" not in str(experts.notes)
    assert "counts differ" in str(breakdown(capture(device([*ran, (gmm, 356.0, 2.0)], steps=steps)))[2].notes)
    assert breakdown(capture(device(ran)))[2].column("layers") == (None, None)


def test_backward_loops_of_experts_are_a_gmm_and_the_tgmm_behind_it() -> None:
    gmm, tgmm, add = op("gmm.1", "custom-call"), op("tgmm.2", "custom-call"), op("add.1", "add")
    # Two GMMs of the forward pass, then twice dlhs, something between, TGMM.
    ran = [(gmm, 0.0, 5.0), (gmm, 5.0, 5.0)]
    for start in (10.0, 30.0):
        ran += [(gmm, start, 4.0), (add, start + 4.0, 1.0), (tgmm, start + 6.0, 3.0)]
    *_, loops = breakdown(capture(device(ran)))
    assert (loops.name, loops.column("count")) == ("backward_loops", (2,))
    assert loops.column("dlhs_seconds")[0] == pytest.approx(8.0 * US)
    assert loops.column("tgmm_seconds")[0] == pytest.approx(6.0 * US)
    assert loops.column("between_seconds")[0] == pytest.approx(4.0 * US)
    assert "backward_loops" not in named(breakdown(capture(device(ran[:2]))))


@pytest.mark.parametrize(("length", "is_said"), [(9.0, False), (12.0, True)])
def test_exponentials_that_bind_the_vector_unit(length: float, is_said: bool) -> None:
    soft = op("fusion.2", "loop fusion", framework_name="jit(f)/jvp(attention)/exp:")
    expert = op("fusion.1", "loop fusion", framework_name="jit(f)/expert/exp_and_more:")
    classes, _, _ = breakdown(capture(device([(expert, 0, 100 - length), (soft, 95, length)])))
    assert any("Exponentials take 12.0%, over 10%" in note for note in classes.notes) is is_said


def test_scopes_part_where_no_parenthesis_is_open() -> None:
    path = ("jit(f)", "transpose(jvp(a/b))", "while", "body", "dot_general")
    assert segments(f"{'/'.join(path)}:Dot") == path
    assert segments("") == ()


# --- idle time ---------------------------------------------------------------------------------


def test_spans() -> None:
    some = spans([(5, 6), (0, 2), (1, 3), (1.5, 1.6)])
    assert (some[0].tolist(), some[1].tolist()) == ([0, 5], [3, 6])
    assert length(some) == 4
    assert within(some, 2, 5.5) == 1.5
    assert within(some, 3, 5) == 0
    assert shared_seconds(some, spans([(2, 5.5), (-1, 0)])) == 1.5
    assert length(spans([])) == shared_seconds(some, spans([])) == 0


@pytest.mark.long
def test_fill_and_drain_are_told_apart_from_six_steps_on() -> None:
    work = op("fusion.1", "loop fusion")
    # Idle 50 of 100 us in the first two and last two steps, 4 in the others; the runs follow each other.
    busy = [50, 50, 96, 96, 96, 50, 50]
    ran = [(work, 100.0 * step, float(length)) for step, length in enumerate(busy)]
    ran_on = device(ran, steps=[(100.0 * step, 100.0) for step in range(7)])
    idle, _, _ = gaps(capture(ran_on))
    assert idle.column("part") == ("all runs", "fill: 2 steps", "steady: 3 steps", "drain: 2 steps")
    assert idle.column("idle_fraction") == pytest.approx((212 / 700, 0.5, 0.04, 0.5))
    assert idle.column("verdict") == ("red flag", "not counted", "excellent", "not counted")
    # The pattern leaves fill and drain out as well.
    assert "gaps between blocks" not in _seen(ran_on)
    five = device(ran[:5], steps=[(100.0 * at, 100.0) for at in range(5)])
    assert gaps(capture(five))[0].column("part") == ("all runs",)


@pytest.mark.parametrize(("idle", "expected"), [(4.9, "excellent"), (7.0, "fair"), (10.1, "red flag")])
def test_bubble_thresholds(idle: float, expected: str) -> None:
    ran_on = device([(op("fusion.1", "loop fusion"), 0.0, 100.0 - idle)], steps=[(0, 100)])
    assert gaps(capture(ran_on))[0].column("verdict") == (expected,)


@pytest.mark.parametrize(("kernel", "verdict"), [(100.0, "unknown"), (51.0, "unknown"), (49.0, "excellent")])
def test_no_verdict_where_one_kernel_fills_the_run(kernel: float, verdict: str) -> None:
    """46.5 % of such a kernel may be bubbles, although no operation waits for another."""
    ran = [(op("naive_attention.1", "custom-call"), 0.0, kernel), (op("fusion.1", "loop fusion"), kernel, 100 - kernel)]
    table = gaps(capture(device(ran, steps=[(0, 100)])))[0]
    assert table.column("idle_fraction") == (0.0,)
    assert table.column("custom_fraction") == pytest.approx((kernel / 100,))
    assert str(table.column("verdict")[0]).startswith(verdict)
    assert "ratchet.sh show N" in table.notes[-1]


@pytest.mark.long
def test_patterns_that_must_show() -> None:
    start, done, copy = op("copy-start.1", "copy-start"), op("copy-done.1", "copy-done"), op("fusion.1", "loop fusion")
    waiting = device([(start, 0, 1), (done, 1, 30), (copy, 31, 69)], steps=[(0, 100)])
    assert _seen(waiting) == ["transfers not overlapped", "one very long block"]
    short = device([(copy, 2.0 * at, 1.0) for at in range(50)], steps=[(0, 99)])
    assert _seen(short) == ["gaps between blocks", "many very short blocks", "one very long block"]
    late = device([(op("a", "sort"), 20, 30), (copy, 50, 30)], steps=[(0, 100)])
    assert _seen(late) == ["gaps between blocks", "idle at start and end"]


def test_a_loop_that_holds_operations_is_idle_between_them() -> None:
    loop, work = op("while.1", "while"), op("fusion.1", "loop fusion")
    ran_on = device([(loop, 0, 10), (work, 1, 3), (work, 6, 3)])
    around = replace(ran_on.executions[0], self_seconds=4 * US)
    database = Database(capture(replace(ran_on, executions=(around, *ran_on.executions[1:]))))
    busy = database.rows("select start_seconds, end_seconds from busy where of = 'everything' order by 1")
    assert busy == [pytest.approx((1 * US, 4 * US)), pytest.approx((6 * US, 9 * US))]
    assert database.rows("select position, start_seconds, end_seconds from gaps") == [
        ("between", pytest.approx(4 * US), pytest.approx(6 * US))
    ]


def _seen(ran_on: Device) -> list[object]:
    return [name for name, is_seen in by(gaps(capture(ran_on))[2], "pattern", "is_seen").items() if is_seen]


# --- verdicts ----------------------------------------------------------------------------------


@pytest.mark.long
def test_verdicts_of_the_roofline() -> None:
    slow, fast = "wrong sharding or layout?", "too fast: counts too high"
    for ratio, expected in ((0.5, fast), (1.0, "fine"), (1.1, "fine"), (1.5, "look"), (2.0, "look"), (2.1, slow)):
        work = replace(op("fusion.1", "loop fusion"), flops=197e6)
        # 1 us at the peak.
        assert roofline(capture(device([(work, 0, ratio)])))[0].column("verdict")[1] == expected, ratio


@pytest.mark.parametrize(
    ("tc", "hbm", "uncounted", "expected"),
    [
        (0.85, 0.20, 0.0, "compute-bound, efficient"),
        (0.20, 0.75, 0.0, "memory-bound: raise intensity"),
        (0.20, 0.29, 0.0, "both low: bubbles or overhead"),
        (0.85, 0.75, 0.0, "both high: near the ceiling"),
        (0.60, 0.20, 0.0, "compute leads, under target"),
        (0.10, 0.60, 0.0, "memory leads: raise intensity"),
        (0.85, 0.20, 0.1, "compute-bound, efficient"),
        (0.20, 0.29, 0.4, "open: TC up to 60%"),
        (None, 0.5, 0.0, "unknown"),
    ],
)
def test_four_way_reading(tc: float | None, hbm: float, uncounted: float, expected: str) -> None:
    moved = None if hbm is None else hbm * 819e9 * 100 * US
    work = replace(op("fusion.1"), flops=None if tc is None else tc * 197e12 * 100 * US, bytes_accessed=moved)
    ran = [(work, 0, 1), (op("kernel.1", "custom-call"), 1, 100 * uncounted)] if uncounted else [(work, 0, 1)]
    assert utilization(capture(device(ran, steps=[(0, 100)])))[0].column("reading") == (expected,)


# --- two captures, and none ---------------------------------------------------------------------


def test_compare_finds_renamed_operations_and_says_what_differs() -> None:
    def run(name: str, fusion: str, length: float, kind: str) -> Capture:
        renamed = op(fusion, "loop fusion", framework_name="jit(f)/mlp/tanh:")
        twins = [op(f"{name}.{twin}", "copy", framework_name="jit(f)/copy:") for twin in (1, 2)]
        ran = [(renamed, 0, length), (twins[0], 50, 1), (twins[1], 60, 1)]
        return capture(device(ran, kind=kind), name=name)

    totals, _, changes = compare(run("a", "fusion.7", 10, "TPU v4"), run("b", "fusion.9", 16, "TPU v5p"))
    assert changes.rows[0][:5] == ("fusion.9", "was fusion.7", *map(pytest.approx, (10 * US, 16 * US, 6 * US)))
    # Twins cannot be distinguished, so nothing is guessed about them.
    assert sorted(map(str, changes.column("what")[1:])) == ["new", "new", "vanished", "vanished"]
    assert any("A ran on TPU v4, B on TPU v5p" in note for note in totals.notes)
    assert any("shows no steps" in note for note in totals.notes)


def test_nothing_ran_is_said_and_no_zero_is_shown() -> None:
    nothing = Capture(name="nothing", paths=("x",), devices=())
    analyses = (ops, framework_ops, breakdown, overlap, roofline, lines, utilization, gaps, steps_table, scopes)
    tables = [table for analysis in analyses for table in analysis(nothing)]
    tables += [*mfu(nothing, 1, 1, 1), *compare(nothing, nothing)]
    assert len(tables) == 23
    assert all("has no device and no XLA operation" in table.why_empty for table in tables)
    (table,) = ops(capture(device([])))
    assert "has no operation on TPU:0" in table.why_empty


@pytest.mark.long
def test_a_loop_is_not_counted_beside_its_body() -> None:
    body = replace(op("fusion.1", "loop fusion"), flops=2e6)
    loop = replace(op("while.1", "while"), flops=20e6)
    ran_on = device([(loop, 0, 1), (body, 1, 10)], steps=[(0, 12)])
    rates = by(ops(capture(ran_on))[0], "operation", "flops_per_second")
    assert rates == {"fusion.1": pytest.approx(2e11), "while.1": None}
    assert mfu(capture(ran_on), 1, 1, 1)[0].column("step_flops")[1] == pytest.approx(2e6)


def test_what_runs_outside_the_steps_is_not_counted_in_them() -> None:
    work = replace(op("fusion.1", "convolution fusion"), flops=197e6)
    # 1 us at the peak in a step of 10 us, and once more before the step.
    ran_on = device([(work, 0, 1), (work, 20, 1)], steps=[(20, 10)])
    assert mfu(capture(ran_on), 1, 1, 1)[0].column("mfu")[1] == pytest.approx(0.1)


def test_operations_that_took_no_time_have_no_roofline() -> None:
    instant = replace(op("fusion.1", "loop fusion"), flops=1e6)
    assert "that took time" in roofline(capture(device([(instant, 0, 0)])))[0].why_empty


@pytest.mark.long
def test_devices_of_several_hosts_are_told_apart() -> None:
    gathered = op("all-reduce.1", "all-reduce")
    first_host = replace(device([(replace(gathered, flops=1.0, bytes_accessed=1.0), 0, 1)], steps=[(0, 2)]), host="a")
    both = capture(first_host, replace(first_host, host="b"))
    for table in (gaps(both)[0], steps_table(both)[0], utilization(both)[0], overlap(both)[0]):
        assert table.column("device") == ("a/TPU:0", "b/TPU:0")


@pytest.mark.long
def test_no_counts_and_no_steps_are_said() -> None:
    bare = capture(device([(op("fusion.1", "loop fusion"), 0, 10)]))
    assert "states neither FLOPs nor bytes" in roofline(bare)[0].why_empty
    assert "states neither FLOPs nor bytes" in utilization(bare)[0].why_empty
    assert "neither steps nor runs of modules" in mfu(bare, 1, 1, 1)[0].why_empty
    assert "neither steps nor runs of modules" in steps_table(bare)[0].why_empty
    assert "names its source" in lines(bare)[0].why_empty
    assert "has a tf_op" in scopes(bare)[0].why_empty


# --- layers and chains -------------------------------------------------------------------------


@pytest.mark.long
def test_time_by_layer_with_its_share_at_the_roofline() -> None:
    def product(name: str, layer: str) -> Operation:
        return replace(op(name, "convolution fusion", framework_name=f"jit(f)/jvp({layer})/dot:"), flops=197e6)

    ran = [
        (product("fusion.1", "layers_0"), 0.0, 2.0),
        (product("fusion.2", "layers_1"), 2.0, 6.0),
        (op("fusion.3", "loop fusion", framework_name="jit(f)/transpose(jvp(layers_1))/mul:"), 8.0, 2.0),
        (op("fusion.4", "loop fusion", framework_name="jit(f)/loss/mul:"), 10.0, 2.0),
    ]
    scoped, layers = tables(capture(device(ran)), hotspots.BY_SCOPE, depth=2, at_least=0.0)
    assert layers.column("layer") == (0, 1)
    assert layers.column("self_seconds") == pytest.approx((2 * US, 8 * US))
    assert layers.column("forward_seconds") == pytest.approx((2 * US, 6 * US))
    assert by(layers, "layer", "backward_seconds") == {0: None, 1: pytest.approx(2 * US)}
    # Both products need 1 us at the peak.
    assert layers.column("roofline_share") == pytest.approx((0.5, 0.5))
    assert by(scoped, "scope", "roofline_share")["  jvp(layers_1)"] == 0.5
    assert len(tables(capture(device(ran[3:])), hotspots.BY_SCOPE, depth=2, at_least=0.0)) == 1


def test_unfused_chains_with_their_bytes_in_one_pass() -> None:
    shape, size = "f32[1024,1024]{1,0:T(8,128)}", 4 * 1024 * 1024

    def step(name: str, operand: str, more: int) -> Operation:
        text = f"%{name} = {shape} fusion({shape} %{operand}), kind=kLoop, calls=%{name}_body"
        return replace(op(name, "loop fusion", text), bytes_accessed=float(more * size))

    ran = [
        (step("fusion.1", "param.1", 2), 0.0, 10.0),
        (step("fusion.2", "fusion.1", 2), 10.0, 10.0),
        (step("fusion.3", "fusion.2", 3), 20.0, 15.0),
        (step("fusion.31", "param.2", 2), 35.0, 10.0),
    ]
    chains = waste(replace(capture(device(ran)), paths=()))[2]
    (row,) = chains.rows
    # Seven arrays are moved now; in one pass, the two in between are neither written nor read.
    assert row[:5] == ("fusion.1", "fusion.3", 3, 7 * size, 3 * size)
    assert row[5] == pytest.approx(35 * US * 4 / 7)
    assert len(waste(replace(capture(device(ran[3:])), paths=()))) == 2
