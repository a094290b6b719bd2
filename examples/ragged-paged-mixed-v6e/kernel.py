"""Ragged paged attention, decode and prefill in one batch, on a TPU v6e: the one file that an experiment changes.

All sequences are worked on in one step, the last one first: those with many queries come last in a batch, and the pages
of the others arrive while they are worked on. A chunk of pages is the unit of everything. Chunks of all sequences, in
order, go through a ring in VMEM, copied by hand far ahead. Chunks of sequences of one query are worked on a few at a
time, whosever they are: each has a maximum, sums and weighted values of its own, which are put together at the end. A
sequence of more queries has its blocks of queries in turn, its scores first, then its weights, so that nothing is
rescaled.

A word of 32 bits holds a key's and a value's bfloat16 numbers; both are taken out of it in registers. The key/value heads
lie side by side in the matrix unit, 128 rows each, and every query head has zeros where the other heads' keys are.
"""

import functools
import math

import jax
import jax.numpy as jnp
from jax.experimental import pallas as pl
from jax.experimental.pallas import tpu as pltpu

KERNEL_NAME = "ragged_paged_mixed"
PROBLEM_DESCRIPTION = "attention of many sequences, one query or many each, over keys and values in pages"

# Chunks of sequences of one query that are worked on at once.
LANES = 8
# Chunks that there is room for in VMEM, a power of two.
RING = 64
# Pages that are asked for before anything begins, more in each turn, and at a time.
AHEAD = 64
MORE = 48
UNROLLED = 4
# Pages of a chunk, which are multiplied at once; a power of two.
CHUNK = 4
# Queries of a sequence with many that are worked on at once.
BQ = 256
# How much VMEM the compiler may give the kernel, in bytes; a v6e has 128 MiB.
VMEM_LIMIT = 100 * 2**20


def dot(a, b, axes):
    """The product of two blocks along these axes, float32."""
    return jax.lax.dot_general(a, b, ((axes[:1], axes[1:]), ((), ())), preferred_element_type=jnp.float32)


def quotient(number, divisor):
    """The quotient of a number that is not negative, by a shift where that will do."""
    power = divisor.bit_length() - 1
    return number >> power if divisor == 1 << power else jax.lax.div(number, divisor)


