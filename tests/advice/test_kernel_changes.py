"""The kind of each edit of a real kernel, and the edits that are several changes at once."""

import importlib.util
import re
from pathlib import Path

import pytest

from harness.advice.kernel_changes import (
    changed_constants,
    copied_from,
    kinds_of_change,
    mixed_kinds,
    names_observation,
    on_change,
    on_constants,
    on_hypothesis,
)
from harness.loop import scaffold

KERNEL, MATMUL = (scaffold.text(name, "kernel.py").decode() for name in ("attention", "matmul"))
MASK = """\
    rows = pl.program_id(0) * BQ + jax.lax.broadcasted_iota(jnp.int32, scores.shape, 0)
    columns = step * BKV + jax.lax.broadcasted_iota(jnp.int32, scores.shape, 1)
    scores = jnp.where(rows >= columns, scores, -1e30)
"""
SCRATCH = "scratch_shapes=[accumulator, accumulator, accumulator]"
COLUMNS = "scratch_shapes=[pltpu.VMEM((BQ, 1), jnp.float32), pltpu.VMEM((BQ, 1), jnp.float32), accumulator]"
BLOCK = ("BQ = 128", "BQ = 256")


def edited(*edits: tuple[str, str]) -> str:
    text = KERNEL
    for old, new in edits:
        assert old in text, f"the template has no {old!r}"
        text = text.replace(old, new)
    return text


@pytest.mark.parametrize(
    ("edits", "kinds"),
    [
        ([BLOCK], ("constants",)),
        ([BLOCK, ("BKV = 256", "BKV = 512")], ("constants",)),
        ([(SCRATCH, COLUMNS)], ("scratch",)),
        ([("weights.astype(v_ref.dtype)", "weights")], ("dtype",)),
        ([("preferred_element_type=jnp.float32", "preferred_element_type=jnp.bfloat16")], ("dtype",)),
        ([("    scores = scores * scale\n", "    scores = scores * scale\n" + MASK)], ("mask",)),
        ([("@pl.when(step == 0)", "@pl.when(step <= pl.program_id(0))")], ("mask", "body")),
        ([('("parallel", "arbitrary")', '("arbitrary", "arbitrary")')], ("grid",)),
        ([("lambda i, j: (j, 0)", "lambda i, j: (0, 0)")], ("grid",)),
        ([("vmem_limit_bytes=VMEM_LIMIT", "vmem_limit_bytes=64 << 20")], ("compiler",)),
        ([("jnp.exp(", "jnp.exp2(")], ("body",)),
        ([("4 * sequence * sequence * head_dim", "2 * sequence * sequence * head_dim")], ("claims",)),
        ([BLOCK, (SCRATCH, COLUMNS)], ("constants", "scratch")),
        ([BLOCK, ("jnp.exp(", "jnp.exp2(")], ("constants", "body")),
        ([("def kernel_fn(", "def kernel_fn((")], ("unreadable",)),
    ],
)
def test_kinds(edits: list[tuple[str, str]], kinds: tuple[str, ...]) -> None:
    assert kinds_of_change(KERNEL, edited(*edits)) == kinds
    # Undoing an edit is a change of the same kinds.
    assert kinds_of_change(edited(*edits), KERNEL) == kinds


def test_what_is_no_change_of_the_program() -> None:
    assert kinds_of_change(KERNEL, KERNEL) == ()
    assert kinds_of_change(KERNEL, f"# a word\n{KERNEL}") == ()
    assert kinds_of_change(KERNEL, KERNEL.replace('"""One step', '"""A step')) == ()
    assert kinds_of_change("", "") == ()


def test_casts_that_move_with_the_body_are_no_change_of_dtype() -> None:
    """Strips in place of whole blocks: the same casts, in another order."""
    whole = "def f(x, w, y):\n    y[...] = (x[...].astype(jnp.float32) * w[...]).astype(y.dtype)\n"
    strips = (
        "def f(x, w, y):\n    for i in range(4):\n        a = x[i].astype(jnp.float32)\n"
        "        y[i] = (a * w[...]).astype(y.dtype)\n"
    )
    assert kinds_of_change(whole, strips) == ("body",)
    assert kinds_of_change(whole, strips.replace("float32", "bfloat16")) == ("dtype", "body")
    # The same casts at other places of the same body are a change of dtype.
    swapped = whole.replace("y.dtype", "_").replace("jnp.float32", "y.dtype").replace("_", "jnp.float32")
    assert kinds_of_change(whole, swapped) == ("dtype",)


