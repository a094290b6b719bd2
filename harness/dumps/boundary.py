"""What a compiled module takes and gives, from the text of its scheduled HLO: bytes, and copies at its border."""

import math
import re
from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Boundary:
    """What a module takes and gives: bytes of arguments and results, and the copies straight from and to them."""

    argument_bytes: int
    result_bytes: int
    argument_copies: tuple[str, ...]
    result_copies: tuple[str, ...]

    @property
    def total_bytes(self) -> int:
        """Arguments and results together."""
        return self.argument_bytes + self.result_bytes


_KEY = "entry_computation_layout={"
_SHAPE = re.compile(r"\b([a-z]+)(\d*)\w*\[([\d,]*)\]")
_COPY = re.compile(r"^ *(ROOT )?%([\w.\-]+) = \w+\[[^\n]*? copy\(%([\w.\-]+)\)", re.MULTILINE)
_PARAMETER = re.compile(r"^ *%([\w.\-]+) = [^\n]*? parameter\(\d+\)", re.MULTILINE)


def boundary(hlo: str) -> Boundary | None:
    """Arguments and results of the module, from its first line; None if it has none that can be read."""
    start = hlo.find(_KEY)
    line = hlo[start + len(_KEY) : hlo.find("\n", start)]
    depth, end = 1, 0
    while end < len(line) and depth:
        depth += {"{": 1, "}": -1}.get(line[end], 0)
        end += 1
    arguments, arrow, results = line[: end - 1].partition("->")
    if start < 0 or not arrow:
        return None
    entry = hlo[hlo.find("\nENTRY ") :]
    parameters = set(_PARAMETER.findall(entry))
    copies = _COPY.findall(entry)
    return Boundary(
        argument_bytes=_bytes(arguments),
        result_bytes=_bytes(results),
        argument_copies=tuple(name for root, name, source in copies if not root and source in parameters),
        result_copies=tuple(name for root, name, _ in copies if root),
    )


def _bytes(shapes: str) -> int:
    total = 0
    for kind, bits, dimensions in _SHAPE.findall(shapes):
        elements = math.prod(int(size) for size in filter(None, dimensions.split(",")))
        total += elements * (8 if kind == "pred" else int(bits or 0)) // 8
    return total
