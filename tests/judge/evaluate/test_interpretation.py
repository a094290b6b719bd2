"""An interpreted kernel computes what it says, whatever encloses it, on as many cores as the chip has."""

from typing import Any

import jax
import jax.numpy as jnp
import ml_dtypes
import numpy as np
import pytest
from jax._src.pallas.mosaic.interpret import interpret_pallas_call
from jax.experimental import pallas as pl
from jax.experimental.pallas import tpu as pltpu
from refusals import rejected

from harness.hardware import Chip, chip
from harness.judge.evaluate.interpret import chip_model, conversions, grid_order, interpretation, outside
from harness.judge.evaluate.interpret.watched_run import WatchedRun
from harness.judge.evaluate.trace import grids
from harness.sandbox.messages import Rejected

pytestmark = pytest.mark.long

ROWS, COLUMNS = 16, 256
V5E = chip("v5e")


def interpreted(program: Any, *operands: Any, checked: bool = True, steps: int = 1, on: Chip = V5E) -> Any:
    """The program, compiled for the CPU, with its kernels interpreted, and checked for races if that is asked for."""
    interpret = interpretation.checking_parameters(on, steps) if checked else True
    return jax.jit(interpretation.runnable(jax.make_jaxpr(program)(*operands), interpret, on))


def rounding_kernel(x_ref: Any, o_ref: Any) -> None:
    """Rounds twice, and within a loop."""

    def body(_: Any, total: Any) -> Any:
        scaled = (x_ref[...] * 1.5).astype(jnp.bfloat16)
        return total + (scaled - jnp.bfloat16(0.3)).astype(jnp.float32)

    o_ref[...] = jax.lax.fori_loop(0, 2, body, jnp.zeros_like(x_ref))


def call(x: Any) -> Any:
    return pl.pallas_call(rounding_kernel, out_shape=jax.ShapeDtypeStruct(x.shape, x.dtype))(x)


@pytest.mark.parametrize("checked", [False, True])
def test_an_interpreted_kernel_rounds_to_bfloat16_where_it_says_so(checked: bool) -> None:
    x = np.random.default_rng(0).standard_normal((ROWS, COLUMNS), dtype=np.float32)
    scaled = (x * np.float32(1.5)).astype(ml_dtypes.bfloat16)
    expected = 2 * (scaled - ml_dtypes.bfloat16(0.3)).astype(np.float32)

    program = interpreted(call, x, checked=checked, on=chip("v6e"))
    np.testing.assert_array_equal(np.asarray(program(x)[0]), expected)


