"""Transfers under way are told apart, and end in an order that the judge chooses."""

import contextlib
import io
from collections.abc import Callable
from functools import cache, partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax._src import dispatch
from jax.experimental import pallas as pl
from jax.experimental.pallas import tpu as pltpu

from harness.hardware import chip
from harness.judge.evaluate.interpret import interpretation, transfers
from harness.judge.evaluate.interpret.deadlocks import deadlocks_found
from harness.judge.evaluate.interpret.quick_interpreter import quick_interpreter

BLOCKS, ROWS, COLUMNS = 8, 8, 128
ORDERS: tuple[transfers.Order, ...] = ("last", "first", 7)
Kernel = Callable[..., None]


def fetch(x: Any, buffer: Any, semaphore: Any, block: int, slot: int, signal: int) -> Any:
    return pltpu.make_async_copy(x.at[pl.ds(block * ROWS, ROWS)], buffer.at[slot], semaphore.at[signal])


def store(buffer: Any, o: Any, semaphore: Any, block: int, slot: int) -> Any:
    return pltpu.make_async_copy(buffer.at[slot], o.at[pl.ds(block * ROWS, ROWS)], semaphore.at[slot])


def ring(x: Any, o: Any, buffer: Any, fetched: Any, stored: Any, *, waits_first: bool) -> None:
    """Fetches a block ahead into the slot whose store is under way, unless it `waits_first`."""
    fetch(x, buffer, fetched, 0, 0, 0).start()
    for block in range(BLOCKS):
        before, slot = block - 1, block % 2
        if before >= 0 and waits_first:
            store(buffer, o, stored, before, before % 2).wait()
        if block + 1 < BLOCKS:
            fetch(x, buffer, fetched, block + 1, 1 - slot, 1 - slot).start()
        fetch(x, buffer, fetched, block, slot, slot).wait()
        if before >= 0 and not waits_first:
            store(buffer, o, stored, before, before % 2).wait()
        store(buffer, o, stored, block, slot).start()
    store(buffer, o, stored, BLOCKS - 1, (BLOCKS - 1) % 2).wait()


def honest(*refs: Any) -> None:
    ring(*refs, waits_first=True)


def fetches_over_a_store(*refs: Any) -> None:
    ring(*refs, waits_first=False)


def one_semaphore(x: Any, o: Any, buffer: Any, fetched: Any, stored: Any, *, waits_for_both: bool) -> None:
    """Two fetches signal one semaphore, the second block's first."""
    for block in range(0, BLOCKS, 2):
        both = [fetch(x, buffer, fetched, block + slot, slot, 0) for slot in (1, 0)]
        for transfer in both:
            transfer.start()
        both[1].wait()
        if waits_for_both:
            both[0].wait()
        first = store(buffer, o, stored, block, 0)
        first.start()
        first.wait()
        if not waits_for_both:
            both[0].wait()
        second = store(buffer, o, stored, block + 1, 1)
        second.start()
        second.wait()


def waits_for_both(*refs: Any) -> None:
    one_semaphore(*refs, waits_for_both=True)


def takes_the_last_one(*refs: Any) -> None:
    one_semaphore(*refs, waits_for_both=False)


def reads_before_the_wait(x: Any, o: Any, buffer: Any, fetched: Any, stored: Any) -> None:
    first = fetch(x, buffer, fetched, 0, 0, 0)
    first.start()
    buffer[1] = buffer[0]
    first.wait()
    copies_all(x, o, buffer, fetched, stored)


def writes_twice(x: Any, o: Any, buffer: Any, fetched: Any, stored: Any) -> None:
    both = [pltpu.make_async_copy(x, o, stored.at[slot]) for slot in (0, 1)]
    for transfer in both:
        transfer.start()
    for transfer in both:
        transfer.wait()


def copies_all(x: Any, o: Any, buffer: Any, fetched: Any, stored: Any) -> None:
    copy = pltpu.make_async_copy(x, o, stored.at[0])
    copy.start()
    copy.wait()


def moves_within(x: Any, o: Any, buffer: Any, fetched: Any, stored: Any, *, by: int) -> None:
    copies_all(x, o, buffer, fetched, stored)
    copy = pltpu.make_async_copy(o.at[pl.ds(0, ROWS)], o.at[pl.ds(by, ROWS)], stored.at[0])
    copy.start()
    copy.wait()


def ends_too_early(x: Any, o: Any, buffer: Any, fetched: Any, stored: Any) -> None:
    copies_all(x, o, buffer, fetched, stored)
    fetch(x, buffer, fetched, 0, 0, 0).start()


def many_at_a_time(x: Any, o: Any, buffer: Any, fetched: Any, stored: Any) -> None:
    rows = [pltpu.make_async_copy(x.at[pl.ds(row, 1)], o.at[pl.ds(row, 1)], stored.at[0]) for row in range(64)]
    for each in rows:
        each.start()
    for each in rows:
        each.wait()


