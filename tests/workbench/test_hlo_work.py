"""Facts read off a module's text: copies and their causes, loops, FLOPs of convolutions, whole shapes."""

import pytest

from harness.hlo import parse
from harness.workbench.hlo.copies import copies
from harness.workbench.hlo.global_shapes import true_shapes
from harness.workbench.hlo.graph import Graph
from harness.workbench.hlo.work import work

TWO_MATMULS = """
HloModule jit_matmul, num_partitions=128

add {
  a = bf16[] parameter(0)
  b = bf16[] parameter(1)
  ROOT c = bf16[] add(a, b)
}

ENTRY main {
  x = bf16[8,8192]{1,0:T(8,128)(2,1)} parameter(0)
  w1 = bf16[4096,8192]{1,0:T(8,128)(2,1)} parameter(1)
  w2 = bf16[8192,4096]{1,0:T(8,128)(2,1)} parameter(2)
  up = bf16[8,4096]{1,0:T(8,128)(2,1)} dot(x, w1), lhs_contracting_dims={1}, rhs_contracting_dims={1}
  down = bf16[8,8192]{1,0:T(8,128)(2,1)} dot(up, w2), lhs_contracting_dims={1}, rhs_contracting_dims={1}
  ROOT sum = bf16[8,8192]{1,0:T(8,128)(2,1)} all-reduce(down), to_apply=add,
    replica_groups={{0,16,32,48,64,80,96,112},...}
}
"""


def test_the_worked_example_of_true_shapes_follows_from_the_all_reduce() -> None:
    graph = Graph(module=parse.module(TWO_MATMULS))
    whole = {shape.name: shape.whole for shape in true_shapes(graph)}
    assert whole["w1"] == "bf16[32768,8192]"
    assert whole["w2"] == "bf16[8192,32768]"
    # x and the result are whole on every device.
    assert "x" not in whole
    assert "sum" not in whole
    done = [work(graph, i).flops for i, _ in graph.executions() if i.opcode == "dot"]
    assert done == [2 * 8 * 8192 * 4096] * 2


FETCHED_IN_PARTS = """
HloModule fetched

ENTRY main {
  w = bf16[1024,16384]{1,0:T(8,128)(2,1)} parameter(0)
  start = ((bf16[1024,16384]{1,0:T(8,128)(2,1)}), bf16[256,16384]{1,0:T(8,128)(2,1)S(1)}, s32[]{:S(2)}) slice-start(w),
    slice={[0:256], [0:16384]}
  ROOT part = bf16[256,16384]{1,0:T(8,128)(2,1)S(1)} slice-done(start)
}
"""


def test_a_slice_that_is_fetched_beside_other_work_moves_that_slice_alone() -> None:
    graph = Graph(module=parse.module(FETCHED_IN_PARTS))
    done = {i.name: work(graph, i) for i, _ in graph.executions()}
    # It ends in VMEM: HBM is only read.
    assert (done["start"].hbm_bytes, done["start"].flops) == (2 * 256 * 16384, 0)
    assert (done["part"].hbm_bytes, done["part"].flops) == (0, 0)


COPIES = """
HloModule copies

body {
  state = (s32[], f32[1024,128]{1,0:T(8,128)}) parameter(0)
  i = s32[] get-tuple-element(state), index=0
  one = s32[] constant(1)
  next = s32[] add(i, one)
  value = f32[1024,128]{1,0:T(8,128)} get-tuple-element(state), index=1
  kept = f32[1024,128]{1,0:T(8,128)} copy(value), metadata={source_file="kernel.py" source_line=7}
  written = f32[1024,128]{1,0:T(8,128)} custom-call(kept, value), custom_call_target="tpu_custom_call"
  ROOT after = (s32[], f32[1024,128]{1,0:T(8,128)}) tuple(next, written)
}

condition {
  before = (s32[], f32[1024,128]{1,0:T(8,128)}) parameter(0)
  at = s32[] get-tuple-element(before), index=0
  end = s32[] constant(512)
  ROOT less = pred[] compare(at, end), direction=LT
}

ENTRY main {
  given = f32[128,1024]{0,1:T(8,128)} parameter(0)
  other = f32[128,1024]{1,0:T(8,128)} copy(given)
  zero = s32[] constant(0)
  turned = f32[1024,128]{1,0:T(8,128)} bitcast(given)
  start = (s32[], f32[1024,128]{1,0:T(8,128)}) tuple(zero, turned)
  loop = (s32[], f32[1024,128]{1,0:T(8,128)}) while(start), condition=condition, body=body
  made = f32[1024,128]{1,0:T(8,128)} get-tuple-element(loop), index=1
  used = f32[128,1024]{1,0:T(8,128)} negate(other)
  ROOT both = (f32[1024,128]{1,0:T(8,128)}, f32[128,1024]{1,0:T(8,128)}) tuple(made, used)
}
"""


def test_copies_have_producer_consumer_cost_cause_and_remedy() -> None:
    first, second = copies(Graph(module=parse.module(COPIES)))
    # f32[1024,128] is 512 KiB; 512 steps read and write it each time.
    assert (first.name, first.kind, first.runs) == ("kept", "defensive", 512)
    assert (first.bytes_moved, first.bytes_per_run) == (1 << 20, 512 << 20)
    assert first.consumers == ("written (tpu_custom_call)",)
    assert "read after its update" in first.cause
    assert "scratch" in first.remedy
    assert first.source == "kernel.py:7"
    assert (second.name, second.kind, second.producer) == ("other", "relayout", "given (argument 0)")
    assert "in_shardings=Format(Layout.AUTO)" in second.remedy
    assert second.consumers == ("used (negate)",)