@pytest.mark.parametrize("enclosed", ["plain", "function", "branch", "loop"])
@pytest.mark.parametrize("checked", [False, True])
def test_arrays_that_are_said_to_be_in_a_memory_are_arrays_on_a_cpu(checked: bool, enclosed: str) -> None:
    def in_memory(x: Any) -> Any:
        in_hbm = pltpu.with_memory_space_constraint(x, pltpu.HBM)
        spec = pl.BlockSpec((ROWS // 2, COLUMNS), lambda step: (step, 0))
        return pl.pallas_call(
            lambda x_ref, o_ref: o_ref.__setitem__(..., x_ref[...] * 2 + jnp.ones((1, COLUMNS), x_ref.dtype)),
            grid=(2,),
            in_specs=[spec],
            out_specs=spec,
            out_shape=pltpu.HBM(x.shape, x.dtype),
        )(in_hbm)

    def program(x: Any) -> Any:
        if enclosed == "function":
            return jax.jit(in_memory)(x)
        if enclosed == "branch":
            return jax.lax.cond(x[0, 0] < 1e6, in_memory, in_memory, x)
        return jax.lax.fori_loop(0, 1, lambda _, x: in_memory(x), x) if enclosed == "loop" else in_memory(x)

    x = np.arange(ROWS * COLUMNS, dtype=np.float32).reshape(ROWS, COLUMNS)
    v7x = chip("v7x")
    if checked:
        run = interpreted(program, x, steps=2, on=v7x)
    else:
        run = jax.jit(interpretation.export(jax.make_jaxpr(program)(x), (x,), "cpu", v7x).call)
    np.testing.assert_array_equal(np.asarray(run(x)[0]), 2 * x + 1)


def test_xla_on_a_cpu_leaves_such_roundings_out() -> None:
    """If this fails, XLA has changed, and the code that rounds in `chip_model` may go."""
    x = np.random.default_rng(0).standard_normal((ROWS, COLUMNS), dtype=np.float32)
    expected = (x.astype(ml_dtypes.bfloat16) - ml_dtypes.bfloat16(0.3)).astype(np.float32)
    rounded = jax.jit(lambda x: (x.astype(jnp.bfloat16) - jnp.bfloat16(0.3)).astype(jnp.float32))
    assert (np.asarray(rounded(x)) != expected).any()


# XLA hands only sums of at least this size to its library.
WIDE = (256, 256)


@pytest.mark.parametrize("dtype", ["bfloat16", "int8", "uint8"])
@pytest.mark.parametrize("reduce", [jnp.sum, jnp.max, jnp.mean, lambda x, **axes: jnp.sum(x * x, **axes)])
@pytest.mark.parametrize("is_within", [True, False])
def test_a_conversion_before_a_reduction_is_made(dtype: str, reduce: Any, is_within: bool) -> None:
    def converted(x: Any) -> Any:
        return jnp.broadcast_to(reduce(x.astype(dtype).astype(jnp.float32), axis=1, keepdims=True), x.shape)

    def body(x_ref: Any, o_ref: Any) -> None:
        o_ref[...] = converted(x_ref[...]) if is_within else x_ref[...]

    def program(x: Any) -> Any:
        out = pl.pallas_call(body, out_shape=jax.ShapeDtypeStruct(x.shape, x.dtype))(x)
        return out if is_within else converted(out)

    x = np.random.default_rng(0).uniform(1, 100, WIDE).astype(np.float32)
    expected = x.astype(jnp.dtype(dtype)).astype(np.float32)
    exported = interpretation.export(jax.make_jaxpr(program)(x), (x,), "cpu", V5E)
    out = jax.jit(exported.call)(x)[0]
    np.testing.assert_allclose(out, np.asarray(converted(expected)), rtol=1e-6)
    assert np.abs(np.asarray(reduce(x, axis=1)) / np.asarray(out)[:, 0] - 1).max() > 1e-5


def test_an_xla_that_leaves_conversions_out_checks_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    every = ("bfloat16", "float16", "float8_e4m3fn", "float8_e5m2", "int8", "uint8", "int16", "int32")
    assert conversions.skipped_conversions(every) == []
    monkeypatch.setattr(chip_model, "with_roundings", lambda jaxpr: jaxpr)
    # If this fails, XLA makes all conversions by itself, and `with_roundings` may go.
    assert conversions.skipped_conversions(every) == ["bfloat16", "int8", "uint8"]
    with rejected("unsound-cpu", "numbers not rounded to bfloat16, int8, uint8"):
        conversions.require_conversions.__wrapped__()


def test_a_step_converts_its_blocks_and_not_whole_arrays() -> None:
    """XLA on a CPU slices 16-bit floats as float32, from a converted array that every step reads."""

    def body(x_ref: Any, o_ref: Any) -> None:
        o_ref[...] = (x_ref[...].astype(jnp.float32) * 2).astype(o_ref.dtype)

    def program(x: Any) -> Any:
        blocks = pl.BlockSpec((8, COLUMNS), lambda step: (step, 0))
        out_shape = jax.ShapeDtypeStruct(x.shape, x.dtype)
        return pl.pallas_call(body, grid=(len(x) // 8,), in_specs=[blocks], out_specs=blocks, out_shape=out_shape)(x)

    x = np.random.default_rng(0).standard_normal((96, COLUMNS), dtype=np.float32).astype(ml_dtypes.bfloat16)
    exported = interpretation.export(jax.make_jaxpr(program)(x), (x,), "cpu", V5E)
    compiled = jax.jit(exported.call).lower(x).compile()
    assert f"f32[96,{COLUMNS}]" not in compiled.as_text()
    np.testing.assert_array_equal(np.asarray(compiled(x)[0]), x * ml_dtypes.bfloat16(2))


@pytest.mark.parametrize("rows", [64, 100, 128])
def test_a_copy_of_a_size_known_at_run_time_copies_so_much(rows: int) -> None:
    def body(rows_ref: Any, x_hbm: Any, o_ref: Any, y_hbm: Any, x_ref: Any, semaphore: Any) -> None:
        some = pl.ds(0, rows_ref[0])
        x_ref[...] = jnp.full_like(x_ref, -1.0)
        for source, target in ((x_hbm.at[pl.ds(8, rows_ref[0])], x_ref.at[some]), (x_ref.at[some], y_hbm.at[some])):
            copy = pltpu.make_async_copy(source, target, semaphore)
            copy.start()
            copy.wait()
        o_ref[...] = x_ref[...]

    def program(count: Any, x: Any) -> Any:
        any_memory = pl.BlockSpec(memory_space=pl.ANY)
        spec = pltpu.PrefetchScalarGridSpec(
            num_scalar_prefetch=1,
            grid=(1,),
            in_specs=[any_memory],
            out_specs=(pl.BlockSpec(memory_space=pltpu.VMEM), any_memory),
            scratch_shapes=[pltpu.VMEM((128, 128), jnp.float32), pltpu.SemaphoreType.DMA],
        )
        shape = jax.ShapeDtypeStruct((128, 128), jnp.float32)
        return pl.pallas_call(body, out_shape=(shape, shape), grid_spec=spec)(count, x)

    count, x = np.array([rows], np.int32), np.random.default_rng(0).standard_normal((136, 128), dtype=np.float32)
    exported = interpretation.export(jax.make_jaxpr(program)(count, x), (count, x), "cpu", V5E)
    kept, written = map(np.asarray, jax.jit(exported.call)(count, x))
    np.testing.assert_array_equal(kept[:rows], x[8 : 8 + rows])
    np.testing.assert_array_equal(written[:rows], x[8 : 8 + rows])
    assert (kept[rows:] == -1).all()
    # Elements that are not copied stay unwritten memory.
    assert np.isnan(written[rows:]).all()


def parts(x: Any) -> Any:
    return x.reshape(2, -1, x.shape[1])


@jax.custom_vjp
def differentiable(x: Any) -> Any:
    return call(x)


differentiable.defvjp(lambda x: (call(x), None), lambda _, change: (change,))

WRAPPED = {
    "vmap": lambda x: jax.vmap(call)(parts(x)).reshape(x.shape),
    "lax.map": lambda x: jax.lax.map(call, parts(x)).reshape(x.shape),
    "lax.scan": lambda x: jax.lax.scan(lambda n, part: (n + 1, call(part)), 0, parts(x))[1].reshape(x.shape),
    "while": lambda x: jax.lax.while_loop(lambda s: s[0] < 1, lambda s: (s[0] + 1, call(x)), (0, x))[1],
    "cond": lambda x: jax.lax.cond(x[0, 0] > -1e30, call, lambda x: x, x),
    "jit": jax.jit(jax.jit(call)),
    "checkpoint": jax.checkpoint(call),
    "custom_vjp": differentiable,
    "custom_vjp within scan": lambda x: jax.lax.map(jax.jit(differentiable), parts(x)).reshape(x.shape),
}


@pytest.fixture(scope="module")
def alone() -> tuple[Any, Any]:
    """An input and what the call makes of it on v5p with nothing around it."""
    x = np.random.default_rng(0).standard_normal((ROWS, COLUMNS), dtype=np.float32)
    return x, np.asarray(interpreted(call, x, checked=False, on=chip("v5p"))(x)[0])


@pytest.mark.parametrize("checked", [False, True])
@pytest.mark.parametrize("wrapped", WRAPPED.values(), ids=WRAPPED)
def test_a_call_is_interpreted_whatever_encloses_it(alone: tuple[Any, Any], wrapped: Any, checked: bool) -> None:
    x, expected = alone
    result = interpreted(wrapped, x, checked=checked, on=chip("v5p"))(x)[0]
    np.testing.assert_array_equal(np.asarray(result), expected)


def gridded(axes: tuple[int, ...], declared: tuple[str, ...] | None) -> Any:
    """The equation of a Pallas call with that grid."""
    options = pltpu.CompilerParams(dimension_semantics=declared)
    block = pl.BlockSpec((ROWS, COLUMNS), lambda *at: (0, 0))
    shape = jax.ShapeDtypeStruct((ROWS, COLUMNS), jnp.float32)

    def copy(x_ref: Any, o_ref: Any) -> None:
        o_ref[...] = x_ref[...]

    kernel = pl.pallas_call(copy, shape, grid=axes, in_specs=[block], out_specs=block, compiler_params=options)
    return jax.make_jaxpr(kernel)(shape).eqns[0]


@pytest.mark.parametrize(
    ("axes", "declared", "walked"),
    [
        ((4, 2), ("parallel", "arbitrary"), ("parallel", "arbitrary")),
        ((4, 2), ("parallel", "parallel"), ("parallel", "parallel")),
        # On one core the steps of such an axis run in their order.
        ((4, 2), ("arbitrary", "parallel"), ("arbitrary", "arbitrary")),
    ],
)
def test_how_a_grid_is_walked(axes: tuple[int, ...], declared: tuple[str, ...], walked: tuple[str, ...]) -> None:
    options = grids.as_interpreted(gridded(axes, declared), pltpu.InterpretParams())["compiler_params"]
    assert options.dimension_semantics == walked
    for seed in (None, 0, 1):
        with grid_order.orders_from(seed):
            drawn = [
                np.asarray(order).tolist()
                for order in interpret_pallas_call._get_randomized_grid_coordinates(axes, options, 0)
            ]
        for kind, steps, order in zip(walked, axes, drawn, strict=True):
            assert sorted(order) == list(range(steps if kind == "parallel" else 0))
            assert not order or order[0] != 0
            assert seed is not None or order == sorted(order, reverse=True)


STEPS = 8


def placed_by_order(x_ref: Any, o_ref: Any, count_ref: Any) -> None:
    """Each step writes how many ran before it."""
    is_first = x_ref[0, 0] == 0
    count_ref[0] = jnp.where(is_first, 0, count_ref[0])
    o_ref[...] = jnp.full(o_ref.shape, count_ref[0])
    count_ref[0] += 1


def test_a_program_that_is_traced_once_has_the_order_of_each_run() -> None:
    def in_order(x: Any) -> Any:
        block = pl.BlockSpec((8, 128), lambda i: (i, 0))
        return pl.pallas_call(
            placed_by_order,
            out_shape=jax.ShapeDtypeStruct(x.shape, jnp.int32),
            grid=(STEPS,),
            in_specs=[block],
            out_specs=block,
            scratch_shapes=[pltpu.SMEM((1,), jnp.int32)],
            compiler_params=pltpu.CompilerParams(dimension_semantics=("parallel",)),
        )(x)

    program = interpreted(in_order, np.zeros((8 * STEPS, 128), np.float32), steps=STEPS)
    results = {}
    for seed in (None, 1, 2, 1):
        first = STEPS - 1 if seed is None else int(grid_order_of(seed)[0])
        x = np.ones((8 * STEPS, 128), np.float32)
        x[8 * first : 8 * first + 8] = 0
        with grid_order.orders_from(seed):
            (places,) = program(x)
        interpretation.reset()
        expected = list(range(STEPS))[::-1] if seed is None else grid_order_of(seed).tolist()
        results[seed] = np.argsort(np.asarray(places)[::8, 0]).tolist()
        assert results[seed] == expected
    assert len(set(map(tuple, results.values()))) == 3


def grid_order_of(seed: int) -> Any:
    """The orders of the first axis that are drawn."""
    with grid_order.orders_from(seed):
        return grid_order._order(0, STEPS)


def test_jax_keeps_its_own_order_outside_and_where_it_draws_otherwise(monkeypatch: pytest.MonkeyPatch) -> None:
    name = "_get_randomized_grid_coordinates"
    before = getattr(interpret_pallas_call, name)
    with grid_order.orders_from(1):
        assert getattr(interpret_pallas_call, name) is grid_order.orders
    assert getattr(interpret_pallas_call, name) is before

    def another(grid: Any, key: Any) -> None:
        """A function of a JAX version that is unknown here."""

    monkeypatch.setattr(interpret_pallas_call, name, another)
    with grid_order.orders_from(1):
        assert getattr(interpret_pallas_call, name) is another


def test_two_cores_split_leading_axes_only() -> None:
    with pytest.raises(Rejected, match="come first"):
        grids.as_interpreted(gridded((4, 2), ("arbitrary", "parallel")), pltpu.InterpretParams(num_cores_or_threads=2))
    assert grids.as_interpreted(gridded((4, 2), None), pltpu.InterpretParams()) == {}


def counting_kernel(table_ref: Any, x_ref: Any, o_ref: Any) -> None:
    """Adds the number of steps so far, which it counts in a table that it gets as input."""
    table_ref[1] = table_ref[1] + 1
    o_ref[...] = x_ref[...] + (100 * table_ref[0] + table_ref[1]).astype(jnp.float32)


def kept_views_kernel(x_ref: Any, o_ref: Any) -> None:
    """Reads every other row as integers of another shape, and writes half of what it makes of them."""
    bits = x_ref.reshape(ROWS // 2, 2, COLUMNS).bitcast(jnp.int32)[:, 1, :]
    o_ref[...] = jnp.zeros_like(o_ref)
    mask = jax.lax.broadcasted_iota(jnp.int32, bits.shape, 1) < 100
    pltpu.store(o_ref.at[:, 0, :], jax.lax.bitcast_convert_type(bits, jnp.float32) * 2, mask=mask)


@pytest.mark.parametrize("checked", [False, True])
def test_what_a_step_leaves_in_its_table_the_next_one_finds(checked: bool) -> None:
    def program(x: Any) -> Any:
        rows = pl.BlockSpec((8, COLUMNS), lambda i, j, table: (2 * i + j, 0))
        spec = pltpu.PrefetchScalarGridSpec(num_scalar_prefetch=1, grid=(2, 2), in_specs=[rows], out_specs=rows)
        start = jnp.array([3, 10], jnp.int32)
        return pl.pallas_call(counting_kernel, out_shape=jax.ShapeDtypeStruct(x.shape, x.dtype), grid_spec=spec)(
            start, x
        )

    x = np.zeros((4 * 8, COLUMNS), np.float32)
    out = np.asarray(interpreted(program, x, checked=checked, steps=4)(x)[0])
    assert [float(out[8 * step, 0]) for step in range(4)] == [311.0, 312.0, 313.0, 314.0]


@pytest.mark.parametrize("checked", [False, True])
def test_memory_seen_as_another_shape_and_writes_under_a_mask(checked: bool) -> None:
    def program(x: Any) -> Any:
        return pl.pallas_call(kept_views_kernel, out_shape=jax.ShapeDtypeStruct((ROWS // 2, 2, COLUMNS), x.dtype))(x)

    x = np.random.default_rng(0).standard_normal((ROWS, COLUMNS), dtype=np.float32)
    out = np.asarray(interpreted(program, x, checked=checked)(x)[0])
    expected = np.zeros((ROWS // 2, 2, COLUMNS), np.float32)
    expected[:, 0, :100] = 2 * x[1::2, :100]
    np.testing.assert_array_equal(out, expected)


def slots_kernel(x_ref: Any, o_ref: Any, slots: Any, semaphore: Any) -> None:
    """Clears one slot, as integers of another shape, while a copy fills the other."""
    copy = pltpu.make_async_copy(x_ref, slots.at[0], semaphore)
    copy.start()
    slots.bitcast(jnp.int32).reshape(2, -1, 8, COLUMNS)[1] = jnp.zeros((1, 8, COLUMNS), jnp.int32)
    copy.wait()
    o_ref[...] = slots[0] + slots[1]


@pytest.mark.parametrize("checked", [False, True])
def test_a_write_to_one_slot_seen_as_another_shape_does_not_touch_the_other(checked: bool) -> None:
    def program(x: Any) -> Any:
        scratch = [pltpu.VMEM((2, ROWS, COLUMNS), x.dtype), pltpu.SemaphoreType.DMA(())]
        anywhere = pl.BlockSpec(memory_space=pl.ANY)
        return pl.pallas_call(
            slots_kernel, out_shape=jax.ShapeDtypeStruct(x.shape, x.dtype), in_specs=[anywhere], scratch_shapes=scratch
        )(x)

    x = np.random.default_rng(0).standard_normal((ROWS, COLUMNS)).astype(ml_dtypes.bfloat16)
    out = np.asarray(interpreted(program, x, checked=checked)(x)[0])
    np.testing.assert_array_equal(out, x)
    if checked:
        assert interpretation.race_of(None, "") is None


def viewed_kernel(start_ref: Any, o_ref: Any, slots: Any) -> None:
    """Writes rows of the first of two slots as integers, and reads the other slot in the shape that it has."""
    slots[...] = jnp.ones_like(slots)
    some = pl.ds(start_ref[0], 4)
    slots.bitcast(jnp.int32).reshape(2, 1, 8, COLUMNS)[0, 0, some] = jnp.zeros((4, COLUMNS), jnp.int32)
    o_ref[...] = slots[0] + slots.reshape(2, ROWS, COLUMNS)[1]


@pytest.mark.parametrize("start", [4, 6])
def test_a_view_is_written_within_its_bounds(start: int) -> None:
    def program(start: Any) -> Any:
        grid = pltpu.PrefetchScalarGridSpec(
            num_scalar_prefetch=1,
            out_specs=pl.BlockSpec((ROWS, COLUMNS), lambda *_: (0, 0)),
            scratch_shapes=[pltpu.VMEM((2, ROWS, COLUMNS), jnp.bfloat16)],
            grid=(1,),
        )
        return pl.pallas_call(
            viewed_kernel, out_shape=jax.ShapeDtypeStruct((ROWS, COLUMNS), jnp.bfloat16), grid_spec=grid
        )(start)

    starts = np.array([start], np.int32)
    runnable = interpreted(program, starts)
    if start == 4:
        out = np.asarray(runnable(starts)[0])
        assert (out[:8] == 2).all()
        assert (out[8:] == 1).all()
    else:
        with pytest.raises(Exception, match="ut-of-bounds") as caught:
            np.asarray(runnable(starts)[0])
        run = WatchedRun(fill=None, order="first", order_seed=None, reshapes=(), where="")
        assert "(16777216 stands for an index that is out of bounds" in str(run._rejection(caught.value))


def kept_sums_kernel(x_ref: Any, o_ref: Any, tag_ref: Any, sum_ref: Any) -> None:
    """Clears its sum unless a tag says that it is clear, which no step clears; a scope has its own tag."""
    is_clear = (tag_ref[0] ^ 1234) == 0
    tag_ref[0] = 1234
    sum_ref[...] = jnp.where(is_clear, sum_ref[...], 0.0) + x_ref[...]

    def scope(inner_ref: Any) -> None:
        is_known = (inner_ref[0] ^ 77) == 0
        inner_ref[0] = 77
        o_ref[...] = sum_ref[...] + jnp.where(is_known, 1000.0, 0.0)

    pl.run_scoped(scope, pltpu.SMEM((1,), jnp.int32))


def test_a_run_may_find_what_the_last_one_left() -> None:
    def program(x: Any) -> Any:
        rows = pl.BlockSpec((8, COLUMNS), lambda i: (i, 0))
        return pl.pallas_call(
            kept_sums_kernel,
            out_shape=jax.ShapeDtypeStruct(x.shape, x.dtype),
            grid=(2,),
            in_specs=[rows],
            out_specs=rows,
            scratch_shapes=[pltpu.SMEM((1,), jnp.int32), pltpu.VMEM((8, COLUMNS), jnp.float32)],
        )(x)

    x = np.ones((ROWS, COLUMNS), np.float32)
    run = interpreted(program, x, steps=2)
    settings: dict[str, Any] = {"fill": 5000.0, "order": "last", "order_seed": None, "reshapes": (), "where": ""}
    left: dict[Any, Any] = {}
    sums = []
    for finds_left in (True, False, True, True):
        outcome = WatchedRun(**settings, left=left, finds_left=finds_left).outputs(lambda: run(x))
        assert outcome.unwritten_read
        sums.append(outcome.outputs[0][::8, 0].tolist())
    # The first run finds nothing from before, and does not see what another program left.
    assert sums == [[1.0, 2.0], [1.0, 2.0], [1003.0, 1004.0], [1005.0, 1006.0]]
    assert {key[0] for _, key in left} == {"hbm", "smem", "vmem"}


def carried_kernel(x_ref: Any, o_ref: Any) -> None:
    """Adds to the contents of the output window, if they look like a sum."""
    before = o_ref[...]
    o_ref[...] = x_ref[...] + jnp.where(jnp.abs(before) < 100, before, 0.0)


def doubling_kernel(x_ref: Any, o_ref: Any) -> None:
    o_ref[...] = 2 * x_ref[...]


def in_front_kernel(x_ref: Any, o_ref: Any) -> None:
    o_ref[...] = x_ref[...] + x_ref[pl.program_id(0) - 1, :]


@pytest.mark.parametrize(
    ("kernel", "first", "aliases", "comes_early", "rows"),
    [
        (carried_kernel, 0, {}, False, [1.0, 1.0, 1.0]),
        # Each step but the first doubles the block that the last one has written.
        (doubling_kernel, 1, {0: 0}, False, [2.0, 4.0, 8.0]),
        (doubling_kernel, 1, {0: 0}, True, [2.0, 2.0, 2.0]),
    ],
)
def test_windows_are_those_of_a_chip(
    kernel: Any, first: int, aliases: dict[int, int], comes_early: bool, rows: list[float]
) -> None:
    steps = len(rows)
    x = np.ones((8 * (steps + first), COLUMNS), np.float32)

    def program(x: Any) -> Any:
        return pl.pallas_call(
            kernel,
            out_shape=jax.ShapeDtypeStruct(x.shape, x.dtype),
            grid=(steps,),
            in_specs=[pl.BlockSpec((8, COLUMNS), lambda i: (i, 0))],
            out_specs=pl.BlockSpec((8, COLUMNS), lambda i: (i + first, 0)),
            input_output_aliases=aliases,
        )(x)

    run = interpreted(program, x, steps=3)
    watched = WatchedRun(fill=None, order="last", order_seed=None, reshapes=(), where="", comes_early=comes_early)
    outcome = watched.outputs(lambda: run(x))
    assert outcome.outputs[0][8 * first :: 8, 0].tolist() == rows
    assert bool(outcome.unwritten_read) == (kernel is carried_kernel)


def test_an_index_in_front_of_a_buffer_is_out_of_bounds() -> None:
    def program(x: Any) -> Any:
        return pl.pallas_call(in_front_kernel, out_shape=jax.ShapeDtypeStruct(x.shape, x.dtype), grid=(1,))(x)

    x = np.ones((8, COLUMNS), np.float32)
    run = interpreted(program, x)
    with rejected("out-of-bounds", "which begins at a negative index"):
        WatchedRun(fill=None, order="last", order_seed=None, reshapes=(), where="").outputs(lambda: run(x))


def test_a_reference_outside_of_kernels_keeps_its_memory() -> None:
    def program(x: Any) -> Any:
        there = jax.new_ref(x, memory_space=pltpu.HBM)
        there[...] = jnp.ones_like(x)
        return there[...]

    x = jnp.zeros((ROWS, COLUMNS))
    jaxpr = jax.make_jaxpr(program)(x).jaxpr
    before, after = (
        [str(var.aval) for equation in read.eqns for var in (*equation.invars, *equation.outvars)]
        for read in (jaxpr, outside.without_memory_spaces(jaxpr))
    )
    assert before == after
    assert any(aval.startswith("Ref<hbm>") for aval in after)
