"""The scores of one step of attention, which no window and no scratch buffer shows: a float32 for each pair of rows."""

from harness.judge.verdict.roofline import finished_run
from harness.records import CounterLine, Evidence, Window
from harness.units import count, kibibytes

# A core has 64 vector registers of 8 x 128 words: no schedule of libtpu for v5e, v5p, v6e or v7x names more
# (tests/fixtures/schedules).
REGISTERS_BYTES = 64 * 8 * 128 * 4
SCORE_BLOCK = "score block bytes"


def float_inputs(evidence: Evidence) -> tuple[Window, ...]:
    """The input windows of the only Pallas call, in order, without integer tables and windows in SMEM."""
    calls = evidence.trace.pallas_calls if evidence.trace else ()
    windows = calls[0].windows if len(calls) == 1 else ()
    inputs = (window for window in windows if window.role == "input")
    return tuple(window for window in inputs if not window.array.is_table and window.memory_space != "smem")


def is_attention(evidence: Evidence) -> bool:
    """True if the blocks of the first and second input are known to be those of queries and keys."""
    windows = float_inputs(evidence)
    # The shapes come from the candidate, so unusual shapes must not cause an error here.
    regular = all(len(w.block_shape) == len(w.array.shape) >= 2 and min(w.block_shape) > 0 for w in windows)
    return evidence.problem.operation == "attention" and len(windows) >= 3 and regular


def score_block_bytes(evidence: Evidence) -> int:
    """Bytes of the scores of one step, BQ x BKV x 4; 0 if the kernel is not known to be attention."""
    if not is_attention(evidence):
        return 0
    query, key = float_inputs(evidence)[:2]
    return 4 * query.block_shape[-2] * key.block_shape[-2]


def score_block(evidence: Evidence) -> CounterLine | None:
    """The size of the scores as a counter; if the kernel spills, the remark compares it with the vector registers."""
    size, run = score_block_bytes(evidence), finished_run(evidence)
    if not size:
        return None
    remark = ""
    if run is not None and run.executed_spills:
        rows, columns = (window.block_shape[-2] for window in float_inputs(evidence)[:2])
        remark = f"the scores of a step are {count(rows)} x {count(columns)} x 4 B = {kibibytes(size)}"
        # A body that is unrolled over tiles shows the two matmuls of attention once for each tile.
        tiles = evidence.mosaic.matmul // 2 if evidence.mosaic else 1
        if tiles > 1:
            remark += f", in {tiles} tiles of {kibibytes(size / tiles)}"
        remark += f"; the vector registers hold {kibibytes(REGISTERS_BYTES)}"
    return CounterLine(level="mosaic", name=SCORE_BLOCK, count=size, expected="", remark=remark)