def test_a_returned_argument_should_be_donated() -> None:
    text = "ENTRY e { x = f32[1024,1024]{1,0} parameter(0) ROOT y = f32[1024,1024]{1,0} copy(x) }"
    (copy,) = copies(Graph(module=parse.module(f"HloModule m\n{text}")))
    assert (copy.kind, copy.consumers) == ("defensive", ("the result",))
    assert "donate_argnums" in copy.remedy


LOOP = """
HloModule m
body {{
  b = (s32[]) parameter(0)
  i = s32[] get-tuple-element(b), index=0
  step = s32[] constant({step})
  next = s32[] {how}(i, step)
  ROOT t = (s32[]) tuple(next)
}}
condition {{
  c = (s32[]) parameter(0)
  j = s32[] get-tuple-element(c), index=0
  end = s32[] constant({end})
  ROOT r = pred[] compare(j, end), direction={direction}
}}
ENTRY e {{
  start = s32[] {start}
  s = (s32[]) tuple(start)
  ROOT w = (s32[]) while(s), condition=condition, body=body{known}
}}
"""


@pytest.mark.parametrize(
    ("changed", "trips"),
    [
        ({}, 10),
        ({"step": "3"}, 4),
        ({"direction": "LE"}, 11),
        ({"start": "constant(4)"}, 6),
        ({"start": "constant(20)"}, 0),
        ({"start": "constant(9)", "end": "-1", "step": "-2", "direction": "GT"}, 5),
        ({"start": "constant(9)", "end": "0", "step": "-1", "direction": "GE"}, 10),
        ({"start": "parameter(0)"}, None),
        ({"how": "multiply"}, None),
        ({"step": "0"}, None),
        ({"direction": "NE"}, None),
        ({"how": "multiply", "known": ', backend_config={"known_trip_count":{"n":"7"}}'}, 7),
    ],
)
def test_trip_counts(changed: dict[str, str], trips: int | None) -> None:
    plain = {"step": "1", "how": "add", "end": "10", "direction": "LT", "start": "constant(0)", "known": ""}
    graph = Graph(module=parse.module(LOOP.format(**{**plain, **changed})))
    assert list(graph.trips.values()) == [trips]
    assert graph.runs["body"] == trips


CONVOLUTIONS = """
HloModule m
ENTRY e {{
  x = f32[{x}] parameter(0)
  w = f32[{w}] parameter(1)
  ROOT y = f32[{y}] convolution(x, w), {how}
}}
"""


@pytest.mark.parametrize(
    ("x", "w", "y", "how", "flops"),
    [
        ("4,8", "8,16", "4,16", "dim_labels=bf_io->bf", 2 * 4 * 8 * 16),
        # 3 wide on 6 places with padding: 16 of 18 products meet the input.
        ("1,6,4", "3,4,5", "1,6,5", "window={size=3 pad=1_1}, dim_labels=b0f_0io->b0f", 2 * 4 * 5 * 16),
        ("1,6,4", "2,4,5", "1,3,5", "window={size=2 stride=2}, dim_labels=b0f_0io->b0f", 2 * 4 * 5 * 6),
        ("1,3,4", "3,4,5", "1,3,5", "window={size=3 pad=2_2 lhs_dilate=2}, dim_labels=b0f_0io->b0f", None),
        # A batched matmul as XLA writes it: the window meets one place of the batch at a time.
        (
            "8,4,16",
            "8,16,32",
            "8,4,32",
            "window={size=8 stride=7 pad=0_0 lhs_dilate=8}, dim_labels=0bf_0io->0bf",
            2 * 8 * 4 * 16 * 32,
        ),
    ],
)
def test_convolutions_count_no_padding(x: str, w: str, y: str, how: str, flops: int | None) -> None:
    graph = Graph(module=parse.module(CONVOLUTIONS.format(x=x, w=w, y=y, how=how)))
    (computation,) = graph.module.computations
    done = work(graph, computation.instructions[-1]).flops
    if flops is None:
        # Three inputs with holes between: of 9 products per channel, those on holes do not count.
        assert done is not None
        assert 0 < done < 2 * 4 * 5 * 9
    else:
        assert done == flops


def test_a_branch_runs_a_number_of_times_that_nobody_knows() -> None:
    text = """
    HloModule m
    yes { p = f32[8192]{0} parameter(0) ROOT q = f32[8192]{0} negate(p) }
    no { r = f32[8192]{0} parameter(0) ROOT s = f32[8192]{0} copy(r) }
    ENTRY e {
      c = pred[] parameter(0)
      x = f32[8192]{0} parameter(1)
      ROOT y = f32[8192]{0} conditional(c, x, x), true_computation=yes, false_computation=no
    }
    """
    graph = Graph(module=parse.module(text))
    assert graph.runs == {"e": 1, "yes": None, "no": None}
    (copy,) = copies(graph)
    assert (copy.runs, copy.bytes_per_run) == (None, None)
