"""Markdown of the pages here: their tables, and their paragraphs filled to 120 columns."""

import textwrap
from collections.abc import Iterable, Sequence

from tabulate import tabulate

# Parts of a page that stay as they are: commands, tables, titles, pictures and lists within lists.
_KEPT = ("    ", "|", "#", "!", "```")


def markdown_table(lines: Iterable[Sequence[object]], head: Sequence[str]) -> str:
    """The table with this head; each cell stands as it is written."""
    return str(tabulate(lines, head, tablefmt="github", disable_numparse=True))


def fill(page: str) -> str:
    """The page with paragraphs and lists wrapped at 120 columns; a number and its per cent sign stay on one line."""
    parts = []
    for part in page.split("\n\n"):
        if part.lstrip("\n").startswith(_KEPT) or "\n  - " in part:
            parts.append(part)
        elif part.lstrip("\n").startswith("- "):
            items = part.lstrip("\n").removeprefix("- ").split("\n- ")
            parts.append("\n".join(_wrap(f"- {item}", "  ") for item in items))
        else:
            parts.append(_wrap(part))
    return "\n\n".join(parts)


def _wrap(text: str, indent: str = "") -> str:
    words = " ".join(text.split()).replace(" %", "\N{NO-BREAK SPACE}%")
    lines = textwrap.fill(words, 120, subsequent_indent=indent, break_long_words=False, break_on_hyphens=False)
    return lines.replace("\N{NO-BREAK SPACE}", " ")
