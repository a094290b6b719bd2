"""Finds the source lines of accesses in TPU interpret mode, and rewords the interpreter's messages about accesses."""

import contextlib
import re
import threading
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

from harness.judge.evaluate.trace import packages

# `write of ('vmem', 106, 3, 0)[(0, slice(0, 64, 1))] from 100, 0, kernel.py:28:4 (fused)`: memory, buffer, chip, core,
# the ranges, and the line.
_RACE = re.compile(
    r"(read|write) of \('?(\w+)'?, (\d+), (\d+), \d+\)\[(\(.*?\))\] from [^\n]*?(?:(\w+\.py):(\d+)\S* \(|\n|$)"
)
_BEYOND = re.compile(r"Out-of-bounds ([\w ]+) of \(\S+ \S+ (\w+) \S+\): \w+ \[(.*)\] but buffer has shape (\(.*?\))")
_SLICE = re.compile(r"slice\((-?\d+), (-?\d+), (?:1|None)\)")
_HBM = ("any", "hbm")


class _Current(threading.local):
    """JAX's note on the source of the operation that this thread performs."""

    source: Any = None


_current = _Current()


@contextlib.contextmanager
def at(source: Any) -> Iterator[None]:
    """Within this context this thread performs the operation with this source; its errors begin with the line."""
    before, _current.source = _current.source, source
    try:
        yield
    except (IndexError, RuntimeError) as error:
        # JAX keeps the error, and raises it again for each later operation. So the error itself is changed.
        if not hasattr(error, "has_line") and len(error.args) == 1:
            error.has_line = True  # type: ignore[union-attr]
            error.args = (f"{line()}{error.args[0]}",)
        raise
    finally:
        _current.source = before


def line() -> str:
    """The line of this thread's operation, as `kernel.py line 12: `; "" if it is not known."""
    return packages.place_of(SimpleNamespace(source_info=_current.source)) if _current.source is not None else ""


def memory(space: object) -> str:
    """The name of one of the interpreter's memory spaces."""
    return "HBM" if str(space) in _HBM else str(space).upper()


def beyond(message: str) -> str:
    """The interpreter's message about an access out of bounds, reworded."""
    message = message.strip().removeprefix("IndexError: ")
    access = _BEYOND.search(message)
    if access is None:
        return _ranges(message)
    what, space, where, shape = access.groups()
    return (
        f"{message[: access.start()]}expected the {what} to stay within an array of shape {_brackets(shape)} in "
        f"{memory(space)}, got {_brackets(_ranges(where))}"
    )


def race(message: str, *, of_chips: bool) -> str:
    """The interpreter's message about a race, reworded; with `of_chips`, it names the chip and the buffer."""
    accesses = [
        f"{what} of {memory(space)}{f' (buffer {number} of chip {chip})' * of_chips}"
        f"{f' at {_brackets(_ranges(where))}' * (where != '()')}{f' in {file} line {number_of_line}' if file else ''}"
        for what, space, number, chip, where, file, number_of_line in _RACE.findall(message)
    ]
    if not accesses:
        lines = [text.strip() for text in message.splitlines()[:4]]
        return " ".join(text for text in lines if text and not text.startswith("clock"))[:400]
    other = f"the {accesses[1]}" if len(accesses) > 1 else "another access"
    remedy = "; let the writing chip wait for a signal from the reading chip" * of_chips
    return f"nothing orders the {accesses[0]} before or after {other}{remedy}"


def _ranges(text: str) -> str:
    return _SLICE.sub(r"\1:\2", text)


def _brackets(text: str) -> str:
    return f"[{text.strip('(),')}]"
