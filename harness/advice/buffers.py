"""The VMEM that buffers of Pallas calls take, padded to the compiler's tiles."""

import math
from dataclasses import replace

from harness.records import Evidence, PallasCall

LANES = 128
_MOST_ROWS = 8


def item_bits(dtype: str) -> int:
    """The bits of an element, by the name of its dtype: `bfloat16` 16, `float8_e4m3fn` 8, `int4` 4, `bool` 8."""
    name = dtype.partition("_")[0].removeprefix("float8") or "8"
    digits = "".join(sign for sign in name if sign.isdigit())
    return int(digits) if digits else 8


def tile_rows(rows: int, dtype: str) -> int:
    """The number of rows in a tile of a buffer that has `rows` rows.

    A tile has 8 rows, or a smaller power of two if that holds all rows, but at least the rows that share a word of 32
    bits (2 of bfloat16). The dumps of libtpu 0.0.42 and 0.0.50 show these tiles, as in
    `bf16[5,4,128]{2,1,0:T(4,128)(2,1)}`. These versions choose a larger tile, of 16 or 32 rows, only if it adds no
    padding (tests/advice/test_buffers.py asks the compiler).
    """
    least = max(1, 32 // item_bits(dtype))
    return max(least, min(_MOST_ROWS, 1 << (rows - 1).bit_length()))


def padded_bytes(shape: tuple[int, ...], dtype: str) -> int:
    """Bytes of a buffer in VMEM; a buffer of one dimension takes whole rows of 128 words."""
    bits = item_bits(dtype)
    if len(shape) < 2:
        elements = _round_up(math.prod(shape), LANES * max(1, 32 // bits))
    else:
        *outer, rows, columns = shape
        elements = math.prod(outer) * _round_up(rows, tile_rows(rows, dtype)) * _round_up(columns, LANES)
    return elements * bits // 8


def with_compiled_sizes(evidence: Evidence) -> Evidence:
    """`evidence` with the compiler's sizes of buffers; recorded sizes assume 8 rows of 32-bit words in every tile.

    A buffer that takes no VMEM in the record (because it is in another memory, or on a GPU) stays as it is.
    """
    trace = evidence.trace
    if trace is None:
        return evidence
    return replace(evidence, trace=replace(trace, pallas_calls=tuple(map(_with_compiled_sizes, trace.pallas_calls))))


def _with_compiled_sizes(call: PallasCall) -> PallasCall:
    windows = (
        # A squeezed dimension counts as one row: the compiler's window has it too.
        replace(each, vmem_bytes=each.buffers * padded_bytes(each.block_shape, each.array.dtype))
        if each.vmem_bytes
        else each
        for each in call.windows
    )
    scratch = (
        replace(each, vmem_bytes=padded_bytes(each.shape, each.dtype)) if each.vmem_bytes else each
        for each in call.scratch
    )
    return replace(call, windows=tuple(windows), scratch=tuple(scratch))


def _round_up(value: int, multiple: int) -> int:
    return -(-value // multiple) * multiple
