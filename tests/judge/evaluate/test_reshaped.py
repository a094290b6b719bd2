"""Copies and writes of reshaped references, and scoped memory in scoped memory: the same in both interpreters."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.experimental import pallas as pl
from jax.experimental.pallas import tpu as pltpu

from harness.hardware import chip
from harness.judge.evaluate.interpret import interpretation, reshaped, transfers
from harness.sandbox import asked_device

V5E = chip("v5e")
F32 = jnp.float32
MEMORY = pltpu.VMEM((64, 128), F32)


def copy(source: Any, target: Any, semaphore: Any) -> None:
    started = pltpu.make_async_copy(source, target, semaphore)
    started.start()
    started.wait()


def axes_together(x: Any, o: Any, b: Any, s: Any) -> None:
    copy(x.reshape(64, 128).at[pl.ds(16, 32)], b, s)
    copy(b, o, s)


def within_one_row(x: Any, o: Any, b: Any, s: Any) -> None:
    copy(x.reshape(64, 128).at[pl.ds(18, 8)], b.at[pl.ds(0, 8)], s)
    copy(b.at[pl.ds(0, 8)], o, s)


def axis_apart(x: Any, o: Any, b: Any, s: Any) -> None:
    copy(x.reshape(4, 16, 128).at[2], b, s)
    copy(b, o, s)


def every_second_row(x: Any, o: Any, b: Any, s: Any) -> None:
    copy(x.reshape(32, 2, 128).at[:, 1], b, s)
    copy(b, o, s)


def to_a_reshaped_one(x: Any, o: Any, b: Any, s: Any) -> None:
    copy(x, b.reshape(4, 16, 128), s)
    copy(b, o.reshape(64, 128), s)


def at_a_place_known_at_run_time(x: Any, o: Any, b: Any, s: Any) -> None:
    place = pl.program_id(0) + 1
    copy(x.at[pl.ds(0, 4)].reshape(64, 128).at[pl.ds(place * 16, 16)], b, s)
    copy(b, o, s)


def written_through(x: Any, o: Any, b: Any, s: Any) -> None:
    copy(x, b, s)
    b.reshape(4, 16, 128)[1] = b.reshape(4, 16, 128)[0] + 1
    copy(b, o, s)


# The kernel, the shapes of input and output, and the shape of the memory between.
COPIES: tuple[tuple[Callable[..., None], tuple[int, ...], tuple[int, ...], tuple[int, ...]], ...] = (
    (axes_together, (4, 16, 128), (32, 128), (32, 128)),
    (within_one_row, (4, 16, 128), (8, 128), (32, 128)),
    (axis_apart, (64, 128), (16, 128), (16, 128)),
    (every_second_row, (64, 128), (32, 128), (32, 128)),
    (to_a_reshaped_one, (4, 16, 128), (4, 16, 128), (64, 128)),
    (at_a_place_known_at_run_time, (4, 16, 128), (16, 128), (16, 128)),
    (written_through, (64, 128), (64, 128), (64, 128)),
)


def traced(
    body: Callable[..., None], shape: tuple[int, ...], out: tuple[int, ...], scratch: list[Any], spec: pl.BlockSpec
) -> tuple[Any, Any]:
    call = pl.pallas_call(
        body,
        out_shape=jax.ShapeDtypeStruct(out, F32),
        grid=(1,),
        in_specs=[spec],
        out_specs=spec,
        scratch_shapes=scratch,
    )
    x = np.random.default_rng(1).standard_normal(shape, dtype=np.float32)
    with asked_device.aiming_at(V5E):
        return x, jax.make_jaxpr(call)(x)


def on_cpu(x: Any, closed: Any) -> Any:
    program = interpretation.export(closed, (jax.ShapeDtypeStruct(x.shape, x.dtype),), "cpu", V5E, "marked")
    return np.asarray(jax.jit(program.call)(x)[0])


def interpreted(x: Any, closed: Any) -> Any:
    interpretation.reset()
    run = jax.jit(interpretation.runnable(closed, interpretation.checking_parameters(V5E, 4), V5E))
    with reshaped.reshaped_references(), transfers.transfers_end("last"):
        return np.asarray(jax.block_until_ready(run(x))[0])


@pytest.mark.parametrize(("body", "shape", "out", "between"), COPIES, ids=lambda value: getattr(value, "__name__", ""))
def test_a_part_of_a_reshaped_reference(
    body: Callable[..., None], shape: tuple[int, ...], out: tuple[int, ...], between: tuple[int, ...]
) -> None:
    scratch = [pltpu.VMEM(between, F32), pltpu.SemaphoreType.DMA]
    x, closed = traced(body, shape, out, scratch, pl.BlockSpec(memory_space=pl.ANY))
    result = interpreted(x, closed)
    np.testing.assert_array_equal(result, on_cpu(x, closed))
    if body is axes_together:
        np.testing.assert_array_equal(result, x.reshape(64, 128)[16:48])


def test_a_part_that_is_no_block_is_refused() -> None:
    def across(x: Any, o: Any, b: Any, s: Any) -> None:
        copy(x.reshape(64, 128).at[pl.ds(8, 32)], b, s)
        copy(b, o, s)

    scratch = [pltpu.VMEM((32, 128), F32), pltpu.SemaphoreType.DMA]
    x, closed = traced(across, (4, 16, 128), (32, 128), scratch, pl.BlockSpec(memory_space=pl.ANY))
    with pytest.raises(Exception, match=reshaped.NO_BLOCK):
        interpreted(x, closed)
    interpretation.reset()
    assert len(reshaped.lines(closed.jaxpr)) == 2


def test_two_parts_of_a_reshaped_reference_are_apart() -> None:
    def halves(x: Any, o: Any, b: Any, s: Any) -> None:
        parts = [pl.ds(0, 32), pl.ds(32, 32)]
        copies = [
            pltpu.make_async_copy(x.reshape(64, 128).at[part], b.reshape(64, 128).at[part], s.at[place])
            for place, part in enumerate(parts)
        ]
        for start in copies:
            start.start()
        for start in copies:
            start.wait()
        copy(b, o, s.at[0])

    scratch = [pltpu.VMEM((4, 16, 128), F32), pltpu.SemaphoreType.DMA((2,))]
    x, closed = traced(halves, (4, 16, 128), (4, 16, 128), scratch, pl.BlockSpec(memory_space=pl.ANY))
    result = interpreted(x, closed)
    assert interpretation.race_of(None, "") is None
    np.testing.assert_array_equal(result, x)


def three_deep(x_ref: Any, o_ref: Any) -> None:
    def outer(a: Any) -> None:
        a[...] = x_ref[...] * 2

        def middle(c: Any) -> None:
            c[...] = a[...]

            @pl.loop(0, 2)
            def again(_: Any) -> None:
                def innermost(b: Any) -> None:
                    b[...] = c[...] + 1

                    @pl.loop(0, 2)
                    def add(i: Any) -> None:
                        @pl.when(i == 1)
                        def once() -> None:
                            b[...] += a[...]

                    o_ref[...] = b[...]

                pl.run_scoped(innermost, MEMORY)

        pl.run_scoped(middle, MEMORY)

    pl.run_scoped(outer, MEMORY)


def read_before_it_is_written(x_ref: Any, o_ref: Any) -> None:
    def outer(a: Any) -> None:
        a[...] = x_ref[...]

        @pl.loop(0, 2)
        def again(_: Any) -> None:
            def innermost(b: Any) -> None:
                o_ref[...] = a[...] + b[...]
                b[...] = a[...]

            pl.run_scoped(innermost, MEMORY)

    pl.run_scoped(outer, MEMORY)


@pytest.mark.long
def test_scoped_memory_at_any_depth() -> None:
    block = pl.BlockSpec((64, 128), lambda i: (i, 0))
    x, closed = traced(three_deep, (64, 128), (64, 128), [], block)
    expected = 2 * x + 1 + 2 * x
    np.testing.assert_allclose(on_cpu(x, closed), expected, rtol=1e-6)
    np.testing.assert_allclose(interpreted(x, closed), expected, rtol=1e-6)


def test_scoped_memory_is_as_nobody_left_it_each_time() -> None:
    block = pl.BlockSpec((64, 128), lambda i: (i, 0))
    x, closed = traced(read_before_it_is_written, (64, 128), (64, 128), [], block)
    assert np.isnan(on_cpu(x, closed)).all()
