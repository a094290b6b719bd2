"""Ragged paged attention, decode and prefill in one batch, on a TPU v6e: the one file that an experiment changes.

A step of the grid is a few sequences, the last ones first: those with many queries come last in a batch, and the pages
of the others arrive while they are worked on. Sequences of one query are worked on together, so that one has something
to do while another waits for a product; any other one has its blocks of queries in turn. Pages are copied by hand, each
in one transfer, several steps ahead. A word of 32 bits holds a key's and a value's bfloat16 numbers; both are taken out
of it in registers. The key/value heads lie side by side in the matrix unit, 128 rows each, and every query head has
zeros where the other heads' keys are. A sequence's scores come first, then its weights, so that nothing is rescaled.
"""

import functools
import math

import jax
import jax.numpy as jnp
from jax.experimental import pallas as pl
from jax.experimental.pallas import tpu as pltpu

KERNEL_NAME = "ragged_paged_mixed"
PROBLEM_DESCRIPTION = "attention of many sequences, one query or many each, over keys and values in pages"

# Sequences of a step, and sequences whose pages have room in VMEM: those of one step, the others' are on their way.
TOGETHER = 4
SLOTS = 16
# Pages that are multiplied at once.
CHUNK = 4
# Queries of a sequence with many that are worked on at once.
BQ = 128
# How much VMEM the compiler may give the kernel, in bytes; a v6e has 128 MiB.
VMEM_LIMIT = 100 * 2**20


def dot(a, b, axes):
    """The product of two blocks along these axes, float32."""
    return jax.lax.dot_general(a, b, ((axes[:1], axes[1:]), ((), ())), preferred_element_type=jnp.float32)


