"""Hints appear where the evidence supports them and nowhere else."""

import ast
import re
from dataclasses import replace
from pathlib import Path
from typing import Any, get_args

import numpy as np
import pytest
from evidence_examples import V5E, advised, evidence, failed, pallas_call, simulation
from narrowing import present
from rule_examples import rowwise, saved, twice, with_call, with_parts

from harness.advice import diagnose
from harness.advice.counters import counter_lines
from harness.advice.edits import SimulatedEdits
from harness.advice.failure_remedies import next_step
from harness.advice.observed import times_read
from harness.advice.report import report
from harness.operators import Matmul, tolerance
from harness.records import Ceiling, Evidence, Failure, OpTime, Stage

ROOT = Path(__file__).parents[2]


def text(kernel: Evidence) -> str:
    return "\n".join(f"{hint.observation} -> {hint.suggestion}" for hint in advised(kernel))


def traced(kernel: Evidence, **changes: Any) -> Evidence:
    return replace(kernel, trace=replace(present(kernel.trace), **changes))


# Compute-bound, no gap worth a word, nothing wrong: 0.70 ms are the floor.
GOOD = evidence(0.76e-3, bq=2048, bkv=512)


def test_the_same_change_is_suggested_once() -> None:
    cycles = 3.0e-3 * 1.5e9
    run = simulation(3.0e-3, unit_stall_cycles=0.45 * cycles)
    idle = tuple(replace(unit, busy_cycles=0.13 * cycles) if unit.name == "MXU" else unit for unit in run.units)
    words = text(evidence(3.0e-3, simulation=replace(run, units=idle)))
    assert words.count("raise the key/value block") == 1
    # The stalls bound the gain more closely than the gap does, so the hint on stalls is shown.
    assert "waits for busy units" in words


def test_work_around_the_kernel() -> None:
    assert "copies" not in text(GOOD)
    kernel = evidence(0.80e-3, bq=2048, bkv=512)
    hlo = replace(present(kernel.hlo), copy=1)
    op = OpTime(name="naive.1", bundles=600, executed_bundles=1, cycles=1.0, seconds=0.7e-3)
    copy = replace(op, name="copy.9", seconds=0.1e-3)
    run = simulation(0.80e-3, ops=(op, copy))
    words = text(replace(kernel, hlo=hlo, simulation=run))
    assert "1 copy or transpose around the kernel; 1 operation outside the kernel, `copy.9`, takes 100.000 us" in words
    # A copy that is no operation of the schedule brings an operand into VMEM, beside the kernel.
    brought = replace(kernel, hlo=hlo, simulation=simulation(0.80e-3, ops=(op,)))
    assert "around" not in text(brought)
    remarks = [line.remark for line in counter_lines(brought) if line.name == "copy"]
    assert remarks == [
        "operands brought into another memory, such as VMEM; no operation of the schedule copies within HBM"
    ]
    remarks = [line.remark for line in counter_lines(replace(brought, simulation=run)) if line.name == "copy"]
    assert remarks[0].startswith("whole buffers copied in HBM")
    # Without a finished run it is unknown whether a counted copy moves a whole buffer.
    unfinished = replace(brought, simulation=simulation(None))
    remarks = [line.remark for line in counter_lines(unfinished) if line.name in ("copy", "transpose")]
    assert all(remark.startswith("counted in the module's text") for remark in remarks if remark)
    assert any(remarks)
    # If no op has the kernel's name, it is unknown which op is the kernel.
    assert "around" not in text(replace(kernel, simulation=simulation(0.80e-3, ops=(copy,))))


def test_a_failure_gets_its_next_step_only() -> None:
    (hint,) = advised(failed("compile", "vmem-exceeded"))
    assert hint.observation == "compile failed: vmem-exceeded"
    assert "make blocks smaller" in hint.suggestion


@pytest.mark.parametrize(
    ("message", "words"),
    [
        (
            "Allocation (size=4194304) would exceed memory (size=1048576) :: #allocation2 [shape = 's32[1048576]"
            "{0:T(128)}', space=smem, size = 0x400000, scoped, tag = 'scratch operand'] :: f.1",
            "scalar memory (SMEM) is full",
        ),
        (
            "failed to legalize operation 'arith.shrui': %3 = \"arith.shrui\"(%1, %2) : (vector<8x128x4xi8>, "
            'vector<8x128x4xi8>) -> vector<8x128x4xi8>\nat location: loc("shift:"("shift"("body"("kernel.py":10:22 to '
            ":28))))",
            "before kernel.py line 10 convert with .astype(jnp.int32)",
        ),
        ("failed to legalize operation 'arith.shrui': %3 = (vector<8x128xi32>)", "read the compiler's sentence"),
    ],
)
def test_a_sentence_of_the_compilers_has_its_own_remedy(message: str, words: str) -> None:
    assert words in next_step(Failure(stage="compile", kind="compile-error", message=message))


