"""Every rule of the diagnosis on evidence that shows its case and on evidence that does not."""

from dataclasses import dataclass, replace
from typing import Any

import pytest
from evidence_examples import advised, evidence, pallas_call, statement
from narrowing import present
from rule_examples import (
    column_scratch,
    copied,
    copied_by_hand,
    covering,
    earlier,
    good,
    on_chip,
    one_pass,
    outer_product,
    reshaped,
    rowwise,
    saved,
    spilling,
    twice,
    with_call,
    with_counts,
    with_exponentials,
    with_lines,
    with_parts,
    with_run,
    with_slots,
    with_table,
    with_window,
)

from harness.advice import diagnose
from harness.advice.report import report
from harness.advice.rules import RULES, RuleCase
from harness.hardware import chip
from harness.operators import AllGatherMatmul
from harness.records import (
    Array,
    Certificate,
    Evidence,
    ExpectedCount,
    Hint,
    LinkTraffic,
    MosaicCounts,
    OpTime,
    PartKind,
    Row,
)
from harness.units import percent

BASE_TWO = Certificate(
    sha256="0" * 64, platform="tpu", primitives=(("jax._src.lax:exp2_p", 4), ("jax._src.lax:mul_p", 9))
)
OLDER_BASE_TWO = replace(BASE_TWO, primitives=(("jax._src.lax.lax:exp2", 4), ("jax._src.lax.lax:mul", 9)))

BY_NAME = {rule.name: rule for rule in RULES}


@dataclass(frozen=True, slots=True)
class Case:
    """Evidence, the attempts before it, and words that the finding must have (none: there must be no finding)."""

    kernel: Evidence
    words: tuple[str, ...] = ()
    previous: tuple[Row, ...] = ()


CHAMPION, NAIVE, SCALED = "naive-2048x1024-v5e", "naive-128x256-v5e", "scaled-q-2048x1024-v5e"
WIDE, V6E, PIECES = "float32-operands-2048x1024-v5e", "naive-2048x1024-v6e", "two-pieces-2048x1024-v5e"
CAUSAL = statement(causal=True)
LOST = tuple(earlier(number, outcome="reject") for number in range(4, 9))

EXPONENTIALS = (58, 0.15, {"EUP": 4000, "VALU": 8000})
DIVIDING = (
    (59, 0.04, {"EUP": 100, "EUP rcp": 100, "VALU": 900}),
    (60, 0.20, {"EUP": 1000, "EUP rcp": 900, "VALU": 4000}),
)


def by_hand(base: Evidence, role: str = "input") -> Evidence:
    """The same with all inputs (or outputs) left in HBM, where the kernel copies them."""
    (call,) = present(base.trace).pallas_calls
    for number, window in enumerate(call.windows):
        if window.role == role:
            base = with_window(
                base,
                number,
                block_shape=window.array.shape,
                memory_space="any",
                buffers=0,
                fetches=None,
                hbm_bytes=None,
                vmem_bytes=0,
            )
    return base


def by_tables(base: Evidence, *, read_bytes: int) -> Evidence:
    """The same, with an index map of the first input that reads a table; its simulated traffic is `read_bytes`."""
    base = with_window(with_run(base, hbm_read_bytes=read_bytes, hbm_written_bytes=0), 0, fetches=None)
    windows = present(base.trace).pallas_calls[0].windows
    shape = windows[0].array.shape
    table = replace(windows[0], name="table", memory_space="smem", block_shape=shape, fetches=1, vmem_bytes=0)
    return with_call(base, windows=(table, *windows))


def heads_alone() -> Evidence:
    """Four heads of attention, one in each step, with all queries and keys of a head in one block."""
    base = evidence(0.9e-3, bq=8192, bkv=8192)
    for number, window in enumerate(present(base.trace).pallas_calls[0].windows):
        array = replace(window.array, shape=(4, 8192, 128))
        base = with_window(base, number, array=array, block_shape=(1, 8192, 128))
    return with_call(base, grid=(4,))


def rows_of(number: int) -> Array:
    return Array(name="w", shape=(number, 65536), dtype="bfloat16")


def four_rows() -> Evidence:
    """A filter of four rows, of which a block has all."""
    kernel = rowwise(0.35e-3)
    filters = replace(present(kernel.trace).pallas_calls[0].windows[1].array, shape=(4, 4096))
    return with_window(kernel, 1, array=filters, block_shape=(4, 256), fetches=640, vmem_bytes=2 * 16 * 256 * 2)


def wide_rows() -> Evidence:
    """Rows of 65,536 numbers; of the one row of weights, a tile of two rows is half filled."""
    return rowwise(0.35e-3, rows=512, columns=65536, block=16)


