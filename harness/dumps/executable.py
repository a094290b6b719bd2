"""Constants of a compiled program, out of the executable that PJRT serializes: the compiler dumps no text of them.

The tables of neighbours that XLA's collectives read are such constants. `Compiled.runtime_executable().serialize()`
gives the bytes; they belong beside the dumps, in a file that ends in `.executable`.
"""

import struct
from collections.abc import Iterable, Mapping
from pathlib import Path

from harness.dumps.allocations import Allocation
from harness.hlo.shapes import array

SUFFIX = ".executable"
# A constant fills whole blocks; what is left of the last one is filled with this bfloat16 NaN.
_BLOCK, _FILL = 512, b"\xc0\x7f"


def constants(directory: Path, allocations: Iterable[Allocation]) -> Mapping[str, tuple[int, ...]]:
    """The words of each constant in HBM by its allocation's name, as far as the executable in `directory` has them.

    Where one constant ends is known by the fill behind it, so only those are found that do not fill their blocks.
    """
    path = next(iter(sorted(directory.glob(f"*{SUFFIX}"))), None)
    if path is None:
        return {}
    image, position = path.read_bytes(), 0
    words: dict[str, tuple[int, ...]] = {}
    for allocation in allocations:
        if allocation.space != "hbm" or not allocation.is_constant:
            continue
        size = array(allocation.shape).logical_bytes or 0
        fill = _FILL * ((-size % _BLOCK) // len(_FILL))
        end = image.find(fill, position + size) if fill else -1
        if end < 0:
            break
        words[allocation.name] = struct.unpack(f"<{size // 4}i", image[end - size : end])
        position = end + len(fill)
    return words
