"""`--set NAME=VALUE` changes one constant and nothing else."""

import ast

import pytest
from hypothesis import given
from hypothesis import strategies as st
from refusals import refused

from harness.candidate import constants, refuse_text, rewrite
from harness.errors import UsageError
from harness.loop.settings import parse

SOURCE = '''"""Ünïcode docstring."""\r
BQ = 128  # rows of a query block
BKV: int = (
    256
)
TEXT = "ä"; AFTER = 3
def f():
    BQ = 7
    return BQ
'''.encode()


def test_only_the_value_changes_whole_even_over_several_lines() -> None:
    assert rewrite(SOURCE, "BQ", "2048", "kernel.py") == SOURCE.replace(b"BQ = 128 ", b"BQ = 2048 ")
    assert rewrite(SOURCE, "AFTER", "-1", "kernel.py") == SOURCE.replace(b"AFTER = 3", b"AFTER = -1")
    assert b"BKV: int = (\n    512\n)" in rewrite(SOURCE, "BKV", "512", "kernel.py")


@given(st.integers() | st.booleans() | st.text(alphabet="ab'\"\\\n", max_size=8))
def test_any_literal_comes_back(value: int | bool | str) -> None:
    name, text = parse(f"BQ={value!r}")
    tree = ast.parse(rewrite(SOURCE, name, text, "kernel.py"))
    values = [node.value for node in tree.body if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "BQ"]
    assert ast.literal_eval(values[0]) == value


def test_a_word_is_a_string() -> None:
    assert parse("DTYPE=float32") == ("DTYPE", '"float32"')
    assert parse("CAUSAL=True") == ("CAUSAL", "True")


@pytest.mark.parametrize("value", ["100*2**20", "-(3 * 4)", "64 << 20", "1.5e3 / 2", "+2**3"])
def test_arithmetic_stays_as_written(value: str) -> None:
    assert parse(f"BQ={value}") == ("BQ", value)
    assert ("BQ", ast.unparse(ast.parse(value, mode="eval"))) in constants(rewrite(SOURCE, "BQ", value, "kernel.py"))


@pytest.mark.parametrize("text", ["BQ=2*f()", "BQ=True*2", "BQ=[1]*9", "BQ=BKV*2"])
def test_what_is_no_arithmetic_on_numbers_is_refused(text: str) -> None:
    with pytest.raises(UsageError, match="arithmetic such as"):
        parse(text)


@pytest.mark.parametrize("text", ["BQ", "=3", "B Q=3", "BQ=", "BQ=f()", "BQ=1;import os"])
def test_a_bad_setting_is_named(text: str) -> None:
    with pytest.raises(UsageError, match="--set") as caught:
        parse(text)
    assert caught.value.kind == "bad-setting"


@pytest.mark.parametrize(
    ("source", "kind", "words"),
    [
        # The message lists the constants that exist.
        (SOURCE, "unknown-constant", "AFTER, BKV, BQ, TEXT"),
        (b"A = 1\nA = 2\n", "unknown-constant", "more than once"),
        (b"def f(:\n", "syntax-error", r"kernel\.py is not valid Python"),
    ],
)
def test_a_text_without_exactly_one_such_constant_is_refused(source: bytes, kind: str, words: str) -> None:
    with refused(kind, words):
        rewrite(source, "A", "3", "kernel.py")


@pytest.mark.parametrize("value", ["abc", "'512'", "BQ"])
def test_text_does_not_take_the_place_of_a_number(value: str) -> None:
    name, text = parse(f"BQ={value}")
    with pytest.raises(UsageError, match=r"--set BQ: expected a number, because BQ = 128 is a number, got '"):
        refuse_text(SOURCE, name, text)


@pytest.mark.parametrize("setting", ["BQ=512", "BQ=4*2**7", "BQ=None", "TEXT=abc", "NONE=abc"])
def test_what_may_be_meant_is_left_alone(setting: str) -> None:
    refuse_text(SOURCE, *parse(setting))