def attend(
    len_ref, table_ref, start_ref, count_ref, q_hbm, kv_pages, o_hbm, q_ref, o_ref, ring_ref, tops_ref, sums_ref, accs_ref, k_ref, v_ref,
    scores_ref, q_wide, top_ref, sum_ref, acc_ref, fetched_ref, arrived, of_rows, *, scale, bq,
):  # fmt: skip
    """Everything: the queries of all sequences, of q [tokens, heads, d], against all of their pages.

    ring [RING, CHUNK, page_size, 2 kv_heads, d] has room for RING chunks of pages. Of sequences of one query: tops and sums
    [sequences, chunks, heads, 128] float32, accs [sequences, chunks, heads, kv_heads d] float32. Of one with more: k
    [kv_heads d, keys] and v [keys, kv_heads d]; scores [chunks, bq heads, keys of a chunk] float32, q_wide [bq heads,
    kv_heads d], top and sum [bq heads, 128] float32 and acc [bq heads, kv_heads d] float32 for one block of queries.
    fetched: chunks that were asked for as a whole, turn and page of the next page, pages of its sequence, pages left.
    """
    room, _, size, combined, d = ring_ref.shape
    kv_heads, keys = combined // 2, CHUNK * size
    _, heads, _ = q_ref.shape
    count = count_ref[0]
    # exp(scale x) = 2^(factor x).
    factor = scale * math.log2(math.e)

    def pages_of(sequence):
        return quotient(len_ref[sequence] + size - 1, size)

    def chunks_of(sequence):
        return quotient(len_ref[sequence] + keys - 1, keys)

    def slot_of(item):
        return item & (room - 1)

    def queries_of(sequence):
        return start_ref[sequence + 1] - start_ref[sequence]

    def following(turn, chunk):
        """The turn and the chunk of the next chunk."""
        is_last = chunk + 1 == chunks_of(count - 1 - turn)
        return jnp.where(is_last, turn + 1, turn), jnp.where(is_last, 0, chunk + 1)

    def fetch(item, most):
        """Starts the copies of the next pages: so many at most, as far as there is room beside the chunks from item on."""
        state = tuple(fetched_ref[place] for place in range(4))
        # A chunk has one page at least.
        starts = jnp.minimum(jnp.minimum(most, fetched_ref[4]), item + room - fetched_ref[0])

        def of_page(_, state):
            fetched, turn, page, pages = state
            sequence, slot = count - 1 - turn, slot_of(fetched)
            place = table_ref[sequence, page]
            pltpu.make_async_copy(kv_pages.at[place], ring_ref.at[slot, page & (CHUNK - 1)], arrived.at[slot]).start()
            page += 1
            is_last = page == pages
            is_end = is_last | (page & (CHUNK - 1) == 0)
            after = pages_of(jnp.maximum(sequence - 1, 0))
            return (
                jnp.where(is_end, fetched + 1, fetched),
                jnp.where(is_last, turn + 1, turn),
                jnp.where(is_last, 0, page),
                jnp.where(is_last, after, pages),
            )

        def of_pages(number, state):
            for page in range(UNROLLED):
                state = of_page(page, state)
            return state

        state = jax.lax.fori_loop(0, quotient(starts, UNROLLED), of_pages, state)
        state = jax.lax.fori_loop(0, starts & (UNROLLED - 1), of_page, state)
        for place in range(4):
            fetched_ref[place] = state[place]
        fetched_ref[4] = fetched_ref[4] - starts

    def wait(item, turn, chunk):
        """Waits for the pages of a chunk."""
        slot, left = slot_of(item), pages_of(count - 1 - turn) - chunk * CHUNK

        def wait_for(some):
            # A wait is for so many bytes, whatever transfers bring them.
            pltpu.make_async_copy(some, some, arrived.at[slot]).wait()

        pl.when(left >= CHUNK)(lambda: wait_for(ring_ref.at[slot]))
        for page in range(CHUNK - 1):
            pl.when((page < left) & (left < CHUNK))(functools.partial(wait_for, ring_ref.at[slot, page]))

    def side_by_side(slot, take):
        """What is taken out of the words of a chunk, [keys, kv_heads d]."""
        words_ref = ring_ref.bitcast(jnp.uint32).at[slot].reshape(keys * kv_heads, d)
        halves = [take(words_ref[head::kv_heads, :]) for head in range(kv_heads)]
        return jnp.concatenate([pltpu.bitcast(half, jnp.float32).astype(ring_ref.dtype) for half in halves], axis=1)

    def keys_of(slot):
        return side_by_side(slot, lambda words: words << 16)

    def values_of(slot, left):
        """The values of a chunk of which so many keys are left; what nobody wrote may be no number, and is made 0."""

        def take(words):
            key = jax.lax.broadcasted_iota(jnp.int32, words.shape, 0)
            return jnp.where(key < left, words & jnp.uint32(0xFFFF0000), jnp.uint32(0))

        return side_by_side(slot, take)

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

    def over_lanes(combine, scores):
        """Combines the columns that are 128 apart, [rows, 128]."""
        return functools.reduce(combine, (scores[:, lane : lane + 128] for lane in range(0, keys, 128)))

    def decode(item, turn, chunk):
        """Works on the next chunks of sequences of one query; returns item, turn and chunk of the one after them."""
        key = jax.lax.broadcasted_iota(jnp.int32, (heads, keys), 1)
        lanes, here = [], (item, turn, chunk)
        for number in range(LANES):
            item, turn, chunk = here
            is_own = (turn < count) & (queries_of(jnp.maximum(count - 1 - turn, 0)) == 1)
            if lanes:
                # Without one of its own a lane does the first one's work again.
                is_own &= lanes[-1][0]
                item, turn, chunk = (jnp.where(is_own, *pair) for pair in zip(here, lanes[0][1:], strict=True))
            lanes.append((is_own, item, turn, chunk))
            after = (item + 1, *following(turn, chunk))
            here = [jnp.where(is_own, *pair) for pair in zip(after, here, strict=True)]
        for is_own, *place in lanes:
            pl.when(is_own)(functools.partial(wait, *place))
        found = []
        for _, item, turn, chunk in lanes:
            sequence = count - 1 - turn
            scores = dot(widened(start_ref[sequence], 1), keys_of(slot_of(item)), (1, 1))
            found.append(jnp.where(key < len_ref[sequence] - chunk * keys, scores, -jnp.inf))
        for (_, item, turn, chunk), scores in zip(lanes, found, strict=True):
            place = sequence, chunk = count - 1 - turn, chunk
            left = len_ref[sequence] - chunk * keys
            top = scores.max(axis=1, keepdims=True)
            weights = jnp.exp2((scores - top) * factor)
            tops_ref[place] = jnp.broadcast_to(top, (heads, 128))
            sums_ref[place] = over_lanes(jnp.add, weights)
            accs_ref[place] = dot(weights.astype(ring_ref.dtype), values_of(slot_of(item), left), (1, 0))
        return here

    def put_together(group, _):
        """Makes the outputs of some sequences of one query out of what their chunks have found; of others nothing."""
        number = tops_ref.shape[1]
        sequences = [jnp.minimum(group * LANES + lane, count - 1) for lane in range(LANES)]
        outs = []
        for sequence in sequences:
            chunks = chunks_of(sequence)
            tops = [jnp.where(chunk < chunks, tops_ref[sequence, chunk], -jnp.inf) for chunk in range(number)]
            top = functools.reduce(jnp.maximum, tops)
            total, acc = jnp.zeros_like(top), jnp.zeros(accs_ref.shape[2:], jnp.float32)
            for chunk in range(number):
                weight = jnp.exp2((tops[chunk] - top) * factor)
                total += jnp.where(chunk < chunks, weight * sums_ref[sequence, chunk], 0.0)
                weight = jnp.concatenate([weight] * (acc.shape[1] // 128), axis=1)
                acc += jnp.where(chunk < chunks, weight * accs_ref[sequence, chunk], 0.0)
            outs.append(narrowed(acc, total.sum(axis=1, keepdims=True)))
        for sequence, out in zip(sequences, outs, strict=True):

            @pl.when(queries_of(sequence) == 1)
            def write(sequence=sequence, out=out):
                o_ref[pl.ds(start_ref[sequence], 1)] = out

        return _

    def prefill(item, turn):
        """Works on a sequence of more queries than one; returns item, turn and chunk of the one after it."""
        sequence = count - 1 - turn
        fetch(item, pages_of(sequence) + AHEAD)
        length, start, end = len_ref[sequence], start_ref[sequence], start_ref[sequence + 1]
        rows = bq * heads

        def prepare(chunk, _):
            wait(item + chunk, turn, chunk)
            slot, some = slot_of(item + chunk), pl.ds(pl.multiple_of(chunk * keys, keys), keys)
            k_ref[:, some], v_ref[some] = keys_of(slot).T, values_of(slot, len_ref[sequence] - chunk * keys)
            return _

        jax.lax.fori_loop(0, chunks_of(sequence), prepare, 0)

        def of_block(block, _):
            # The last block ends with the sequence, where that is longer than a block.
            first = jnp.maximum(jnp.minimum(start + block * bq, end - bq), 0)
            q_wide[...] = widened(first, bq)
            # The last query is that of the last key.
            last = length - end + first
            seen = jnp.minimum(jax.lax.div(last + bq - 1, keys) + 1, chunks_of(sequence))
            # Chunks that every query sees as a whole.
            whole = jnp.minimum(jax.lax.div(jnp.maximum(last + 1, 0), keys), seen)

            def scored(chunk, is_whole):
                """The greatest scores of a chunk, lane by lane."""
                scores = dot(q_wide[...], k_ref[:, pl.ds(pl.multiple_of(chunk * keys, keys), keys)], (1, 0))
                if not is_whole:
                    row, key = (jax.lax.broadcasted_iota(jnp.int32, scores.shape, axis) for axis in range(2))
                    scores = jnp.where(key - jax.lax.div(row, heads) <= last - chunk * keys, scores, -jnp.inf)
                scores_ref[chunk] = scores
                return over_lanes(jnp.maximum, scores)

            def score(chunk, _, is_whole):
                top_ref[...] = jnp.maximum(top_ref[...], scored(chunk, is_whole))
                return _

            top_ref[...] = scored(0, False)
            jax.lax.fori_loop(1, whole, functools.partial(score, is_whole=True), 0)
            jax.lax.fori_loop(jnp.maximum(whole, 1), seen, functools.partial(score, is_whole=False), 0)
            top_ref[...] = jnp.broadcast_to(top_ref[...].max(axis=1, keepdims=True), top_ref.shape)

            def weighed(chunk):
                """Sums of weights, lane by lane, and of weighted values."""
                top = jnp.concatenate([top_ref[...]] * (keys // 128), axis=1)
                weights = jnp.exp2((scores_ref[chunk] - top) * factor)
                values = v_ref[pl.ds(pl.multiple_of(chunk * keys, keys), keys)]
                return over_lanes(jnp.add, weights), dot(weights.astype(v_ref.dtype), values, (1, 0))

            def weigh(chunk, _):
                total, acc = weighed(chunk)
                sum_ref[...] += total
                acc_ref[...] += acc
                return _

            sum_ref[...], acc_ref[...] = weighed(0)
            jax.lax.fori_loop(1, seen, weigh, 0)
            out = narrowed(acc_ref[...], sum_ref[...].sum(axis=1, keepdims=True))
            own, some = first + jax.lax.broadcasted_iota(jnp.int32, out.shape, 0), pl.ds(first, bq)
            kept = jnp.where((own >= start) & (own < end), *(x.astype(jnp.float32) for x in (out, o_ref[some])))
            o_ref[some] = kept.astype(o_ref.dtype)
            return _

        jax.lax.fori_loop(0, jax.lax.div(end - start + bq - 1, bq), of_block, 0)

        return item + chunks_of(sequence), turn + 1, 0

    for place in range(3):
        fetched_ref[place] = 0
    # In pieces of so many rows, those that are queries; the last one may overlap the one before.
    rows, pieces = bq, quotient(start_ref[count] + bq - 1, bq)

    def for_pieces(act):
        def of_piece(piece, _):
            some = pl.ds(jnp.minimum(piece * rows, q_ref.shape[0] - rows), rows)
            act(some)
            return _

        jax.lax.fori_loop(0, pieces, of_piece, 0)

    for_pieces(lambda some: pltpu.make_async_copy(q_hbm.at[some], q_ref.at[some], of_rows).start())
    fetched_ref[3] = pages_of(count - 1)
    fetched_ref[4] = jax.lax.fori_loop(0, count, lambda sequence, pages: pages + pages_of(sequence), 0)
    fetch(0, AHEAD)
    for_pieces(lambda some: pltpu.make_async_copy(q_hbm.at[some], q_ref.at[some], of_rows).wait())

    def work(here):
        item, turn, chunk = here
        fetch(item, MORE)
        is_one = queries_of(count - 1 - turn) == 1
        return jax.lax.cond(is_one, lambda: tuple(decode(item, turn, chunk)), lambda: prefill(item, turn))

    jax.lax.while_loop(lambda here: here[1] < count, work, (0, 0, 0))
    jax.lax.fori_loop(0, quotient(count + LANES - 1, LANES), put_together, 0)
    for_pieces(lambda some: pltpu.make_async_copy(o_ref.at[some], o_hbm.at[some], of_rows).start())
    for_pieces(lambda some: pltpu.make_async_copy(o_ref.at[some], o_hbm.at[some], of_rows).wait())


def kernel_fn(q, kv_pages, kv_lens, page_indices, cu_q_lens, num_seqs):
    """Attention of q [tokens, heads, d] over the pages of each sequence."""
    tokens, heads, d = q.shape
    _, page_size, combined, _ = kv_pages.shape
    kv_heads, bq = combined // 2, min(BQ, tokens)
    chunks = pl.cdiv(page_indices.shape[1], CHUNK)
    rows, keys = bq * heads, CHUNK * page_size
    sequences = len(kv_lens)
    in_place = pl.BlockSpec(memory_space=pl.ANY)
    found = [pltpu.VMEM((sequences, chunks, heads, wide), jnp.float32) for wide in (128, 128, kv_heads * d)]
    return pl.pallas_call(
        functools.partial(attend, scale=1 / math.sqrt(d), bq=bq),
        out_shape=jax.ShapeDtypeStruct(q.shape, q.dtype),
        grid_spec=pltpu.PrefetchScalarGridSpec(
            num_scalar_prefetch=4,
            grid=(1,),
            in_specs=[in_place] * 2,
            out_specs=in_place,
            scratch_shapes=[
                *[pltpu.VMEM(q.shape, q.dtype)] * 2,
                pltpu.VMEM((RING, CHUNK, page_size, combined, d), kv_pages.dtype),
                *found,
                pltpu.VMEM((kv_heads * d, chunks * keys), kv_pages.dtype),
                pltpu.VMEM((chunks * keys, kv_heads * d), kv_pages.dtype),
                pltpu.VMEM((chunks, rows, keys), jnp.float32),
                pltpu.VMEM((rows, kv_heads * d), q.dtype),
                *[pltpu.VMEM((rows, 128), jnp.float32)] * 2,
                pltpu.VMEM((rows, kv_heads * d), jnp.float32),
                pltpu.SMEM((5,), jnp.int32),
                pltpu.SemaphoreType.DMA((RING,)),
                pltpu.SemaphoreType.DMA,
            ],
        ),
        compiler_params=pltpu.CompilerParams(dimension_semantics=("arbitrary",), vmem_limit_bytes=VMEM_LIMIT),
        name=KERNEL_NAME,
    )(kv_lens, page_indices, cu_q_lens, num_seqs, q, kv_pages)
