"""Statements of the table of semantics about a chip, found in the schedules that its compiler makes."""

import functools
import json
import tempfile
from dataclasses import replace
from pathlib import Path

import pytest
from narrowing import present
from simulated_examples import compiled

from harness.dumps.llo import Schedule, read_module
from harness.hardware import chip

pytest.importorskip("libtpu", reason="the TPU compiler exists for x86-64 Linux only")
pytestmark = pytest.mark.slow

SUPPORT = Path(__file__).parents[2] / "support"
FIXTURES = Path(__file__).parents[2] / "fixtures"
CHIPS = ("v4", "v5e", "v5p", "v6e", "v7x")
# Chips that compute in bfloat16, and use reciprocals without a refinement.
NEW = ("v6e", "v7x")


@functools.cache
def schedules(name: str) -> dict[str, dict[str, int]]:
    topology = present(chip(name).topology)
    with tempfile.TemporaryDirectory() as folder:
        printed = compiled(SUPPORT / "compiled_operations.py", topology, name=name, folder=Path(folder))
    counts: dict[str, dict[str, int]] = json.loads(printed)
    return counts


def count(name: str, case: str, *beginnings: str) -> int:
    """The number of instructions of this schedule that begin with one of these."""
    operations = schedules(name)[case]
    return sum(number for operation, number in operations.items() if operation.startswith(beginnings))


def in_bfloat16(name: str, case: str) -> set[str]:
    """The arithmetic of this schedule that is done in bfloat16."""
    return {operation for operation in schedules(name)[case] if operation.endswith(".bf16") and "pack" not in operation}


@pytest.mark.parametrize("name", CHIPS)
def test_the_default_is_one_pass_and_highest_six(name: str) -> None:
    passes = count(name, "product", "vmatmul")
    assert passes > 0
    assert count(name, "product, highest", "vmatmul") == 6 * passes
    # Mixed operands need no more than float32.
    assert 0 < count(name, "product, mixed", "vmatmul") <= passes


@pytest.mark.parametrize("name", CHIPS)
def test_functions_of_bfloat16_are_computed_in_bfloat16_on_new_chips_only(name: str) -> None:
    for case in ("exp", "exp2", "log", "quotient", "cube"):
        assert bool(in_bfloat16(name, case)) is (name in NEW), (case, schedules(name)[case])
    # The exponential multiplies by log2 e first, the power of two does not.
    assert ("vmul.bf16" in in_bfloat16(name, "exp")) is (name in NEW)
    assert not count(name, "exp2", "vmul")
    # A quotient is a product with a reciprocal.
    assert count(name, "quotient", "vrcp") > 0
    assert count(name, "quotient", "vmul") > 0


@pytest.mark.parametrize("name", CHIPS)
def test_a_reciprocal_is_refined_on_old_chips_only(name: str) -> None:
    assert count(name, "quotient, float32", "vrcp.f32") > 0
    assert bool(count(name, "quotient, float32", "vsub.f32")) is (name not in NEW)
    assert count(name, "reciprocal, approximate", "vrcp.f32") > 0
    assert not count(name, "reciprocal, approximate", "vsub.f32", "vmul.f32")


@pytest.mark.parametrize("name", CHIPS)
def test_a_hint_is_believed(name: str) -> None:
    """The address of 128 lanes is their number shifted down, whether or not the hint is true: the rest is dropped."""
    for case in ("even hint", "false hint"):
        assert count(name, case, "sshra.s32", "sshrl.u32", "sand.u32") > 0, schedules(name)[case]
    assert not count(name, "false hint", "vrot", "vperm", "vsel"), "no lane is moved"


@pytest.mark.parametrize("case", ["v5e-1024x512-2048", "v6e-causal-4096"])
def test_naming_lines_changes_nothing_else_in_a_schedule(case: str, tmp_path: Path) -> None:
    """Screening asks the compiler for no lines."""
    dumps = []
    for with_lines in (True, False):
        folder = tmp_path / str(with_lines)
        (folder / "dumps").mkdir(parents=True)
        script = FIXTURES / "make_schedules.py"
        compiled(script, "--compile", case, name=case[:3], folder=folder, with_lines=with_lines)
        dumps.append(read_module(folder / "dumps"))
    named, plain = ([op for bundle in dump.schedules[0].bundles for op in bundle.ops] for dump in dumps)
    assert any(op.source for op in named)
    assert not any(op.source for op in plain)
    assert [_without_line(schedule) for schedule in (*dumps[0].schedules, dumps[0].top)] == [
        _without_line(schedule) for schedule in (*dumps[1].schedules, dumps[1].top)
    ]
    assert dumps[0].utilisations == dumps[1].utilisations
    assert None not in dumps[0].utilisations


def _without_line(schedule: Schedule) -> Schedule:
    bundles = (
        bundle._replace(ops=tuple(op._replace(source="", text=op.arguments) for op in bundle.ops))
        for bundle in schedule.bundles
    )
    return replace(schedule, bundles=tuple(bundles))
