"""Reads the table of allocations, which explains names in a schedule. The compiler writes it before its last passes."""

import re
from typing import NamedTuple

# A line of the table at the head of a `*post-delay-converter.txt`.
_ALLOCATION = re.compile(
    r"^ +(#allocation\w+) \[shape = '([^'\n]*)', space=(\w+), size = (0x[0-9a-f]+|\d+)"
    r"(?:, offset = (0x[0-9a-f]+|\d+)(?=(?:, scoped)?, fixed_abs))?[^\n]*?tag = '([^'\n]*)'\]",
    re.MULTILINE,
)


class Allocation(NamedTuple):
    """One entry: a name in a schedule (`#allocation6`), its memory space, its bytes, and the compiler's description.

    `address` counts bytes from the start of the space; it is None if programs use different places. `tag` is text such
    as `sflag constant byte address 0x20 - barrier sync flag number`.
    """

    name: str
    shape: str
    space: str
    size: int
    address: int | None
    tag: str

    @property
    def is_constant(self) -> bool:
        """True if the executable holds the contents: a constant, or a table of the runtime (its tag is in < >)."""
        return self.address is None and ("constant" in self.tag or self.tag.startswith("<"))


def parse_allocations(text: str) -> tuple[Allocation, ...]:
    """The table of allocations at the head of a `*post-delay-converter.txt`, in its order."""
    return tuple(
        Allocation(name, shape, space, int(size, 0), int(address, 0) if address else None, tag)
        for name, shape, space, size, address, tag in _ALLOCATION.findall(text)
    )
