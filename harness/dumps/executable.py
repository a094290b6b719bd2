"""Reads constants of a compiled program from PJRT's serialized executable, because the compiler's text lacks them.

These constants are the tables of neighbours that XLA's collectives read and, on 32 chips and more, the tables of
routes. `Compiled.runtime_executable().serialize()` returns the executable's bytes. The bytes must be next to the dumps,
in a file whose name ends in `.executable`.
"""

import re
import struct
from collections.abc import Iterable, Mapping
from itertools import accumulate
from pathlib import Path

from harness.dumps.allocations import Allocation

SUFFIX = ".executable"
# Constants are stored in the order of the allocations. The distance of each constant from the first is a multiple of
# the stride. The last constant is padded to whole blocks (libtpu 0.0.42 and 0.0.50).
_STRIDE, _BLOCK = 16384, 512
_TABLE = re.compile(r"[su]32\[(\d+)\]")
_WORD = 4
# The image of a program is in a protocol buffer, after a list of the image's parts. Each part has an offset (left out
# if 0) and a size. The part of kind 2 has the constants; the part of kind 3 takes no bytes of the image.
_CONSTANTS = re.compile(
    rb"\x12[\0-\x7f]\x08\x02\x10\x01\x1a[\0-\x7f]\x10([\x80-\xff]*[\0-\x7f])"
    rb"(?:\x12[\0-\x7f]\x08\x03\x10\x01\x20[\x80-\xff]*[\0-\x7f])?\x1a([\x80-\xff]*[\0-\x7f])",
    re.DOTALL,
)
# libtpu 0.0.50 stores the image in a Riegeli file. In front of every block of 64 KiB, the file has a header (hash,
# offset of the chunk that the header interrupts, offset of the next chunk). The first header differs between files only
# in the last offset.
_FIRST_HEADER = bytes.fromhex("83af70d10d884a3f") + bytes(8)
_HEADER, _HEADER_EVERY = 24, 1 << 16


def constants(directory: Path, allocations: Iterable[Allocation]) -> Mapping[str, tuple[int, ...]]:
    """The words of each constant in HBM that is a vector of 32-bit integers, by the name of its allocation.

    Empty if `directory` has no executable, or if the constants of the executable differ in length from the allocations.
    """
    path = next(iter(sorted(directory.glob(f"*{SUFFIX}"))), None)
    if path is None:
        return {}
    image = _without_headers(path.read_bytes())
    constant_arrays = [allocation for allocation in allocations if allocation.space == "hbm" and allocation.is_constant]
    *offsets, _ = accumulate((-(-allocation.size // _STRIDE) * _STRIDE for allocation in constant_arrays), initial=0)
    if not offsets:
        return {}
    total = offsets[-1] + -(-constant_arrays[-1].size // _BLOCK) * _BLOCK
    starts = [
        match.end()
        for match in _CONSTANTS.finditer(image)
        if _varint(match[1]) == total and total <= _varint(match[2]) <= len(image) - match.end()
    ]
    if len(starts) != 1:
        return {}
    (start,) = starts
    return {
        allocation.name: struct.unpack_from(f"<{match[1]}i", image, start + offset)
        for allocation, offset in zip(constant_arrays, offsets, strict=True)
        if (match := _TABLE.match(allocation.shape)) and _WORD * int(match[1]) <= allocation.size
    }


def _without_headers(data: bytes) -> bytes:
    """`data` without the headers of blocks, if it contains a Riegeli file."""
    start = data.find(_FIRST_HEADER)
    if start < 0:
        return data
    blocks = (data[at + _HEADER : at + _HEADER_EVERY] for at in range(start, len(data), _HEADER_EVERY))
    return data[:start] + b"".join(blocks)


def _varint(data: bytes) -> int:
    return sum((byte & 0x7F) << 7 * place for place, byte in enumerate(data))
