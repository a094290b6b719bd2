"""Unified diffs between two texts of kernel.py: people can read them, and they can be applied byte for byte."""

import difflib
import re
from collections.abc import Iterator

from harness.errors import RatchetError

_HUNK = re.compile(r"^@@ -([0-9]{1,9})(?:,([0-9]{1,9}))? \+[0-9]+(?:,[0-9]+)? @@")
_NO_NEWLINE = "\\ No newline at end of file\n"


def unified(old: bytes, new: bytes, name: str = "kernel.py") -> str:
    """The unified diff from `old` to `new`, empty if they are equal; bytes that are not UTF-8 survive."""
    lines = difflib.unified_diff(_lines(old), _lines(new), f"a/{name}", f"b/{name}")
    return "".join(line if line.endswith("\n") else f"{line}\n{_NO_NEWLINE}" for line in lines)


def applied(old: bytes, diff: str) -> bytes:
    """`old` with `diff` applied. Raises RatchetError `diff-mismatch` if `old` does not fit the diff."""
    source = _lines(old)
    result: list[str] = []
    position = 0
    for start, hunk in _hunks(diff):
        if start < position:
            raise RatchetError(
                "diff-mismatch", f"the diff goes back to line {start + 1}: expected line {position + 1} or a later one"
            )
        result += source[position:start]
        position = start
        for line in hunk:
            sign, text = line[:1], line[1:]
            if sign != "+":
                if position >= len(source) or source[position] != text:
                    raise RatchetError(
                        "diff-mismatch", f"the diff does not fit at line {position + 1}: expected {text!r}"
                    )
                position += 1
            if sign != "-":
                result.append(text)
    try:
        return "".join(result + source[position:]).encode("utf-8", "surrogateescape")
    except UnicodeEncodeError as error:
        raise RatchetError("diff-mismatch", f"the diff is not text: {error}") from error


def _lines(data: bytes) -> list[str]:
    # Not splitlines(): form feeds and lone carriage returns are part of a line, as for git.
    return re.findall(r"[^\n]*\n|[^\n]+", data.decode("utf-8", "surrogateescape"))


def _hunks(diff: str) -> Iterator[tuple[int, list[str]]]:
    """Each hunk's first line in the old text, counted from 0, and its lines; `No newline` marks are applied."""
    start: int | None = None
    hunk: list[str] = []
    for line in re.findall(r"[^\n]*\n|[^\n]+", diff):
        header = _HUNK.match(line)
        if header:
            if start is not None:
                yield start, hunk
            # `-N,0` inserts after line N; any other N is the first line, counted from 1.
            start = int(header[1]) - (0 if header[2] == "0" else 1)
            hunk = []
        elif line.startswith("\\") and hunk:
            hunk[-1] = hunk[-1].removesuffix("\n")
        elif start is not None:
            hunk.append(line)
    if start is not None:
        yield start, hunk