def test_a_new_body_is_no_change_of_the_grid_or_of_dtypes_that_were_there_before() -> None:
    """A second accumulator, turns of a loop and a step that reads its own position: one change, of the body."""
    product = "jnp.dot(a_ref[...], b_ref[...], precision=precision, preferred_element_type=jnp.float32)"
    assert product in MATMUL
    halves = (
        "sum(jnp.dot(a_ref[:, at], b_ref[at, :], precision=precision, preferred_element_type=jnp.float32)"
        " for at in (slice(0, BK // 2), slice(BK // 2, BK)))\n"
        "    turn = jnp.int32(pl.program_id(0) + pl.num_programs(0))\n"
        "    acc_ref[...] += jnp.zeros((BM, BN), jnp.float32) * turn"
    )
    assert kinds_of_change(MATMUL, MATMUL.replace(product, halves)) == ("body",)
    assert kinds_of_change(MATMUL, MATMUL.replace(product, halves.replace("jnp.float32", "jnp.bfloat16", 1))) == (
        "dtype",
        "body",
    )


def test_a_body_that_is_skipped_is_the_same_body() -> None:
    plain = "def f(o, step, rows):\n    o[...] = 1\n"
    skipped = "def f(o, step, rows):\n    @pl.when(step * 8 <= rows)\n    def needed():\n        o[...] = 1\n"
    assert kinds_of_change(plain, skipped) == ("mask",)


@pytest.mark.parametrize(
    ("kinds", "mixed"),
    [
        (("constants",), ()),
        (("body",), ()),
        (("scratch", "body"), ()),
        (("mask", "compiler", "body"), ()),
        (("constants", "scratch"), ("constants", "scratch")),
        (("constants", "body"), ("constants", "body")),
        (("constants", "dtype", "mask", "body"), ("constants", "dtype", "mask")),
        (("constants", "compiler"), ()),
        (("claims",), ()),
    ],
)
def test_mixed_kinds(kinds: tuple, mixed: tuple) -> None:  # type: ignore[type-arg]
    assert mixed_kinds(kinds) == mixed
    assert bool(on_change(kinds)) == bool(mixed)
    assert all(kind in on_change(kinds) for kind in mixed)


def test_several_constants_in_one_experiment_are_named() -> None:
    both = edited(BLOCK, ("BKV = 256", "BKV = 512"))
    assert changed_constants(KERNEL, both) == ("BQ", "BKV")
    assert "(BQ and BKV)" in on_constants(changed_constants(KERNEL, both))
    assert on_constants(changed_constants(KERNEL, edited(BLOCK))) == ""
    assert changed_constants(KERNEL, "def broken(") == ()


VAGUE = ("make it faster", "try something else", "better code", "clean up the kernel")
NAMING = ("raise BQ to 2048", "fewer spills", "K and V re-reads bind", "the MXU waits", "halve the HBM traffic")


@pytest.mark.parametrize("hypothesis", VAGUE + NAMING)
def test_a_hypothesis_with_and_without_an_observation(hypothesis: str) -> None:
    assert names_observation(hypothesis) == (hypothesis in NAMING)
    assert ("names no observation" in on_hypothesis(hypothesis)) == bool(on_hypothesis(hypothesis))
    assert bool(on_hypothesis(hypothesis)) == (hypothesis in VAGUE)
    # The example suits every operation: it names no array and no constant of attention.
    assert re.search(r"K/V|quer|\bB(Q|KV)\b", on_hypothesis(hypothesis)) is None


def test_a_copy_of_a_package_file_changes_only_where_it_differs_from_the_file() -> None:
    package = importlib.util.find_spec("jax.experimental.pallas.ops.tpu.flash_attention")
    assert package is not None
    text = Path(str(package.origin)).read_text()
    edited = text.replace("jnp.exp(", "jnp.exp2(")
    assert edited != text
    # As it is for an added file that no package has.
    assert len(mixed_kinds(kinds_of_change("", edited))) > 1
    copied = copied_from(edited.splitlines(), [["another"], text.splitlines()])
    assert kinds_of_change("\n".join(copied), edited) == ("body",)
    assert copied_from(["one line"], [text.splitlines()]) == ()