@pytest.mark.parametrize(
    ("sentence", "words"),
    [
        (
            "ValueError: Length of grid does not match length of dimension semantics. len(grid)=3, "
            "len(dimension_semantics)=2",
            "one entry for each axis of the grid (3)",
        ),
        (
            "ValueError: Reshape a ref with different number of elements: (8, 128) vs (8,)",
            "correct the mistake that the sentence",
        ),
        ("ValueError: The Pallas TPU lowering currently requires that rank 1 block shapes", "this release of JAX"),
        ("NotImplementedError: Unimplemented primitive in Pallas TPU lowering: sort", "this release of JAX"),
    ],
)
def test_a_mistake_in_the_program_is_told_from_what_jax_lacks(sentence: str, words: str) -> None:
    message = f"lowering for the v5e failed: kernel.py line 41: {sentence}"
    detail = f"Traceback (most recent call last):\n{sentence}"
    assert words in next_step(Failure(stage="compile", kind="unsupported", message=message, detail=detail))


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        (np.s_[:, :], "nearly the whole output is wrong"),
        (np.s_[64:, :], "has edges"),
        (np.s_[::24, 5], "a few scattered elements"),
        (np.random.default_rng(0).random((96, 128)) < 0.05, "scattered over this part"),
        # The last block, in several parts because some of its rows are right.
        ([*range(65, 70), *range(71, 76), *range(77, 82), *range(83, 88), *range(89, 96)], "has edges"),
    ],
)
def test_a_wrong_result_is_told_what_its_wrong_part_suggests(wrong: Any, words: str) -> None:
    product = Matmul(m=96, n=128, k=128, dtype="float32")
    inputs = product.make_inputs("normal", 1)
    outputs = inputs[0].astype(np.float32) @ inputs[1].astype(np.float32)
    outputs[wrong] += 1
    _, failure = tolerance.check(product, inputs, outputs, family="normal", mode="reduced", seed=1)
    assert failure is not None
    suggestion = next_step(failure, "matmul")
    assert suggestion.startswith(words) or words in suggestion.partition(":")[0]
    assert suggestion.count("look for") == 1


def test_a_forbidden_rounding_is_told_to_be_left_out() -> None:
    message = "forbidden rounding: the statement keeps the gate in float32, but the error of y is that of rounding"
    assert "keep in float32" in next_step(Failure(stage="correctness", kind="wrong-result", message=message))


def test_errors_that_are_larger_throughout_are_told_from_wrong_elements() -> None:
    failure = Failure(
        stage="correctness",
        kind="wrong-result",
        message="wrong result: worst element o[1, 249, 52] is 103.5, expected 102.673, 0.569 times the tolerance; root "
        "mean square error 1.24 times its tolerance",
        detail="0 of 65536 compared elements are outside their tolerance",
    )
    assert next_step(failure).startswith("no element is far off")


def test_an_access_out_of_bounds_at_a_smaller_shape_alone_has_a_way_out() -> None:
    message = "in TPU interpret mode: IndexError: Out-of-bounds read of (0 0 vmem 110)"
    failure = Failure(stage="correctness", kind="out-of-bounds", message=message)
    assert "smaller shape" not in next_step(failure)
    smaller = replace(failure, message=f"at a smaller shape, pages 28, pages_per_sequence 6: {message}")
    assert "let kernel_fn raise an error there" in next_step(smaller)


def kinds_of(stage: str) -> set[str]:
    """The kinds of failure that the judge's own files name for a stage."""
    kinds = set()
    for path in (ROOT / "harness" / "judge").rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Call) and getattr(node.func, "id", "") == "Rejected":
                words = [argument.value for argument in node.args[:2] if isinstance(argument, ast.Constant)]
                kinds |= {str(words[1])} if len(words) == 2 and words[0] == stage else set()
    return kinds


@pytest.mark.long
@pytest.mark.parametrize("stage", ["contract", "static", "compile"])
def test_each_kind_of_failure_has_a_remedy_of_its_own(stage: Stage) -> None:
    kinds = kinds_of(stage)
    assert len(kinds) > 2
    by_stage = next_step(Failure(stage=stage, kind="never heard of", message=""))
    # A remedy for all kinds of a stage would tell the user of an option to move arithmetic into the Pallas call.
    assert {kind for kind in kinds if next_step(Failure(stage=stage, kind=kind, message="")) == by_stage} <= {
        "no-module"
    }


