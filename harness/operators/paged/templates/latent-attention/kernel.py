"""Latent attention over a cache in pages on a TPU: the one file that an experiment changes.

The honest naive kernels to start from. The first writes the newest keys to their slots, one after the other; the cache
is its input and its output, in the same memory. A slot is half of a word, so its pair of slots is read, changed and
written back. In the second, which attends, each token walks through the pages of its sequence: online softmax. Keys of
even and of odd slots lie in different rows of a page, and are treated one after the other.
"""

import jax
import jax.numpy as jnp
from jax.experimental import pallas as pl
from jax.experimental.pallas import tpu as pltpu

KERNEL_NAME = "naive_latent_attention"
PROBLEM_DESCRIPTION = "multi-head latent attention of the newest tokens over a cache in pages, written there first"

SCALE = 0.1
# A score that no key has: exp(HIDDEN - x) is 0 for any score x.
HIDDEN = -1e30


def write(page_ref, slot_ref, new_ref, _, cache_ref, pair_ref, arrived):
    """One step: a token's key [1, 1, width] goes to its slot of cache [pages, page_size / 2, 2, width]."""
    token = pl.program_id(0)
    slot = slot_ref[token]
    pair = cache_ref.at[page_ref[token], slot // 2]
    fetch = pltpu.make_async_copy(pair, pair_ref, arrived)
    fetch.start()
    fetch.wait()
    half = jax.lax.broadcasted_iota(jnp.int32, pair_ref.shape, 0)
    # Either half of a word is exact in float32.
    new, old = (ref.astype(jnp.float32) for ref in (new_ref[0], pair_ref[...]))
    pair_ref[...] = jnp.where(half == slot % 2, new, old).astype(pair_ref.dtype)
    store = pltpu.make_async_copy(pair_ref, pair, arrived)
    store.start()
    store.wait()


def dot(a, b, axes):
    """The product of two blocks along these axes, float32."""
    return jax.lax.dot_general(a, b, ((axes[:1], axes[1:]), ((), ())), preferred_element_type=jnp.float32)


def attend(sequence_ref, seen_ref, _, q_ref, rope_ref, cache_ref, o_ref, m_ref, l_ref, acc_ref):
    """One step: a token's heads, q [1, heads, latent] and [1, heads, rope], against one page of its sequence."""
    token, page = pl.program_id(0), pl.program_id(1)
    heads, latent = q_ref.shape[1:]
    rope, pairs = rope_ref.shape[2], cache_ref.shape[1]
    seen = seen_ref[token]

    @pl.when(page == 0)
    def begin():
        m_ref[...] = jnp.full_like(m_ref, HIDDEN)
        l_ref[...] = jnp.zeros_like(l_ref)
        acc_ref[...] = jnp.zeros_like(acc_ref)

    @pl.when(page * 2 * pairs < seen)
    def work():
        for half in range(2):
            values = cache_ref[0, :, half, :latent]
            turned = cache_ref[0, :, half, latent : latent + rope]
            scores = SCALE * (dot(q_ref[0], values, (1, 1)) + dot(rope_ref[0], turned, (1, 1)))
            key = 2 * (page * pairs + jax.lax.broadcasted_iota(jnp.int32, (heads, pairs), 1)) + half
            scores = jnp.where(key < seen, scores, HIDDEN)
            old = m_ref[:, :1]
            new = jnp.maximum(old, scores.max(axis=1, keepdims=True))
            weights = jnp.where(key < seen, jnp.exp(scores - new), 0.0)
            rescale = jnp.exp(old - new)
            m_ref[...] = jnp.broadcast_to(new, m_ref.shape)
            l_ref[...] = l_ref[...] * rescale + weights.sum(axis=1, keepdims=True)
            acc_ref[...] = acc_ref[...] * rescale + dot(weights.astype(values.dtype), values, (1, 0))

    @pl.when(page == pl.num_programs(1) - 1)
    def finish():
        o_ref[0] = (acc_ref[...] / l_ref[:, :1]).astype(o_ref.dtype)


def kernel_fn(q, q_rope, latents, rotary, cache, lens, at, starts, counts):
    """O [tokens, heads, latent] and the cache with the newest keys, latents beside rotary, in their slots."""
    tokens, heads, latent = q.shape
    rope, width, each = q_rope.shape[2], cache.shape[3], len(at) // len(lens)
    page_size = 2 * cache.shape[1]
    token = jnp.arange(tokens, dtype=jnp.int32)
    sequence = jnp.sum(token[:, None] >= starts[None, 1:], axis=1, dtype=jnp.int32)
    # A sequence's last token is its last key.
    place = lens[sequence] - starts[sequence + 1] + token
    padding = jnp.zeros((tokens, width - latent - rope), cache.dtype)
    new = jnp.concatenate([latents, rotary, padding], axis=1)[:, None]

    in_place = pl.BlockSpec(memory_space=pl.ANY)
    cache = pl.pallas_call(
        write,
        out_shape=jax.ShapeDtypeStruct(cache.shape, cache.dtype),
        grid_spec=pltpu.PrefetchScalarGridSpec(
            num_scalar_prefetch=2,
            grid=(tokens,),
            in_specs=[pl.BlockSpec((1, 1, width), lambda i, *_: (i, 0, 0)), in_place],
            out_specs=in_place,
            scratch_shapes=[pltpu.VMEM((2, width), cache.dtype), pltpu.SemaphoreType.DMA],
        ),
        # The tables count.
        input_output_aliases={3: 0},
        name=f"{KERNEL_NAME}_write",
    )(at[sequence * each + place // page_size], place % page_size, new, cache)

    def of_page(i, page, sequence, seen, at):
        # Beyond the last page nothing is fetched again.
        return at[sequence[i] * each + jnp.minimum(page, (seen[i] - 1) // page_size)], 0, 0, 0

    def of_token(i, page, *_):
        return i, 0, 0

    out = pl.pallas_call(
        attend,
        out_shape=jax.ShapeDtypeStruct(q.shape, q.dtype),
        grid_spec=pltpu.PrefetchScalarGridSpec(
            num_scalar_prefetch=3,
            grid=(tokens, each),
            in_specs=[
                pl.BlockSpec((1, heads, latent), of_token),
                pl.BlockSpec((1, heads, rope), of_token),
                pl.BlockSpec((1, page_size // 2, 2, width), of_page),
            ],
            out_specs=pl.BlockSpec((1, heads, latent), of_token),
            scratch_shapes=[pltpu.VMEM((heads, 128), jnp.float32)] * 2 + [pltpu.VMEM((heads, latent), jnp.float32)],
        ),
        compiler_params=pltpu.CompilerParams(dimension_semantics=("arbitrary", "arbitrary")),
        name=KERNEL_NAME,
    )(sequence, place + 1, at, q, q_rope, cache)
    return out, cache
