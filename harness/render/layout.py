"""Text fitted to a width: display width of any script, cutting, wrapping and indenting; optional colour."""

import os
import re
import shutil
import unicodedata
from collections.abc import Iterable, Mapping, Sequence
from typing import Literal, TextIO, TypeAlias

from rich.cells import cell_len, chop_cells

# Wider than any line: the width of a file or a pipe.
UNBOUNDED = 10_000
# The least width of a screen. With fewer columns, only single words would fit on a line.
NARROWEST = 40

Style = Literal["good", "bad", "doubt", "strong", "faint"]
_CODES: dict[Style, str] = {"good": "32", "bad": "31", "doubt": "33", "strong": "1", "faint": "2"}


def terminal_width() -> int:
    """Columns of the terminal on stdout (or of `COLUMNS`); UNBOUNDED in a file or a pipe, where nothing is cut."""
    return max(NARROWEST, shutil.get_terminal_size((UNBOUNDED, 40)).columns)


def wants_colour(stream: TextIO) -> bool:
    """True on a terminal, unless `NO_COLOR` is set to something (no-color.org) or `TERM` is `dumb`."""
    return stream.isatty() and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"


def paint(text: str, style: Style, colour: bool) -> str:
    """`text` in the colour of `style`, or unchanged if not `colour`."""
    return f"\x1b[{_CODES[style]}m{text}\x1b[0m" if colour and text else text


def clean(text: str) -> str:
    """One line of `text` without control, format and surrogate characters, so that no input steers the terminal."""
    flat = " ".join(text.split())
    if flat.isascii() and flat.isprintable():
        return flat
    return "".join(c for c in flat if unicodedata.category(c) not in ("Cc", "Cf", "Cs"))


def indented(text: str) -> str:
    """One line of `text` as `clean` makes it, with its indentation."""
    bare = text.expandtabs(4)
    return " " * (len(bare) - len(bare.lstrip())) + clean(bare)


# Characters that a terminal would obey or a stream could not write; the colours of `paint` stay.
_UNPRINTABLE = re.compile(
    "(\x1b\\[[0-9;]{0,20}m)|[\0-\x08\x0b-\x1f\x7f-\x9f\xad\u061c\u180e\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff"
    "\ufff9-\ufffb\ud800-\udfff\U000e0000-\U000e007f]"
)


def harmless(text: str, colour: bool = False) -> str:
    """Lines of output without characters that steer a terminal; a stranger may have written some of the words."""
    return _UNPRINTABLE.sub(lambda match: (colour and match[1]) or "", text)


# The lines of source files by the file's name, for the files that are known.
Files: TypeAlias = Mapping[str, Sequence[str]]
NO_FILES: Files = {}


def cut(text: str, width: int) -> str:
    """`text` in at most `width` columns, ending in an ellipsis where something is missing."""
    if cell_len(text) <= width:
        return text
    first = chop_cells(text, width - 1)[0] if width > 1 else ""
    return f"{first.rstrip()}…" if cell_len(first) < width else "…"


def pad(text: str, width: int) -> str:
    """`text` filled with blanks to `width` columns."""
    return text + " " * max(0, width - cell_len(text))


def wrap(text: str, width: int, first: str = "", rest: str | None = None, *, chops: bool = True) -> list[str]:
    """Lines of at most `width` columns: `first` begins the first line, `rest` (by default as many blanks) all others.

    Breaks at blanks; a word wider than a line is chopped, unless not `chops`.
    """
    lead = first
    following = " " * cell_len(first) if rest is None else rest
    lines: list[str] = []
    line = ""
    for word in text.split():
        room = max(2, width - cell_len(lead))
        if line and cell_len(line) + 1 + cell_len(word) > room:
            lines.append(f"{lead}{line}".rstrip())
            lead, line = following, ""
            room = max(2, width - cell_len(lead))
        while chops and cell_len(word) > room and not line:
            piece = chop_cells(word, room)[0]
            lines.append(f"{lead}{piece}")
            lead, word = following, word[len(piece) :]
            room = max(2, width - cell_len(lead))
        line = f"{line} {word}" if line else word
    if line or not lines:
        lines.append(f"{lead}{line}".rstrip())
    return lines


def flow(items: Iterable[str], width: int, first: str, separator: str = " · ") -> list[str]:
    """`items` side by side after `first`; lines break only between items, but an item wider than a line is wrapped."""
    blanks = " " * cell_len(first)
    lines = [""]
    for item in items:
        longer = f"{lines[-1]}{separator}{item}" if lines[-1] else item
        if lines[-1] and cell_len(blanks) + cell_len(longer) > width:
            lines.append(item)
        else:
            lines[-1] = longer
    leads = [first, *[blanks] * (len(lines) - 1)]
    return [
        part
        for lead, line in zip(leads, lines, strict=True)
        for part in (wrap(line, width, lead, blanks) if cell_len(lead + line) > width else [f"{lead}{line}".rstrip()])
    ]


def joined(lines: Iterable[str]) -> str:
    """The lines as one text, without trailing blanks and without more than one empty line in a row."""
    out: list[str] = []
    for line in lines:
        bare = line.rstrip()
        if bare or (out and out[-1]):
            out.append(bare)
    return "\n".join(out).rstrip("\n")


def diff_text(diff: str, colour: bool) -> str:
    """A unified diff: added and removed lines in colour, and nothing in it that steers the terminal."""
    return "\n".join(_diff_line(line, colour) for line in diff.splitlines())


def _diff_line(line: str, colour: bool) -> str:
    # The text of a kernel must not steer the terminal that shows it.
    text = "".join(c for c in line.rstrip() if c == "\t" or c.isprintable())
    if line.startswith("+"):
        return paint(text, "good", colour)
    return paint(text, "bad", colour) if line.startswith("-") else text
