"""Which products two programs have in common: what JAX widens for a CPU is what it was, and nothing else is."""

import pytest

from harness.judge.evaluate.compile.artifact_check import agree, counted

DOTS = ("stablehlo.dot_general", "tpu.matmul")
LEFT, RIGHT, OUT = "tensor<8x16xf32>", "tensor<16x4x{}>", "tensor<8x4xf32>"
CONVERT = f'  %5 = "stablehlo.convert"(%1) : ({RIGHT.format("bf16")}) -> {RIGHT.format("f32")}\n'
DOT = f'  %6 = "stablehlo.dot_general"(%0, %{{}}) : ({LEFT}, {RIGHT.format("{}")}) -> {OUT}\n'
ON_CHIP = '  %6 = "tpu.matmul"(%0, %1, %2) : (vector<8x16xf32>, vector<16x4x{}>, vector<8x4xf32>) -> vector<8x4xf32>\n'


def both(checked: str, compiled: str) -> tuple[bool, bool]:
    """Whether they agree as they are, and with what was widened seen as it was."""
    there = counted((compiled,), DOTS)
    return agree(counted((checked,), DOTS), there), agree(counted((checked,), DOTS, as_widened=False), there)


@pytest.mark.parametrize(
    ("checked", "on_chip", "expected"),
    [
        (DOT.format(1, "f32"), "f32", (True, True)),
        (DOT.format(1, "bf16"), "bf16", (True, True)),
        (CONVERT + DOT.format(5, "f32"), "bf16", (False, True)),
        # Of a kernel that widens by itself.
        (CONVERT + DOT.format(5, "f32"), "f32", (True, False)),
        # Nothing was widened: one of them is less precise.
        (DOT.format(1, "f32"), "bf16", (False, False)),
        (CONVERT + DOT.format(1, "f32"), "bf16", (False, False)),
        # The name was given to another value since.
        (
            CONVERT + '  %5 = "stablehlo.add"(%3, %3) : (f32, f32) -> f32\n' + DOT.format(5, "f32"),
            "bf16",
            (False, False),
        ),
    ],
)
def test_a_widened_operand_is_told_from_a_float32_one(checked: str, on_chip: str, expected: tuple[bool, bool]) -> None:
    assert both(checked, ON_CHIP.format(on_chip)) == expected


EXPONENTIAL = '  %6 = "stablehlo.exponential"(%5) : (tensor<8xf32>) -> tensor<8xf32>\n'
ROUNDED = (
    '  %7 = "stablehlo.reduce_precision"(%6) <{exponent_bits = 8 : i32, mantissa_bits = 7 : i32}> : (tensor<8xf32>) -> '
    "tensor<8xf32>\n"
)


@pytest.mark.parametrize(
    ("rest", "dtype"),
    [
        ("", "bf16"),
        # Something else has it before it is rounded.
        ('  %8 = "stablehlo.add"(%6, %7) : (tensor<8xf32>, tensor<8xf32>) -> tensor<8xf32>\n', "f32"),
        # The name was given to another value since.
        (
            '  %6 = "stablehlo.add"(%7, %7) : (f32, f32) -> f32\n  %8 = "stablehlo.add"(%6, %6) : (f32, f32) -> f32\n',
            "bf16",
        ),
    ],
)
def test_a_value_that_is_kept_before_it_is_rounded_is_float32(rest: str, dtype: str) -> None:
    found = counted((EXPONENTIAL + ROUNDED + rest,), ("stablehlo.exponential",))
    assert [dtypes for _, dtypes in found] == [(dtype,)]
