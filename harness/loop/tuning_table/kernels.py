"""Kernels of JAX and tokamax with block sizes to tune: for each the problem, the constants and the fallback."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

from harness.loop.search_space import Grid, Setting

# A problem's parameters by name, as in its statement.
Parameters = Mapping[str, object]
_LANES = 128
# Larger blocks of queries, keys or rows do not fit into VMEM; a block of a matmul's depth may be larger.
_MOST_ROWS, _MOST_DEPTH = 4096, 8192


@dataclass(frozen=True, slots=True, kw_only=True)
class TableKernel:
    """`function` of an installed package for the problem of the template `like`.

    `space` gives the values of each constant to try for a problem; all `conditions` must hold for them. `fallback`
    gives the constants with which the package runs if its own table has no entry.
    """

    name: str
    function: str
    like: str
    space: Callable[[Parameters], Grid]
    conditions: tuple[str, ...] = ()
    fallback: Callable[[Parameters], tuple[Setting, ...]]


def _attention_blocks(*names: str) -> Callable[[Parameters], Grid]:
    """The space of `names`: first a block of queries, then blocks of keys."""

    def space(parameters: Parameters) -> Grid:
        queries, keys = (_whole(parameters, name) for name in ("sequence", "kv_sequence"))
        return tuple((name, _parts(keys if at else queries, _MOST_ROWS)) for at, name in enumerate(names))

    return space


def _gmm_tiles(parameters: Parameters) -> Grid:
    m, k, n = (_whole(parameters, name) for name in "mkn")
    rows = tuple(value for value in _parts(m, _MOST_ROWS) if int(value) <= 1024)
    return (("TILE_M", rows), ("TILE_K", _parts(k, _MOST_DEPTH)), ("TILE_N", _parts(n, _MOST_ROWS)))


def _pages(parameters: Parameters) -> Grid:
    most = _whole(parameters, "pages_per_sequence")
    counts = tuple(str(count) for count in range(1, most + 1) if most % count == 0 and count <= 128)
    return (("PAGES_PER_COMPUTE_BLOCK", counts), ("INLINE_SEQ_DIM", ("True", "False")))


def _ragged_pages(parameters: Parameters) -> Grid:
    tokens, most = (_whole(parameters, name) for name in ("tokens", "pages_per_sequence"))
    return (
        ("NUM_QUERIES_PER_BLOCK", tuple(str(1 << power) for power in range(3, 9) if 1 << power <= max(8, tokens))),
        ("NUM_KV_PAGES_PER_BLOCK", tuple(str(1 << power) for power in range(8) if 1 << power <= most)),
    )


def _all(value: object, *names: str) -> Callable[[Parameters], tuple[Setting, ...]]:
    return lambda parameters: tuple((name, str(value)) for name in names)


def _parts(size: int, most: int) -> tuple[str, ...]:
    """The multiples of 128 that divide `size`, up to `most`; `size` itself if there are none."""
    multiples = tuple(str(part) for part in range(_LANES, min(size, most) + 1, _LANES) if size % part == 0)
    return multiples or (str(size),)


def _whole(parameters: Parameters, name: str) -> int:
    value = parameters[name]
    assert isinstance(value, int), f"{name} of the problem is {value!r}"
    return value


_FLASH = ("BLOCK_Q", "BLOCK_K_MAJOR", "BLOCK_K")
_SPLASH = ("BLOCK_Q", "BLOCK_KV", "BLOCK_KV_COMPUTE")
_SPLASH_ATTENTION = TableKernel(
    name="jax:splash",
    function="jax.experimental.pallas.ops.tpu.splash_attention:make_splash_mha_single_device",
    like="attention",
    space=_attention_blocks(*_SPLASH),
    conditions=("BLOCK_KV % BLOCK_KV_COMPUTE == 0",),
    fallback=_all(128, *_SPLASH),
)
_MEGABLOX = TableKernel(
    name="jax:megablox",
    function="jax.experimental.pallas.ops.tpu.megablox.gmm:gmm",
    like="grouped-matmul",
    space=_gmm_tiles,
    fallback=_all(128, "TILE_M", "TILE_K", "TILE_N"),
)
KERNELS = {
    kernel.name: kernel
    for kernel in (
        TableKernel(
            name="jax:flash",
            function="jax.experimental.pallas.ops.tpu.flash_attention:flash_attention",
            like="attention",
            space=_attention_blocks(*_FLASH),
            conditions=("BLOCK_K_MAJOR % BLOCK_K == 0",),
            fallback=_all(128, *_FLASH),
        ),
        _SPLASH_ATTENTION,
        _MEGABLOX,
        TableKernel(
            name="jax:paged_attention",
            function="jax.experimental.pallas.ops.tpu.paged_attention:paged_attention",
            like="paged-attention",
            space=_pages,
            # The package has no default; its own tests and callers start from these values.
            fallback=lambda parameters: (("PAGES_PER_COMPUTE_BLOCK", "1"), ("INLINE_SEQ_DIM", "True")),
        ),
        TableKernel(
            name="jax:ragged_paged_attention",
            function="jax.experimental.pallas.ops.tpu.ragged_paged_attention:ragged_paged_attention",
            like="ragged-paged-attention",
            space=_ragged_pages,
            fallback=lambda parameters: (
                ("NUM_QUERIES_PER_BLOCK", "32"),
                ("NUM_KV_PAGES_PER_BLOCK", str(min(128, _whole(parameters, "pages_per_sequence")))),
            ),
        ),
        replace(
            _SPLASH_ATTENTION,
            name="tokamax:flash_attention",
            function="tokamax._src.ops.attention.pallas_mosaic_tpu:PallasMosaicTpuFlashAttention",
        ),
        replace(
            _MEGABLOX,
            name="tokamax:ragged_dot",
            function="tokamax._src.ops.ragged_dot.pallas_mosaic_tpu:PallasMosaicTpuRaggedDot",
        ),
    )
}
