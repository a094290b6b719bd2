"""The code of a notebook as one Python program: `%env` sets a variable, other magics and commands are left out."""

import json
import re

_ENV = re.compile(r"^\s*%(?:set_)?env\s+(\w+)(?:=|\s+)(.*)$")


def program(text: str) -> tuple[str, tuple[str, ...]] | None:
    """The program, and the place of each of its lines in words; None if `text` is not a notebook."""
    if '"cells"' not in text:
        return None
    try:
        cells = json.loads(text)["cells"]
        sources = [(number, cell["source"]) for number, cell in enumerate(cells, 1) if cell["cell_type"] == "code"]
    except (ValueError, KeyError, TypeError, RecursionError):
        return None
    lines, places = ["import os"], ["the notebook"]
    for number, source in sources:
        for at, line in enumerate("".join(source).splitlines(), 1):
            lines.append(_python(line))
            places.append(f"cell {number}, line {at}")
    return "\n".join(lines), tuple(places)


def _python(line: str) -> str:
    """A line of a cell, rewritten as Python."""
    if match := _ENV.match(line):
        return f"os.environ[{match[1]!r}] = {match[2].strip()!r}"
    return f"{line[: len(line) - len(line.lstrip())]}pass" if line.lstrip()[:1] in ("%", "!") else line
