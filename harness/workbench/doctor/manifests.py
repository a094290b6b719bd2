"""Environment variables of containers in a manifest (Kubernetes, Compose, Ray or similar), given as lists or maps.

A manifest is read line by line, because a manifest with templates is not valid YAML.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass, replace

_NAME = re.compile(r"^(\s*(?:-\s+)?)[\"']?name[\"']?\s*:\s*[\"']?([A-Za-z_]\w*)[\"']?\s*$")
_VALUE = re.compile(r"^(\s*(?:-\s+)?)[\"']?(value|valueFrom)[\"']?\s*:\s*(.*)$")
_FLOW = re.compile(
    r"\{\s*[\"']?name[\"']?\s*:\s*[\"']?([A-Za-z_]\w*)[\"']?\s*,\s*[\"']?value[\"']?\s*:\s*(\"[^\"]*\"|'[^']*'|[^,}]*)"
)
_ENTRY = re.compile(r"^(\s*)([A-Z][A-Z0-9_]*)\s*:\s+(\S.*)$")
_ITEM = re.compile(r"^\s*-\s+([\"']?)([A-Z][A-Z0-9_]*)=(.*)$")
_IS_MANIFEST = re.compile(r"^\s*(?:apiVersion|kind|containers|services|env|envs|env_vars|environment)\s*:", re.M)
# The line before the variables of one container.
_BEGINS = re.compile(r"^[\s-]*[\"']?(?:env|envs|env_vars|environment)[\"']?\s*:")
_BLOCK = re.compile(r"[|>][+-]?\d*\s*$")
_COMMENT = re.compile(r"\s+#.*$")


@dataclass(frozen=True, slots=True)
class Entry:
    """One variable: its first and last line, and its value, or the reason why the value is not known.

    `container` is the number of the list or map that contains the variable.
    """

    line: int
    last: int
    name: str
    value: str
    unread: str = ""
    container: int = 0


def is_manifest(text: str) -> bool:
    """True if a text contains a key of a manifest, such as `kind:` or `env:`."""
    return bool(_IS_MANIFEST.search(text))


def entries(text: str) -> Iterator[Entry]:
    """The variables that the manifest sets in containers, in order."""
    lines = text.splitlines()
    container = 0
    for number, line in enumerate(lines):
        container += bool(_BEGINS.match(line))
        for entry in _of_line(lines, number):
            yield replace(entry, container=container)


def _of_line(lines: list[str], number: int) -> Iterator[Entry]:
    """The variable that begins in this line, if there is one."""
    line = lines[number]
    if flow := _FLOW.search(line):
        yield Entry(number + 1, number + 1, flow[1], _scalar(flow[2]))
    elif item := _ITEM.match(line):
        quote, name, value = item.groups()
        yield Entry(number + 1, number + 1, name, value.rpartition(quote)[0] if quote else _scalar(value))
    elif name := _NAME.match(line):
        following = _VALUE.match(lines[number + 1]) if number + 1 < len(lines) else None
        # The keys of one entry have the same indentation.
        if following is None or len(following[1]) != len(name[1]):
            return
        if following[2] == "valueFrom":
            yield Entry(number + 1, number + 2, name[2], "", "comes from elsewhere (valueFrom)")
        else:
            value, last = _value_and_last_line(lines, number + 1, following[3], len(following[1]))
            yield Entry(number + 1, last, name[2], value)
    elif entry := _ENTRY.match(line):
        value, last = _value_and_last_line(lines, number, entry[3], len(entry[1]))
        yield Entry(number + 1, last, entry[2], value)


def _value_and_last_line(lines: list[str], number: int, value: str, indent: int) -> tuple[str, int]:
    """A value in line `number`, or in the indented block below this line, and the number of the value's last line."""
    if not _BLOCK.match(value):
        return _scalar(value), number + 1
    block = []
    for line in lines[number + 1 :]:
        if line.strip() and len(line) - len(line.lstrip()) <= indent:
            break
        block.append(line.strip())
    return " ".join(filter(None, block)), number + 1 + len(block)


def _scalar(value: str) -> str:
    value = value.strip()
    if value[:1] in "\"'" and value.rfind(value[0]) > 0:
        return value[1 : value.rfind(value[0])]
    return _COMMENT.sub("", value)
