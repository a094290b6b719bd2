"""The causes of refusals of other packages' kernels, found by reading the packages; why some rows were not tried."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Reading:
    """The cause of a refusal of this kind, found by reading the package; `why` names file and line.

    If the inputs decide which of several faults is found first, `kind` has all their kinds, separated by commas.
    `is_fault`: the package has the fault, and not the judge.
    """

    kind: str
    why: str
    is_fault: bool = True


_LIMIT = (
    "The package's limit: it keeps the first block's maximum, so weights may be e^60, and with values above 2^12, as "
    "here, its sums overflow float32 (pallas/fwd_pipeline.py lines 52 to 62). With values up to 2^10 it is right"
)
_SHARED_ROWS = (
    "The package's fault: the copy of a block's output also writes rows of the next sequence, whose own copy starts "
    "before the first has ended (pallas/fwd_pipeline.py line 1212; line 582 waits for the other slot)"
)
_OLD = "The package's fault: it allows any JAX 0.10, but 0.10.1 is the last with pltpu.repeat"
_NO_BLOCKS = (
    "The package's fault: for a shape without tuned blocks it fetches 128 columns at a time, which is half a block, so "
    "it computes no block (blockwise_kernel.py line 130)"
)
_ONE_SEMAPHORE = (
    "The package's fault: both of its buffers share one semaphore (_pallas_impl_fwd.py line 309), so a wait for one "
    "buffer may end when the other's pages arrive"
)
_PAST_ITS_TILE = (
    "The package's fault: if a tile's last group ends at the tile's border, the kernel reads one row block past its "
    "buffer ({}), and discards the value"
)
_EMPTY_BEYOND = (
    "The package's fault: it starts copies of zero rows beyond the end of the array of new keys "
    "(decode/non_sliding_window/bref.py line 102), which pass only because it disables the bounds checks; and its "
    "windows race (kernel.py line 450)"
)
_SHIFTED = (
    "The package's fault: it shifts words of 32 bits by up to 48 bits (polymul_kernel.py line 57); the chip's result "
    "is not documented"
)
_READ_AND_STORED = (
    "The package's fault: the window that it reads and writes (BufferedRef.input_output, {}) has two buffers, and "
    "JAX's emit_pipeline fetches into a buffer that is still being stored"
)
_FETCHED_AND_STORED = (
    "The package's fault: a block's states are fetched (line {}) into a buffer whose store by the block before has not "
    "ended (line {}); the wait for that store comes one block later (line {})"
)
_WRITTEN_AND_STORED = (
    "The package's fault: it overwrites the state that a copy, started two tokens before, still stores "
    "(recurrent_scan_impl.py line 854); it waits for that copy only afterwards, at line 872"
)
_TWO_WINDOWS = (
    "The package's fault: the windows of two tiles share rows, and both of their copies to the output are under way "
    "(gdn/wrapper.py line 699) in no fixed order"
)
_DELTA_IN_XLA = (
    "The package's fault: for more than one token a sequence it calls no kernel, only XLA's products "
    "(_interface.py line 132)"
)
_CHUNKS_IN_XLA = "The package's fault: it combines its chunks by XLA's products (gdn2_fwd.py lines 303 to 310)"
_NARROW_BLOCKS = (
    "The package's fault: it rounds the products of each block to bfloat16 before it scales and adds them up "
    "(blockwise_kernel.py line 106), so the result is wrong where blocks cancel"
)
_PAST_ITS_WORDS = (
    "The package's fault: if a block is full, the loop that shifts the new keys into place reads one word past its "
    "buffer ({}), and discards the value"
)
_NARROW_SCORES = (
    "The package's fault: it reads a word past a buffer (kv_utils.py line 218); before that it rounds the scores to "
    "bfloat16 (mla/v2/kernel.py line 470), which gives a wrong result on other inputs"
)
_SCORES_ROUNDED = (
    "The package's fault: it rounds the scores to its output's type, bfloat16, before the softmax (batched_rpa/"
    "flash_attention.py line 62)"
)
READ: dict[tuple[str, str], Reading] = {
    ("tpu-inference", "ragged paged, batched"): Reading(kind="wrong-result", why=_SCORES_ROUNDED),
    ("tpu-inference", "latent attention v2"): Reading(kind="out-of-bounds, wrong-result", why=_NARROW_SCORES),
    ("ejkernel", "latent ragged paged v2"): Reading(
        kind="out-of-bounds", why=_PAST_ITS_WORDS.format("_pallas_impl_fwd.py line 626")
    ),
    ("tpu-inference", "rope"): Reading(kind="race", why=_READ_AND_STORED.format("rope.py line 243")),
    ("tpu-inference", "gated delta rule v1, decode"): Reading(
        kind="race", why=_FETCHED_AND_STORED.format(202, 326, 314)
    ),
    ("tpu-inference", "gated delta rule v2, decode"): Reading(
        kind="race", why=_FETCHED_AND_STORED.format(285, 410, 397)
    ),
    ("tpu-inference", "gated delta rule v2, scan"): Reading(kind="race", why=_WRITTEN_AND_STORED),
    ("tpu-inference", "gated delta rule v3, fused"): Reading(
        kind="race", why=_READ_AND_STORED.format("gdn/v3/memory_ref.py line 534")
    ),
    ("ejkernel", "gated delta rule"): Reading(kind="dot-outside-pallas", why=_DELTA_IN_XLA),
    ("gdn2-pallas", "gated delta rule 2"): Reading(kind="dot-outside-pallas", why=_CHUNKS_IN_XLA),
    ("flywheel-tpu", "gated delta rule, decode"): Reading(kind="race", why=_TWO_WINDOWS),
    ("flywheel-tpu", "gated delta rule, mixed"): Reading(kind="race", why=_TWO_WINDOWS),
    ("flywheel-tpu", "delta attention, decode"): Reading(kind="race", why=_TWO_WINDOWS),
    ("flywheel-tpu", "delta attention, mixed"): Reading(kind="race", why=_TWO_WINDOWS),
    ("tpu-inference", "quantized matmul by blocks, fp8, own tiles"): Reading(kind="wrong-result", why=_NARROW_BLOCKS),
    ("jaxite", "matmul of whole numbers"): Reading(kind="wrong-result", why=_SHIFTED),
    ("jaxite", "product of polynomials"): Reading(kind="wrong-result", why=_SHIFTED),
    ("flywheel-tpu", "flash causal"): Reading(kind="non-finite", why=_LIMIT),
    ("flywheel-tpu", "flash, window"): Reading(kind="non-finite", why=_LIMIT),
    ("flywheel-tpu", "flash, packed"): Reading(kind="race", why=_SHARED_ROWS),
    ("flywheel-tpu", "flash over pages, decode"): Reading(kind="race", why=_SHARED_ROWS),
    ("flywheel-tpu", "flash over pages, mixed"): Reading(kind="race", why=_SHARED_ROWS),
    ("tpu-inference", "quantized matmul by blocks, int8"): Reading(kind="trace-error", why=_NO_BLOCKS),
    ("tpu-inference", "quantized matmul by blocks, fp8"): Reading(kind="trace-error", why=_NO_BLOCKS),
    ("tpu-inference", "ragged paged, stacked"): Reading(kind="out-of-bounds", why=_EMPTY_BEYOND),
    ("ejkernel", "paged prefill"): Reading(kind="race", why=_ONE_SEMAPHORE),
    ("ejkernel", "flash causal"): Reading(kind="trace-error", why=_OLD),
    ("ejkernel", "block-sparse causal"): Reading(kind="trace-error", why=_OLD),
    ("ejkernel", "ring on one device"): Reading(
        kind="dot-outside-pallas",
        why="The package's fault: on one device it calls XLA's attention, no kernel (_pallas_impl_fwd.py line 336)",
    ),
    ("ejkernel", "grouped matmul v3"): Reading(
        kind="out-of-bounds", why=_PAST_ITS_TILE.format("grouped_matmulv3/_pallas_impl.py line 580")
    ),
    ("maxtext", "grouped matmul"): Reading(
        kind="out-of-bounds", why=_PAST_ITS_TILE.format("pallas_mosaic_tpu_v2_gmm_kernel.py line 621")
    ),
}
# Why a row has no contest, although its operation is an operator's.
UNTRIED: dict[tuple[str, str], str] = {
    ("tpu-inference", "latent attention v1"): (
        "no latency: XLA's loop over the cache reads its trip count inside another loop"
    ),
    ("maxtext", "ragged gather"): (
        "a kernel for the SparseCore on chips that have one; on v5e the package calls no kernel"
    ),
    ("tpu-inference", "latent attention v1, cache update"): "the package's function calls no kernel, only XLA",
    ("sglang-jax", "ragged paged, decode"): "the package requires JAX 0.8, whose traces the judge does not read",
    ("sglang-jax", "ragged paged, mixed"): "the package requires JAX 0.8, whose traces the judge does not read",
}