def triangle(*, executed: float, computed: float, packed: int = 1) -> Evidence:
    """A causal kernel on v6e: multiples of the useful FLOPs and scores, and the exponentials in a word."""
    pairs = CAUSAL.work.matmul_flops // (4 * 128)
    problem = replace(CAUSAL, work=replace(CAUSAL.work, exponentials=pairs))
    scores = round(computed * pairs / 1024)
    kernel = with_lines(
        on_chip("v6e", evidence(2e-3, bq=2048, bkv=512, problem=problem)),
        (20, 0.4, {"MXU": scores, "VPOP": scores}),
        (21, 0.2, {"EUP": scores // packed, "VALU": scores, "VPOP": scores // packed}),
    )
    return with_run(kernel, mxu_flops=round(executed * CAUSAL.work.matmul_flops))


def units_of(name: str) -> tuple[Any, ...]:
    return present(saved(name).simulation).units


def waiting(kernel: Evidence) -> Evidence:
    """A fifth of its cycles waits for transfers."""
    return with_run(kernel, dma_wait_cycles=0.2 * (present(kernel.simulation).cycles or 0.0))


def over_links(*, waits: float = 0.24e-3, busiest: int = 12 << 20) -> Evidence:
    """A product of 0.4 ms on four v5e chips, with these waits for other chips and these bytes on the busiest link."""
    kernel = evidence(0.4e-3, problem=AllGatherMatmul(m=2048, n=4096, k=4096).statement())
    links = tuple(
        LinkTraffic(source=source, destination=destination, bytes=amount, busy_seconds=amount / 43e9)
        for source, destination, amount in ((0, 1, busiest), (1, 3, 6 << 20))
    )
    return with_run(kernel, chips=4, links=links, link_wait_cycles=waits * present(kernel.simulation).clock_hz)


SHOWN = {
    "exposed communication": [
        Case(over_links(), ("waits 240.000 us for other chips", "160.000 us", "52.626 us of the transfers")),
        Case(over_links(waits=0.29e-3), ("start the next transfer, compute with the data that have arrived",)),
    ],
    "uneven links": [Case(over_links(), ("from chip 0 to 1", "2.0x as much as", "0, 1, 3, 2"))],
    "saturated": [Case(good(0.74e-3), ("94.3%", "stop tuning blocks"))],
    "memory floor": [Case(rowwise(0.17e-3), ("bandwidth", "only fewer bytes"))],
    "small gap": [Case(good(0.76e-3), ("7.3%", "roofline is at 704.473 us"))],
    "plateau": [Case(good(), ("the last 5 attempts", "change the kind"), (earlier(), *LOST))],
    "spill cliff": [
        Case(
            spilling(2.5e-3, 2_000_000),
            ("spill cliff: 0 spills executed in attempt 3, 2,000,000 now", "block sizes of attempt 3"),
            (earlier(),),
        ),
        # Not the last accepted one, but the fastest that spilled less.
        Case(
            spilling(2.5e-3, 2_000_000),
            ("attempt 5", "block sizes of attempt 5"),
            (earlier(3, seconds=2e-3), earlier(5, seconds=1e-3, outcome="reject"), earlier(6, spills=1_900_000)),
        ),
    ],
    "scale outside": [Case(saved(CHAMPION), ("kernel.py:55", "13.1% of the cycles", "multiply it into q"))],
    "spills": [
        Case(
            spilling(0.8e-3, 120_000),
            (
                "120,000 register spills and 120,000 fills executed, 0.20 per cycle",
                "halve the key/value block",
                "now 512) to 256",
            ),
        ),
        Case(with_table(spilling(0.8e-3, 120_000)), ("rows of k's block, now 512) to 256",)),
        Case(saved(CHAMPION), ("894,208 register spills", "at least 8.1%", "kernel.py:55 does one")),
        Case(saved(SCALED), ("655,872 register spills", "kernel.py:57 spills most (6.4 MB a step)")),
        Case(
            spilling(0.8e-3, 120_000),
            ("keep the block sizes (attempt 2 spilled less and took longer)",),
            (earlier(2, seconds=2.7e-3, spills=100_000),),
        ),
    ],
    "bubbles": [
        Case(saved(CHAMPION), ("7.5% of the cycles", "between excellent (5%)", "MXU result (5.9%)")),
        Case(saved(NAIVE), ("46.5% of the cycles", "red flag", "now 256) to 1024")),
        Case(
            with_run(
                with_parts(rowwise(0.9e-3, block=64), ("unit stall", "XLU result", 0.5)),
                static_bundles=700,
                bundle_cycles=89_600,
            ),
            ("main cause: XLU result (50.0%)", "double a block of x"),
        ),
        # 32 steps of 700 bundles: each walks its block in turns.
        Case(
            with_run(
                with_parts(rowwise(0.9e-3), ("unit stall", "XLU result", 0.5)), static_bundles=200, bundle_cycles=22_400
            ),
            (
                "in a step, the loops of the body issue 3.5x as many bundles",
                "let an iteration handle more of the block, or unroll the loop",
            ),
        ),
    ],
    "DMA waits": [
        Case(
            with_parts(good(1.2e-3), ("operand wait", "args_1_.3", 0.3)),
            ("30.0% of the time (`k` 30.0%;", "now 512) to 1024: each step then has more arithmetic"),
        ),
        Case(
            with_parts(evidence(1.2e-3, bq=2048, bkv=2048), ("operand wait", "k", 0.3)),
            ("fetch k further ahead", "at most two buffers", "pltpu.emit_pipeline", "pltpu.make_async_copy"),
        ),
        Case(
            with_window(with_parts(good(1.2e-3), ("operand wait", "k", 0.3)), 1, buffers=1),
            ("give k two buffers (now one)",),
        ),
        # The run is not taken apart.
        Case(with_run(good(1.2e-3), dma_wait_cycles=0.3 * 1.2e-3 * 1.5e9), ("30.0% of the time", "now 512) to 1024")),
    ],
    "short steps": [
        Case(evidence(3.0e-3), ("8,192 grid steps of 366.21 ns each", "now 256) to 1024: fewer and longer steps")),
        Case(saved(NAIVE), ("8,192 grid steps of 646.82 ns", "75.1%")),
        Case(rowwise(1e-3, block=8), ("1,024 grid steps", "make the blocks larger")),
        # These are pages, which no constant makes larger.
        Case(
            with_table(with_window(rowwise(5e-3, block=1), 0, fetches=None)),
            ("8,192 grid steps", "one block of x, from places that a table gives", "take several of these blocks"),
        ),
    ],
    "fill and drain": [
        Case(
            with_parts(evidence(0.9e-3, bq=8192, bkv=8192), ("fill and drain", "q", 0.12)),
            ("12.0% of the cycles", "only 4 steps", "more steps cost", "4096 and 16384 along axis 0 of q's block"),
        ),
        # There is a step for each head: a block of one head cannot be halved.
        Case(
            with_parts(heads_alone(), ("fill and drain", "q", 0.12)),
            ("the grid cuts no input", "a grid axis that splits the rows of q's block (now 1 x 8192 x 128)"),
        ),
    ],
    "one giant block": [Case(rowwise(0.3e-3, block=8192), ("one step", "split the work into 8"))],
    "small call": [
        Case(
            with_parts(evidence(9e-6, problem=statement(256), bq=128, bkv=128), ("launch", "", 0.5)),
            ("50.0% of 9.000 us is launch", "each call more work"),
        )
    ],
    "copies": [
        Case(
            copied(good()),
            (
                "1 copy or",
                "takes 100.000 us of 800.000 us (12.5%)",
                "enough to move 81.9 MB a run",
                "step",
                "scratch buffer",
            ),
        ),
        Case(
            reshaped(good()),
            ("1 operation outside the kernel, `reshape.0`, takes 100.000 us", "(12.5%)", "-> pass the array unchanged"),
        ),
    ],
    "split matmuls": [
        Case(with_counts(good(), matmul=6), ("6 matmuls", "instead of 2", "one dot over whole blocks")),
        Case(
            with_counts(with_window(good(), 1, block_shape=(192, 128)), matmul=4),
            ("4 matmuls", "instead of 2 (Mosaic): they are split", "k's block, now 192 x 128", "128 x 128"),
        ),
        # 8 rows are fewer than the unit has, and can be aligned with nothing.
        Case(with_counts(with_window(good(), 1, block_shape=(8, 192)), matmul=4), ("8 x 192", "128: 8 x 128")),
        # Two bodies explain the number.
        Case(
            with_counts(with_window(good(), 1, block_shape=(192, 128)), matmul=4, exp=4),
            ("4 matmuls", "instead of 2 (Mosaic), and k's block is no multiple of the matrix unit", "128 x 128"),
        ),
    ],
    "recomputed exp": [
        Case(with_counts(good(), exp=3), ("3 exponentials", "instead of 2")),
        # Both halves of a bfloat16 kernel's registers made twice; and a float32 one, whose registers hold half as many.
        Case(with_exponentials(2.0, 2.0, with_counts(good(), exp=3)), ("3 exponentials", "instead of 2")),
        Case(with_exponentials(2.0, 4.0, with_counts(good(), exp=3)), ("3 exponentials", "instead of 2")),
    ],
    "staged reductions": [Case(with_counts(good(), reduction=9), ("9 reductions", "at most 4"))],
    "misaligned blocks": [
        Case(
            with_call(
                with_window(good(), 1, block_shape=(512, 72), vmem_bytes=2 * 512 * 128 * 2), vmem_limit_bytes=2 << 20
            ),
            ("k's block bfloat16[512 x 72]", "1.8x its values", "-> make the last size, 72, a multiple of 128"),
        ),
        Case(
            with_call(
                with_window(wide_rows(), 1, array=rows_of(24), block_shape=(12, 65536)), vmem_limit_bytes=9 << 20
            ),
            ("-> make the second-to-last size, 12, a multiple of 8",),
        ),
        # VMEM is nearly full, so one row in a tile is reported; the gain is at most the wait for it.
        Case(
            with_call(wide_rows(), vmem_limit_bytes=9 << 20),
            ("w's block bfloat16[1 x 65536]", "2.0x its values", "one dimension, with a block of (65536,)"),
        ),
    ],
    "steps executed": [
        Case(with_run(good(), executed_steps=512), ("512 grid steps executed", "has 256")),
        Case(with_run(good(), executed_steps=100), ("100 grid steps executed", "constants")),
    ],
    "re-reads": [
        Case(
            evidence(2.16e-3),
            (
                "k and v are read 128x: 1.07 GB of the 1.08 GB of HBM traffic (block index maps)",
                "now 128) to 512: 4x fewer re-reads",
            ),
        )
    ],
    "VMEM limit": [
        Case(
            with_call(evidence(2.16e-3, bkv=8192), vmem_limit_bytes=11 << 20),
            ("256 rows does not fit into the 11.00 MiB", "raise vmem_limit_bytes"),
        )
    ],
    "operand re-reads": [
        Case(rowwise(0.55e-3, reads=4), ("x is read 4x", "2.5x the least", "half as often")),
        # Index maps that read tables, as in a grouped matmul: only the simulated traffic shows the re-reads.
        Case(
            by_tables(rowwise(0.55e-3, block=128, reads=4), read_bytes=4 << 26),
            (
                "of HBM traffic (simulated DMA) are above the least possible",
                "how often x is read is unknown",
                "reuse the block",
            ),
        ),
    ],
    "several calls": [
        Case(twice(rowwise(0.40e-3)), ("2 Pallas calls move 268.4", "134.23 MB more", "merge the calls"))
    ],
    "idle bandwidth": [
        Case(rowwise(0.35e-3), ("memory-bound at 46.8%", "emit_pipeline", "make_async_copy")),
        Case(rowwise(0.35e-3, block=128), ("memory-bound at 46.8%", "double the blocks of x")),
        Case(
            copied_by_hand(0.35e-3, waiting=0.3),
            ("memory-bound at 46.8%", "30.0% of the cycles wait for `x`", "one more slot in its scratch buffer"),
        ),
    ],
    "copies one by one": [
        Case(
            copied_by_hand(3e-3, waiting=0.8),
            ("80.0% of the cycles wait for copies of `x`", "before you wait for the first"),
        )
    ],
    "wide statistics": [Case(saved(CHAMPION), ("75.3% of their slots", "2048 rows are kept 128 times", "x 1"))],
    "shared scratch": [
        Case(with_call(good(), vmem_limit_bytes=13 << 19), ("1.00 MiB by each", "two columns of one scratch"))
    ],
    "VMEM nearly full": [Case(with_call(good(), vmem_limit_bytes=13 << 19), ("of 6.50 MiB", "raise vmem"))],
    "unused VMEM": [
        Case(with_call(good(), vmem_limit_bytes=100 << 20), ("allows 100.00 MiB", "leave vmem_limit_bytes out"))
    ],
    "masked blocks": [
        Case(
            with_run(evidence(0.9e-3, problem=CAUSAL), mxu_flops=statement().work.matmul_flops),
            ("137.4 GFLOP (simulated), 2.00x the useful 68.7 GFLOP", "pl.when"),
        ),
        Case(replace(evidence(0.9e-3, bq=2048, problem=CAUSAL), trace=evidence().trace), ("2.00x", "pl.when")),
        Case(replace(covering(1.99, evidence(0.9e-3, bq=2048, problem=CAUSAL)), simulation=None), ("1.99x",)),
        # Less is executed than the grid covers: the body is under a condition already.
        Case(
            with_run(
                covering(2.0, evidence(0.9e-3, bq=512, bkv=1024, problem=CAUSAL)),
                mxu_flops=round(1.5 * CAUSAL.work.matmul_flops),
            ),
            ("1.50x the useful", "some grid steps are skipped", "blocks that cross the diagonal", "now 1024)"),
        ),
    ],
    "hidden blocks fetched": [
        Case(
            waiting(evidence(0.9e-3, bq=2048, bkv=512, problem=CAUSAL)),
            (
                "256 blocks of k are fetched, and the mask hides all but 144",
                "20.0% of the cycles",
                "jnp.minimum(j, last)",
            ),
        )
    ],
    "repeated work": [
        Case(with_slots(covering(1.75, rowwise(0.35e-3)), VALU=0.9), ("1.75x the useful", "needless work")),
        Case(covering(2.0, outer_product(64, 2)), ("2.00x the useful", "needless work")),
    ],
    "idle core": [
        Case(
            with_call(on_chip("v5p", good()), dimension_semantics=("arbitrary", "arbitrary")),
            ("2 cores", "dimension_semantics=('parallel', 'arbitrary')"),
        ),
        Case(
            with_call(on_chip("v5p", good()), grid=(2, 4, 8, 4), dimension_semantics=()),
            ("dimension_semantics=('parallel', 'parallel', 'arbitrary', 'arbitrary'), where the",),
        ),
        Case(
            with_call(on_chip("v5p", good()), grid=(3, 5, 7), dimension_semantics=()),
            ("one entry for each axis of the grid (3)",),
        ),
        Case(
            with_call(on_chip("v5p", good()), grid=(8, 32, 2), dimension_semantics=("arbitrary",) * 3),
            ("marks no axis as parallel", "dimension_semantics=('parallel', 'arbitrary', 'arbitrary'), where the"),
        ),
    ],
    "uneven cores": [
        Case(with_call(on_chip("v5p", good()), grid=(3, 32)), ("(3)", "2 cores", "idles 25.0% of the time"))
    ],
    "grid order": [Case(outer_product(64, 2), ("64 x 2 independent steps", "swap the axes of the grid, to 2 x 64"))],
    "near the ceiling": [Case(evidence(0.80e-3, bq=256), ("MXU 87.2% and HBM 83.2% are both high",))],
    "cross-lane reductions": [Case(saved(NAIVE), ("14.8% of the cycles", "XLU", "transposed (K Q^T)"))],
    "unit stalls": [
        Case(
            with_run(evidence(2e-3, bq=1024), unit_stall_cycles=0.9e6, units=units_of(NAIVE)),
            ("waits for busy units 30.0% of the time (simulated) while the MXU is busy only", "now 256) to 1024"),
        ),
        # A block four times as large would fit into VMEM, but is larger than what works well.
        Case(
            with_run(evidence(2e-3, bq=512, bkv=1024), unit_stall_cycles=0.9e6, units=units_of(NAIVE)),
            ("now 1024) to 2048",),
        ),
    ],
    "no overlap": [
        Case(evidence(1.3e-3, bq=2048, bkv=512), ("90.0% of the time", "take turns")),
        Case(saved(V6E), ("82.8% of the time", "20.4%")),
    ],
    "vector unit": [
        Case(with_slots(good(), VALU=0.85), ("(VALU) uses 85.0%", "multiply the scale into q")),
        # Its queries are scaled already.
        Case(with_slots(saved(SCALED), VALU=0.88), ("spend fewer vector operations", "kernel.py:57 has 2.0")),
        Case(with_slots(good(), EUP=0.85), ("(EUP) uses 85.0%", "use exp2")),
        Case(with_slots(rowwise(0.3e-3), VALU=0.85), ("vector arithmetic binds", "compute only once each value")),
    ],
    "exp over 10%": [
        Case(saved(V6E), ("36.9% of the cycles", "kernel.py:58", "exp2")),
        # The line that takes longest divides: it is not counted in.
        Case(with_lines(good(), EXPONENTIALS, *DIVIDING), ("take 15.0% of the cycles", "kernel.py:58")),
    ],
    "divisions": [
        Case(with_lines(good(), *DIVIDING), ("24.0% of the cycles", "kernel.py:60", "divide once at the end")),
        # Its broadcast goes through the cross-lane unit.
        Case(with_lines(good(), (60, 0.2, {"EUP": 100, "EUP rcp": 100, "XLU": 150, "VALU": 90})), ("20.0%",)),
        Case(with_lines(rowwise(0.9e-3), *DIVIDING), ("kernel.py:60", "the divisor that a row or column shares")),
    ],
    "wide operands": [
        Case(one_pass(saved(WIDE), "kernel.py line 54"), ("kernel.py:54 issues 1.9x", "bfloat16 operands"))
    ],
    "transposed pushes": [
        Case(
            with_lines(rowwise(0.9e-3), (20, 0.6, {"MXU": 4096, "MXU transposed push": 40_000})),
            ("kernel.py:20 contracts its second operand along the last axis: 40,000 pushes", "block of x", "(x.T)"),
        )
    ],
    "half-filled MXU": [
        Case(
            saved(V6E),
            ("head_dim 128 fills 50% of a 256 x 256", "at the unit's full width, the matmuls executed", "transposed"),
        ),
        Case(triangle(executed=3.0, computed=1.5), ("head_dim 128 fills 50%", "3.0x the useful")),
        Case(evidence(2e-3, problem=statement(head_dim=64)), ("head_dim 64 fills 50% of a 128 x 128",)),
    ],
    "both low": [Case(rowwise(0.9e-3, block=64), ("both low", "128 grid steps", "fewer, longer steps"))],
}

# Kernels, each with all rules that find something in it.
SPOKEN_ABOUT: tuple[tuple[Evidence, set[str]], ...] = (
    (evidence(0.80e-3, trace=None, hlo=None, mosaic=None, simulation=None), set()),
    (good(), set()),
    (good(0.76e-3), {"small gap"}),
    (on_chip("v5p", good()), {"no overlap"}),
    (evidence(2.16e-3), {"re-reads", "short steps"}),
    (saved(CHAMPION), {"bubbles", "scale outside", "spills", "wide statistics"}),
    (saved(NAIVE), {"bubbles", "cross-lane reductions", "exp over 10%", "re-reads", "short steps", "unit stalls"}),
    (saved(V6E), {"bubbles", "cross-lane reductions", "exp over 10%", "half-filled MXU", "no overlap", "spills"}),
    (saved(PIECES), {"bubbles", "cross-lane reductions", "exp over 10%", "spills"}),
    (rowwise(0.17e-3), {"memory floor", "small gap"}),
    (rowwise(0.3e-3), {"idle bandwidth"}),
    (rowwise(0.35e-3), {"idle bandwidth"}),
    (rowwise(0.55e-3, reads=4), {"operand re-reads"}),
)
# Further evidence on which a rule is silent.
SILENT: dict[str, list[Evidence | Case]] = {
    "exposed communication": [over_links(waits=0.02e-3)],
    "uneven links": [over_links(busiest=7 << 20)],
    "memory floor": [rowwise(0.43e-3, reads=4)],
    "plateau": [Case(good(), previous=(*LOST, earlier(9))), Case(good(), previous=LOST[:4])],
    "spill cliff": [
        Case(spilling(2.5e-3, 2_000_000), previous=(earlier(chip="v6e"),)),
        Case(spilling(2.5e-3, 2_000_000), previous=(earlier(seconds=3e-3),)),
        Case(spilling(2.5e-3, 2_000_000), previous=(earlier(spills=1_000_000),)),
        Case(spilling(2.5e-3, 2_000_000), previous=(earlier(outcome="failed"),)),
        # A kernel that was revoked is no place to go back to, and a time on another scale is not comparable.
        Case(
            spilling(2.5e-3, 2_000_000),
            previous=(
                earlier(2, spills=None),
                earlier(),
                earlier(4, kind="revoke", revokes=(3,), holder=2, seconds=None),
            ),
        ),
        Case(
            spilling(2.5e-3, 2_000_000),
            previous=(earlier(), earlier(4, outcome="reject", seconds=3e-3, key_digest="newer")),
        ),
        spilling(2.5e-3, 2_000_000),
    ],
    "scale outside": [saved(SCALED)],
    "spills": [
        spilling(0.8e-3, 12_000),
        # A kernel that waits for transfers has slots to spare.
        with_run(spilling(0.8e-3, 120_000), dma_wait_cycles=0.7 * 0.8e-3 * 1.5e9),
        # A little waiting hides spills that take no bundle of their own.
        with_run(
            copied_by_hand(0.8e-3, waiting=0.2),
            dma_wait_cycles=0.2 * 0.8e-3 * 1.5e9,
            executed_spills=120_000,
            executed_fills=120_000,
        ),
    ],
    "bubbles": [
        with_parts(good(), ("unit stall", "MXU result", 0.03)),
        # Waits for operands, and filling the pipeline, have their own rules.
        with_parts(good(), ("operand wait", "k", 0.3)),
        # Nothing is waited for: no unit could be named.
        with_parts(good(), ("launch", "", 0.3)),
    ],
    "DMA waits": [
        with_parts(good(1.2e-3), ("operand wait", "k", 0.01)),
        with_run(good(1.2e-3), dma_wait_cycles=0.01 * 1.2e-3 * 1.5e9),
        # Transfers that take longer than the arithmetic cannot hide behind it.
        with_parts(rowwise(0.35e-3), ("operand wait", "x", 0.3)),
    ],
    "short steps": [
        evidence(3.0e-3, bq=2048, bkv=512),
        # Short but near the roofline.
        rowwise(0.18e-3, block=16),
    ],
    "fill and drain": [
        # Nothing is cut by the grid: its steps copy by hand.
        by_hand(with_parts(evidence(0.9e-3, bq=8192, bkv=8192), ("fill and drain", "q", 0.12))),
        with_parts(good(), ("fill and drain", "q", 0.02)),
        with_parts(evidence(3e-3), ("fill and drain", "q", 0.2)),
    ],
    "one giant block": [
        rowwise(0.3e-3, block=1024),
        # Copied by hand.
        with_window(rowwise(0.3e-3, block=8192), 0, fetches=None),
    ],
    "small call": [with_parts(evidence(9e-6, problem=statement(256), bq=128, bkv=128), ("launch", "", 0.02))],
    "split matmuls": [
        # A product for each of four heads of a block, one softmax for all; pages that are copied by hand.
        with_counts(with_window(good(), 0, block_shape=(4, 512, 128)), matmul=8),
        by_hand(with_counts(good(), matmul=32)),
        # 192 columns are all that the array has.
        with_counts(
            with_window(good(), 1, block_shape=(256, 192), array=Array(name="k", shape=(1024, 192), dtype="bfloat16")),
            matmul=4,
            exp=4,
        ),
        # In an unrolled loop all counts are as large.
        saved(PIECES),
    ],
    "recomputed exp": [
        # One line has the exponentials of the scores, another those that rescale sums.
        with_lines(
            with_run(with_counts(good(), exp=9), mxu_flops=4 * 128 * 1024 * 100_000),
            (80, 0.4, {"EUP": 99_000}),
            (81, 0.1, {"EUP": 12_900}),
        ),
        # Weights made strip by strip: many exponentials, none of them twice. The trace says so, or the run.
        with_exponentials(1.1, 2.2, with_counts(good(), exp=9)),
        with_exponentials(2.0, 1.1, with_counts(good(), exp=9)),
        # A sum for each lane, rescaled once for every 512 columns.
        with_exponentials(1.5, 2.5, with_counts(good(), exp=9)),
    ],
    "staged reductions": [with_counts(good(), reduction=4)],
    "misaligned blocks": [
        with_window(good(), 1, block_shape=(512, 1), vmem_bytes=2 * 512 * 128 * 2),
        # A row that is fetched once, while VMEM is mostly free.
        with_call(wide_rows(), vmem_limit_bytes=100 << 20),
        # A row of 8 KiB matters little, however full VMEM is.
        with_call(rowwise(0.35e-3), vmem_limit_bytes=9 << 20),
        # Whole tiles of 8 rows, though not of 16.
        with_call(with_window(good(), 1, block_shape=(520, 128)), vmem_limit_bytes=1 << 20),
        # All four heads there are, in tiles of four rows.
        with_call(with_window(good(), 1, block_shape=(512, 4, 128)), vmem_limit_bytes=1 << 20),
        # Small next to the VMEM that is free, and next to what the grid moves.
        with_window(good(), 1, block_shape=(512, 72), vmem_bytes=2 * 512 * 128 * 2),
        # All four rows that there are: no block of w has more.
        with_call(four_rows(), vmem_limit_bytes=1 << 20),
        # A GPU has no such tiles.
        on_chip("h200", with_window(good(), 1, block_shape=(512, 72), vmem_bytes=2 * 512 * 128 * 2)),
    ],
    "steps executed": [with_run(good(), executed_steps=None)],
    "re-reads": [
        evidence(2.16e-3, bq=1024),
        with_call(evidence(2.16e-3), vmem_limit_bytes=pallas_call().vmem_bytes + (1 << 17)),
        evidence(2.16e-3, problem=statement(128), bkv=128),
    ],
    "VMEM limit": [with_call(evidence(0.8e-3, bq=1024, bkv=8192), vmem_limit_bytes=11 << 20)],
    "several calls": [twice(good(3e-3))],
    "idle bandwidth": [rowwise(0.35e-3, block=8192), copied_by_hand(0.35e-3, waiting=0.02)],
    "copies one by one": [
        copied_by_hand(0.35e-3, waiting=0.3),
        copied_by_hand(3e-3, waiting=0.02),
        with_parts(rowwise(3e-3, block=8192), ("operand wait", "x", 0.8)),
    ],
    "wide statistics": [
        column_scratch(with_slots(good(), VSTORE=0.8)),
        with_slots(good(), VSTORE=0.3),
        with_slots(rowwise(0.3e-3), VSTORE=0.8),
    ],
    "shared scratch": [
        with_call(column_scratch(good()), vmem_limit_bytes=6 << 20),
        with_call(rowwise(0.3e-3), vmem_limit_bytes=9 << 20),
    ],
    "VMEM nearly full": [with_call(good(), vmem_limit_bytes=chip("v5e").vmem_bytes)],
    "unused VMEM": [
        with_call(evidence(0.8e-3, bq=4096, bkv=1024), vmem_limit_bytes=64 << 20),
        # Windows and scratch of 15 MiB: what the compiler needs beside them does not fit into 16.
        with_call(with_window(rowwise(0.3e-3), 0, block_shape=(704, 4096)), vmem_limit_bytes=64 << 20),
    ],
    "masked blocks": [
        with_run(evidence(0.9e-3, problem=CAUSAL), mxu_flops=round(1.1 * CAUSAL.work.matmul_flops)),
        # Matrix units that are half filled execute twice as much, and none of it is masked.
        saved(V6E),
        covering(2.0, good(1.5e-3)),
        # Faster than the whole square could be: masked blocks are skipped already.
        replace(covering(2.0, evidence(0.5e-3, bq=2048, problem=CAUSAL)), simulation=None),
    ],
    "hidden blocks fetched": [
        evidence(0.9e-3, bq=2048, bkv=512, problem=CAUSAL),
        waiting(good()),
        waiting(with_window(evidence(0.9e-3, bq=2048, bkv=512, problem=CAUSAL), 1, fetches=144)),
        waiting(evidence(0.9e-3, bq=2048, bkv=16384, problem=CAUSAL)),
    ],
    "repeated work": [
        # Memory binds: arithmetic that is not on the critical resource costs no time.
        covering(1.75, rowwise(0.35e-3)),
        replace(covering(1.75, rowwise(0.35e-3)), simulation=None),
        # A problem that credits one operation for each element does not count what a kernel does.
        with_slots(covering(9.0, rowwise(0.35e-3, flops=1)), VALU=0.9),
        covering(1.2, outer_product(64, 2)),
        covering(2.0, evidence(0.9e-3, bq=2048, problem=CAUSAL)),
    ],
    "idle core": [with_call(good(), dimension_semantics=("arbitrary", "arbitrary"))],
    "uneven cores": [with_call(good(), grid=(3, 32)), with_call(on_chip("v5p", good()), grid=(65, 32))],
    "grid order": [
        outer_product(64, 2, swapped=True),
        # The keys are the inner axis because the output accumulates along it.
        evidence(2.16e-3),
    ],
    "unit stalls": [
        with_run(evidence(2e-3, bq=1024), unit_stall_cycles=0.9e6),
        # Large blocks are not made larger.
        with_run(evidence(2e-3, bq=1024, bkv=2048), unit_stall_cycles=0.9e6, units=units_of(NAIVE)),
    ],
    "exp over 10%": [
        with_lines(good(), *DIVIDING),
        with_lines(rowwise(0.9e-3), (12, 0.5, {"EUP": 100, "EUP rsqrt": 100, "VALU": 300})),
        # Its exponentials are to the base of two already.
        replace(with_lines(good(), EXPONENTIALS), certificate=BASE_TWO),
        replace(with_lines(good(), EXPONENTIALS), certificate=OLDER_BASE_TWO),
    ],
    "divisions": [
        with_lines(good(), EXPONENTIALS),
        with_lines(good(), (60, 0.02, DIVIDING[1][2])),
        # A mean divides, but it is there for its sum across lanes.
        with_lines(rowwise(0.9e-3), (13, 0.6, {"EUP": 512, "EUP rcp": 512, "XLU": 1024, "VALU": 11264})),
        # A softmax of 2048 columns: the compiler makes one reciprocal for each row.
        with_lines(rowwise(0.9e-3), (18, 0.2, {"EUP": 256, "EUP rcp": 256, "VALU": 9472, "VSTORE": 2048})),
    ],
    "wide operands": [
        # A record whose trace does not name such lines: as many operations may push weights into narrow tiles.
        saved(WIDE)
    ],
    "transposed pushes": [
        with_lines(rowwise(0.9e-3), (20, 0.6, {"MXU": 4096})),
        # Keys are contracted in this way.
        with_lines(good(), (20, 0.6, {"MXU": 4096, "MXU transposed push": 40_000})),
        # Pages, or whatever else the kernel copies itself: there is no array outside to transpose.
        by_hand(with_lines(rowwise(0.9e-3), (20, 0.6, {"MXU": 4096, "MXU transposed push": 40_000}))),
    ],
    "half-filled MXU": [
        # The output is transposed already, with row sums beside it.
        with_run(saved(V6E), mxu_flops=round(1.56 * saved(V6E).problem.work.matmul_flops)),
        # Hidden scores are computed here too; exponentials are float32, or bfloat16 with two in a word.
        triangle(executed=3.0, computed=2.0),
        triangle(executed=3.0, computed=2.0, packed=2),
    ],
    "both low": [rowwise(0.9e-3, block=8192)],
}


def looked(name: str, case: Case) -> RuleCase | None:
    kernel = case.kernel
    figures = report(kernel, chip(kernel.chip))
    assert figures.seconds is not None
    return BY_NAME[name].look(diagnose.observe(kernel, figures, figures.seconds, case.previous))


def case_of(name: str, kernel: Evidence) -> RuleCase:
    return present(looked(name, Case(kernel)))


def of_copies(kernel: Evidence) -> list[Hint]:
    return [hint for hint in advised(kernel) if hint.rule == "copies"]


@pytest.mark.parametrize("name", SHOWN)
def test_a_rule_speaks_where_its_case_is_shown(name: str) -> None:
    for number, case in enumerate(SHOWN[name]):
        finding = looked(name, case)
        assert finding is not None, number
        advice = f"{finding.observation} -> {finding.suggestion}"
        for words in case.words:
            assert words in advice, number
        assert finding.gain is None or 0 <= finding.gain <= 1, number
        assert any(sign.isdigit() for sign in finding.observation), number


def test_a_rule_is_silent_where_its_case_is_not() -> None:
    for kernel, names in SPOKEN_ABOUT:
        assert {name for name in BY_NAME if looked(name, Case(kernel)) is not None} == names
    spoken = {
        f"{name} {number}": finding
        for name, cases in SILENT.items()
        for number, case in enumerate(cases)
        if (finding := looked(name, case if isinstance(case, Case) else Case(case))) is not None
    }
    assert spoken == {}


def test_what_stands_outside_is_counted_and_named_as_what_it_is() -> None:
    kernel = reshaped(good())
    (words,) = of_copies(kernel)
    assert "copies" not in words.observation
    assert "scratch" not in words.suggestion
    kernel_op, op = present(kernel.simulation).ops
    other = [replace(op, name=f"fusion.{n}", seconds=0.03e-3) for n in range(4)]
    (words,) = of_copies(with_run(kernel, ops=(kernel_op, *other)))
    assert (
        "4 operations outside the kernel, `fusion.0`, `fusion.1`, `fusion.2` and 1 more, take 120.000 us"
        in words.observation
    )
    assert words.suggestion == "move these operations into the kernel, or avoid them"


def test_operations_around_a_kernel_without_a_name_are_told_from_it() -> None:
    waiting = copied(with_parts(good(1.2e-3), ("operand wait", "args_1_.3", 0.3)))
    kernel_op, op = present(waiting.simulation).ops
    ops = (
        replace(kernel_op, name="loss_forward_mosaic_tpu.1", seconds=0.9e-3),
        replace(op, name="copy.5", seconds=0.2e-3),
        replace(op, name="gather_fusion", seconds=0.1e-3),
    )
    kernel = with_call(with_run(waiting, ops=ops), name="pallas_call")
    hints = advised(kernel)
    (words,) = [hint for hint in hints if hint.rule == "copies"]
    assert "2 operations outside the kernel, `copy.5`, `gather_fusion`, take 300.000 us" in words.observation
    assert "by index inside the kernel" in words.suggestion
    # These operations may be the ones that wait.
    assert not [hint for hint in hints if hint.rule == "DMA waits"]
    assert [hint for hint in advised(with_run(kernel, ops=ops[:1])) if hint.rule == "DMA waits"]
    # Two operations that may be the kernel's.
    strange = with_run(kernel, ops=(*ops, replace(op, name="loss_backward")))
    assert not [hint for hint in advised(strange) if "outside it" in hint.observation]


def test_a_causal_body_under_a_condition_is_not_told_to_skip() -> None:
    kernel = covering(2.0, evidence(0.9e-3, bq=512, bkv=1024, problem=CAUSAL))
    finding = case_of("masked blocks", with_run(kernel, mxu_flops=round(1.5 * CAUSAL.work.matmul_flops)))
    assert "pl.when" not in finding.suggestion
    # A third of the work is useless; half the key block removes a third of that.
    assert finding.gain == pytest.approx(1 / 9)
    # It is shown beside a hint about the whole block, whose gain is unknown.
    hints = advised(with_run(kernel, mxu_flops=round(1.5 * CAUSAL.work.matmul_flops)))
    assert [hint.rule for hint in hints] == ["masked blocks", "re-reads", "no overlap"]
    assert {hint.gain for hint in hints[1:]} == {None}


def test_half_filled_units_leave_open_whether_masked_blocks_are_skipped() -> None:
    """On v6e, 128 columns fill half of the unit: 3x the useful work may be the whole square, or half of it twice."""
    kernel = on_chip("v6e", covering(2.0, evidence(0.9e-3, bq=512, bkv=1024, problem=CAUSAL)))
    all_of_it = with_run(kernel, mxu_flops=round(3.0 * CAUSAL.work.matmul_flops))
    finding = case_of("masked blocks", all_of_it)
    assert "pl.when" in finding.suggestion
    assert finding.gain is None
    assert finding.cost == pytest.approx(1 / 3)


def test_padding_costs_no_more_than_its_transfers_and_the_wait_for_them() -> None:
    waiting = with_parts(wide_rows(), ("fill and drain", "w", 0.01), ("fill and drain", "x", 0.2))
    finding = case_of("misaligned blocks", with_call(waiting, vmem_limit_bytes=9 << 20))
    # It is moved once, in 0.16 us: only its room matters, and the gain of that is unknown.
    assert finding.gain is None
    often = with_window(waiting, 1, fetches=640)
    finding = case_of("misaligned blocks", with_call(often, vmem_limit_bytes=9 << 20))
    assert finding.gain == pytest.approx(0.01)
    unknown = with_window(wide_rows(), 1, fetches=100)
    finding = case_of("misaligned blocks", with_call(unknown, vmem_limit_bytes=9 << 20))
    assert finding.gain == pytest.approx(100 * 65536 * 2 / 819e9 / 0.35e-3)


def test_what_tables_skip_is_not_said_to_be_done_twice() -> None:
    finding = case_of("repeated work", with_table(covering(2.0, outer_product(64, 2))))
    assert finding.gain is None
    assert finding.suggestion.startswith("skip steps that the tables make needless")


@pytest.mark.parametrize("head_dim", [128, 256])
def test_narrow_heads_of_a_backward_pass_fill_half_of_the_unit_as_well(head_dim: int) -> None:
    kernel = on_chip("v6e", evidence(0.9e-3, problem=CAUSAL))
    parameters = (("causal", True), ("head_dim", head_dim))
    problem = replace(kernel.problem, operation="attention_backward", parameters=parameters)
    executed = round(1.49 * CAUSAL.work.matmul_flops)
    finding = looked("masked blocks", Case(with_run(replace(kernel, problem=problem), mxu_flops=executed)))
    assert (finding is not None) == (head_dim == 256)


def test_base_two_is_advised_with_a_doubt_where_nobody_knows_the_program() -> None:
    kernel = with_slots(evidence(0.9e-3), EUP=0.9, VALU=0.5)
    exp = replace(BASE_TWO, primitives=(("jax._src.lax:exp_p", 4),))
    findings = [
        looked("vector unit", Case(replace(kernel, certificate=None))),
        looked("vector unit", Case(replace(kernel, certificate=exp))),
    ]
    advice = [finding.suggestion for finding in findings if finding is not None]
    assert ["exp2" in words for words in advice] == [True, True]
    assert ["unless the kernel does so already" in words for words in advice] == [True, False]


def test_the_vector_unit_does_not_bind_if_another_unit_is_fuller() -> None:
    look = BY_NAME["vector unit"].look
    for fuller, is_silent in ((0.80, True), (0.60, False)):
        kernel = with_slots(good(), VALU=0.7, MXU=fuller)
        seen = diagnose.observe(kernel, report(kernel, chip("v5e")), 0.8e-3)
        assert (look(seen) is None) is is_silent


def test_missing_semantics_are_no_advice_for_a_single_core() -> None:
    """No cores share the axes of the grid, so there is nothing to gain."""
    kernel = with_call(good(), dimension_semantics=())
    assert all("semantics" not in hint.suggestion for hint in advised(kernel))


def test_advice_that_cannot_be_accepted_alone_says_so_and_comes_last() -> None:
    kernel = with_lines(spilling(2.5e-3, 90_000), *DIVIDING)
    doubtful = with_run(kernel, relative_uncertainty=0.9 / 0.1)
    uncertain = advised(doubtful)
    bounded = [hint.gain is not None and bool(hint.kind) for hint in uncertain]
    assert any(bounded)
    assert bounded == sorted(bounded)
    words = "; below the threshold of 90.0%, if it is the only change"
    assert [hint.suggestion.endswith(words) for hint in uncertain] == bounded
    assert not any(
        "below the threshold" in hint.suggestion for hint in advised(with_run(kernel, relative_uncertainty=0.0))
    )
    # What a suite has to gain depends on all of its members.
    of_member = diagnose.hints(doubtful, report(doubtful, chip(doubtful.chip)), is_member=True)
    assert not any("below the threshold" in hint.suggestion for hint in of_member)


def bubbles_of(*parts: tuple[PartKind, str, float]) -> str:
    return case_of("bubbles", with_parts(good(), *parts)).observation


def test_most_is_said_of_more_than_half() -> None:
    waits: list[tuple[PartKind, str, float]] = [
        ("unit stall", "MXU busy", 0.066),
        ("unit stall", "sync flag", 0.05),
        ("operand wait", "k", 0.06),
    ]
    words = bubbles_of(*waits, ("empty bundles", "", 0.24))
    assert "main causes: MXU busy (6.6%), transfers of `k` (6.0%), sync flag (5.0%) [" in words
    assert "most of it" not in words
    assert "main cause: MXU busy (20.0%)" in bubbles_of(("unit stall", "MXU busy", 0.2), *waits[1:])
    thirds = [(line, 0.05, EXPONENTIALS[2]) for line in (55, 56, 57)]
    finding = case_of("exp over 10%", with_lines(good(), *thirds))
    assert "the largest part at kernel.py:" in finding.observation


def test_what_stands_outside_is_reported_from_one_percent_on() -> None:
    kernel = reshaped(good())
    kernel_op, op = present(kernel.simulation).ops

    def gains(seconds: float) -> list[float | None]:
        shorter = with_run(kernel, ops=(kernel_op, replace(op, seconds=seconds)))
        return [hint.gain for hint in advised(shorter) if hint.rule == "copies"]

    assert gains(0.009e-3) == [pytest.approx(0.01125)]
    assert gains(0.007e-3) == []


def test_what_saves_next_to_nothing_takes_no_place_but_where_there_is_nothing_else() -> None:
    kernel = reshaped(good())
    kernel_op, op = present(kernel.simulation).ops
    counted = replace(kernel, hlo=replace(present(kernel.hlo), transpose=1))
    quick = with_run(counted, ops=(kernel_op, replace(op, name="transpose.0", seconds=1e-7)))
    (words,) = advised(quick)
    assert words.suggestion.endswith("this change saves next to nothing, and no rule finds anything else")
    assert words.rule == "copies"
    spilled = advised(with_run(quick, executed_spills=90_000, executed_fills=90_000))
    assert [hint.rule for hint in spilled] == ["spills"]


def test_a_transpose_that_saves_transposed_pushes_is_let_be() -> None:
    kernel = with_lines(reshaped(rowwise(0.9e-3)), (20, 0.6, {"MXU": 4096}))
    trace, hlo = present(kernel.trace), present(kernel.hlo)
    kernel_op, op = present(kernel.simulation).ops
    kernel = with_run(kernel, ops=(kernel_op, replace(op, name="copy.1", seconds=1e-7)))
    moving = replace(kernel, hlo=replace(hlo, copy=1))
    assert "copies" in [hint.rule for hint in advised(moving)]
    transposing = replace(moving, trace=replace(trace, transposes=("kernel.py line 20",)))
    assert "copies" not in [hint.rule for hint in advised(transposing)]
    # A transpose that saves nothing inside the kernel is not advised.
    pushing = with_lines(transposing, (20, 0.6, {"MXU": 4096, "MXU transposed push": 10}))
    assert "copies" in [hint.rule for hint in advised(pushing)]


def test_a_copy_of_what_a_call_writes_over_is_told_to_be_one() -> None:
    kernel = copied(good())
    kept = replace(kernel, trace=replace(present(kernel.trace), written_over=("q in kernel.py line 12",)))
    (words,) = of_copies(kept)
    assert "leave input_output_aliases out: the caller keeps q in kernel.py line 12" in words.suggestion
    # Without the alias, blocks that the grid does not visit would hold anything.
    for output in (3, by_hand):
        partly = by_hand(kept, role="output") if callable(output) else with_window(kept, output, fetches=1)
        assert not of_copies(partly)


def test_the_copy_of_a_result_of_several_chips_is_let_be() -> None:
    kernel = over_links()
    (kernel_op, *_) = present(kernel.simulation).ops
    copies = [replace(kernel_op, name=f"copy.{n}", seconds=0.06e-3) for n in (3, 4)]

    def observations(*others: OpTime) -> list[str]:
        return [
            hint.observation for hint in advised(with_run(kernel, ops=(kernel_op, *others))) if hint.rule == "copies"
        ]

    assert observations(copies[0]) == []
    (words,) = observations(*copies)
    assert "1 operation outside the kernel, `copy.4`, takes 60.000 us" in words


def test_a_broadcast_is_no_copy() -> None:
    kernel = reshaped(good())
    kernel_op, op = present(kernel.simulation).ops
    run = with_run(kernel, ops=(kernel_op, replace(op, name="broadcast.2", seconds=0.1e-3)))
    counted = replace(run, hlo=replace(present(kernel.hlo), copy=1))
    (words,) = of_copies(counted)
    assert words.observation.startswith("1 operation outside the kernel, `broadcast.2`, takes 100")
    assert words.suggestion == "move these operations into the kernel, or avoid them"


def test_less_arithmetic_saves_no_time_that_the_traffic_takes() -> None:
    """At 82 % of the bandwidth, no more than 18 % is left for a change that moves as many bytes as before."""
    kernel = with_slots(with_lines(rowwise(0.2e-3), EXPONENTIALS, *DIVIDING), VALU=0.9)
    kernel = with_run(kernel, executed_spills=90_000, executed_fills=90_000)
    figures = report(kernel, chip("v5e"))
    words = [hint for hint in advised(kernel) if BY_NAME[hint.rule].keeps_traffic]
    assert figures.bandwidth_util == pytest.approx(0.82, abs=0.01)
    assert {"divisions", "exp over 10%", "spills", "vector unit"} <= {hint.rule for hint in words}
    assert all(hint.gain is None or hint.gain <= 1 - present(figures.bandwidth_util) for hint in words)


def test_a_small_gap_says_above_which_traffic_each_of_its_bounds_is() -> None:
    kernel = rowwise(0.18e-3)
    first = present(kernel.trace).pallas_calls[0].windows[0]
    more = with_window(kernel, 0, hbm_bytes=round(1.1 * present(first.hbm_bytes)))
    seen = diagnose.observe(more, report(more, chip("v5e")), 0.18e-3)
    case = present(BY_NAME["small gap"].look(seen))
    assert case.observation.startswith("the gap is 4.")
    assert case.suggestion.endswith(
        f"; with the least possible traffic, {percent(seen.room)} of the time is left above the roofline"
    )
    assert case.gain == seen.room == pytest.approx(0.0895, abs=1e-3)


def test_every_rule_is_tried_both_ways() -> None:
    assert SHOWN.keys() == BY_NAME.keys() >= SILENT.keys()
    assert len(BY_NAME) == len(RULES)


def test_a_rule_names_its_sentence_and_its_source() -> None:
    kinds = {None, "constants", "grid", "scratch", "dtype", "mask", "compiler", "body"}
    assert [rule.name for rule in RULES if not (rule.says and rule.source and rule.kind in kinds)] == []


@pytest.mark.parametrize("kernel", [rowwise(0.35e-3), rowwise(0.55e-3, reads=4), rowwise(0.9e-3)])
def test_what_is_no_attention_is_not_spoken_to_as_attention(kernel: Evidence) -> None:
    busy = with_slots(with_parts(kernel, ("unit stall", "XLU busy", 0.2)), VALU=0.9, EUP=0.95, VSTORE=0.9)
    hints = advised(with_run(busy, executed_spills=900_000, executed_fills=900_000))
    assert len(hints) >= 3
    for word in ("softmax", "score", "key", "query", "attention", "causal", "head_dim", "accumulator"):
        assert all(word not in f"{hint.observation} {hint.suggestion}" for hint in hints), word


@pytest.mark.parametrize("name", ["reduction", "exp", "matmul"])
def test_counts_of_a_norm_are_not_told_in_words_of_attention(name: str) -> None:
    # The other counts are those of one body: it is not unrolled.
    counts: dict[str, Any] = {"matmul": 1, "exp": 1, "reduction": 1} | {name: 9}
    mosaic = MosaicCounts(**counts, load=1, store=1, dma=0, operations=9)
    expected = tuple(ExpectedCount(counter=c, low=1, high=1, more="") for c in ("reduction", "exp", "matmul"))
    kernel = replace(rowwise(0.9e-3), mosaic=mosaic)
    kernel = replace(kernel, problem=replace(kernel.problem, expected=expected))
    hints = [hint for hint in advised(kernel) if "Mosaic" in hint.observation]
    assert hints
    for hint in hints:
        words = f"{hint.observation} {hint.suggestion} {hint.because} {hint.rule_source}"
        assert not any(word in words for word in ("score", "maximum", "softmax", "attention", "row sum")), words


@pytest.mark.parametrize("block", [64, 128, 256, 1024])
def test_three_buffers_are_advised_only_where_they_compile(block: int) -> None:
    """A BlockSpec of pl.pallas_call takes one buffer or two; one of pltpu.emit_pipeline takes three for an input."""
    for kernel in (
        rowwise(0.35e-3, block=block),
        with_parts(evidence(1.2e-3, bq=2048, bkv=2048), ("operand wait", "k", 0.3)),
    ):
        for hint in advised(kernel):
            assert "Buffered(3)" not in hint.suggestion or "emit_pipeline" in hint.suggestion


def test_the_champion_is_told_what_really_made_it_faster() -> None:
    """Scaling q once per block took 8.7 % off the real champion: the first hint, and below its bound."""
    before, after = saved(CHAMPION), saved(SCALED)
    first = advised(before)[0]
    assert first.rule == "scale outside"
    assert first.rule_source == "published protocol, levers"
    seconds_before, seconds_after = (present(present(each.simulation).seconds) for each in (before, after))
    assert 0.08 < 1 - seconds_after / seconds_before < present(first.gain) < 0.14


def test_no_gain_is_larger_than_what_the_roofline_leaves() -> None:
    for name in (CHAMPION, NAIVE, SCALED, WIDE, V6E, PIECES):
        figures = report(saved(name), chip(saved(name).chip))
        for hint in advised(saved(name)):
            assert hint.gain is None or (hint.gain_source and hint.gain <= (figures.gap_fraction or 0) + 1e-9), name


@pytest.mark.parametrize(("busy", "bound"), [(0.9, 0.1), (0.65, None)])
def test_bubbles_behind_a_unit_that_always_works_are_bounded_by_what_it_leaves(
    busy: float, bound: float | None
) -> None:
    kernel = with_parts(rowwise(0.9e-3), ("unit stall", "MXU busy", 0.5))
    run = present(kernel.simulation)
    working = busy * (run.cycles or 0.0)
    units = tuple(replace(unit, busy_cycles=working) if unit.name == "MXU" else unit for unit in run.units)
    finding = case_of("bubbles", with_run(kernel, units=units))
    assert finding.gain == (None if bound is None else pytest.approx(bound))
    assert ("works in 90.0% of the cycles" in finding.observation) == (bound is not None)


def test_re_reads_of_an_operand_are_mended_by_blocks_of_the_others() -> None:
    """Only rows of a are an axis that b lacks: only a larger block of them reads b less often."""
    kernel = outer_product(640, 2)
    finding = case_of("operand re-reads", kernel)
    assert "b is read 640x" in finding.observation
    assert [(edit.window, edit.axis, edit.new) for edit in finding.edits] == [("a", -2, 256)]


def test_lengths_that_are_equal_do_not_make_the_sum_of_a_product_a_remedy() -> None:
    """If m and k are equal, lengths do not tell them apart: a block of k is read equally often at any size."""
    kernel, sums = outer_product(640, 2), 160
    (a, b), (output,) = kernel.problem.inputs, kernel.problem.outputs
    m, n = output.shape
    arrays = (replace(a, shape=(m, m)), replace(b, shape=(m, n)), output)
    (call,) = present(kernel.trace).pallas_calls
    windows = tuple(
        replace(w, array=array, fetches=sums * (w.fetches or 0)) for w, array in zip(call.windows, arrays, strict=True)
    )
    kernel = replace(with_call(kernel, windows=windows), problem=replace(kernel.problem, inputs=arrays[:2]))
    finding = case_of("operand re-reads", kernel)
    assert [(edit.window, edit.axis) for edit in finding.edits] == [("a", -2)]


def test_arithmetic_outside_the_kernel_is_no_change_of_layout() -> None:
    """The sums that make a grouped matmul's table are fused with pads and slices: no array changes its layout."""
    adding = renamed(reshaped(good()), "pad_add_fusion.1")
    assert case_of("copies", adding).suggestion == "move these operations into the kernel, or avoid them"
    moving = renamed(reshaped(good()), "slice_bitcast_fusion")
    assert case_of("copies", moving).suggestion.startswith("pass the array unchanged")


def renamed(kernel: Evidence, name: str) -> Evidence:
    """The same kernel with another name of the operation outside it."""
    ops = present(kernel.simulation).ops
    return with_run(kernel, ops=tuple(replace(op, name=name) if op.name == "reshape.0" else op for op in ops))