def test_products_in_one_pass_are_named_where_float32_is_asked_for() -> None:
    wrong = failed("correctness", "wrong-result")
    wrong = traced(replace(wrong, trace=GOOD.trace), one_pass_lines=("kernel.py line 10",))
    outputs = tuple(replace(output, dtype="float32") for output in wrong.problem.outputs)
    (hint,) = advised(replace(wrong, problem=replace(wrong.problem, outputs=outputs)))
    assert "precision='highest' to the product in kernel.py line 10" in hint.suggestion
    # Operands that the kernel cast up from bfloat16 are as exact after one pass.
    assert "that the kernel cast up from bfloat16 loses nothing" in hint.suggestion
    inputs = tuple(replace(array, dtype="float32") for array in wrong.problem.inputs)
    (hint,) = advised(replace(wrong, problem=replace(wrong.problem, inputs=inputs, outputs=outputs)))
    assert "cast up" not in hint.suggestion
    # If the outputs are bfloat16, one pass is as exact as they are.
    assert "precision" not in advised(wrong)[0].suggestion


def test_a_sum_kept_in_bfloat16_is_named_where_results_are_off_by_no_more_than_it_explains() -> None:
    wrong = failed("correctness", "wrong-result")
    wrong = traced(replace(wrong, trace=GOOD.trace), narrow_sums=("kernel.py line 12",))
    check = replace(GOOD.checks[0], error=3.0, tolerance=1.0, passed=False)
    for criterion in ("worst element", "root mean square"):
        (hint,) = advised(replace(wrong, checks=(replace(check, criterion=criterion),)))
        assert "keep the sums at kernel.py line 12 in float32" in hint.suggestion
        assert "SUMS" not in hint.suggestion
        paged = replace(wrong.problem, operation="paged_attention")
        stated = replace(paged, parameters=(*paged.parameters, ("sums", "bfloat16")))
        for problem, names_it in ((paged, True), (stated, False)):
            (hint,) = advised(replace(wrong, problem=problem, checks=(replace(check, criterion=criterion),)))
            assert ("state SUMS = 'bfloat16' in prepare.py" in hint.suggestion) is names_it
    for far in (
        replace(check, error=1e3),
        replace(check, error=None),
        replace(check, criterion="exact", tolerance=0.0),
    ):
        assert "float32" not in advised(replace(wrong, checks=(far,)))[0].suggestion


def test_every_stage_has_a_next_step() -> None:
    for stage in get_args(Stage):
        assert next_step(Failure(stage=stage, kind="never heard of", message=""))


@pytest.mark.parametrize(
    ("kind", "words"),
    [
        ("trace-error", "raises an error while it is traced"),
        ("import-error", "raises an error while it is imported"),
        ("wrong-dtype", "cast the values that the kernel stores to the problem's dtype"),
        ("wrong-shape", "the problem's shape"),
        ("wrong-structure", "return the problem's outputs"),
        ("wrong-signature", "parameters named above"),
        ("missing-kernel-fn", "define kernel_fn"),
        ("bad-claim", "or delete the function"),
        ("sharded", "the body of shard_map"),
        ("bad-claim", "correct what that function returns"),
        ("foreign-import", "import only modules"),
        ("no-module", "do what the sentence above asks"),
    ],
)
def test_a_broken_contract_is_told_what_mends_it(kind: str, words: str) -> None:
    remedy = next_step(Failure(stage="contract", kind=kind, message=""), "rmsnorm")
    assert words in remedy
    assert "export" not in remedy


@pytest.mark.parametrize("kind", ["flop-claim", "vmem-exceeded", "non-finite"])
def test_only_attention_is_told_its_own_words_after_a_failure(kind: str) -> None:
    failure = Failure(stage="static", kind=kind, message="")
    special = re.compile("pairs|scores|query|key|masked|row maximum")
    assert special.search(next_step(failure, "attention"))
    assert not special.search(next_step(failure, "rmsnorm"))


def test_blocks_that_no_step_writes_are_put_down_to_the_grid_first() -> None:
    remedy = next_step(Failure(stage="correctness", kind="non-finite", message=""), "formula")
    assert remedy.index("index maps of out_specs") < remedy.index("overflow")


def test_a_refused_option_is_not_put_down_to_memory() -> None:
    (hint,) = advised(failed("compile", "unsupported"))
    assert "remove or rewrite the operation that the compiler names" in hint.suggestion
    for kind in ("unsupported", "compile-error", "never heard of"):
        assert "smaller blocks" not in next_step(Failure(stage="compile", kind=kind, message=""), "attention")


def test_impossible_and_unknown_latencies_get_no_hints() -> None:
    assert advised(evidence(0.1e-3)) == ()
    assert advised(evidence(None)) == ()


