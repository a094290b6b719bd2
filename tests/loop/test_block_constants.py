"""Constants of kernel.py that set a block, found by its BlockSpec or else by their values."""

from dataclasses import replace

import pytest
from evidence_examples import evidence

from harness.advice.failure_remedies import next_step
from harness.candidate import Candidate
from harness.loop import scaffold
from harness.loop.block_constants import with_settings
from harness.records import Edit, Evidence, Failure, Hint

# Query blocks of 128 rows, key and value blocks of 256.
KERNEL = scaffold.text("attention", "kernel.py")
UNNAMED = KERNEL.replace(b"BQ = 128", b"BQ = 256").replace(b"BlockSpec((BKV, d)", b"BlockSpec(block(BKV)")
KEYS = Edit(window="k", axis=-2, size=256, new=512)


def suggested(kernel: bytes, *edits: Edit, judged: Evidence | None = None) -> tuple[str, tuple[tuple[str, ...], ...]]:
    judged = judged or evidence(1e-3)
    hint = Hint(observation="seen", suggestion="another block", edits=edits)
    (hint_with_settings,) = with_settings((hint,), judged, Candidate(text=kernel))
    return hint_with_settings.suggestion, tuple(edit.constants for edit in hint_with_settings.edits)


@pytest.mark.parametrize(
    ("kernel", "constants"),
    [
        (KERNEL, ("BKV",)),
        # The BlockSpec distinguishes constants of equal value.
        (KERNEL.replace(b"BQ = 128", b"BQ = 2 * 128"), ("BKV",)),
        (UNNAMED, ("BQ", "BKV")),
        (KERNEL.replace(b"BKV = 256", b"BKV = None"), ()),
        # Two names in one assignment cannot be set; another block's constant of that size does not count.
        (KERNEL.replace(b"BKV = 256", b"BKV = OTHER = 256").replace(b"BQ = 128", b"BQ = 256"), ()),
    ],
)
def test_the_constant_of_a_block_is_named(kernel: bytes, constants: tuple[str, ...]) -> None:
    assert suggested(kernel, KEYS)[1] == (constants,)


def test_advice_is_a_setting_to_try() -> None:
    assert suggested(KERNEL, KEYS, replace(KEYS, new=128))[0] == "another block (sweep with --set BKV=512,128)"
    queries = Edit(window="q", axis=-2, size=128, new=256)
    assert suggested(KERNEL, KEYS, queries)[0] == "another block (--set BKV=512 or --set BQ=256)"
    assert (
        suggested(UNNAMED, KEYS)[0] == "another block (first --set BQ=512; if it changes another block, --set BKV=512)"
    )
    assert suggested(b"no Python (", KEYS)[0] == "another block"


def test_without_a_trace_values_alone_tell() -> None:
    assert suggested(KERNEL, KEYS, judged=evidence(1e-3, trace=None))[1] == (("BKV",),)


def test_a_block_beyond_its_array_is_told_where_the_block_specs_are() -> None:
    message = 'Out-of-bounds block index (3, 0) for input "x_ref" in iteration (2,)'
    failure = Failure(stage="correctness", kind="out-of-bounds", message=f"in TPU interpret mode: {message}")
    lines = [number for number, line in enumerate(KERNEL.decode().splitlines(), 1) if "pl.BlockSpec(" in line]
    words, _ = suggested(KERNEL, judged=replace(evidence(1e-3), failure=failure))
    assert words == f"{', '.join(f'kernel.py:{number}' for number in lines)}: another block"
    assert next_step(failure).startswith("correct the index map of the BlockSpec of x_ref: ")
    assert suggested(b"no Python (", judged=replace(evidence(1e-3), failure=failure))[0] == "another block"
