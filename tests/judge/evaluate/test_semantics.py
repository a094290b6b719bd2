"""The table of semantics: whole for the JAX that is installed, used by every kernel that JAX ships, and printed."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import pytest
from jax._src.pallas.mosaic import lowering
from jax.experimental import checkify
from jax.experimental import pallas as pl
from jax.experimental.pallas import tpu as pltpu
from jax.experimental.pallas.ops.tpu import flash_attention, matmul
from jax.experimental.pallas.ops.tpu.megablox import gmm
from jax.experimental.pallas.ops.tpu.paged_attention import paged_attention
from jax.experimental.pallas.ops.tpu.ragged_paged_attention import ragged_paged_attention
from jax.experimental.pallas.ops.tpu.splash_attention import splash_attention_kernel, splash_attention_mask
from loop_fixtures import PROJECT
from refusals import rejected

from harness.advice import semantics_page
from harness.hardware import chip
from harness.judge.evaluate.interpret import chip_model
from harness.judge.evaluate.trace import semantics, semantics_table
from harness.sandbox import asked_device

F32, BF16 = jnp.float32, jnp.bfloat16
X = jax.ShapeDtypeStruct((16, 128), F32)


def looked_up(function: Callable[..., Any], *shapes: Any) -> None:
    with asked_device.aiming_at(chip("v5e")):
        closed = jax.make_jaxpr(function)(*shapes)
    semantics.refuse_unclassified(closed.jaxpr, chip("v5e"))


def shape(*sizes: int, dtype: Any = BF16) -> jax.ShapeDtypeStruct:
    return jax.ShapeDtypeStruct(sizes, dtype)


def test_the_table_knows_what_mosaic_can_lower() -> None:
    # SparseCore operations, whose kernels are refused, are loaded with the first lowering for any chip.
    lowered = {primitive.name for primitive in lowering.lowering_rules[pltpu.CoreType.TC]}
    assert len(lowered) > 100
    missing = sorted(lowered - set(semantics.ENTRIES))
    assert not missing, f"{jax.__version__}: classify {missing} in semantics_table.py"


def test_no_operation_stands_in_the_table_twice() -> None:
    names = [name for _, entries in semantics_table.SECTIONS for entry in entries for name in entry.primitives]
    assert len(names) == len(set(names))


def test_what_the_table_calls_modelled_is_modelled() -> None:
    modelled = {name for name, entry in semantics.ENTRIES.items() if entry.kind == "modelled"}
    # Indices of these are checked by `undefined`.
    assert modelled == chip_model.MODELLED | {"get", "swap"}
    optional = {name for name, entry in semantics.ENTRIES.items() if entry.option_is_refused}
    assert optional == set(semantics._OPTIONS)


def test_the_page_is_the_table() -> None:
    written = (Path(PROJECT) / "docs" / "SEMANTICS.md").read_text(encoding="utf-8")
    assert written == semantics_page.page(), "python -m harness.advice.semantics_page >docs/SEMANTICS.md"


def splash(q: Any, k: Any, v: Any) -> Any:
    mask = splash_attention_mask.MultiHeadMask([splash_attention_mask.CausalMask((512, 512))] * 2)
    return splash_attention_kernel.make_splash_mha(mask, head_shards=1, q_seq_shards=1)(q, k, v)


def flash(q: Any, k: Any, v: Any) -> Any:
    return flash_attention.flash_attention(q, k, v, causal=True)


def ragged(*arrays: Any) -> Any:
    return ragged_paged_attention(*arrays, num_kv_pages_per_block=4, num_queries_per_block=8)


def gradient(function: Callable[..., Any]) -> Callable[..., Any]:
    gradient: Callable[..., Any] = jax.grad(lambda *arrays: function(*arrays).astype(F32).sum(), argnums=(0, 1, 2))
    return gradient


HEADS, SINGLE = (shape(1, 2, 512, 128),) * 3, (shape(2, 512, 128, dtype=F32),) * 3
PAGES = (
    shape(2, 8, 128, dtype=F32),
    *(shape(1, 64, 16, 128, dtype=F32),) * 2,
    shape(2, dtype=jnp.int32),
    shape(2, 16, dtype=jnp.int32),
)
RAGGED = (
    shape(64, 8, 128),
    shape(64, 16, 2, 128),
    *(shape(*sizes, dtype=jnp.int32) for sizes in ((4,), (4, 16), (5,), (1,))),
)
SHIPPED = {
    "flash attention": (flash, HEADS),
    "its gradient": (gradient(flash), HEADS),
    "splash attention": (splash, SINGLE),
    "its gradient, too": (gradient(splash), SINGLE),
    "matmul": (lambda a, b: matmul.matmul(a, b, block_shape=(256, 256)), (shape(512, 512),) * 2),
    "grouped products": (gmm, (shape(512, 512), shape(4, 512, 512), shape(4, dtype=jnp.int32))),
    "ragged paged attention": (ragged, RAGGED),
    "paged attention": (lambda *a: paged_attention(*a, pages_per_compute_block=4), PAGES),
}


@pytest.mark.parametrize("name", SHIPPED)
def test_every_operation_of_the_kernels_that_jax_ships_is_accepted(name: str) -> None:
    function, shapes = SHIPPED[name]
    looked_up(function, *shapes)


def kernel(body: Callable[..., None], *, scratch: tuple[Any, ...] = (), **options: Any) -> Callable[..., Any]:
    call: Callable[..., Any] = pl.pallas_call(
        body, out_shape=X, scratch_shapes=scratch, compiler_params=pltpu.CompilerParams(**options)
    )
    return call


def applied(function: Callable[[Any], Any], dtype: Any = F32) -> Callable[..., Any]:
    def body(x_ref: Any, o_ref: Any) -> None:
        o_ref[...] = jnp.broadcast_to(function(x_ref[...].astype(dtype)), o_ref.shape).astype(F32)

    return kernel(body)


def remote(x_ref: Any, o_ref: Any, sent: Any, received: Any) -> None:
    pltpu.make_async_remote_copy(x_ref, o_ref, sent, received, device_id=1).start()


def signals(x_ref: Any, o_ref: Any, semaphore: Any) -> None:
    pl.semaphore_signal(semaphore, 1, device_id=1)


def copies(x_ref: Any, o_ref: Any) -> None:
    o_ref[...] = x_ref[...]


def gathered(x: Any, mode: str = "fill", *, sorted_places: bool = False) -> Any:
    places = 127 - jax.lax.broadcasted_iota(jnp.int32, x.shape, 1)
    if not sorted_places:
        return jnp.take_along_axis(x, places, 1, mode=mode)
    numbers = jax.lax.GatherDimensionNumbers((), (1,), (1,), (0,), (0,))
    return jax.lax.gather(x, places[..., None], numbers, (1, 1), indices_are_sorted=True, mode="promise_in_bounds")


def checked(x: Any) -> Any:
    checkify.check(jnp.max(x) < 2.0, "too large")
    return x


def checked_for_debugging(x: Any) -> Any:
    pl.debug_check(jnp.max(x) < 2.0, "too large")
    return x


DMA, COUNTER = pltpu.SemaphoreType.DMA, pltpu.SemaphoreType.REGULAR
REFUSED = {
    "a remote copy": (kernel(remote, scratch=(DMA, DMA)), "refused-primitive", "over several devices"),
    "a remote signal": (kernel(signals, scratch=(COUNTER,)), "refused-primitive", "over several devices"),
    "flags": (kernel(copies, flags={"a": 1}), "refused-option", "flags"),
    "fused inputs": (kernel(copies, allow_input_fusion=(True,)), "refused-option", "allow_input_fusion"),
    "a sine of bfloat16": (applied(jnp.sin, BF16), "refused-primitive", "sin of a float narrower"),
    "a power of bfloat16": (applied(lambda x: x**x, BF16), "refused-primitive", "pow of a narrow float"),
    "an unknown one": (applied(lambda x: jax.lax.cumsum(x, 1)), "unknown-primitive", "cumsum"),
    "sorted places": (
        lambda x: kernel(copies)(jnp.take(x, jnp.arange(16), 0, indices_are_sorted=True)),
        "refused-primitive",
        "leave them out",
    ),
    "the largest's place": (applied(lambda x: jnp.argmax(x, 1)[:, None]), "refused-primitive", "argmax"),
    "a gather of rows": (applied(lambda x: x[x[0, :16].astype(jnp.int32)]), "refused-primitive", "does not lower"),
    "a gather that clips": (applied(lambda x: gathered(x, mode="clip")), "refused-primitive", "does not lower"),
    "a gather of bfloat16": (applied(gathered, BF16), "refused-primitive", "gather of bfloat16"),
    "a sorted gather": (applied(lambda x: gathered(x, sorted_places=True)), "refused-primitive", "promises"),
    "a check": (applied(checked), "refused-primitive", "check without debug"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_is_refused_is_named(name: str) -> None:
    function, kind, words = REFUSED[name]
    with rejected(kind) as refused:
        looked_up(function, X)
    assert words in refused.value.failure.message


ACCEPTED = {
    "a sine": applied(jnp.sin),
    "an exponential of bfloat16": applied(jnp.exp, BF16),
    "a power of two in bfloat16": applied(lambda x: jnp.bfloat16(2) ** x, BF16),
    "a gather along lanes": applied(gathered),
    "a check for debugging": applied(checked_for_debugging),
    "places": lambda x: kernel(copies)(jnp.take(x, jnp.arange(16), 0)),
    "a copy": kernel(copies, vmem_limit_bytes=1 << 20, flags={"XLA_TPU_FORCE_LP_LLO_SCHEDULER": True}),
}


@pytest.mark.parametrize("name", ACCEPTED)
def test_what_is_known_is_accepted(name: str) -> None:
    looked_up(ACCEPTED[name], X)
