"""Windows of a Pallas call as its index maps place them: what they move, and whether those of an output overlap."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.experimental import pallas as pl
from refusals import rejected

from harness.hardware import chip
from harness.judge.evaluate.trace import jaxprs, traffic
from harness.records import PallasCall

ROWS, COLUMNS, BLOCK = 64, 256, 16


def traced(windows: Any, index_map: Callable[..., Any], steps: tuple[int, ...]) -> PallasCall:
    """The call of a kernel that writes such windows of an array of 64 x 256."""
    x = np.zeros((ROWS, COLUMNS), np.float32)

    def body(x_ref: Any, o_ref: Any) -> None:
        o_ref[...] = jnp.zeros_like(o_ref)

    call = pl.pallas_call(
        body,
        out_shape=jax.ShapeDtypeStruct(x.shape, x.dtype),
        grid=steps,
        in_specs=[pl.BlockSpec((BLOCK, COLUMNS), lambda *at: (0, 0))],
        out_specs=pl.BlockSpec(windows, index_map),
    )
    (equation,) = jaxprs.pallas_calls(jax.make_jaxpr(call)(x).jaxpr)
    return traffic.pallas_call(equation, chip("v5e"), steps)


ELEMENTS = (pl.Element(BLOCK), pl.Element(COLUMNS))


@pytest.mark.parametrize(
    ("windows", "index_map", "steps"),
    [
        (ELEMENTS, lambda i: (i * BLOCK, 0), (4,)),
        (ELEMENTS, lambda i, j: (i * BLOCK, 0), (4, 3)),
        ((pl.Element(BLOCK), 128), lambda i, j: (i * BLOCK, j), (4, 2)),
        ((BLOCK, COLUMNS), lambda i: (i // 2, 0), (4,)),
        (ELEMENTS, lambda i: (pl.multiple_of(i * BLOCK, 8), 0), (4,)),
    ],
)
def test_windows_that_are_apart_pass(windows: Any, index_map: Any, steps: tuple[int, ...]) -> None:
    assert traced(windows, index_map, steps).windows[-1].fetches


@pytest.mark.parametrize(
    ("windows", "index_map", "steps", "message"),
    [
        (ELEMENTS, lambda i: (i * 8, 0), (4,), r"\(0, 0\) and \(8, 0\), of \(16, 256\)"),
        (ELEMENTS, lambda i: (jnp.minimum(i * BLOCK, 40), 0), (4,), r"\(32, 0\) and \(40, 0\)"),
        ((pl.Element(BLOCK), 128), lambda i, j: (i * 8, j), (4, 2), r"\(0, 0\) and \(8, 0\)"),
    ],
)
def test_windows_that_overlap_are_refused(windows: Any, index_map: Any, steps: tuple[int, ...], message: str) -> None:
    with rejected("overlapping-windows", message):
        traced(windows, index_map, steps)


def test_a_hint_in_an_index_map_changes_no_place() -> None:
    """`pl.multiple_of` has no batching rule, and the places of all steps are computed at once."""
    hinted = traced((BLOCK, COLUMNS), lambda i: (pl.multiple_of((i + 1) // 2, 1), 0), (4,))
    plain = traced((BLOCK, COLUMNS), lambda i: ((i + 1) // 2, 0), (4,))
    assert hinted.windows[-1] == plain.windows[-1]
