"""Answers of a bounded size: parts that do not fit are left out, with a sentence on how to ask for them."""

import json
from collections.abc import Callable, Iterator
from typing import Any

from harness.errors import UsageError

# About 25,000 tokens, the most that clients pass to a model at once.
LARGEST = 100_000
_CUT, _LEAST = "cut", 200

# A function of a cut part's path and the number of items shown; it returns words on how to ask for the rest.
Rest = Callable[[str, int], str]


def fit(answer: dict[str, Any], rest: Rest) -> dict[str, Any]:
    """`answer` if its JSON is no longer than LARGEST, else with its longest lists and texts cut.

    `cut` then holds a sentence for each of the first ten parts cut: its path, the amount shown, the words of `rest`.
    """
    if _length(answer) <= LARGEST:
        return answer
    # A list that is too long is cut at its end, and its remaining items stay whole, so that there are few sentences.
    cuts: list[str] = []
    cut = _fit_value(answer, LARGEST * 9 // 10, "", cuts, rest)
    shown = cuts[:10]
    more = (f"further parts cut: {len(cuts) - len(shown)}",) if len(cuts) > len(shown) else ()
    return {**cut, _CUT: [*shown, *more]}


def part(answer: dict[str, Any], path: str, start: int) -> dict[str, Any]:
    """The part of the answer at `path` (`/tables/0/rows`), from `start` on if it is a list, an object or a text.

    Raises UsageError `unknown-part`.
    """
    node: Any = answer
    for step in path.strip("/").split("/") if path.strip("/") else ():
        name = step.replace("~1", "/").replace("~0", "~")
        if isinstance(node, dict) and name in node:
            node = node[name]
        elif isinstance(node, list) and name.isdecimal() and int(name) < len(node):
            node = node[int(name)]
        else:
            there = ", ".join(node) if isinstance(node, dict) else f"{len(node)} items" if node else "nothing"
            raise UsageError(
                "unknown-part",
                f"expected a part of the answer such as /tables/0/rows, got {path!r}: "
                f"instead of {name!r} the answer has {there[:300]}",
            )
    if isinstance(node, dict):
        node = [[name, value] for name, value in node.items()]
    if not isinstance(node, list | str):
        return {"part": path, "value": node}
    return {"part": path, "start": start, "of": len(node), "values": node[start:]}


def _fit_value(value: Any, room: int, path: str, cuts: list[str], rest: Rest) -> Any:
    """`value` in `room` characters of JSON; a sentence about each cut goes into `cuts`."""
    if _length(value) <= room:
        return value
    if isinstance(value, str):
        kept = value[: max(room - 2, 0) * len(value) // _length(value)]
        _note(cuts, path, len(kept), len(value), "characters", rest)
        return kept
    if isinstance(value, list):
        items = list(_leading(value, room))
        # If the first item alone is too long, this item is cut.
        if not items and room > _LEAST:
            items = [_fit_value(value[0], room, f"{path}/0", cuts, rest)]
        if len(items) < len(value):
            _note(cuts, path, len(items), len(value), "items", rest)
        return items
    if not isinstance(value, dict):
        return value
    names = list(_leading(list(value), room // 2))
    if len(names) < len(value):
        _note(cuts, path, len(names), len(value), "entries", rest)
    left = room - sum(_length(name) + 4 for name in names)
    fits = {}
    # Small entries come first, so that large entries get the room that the small entries do not need.
    for count, name in enumerate(sorted(names, key=lambda name: _length(value[name]))):
        share = max(left // (len(names) - count), 0)
        escaped = name.replace("~", "~0").replace("/", "~1")
        fits[name] = _fit_value(value[name], share, f"{path}/{escaped}", cuts, rest)
        left -= _length(fits[name])
    return {name: fits[name] for name in names}


def _leading(items: list[Any], room: int) -> Iterator[Any]:
    left = room
    for item in items:
        left -= _length(item) + 2
        if left < 0:
            return
        yield item


def _note(cuts: list[str], path: str, shown: int, of: int, what: str, rest: Rest) -> None:
    cuts.append(f"{path or 'the answer'}: {shown:,} of {of:,} {what} are shown; {rest(path, shown)}")


def _length(value: Any) -> int:
    return len(json.dumps(value, ensure_ascii=False))
