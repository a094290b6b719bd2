"""The rows of chips: what they must have, what they state to lack; and nothing else names a chip."""

import ast
from dataclasses import replace
from pathlib import Path

import pytest

import harness
from harness import chips
from harness.chips.row import Chip
from harness.errors import UsageError
from harness.hardware import CHIPS, DEFAULT_CHIP, TPUS, chip
from harness.judge.simulate.machine import machine_of
from harness.records.report_words import simulated, source_label, with_chip

PACKAGE = Path(harness.__file__).parent
# The rows, contests (each chooses its chip), and kernels that are planted for several chips.
CHOOSING = ("chips", "templates", "selftest")


@pytest.mark.parametrize("name", chips.names())
def test_a_row_is_that_of_its_file(name: str) -> None:
    assert chips.row(name).chip.name == name


def test_only_a_whole_chip_is_judged_and_only_one_with_units_is_simulated() -> None:
    assert {chip.name for chip in CHIPS} == set(chips.having(lambda row: isinstance(row.chip, Chip)))
    assert chips.having(lambda row: row.units is not None) == tuple(chip.name for chip in TPUS)
    with pytest.raises(UsageError, match="a chip with simulator constants, got h100; use one of v4, "):
        machine_of(chip("h100"))


def test_a_row_says_what_it_lacks() -> None:
    row = chips.row(DEFAULT_CHIP)
    with pytest.raises(ValueError, match="expected relative_uncertainty in the row of v5e, which has units: no time"):
        replace(row, relative_uncertainty=None)
    with pytest.raises(ValueError, match="expected mxu_size in the row of v5e"):
        replace(row, chip=replace(row.chip, mxu_size=None))
    with pytest.raises(ValueError, match="expected chip in the row of v2"):
        replace(row, chip=chips.row("v2").chip)


def test_times_of_a_chip_that_nothing_was_fitted_to_say_so() -> None:
    assert "v4" in chips.having(lambda row: row.units is not None and row.calibrated is None)
    assert simulated("v4") == source_label("simulated", "v4") == "simulated v4, not calibrated"
    assert simulated("v5e") == "simulated v5e"
    assert with_chip("measured", "v4") == "measured v4"
    assert source_label("measured cpu", "v4") == "measured cpu, says nothing about a TPU"
    # The label of a record that was made for an unknown chip.
    assert simulated("v99") == "simulated v99"


def test_no_code_beside_the_rows_names_a_chip() -> None:
    naming = {
        path.relative_to(PACKAGE).as_posix()
        for path in PACKAGE.rglob("*.py")
        if not set(CHOOSING) & set(path.relative_to(PACKAGE).parts)
        # Most files name none, not even in a docstring.
        if any(name in (text := path.read_text(encoding="utf-8")) for name in chips.names())
        for node in ast.walk(ast.parse(text))
        if isinstance(node, ast.Constant) and node.value in chips.names()
    }
    # It names the default chip.
    assert naming == {"hardware.py"}
