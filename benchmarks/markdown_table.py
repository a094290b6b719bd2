"""Tables of the pages here, as Markdown."""

from collections.abc import Iterable, Sequence

from tabulate import tabulate


def markdown_table(lines: Iterable[Sequence[object]], head: Sequence[str]) -> str:
    """The table with this head; each cell stands as it is written."""
    return str(tabulate(lines, head, tablefmt="github", disable_numparse=True))
