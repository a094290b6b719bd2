"""Constants of a compiled program, out of the executable that PJRT serializes: the compiler dumps no text of them.

The tables of neighbours that XLA's collectives read are such constants. `Compiled.runtime_executable().serialize()`
gives the bytes; they belong beside the dumps, in a file that ends in `.executable`.
"""

import re
import struct
from collections.abc import Iterable, Mapping
from itertools import accumulate
from pathlib import Path

from harness.dumps.allocations import Allocation

SUFFIX = ".executable"
# Constants lie one behind the other, in the order of the allocations, each at a multiple of this from the first. What
# is left of a constant's last block is filled with a bfloat16 NaN (libtpu 0.0.42 and 0.0.50).
_STRIDE, _BLOCK, _FILL = 16384, 512, b"\xc0\x7f"
_RUN = re.compile(rb"(?:\xc0\x7f)+")
_TABLE = re.compile(r"[su]32\[(\d+)\]")
_WORD = 4


def constants(directory: Path, allocations: Iterable[Allocation]) -> Mapping[str, tuple[int, ...]]:
    """The words of each constant table of integers in HBM, by its allocation's name.

    Empty without an executable in `directory`, and if the place of the constants in it is not certain: it is known
    from the fill behind each table, and a table that fills its blocks has none.
    """
    path = next(iter(sorted(directory.glob(f"*{SUFFIX}"))), None)
    if path is None:
        return {}
    image = path.read_bytes()
    constant_arrays = [allocation for allocation in allocations if allocation.space == "hbm" and allocation.is_constant]
    offsets = accumulate((-(-allocation.size // _STRIDE) * _STRIDE for allocation in constant_arrays), initial=0)
    tables = {
        allocation.name: (offset, _WORD * int(match[1]))
        for allocation, offset in zip(constant_arrays, offsets, strict=False)
        if (match := _TABLE.match(allocation.shape))
    }
    fills = [(offset + size, _FILL * (-size % _BLOCK // len(_FILL))) for offset, size in tables.values()]
    fills = [(end, fill) for end, fill in fills if fill]
    if not fills:
        return {}
    end, fill = fills[0]
    starts = [run.start() - end for run in _RUN.finditer(image) if run.end() - run.start() == len(fill)]
    contents = {
        tuple(struct.unpack_from(f"<{size // _WORD}i", image, start + offset) for offset, size in tables.values())
        for start in starts
        if start >= 0 and all(image.startswith(fill, start + end) for end, fill in fills)
        if all(start + offset + size <= len(image) for offset, size in tables.values())
    }
    return dict(zip(tables, contents.pop(), strict=True)) if len(contents) == 1 else {}