def test_odd_shapes_of_a_candidate_do_not_break_the_rules() -> None:
    windows = pallas_call(128, 256).windows
    for block in ((128,), (0, 128), (1, 128, 128), ()):
        odd = with_call(evidence(3.0e-3), windows=(windows[0], replace(windows[1], block_shape=block), *windows[2:]))
        assert "block (rows" not in text(odd)
    assert text(with_call(evidence(3.0e-3), grid=(0, 0))) == text(with_call(evidence(3.0e-3), grid=(0, 1)))


def test_times_read() -> None:
    query, key, *_ = pallas_call(128, 256).windows
    assert times_read(query) == 1
    assert times_read(key) == 128
    assert times_read(replace(key, fetches=None)) is None


def test_no_two_hints_turn_the_same_knob() -> None:
    """Spills ask for a smaller key block, many stalls for a larger one: only the stronger hint is shown."""
    spilling = simulation(6e-3, executed_spills=2_000_000, executed_fills=2_000_000, unit_stall_cycles=4e6)
    suggestions = [hint.suggestion for hint in advised(replace(evidence(6e-3, bq=1024), simulation=spilling))]
    assert sum("key/value block" in suggestion for suggestion in suggestions) == 1


def test_a_what_if_bounds_the_gain() -> None:
    kernel = with_parts(evidence(1.2e-3, bq=2048, bkv=2048), ("operand wait", "k", 0.3))
    figures = report(kernel, V5E)
    ceiling = Ceiling(resource="memory", time_ratio=0.9, words="transfers that take no time")
    (plain,) = [hint for hint in diagnose.hints(kernel, figures) if hint.rule == "DMA waits"]
    (bounded,) = [hint for hint in diagnose.hints(kernel, figures, (), (ceiling,)) if hint.rule == "DMA waits"]
    assert plain.gain == pytest.approx(0.3)
    assert plain.gain_source == "simulated schedule"
    assert bounded.gain == pytest.approx(0.1)
    assert bounded.gain_source == "simulated what-if: transfers that take no time"


def test_hints_are_ranked_by_gain() -> None:
    gains = [hint.gain or 0.0 for hint in advised(saved("naive-2048x1024-v5e"))]
    assert gains == sorted(gains, reverse=True)
    assert len(gains) >= 3


# 512 rows of 2048 columns in 16 steps: twice the block takes 16 MiB, and the weights beside it exceed the limit.
def few_steps(latency_seconds: float) -> Evidence:
    return with_parts(rowwise(latency_seconds, columns=2048, block=512), ("fill and drain", "pipeline", 0.2), steps=16)


def test_a_block_beyond_the_vmem_limit_comes_with_the_limit() -> None:
    kernel = few_steps(0.12e-3)
    figures = report(kernel, V5E)
    (hint,) = [hint for hint in diagnose.hints(kernel, figures) if hint.rule == "fill and drain"]
    assert [edit.new for edit in hint.edits] == [256]
    assert hint.suggestion.endswith(
        "256 and 1024 along axis 0 of x's block, now 512 x 2048; 1024 needs about 16,793,600 bytes of VMEM: in the "
        "same attempt, raise vmem_limit_bytes in pltpu.CompilerParams (now 16,777,216) above that"
    )
    assert all(edit.new < 1024 for edit in diagnose.edits(kernel, figures))
    with_room = with_call(kernel, vmem_limit_bytes=32 << 20)
    (hint,) = [hint for hint in diagnose.hints(with_room, report(with_room, V5E)) if hint.rule == "fill and drain"]
    assert [edit.new for edit in hint.edits] == [256, 1024]
    assert "VMEM" not in hint.suggestion


def test_several_calls_without_room_are_told_to_raise_the_limit() -> None:
    words = []
    for block in (256, 512):
        kernel = twice(rowwise(0.3e-3, columns=2048, block=block))
        work = replace(kernel.problem.work, minimum_hbm_bytes=2 * kernel.problem.work.minimum_hbm_bytes)
        kernel = replace(kernel, problem=replace(kernel.problem, work=work))
        words += [hint.suggestion for hint in advised(kernel) if hint.rule == "idle bandwidth"]
    room, full = words
    assert room == "double the block, so that each transfer is longer and there are fewer of them"
    assert full.startswith(f"{room}; the block needs about 16,8")


def test_advice_to_stop_tuning_blocks_is_not_given_with_advice_on_blocks() -> None:
    kernel = few_steps(84e-6)
    figures = report(kernel, V5E)
    assert [hint.rule for hint in diagnose.hints(kernel, figures)] == ["memory floor"]
    (edit, *_) = diagnose.edits(kernel, figures)
    for time_ratio, rules in ((0.98, ["fill and drain"]), (1.1, ["memory floor"])):
        timed = SimulatedEdits(constant="BR", old="512", new="256", edits=(edit,), time_ratio=time_ratio)
        assert [hint.rule for hint in diagnose.hints(kernel, figures, simulated=(timed,))] == rules
