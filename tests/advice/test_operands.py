"""The problem's names for operands that the compiler renames: used only if they are certain."""

import math
from dataclasses import replace

import pytest
from breakdown_examples import breakdown, timeline
from evidence_examples import evidence, statement
from narrowing import present
from rule_examples import with_call

from harness.advice.operands import in_problem_names, problem_names, with_callers_names
from harness.records import Window


@pytest.mark.parametrize(
    ("theirs", "ours"),
    [
        ("args_0_.3", "q"),
        ("operand wait `args_1_.3`", "operand wait `k`"),
        ("args_2_", "v"),
        ("fill and drain `naive.1 output`", "fill and drain `o`"),
        # The problem has three inputs, and these names belong to others.
        ("args_3_.1", "args_3_.1"),
        ("my_args_0_.3", "my_args_0_.3"),
        ("args_0_.3.remat", "args_0_.3.remat"),
        ("copy.args_0_.3", "copy.args_0_.3"),
        ("not_naive.1 output", "not_naive.1 output"),
        ("unit stall MXU busy", "unit stall MXU busy"),
    ],
)
def test_parameters_and_the_only_output_have_names(theirs: str, ours: str) -> None:
    assert problem_names(theirs, statement(), ["naive.1"]) == ours


def test_of_several_ops_none_is_said_to_write_the_problems_output() -> None:
    assert problem_names("naive.1 output", statement(), ["copy.9", "naive.1"]) == "naive.1 output"


@pytest.mark.parametrize(
    ("ops", "name"),
    [
        (["jaxpr_as_fun.1"], "o or c"),
        (["copy.9", "jaxpr_as_fun.1"], "the kernel's output"),
        (["jaxpr_as_fun.1", "jaxpr_as_fun.2"], "jaxpr_as_fun.1 output"),
    ],
)
def test_the_result_of_a_kernel_without_a_name_is_an_output_of_the_problem_or_the_kernels(
    ops: list[str], name: str
) -> None:
    problem = statement()
    problem = replace(problem, outputs=(*problem.outputs, replace(problem.outputs[0], name="c")))
    assert problem_names("operand wait `jaxpr_as_fun.1 output`", problem, ops) == f"operand wait `{name}`"


def test_a_timelines_operands_are_renamed_and_nothing_else() -> None:
    spans = tuple(replace(span, name="args_1_.3" if span.name == "k" else span.name) for span in timeline().spans)
    named = in_problem_names(replace(timeline(), spans=spans), statement())
    assert named == timeline()
    parts = tuple(replace(part, name="args_1_.3" if part.name == "k" else part.name) for part in breakdown().parts)
    text = "%naive.1 = bf16[8,128]{1,0} custom-call(%args_0_.3, %args_1_.3)"
    theirs = replace(timeline(), parts=(replace(breakdown(), parts=parts),), instructions={"naive.1": text})
    ours = in_problem_names(theirs, statement())
    assert ours.parts == (breakdown(),)
    assert ours.instructions == {"naive.1": "%naive.1 = bf16[8,128]{1,0} custom-call(%q, %k)"}
    op = replace(timeline().spans[0], name="args_0_.3")
    assert in_problem_names(replace(timeline(), spans=(op,)), statement()).spans == (op,)


def test_a_window_has_the_name_of_the_array_that_it_alone_can_be() -> None:
    windows = present(evidence().trace).pallas_calls[0].windows

    def names(*windows: Window) -> list[str]:
        trace = present(with_callers_names(with_call(evidence(), windows=windows)).trace)
        return [window.name for window in trace.pallas_calls[0].windows]

    q, k, v, o = windows
    other = [replace(window, name=f"{window.name}_block") for window in windows]
    assert names(q, k, v, o) == ["q", "k", "v", "o"]
    assert names(*other) == ["q_block", "k_block", "v_block", "o"], "three inputs of one kind may be any of the three"
    assert names(q, other[1], v, other[3]) == ["q", "k", "v", "o"]
    flat = replace(other[1], array=replace(k.array, shape=(math.prod(k.array.shape), 1)))
    assert names(q, flat, v, o) == ["q", "k", "v", "o"], "in another shape it is the same array"
    assert names(q, replace(flat, array=replace(flat.array, dtype="float32")), v, o)[1] == "k_block"
    assert names(q, other[1], other[1], o) == ["q", "k_block", "k_block", "o"]