def attend(
    len_ref, table_ref, start_ref, count_ref, q_ref, kv_pages, o_ref, kv_ref, k_ref, v_ref, scores_ref, q_wide, top_ref,
    sum_ref, acc_ref, arrived, *, scale, bq,
):  # fmt: skip
    """One step: the queries of some sequences, of q [tokens, heads, d], against all of their pages.

    kv [SLOTS, pages, page_size, 2 kv_heads, d] has room for the pages of SLOTS sequences, k [kv_heads d,
    keys] and v [keys, kv_heads d] for the keys and values of one with many queries; scores [chunks, bq heads, keys
    of a chunk] float32, q_wide [bq heads, kv_heads d], top and sum [bq heads, 128] float32 and acc [bq heads,
    kv_heads d] float32 for one block of queries, or for one query of each sequence of a step.
    """
    step = pl.program_id(0)
    _, room, size, combined, d = kv_ref.shape
    kv_heads, keys = combined // 2, CHUNK * size
    _, heads, _ = q_ref.shape
    count = count_ref[0]
    # exp(scale x) = 2^(factor x).
    factor = scale * math.log2(math.e)

    def pages_of(sequence):
        return jax.lax.div(len_ref[sequence] + size - 1, size)

    def chunks_of(sequence):
        return jax.lax.div(pages_of(sequence) + CHUNK - 1, CHUNK)

    def slot_of(turn):
        return jax.lax.rem(turn, SLOTS)

    def queries_of(sequence):
        return start_ref[sequence + 1] - start_ref[sequence]

    def fetch(turn):
        """Starts the copies of the pages of the sequence that has this turn, if there is one."""
        sequence, slot = count - 1 - turn, slot_of(turn)

        @pl.when(sequence >= 0)
        def of_sequence():
            def of_page(page, _):
                place = table_ref[sequence, page]
                pltpu.make_async_copy(kv_pages.at[place], kv_ref.at[slot, page], arrived.at[slot]).start()
                return _

            jax.lax.fori_loop(0, pages_of(sequence), of_page, 0)

    def wait(turn):
        """Waits for the pages of the sequence that has this turn, and clears the rest of their last chunk."""
        sequence, slot = count - 1 - turn, slot_of(turn)
        pages = pages_of(sequence)
        # A wait is for so many bytes, whatever transfers bring them: one for each power of two in the number of pages.
        for power in range(room.bit_length()):
            some = kv_ref.at[slot, pl.ds(0, min(1 << power, room))]

            @pl.when(jax.lax.bitwise_and(pages, 1 << power) != 0)
            def of_some(some=some):
                pltpu.make_async_copy(some, some, arrived.at[slot]).wait()

        def clear(page, _):
            # What nobody wrote may be no number, and weighs nothing only if it is one.
            kv_ref[slot, page] = jnp.zeros((size, combined, d), kv_ref.dtype)
            return _

        jax.lax.fori_loop(pages, chunks_of(sequence) * CHUNK, clear, 0)

    def side_by_side(slot, chunk, take):
        """What is taken out of the words of a chunk, [keys, kv_heads d]."""
        words_ref = kv_ref.bitcast(jnp.uint32).at[slot].reshape(room * size * kv_heads, d)
        halves, some = [], pl.ds(pl.multiple_of(chunk * (keys * kv_heads), keys * kv_heads), keys * kv_heads)
        for head in range(kv_heads):
            words = words_ref.at[some][head::kv_heads, :]
            halves.append(pltpu.bitcast(take(words), jnp.float32).astype(kv_ref.dtype))
        return jnp.concatenate(halves, axis=1)

    def keys_of(slot, chunk):
        return side_by_side(slot, chunk, lambda words: words << 16)

    def values_of(slot, chunk):
        return side_by_side(slot, chunk, lambda words: words & jnp.uint32(0xFFFF0000))

    def of_own_head(rows):
        shape = rows, kv_heads * d
        row, column = (jax.lax.broadcasted_iota(jnp.int32, shape, axis) for axis in range(2))
        return jax.lax.div(jax.lax.rem(row, heads), heads // kv_heads) == jax.lax.div(column, d)

    def widened(first, queries):
        """So many queries from this row of q on, [queries heads, kv_heads d], with zeros for other heads' keys."""
        query = q_ref[pl.ds(first, queries)].reshape(queries * heads, d).astype(jnp.float32)
        wide = jnp.where(of_own_head(queries * heads), jnp.concatenate([query] * kv_heads, axis=1), 0.0)
        return wide.astype(q_ref.dtype)

    def narrowed(acc, total):
        """The outputs of these sums, [queries, heads, d]."""
        acc = jnp.where(of_own_head(len(acc)), acc, 0.0)
        out = sum(acc[:, head * d : (head + 1) * d] for head in range(kv_heads))
        return (out / total).reshape(-1, heads, d).astype(o_ref.dtype)

    def decode(turns):
        """Works on these sequences, of one query each, side by side."""
        sequences, slots = [count - 1 - turn for turn in turns], [slot_of(turn) for turn in turns]
        chunks, lengths = ([of(sequence) for sequence in sequences] for of in (chunks_of, len_ref.__getitem__))
        queries = [widened(start_ref[sequence], 1) for sequence in sequences]
        key = jax.lax.broadcasted_iota(jnp.int32, (heads, keys), 1)
        places = [slice(number * heads, (number + 1) * heads) for number in range(len(turns))]
        most = functools.reduce(jnp.maximum, chunks)

        def own_chunk(number, chunk):
            # Beyond its end a sequence sees its last chunk again, hidden.
            return jnp.minimum(chunk, chunks[number] - 1)

        def score(chunk, tops):
            found = []
            for number, top in enumerate(tops):
                scores = dot(queries[number], keys_of(slots[number], own_chunk(number, chunk)), (1, 1))
                scores = jnp.where(key < lengths[number] - chunk * keys, scores, -jnp.inf)
                scores_ref[chunk, places[number]] = scores
                found.append(jnp.maximum(top, scores))
            return tuple(found)

        start = (jnp.full(key.shape, -jnp.inf, jnp.float32),) * len(turns)
        tops = [top.max(axis=1, keepdims=True) for top in jax.lax.fori_loop(0, most, score, start)]

        def weigh(chunk, carry):
            found = []
            for number, (total, acc) in enumerate(carry):
                weights = jnp.exp2((scores_ref[chunk, places[number]] - tops[number]) * factor)
                values = values_of(slots[number], own_chunk(number, chunk))
                found.append((total + weights, acc + dot(weights.astype(values.dtype), values, (1, 0))))
            return tuple(found)

        start = ((jnp.zeros(key.shape, jnp.float32), jnp.zeros((heads, kv_heads * d), jnp.float32)),) * len(turns)
        for sequence, (total, acc) in zip(sequences, jax.lax.fori_loop(0, most, weigh, start), strict=True):
            o_ref[pl.ds(start_ref[sequence], 1)] = narrowed(acc, total.sum(axis=1, keepdims=True))

    def prefill(turn):
        """Works on a sequence of any number of queries, block by block."""
        sequence, slot = count - 1 - turn, slot_of(turn)
        length, start, end = len_ref[sequence], start_ref[sequence], start_ref[sequence + 1]
        rows = bq * heads

        def prepare(chunk, _):
            some = pl.ds(pl.multiple_of(chunk * keys, keys), keys)
            k_ref[:, some], v_ref[some] = keys_of(slot, chunk).T, values_of(slot, chunk)
            return _

        jax.lax.fori_loop(0, chunks_of(sequence), prepare, 0)

        def over_lanes(combine, scores):
            """Combines the columns that are 128 apart, [rows, 128]."""
            return functools.reduce(combine, (scores[:, lane : lane + 128] for lane in range(0, keys, 128)))

        def of_block(block, _):
            # The last block ends with the sequence, where that is longer than a block.
            first = jnp.maximum(jnp.minimum(start + block * bq, end - bq), 0)
            q_wide[...] = widened(first, bq)
            # The last query is that of the last key.
            last = length - end + first
            seen = jnp.minimum(jax.lax.div(last + bq - 1, keys) + 1, chunks_of(sequence))
            # Chunks that every query sees as a whole.
            whole = jnp.minimum(jax.lax.div(jnp.maximum(last + 1, 0), keys), seen)
            top_ref[...] = jnp.full_like(top_ref, -jnp.inf)
            sum_ref[...] = jnp.zeros_like(sum_ref)
            acc_ref[...] = jnp.zeros_like(acc_ref)

            def score(chunk, _, is_whole):
                scores = dot(q_wide[...], k_ref[:, pl.ds(pl.multiple_of(chunk * keys, keys), keys)], (1, 0))
                if not is_whole:
                    row, key = (jax.lax.broadcasted_iota(jnp.int32, scores.shape, axis) for axis in range(2))
                    scores = jnp.where(key - jax.lax.div(row, heads) <= last - chunk * keys, scores, -jnp.inf)
                scores_ref[chunk] = scores
                top_ref[...] = jnp.maximum(top_ref[...], over_lanes(jnp.maximum, scores))
                return _

            jax.lax.fori_loop(0, whole, functools.partial(score, is_whole=True), 0)
            jax.lax.fori_loop(whole, seen, functools.partial(score, is_whole=False), 0)
            top_ref[...] = jnp.broadcast_to(top_ref[...].max(axis=1, keepdims=True), top_ref.shape)

            def weigh(chunk, _):
                top = jnp.concatenate([top_ref[...]] * (keys // 128), axis=1)
                weights = jnp.exp2((scores_ref[chunk] - top) * factor)
                sum_ref[...] += over_lanes(jnp.add, weights)
                some = pl.ds(pl.multiple_of(chunk * keys, keys), keys)
                acc_ref[...] += dot(weights.astype(v_ref.dtype), v_ref[some], (1, 0))
                return _

            jax.lax.fori_loop(0, seen, weigh, 0)
            out = narrowed(acc_ref[...], sum_ref[...].sum(axis=1, keepdims=True))
            own, some = first + jax.lax.broadcasted_iota(jnp.int32, out.shape, 0), pl.ds(first, bq)
            kept = jnp.where((own >= start) & (own < end), *(x.astype(jnp.float32) for x in (out, o_ref[some])))
            o_ref[some] = kept.astype(o_ref.dtype)
            return _

        jax.lax.fori_loop(0, jax.lax.div(end - start + bq - 1, bq), of_block, 0)

    turns = [step * TOGETHER + number for number in range(TOGETHER)]

    @pl.when(step == 0)
    def begin():
        for turn in range(SLOTS - TOGETHER):
            fetch(turn)

    for turn in turns:
        fetch(turn + SLOTS - TOGETHER)
    first, last = count - 1 - turns[-1], count - 1 - turns[0]
    # As many queries as sequences: one each.
    is_together = (first >= 0) & (start_ref[last + 1] - start_ref[jnp.maximum(first, 0)] == TOGETHER)

    @pl.when(is_together)
    def work_together():
        for turn in turns:
            wait(turn)
        decode(turns)

    @pl.when(jnp.logical_not(is_together))
    def work_in_turn():
        def of_turn(number, _):
            turn = step * TOGETHER + number

            @pl.when(turn < count)
            def work():
                wait(turn)
                is_one = queries_of(count - 1 - turn) == 1
                pl.when(is_one)(lambda: decode([turn]))
                pl.when(jnp.logical_not(is_one))(lambda: prefill(turn))

            return _

        jax.lax.fori_loop(0, TOGETHER, of_turn, 0)


def kernel_fn(q, kv_pages, kv_lens, page_indices, cu_q_lens, num_seqs):
    """Attention of q [tokens, heads, d] over the pages of each sequence."""
    tokens, heads, d = q.shape
    _, page_size, combined, _ = kv_pages.shape
    kv_heads, bq = combined // 2, min(BQ, tokens)
    chunks = pl.cdiv(page_indices.shape[1], CHUNK)
    rows, keys = bq * heads, CHUNK * page_size
    every = pl.BlockSpec(q.shape, lambda *_: (0, 0, 0))
    in_place = pl.BlockSpec(memory_space=pl.ANY)
    return pl.pallas_call(
        functools.partial(attend, scale=1 / math.sqrt(d), bq=bq),
        out_shape=jax.ShapeDtypeStruct(q.shape, q.dtype),
        grid_spec=pltpu.PrefetchScalarGridSpec(
            num_scalar_prefetch=4,
            grid=(pl.cdiv(kv_lens.shape[0], TOGETHER),),
            in_specs=[every, in_place],
            out_specs=every,
            scratch_shapes=[
                pltpu.VMEM((SLOTS, chunks * CHUNK, page_size, combined, d), kv_pages.dtype),
                pltpu.VMEM((kv_heads * d, chunks * keys), kv_pages.dtype),
                pltpu.VMEM((chunks * keys, kv_heads * d), kv_pages.dtype),
                pltpu.VMEM((chunks, rows, keys), jnp.float32),
                pltpu.VMEM((rows, kv_heads * d), q.dtype),
                *[pltpu.VMEM((rows, 128), jnp.float32)] * 2,
                pltpu.VMEM((rows, kv_heads * d), jnp.float32),
                pltpu.SemaphoreType.DMA((SLOTS,)),
            ],
        ),
        compiler_params=pltpu.CompilerParams(dimension_semantics=("arbitrary",), vmem_limit_bytes=VMEM_LIMIT),
        name=KERNEL_NAME,
    )(kv_lens, page_indices, cu_q_lens, num_seqs, q, kv_pages)
