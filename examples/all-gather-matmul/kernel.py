"""All-gather and matrix product on several TPUs, C = A B: the one file that an experiment changes.

Half of each of A's shards goes each way round a ring, in pieces of its columns, from VMEM to VMEM. A chip hands a piece
on as soon as it is there, then adds its product with the same rows of B to C: the links never wait for a product.
"""

import jax
import jax.numpy as jnp
from jax.experimental import pallas as pl
from jax.experimental.pallas import tpu as pltpu
from jax.sharding import PartitionSpec as P

KERNEL_NAME = "piecewise_gather_matmul"
PROBLEM_DESCRIPTION = "all-gather of A's rows and matmul C = A B on several chips"

# Columns of the last piece: its product is the only one that begins when nothing is under way.
NARROWEST = 128
VMEM_LIMIT = 64 * 2**20


def pieces_of(k):
    """The columns of the pieces of a shard with k of them: each takes half of what is left, in multiples of NARROWEST."""
    pieces, begin = [], 0
    while begin < k:
        width = min(k - begin, max(NARROWEST, (k - begin) // 2 // NARROWEST * NARROWEST))
        pieces.append(pl.ds(begin, width))
        begin += width
    return pieces


def multiply(a_ref, b_ref, c_ref, all_ref, b_vmem, sums, read_a, read_b, sent, received):
    """C [m, n] in VMEM of shards a [rows, k] and b [k, n] in HBM; all [chips, rows, k] in VMEM receives A's shards."""
    me, chips = jax.lax.axis_index("x"), jax.lax.axis_size("x")
    (rows, k), half = a_ref.shape, a_ref.shape[0] // 2
    pieces = list(enumerate(pieces_of(k)))

    def chip_at(place):
        """The chip at a place of the ring 0, 1, 3, 2, whose neighbours share a link; this order is its own inverse."""
        place = jax.lax.rem(place + chips, chips)
        return place ^ (place >> 1)

    place = chip_at(me)

    def shard(way, step):
        """The shard whose half is here after `step` steps of this way round."""
        return chip_at(place - step if way == 0 else place + step)

    def rows_of(way):
        return pl.ds(way * half, half)

    def send(way, step, index, columns, source=None):
        """The transfer of a piece in this step: its shard came here in the step before, or is this chip's own."""
        target = all_ref.at[shard(way, step), rows_of(way), columns]
        ends = sent.at[way, step, index], received.at[way, step, index]
        after = chip_at(place + 1 if way == 0 else place - 1)
        return pltpu.make_async_remote_copy(target if source is None else source, target, *ends, device_id=(after,))

    def read(index, columns):
        return (
            pltpu.make_async_copy(a_ref.at[:, columns], all_ref.at[me, :, columns], read_a.at[index]),
            pltpu.make_async_copy(b_ref.at[columns], b_vmem.at[columns], read_b.at[index]),
        )

    # Nobody sends to a chip that has not begun.
    barrier = pltpu.get_barrier_semaphore()
    for neighbour in (chip_at(place - 1), chip_at(place + 1)):
        pl.semaphore_signal(barrier, 1, device_id=(neighbour,))
    pl.semaphore_wait(barrier, 2)
    # The links are the bottleneck: they begin at once, with pieces from HBM, and always have a piece to go on with.
    for index, columns in pieces:
        for way in range(2):
            send(way, 0, index, columns, source=a_ref.at[rows_of(way), columns]).start()
    for index, columns in pieces:
        for copy in read(index, columns):
            copy.start()

    @pl.loop(0, chips)
    def _(step):
        for index, columns in pieces:

            @pl.when(step == 0)
            def _():
                for copy in read(index, columns):
                    copy.wait()

            for way in range(2):

                @pl.when(step > 0)
                def _():
                    send(way, step - 1, index, columns).wait_recv()

                @pl.when((step > 0) & (step < chips - 1))
                def _():
                    send(way, step, index, columns).start()

            halves = [all_ref[shard(way, step), rows_of(way), columns] for way in range(2)]
            product = jnp.dot(jnp.concatenate(halves), b_vmem[columns], preferred_element_type=jnp.float32)
            if index > 0:
                product += sums[...]
            if index < len(pieces) - 1:
                sums[...] = product
            else:
                for way in range(2):
                    begin = pl.multiple_of(shard(way, step) * rows + way * half, half)
                    c_ref[pl.ds(begin, half)] = product[way * half : (way + 1) * half].astype(c_ref.dtype)

    @pl.loop(0, chips - 1)
    def _(step):
        for index, columns in pieces:
            for way in range(2):
                send(way, step, index, columns).wait_send()


def shard_fn(a, b):
    """C [m, n / chips] of one chip's shards a [m / chips, k] and b [k, n / chips]."""
    chips = jax.lax.axis_size("x")
    (rows, k), n = a.shape, b.shape[1]
    pieces = len(pieces_of(k))
    transfers = pltpu.SemaphoreType.DMA((2, chips - 1, pieces))
    return pl.pallas_call(
        multiply,
        out_shape=jax.ShapeDtypeStruct((rows * chips, n), a.dtype),
        in_specs=[pl.BlockSpec(memory_space=pl.ANY)] * 2,
        # XLA copies whatever a kernel that talks to other chips returns, from VMEM in half the time it takes from HBM.
        out_specs=pl.BlockSpec(memory_space=pltpu.VMEM),
        scratch_shapes=[
            pltpu.VMEM((chips, rows, k), a.dtype),
            pltpu.VMEM((k, n), b.dtype),
            pltpu.VMEM((rows, n), jnp.float32),
            pltpu.SemaphoreType.DMA((pieces,)),
            pltpu.SemaphoreType.DMA((pieces,)),
            transfers,
            transfers,
        ],
        compiler_params=pltpu.CompilerParams(collective_id=0, has_side_effects=True, vmem_limit_bytes=VMEM_LIMIT),
        name=KERNEL_NAME,
    )(a, b)


def kernel_fn(a, b):
    """The product of a [m, k] and b [k, n]."""
    return jax.shard_map(shard_fn, in_specs=(P("x", None), P(None, "x")), out_specs=P(None, "x"), check_vma=False)(a, b)