def waits_for_fewer(x: Any, o: Any, buffer: Any, fetched: Any, stored: Any, *, rows: int) -> None:
    """Waits for no rows before any copy; then waits for each copy first as one of `rows` rows, then for all of it."""

    def step(block: Any, _: None) -> None:
        size = jnp.minimum(block, 1) * rows
        some = pltpu.make_async_copy(buffer.at[0, pl.ds(0, size)], buffer.at[0, pl.ds(0, size)], fetched.at[0])
        rest = pltpu.make_async_copy(
            buffer.at[0, pl.ds(0, ROWS - size)], buffer.at[0, pl.ds(0, ROWS - size)], fetched.at[0]
        )
        some.wait()

        @pl.when(block > 0)
        def stores() -> None:
            rest.wait()
            store(buffer, o, stored, block - 1, 0).start()
            store(buffer, o, stored, block - 1, 0).wait()

        @pl.when(block < BLOCKS)
        def fetches() -> None:
            fetch(x, buffer, fetched, block, 0, 0).start()

    jax.lax.fori_loop(0, BLOCKS + 1, step, None)


def waits_for_none_at_first(*refs: Any) -> None:
    waits_for_fewer(*refs, rows=0)


def waits_for_some_at_first(*refs: Any) -> None:
    waits_for_fewer(*refs, rows=ROWS // 2)


def takes_a_wait_for_none_for_one(x: Any, o: Any, buffer: Any, fetched: Any, stored: Any) -> None:
    def step(rows: Any, _: None) -> None:
        fetch(x, buffer, fetched, 0, 0, 0).start()
        pltpu.make_async_copy(buffer.at[0, pl.ds(0, rows)], buffer.at[0, pl.ds(0, rows)], fetched.at[0]).wait()
        buffer[1] = buffer[0] + 1
        fetch(x, buffer, fetched, 0, 0, 0).wait()

    jax.lax.fori_loop(0, 1, step, None)


def starts_copies_of_nothing(x: Any, o: Any, buffer: Any, fetched: Any, stored: Any) -> None:
    copies_all(x, o, buffer, fetched, stored)

    def step(rows: Any, _: None) -> None:
        pltpu.make_async_copy(x.at[pl.ds(0, rows)], o.at[pl.ds(0, rows)], fetched.at[0]).start()

    jax.lax.fori_loop(0, 1, step, None)


X = np.random.default_rng(0).standard_normal((BLOCKS * ROWS, COLUMNS), dtype=np.float32)


@cache
def compiled(kernel: Kernel, under_way: int, is_twice: bool) -> Any:
    """The kernel's program, compiled with its first run: the order of transfers is chosen in callbacks."""
    call = pl.pallas_call(
        kernel,
        out_shape=jax.ShapeDtypeStruct(X.shape, X.dtype),
        in_specs=[pl.BlockSpec(memory_space=pl.ANY)],
        out_specs=pl.BlockSpec(memory_space=pl.ANY),
        scratch_shapes=[pltpu.VMEM((2, ROWS, COLUMNS), X.dtype), *[pltpu.SemaphoreType.DMA((2,))] * 2],
    )
    parameters = interpretation.checking_parameters(chip("v5e"), 1, under_way)
    traced = jax.make_jaxpr(lambda x: call(call(x)) if is_twice else call(x))(X)
    return jax.jit(interpretation.runnable(traced, parameters, chip("v5e")))


class Run:
    """One run of a kernel in TPU interpret mode."""

    def __init__(
        self, kernel: Kernel, order: transfers.Order | None, under_way: int = 62, *, is_twice: bool = False
    ) -> None:
        program = compiled(kernel, under_way, is_twice)
        printed, self.error = io.StringIO(), ""
        ended = transfers.transfers_end(order) if order is not None else contextlib.nullcontext(transfers.Waits())
        failure: BaseException | None = None
        with contextlib.redirect_stdout(printed), quick_interpreter(), deadlocks_found(), ended as self.waits:
            try:
                self.is_right = np.array_equal(np.asarray(program(X)[0]), X)
            except (jax.errors.JaxRuntimeError, RuntimeError) as error:
                failure, self.error, self.is_right = error, str(error), False
        self.race = interpretation.race_of(failure, printed.getvalue())
        interpretation.reset()


@pytest.mark.long
@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("kernel", [honest, waits_for_both, copies_all, many_at_a_time])
def test_a_kernel_that_waits_is_right_in_every_order(kernel: Kernel, order: transfers.Order) -> None:
    run = Run(kernel, order, 64)
    assert (run.race, run.error, run.is_right, run.waits.unfinished) == (None, "", True, 0)
    assert run.waits.had_choice == (kernel in (waits_for_both, many_at_a_time))


def test_nothing_waits_for_a_copy_of_nothing() -> None:
    run = Run(starts_copies_of_nothing, "last")
    assert (run.race, run.error, run.is_right, run.waits.unfinished) == (None, "", True, 0)


@pytest.mark.parametrize("kernel", [waits_for_none_at_first, waits_for_some_at_first])
def test_a_wait_may_be_for_part_of_a_copy_or_for_nothing(kernel: Kernel) -> None:
    run = Run(kernel, "first")
    assert (run.race, run.error, run.is_right, run.waits.unfinished) == (None, "", True, 0)


def test_a_wait_for_nothing_orders_nothing() -> None:
    assert Run(takes_a_wait_for_none_for_one, "first").race is not None


@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("kernel", [fetches_over_a_store, reads_before_the_wait, writes_twice])
def test_a_transfer_under_way_races_with_what_does_not_wait_for_it(kernel: Kernel, order: transfers.Order) -> None:
    assert Run(kernel, order).race is not None


@pytest.mark.parametrize("order", ORDERS)
def test_a_semaphore_of_two_copies_says_nothing_of_one(order: transfers.Order) -> None:
    """JAX ends the last copy first, and in that order the kernel is right."""
    run = Run(takes_the_last_one, order)
    assert run.race is not None
    assert run.waits.had_choice


@pytest.mark.parametrize("by", [0, ROWS // 2, ROWS])
def test_a_copy_must_not_read_what_it_writes(by: int) -> None:
    run = Run(lambda *refs: moves_within(*refs, by=by), "last")
    assert (transfers.OVERLAP in run.error) == (by < ROWS)


def test_a_transfer_that_nothing_waits_for_is_counted() -> None:
    assert Run(ends_too_early, "last").waits.unfinished == 1


@pytest.mark.long
def test_no_two_transfers_under_way_share_a_component() -> None:
    """With fewer components than transfers, the run ends; with as many it does not (see above)."""
    run = Run(many_at_a_time, "last", 63)
    assert f"{transfers.TOO_MANY}: more than 63 under way" in run.error


@pytest.mark.long
def test_after_too_many_the_same_program_runs_with_larger_clocks() -> None:
    assert transfers.TOO_MANY in Run(many_at_a_time, "last", 62, is_twice=True).error
    assert not dispatch.runtime_tokens.current_tokens, "the next run would raise what this one did"
    run = Run(many_at_a_time, "last", 4096, is_twice=True)
    assert (run.error, run.race, run.is_right) == ("", None, True)


@pytest.mark.long
def test_jax_itself_finds_no_such_race() -> None:
    """If this fails, JAX has changed, and the code of `transfers` for its clocks may go."""
    assert Run(fetches_over_a_store, None, 1).race is None
    assert Run(takes_the_last_one, None, 62).is_right


def sizes_on_one_semaphore(x: Any, o: Any, buffer: Any, fetched: Any, stored: Any) -> None:
    """Waits for a whole block, which may count half a block of each of two copies."""
    half = ROWS // 2
    whole = pltpu.make_async_copy(x.at[pl.ds(0, ROWS)], buffer.at[0], fetched.at[0])
    part = pltpu.make_async_copy(x.at[pl.ds(0, half)], buffer.at[1, pl.ds(0, half)], fetched.at[0])
    whole.start()
    part.start()
    whole.wait()
    kept = buffer[0]
    part.wait()
    copies_all(x, o, buffer, fetched, stored)
    buffer[0] = kept


def the_middle_one_of_three(x: Any, o: Any, buffer: Any, fetched: Any, stored: Any, *, waits: int) -> None:
    """Waits for two of three copies: the second copy is last in neither order, so it has ended by then."""
    copies = [
        pltpu.make_async_copy(x.at[pl.ds(0, 2)], buffer.at[0, pl.ds(2 * slot, 2)], fetched.at[0]) for slot in range(3)
    ]
    for copy in copies:
        copy.start()
    for copy in copies[:waits]:
        copy.wait()
    kept = buffer[0, 2:4]
    for copy in copies[waits:]:
        copy.wait()
    copies_all(x, o, buffer, fetched, stored)
    buffer[1, 2:4] = kept


two_of_three, all_of_three = (partial(the_middle_one_of_three, waits=waits) for waits in (2, 3))


@pytest.mark.long
@pytest.mark.parametrize("order", ORDERS)
def test_a_wait_tells_nothing_of_one_transfer_among_several(order: transfers.Order) -> None:
    assert Run(sizes_on_one_semaphore, order).race is not None
    assert Run(two_of_three, order).race is not None
    run = Run(all_of_three, order)
    assert (run.race, run.is_right) == (None, True)
