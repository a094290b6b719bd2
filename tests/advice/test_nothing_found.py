"""The hint where no rule finds a change to try."""

from dataclasses import replace

import pytest
from evidence_examples import evidence, failed
from narrowing import present
from rule_examples import good, reshaped, with_parts, with_run

from harness.advice.nothing_found import nothing_found
from harness.records import Evidence, SuiteMember


def words(kernel: Evidence, *, is_tried: bool = False) -> str:
    (hint,) = nothing_found(kernel, is_tried=is_tried)
    assert (hint.because, hint.kind, hint.gain) == ("", "", None)
    return f"{hint.observation} -> {hint.suggestion}"


def test_what_is_known_of_the_rest_and_the_commands_that_show_more_are_named() -> None:
    kernel = with_parts(reshaped(good(1.0e-3)), ("operand wait", "args_0_.3", 0.28), ("unit stall", "MXU busy", 0.1))
    kernel_op, op = present(kernel.simulation).ops
    kernel = with_run(kernel, ops=(kernel_op, replace(op, name="reshape.0", seconds=0.04e-3)))
    shown = words(kernel)
    assert shown.startswith("no rule finds a change to try; up to ")
    assert " of the time is left above the roofline; largest parts of the simulated cycles: issuing 62.0%, " in shown
    assert "operand wait `q` 28.0%, unit stall MXU busy 10.0%; " in shown
    assert "; outside the kernel: `reshape.0` 40.000 us (4.0%) [simulated v5e] -> " in shown
    assert "`lines` has the cycles of each line, `whatif` the gain" in shown
    assert words(kernel, is_tried=True).startswith("all changes that rules find were tried; up to ")


def test_without_a_schedule_the_share_of_the_time_is_said_alone() -> None:
    shown = words(evidence(0.80e-3, trace=None, hlo=None, mosaic=None, simulation=None))
    assert "cycles:" not in shown
    assert "outside" not in shown
    assert "above what the simulator lets pass [simulated v5e] -> " in shown


def test_nothing_is_left_at_the_roofline() -> None:
    at_the_roofline = evidence(0.80e-3).problem.work.matmul_flops / 197e12
    shown = words(evidence(1.001 * at_the_roofline))
    assert "nothing is left above the roofline" in shown
    assert "-> stop: " in shown


@pytest.mark.parametrize("kernel", [failed(), evidence(None), evidence(0.1e-3)])
def test_a_failure_and_a_time_that_cannot_be_have_no_such_hint(kernel: Evidence) -> None:
    assert nothing_found(kernel) == ()


def test_a_suite_has_the_share_of_each_member() -> None:
    member = evidence(1.0e-3)
    stated = tuple(
        SuiteMember(name=name, weight=1.0, function="kernel_fn", statement=member.problem) for name in ("short", "long")
    )
    suite = replace(member, problem=replace(member.problem, members=stated), members=(member, evidence(2.0e-3)))
    shown = words(suite)
    assert shown.startswith("no rule finds a change to try; short: up to ")
    assert " of the time is left above the roofline; long: up to " in shown
    assert shown.endswith("-> look into one member: `diagnose --member NAME`")
